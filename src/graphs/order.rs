//! The order of a pool's graphs: each launch comes after the one before.
//!
//! An event is recorded behind each launch. A launch on the same stream comes after it anyway; one on
//! another stream is made to wait for it. So at any time one event stands behind everything that the
//! pool's graphs have been asked to do, and completed, says that none runs.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::executables::{Executables, Means};
use super::pool::Pool;
use super::{Error, PoolRefusal, StreamRefusal};
use crate::driver::{
    AsStream, DriverError, EventHandle, ExecutableHandle, GraphHandle, HostApi, StreamHandle,
};
use crate::engine::{one_stream, Engine, GraphId, PoolId};
use crate::sync::{AtomicBool, Ordering};

/// What a graph keeps alive until it has finished.
pub(super) type Kept = Vec<Box<dyn Any + Send + Sync>>;

/// An event that is destroyed with its last user.
pub(crate) struct Event<D: HostApi> {
    engine: Arc<Engine<D>>,
    handle: EventHandle,
}

impl<D: HostApi> Event<D> {
    /// An event behind what a stream, of any device, holds so far.
    pub(crate) fn behind(
        engine: &Arc<Engine<D>>,
        stream: StreamHandle,
    ) -> Result<Arc<Self>, DriverError> {
        let driver = engine.driver();
        let handle = driver.create_event_on(driver.device_of_stream(stream)?)?;
        let event = Arc::new(Self { engine: engine.clone(), handle });
        driver.record_event(handle, stream)?;
        Ok(event)
    }

    /// Whether what it was recorded behind has completed. What cannot be told has not.
    pub(super) fn is_completed(&self) -> bool {
        matches!(self.engine.driver().query_event(self.handle), Ok(true))
    }

    /// Waits until what it was recorded behind has completed.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        self.engine.driver().synchronize_event(self.handle)
    }
}

impl<D: HostApi> Drop for Event<D> {
    fn drop(&mut self) {
        // An event of a context that is gone is gone as well.
        let _ = self.engine.driver().destroy_event(self.handle);
    }
}

/// A stream with the driver's number of it: its handle may be given again when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launched {
    stream: StreamHandle,
    id: u64,
}

impl Launched {
    /// A stream that `call` orders behind launches, as the driver knows it. It must not capture.
    pub(super) fn behind(
        driver: &impl HostApi,
        stream: impl AsStream,
        call: &'static str,
    ) -> Result<Self, Error> {
        Self::known(driver, stream, call, StreamRefusal::OrderWhileCapturing)
    }

    /// A stream for `call`, as the driver knows it. While it captures it is refused so.
    pub(super) fn known(
        driver: &impl HostApi,
        stream: impl AsStream,
        call: &'static str,
        why: StreamRefusal,
    ) -> Result<Self, Error> {
        let stream = one_stream(stream.as_stream(), call)?;
        if driver.is_capturing(stream)? {
            return Err(Error::Stream { call, stream, why });
        }
        Ok(Self { stream, id: driver.stream_id(stream)? })
    }

    pub(super) fn stream(self) -> StreamHandle {
        self.stream
    }
}

/// The last launch of a pool, and what waits for it.
pub(super) struct Order<D: HostApi> {
    engine: Arc<Engine<D>>,
    pool: PoolId,
    /// The stream of the last launch, with the event behind it.
    last: Option<(Launched, Arc<Event<D>>)>,
    /// Whether a launch was not marked, so that the event does not stand behind everything.
    lost: bool,
    /// How many launches there were, and what counts as one.
    launches: u64,
    /// Whether the next launch has to ask the engine: whether the pool has its memory, and for what was lent.
    asks: Arc<AtomicBool>,
    /// Graphs that were dropped while they may have been running.
    retired: Vec<Retired<D>>,
}

impl<D: HostApi> Order<D> {
    /// Of a pool that was not launched yet.
    pub(super) fn new(engine: &Arc<Engine<D>>, pool: PoolId) -> Self {
        Self {
            engine: engine.clone(),
            pool,
            last: None,
            lost: false,
            launches: 0,
            asks: engine.asks(pool),
            retired: Vec::new(),
        }
    }

    /// Makes `stream` come after the last launch, for the next one or for what prepares it. `call` asks for it.
    pub(super) fn follow(&self, stream: Launched, call: &'static str) -> Result<(), Error> {
        self.must_launch(call)?;
        Ok(self.follow_last(stream)?)
    }

    fn follow_last(&self, stream: Launched) -> Result<(), DriverError> {
        match &self.last {
            Some((last, event)) if *last != stream => {
                self.engine.driver().wait_for_event(stream.stream, event.handle)
            }
            _ => Ok(()),
        }
    }

    /// Refuses a pool that has no memory, or whose order is lost.
    pub(super) fn must_launch(&self, call: &'static str) -> Result<(), Error> {
        if self.asks.load(Ordering::Acquire) {
            self.engine.host().require_awake(self.pool, call)?;
        }
        if self.lost {
            return Err(Error::OrderLost { pool: self.pool });
        }
        Ok(())
    }

    /// A number that changes with each launch.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }

    /// Whether the next launch has anything to ask of the engine.
    pub(super) fn asks(&self) -> bool {
        self.asks.load(Ordering::Relaxed)
    }

    /// Makes a launch on `stream` come after all work on memory that was lent.
    pub(super) fn follow_lent(&self, stream: Launched) -> Result<(), Error> {
        self.engine.host().follow_lent(self.pool, stream.stream)
    }

    /// A launch that was marked came after all work on memory that was lent: so will those after it.
    pub(super) fn forget_lent(&self) {
        if self.asks() {
            // Where the engine cannot be asked, the next launch comes after the same once more.
            let _ = self.engine.host().forget_borrowers(self.pool);
        }
    }

    /// Marks the end of what `stream` holds as if it had been launched, though it need not follow the last launch yet.
    pub(super) fn cover(&mut self, stream: Launched) {
        // Also of a pool that was suspended meanwhile.
        if self.follow_last(stream).is_err() {
            // Then no one event stands behind both.
            return self.wait_or_lose(stream.stream);
        }
        // What cannot be marked is remembered here.
        let _ = self.mark(stream);
    }

    /// What a stream holds cannot be marked, so it is waited for. If it cannot be waited for, as on a
    /// device that is not the engine's, or while a capture is under way, which the wait would ruin, nothing follows it.
    pub(super) fn wait_or_lose(&mut self, stream: StreamHandle) {
        let driver = self.engine.driver();
        let here = driver.device_of_stream(stream).is_ok_and(|device| device == driver.device());
        let _none_begins = here.then(|| self.engine.hold_device_waits());
        self.lost |= !here || self.engine.host().is_recording() || driver.synchronize().is_err();
    }

    /// Marks the end of what was just launched on `stream`.
    pub(super) fn mark(&mut self, stream: Launched) -> Result<(), DriverError> {
        self.launches += 1;
        let marked = self.record(stream);
        if marked.is_err() {
            self.wait_or_lose(stream.stream);
        }
        marked
    }

    fn record(&mut self, stream: Launched) -> Result<(), DriverError> {
        let event = match self.last.take() {
            // An event that a retired graph waits for keeps its place.
            Some((last, event)) if last == stream && Arc::strong_count(&event) == 1 => {
                self.engine.driver().record_event(event.handle, stream.stream)?;
                event
            }
            // An event belongs to its stream's device, which another stream may not share.
            _ => Event::behind(&self.engine, stream.stream)?,
        };
        self.last = Some((stream, event));
        Ok(())
    }

    /// The event behind the last launch, if it has not completed; an error where that is unknown.
    pub(super) fn pending(&self) -> Result<Option<Arc<Event<D>>>, Error> {
        if self.lost {
            return Err(Error::OrderLost { pool: self.pool });
        }
        let last = self.last.as_ref().map(|(_, event)| event);
        Ok(last.filter(|event| !event.is_completed()).cloned())
    }

    /// Changes the executables by which the pool's graphs are launched.
    pub(super) fn change_executables<R>(
        &self,
        executables: &mut Executables,
        call: &'static str,
        change: impl FnOnce(&mut Executables, &Means<'_, D>) -> R,
    ) -> R {
        let idle = || Ok(self.pending()?.map_or(Ok(()), |event| event.synchronize())?);
        change(executables, &Means::new(&self.engine, self.pool, call, &idle))
    }

    /// Takes out the retired graphs that have finished.
    pub(super) fn finished(&mut self) -> Vec<Retired<D>> {
        let is_finished = |of: &mut Retired<D>| of.events.iter().all(|event| event.is_completed());
        self.retired.extract_if(.., is_finished).collect()
    }

    /// Waits for the retired graphs and releases them, but for those whose end cannot be told.
    pub(super) fn let_retired_go(&mut self) {
        self.retired.drain(..).filter(Retired::wait).for_each(Retired::release);
    }
}

/// What is left of a graph that was dropped while it may have been running: released once it has finished.
pub(super) struct Retired<D: HostApi> {
    /// Its name in each pool's engine.
    claims: SmallVec<[(Arc<Engine<D>>, GraphId); 1]>,
    /// Where the graph is ours to destroy, with the executable that no other graph uses.
    handles: Option<(GraphHandle, Option<ExecutableHandle>)>,
    kept: Kept,
    /// Its pools but for the one that it is put aside in. That is the first by address, so that no two keep each other.
    others: SmallVec<[Pool<D>; 1]>,
    /// Behind its last launch, in each of its pools that had one under way.
    events: SmallVec<[Arc<Event<D>>; 1]>,
}

impl<D: HostApi> Retired<D> {
    /// Destroys the graph and gives its memory back. It must have finished.
    pub(super) fn release(self) {
        if let (Some((graph, executable)), Some((engine, _))) = (self.handles, self.claims.first())
        {
            // A handle that the driver refuses to destroy is lost; the memory is not in use by it.
            if let Some(executable) = executable {
                let _ = engine.driver().destroy_executable(executable);
            }
            let _ = engine.driver().destroy_graph(graph);
        }
        for (engine, graph) in &self.claims {
            // Unknown by now if another pool of the same engine came before; a poisoned engine hands out nothing any more.
            let _ = engine.release_graph(*graph);
        }
    }

    /// Waits until the graph has finished; false where that cannot be told.
    fn wait(&self) -> bool {
        self.events.iter().all(|event| event.synchronize().is_ok())
    }
}

/// Lets a graph go that has these names in its pools, which are given by address, and these handles where it is ours to
/// destroy: at once where it does not run, and when it has finished otherwise.
pub(super) fn retire<D: HostApi>(
    pools: &[(Pool<D>, GraphId)],
    handles: Option<(GraphHandle, Option<ExecutableHandle>)>,
    kept: Kept,
) {
    let claims = pools.iter().map(|(pool, graph)| (pool.engine().clone(), *graph)).collect();
    let (others, events) = (SmallVec::new(), SmallVec::new());
    let mut retired = Retired { claims, handles, kept, others, events };
    for (pool, _) in pools {
        match pool.order().pending() {
            Ok(event) => retired.events.extend(event),
            // It is unknown when it has finished: it is never released.
            Err(_) => return std::mem::forget(retired),
        }
    }
    match pools {
        _ if retired.events.is_empty() => retired.release(),
        [(first, _), others @ ..] if retired.kept.is_empty() => {
            retired.others = others.iter().map(|(pool, _)| pool.clone()).collect();
            first.order().retired.push(retired);
        }
        // Not put aside: what it keeps may keep the pool, which would then never go.
        _ if retired.wait() => retired.release(),
        _ => std::mem::forget(retired),
    }
}

/// Changes pools while none of their graphs runs or is launched. Where one runs it is waited for, or refused.
pub(crate) fn hold_launches<D: HostApi, R>(
    pools: &[Pool<D>],
    wait: bool,
    change: impl FnOnce() -> R,
) -> Result<R, Error> {
    let mut pools: Vec<&Pool<D>> = pools.iter().collect();
    pools.sort_by_key(|pool| pool.place());
    let orders: Vec<_> = pools.into_iter().map(Pool::order).collect();
    for order in &orders {
        match order.pending()? {
            Some(event) if wait => event.synchronize()?,
            Some(_) => return Err(order.engine.refuse(order.pool, "try_sleep", PoolRefusal::Runs)),
            None => {}
        }
    }
    Ok(change())
}
