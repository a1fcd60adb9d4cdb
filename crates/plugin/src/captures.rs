//! What a host says of pools and captures.

use std::cell::Cell;

use regraph::driver::{CaptureId, CaptureStatus, GraphHandle, StreamHandle, Transfer};
use regraph::engine::{self, Spare};
use regraph::plan;
use regraph::sync::Ordering;
use regraph::Journal;

use super::device::Device;
use super::lending::Unseen;
use super::pools::{Announced, Pools, UNNAMED};
use super::regions::set_beginning;
use super::routes::Route;
use super::{EndedGraph, Error, Filter, Plugin, PoolKey};

thread_local! {
    /// Whether captures that the thread begins are shown, and come to nothing.
    static SHOWN: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether captures that the calling thread begins are shown ([`Plugin::estimate`]).
pub(super) fn set_shown(shown: bool) {
    SHOWN.set(shown);
}

impl<D: Transfer> Plugin<D> {
    /// From now on requests of the streams that `filter` takes belong to a pool. The pool lives until
    /// it was let go of as often as it was begun. Returns the route's number on its device.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn begin_pool(&self, device: u32, key: PoolKey, filter: Filter) -> Result<u64, Error> {
        self.begin_pool_of(device, key, filter, None)
    }

    /// From now on requests of the streams that `filter` takes belong to a pool, as with [`Plugin::begin_pool`].
    /// With `ended_graph` the host can name the graph when it ends the pool: [`Plugin::end_pool`] then has the
    /// checker judge a capture that was not announced. What it gives is not asked, and dropped, once the capture is
    /// announced ([`Plugin::capture_begun`]). Returns the route's number on its device.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn begin_pool_of(
        &self,
        device: u32,
        key: PoolKey,
        filter: Filter,
        ended_graph: Option<EndedGraph>,
    ) -> Result<u64, Error> {
        set_beginning(false);
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let _none_waits = device.begins_captures.lock();
        let mut pools = device.pools();
        let config = device.graph_config();
        let private = device.use_pool(&mut pools, key, config, Spare::GivenBack)?;
        let serial = device.routes.push(key, private.pool, filter, ended_graph);
        device.adopt_route(&mut pools, key, serial);
        Ok(serial)
    }

    /// Ends a route to a pool: that of the capture that is ending ([`Plugin::capture_ending`]), else the
    /// calling thread's latest, else the latest. Ends with it the captures into the pool that are over in
    /// the driver: where the route names the graph ([`Plugin::begin_pool_of`]), the checker judges it now,
    /// by what the engine saw of the capture's streams at their latest calls.
    ///
    /// # Errors
    /// [`engine::Error::Refused`], [`engine::Error::SetBack`]: the graph must not run.
    pub fn end_pool(&self, device: u32, key: PoolKey) -> Result<(), Error> {
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        let captured = pools.announced.values().any(|announced| announced.key == key);
        let this = Some(std::thread::current().id());
        let mut announced = pools.announced.values_mut();
        let ending = announced.find(|announced| announced.key == key && announced.ending == this);
        let ended_graph = match ending {
            Some(announced) => {
                announced.ending = None;
                device.end_route(announced.serial);
                None
            }
            None => device.end_latest_route(key),
        };
        let Some(private) = pools.private.get_mut(&key) else { return Ok(()) };
        let before = private.graphs.len();
        let ended = device.end_untold(key, private, ended_graph.as_ref());
        device.mark_borrowers(private);
        private.eager |= !captured && private.graphs.len() == before;
        ended
    }

    /// A host's graph lets go of its pool. With the last, the pool's memory may go: when the cache is
    /// emptied, or when memory is short.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn release_pool(&self, device: u32, key: PoolKey) -> Result<(), Error> {
        let device = self.device(device)?;
        let _returned = device.returned.at_end();
        let mut pools = device.pools();
        if let Some(private) = pools.private.get_mut(&key) {
            private.releases += 1;
        }
        device.leave_pool(&mut pools, key);
        Ok(())
    }

    /// The calling thread is about to begin a capture on `stream`: what that capture frees of its pool's memory from
    /// before may be used again in it. See [`HostCalls::expect_capture`](regraph::engine::HostCalls::expect_capture),
    /// which also says what the host promises.
    ///
    /// What the thread asks for lies in no region until [`Plugin::begin_pool`] or [`Plugin::capture_failed`].
    ///
    /// # Errors
    /// Those of [`engine::HostCalls::expect_capture`].
    pub fn capture_beginning(&self, device: u32, stream: StreamHandle) -> Result<(), Error> {
        let device = self.device(device)?;
        let host = device.engine.host();
        // The capture's pool is not known yet; where none but that of eager work holds a block, there is no input.
        match host.has_blocks_beside(device.eager_pool()).unwrap_or(true) {
            true => host.expect_capture(stream)?,
            false => host.may_capture(stream)?,
        }
        // No thread records an event on the stream from now on, for blocks of another device either.
        for other in self.devices().filter(|it| !std::ptr::eq(*it, device)) {
            other.engine.host().may_capture(stream)?;
        }
        set_beginning(true);
        Ok(())
    }

    /// Announces the capture that `stream` has just begun: from now on it is known what it uses, also
    /// where other threads free it. Without, a capture is known from its first request on.
    ///
    /// `alone` says that nothing registers memory of the capture anywhere, as communication libraries do, before its
    /// end is told ([`Plugin::capture_ending`]), and that nothing else touches it or launches the graph. It may map
    /// memory ahead then ([`Settings::growth_step_bytes`](regraph::settings::Settings::growth_step_bytes)), which makes
    /// it faster, or get its memory at its end ([`PlanChoice::Exact`](regraph::settings::PlanChoice::Exact)).
    ///
    /// `route` is the one that the host has begun for this capture ([`Plugin::begin_pool`]), so that no
    /// other route is taken for it, even if that one's filter takes the stream. Returns the capture's ID,
    /// for [`Plugin::capture_dropped`]; `None` where the route does not stand any more.
    ///
    /// # Errors
    /// Those of [`engine::Engine::begin_capture`].
    pub fn capture_begun(
        &self,
        device: u32,
        stream: StreamHandle,
        route: u64,
        alone: bool,
    ) -> Result<Option<CaptureId>, Error> {
        let device = self.device(device)?;
        let Some(Route { key, pool, serial, .. }) = device.routes.by_serial(route) else {
            return Ok(None);
        };
        let mut pools = device.pools();
        let private = pools.private.get(&key);
        let releases = private.map_or(0, |private| private.releases);
        // A checkpoint names addresses, which share memory where captures get theirs at their end.
        let checkpointed = private.is_some_and(|private| private.checkpointed);
        let may_plan = private.is_none_or(|private| !private.eager);
        // Both move memory of the capture when it ends.
        let shown = SHOWN.get();
        let (planned, ahead) =
            match self.plan.clone().or_else(|| shown.then(plan::Options::default)) {
                _ if !alone || checkpointed => (None, None),
                Some(options) if may_plan => (Some(options), None),
                _ => (None, Some(self.ahead)),
            };
        let capture = device.engine.host().begin_served(pool, stream, ahead)?;
        // First, so that it is rolled back if it may not go on.
        let announced = Announced { key, serial, capture, releases, ending: None };
        if let Some(earlier) = pools.announced.insert(stream, announced) {
            // The stream has left that capture, and the host did not say so: its filter may look at
            // a graph object that is destroyed any time now.
            device.end_route(earlier.serial);
        }
        drop(pools);
        let served = device.routes.announce(serial, capture);
        if served != Some(pool) {
            device.engine.host().serve_capture(capture, served)?;
        }
        if planned.is_some() {
            device.engine.plans().plan_capture(capture, planned)?;
        }
        Ok(Some(capture))
    }

    /// Ends the engine's part of the capture that `stream` is in, just before its host ends it. If the
    /// engine's settings ask for the checker, it judges small captures now, and others while their host
    /// instantiates the graph ([`engine::Engine::close_capture`]); [`Plugin::capture_ended`] waits for the
    /// verdict. If journals are kept ([`Plugin::keep_journals`],
    /// [`Config::journal`](engine::Config::journal)), `record` is called with the capture's first.
    ///
    /// # Errors
    /// [`engine::Error::Refused`], [`engine::Error::SetBack`], [`engine::Error::LateUse`]: the graph
    /// must never run; its host still ends the capture, and then says [`Plugin::capture_failed`].
    pub fn capture_ending(
        &self,
        device: u32,
        stream: StreamHandle,
        record: impl FnOnce(CaptureId, &Journal),
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let Some((capture, graph)) = device.capture_of(stream)? else { return Ok(()) };
        let announced = match device.pools().announced.get_mut(&stream) {
            Some(announced) => {
                let ends = announced.capture == capture;
                announced.ending = ends.then(|| std::thread::current().id());
                ends
            }
            None => false,
        };
        if self.journals.load(Ordering::Relaxed) || self.config.journal {
            if let Ok(Some(journal)) = device.engine.host().journal(capture) {
                record(capture, &journal);
            }
        }
        // The engine tells of a capture's pools while that is under way.
        let into = (!announced).then(|| device.engine.host().pools_of(capture));
        match device.engine.close_capture(capture, graph) {
            // Nothing allocated in it, or it was ended before.
            Err(engine::Error::Unknown { what: engine::Unknown::Capture(_), .. }) => return Ok(()),
            closed => closed?,
        }
        if announced {
            return Ok(());
        }
        // A host that did not announce it may not tell of its end either.
        let report = device.engine.verdict(capture)?;
        let mut pools = device.pools();
        let first = into.and_then(|pools| pools.ok()?.first().copied());
        let key = first.map_or(UNNAMED, |pool| pools.key_of(u64::from(pool.number())));
        if let Some(stray) = pools.strays.get_mut(&capture) {
            stray.open = false;
        } else if let Some(private) = pools.private.get_mut(&key) {
            private.graphs.push(report.graph);
            private.launches.lose_sight(key, Unseen::Unannounced);
        }
        device.reports.push(key, report);
        Ok(())
    }

    /// Has the capture that `stream` is in judged now, where the host's program has begun it by itself: it ends
    /// next, and asks for no more memory. Nothing happens where it has asked for none, or where the capture was
    /// announced, which is judged when its end is told. `record` is as for [`Plugin::capture_ending`].
    ///
    /// # Errors
    /// [`engine::StreamRefusal::NotCapturing`]; those of [`Plugin::capture_ending`], after which the graph must never
    /// run.
    pub fn judge_capture(
        &self,
        device: u32,
        stream: StreamHandle,
        record: impl FnOnce(CaptureId, &Journal),
    ) -> Result<(), Error> {
        let found = self.device(device)?;
        let capture = found.must_capture(stream, "judge_capture")?;
        let is_open = found.pools().strays.get(&capture).is_some_and(|stray| stray.open);
        match is_open {
            true => self.capture_ending(device, stream, record),
            false => Ok(()),
        }
    }

    /// Ends the captures on all devices that are over in the driver and whose end the host did not tell. Their
    /// graphs are not judged: a message says so where the settings ask for the checker. Requests and
    /// [`Plugin::captures`] do the same for their device; this is for a host that makes none any more.
    pub fn notice_ends(&self) {
        self.devices().for_each(|device| device.end_late(&mut device.pools()));
    }

    /// Shows what was asked for in the capture that `stream` is in, in place of [`Plugin::capture_ending`]: its host
    /// ends it, may instantiate its graph but never launches it, and then says [`Plugin::capture_failed`].
    ///
    /// # Errors
    /// [`engine::StreamRefusal::NotCapturing`] where the stream is in no capture, or no record of it is kept.
    pub fn capture_shown(
        &self,
        device: u32,
        stream: StreamHandle,
        show: impl FnOnce(CaptureId, &Journal),
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let capture = device.must_capture(stream, "capture_shown")?;
        let journal = device.engine.host().journal(capture)?;
        show(capture, &journal.ok_or_else(|| not_capturing(stream, "capture_shown"))?);
        // Until then it keeps what its addresses have, also where its pool ends before.
        device.shown.lock().insert(capture);
        if let Some(announced) = device.pools().announced.get_mut(&stream) {
            announced.ending = Some(std::thread::current().id());
        }
        Ok(())
    }

    /// The host has ended the capture of `stream`, and has its graph, which it has not launched. Waits
    /// for the checker's verdict.
    ///
    /// # Errors
    /// [`engine::Error::Refused`]: the graph must never run, and nothing of the capture is left here.
    /// [`Error::Driver`] where the device cannot be had.
    pub fn capture_ended(&self, device: u32, stream: StreamHandle) -> Result<(), Error> {
        let device = self.device(device)?;
        let announced = device.pools().announced.remove(&stream);
        let Some(Announced { key, capture, .. }) = announced else { return Ok(()) };
        let report = match device.engine.verdict(capture) {
            // It was ended when its pool was, or never known.
            Err(engine::Error::Unknown { what: engine::Unknown::Capture(_), .. }) => return Ok(()),
            verdict => verdict?,
        };
        let mut pools = device.pools();
        // The graph has a claim on its pool, so the pool is there.
        if let Some(private) = pools.private.get_mut(&key) {
            private.graphs.push(report.graph);
        }
        drop(pools);
        device.reports.push(key, report);
        Ok(())
    }

    /// The host is about to let go of what it has of the capture of `stream`, which has failed: what it
    /// lets go of its pool from now on, it may do for that. Without this call, since the capture began.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn capture_failing(&self, device: u32, stream: StreamHandle) -> Result<(), Error> {
        let device = self.device(device)?;
        let mut pools = device.pools();
        let Pools { private, announced, .. } = &mut *pools;
        if let Some(announced) = announced.get_mut(&stream) {
            announced.releases = private.get(&announced.key).map_or(0, |private| private.releases);
        }
        Ok(())
    }

    /// The capture of `stream` has come to nothing, and no graph of it will ever run; it is over in the driver. What
    /// was decided in it is rolled back. If the host has not let go of the pool for it, that is done too.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn capture_failed(&self, device: u32, stream: StreamHandle) -> Result<(), Error> {
        set_beginning(false);
        let device = self.device(device)?;
        let announced = device.pools().announced.remove(&stream);
        let Some(Announced { key, serial, capture, releases, .. }) = announced else {
            return Ok(());
        };
        device.shown.lock().remove(&capture);
        match device.engine.abandon_capture(capture) {
            // Rolled back when it was refused, or found to be ruined.
            Ok(()) | Err(engine::Error::Unknown { what: engine::Unknown::Capture(_), .. }) => {}
            Err(error) => return Err(error.into()),
        }
        device.end_route(serial);
        let mut pools = device.pools();
        if pools.private.get(&key).is_some_and(|private| private.releases == releases) {
            device.leave_pool(&mut pools, key);
        }
        Ok(())
    }

    /// The host has destroyed the graph object that began `capture` on `stream`, and has not ended the capture: its
    /// route goes, for the filter looks at the graph object. A later capture of the same stream keeps its own route.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn capture_dropped(
        &self,
        device: u32,
        stream: StreamHandle,
        capture: CaptureId,
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let mut pools = device.pools();
        let announced = pools.announced.get(&stream).filter(|it| it.capture == capture);
        if let Some(serial) = announced.map(|announced| announced.serial) {
            pools.announced.remove(&stream);
            device.end_route(serial);
        }
        Ok(())
    }

    /// The host could not begin a capture after all: the route that it had begun for it goes, as if the
    /// pool had been let go of.
    ///
    /// # Errors
    /// [`Error::Driver`] where the device cannot be had.
    pub fn begin_failed(&self, device: u32, route: u64) -> Result<(), Error> {
        let device = self.device(device)?;
        if let Some(key) = device.end_route(route) {
            device.leave_pool(&mut device.pools(), key);
        }
        Ok(())
    }
}

impl<D: Transfer> Device<D> {
    /// Around a conditional node's body, and around work in another pool, the host ends the route of the capture that
    /// contains it, and begins another. That is the capture's from now on, so that it goes with the capture.
    pub(super) fn adopt_route(&self, pools: &mut Pools, key: PoolKey, serial: u64) {
        for (&stream, announced) in &mut pools.announced {
            let lost = announced.key == key && self.routes.by_serial(announced.serial).is_none();
            let now = || self.capture_of(stream).ok().flatten().map(|(capture, _)| capture);
            if lost && now() == Some(announced.capture) {
                announced.serial = serial;
            }
        }
    }

    /// The capture that a stream is in; refuses a stream that is in none.
    pub(super) fn must_capture(
        &self,
        stream: StreamHandle,
        call: &'static str,
    ) -> Result<CaptureId, Error> {
        let (capture, _) = self.capture_of(stream)?.ok_or_else(|| not_capturing(stream, call))?;
        Ok(capture)
    }

    /// The capture that a stream is in, and its graph.
    pub(super) fn capture_of(
        &self,
        stream: StreamHandle,
    ) -> Result<Option<(CaptureId, GraphHandle)>, Error> {
        Ok(match self.engine.driver().capture_of(stream)? {
            CaptureStatus::Active { capture, graph } => Some((capture, graph)),
            CaptureStatus::None | CaptureStatus::Invalidated => None,
        })
    }
}

/// What the engine says of a stream that does not capture.
fn not_capturing(stream: StreamHandle, call: &'static str) -> engine::Error {
    engine::Error::Stream { call, stream, why: engine::StreamRefusal::NotCapturing }
}
