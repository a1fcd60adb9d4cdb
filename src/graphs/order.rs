//! The order of a pool's graphs: each launch comes after the one before.
//!
//! An event is recorded behind each launch. A launch on the same stream comes after it anyway; one on
//! another stream is made to wait for it. So at any time one event stands behind everything that the
//! pool's graphs have been asked to do, and completed, says that none runs.

use std::sync::Arc;

use super::retired::Retired;
use super::{Error, StreamRefusal};
use crate::driver::{AsStream, DriverError, EventHandle, HostApi, StreamHandle};
use crate::engine::{one_stream, Engine, PoolId};
use crate::sync::{AtomicBool, Ordering};

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
    pub(super) stream: StreamHandle,
    pub(super) id: u64,
}

impl Launched {
    /// A stream that does not capture, as the driver knows it.
    pub(super) fn on<D: HostApi>(driver: &D, stream: impl AsStream) -> Result<Self, Error> {
        let stream = one_stream(stream.as_stream(), "launch")?;
        if driver.is_capturing(stream)? {
            let why = StreamRefusal::LaunchWhileCapturing;
            return Err(Error::Stream { call: "launch", stream, why });
        }
        Ok(Self { stream, id: driver.stream_id(stream)? })
    }
}

/// The last launch of a pool, and what waits for it.
pub(super) struct Order<D: HostApi> {
    /// The stream of the last launch, with the event behind it.
    last: Option<(Launched, Arc<Event<D>>)>,
    /// Whether a launch was not marked, so that the event does not stand behind everything.
    lost: bool,
    /// How many launches there were, and what counts as one.
    launches: u64,
    /// Whether the next launch has to ask for what was lent.
    lends: Arc<AtomicBool>,
    /// Whether the pool has no memory at present.
    pub(super) suspended: bool,
    /// Graphs that were dropped while they may have been running.
    pub(super) retired: Vec<Retired<D>>,
}

impl<D: HostApi> Order<D> {
    /// Of a pool that was not launched yet.
    pub(super) fn new(engine: &Engine<D>, pool: PoolId) -> Self {
        Self {
            last: None,
            lost: false,
            launches: 0,
            lends: engine.lends(pool),
            suspended: false,
            retired: Vec::new(),
        }
    }

    /// Makes `stream` come after the last launch, for the next one or for what prepares it.
    pub(super) fn follow(
        &self,
        engine: &Engine<D>,
        pool: PoolId,
        stream: Launched,
    ) -> Result<(), Error> {
        self.must_launch(engine, pool)?;
        match &self.last {
            Some((last, event)) if *last != stream => {
                Ok(engine.driver().wait_for_event(stream.stream, event.handle)?)
            }
            _ => Ok(()),
        }
    }

    /// Refuses a pool that has no memory, or whose order is lost.
    pub(super) fn must_launch(&self, engine: &Engine<D>, pool: PoolId) -> Result<(), Error> {
        if self.suspended {
            return Err(engine.suspended(pool, "launch"));
        }
        if self.lost {
            return Err(Error::OrderLost { pool });
        }
        Ok(())
    }

    /// A number that changes with each launch.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }

    /// Makes a launch on `stream` come after all work on memory that was lent.
    pub(super) fn follow_lent(
        &self,
        engine: &Engine<D>,
        pool: PoolId,
        stream: Launched,
    ) -> Result<(), Error> {
        match self.lends.load(Ordering::Relaxed) {
            true => engine.follow_lent(pool, stream.stream),
            false => Ok(()),
        }
    }

    /// A launch that was marked came after all work on memory that was lent: so will those after it.
    pub(super) fn forget_lent(&self, engine: &Engine<D>, pool: PoolId) {
        if self.lends.load(Ordering::Relaxed) {
            // Where the engine cannot be asked, the next launch comes after the same once more.
            let _ = engine.forget_borrowers(pool);
        }
    }

    /// Marks the end of what `stream` holds, which need not follow the last launch yet, as if it had
    /// been launched.
    pub(super) fn cover(&mut self, engine: &Arc<Engine<D>>, pool: PoolId, stream: Launched) {
        if self.follow(engine, pool, stream).is_err() {
            // Then no one event stands behind both.
            self.lost = true;
            return;
        }
        // What cannot be marked is remembered here.
        let _ = self.mark(engine, stream);
    }

    /// What a stream holds cannot be marked, so it is waited for. If it cannot be waited for, as on a
    /// device that is not the engine's, or while a capture is under way, which the wait would ruin, nothing follows it.
    pub(super) fn wait_or_lose(&mut self, engine: &Engine<D>, stream: StreamHandle) {
        let driver = engine.driver();
        let here = driver.device_of_stream(stream).is_ok_and(|device| device == driver.device());
        self.lost |= !here || engine.is_recording() || driver.synchronize().is_err();
    }

    /// Marks the end of what was just launched on `stream`.
    pub(super) fn mark(
        &mut self,
        engine: &Arc<Engine<D>>,
        stream: Launched,
    ) -> Result<(), DriverError> {
        self.launches += 1;
        let marked = self.record(engine, stream);
        if marked.is_err() {
            self.last = None;
            self.wait_or_lose(engine, stream.stream);
        }
        marked
    }

    fn record(&mut self, engine: &Arc<Engine<D>>, stream: Launched) -> Result<(), DriverError> {
        let event = match self.last.take() {
            // An event that a retired graph waits for keeps its place.
            Some((last, event)) if last == stream && Arc::strong_count(&event) == 1 => {
                engine.driver().record_event(event.handle, stream.stream)?;
                event
            }
            // An event belongs to its stream's device, which another stream may not share.
            _ => Event::behind(engine, stream.stream)?,
        };
        self.last = Some((stream, event));
        Ok(())
    }

    /// The event behind the last launch, if it has not completed; an error where that is unknown.
    pub(super) fn pending(&self, pool: PoolId) -> Result<Option<Arc<Event<D>>>, Error> {
        if self.lost {
            return Err(Error::OrderLost { pool });
        }
        Ok(self
            .last
            .as_ref()
            .map(|(_, event)| event)
            .filter(|event| !event.is_completed())
            .cloned())
    }

    /// Takes out the retired graphs that have finished.
    pub(super) fn finished(&mut self) -> Vec<Retired<D>> {
        if self.retired.is_empty() {
            return Vec::new();
        }
        self.retired.extract_if(.., |retired| retired.is_finished()).collect()
    }
}
