//! One device's engine, blocks, routes and pools.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use regraph::driver::{CaptureId, ErrorKind, StreamHandle, Transfer};
use regraph::engine::{self, Block, BlockId, Engine, GraphId, Lent, PoolConfig, PoolId, Spare};
use regraph::regions::Regions;
use regraph::sync::{must_hold_none, AtomicBool, Mutex, MutexGuard, Ordering, Rank};
use regraph::{tell_later, Later, Level};

use super::addresses::Addresses;
use super::launches::UnderWay;
use super::lending::{Launches, Unseen};
use super::pools::{PoolKey, Pools, Private, Stray, UNNAMED};
use super::regions::{entered_at, put_into_region, EagerPools, GraphRegion};
use super::reports::Reports;
use super::routes::{EndedGraph, Removed, Route, Routes};
use super::sources::{asking, Returned};
use super::watch::{Watch, Watched};
use super::{Error, LastResort, Plugin};

/// Where a request is served from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) pool: PoolId,
    /// A pool that may lend something first.
    lender: Option<(PoolKey, Lent)>,
}

/// A device.
pub(super) struct Device<D: Transfer> {
    pub(super) number: u32,
    pub(super) engine: Arc<Engine<Watched<D>>>,
    pub(super) regions: Regions<Watched<D>>,
    /// Of eager work.
    pub(super) eager: PoolId,
    /// Of eager work in regions.
    pub(super) eager_in_regions: EagerPools,
    /// One for all devices.
    pub(super) graph_region: GraphRegion,
    /// Of eager work while its blocks are not cached, once they were not.
    pub(super) uncached: OnceLock<PoolId>,
    /// Whether they are. One for all devices.
    caches: Arc<AtomicBool>,
    /// The host's. One for all devices.
    last_resort: Arc<OnceLock<LastResort>>,
    pub(super) blocks: Addresses,
    pub(super) routes: Routes,
    pub(super) reports: Reports,
    pub(super) watch: Arc<Watch>,
    /// On which nothing ever runs, once it was needed.
    pub(super) idle: OnceLock<StreamHandle>,
    /// Of pools with sources of the host's.
    pub(super) returned: Arc<Returned>,
    /// Captures that come to nothing, over in the driver or not: their host says when.
    pub(super) shown: Mutex<BTreeSet<CaptureId>>,
    /// Whether a capture that no route takes may be under way: changed with the pools' lock held.
    strays_open: AtomicBool,
    /// One for all devices.
    pub(super) under_way: Arc<UnderWay>,
    /// Held where a route of a capture is added, and where the device is waited for: no capture begins meanwhile. The
    /// pools' lock is not held in a wait: work of the device may need a thread that lets go of a pool.
    pub(super) begins_captures: Mutex<()>,
    pools: Mutex<Pools>,
}

/// A device's named pools, with their lock held. What calls of the engine say meanwhile is told when it is released.
pub(super) struct HeldPools<'a> {
    // Released before that.
    pools: MutexGuard<'a, Pools>,
    _told: Later,
}

impl Deref for HeldPools<'_> {
    type Target = Pools;

    fn deref(&self) -> &Pools {
        &self.pools
    }
}

impl DerefMut for HeldPools<'_> {
    fn deref_mut(&mut self) -> &mut Pools {
        &mut self.pools
    }
}

impl<D: Transfer> Device<D> {
    pub(super) fn new(
        number: u32,
        engine: Engine<Watched<D>>,
        plugin: &Plugin<D>,
        least_oversize: Option<u64>,
    ) -> Self {
        let engine = Arc::new(engine);
        let eager = engine.create_pool(PoolConfig::default().takes_offers(true));
        Self {
            number,
            regions: Regions::new(&engine),
            engine,
            eager,
            eager_in_regions: Mutex::new(Rank::EagerPools, BTreeMap::new()),
            graph_region: plugin.graph_region.clone(),
            uncached: OnceLock::new(),
            caches: plugin.caches.clone(),
            last_resort: plugin.last_resort.clone(),
            blocks: Addresses::new(least_oversize),
            routes: Routes::new(),
            reports: Reports::new(),
            watch: plugin.watch.clone(),
            idle: OnceLock::new(),
            returned: Arc::new(Returned::new()),
            shown: Mutex::new(Rank::Shown, BTreeSet::new()),
            strays_open: AtomicBool::new(false),
            under_way: plugin.under_way.clone(),
            begins_captures: Mutex::numbered(Rank::BeginsCaptures, u64::from(number), ()),
            pools: Mutex::numbered(Rank::DevicePools, u64::from(number), Pools::default()),
        }
    }

    /// Never held while a filter of the host runs.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn pools(&self) -> HeldPools<'_> {
        let told = tell_later();
        HeldPools { pools: self.pools.lock(), _told: told }
    }

    #[inline]
    pub(super) fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<u64, Error> {
        asking(&self.returned, || self.request(bytes, stream))
    }

    /// Allocates `bytes` on a stream and returns the address, if that takes no wait for work, and none for other
    /// threads but for a look into a table; `None` otherwise.
    #[inline]
    pub(super) fn allocate_at_once(&self, bytes: u64, stream: StreamHandle) -> Option<u64> {
        // A region's pool may have to be made.
        if self.watch.is_on() || !self.routes.take_nothing() || entered_at().is_some() {
            return None;
        }
        if self.strays_open.load(Ordering::Relaxed) {
            return None;
        }
        let block = self.engine.host().allocate_at_once(self.eager_pool(), bytes, stream)?;
        self.blocks.insert(&block);
        Some(block.address)
    }

    #[inline]
    fn request(&self, bytes: u64, stream: StreamHandle) -> Result<u64, Error> {
        if self.strays_open.load(Ordering::Relaxed) {
            self.notice_ends(stream);
        }
        if self.watch.is_on() {
            let target = self.target_of(stream)?;
            return self.allocate_watched(target, bytes, stream);
        }
        let block = match self.allocate_by_capture(bytes, stream)? {
            Some(block) => block,
            None => {
                let target = self.target_of(stream)?;
                self.allocate_from(target, bytes, stream)?
            }
        };
        self.blocks.insert(&block);
        Ok(block.address)
    }

    /// A block at an address; false where there is none to be had.
    pub(super) fn allocate_at(
        &self,
        bytes: u64,
        stream: StreamHandle,
        address: u64,
    ) -> Result<bool, Error> {
        let Target { pool, .. } = self.target_of(stream)?;
        let block = match self.watch.is_on() {
            true => return self.allocate_at_watched(pool, (bytes, stream), address),
            false => self.engine.host().allocate_at(pool, bytes, stream, address)?,
        };
        Ok(block.map(|block| self.blocks.insert(&block)).is_some())
    }

    /// A block for a stream that is in no capture, or in an announced one: the engine learns which from
    /// the driver anyway, and the host's filters need not ask it once more.
    #[inline]
    fn allocate_by_capture(
        &self,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Option<Block>, Error> {
        if !self.routes.go_by_captures() {
            return Ok(None);
        }
        Ok(self
            .engine
            .host()
            .allocate_by_capture(self.eager_pool(), bytes, stream, || self.last_resort())?)
    }

    /// Takes one route away, if it still stands, and says to which pool it led.
    pub(super) fn end_route(&self, serial: u64) -> Option<PoolKey> {
        let removed = self.routes.remove_one(serial);
        removed.map(|removed| self.end_serving(removed).0)
    }

    /// Takes the latest route to a pool away ([`Routes::remove`]). Returns what it says of the graph that came of it.
    pub(super) fn end_latest_route(&self, key: PoolKey) -> Option<EndedGraph> {
        let removed = self.routes.remove(key);
        removed.and_then(|removed| self.end_serving(removed).1)
    }

    fn end_serving(&self, removed: Removed) -> (PoolKey, Option<EndedGraph>) {
        let Removed { key, ended_graph, capture } = removed;
        if let Some((capture, pool)) = capture {
            // An engine that a thread has panicked in serves nothing any more.
            let _ = self.engine.host().serve_capture(capture, pool);
        }
        (key, ended_graph)
    }

    #[inline]
    pub(super) fn free(&self, address: u64) -> Result<(), Error> {
        // Before the engine: another thread may get the address the moment it is free. Errors are made
        // where they are needed: to drop one costs more than a look-up.
        let Some(block) = self.blocks.remove(address) else {
            return Err(Error::UnknownAddress { call: "free", address });
        };
        self.free_taken_out(address, block)
    }

    /// Frees a block that was taken out of the table. Those who watch are told before: another thread may have its
    /// address right after.
    #[inline]
    pub(super) fn free_taken_out(&self, address: u64, block: BlockId) -> Result<(), Error> {
        if self.watch.is_on() {
            self.tell_free(address, block);
        }
        Ok(self.engine.free(block)?)
    }

    /// Where a stream's requests are served from now.
    #[inline]
    fn target_of(&self, stream: StreamHandle) -> Result<Target, Error> {
        let capture = || match self.capture_of(stream) {
            // The legacy stream while some blocking stream captures: it does not capture itself.
            Err(Error::Driver(error)) if error.kind == ErrorKind::CaptureImplicit => Ok(None),
            // Where it is unknown, memory of another pool would be the capture's.
            found => Ok(found?.map(|(capture, _)| capture)),
        };
        match self.routes.of(stream, capture)? {
            Some(Route { key, pool, lent: Some(lent), .. }) => {
                let pool = match lent {
                    Lent::AllFree => pool,
                    _ => self.unrouted_pool(stream)?,
                };
                Ok(Target { pool, lender: Some((key, lent)) })
            }
            Some(route) => Ok(Target { pool: route.pool, lender: None }),
            None => Ok(Target { pool: self.unrouted_pool(stream)?, lender: None }),
        }
    }

    /// A block of a target: of what its lender lends, if that has a place, else of its pool.
    pub(super) fn allocate_from(
        &self,
        Target { pool, lender }: Target,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Block, Error> {
        let lent = match lender {
            Some((key, lent)) => self.borrow(key, lent, (bytes, stream))?,
            None => None,
        };
        match lent {
            Some(block) => Ok(block),
            None => Ok(self
                .engine
                .host()
                .allocate_or_release(pool, bytes, stream, || self.last_resort())?),
        }
    }

    /// The pool that a stream's requests belong to where no route takes them.
    #[inline]
    fn unrouted_pool(&self, stream: StreamHandle) -> Result<PoolId, Error> {
        match self.engine.driver().is_capturing(stream) {
            Ok(false) => Ok(self.eager_pool()),
            // The legacy stream while some blocking stream captures: it does not capture itself.
            Err(error) if error.kind == ErrorKind::CaptureImplicit => Ok(self.eager_pool()),
            // A capture that no route claims.
            Ok(true) => self.stray(stream),
            Err(error) => Err(error.into()),
        }
    }

    /// The pool of what the calling thread asks for outside captures.
    #[inline]
    pub(super) fn eager_pool(&self) -> PoolId {
        if let Some(pool) = self.eager_pool_of_region() {
            return pool;
        }
        if self.caches.load(Ordering::Relaxed) {
            return self.eager;
        }
        self.uncached.get().copied().unwrap_or_else(|| self.uncached_pool())
    }

    #[cold]
    fn uncached_pool(&self) -> PoolId {
        // Made before the cell is written, since that waits for other threads as a lock would.
        let made = self.engine.create_pool(PoolConfig::default().uncached(true));
        let pool = *self.uncached.get_or_init(|| made);
        if pool != made {
            // Another thread was faster. What the driver keeps of an empty pool is nothing.
            let _ = self.engine.destroy_pool(made);
        }
        pool
    }

    /// The pool of a capture that no route takes.
    fn stray(&self, stream: StreamHandle) -> Result<PoolId, Error> {
        // One that is ruined gets its error from any pool.
        let Some((capture, _)) = self.capture_of(stream)? else { return Ok(self.eager) };
        let mut pools = self.pools();
        self.end_late(&mut pools);
        match pools.strays.get(&capture) {
            Some(Stray { open: true, pool }) => return Ok(*pool),
            // What was free at the verdict would be free for another graph, and not for the rest of this one.
            Some(Stray { open: false, .. }) => return Err(Error::CaptureJudged { capture }),
            None => {}
        }
        // From now on the engine knows it, and with that whether it is over. What the host has said of the next
        // capture of the stream it has not said of this one.
        self.engine.observe(stream)?;
        let pool = self.engine.create_pool(self.graph_config());
        if let Err(error) = self.engine.begin_capture(pool, stream) {
            self.engine.destroy_pool(pool)?;
            return Err(error.into());
        }
        pools.strays.insert(capture, Stray { pool, open: true });
        self.strays_open.store(true, Ordering::Relaxed);
        Ok(pool)
    }

    /// Ends the captures that no route takes and that are over, where `stream` is in none: its request may be
    /// the first call since.
    #[cold]
    fn notice_ends(&self, stream: StreamHandle) {
        if self.engine.driver().is_capturing(stream) == Ok(false) {
            self.end_strays(&mut self.pools());
        }
    }

    /// Ends the captures that no route takes and that are over. A host that was not asked hears by a message
    /// that a graph of theirs must not run.
    fn end_strays(&self, pools: &mut Pools) {
        let mut open = false;
        for (capture, stray) in pools.strays.iter_mut().filter(|(_, stray)| stray.open) {
            // Its claim on its pool is never given back.
            if let Err(error) = self.end_over(UNNAMED, stray.pool, &mut Vec::new(), None) {
                let number = capture.0;
                self.engine.host().tell(Level::Error, || {
                    format!(
                        "capture {number} has ended, and its graph must not be launched: {error}"
                    )
                });
            }
            stray.open = self.engine.host().is_recording_into(stray.pool);
            open |= stray.open;
        }
        self.strays_open.store(open, Ordering::Relaxed);
    }

    /// Ends captures that are over, and whose end the host has not told.
    pub(super) fn end_late(&self, pools: &mut Pools) {
        self.end_strays(pools);
        for (&key, private) in pools.private.iter_mut() {
            let _ = self.end_untold(key, private, None);
        }
    }

    /// Ends the captures into a named pool that are over in the driver and that its host did not end here. It may
    /// not tell of their graphs' launches either.
    pub(super) fn end_untold(
        &self,
        key: PoolKey,
        private: &mut Private,
        ended_graph: Option<&EndedGraph>,
    ) -> Result<(), Error> {
        let before = private.graphs.len();
        let ended = self.end_over(key, private.pool, &mut private.graphs, ended_graph);
        if private.graphs.len() > before {
            private.launches.lose_sight(key, Unseen::Unannounced);
        }
        ended
    }

    /// Ends the captures into a pool that are over in the driver, all of them, unjudged where their graph
    /// is not known; gives the first error.
    pub(super) fn end_over(
        &self,
        key: PoolKey,
        pool: PoolId,
        graphs: &mut Vec<GraphId>,
        ended_graph: Option<&EndedGraph>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        let mut over = self.engine.host().captures_over(pool)?;
        if over.is_empty() {
            return Ok(());
        }
        over.retain(|capture| !self.shown.lock().contains(capture));
        for capture in over {
            let ended = match ended_graph.and_then(|graph_of| graph_of(capture)) {
                Some(graph) => self.engine.end_capture(capture, graph),
                None => self.engine.host().end_unjudged(capture),
            };
            match ended {
                Ok(report) => {
                    if !report.verified && self.engine.host().judges() {
                        let number = capture.0;
                        self.engine.host().tell(Level::Warn, || {
                            format!(
                                "capture {number} has ended, and its graph was not judged: its end was not told in time"
                            )
                        });
                    }
                    graphs.push(report.graph);
                    self.reports.push(key, report);
                }
                Err(error) => result = result.and(Err(error.into())),
            }
        }
        result
    }

    /// Counts a user of a pool, which is made with `config` if there is none of that name, in the region that the
    /// calling thread is in.
    pub(super) fn use_pool<'a>(
        &self,
        pools: &'a mut Pools,
        key: PoolKey,
        mut config: PoolConfig,
        spare: Spare,
    ) -> Result<&'a mut Private, Error> {
        let is_new = !pools.private.contains_key(&key);
        if is_new {
            // A new pool must not take memory beside that of pools which nothing needs.
            self.drop_unused(pools);
        }
        let limit = pools.limits.get(&key).copied();
        let private = pools.private.entry(key).or_insert_with(|| {
            put_into_region(&mut config);
            config.max_bytes = limit;
            Private {
                pool: self.engine.create_pool(config.clone()),
                users: 0,
                releases: 0,
                // Most pools are one graph's.
                graphs: Vec::with_capacity(1),
                config,
                spare,
                eager: false,
                checkpointed: false,
                taken: 0,
                launches: Launches::default(),
            }
        });
        private.users += 1;
        // A new pool gives back what is free in it.
        if private.users == 1 && !(is_new && private.spare == Spare::GivenBack) {
            self.engine.host().set_spare(private.pool, private.spare)?;
        }
        Ok(private)
    }

    /// Counts a user of a pool out, if there is one of that name. With the last one others get what is free in it.
    pub(super) fn leave_pool(&self, pools: &mut Pools, key: PoolKey) {
        let Some(private) = pools.private.get_mut(&key) else { return };
        private.users = private.users.saturating_sub(1);
        // An engine that hands nothing out any more lends nothing either.
        let _ = self.engine.host().set_spare(private.pool, private.spare_now());
        pools.may_be_unused |= private.is_unused();
    }

    /// Gives back the pools that no user and no graph has, as far as live blocks and running work let
    /// it; the rest is tried again later. Says whether there was any.
    pub(super) fn drop_unused(&self, pools: &mut Pools) -> bool {
        if !std::mem::take(&mut pools.may_be_unused) {
            return false;
        }
        let before = pools.private.len();
        let mut gone = Vec::new();
        pools.private.retain(|&key, private| {
            if !private.is_unused() {
                return true;
            }
            let held = self.left_by(private.pool);
            // After the driver's errors the pool is the engine's, which gives the rest of its memory back later.
            let keeps = matches!(
                self.engine.destroy_pool(private.pool),
                Err(engine::Error::Pool { why: engine::PoolRefusal::InUse { .. }, .. })
            );
            gone.extend(held.filter(|_| !keeps).map(|held| (key, held)));
            pools.may_be_unused |= keeps;
            if !keeps {
                self.forget_launches(private);
                self.forget_marks(pools.executables.get(&Some(key)));
            }
            keeps
        });
        // Not in the table's order, which is not the same in each run.
        gone.sort_unstable_by_key(|&(key, _)| key);
        gone.into_iter().for_each(|(key, held)| pools.leave(key, held));
        pools.private.len() < before
    }

    /// Gives back the pools that nothing uses any more, once the device has finished what it was given:
    /// graphs and freed blocks may be in use until then. Not while something captures: a wait for the
    /// device would ruin that. Says whether there was any.
    pub(super) fn let_go(&self) -> bool {
        let released = self.let_go_of_pools();
        // Eager work of other threads: autograd's, for one.
        let awaits = self.engine.host().awaits_other_threads().unwrap_or(false);
        awaits && self.wait_while_none_captures() || released
    }

    /// What is done where memory is short, before a request is made again; false where that freed nothing.
    pub(super) fn last_resort(&self) -> bool {
        must_hold_none("a last resort is called");
        let of_host = self.last_resort.get().is_some_and(|last_resort| last_resort());
        self.let_go() || of_host
    }

    /// Whether something captures on the device, or may.
    pub(super) fn captures(&self) -> bool {
        !self.routes.take_no_streams() || self.engine.host().is_recording()
    }

    /// As [`Device::let_go`], for pools alone.
    pub(super) fn let_go_of_pools(&self) -> bool {
        let mut pools = self.pools();
        self.end_late(&mut pools);
        let mut released = self.drop_unused(&mut pools);
        let left = pools.private.values().filter(|private| private.users == 0);
        let left: BTreeSet<GraphId> = left.flat_map(|private| &private.graphs).copied().collect();
        if left.is_empty() {
            return released;
        }
        // Work of the device may need a thread that lets go of a pool meanwhile.
        drop(pools);
        if !self.wait_while_none_captures() {
            return released;
        }
        let mut pools = self.pools();
        for private in pools.private.values_mut() {
            // One that was let go of meanwhile may run still.
            for graph in private.graphs.extract_if(.., |graph| left.contains(graph)) {
                released |= self.engine.release_graph(graph).is_ok();
            }
        }
        pools.may_be_unused = true;
        released | self.drop_unused(&mut pools)
    }
}
