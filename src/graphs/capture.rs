//! Captures under way.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use smallvec::SmallVec;

use super::graph::Graph;
use super::judging::Judging;
use super::lease::Lease;
use super::memory::Memory;
use super::pool::{Pool, PoolCore};
use super::{Error, PoolRefusal, StreamRefusal};
use crate::driver::{
    AsStream, CaptureId, CaptureMode, CaptureStatus, ExecutableHandle, GraphHandle, HostApi,
    StreamHandle,
};
use crate::engine::{Attempt, CaptureReport, Engine};

/// A capture under way. It stays on its thread, as CUDA asks of captures.
///
/// Dropped without [`Capture::finish`], [`Capture::accept`] or [`Capture::close`], by an error or a
/// panic for instance, it ends the capture, rolls back what the engine decided in it, and leaves no
/// graph.
pub struct Capture<D: HostApi> {
    id: CaptureId,
    stream: StreamHandle,
    /// The pools that it uses, the first one first.
    pools: RefCell<SmallVec<[Arc<PoolCore<D>>; 1]>>,
    kept: RefCell<Vec<Box<dyn Any + Send + Sync>>>,
    attempt: Attempt,
    /// Whether it was begun here, so that it is to be ended here.
    begun: bool,
    open: bool,
    thread: PhantomData<*const ()>,
}

impl<D: HostApi> Capture<D> {
    /// Begins a capture on a stream, into a pool.
    ///
    /// # Errors
    /// The driver's, or the engine's: then the stream does not capture.
    pub fn begin(pool: &Pool<D>, stream: impl AsStream, mode: CaptureMode) -> Result<Self, Error> {
        let stream = stream.as_stream();
        let engine = pool.engine();
        pool.shared().reap();
        // Until the engine knows of the capture.
        let _none_waits = engine.hold_device_waits();
        engine.mark_stream(stream)?;
        engine.driver().begin_capture(stream, mode)?;
        let mut capture = Self::enter(pool, stream).inspect_err(|_| end(pool.engine(), stream))?;
        capture.begun = true;
        Ok(capture)
    }

    /// Begins a capture that is one of several attempts at the same work.
    pub(crate) fn begin_attempt(
        pool: &Pool<D>,
        stream: impl AsStream,
        mode: CaptureMode,
        attempt: Attempt,
    ) -> Result<Self, Error> {
        let mut capture = Self::begin(pool, stream, mode)?;
        capture.attempt = attempt;
        pool.engine().set_attempt(capture.id, attempt)?;
        Ok(capture)
    }

    /// Takes part in a capture that the host has begun on a stream, and will end itself.
    ///
    /// # Errors
    /// The engine's.
    pub fn adopt(pool: &Pool<D>, stream: impl AsStream) -> Result<Self, Error> {
        pool.shared().reap();
        Self::enter(pool, stream.as_stream())
    }

    /// Tells the engine of a capture that a stream is in.
    fn enter(pool: &Pool<D>, stream: StreamHandle) -> Result<Self, Error> {
        let id = pool.engine().begin_capture(pool.id(), stream)?;
        Ok(Self {
            id,
            stream,
            pools: RefCell::new([pool.shared().clone()].into_iter().collect()),
            kept: RefCell::default(),
            attempt: Attempt::default(),
            begun: false,
            open: true,
            thread: PhantomData,
        })
    }

    /// Lets the capture use another pool as well, of this engine or of another device's. `stream` is
    /// a stream of the capture, on the pool's device. To allocate from a pool of the same engine does
    /// so too; one of another engine must be joined first.
    ///
    /// # Errors
    /// [`StreamRefusal::NotInCapture`], the engine's.
    pub fn join(&self, pool: &Pool<D>, stream: impl AsStream) -> Result<(), Error> {
        let stream = stream.as_stream();
        let mut pools = self.pools.borrow_mut();
        if pools.iter().any(|joined| Arc::ptr_eq(joined, pool.shared())) {
            return Ok(());
        }
        match pool.engine().driver().capture_of(stream)? {
            CaptureStatus::Active { capture, .. } if capture == self.id => {}
            _ => {
                let why = StreamRefusal::NotInCapture;
                return Err(Error::Stream { call: "join", stream, why });
            }
        }
        pool.engine().begin_capture(pool.id(), stream)?;
        if !pools.iter().any(|joined| Arc::ptr_eq(joined.engine(), pool.engine())) {
            pool.engine().set_attempt(self.id, self.attempt)?;
        }
        pools.push(pool.shared().clone());
        Ok(())
    }

    /// A block from the capture's first pool, for `stream` to use from now on.
    ///
    /// # Errors
    /// [`StreamRefusal::NotInCapture`] for a stream that is not in the capture: [`Pool::allocate`] serves
    /// those. The engine's.
    pub fn allocate(&self, bytes: u64, stream: impl AsStream) -> Result<Memory<D>, Error> {
        self.hand_out(bytes, stream.as_stream(), false)
    }

    /// Allocates as [`Capture::allocate`], on memory of its own that is never shared or moved while the graph lives, and that is
    /// there at once ([`Engine::allocate_fixed`]).
    ///
    /// # Errors
    /// As for [`Capture::allocate`].
    pub fn allocate_fixed(&self, bytes: u64, stream: impl AsStream) -> Result<Memory<D>, Error> {
        self.hand_out(bytes, stream.as_stream(), true)
    }

    fn hand_out(&self, bytes: u64, stream: StreamHandle, fixed: bool) -> Result<Memory<D>, Error> {
        let pool = self.pools.borrow()[0].clone();
        let block = pool.engine().allocate_in(self.id, pool.id(), bytes, stream, fixed)?;
        Ok(Memory::new(block, pool))
    }

    /// Keeps a value until the graph is gone and has finished: memory that its nodes use and that
    /// was allocated before, for instance, or what their parameters point to. Dropping such a graph
    /// waits until it has finished. What is not kept must outlive the graph's last launch by other
    /// means, by [`Pool::synchronize`](super::Pool::synchronize) for instance: to outlive the graph is
    /// not enough, since that may be dropped while it runs. A closure may be called more than once
    /// ([`Engine::capture`]), so it keeps a clone of an [`Arc`] of the value.
    pub fn keep(&self, value: impl Any + Send + Sync) {
        self.kept.borrow_mut().push(Box::new(value));
    }

    /// The driver's number of the capture.
    pub fn id(&self) -> CaptureId {
        self.id
    }

    /// The stream that it began on.
    pub fn stream(&self) -> StreamHandle {
        self.stream
    }

    /// Ends the capture: the checker judges it on a thread of its own while the graph is instantiated,
    /// and the graph is put on the device.
    ///
    /// # Errors
    /// The engine's, with [`Error::Refused`](crate::Error::Refused) where the checker
    /// does not accept the capture, or [`Error::CaptureAgain`];
    /// [`PoolRefusal::Going`]; the driver's, where a stream has not been joined again for instance. The
    /// capture is over then, and nothing of it is left.
    ///
    /// # Panics
    /// For a capture that was [adopted](Capture::adopt): its host ends it.
    pub fn finish(mut self) -> Result<Graph<D>, Error> {
        assert!(self.begun, "a capture that the host has begun is ended by the host; see `accept`");
        let engine = self.engine();
        let graph = self.graph_under_capture()?;
        let judging = self.close_all(graph)?;
        let driver = engine.driver();
        let graph = driver.end_capture(self.stream)?;
        let before = driver.memory_info().ok();
        let discard = |executable: Option<ExecutableHandle>| {
            if let Some(executable) = executable {
                let _ = driver.destroy_executable(executable);
            }
            let _ = driver.destroy_graph(graph);
        };
        let executable = driver.instantiate(graph).inspect_err(|_| discard(None))?;
        let verdict = judging.verdict().map_err(|error| named(error, driver));
        let (lease, report) = verdict.inspect_err(|_| discard(Some(executable)))?;
        let uploaded = driver.upload(executable, self.stream);
        uploaded.inspect_err(|_| discard(Some(executable)))?;
        let after = driver.memory_info().ok();
        let free = before.zip(after).map(|(before, after)| (before.free, after.free));
        let spent = free.map_or(0, |(before, after)| before.saturating_sub(after));
        Ok(Graph::new(lease, graph, executable, report, spent))
    }

    /// Ends the engine's part of a capture that the host begins and ends itself. `graph` is the
    /// handle under capture, just before the host ends it, or the one that ending it gave; the first
    /// is better (see [`Engine::end_capture`]). Does what [`Capture::close`] and [`Judging::verdict`] do
    /// in turn, and names the kernels in a refusal.
    ///
    /// # Errors
    /// The engine's, [`PoolRefusal::Going`]: then the graph must not be launched, and nothing of the
    /// capture is left here.
    ///
    /// # Panics
    /// For a capture that was [begun](Capture::begin) here: it is ended here.
    pub fn accept(self, graph: GraphHandle) -> Result<(Lease<D>, CaptureReport), Error> {
        let engine = self.engine();
        self.close(graph)?.verdict().map_err(|error| named(error, engine.driver()))
    }

    /// The first step of [`Capture::accept`]. While the checker judges the capture, the host may end it
    /// in the driver and instantiate its graph; [`Judging::verdict`] says whether the graph may be
    /// launched. See [`Engine::close_capture`].
    ///
    /// # Errors
    /// As for [`Capture::accept`].
    ///
    /// # Panics
    /// For a capture that was [begun](Capture::begin) here: it is ended here.
    pub fn close(mut self, graph: GraphHandle) -> Result<Judging<D>, Error> {
        assert!(!self.begun, "a capture that was begun here is ended here; see `finish`");
        self.close_all(graph)
    }

    /// The engine of the capture's first pool.
    pub fn engine(&self) -> Arc<Engine<D>> {
        self.pools.borrow()[0].engine().clone()
    }

    fn graph_under_capture(&self) -> Result<GraphHandle, Error> {
        let engine = self.engine();
        match engine.driver().capture_of(self.stream)? {
            CaptureStatus::Active { capture, graph } if capture == self.id => return Ok(graph),
            // The engine says so itself, and in more words.
            CaptureStatus::Invalidated => engine.observe(self.stream)?,
            _ => {}
        }
        let why = StreamRefusal::NotInCapture;
        Err(Error::Stream { call: "finish", stream: self.stream, why })
    }

    /// Closes the capture in each engine. If one of them fails, the others are rolled back when this value
    /// is dropped.
    fn close_all(&mut self, graph: GraphHandle) -> Result<Judging<D>, Error> {
        let mut closed: SmallVec<[_; 1]> = SmallVec::new();
        let mut result = Ok(());
        for pool in self.pools.borrow().iter() {
            let engine = pool.engine();
            // One engine closes it for all its pools at once.
            if !closed.iter().any(|other| Arc::ptr_eq(other, engine)) {
                closed.push(engine.clone());
                result = result.and(engine.close_capture(self.id, graph));
            }
        }
        result?;
        self.open = false;
        Ok(Judging::new(self.id, self.pools.take(), self.kept.take()))
    }
}

/// A refusal with the names of kernels added; the graph must still exist.
fn named<D: HostApi>(error: Error, driver: &D) -> Error {
    match error {
        Error::Refused(violation) => Error::Refused(Box::new(violation.name_kernels(driver))),
        error => error,
    }
}

/// Ends a capture in the driver and destroys its graph.
fn end<D: HostApi>(engine: &Engine<D>, stream: StreamHandle) {
    if let Ok(graph) = engine.driver().end_capture(stream) {
        let _ = engine.driver().destroy_graph(graph);
    }
}

impl<D: HostApi> Drop for Capture<D> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let pools = self.pools.take();
        for pool in &pools {
            // Unknown by now where the end was refused.
            let _ = pool.engine().abandon_capture(self.id);
        }
        if let Some(pool) = pools.first().filter(|_| self.begun) {
            end(pool.engine(), self.stream);
        }
    }
}

impl<D: HostApi> fmt::Debug for Capture<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("id", &self.id)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl<D: HostApi> Engine<D> {
    /// Captures what `body` submits to `stream`, and to the streams that it forks, into a graph that
    /// owns its memory.
    ///
    /// Returns the graph with what `body` returned: the outputs, for instance.
    ///
    /// After [`Error::CaptureAgain`], which only the setting `programmatic` `auto` gives, `body` is
    /// captured again, at most twice. It must then submit the same work, and replace what it stored
    /// elsewhere the first time. What it returned is dropped before it is called again.
    ///
    /// # Errors
    /// [`PoolRefusal::Foreign`]; those of [`Capture::begin`], `body` and [`Capture::finish`]. After any
    /// of them, and after a panic of `body`, the stream does not capture any more and nothing is left
    /// of the capture but the blocks that `body` gave away.
    pub fn capture<R, E: From<Error>>(
        self: &Arc<Self>,
        stream: impl AsStream,
        pool: &Pool<D>,
        mode: CaptureMode,
        mut body: impl FnMut(&Capture<D>) -> Result<R, E>,
    ) -> Result<(Graph<D>, R), E> {
        if !Arc::ptr_eq(self, pool.engine()) {
            return Err(pool.engine().refuse(pool.id(), "capture", PoolRefusal::Foreign).into());
        }
        let stream = stream.as_stream();
        let mut attempt = Attempt::First;
        loop {
            let capture = Capture::begin_attempt(pool, stream, mode, attempt)?;
            let result = body(&capture)?;
            match capture.finish() {
                Ok(graph) => return Ok((graph, result)),
                Err(error) => attempt = attempt.after(error)?,
            }
        }
    }
}
