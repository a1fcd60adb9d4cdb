//! Captures, from their begin to the verdict.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use smallvec::SmallVec;

use super::executables::Captured;
use super::graph::Graph;
use super::lease::{owned_pools, Accepted, Lease};
use super::memory::Memory;
use super::order::Kept;
use super::pool::{collect_all, Pool};
use super::{Error, PoolRefusal, StreamRefusal, Unknown};
use crate::driver::{
    AsStream, CaptureId, CaptureMode, CaptureStatus, GraphHandle, HostApi, StreamHandle,
};
use crate::engine::{Attempt, CaptureReport, Engine};
use crate::logging::tell_later;
use crate::shown::shown;

/// A capture under way. It is not `Send`: CUDA has a capture stay on its thread.
///
/// A value that is dropped without [`Capture::finish`], [`Capture::accept`] or [`Capture::close`], by an error or a
/// panic for instance, ends the capture, rolls back what the engine decided in it, and leaves no graph.
pub struct Capture<D: HostApi> {
    id: CaptureId,
    stream: StreamHandle,
    /// The pools that it uses, the first one first.
    pools: RefCell<SmallVec<[Pool<D>; 1]>>,
    kept: RefCell<Kept>,
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
    /// The driver's, or those of [`Engine::begin_capture`]: then the stream does not capture.
    pub fn begin(pool: &Pool<D>, stream: impl AsStream, mode: CaptureMode) -> Result<Self, Error> {
        let stream = stream.as_stream();
        let engine = pool.engine();
        pool.collect();
        // Until the engine knows of the capture.
        let _told = tell_later();
        let _none_waits = engine.hold_device_waits();
        engine.mark_stream(stream)?;
        engine.host().may_capture(stream)?;
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
    pub fn adopt(pool: &Pool<D>, stream: impl AsStream) -> Result<Self, Error> {
        pool.collect();
        Self::enter(pool, stream.as_stream())
    }

    /// Tells the engine of a capture that a stream is in.
    fn enter(pool: &Pool<D>, stream: StreamHandle) -> Result<Self, Error> {
        let id = pool.engine().begin_capture(pool.id(), stream)?;
        Ok(Self {
            id,
            stream,
            pools: RefCell::new([pool.clone()].into_iter().collect()),
            kept: RefCell::default(),
            attempt: Attempt::default(),
            begun: false,
            open: true,
            thread: PhantomData,
        })
    }

    /// Lets the capture use another pool as well, of this engine or of another device's. `stream` is a stream of the
    /// capture, on the pool's device. An allocation from a pool of the same engine joins that pool by itself; a pool of
    /// another engine must be joined first.
    ///
    /// # Errors
    /// [`StreamRefusal::NotInCapture`]; those of [`Engine::begin_capture`].
    pub fn join(&self, pool: &Pool<D>, stream: impl AsStream) -> Result<(), Error> {
        let stream = stream.as_stream();
        let mut pools = self.pools.borrow_mut();
        if pools.iter().any(|joined| joined.is(pool)) {
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
        pools.push(pool.clone());
        Ok(())
    }

    /// A block from the capture's first pool, for `stream` to use from now on.
    ///
    /// # Errors
    /// [`StreamRefusal::NotInCapture`] for a stream that is not in the capture ([`Pool::allocate`] serves such
    /// streams); those of [`Engine::allocate`].
    pub fn allocate(&self, bytes: u64, stream: impl AsStream) -> Result<Memory<D>, Error> {
        self.hand_out(bytes, stream.as_stream(), false)
    }

    /// A block from the capture's first pool, in memory that is mapped at once and is never shared or moved while the
    /// graph lives ([`Engine::allocate_fixed`]).
    ///
    /// # Errors
    /// Those of [`Capture::allocate`].
    pub fn allocate_fixed(&self, bytes: u64, stream: impl AsStream) -> Result<Memory<D>, Error> {
        self.hand_out(bytes, stream.as_stream(), true)
    }

    fn hand_out(&self, bytes: u64, stream: StreamHandle, fixed: bool) -> Result<Memory<D>, Error> {
        let pool = self.pools.borrow()[0].clone();
        let (engine, last_resort) = (pool.engine(), || collect_all(pool.engine()));
        let block = engine.allocate_in(self.id, pool.id(), bytes, stream, fixed, last_resort)?;
        Ok(Memory::new(block, pool))
    }

    /// Keeps a value until the graph is gone and has finished: memory that its nodes use and that was allocated before,
    /// for instance, or what their parameters point to. Dropping such a graph waits until it has finished. A value that
    /// is not kept must outlive the graph's last launch by other means, by
    /// [`Pool::synchronize`](super::Pool::synchronize) for instance. To outlive the `Graph` is not enough, since a
    /// graph may be dropped while it runs. The closure of [`Engine::capture`] may be called more than once, so it keeps
    /// a clone of an [`Arc`] of the value.
    pub fn keep(&self, value: impl Any + Send + Sync) {
        self.kept.borrow_mut().push(Box::new(value));
    }

    /// The driver's number of the capture.
    pub fn id(&self) -> CaptureId {
        self.id
    }

    /// The stream on which the capture began.
    pub fn stream(&self) -> StreamHandle {
        self.stream
    }

    /// Ends the capture. The checker judges it, on a thread of its own where it has many nodes
    /// ([`Engine::close_capture`]), while the driver instantiates the graph; then the executable is uploaded to the
    /// device. Where the first pool [keeps executables](Pool::keep_executables) the first launch does both.
    ///
    /// # Errors
    /// Those of [`Engine::end_capture`], [`Error::Refused`](crate::Error::Refused) where the checker does not accept
    /// the capture and [`Error::CaptureAgain`] among them; [`PoolRefusal::Going`]; the driver's, where a stream has not
    /// been joined again for instance. The capture is over then, and nothing of it is left.
    ///
    /// # Panics
    /// For a capture of [`Capture::adopt`], which its host ends.
    pub fn finish(mut self) -> Result<Graph<D>, Error> {
        assert!(self.begun, "a capture that the host has begun is ended by the host; see `accept`");
        let home = self.pools.borrow()[0].clone();
        let graph = self.graph_under_capture()?;
        let judging = self.close_all(graph)?;
        let (engine, driver) = (home.engine(), home.engine().driver());
        let graph = driver.end_capture(self.stream)?;
        let lazily = home.executable_table().are_lazy();
        let captured = Captured::new(engine, graph, lazily);
        let mut captured = captured.inspect_err(|_| _ = driver.destroy_graph(graph))?;
        let verdict = judging.verdict().map_err(|error| named(error, driver));
        let (lease, report) = verdict.inspect_err(|_| captured.discard(driver))?;
        let uploaded = captured.upload(engine, self.stream, report.nodes);
        uploaded.inspect_err(|_| captured.discard(driver))?;
        Ok(Graph::new(lease, captured, report))
    }

    /// Ends the capture, calls `look` with its graph, and rolls the capture back as dropping does. `look` may read the
    /// graph and instantiate it; blocks still have their addresses. The graph must never be launched.
    ///
    /// # Errors
    /// The driver's, and those of `look`. The capture is over then, too.
    ///
    /// # Panics
    /// For a capture of [`Capture::adopt`], which its host ends.
    pub fn discard<R>(
        mut self,
        look: impl FnOnce(GraphHandle) -> Result<R, Error>,
    ) -> Result<R, Error> {
        assert!(self.begun, "a capture that the host has begun is ended by the host");
        let engine = self.engine();
        let graph = engine.driver().end_capture(self.stream)?;
        self.begun = false;
        let seen = look(graph);
        let _ = engine.driver().destroy_graph(graph);
        seen
    }

    /// Ends the engine's part of a capture that the host begins and ends itself. `graph` is the handle under capture,
    /// just before the host ends the capture, or the handle that ending it gave; the first is better (see
    /// [`Engine::end_capture`]). Does what [`Capture::close`] and [`Judging::verdict`] do, one after the other, and
    /// names the kernels in a refusal.
    ///
    /// # Errors
    /// Those of [`Engine::end_capture`], [`PoolRefusal::Going`]: then the graph must not be launched, and nothing of
    /// the capture is left here.
    ///
    /// # Panics
    /// For a capture of [`Capture::begin`], which [`Capture::finish`] ends.
    pub fn accept(self, graph: GraphHandle) -> Result<(Lease<D>, CaptureReport), Error> {
        let engine = self.engine();
        self.close(graph)?.verdict().map_err(|error| named(error, engine.driver()))
    }

    /// The first step of [`Capture::accept`]. While the checker judges the capture, the host may end it
    /// in the driver and instantiate its graph; [`Judging::verdict`] says whether the graph may be
    /// launched. See [`Engine::close_capture`].
    ///
    /// # Errors
    /// Those of [`Capture::accept`].
    ///
    /// # Panics
    /// For a capture of [`Capture::begin`], which [`Capture::finish`] ends.
    pub fn close(mut self, graph: GraphHandle) -> Result<Judging<D>, Error> {
        assert!(!self.begun, "a capture that was begun here is ended here; see `finish`");
        self.close_all(graph)
    }

    /// The engine of the capture's first pool.
    pub fn engine(&self) -> Arc<Engine<D>> {
        self.pools.borrow()[0].engine().clone()
    }

    fn graph_under_capture(&self) -> Result<GraphHandle, Error> {
        const CALL: &str = "finish";
        let (engine, stream) = (self.engine(), self.stream);
        match engine.driver().capture_of(stream)? {
            CaptureStatus::Active { capture, graph } if capture == self.id => Ok(graph),
            // It is ended on the stream when it is dropped.
            CaptureStatus::Invalidated => {
                Err(Error::CaptureInvalidated { call: CALL, stream, ended: true })
            }
            _ => {
                let why = StreamRefusal::NotInCapture;
                Err(Error::Stream { call: CALL, stream, why })
            }
        }
    }

    /// Closes the capture in each engine. If one of them fails, the others are rolled back when this value is dropped.
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
        Ok(Judging { capture: self.id, pools: self.pools.take(), kept: self.kept.take() })
    }
}

/// A refusal with the names of kernels added; the graph must still exist.
fn named(error: Error, driver: &impl HostApi) -> Error {
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

shown!([D: HostApi] Capture<D>: |it| id = it.id, stream = it.stream);

/// A closed capture whose verdict is still to come ([`Capture::close`](Capture::close)): meanwhile the host ends it in
/// the driver and instantiates its graph. One of many nodes is judged on a thread of its own. May be moved to another
/// thread.
///
/// A value that is dropped without [`Judging::verdict`] rolls the capture back: its graph must never be launched.
pub struct Judging<D: HostApi> {
    capture: CaptureId,
    /// The pools that it uses, the first one first. Taken with the verdict.
    pools: SmallVec<[Pool<D>; 1]>,
    kept: Kept,
}

impl<D: HostApi> Judging<D> {
    /// Waits for the verdict. If the checker has accepted the capture, its graph may be launched, through the lease.
    ///
    /// # Errors
    /// Those of [`Engine::verdict`], [`PoolRefusal::Going`]: then the graph must never be launched, and nothing of the
    /// capture is left here.
    pub fn verdict(mut self) -> Result<(Lease<D>, CaptureReport), Error> {
        let mut accepted = Accepted::<D>::new();
        let mut first = None;
        let mut failed = None;
        for pool in std::mem::take(&mut self.pools) {
            let known =
                accepted.iter().find(|(other, _)| Arc::ptr_eq(other.engine(), pool.engine()));
            if let Some(&(_, graph)) = known {
                // One engine judges all its pools at once.
                accepted.push((pool, graph));
                continue;
            }
            match pool.engine().verdict(self.capture) {
                Ok(report) => {
                    accepted.push((pool, report.graph));
                    first.get_or_insert(report);
                }
                // An engine that has refused does not know the capture any more.
                Err(Error::Unknown { what: Unknown::Capture(_), .. }) if failed.is_some() => {}
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        let failed = failed.or_else(|| add_others(&mut accepted).err());
        if let Some(error) = failed {
            // Engines that accepted get their memory back.
            drop(Lease::new(accepted, Vec::new()));
            return Err(error);
        }
        let report = first.expect("each engine has accepted, or one has failed");
        Ok((Lease::new(accepted, std::mem::take(&mut self.kept)), report))
    }
}

/// Adds the pools that a graph uses and that the capture did not join.
fn add_others<D: HostApi>(accepted: &mut Accepted<D>) -> Result<(), Error> {
    for row in 0..accepted.len() {
        let (engine, graph) = (accepted[row].0.engine().clone(), accepted[row].1);
        for (pool, graph) in owned_pools(&engine, graph)? {
            if !accepted.iter().any(|(other, _)| other.is(&pool)) {
                accepted.push((pool, graph));
            }
        }
    }
    Ok(())
}

impl<D: HostApi> Drop for Judging<D> {
    fn drop(&mut self) {
        for pool in &self.pools {
            // Unknown by now if another pool of the same engine came before.
            let _ = pool.engine().abandon_capture(self.capture);
        }
    }
}

shown!([D: HostApi] Judging<D>: |it| capture = it.capture);

impl<D: HostApi> Engine<D> {
    /// Captures what `body` submits to `stream`, and to the streams that it forks, into a graph that owns its memory.
    ///
    /// Returns the graph with what `body` returned: the outputs, for instance.
    ///
    /// After [`Error::CaptureAgain`], which only the setting `programmatic` `auto` gives, `body` is captured again, at
    /// most twice. It must then submit the same work, and replace what it stored elsewhere the first time. The value
    /// that it returned is dropped before the next call.
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
        body: impl FnMut(&Capture<D>) -> Result<R, E>,
    ) -> Result<(Graph<D>, R), E> {
        if !Arc::ptr_eq(self, pool.engine()) {
            return Err(pool.engine().refuse(pool.id(), "capture", PoolRefusal::Foreign).into());
        }
        pool.capture_again(stream.as_stream(), mode, body, |_| Ok(()))
    }
}

impl<D: HostApi> Pool<D> {
    /// Captures twice what `body` submits to `stream`, and to the streams that it forks, and returns the second graph.
    /// The first graph is never launched. The library plans from it where the blocks of the second capture lie, in
    /// close to the least memory that needs no more edges. On devices without virtual memory management this is the
    /// only way to that.
    ///
    /// `body` must launch the same work both times, and have no effects at the time of the capture but its return
    /// value, which is dropped, blocks included, before the next call. A block that `body` stores elsewhere stays
    /// allocated, in memory of its own. A block from before the capture that `body` frees is gone the first time. What
    /// a library writes at its first call alone to a block of the capture is lost with the first capture, and the
    /// second graph reads undefined data there. Where the second capture asks for other blocks, it is served from there
    /// on as by [`Engine::capture`], and [`CaptureReport::layout`] in [`Graph::report`] tells. After
    /// [`Error::CaptureAgain`] the second capture is made again, so `body` may be called up to four times.
    ///
    /// Between the captures, memory of the pool that nothing uses goes back to the driver.
    ///
    /// With [`PlanChoice::Exact`](crate::settings::PlanChoice::Exact) the blocks may get their memory at the second
    /// capture's end, where less is needed that way: the rules of that setting hold for both captures.
    ///
    /// # Errors
    /// Those of [`Capture::begin`], `body` and [`Capture::finish`]; [`Error::NoJournal`](crate::Error::NoJournal) where
    /// captures keep none; [`Error::Refused`] after the first capture, where the blocks of the second one would be
    /// refused as well. After any of them the stream does not capture any more.
    pub fn capture_twice<R, E: From<Error>>(
        &self,
        stream: impl AsStream,
        mode: CaptureMode,
        mut body: impl FnMut(&Capture<D>) -> Result<R, E>,
    ) -> Result<(Graph<D>, R), E> {
        let stream = stream.as_stream();
        let first = Capture::begin_attempt(self, stream, mode, Attempt::First)?;
        let result = body(&first)?;
        let layout = self.engine().plans().layout_of(first.id())?;
        // Before the capture is gone: blocks that are freed in it leave nothing to wait for.
        drop(result);
        drop(first);
        self.capture_again(stream, mode, body, |second| {
            self.engine().plans().follow_layout(second.id(), layout.clone())
        })
    }

    /// Captures `body`, again after [`Error::CaptureAgain`]. `begun` is told of each capture before.
    fn capture_again<R, E: From<Error>>(
        &self,
        stream: StreamHandle,
        mode: CaptureMode,
        mut body: impl FnMut(&Capture<D>) -> Result<R, E>,
        begun: impl Fn(&Capture<D>) -> Result<(), Error>,
    ) -> Result<(Graph<D>, R), E> {
        let mut attempt = Attempt::First;
        loop {
            let capture = Capture::begin_attempt(self, stream, mode, attempt)?;
            begun(&capture)?;
            let result = body(&capture)?;
            match capture.finish() {
                Ok(graph) => return Ok((graph, result)),
                Err(error) => attempt = attempt.after(error)?,
            }
        }
    }
}
