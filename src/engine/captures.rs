//! The calls about captures and graphs.

use smallvec::SmallVec;

use super::names::{GraphId, PoolId};
use super::report::CaptureReport;
use super::state::Locked;
use super::{one_stream, Engine, Error, StreamRefusal};
use crate::driver::{AsStream, CaptureId, Driver, GraphHandle};
use crate::journal::Journal;

impl<D: Driver> Engine<D> {
    /// Tells the engine that `stream` has begun to capture and that the capture uses `pool`.
    ///
    /// The first allocation on a stream that captures does the same. A capture whose graph has
    /// conditional nodes *must* be announced, by either, before one of their bodies is captured into
    /// the same pool, and ended after: nothing else tells that the bodies run inside it.
    ///
    /// A capture that uses blocks of a pool it does not allocate from should be announced for that
    /// pool too, so that the pool knows of the graph.
    ///
    /// # Errors
    /// [`StreamRefusal::NotCapturing`], [`Error::CaptureInvalidated`], [`Error::Unknown`],
    /// [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended), or the driver's.
    pub fn begin_capture(&self, pool: PoolId, stream: impl AsStream) -> Result<CaptureId, Error> {
        let stream = stream.as_stream();
        const CALL: &str = "begin_capture";
        self.change(|locked| {
            let expected = locked.state.timelines.take_expected(stream);
            locked.state.must_be_awake(pool, CALL)?;
            let found = locked.capture_of(stream, CALL)?;
            let capture = found.ok_or(Error::Stream {
                call: "begin_capture",
                stream,
                why: StreamRefusal::NotCapturing,
            })?;
            let new = locked.state.captures.slot(capture).is_none();
            let (slot, _) = locked.look_into(stream, capture, pool, None, CALL)?;
            if new {
                locked.state.capture(slot).expected = expected;
            }
            Ok(capture)
        })
    }

    /// Tells the engine that the calling thread is about to begin a capture on `stream`, so that the capture
    /// may have the place of a block from before it that it frees itself: one of the first pool that it
    /// uses, and of this stream alone. Such a block is one of the capture from then on, if what the stream
    /// has been given by now is completed when the block is freed; else it waits as any other.
    ///
    /// **The host promises** that the stream is given no work outside captures that uses a block of that pool
    /// until the next [`Engine::begin_capture`] that names the stream: that of this capture, directly after
    /// it has begun, and that the capture is no body of a loop: the next turn would find in an input's place
    /// what this one has written there. A capture of the stream that is first heard of by a request has no
    /// inputs, nor has the next one. Costs an event, which is recorded on the stream.
    ///
    /// # Errors
    /// [`StreamRefusal::PerThread`].
    pub fn expect_capture(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "expect_capture")?;
        self.change(|locked| {
            locked.state.assign_stream(stream);
            locked.state.timelines.expect(locked.driver, stream);
            Ok(())
        })
    }

    /// Ends a capture. `graph` is the handle under capture, just before the host ends it, or the one
    /// that ending it gave. The first is better: the engine can then look at the streams once more
    /// and knows whose the last nodes are; a capture whose streams it never looked at may be refused
    /// otherwise. Every use of the capture's blocks is recorded before, and the graph is not launched
    /// before this has returned: what its blocks hold until then may be lost
    /// ([`Settings::growth_step_bytes`](crate::settings::Settings::growth_step_bytes)).
    ///
    /// With [`Config::check`](super::Config::check) the checker judges the capture on the finished graph.
    /// Without it no capture is judged: no dependency may be edited by hand, with the setting
    /// `programmatic` `deny` no launch may be programmatic, and `auto` is `lag`. If the capture is
    /// accepted, what it freed is there for later captures into the same pools, blocks not freed stay
    /// allocated as the graph's outputs, and the pools belong to one more graph.
    ///
    /// # Errors
    /// After each of these the graph must not be launched, and the capture is rolled back as by
    /// [`Engine::abandon_capture`]:
    /// - [`Error::Refused`] by the checker;
    /// - [`Error::CaptureAgain`] by the checker; the same work, captured again, is accepted
    ///   ([`Engine::set_attempt`]);
    /// - [`Error::SetBack`] where there is no checker;
    /// - [`Error::LateUse`] with [`Config::refuse_late_uses`](super::Config::refuse_late_uses);
    /// - the driver's, where memory of a pool of the capture is lost: the pool is suspended then
    ///   ([`Engine::resume_pool`]).
    ///
    /// [`Error::CaptureInvalidated`], [`Error::Unknown`].
    pub fn end_capture(
        &self,
        capture: CaptureId,
        graph: GraphHandle,
    ) -> Result<CaptureReport, Error> {
        let end = |locked: &mut Locked<'_, D>| locked.end_capture(capture, Some(graph)).map(Some);
        // The capture is over, so there is no second try.
        self.request(end, || false)
    }

    /// Lets a capture under way map up to `bytes` of memory at once ahead of what it asks for, or none
    /// with zero, instead of what [`Settings::growth_step_bytes`](crate::settings::Settings::growth_step_bytes)
    /// says; what that says of such captures holds. It is to be ended before its graph is launched.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn grow_ahead(&self, capture: CaptureId, bytes: u64) -> Result<(), Error> {
        self.change(|locked| {
            let slot = locked.state.slot_of(capture, "grow_ahead")?;
            locked.state.capture(slot).step = bytes;
            Ok(())
        })
    }

    /// Ends a capture whose graph the host cannot name any more, or that may be gone already: it
    /// found out about its end too late. What [`Engine::end_capture`] says holds, but the graph is
    /// not judged ([`CaptureReport::verified`] is false): `deny` is safe then only where no launch was
    /// programmatic, and `auto` where none was behind the last look at its stream, for with the checker
    /// launches that were seen are judged. No dependency may have been edited by hand.
    ///
    /// # Errors
    /// [`Error::SetBack`] and [`Error::Refused`]: the graph must not run. As it may have run already, its
    /// memory stays a graph's for good. [`Error::Unknown`].
    pub fn end_unjudged(&self, capture: CaptureId) -> Result<CaptureReport, Error> {
        self.change(|locked| {
            if let Some(slot) = locked.state.captures.slot(capture) {
                // Its graph may have run: no memory of it is exchanged any more.
                locked.state.capture(slot).step = 0;
            }
            locked.end_capture(capture, None)
        })
    }

    /// The captures into a pool that are under way here and over in the driver: none of the streams
    /// that they were seen on captures for them any more. A stream that another thread named last, and
    /// that captures, counts for every capture that it was seen in.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn captures_over(&self, pool: PoolId) -> Result<Vec<CaptureId>, Error> {
        self.change(|locked| {
            locked.state.pool(pool, "captures_over")?;
            let captures = locked.state.captures.ids_of(pool);
            Ok(captures.into_iter().filter(|&id| locked.is_over(id)).collect())
        })
    }

    /// The captures under way that a stream was seen in.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn captures_of(&self, stream: impl AsStream) -> Result<Vec<CaptureId>, Error> {
        let stream = stream.as_stream();
        let state = self.lock()?;
        let captures = state.captures.iter();
        let seen = captures.filter(|capture_state| capture_state.proof.stream(stream).is_some());
        Ok(seen.map(|capture_state| capture_state.id).collect())
    }

    /// Whether any capture is under way.
    pub fn is_recording(&self) -> bool {
        // A poisoned engine hands nothing out, but what it had it still has.
        let state = self.state.lock();
        let capture_state = state.captures.iter().next().is_some();
        capture_state
    }

    /// Whether any capture into a pool is under way.
    pub fn is_recording_into(&self, pool: PoolId) -> bool {
        !self.state.lock().captures.ids_of(pool).is_empty()
    }

    /// Whether the checker judges captures ([`Config::check`](super::Config::check)).
    pub fn judges(&self) -> bool {
        self.config.settings.check
    }

    /// Sets whether captures that begin from now on keep a journal ([`Engine::journal`]), even where
    /// the configuration does not ask for one.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn keep_journals(&self, keep: bool) -> Result<(), Error> {
        self.change(|locked| {
            locked.state.journals = keep;
            Ok(())
        })
    }

    /// Rolls back every decision taken in a capture whose graph will never run. A capture that is closed
    /// ([`Engine::close_capture`]) and whose verdict was not asked for is released as if it had been
    /// refused. Blocks it allocated and did not free stay live until freed; nothing else may be done with
    /// them, since they may lie on memory of a graph of the pool that lives.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn abandon_capture(&self, capture: CaptureId) -> Result<(), Error> {
        self.change(|locked| {
            if let Some(graph) = locked.state.verdicts.give_up(capture) {
                return locked.release_graph(graph);
            }
            let slot = locked.state.slot_of(capture, "abandon_capture")?;
            // What it lost it needs no more; the pool says that it is suspended.
            let _ = locked.end(slot, false);
            Ok(())
        })
    }

    /// Tells the engine that a graph is destroyed and no launch of it is running.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn release_graph(&self, graph: GraphId) -> Result<(), Error> {
        self.change(|locked| locked.release_graph(graph))
    }

    /// The pools that a graph uses; none of a graph that is unknown.
    pub(crate) fn pools_of(&self, graph: GraphId) -> SmallVec<[PoolId; 1]> {
        // A poisoned engine hands nothing out, but what its graphs use they still use.
        let state = self.state.lock();
        state.graphs.pools_of(graph)
    }

    /// Looks at a stream, so that the engine knows its terminals as they are now.
    ///
    /// A host that sets a capturing stream's terminals back by hand
    /// (`cuStreamUpdateCaptureDependencies`) calls this before and after, unless a call that
    /// concerns the stream comes in between anyway: the engine knows only what it has seen. Of a stream that
    /// is in no capture, or in one that the engine has not heard of, it expects no capture from then on
    /// ([`Engine::expect_capture`]).
    ///
    /// # Errors
    /// [`Error::CaptureInvalidated`], or the driver's.
    pub fn observe(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = stream.as_stream();
        self.change(|locked| {
            let capture = locked.capture_of(stream, "observe")?;
            match capture.and_then(|capture| locked.state.captures.slot(capture)) {
                Some(slot) => locked.look_and_confirm(slot, stream),
                // What it has gained by now may be set back before the capture's first look.
                None => drop(locked.state.timelines.take_expected(stream)),
            }
            Ok(())
        })
    }

    /// A copy of the record of a capture that is under way; `None` where no journal is kept. Looks
    /// at the capture's streams first, so that nothing is missing.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn journal(&self, capture: CaptureId) -> Result<Option<Journal>, Error> {
        let mut state = self.lock()?;
        let slot = state.slot_of(capture, "journal")?;
        self.with(&mut state).last_looks(slot);
        Ok(state.capture(slot).journal.clone())
    }
}
