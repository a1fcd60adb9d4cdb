//! Memory as a whole: limits, figures, leaks, and getting it back from stream caches, from streams whose work has
//! completed, and to the driver. Pools end here too: one (`destroy_pool`), those whose owners are gone
//! (`destroy_leaving`), and all that nothing uses when the engine is dropped (`close`).

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use super::captures::CaptureState;
use super::figures::{Peaks, Statistics};
use super::history::{Asked, EventKind, Frames, HostFrame};
use super::live_blocks::{LiveBlock, Origin};
use super::names::{BlockId, PoolId, PoolLabel, NO_CACHE};
use super::oom::OutOfMemory;
use super::pools::PoolRow;
use super::report::{Emptied, PoolStatistics};
use super::stream_cache::{Leases, StreamCache};
use super::streams::Timelines;
use super::{one_stream, Engine, Error, HostCalls, Locked, PoolRefusal, State, StreamRefusal};
use crate::driver::{AsStream, Driver, ErrorKind, HostApi, StreamHandle};
use crate::heap::{Heap, NothingKept, Pieces, RangeId, TimelineId};
use crate::logging::{self, Level};
use crate::settings::Settings;
use crate::size::Size;
use crate::sync::MutexGuard;

/// A block that was never freed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// The block.
    pub block: BlockId,
    /// Its pool.
    pub pool: PoolLabel,
    /// Where it lies.
    pub address: u64,
    /// What was asked for, in bytes.
    pub bytes: u64,
    /// The pool that was asked for the block, where `pool` has offered it the memory
    /// ([`PoolConfig::takes_offers`](super::PoolConfig::takes_offers)).
    pub asked_of: Option<PoolLabel>,
    /// Its stream.
    pub stream: StreamHandle,
    /// The host's frames that asked for it, innermost first; empty where stacks are not recorded.
    pub origin: Vec<HostFrame>,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, stream, pool, .. } = self;
        let bytes = Size(self.bytes);
        write!(f, "{bytes} at {address:#x} of {pool}, allocated on {stream}")?;
        if let Some(pool) = &self.asked_of {
            write!(f, ", offered to {pool}")?;
        }
        for frame in &self.origin {
            write!(f, "\n    {}", frame.name)?;
            // Without debug information there is none.
            if !frame.filename.is_empty() {
                write!(f, " ({}:{})", frame.filename, frame.line)?;
            }
        }
        Ok(())
    }
}

fn in_use(stream: StreamHandle) -> Error {
    Error::Stream { call: "retire_stream", stream, why: StreamRefusal::InUse }
}

/// The most that an engine may hold, in bytes, on a device of this size. A share that is not a number is none.
pub(super) fn limit(settings: &Settings, total: Option<u64>) -> Option<u64> {
    let share = settings.memory_fraction.filter(|share| !share.is_nan()).zip(total);
    let share = share.map(|(share, total)| (total as f64 * share.clamp(0.0, 1.0)) as u64);
    match (share, settings.memory_limit_bytes) {
        (Some(share), Some(bytes)) => Some(share.min(bytes)),
        (share, bytes) => share.or(bytes),
    }
}

impl<D: Driver> Engine<D> {
    /// Sets the most that all pools together may hold, in bytes; `None` takes the limit away. Memory that is held
    /// already stays: [`Engine::trim`] gives it back.
    pub fn set_memory_limit(&self, bytes: Option<u64>) -> Result<(), Error> {
        self.alter(|locked| locked.state.tuning.set_limit(bytes))
    }

    /// Sets the most that all pools together may hold, as a share of the device's memory from 0 to 1.
    ///
    /// # Errors
    /// [`Error::MemoryFraction`]; the driver's, where it does not tell the device's size.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::MemoryFraction { fraction });
        }
        let total = self.driver.memory_info()?.total;
        self.set_memory_limit(Some((total as f64 * fraction) as u64))
    }

    /// The most that all pools together may hold, in bytes.
    pub fn memory_limit(&self) -> Result<Option<u64>, Error> {
        Ok(self.lock()?.tuning.limit())
    }

    /// Gives all memory back to the driver that is wholly free, and waits for nothing: memory that running work may
    /// still use stays, and so does memory that graphs use. Where memory is not mapped (no virtual memory management,
    /// or segments of fixed sizes), the driver itself may wait for the device.
    pub fn empty_cache(&self) -> Result<Emptied, Error> {
        self.trim(0)
    }

    /// Waits until the device has done all work. Blocks that were freed outside captures before are then free for all
    /// streams, whichever thread's stream of the device they were used on. Other calls go on meanwhile; a block that is
    /// freed during the wait may still be in use. The wait would invalidate a capture on the device: where a stream
    /// that the engine knows captures, this returns false without a wait. The host makes sure that no other stream
    /// captures meanwhile.
    ///
    /// # Errors
    /// [`Error::Driver`]: what the driver answers, errors of earlier work included; [`Error::Poisoned`].
    pub fn wait_for_device(&self) -> Result<bool, Error>
    where
        D: HostApi,
    {
        // One at a time, so that each knows what the positions hold that it has closed.
        let _told = logging::tell_later();
        let _none_other = self.hold_device_waits();
        let owed = self.change(|locked| {
            // What stream caches hold is ordered by their streams from then on.
            locked.free_completed(None);
            Ok(locked.state.timelines.begin_device_wait(locked.driver))
        })?;
        let Some(owed) = owed else { return Ok(false) };
        // Work of the device may need a thread that frees a block meanwhile.
        let waited = self.driver.synchronize();
        self.change(|locked| {
            locked.state.timelines.end_device_wait(locked.driver, &owed, waited.is_ok());
            locked.state.accounts.counts().num_sync_all_streams += u64::from(waited.is_ok());
            locked.free_completed(None);
            Ok(waited.map(|()| true)?)
        })
    }

    /// Lets no thread wait for the device as long as the guard lives: while a capture begins, which that would ruin.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn hold_device_waits(&self) -> MutexGuard<'_, ()> {
        self.device_waits.lock()
    }

    /// Gives wholly free memory back to the driver as [`Engine::empty_cache`] does, beginning with what was unused
    /// longest, until no more than `keep` bytes are held.
    pub fn trim(&self, keep: u64) -> Result<Emptied, Error> {
        self.alter(|locked| locked.empty(keep))
    }

    /// The figures of all pools.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        self.alter(|locked| locked.statistics(None))
    }

    /// The figures of a pool.
    pub fn statistics_of(&self, pool: PoolId) -> Result<Statistics, Error> {
        self.change(|locked| {
            locked.settle_loans();
            locked.state.pool(pool, "statistics_of")?;
            Ok(locked.statistics(Some(pool)))
        })
    }

    /// Figures of a pool, in short.
    pub fn pool_statistics(&self, pool: PoolId) -> Result<PoolStatistics, Error> {
        let all = self.statistics_of(pool)?.all;
        let (_, lent) = self.lock()?.pool(pool, "pool_statistics")?.lent();
        Ok(PoolStatistics {
            reserved: all.reserved_bytes.current,
            suspended: all.suspended_bytes.current,
            allocated: all.allocated_bytes.current,
            peak_allocated: all.allocated_bytes.peak,
            requested: all.requested_bytes.current,
            active: all.active_bytes.current,
            blocks: all.allocation.current as usize,
            lent,
        })
    }

    /// All pools in order of creation, with the names and tags that messages show. Takes time for each pool.
    pub fn pools(&self) -> Result<Vec<PoolLabel>, Error> {
        let mut pools: Vec<_> = self.lock()?.pools.iter().map(PoolRow::label).collect();
        pools.sort_unstable_by_key(|pool| pool.id);
        Ok(pools)
    }

    /// Gives a pool a name for messages, in place of the one that [`PoolConfig::name`](super::PoolConfig::name) gave
    /// it; `None` takes the name away.
    pub fn set_pool_name(&self, pool: PoolId, name: Option<&str>) -> Result<(), Error> {
        self.lock()?.pool(pool, "set_pool_name")?.set_name(name.map(Into::into));
        Ok(())
    }

    /// Resets peaks to current values.
    pub fn reset_peaks(&self) -> Result<(), Error> {
        self.alter(|locked| locked.with_sums(Peaks::reset_peaks))
    }

    /// Resets all sums over time and all counts to zero.
    pub fn reset_accumulated(&self) -> Result<(), Error> {
        self.alter(|locked| locked.reset_accumulated())
    }

    /// Names a stream for the calling thread, and marks how far it is outside captures: what was freed there so far is
    /// free for other streams once the stream has completed its work up to this mark. The engine marks streams by
    /// itself when it is short of memory, but cannot while they capture, so a call before a capture may save memory.
    ///
    /// # Errors
    /// [`StreamRefusal::PerThread`].
    pub fn mark_stream(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "mark_stream")?;
        self.alter(|locked| {
            locked.assign_stream(stream, false);
            locked.take_back(None, |of| of == stream);
            if let Some(timeline) = locked.state.timelines.known(stream) {
                locked.state.timelines.fence(&self.driver, timeline);
            }
        })
    }

    /// Tells the engine that a stream is about to be destroyed. Memory that was freed on it becomes free for other
    /// streams when its work has completed; its blocks that are live can be freed later.
    ///
    /// # Errors
    /// [`StreamRefusal::InUse`]: the stream must not be destroyed, since it captures, is in a capture that is under way
    /// here, or was recorded for a block that is live. [`StreamRefusal::PerThread`].
    pub fn retire_stream(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "retire_stream")?;
        self.change(|locked| locked.retire_stream(stream, false))
    }

    /// Registers an observer of requests that fail for want of memory in the end: of blocks, of pools that cannot be
    /// resumed, and of captures that cannot have their memory at their end. It is called after all locks of the library
    /// are released and before the request returns, and may call the library;
    /// [`Pool::resume`](crate::graphs::Pool::resume) and [`Regions::wake`](crate::regions::Regions::wake) release their
    /// locks first, too.
    pub fn observe_out_of_memory(&self, observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
        self.observers.lock().push(Arc::new(observer));
    }

    /// Every block that has not been freed, in order of addresses. At the engine's end they are
    /// logged as a warning, unless it is dropped in a panic.
    pub fn leaks(&self) -> Result<Vec<Leak>, Error> {
        Ok(self.with(&mut *self.lock()?).live(|_| true))
    }

    /// Counts a block that its owner never frees.
    pub(crate) fn count_lost(&self, bytes: u64) {
        // What a poisoned engine has is never freed anyway.
        let _ = self.lock().map(|mut state| state.accounts.count_lost(bytes));
    }

    /// What is free of the device or in the engine's pools, in bytes: no growth of a pool makes it less. `None` where the
    /// device does not tell.
    pub(crate) fn left_by_others(&self) -> Option<u64> {
        let state = self.lock().ok()?;
        Some(self.driver.memory_info().ok()?.free + state.pools.reserved_by_all())
    }

    pub(super) fn frames(&self) -> Option<Arc<Frames>> {
        Frames::given().or_else(|| self.config.settings.stacks.then(Frames::capture))
    }

    /// Warns of the blocks that were never freed.
    pub(super) fn report_leaks(&self) {
        if std::thread::panicking() || !self.config.report_leaks {
            return;
        }
        let Ok(leaks) = self.leaks() else { return };
        if leaks.is_empty() {
            return;
        }
        let bytes: u64 = leaks.iter().map(|leak| leak.bytes).sum();
        let headline = match leaks.len() {
            1 => "a block was never freed:".to_owned(),
            count => format!("{count} blocks, {} in all, were never freed:", Size(bytes)),
        };
        self.tell(Level::Warn, || logging::list(&headline, &leaks));
    }

    /// The device's ordinal, as its driver has it.
    pub fn device(&self) -> u32 {
        self.driver.device()
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// Waits for the work that streams hold now, as far as they can be waited for, and then gives all memory
    /// back to the driver that is wholly free, with what those streams had freed. Streams that capture are not
    /// waited for, and no capture is disturbed. Other calls go on during the wait.
    pub fn empty_cache_waiting(&self) -> Result<Emptied, Error> {
        self.0.alter(|locked| {
            // What stream caches hold is ordered by their streams from then on.
            locked.free_completed(None);
            locked.errands.wait();
        })?;
        self.0.empty_cache()
    }

    /// Whether [`Engine::retire_stream`] would agree, as far as the engine's tables say. The stream goes on, as the calling
    /// thread's, unless another thread captures on it. For hosts with several engines: all of them are to agree before
    /// one forgets the stream.
    ///
    /// # Errors
    /// Those of [`Engine::retire_stream`].
    pub fn may_retire(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "retire_stream")?;
        self.0.change(|locked| locked.may_retire(stream))
    }

    /// As [`Engine::retire_stream`], for a stream that may go on, which is safe while no live block was allocated on it.
    ///
    /// # Errors
    /// Those of [`Engine::retire_stream`]; [`StreamRefusal::InUse`] also while such a block is live, and for a stream that
    /// another living thread has named last.
    pub fn retire_unused(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "retire_stream")?;
        self.0.change(|locked| locked.retire_stream(stream, true))
    }

    /// Takes back what stream caches hold, and says whether freed memory waits for a stream that another thread named
    /// last, or that is gone. This thread may record no event there: that thread's next request makes the memory free,
    /// or [`Engine::wait_for_device`].
    pub fn awaits_other_threads(&self) -> Result<bool, Error> {
        self.0.alter(|locked| {
            locked.free_completed(None);
            let owing = locked.state.timelines.owing(locked.driver);
            owing.is_some_and(|owing| !owing.is_empty())
        })
    }

    /// Whether the device has done all work that the process has given it, on unknown streams too, except those of
    /// contexts without a known stream; `None`, and nothing is asked, where [`Engine::wait_for_device`] would not wait.
    ///
    /// # Errors
    /// Those of [`HostApi::is_idle`]; [`Error::Poisoned`].
    pub fn is_device_idle(&self) -> Result<Option<bool>, Error>
    where
        D: HostApi,
    {
        self.0.change(|locked| match locked.state.timelines.owing(locked.driver) {
            None => Ok(None),
            Some(_) => Ok(Some(locked.driver.is_idle()?)),
        })
    }

    /// Whether any pool but this one has live blocks, or blocks that stream caches hold for the next request. Takes the
    /// same time however many blocks and pools there are.
    pub fn has_blocks_beside(&self, pool: PoolId) -> Result<bool, Error> {
        let mut state = self.0.lock()?;
        state.pool(pool, "has_blocks_beside")?;
        Ok(state.blocks.count() > state.blocks.count_of(pool))
    }

    /// The memory that a live block lies in: where it begins, and its size. A segment, where these are
    /// fixed, else what is mapped around the block without a gap.
    pub fn surroundings_of(&self, block: BlockId) -> Result<(u64, u64), Error> {
        let mut state = self.0.lock()?;
        let site = self.0.with(&mut state).live_block(block, "surroundings_of")?.0.site;
        Ok(match state.pools.find_heap(site.heap) {
            Some(row) => row.surroundings(site.range),
            None => state.pools.place(site),
        })
    }

    /// Whether an address lies in memory of one of the engine's pools, or in addresses that a pool has reserved, with
    /// or without a block. Asks no driver; costs a comparison for each segment.
    pub fn owns(&self, address: u64) -> bool {
        // A poisoned engine hands nothing out, but what it had it still has.
        let state = self.0.state.lock();
        state.pools.heap_around(address).is_some()
    }
}

impl<D: Driver> Locked<'_, D> {
    /// A live block, and what was asked for, in bytes.
    pub(super) fn live_block(
        &self,
        id: BlockId,
        call: &'static str,
    ) -> Result<(&LiveBlock, u64), Error> {
        let found = if id.cache == NO_CACHE {
            self.state.blocks.get(id).map(|block| (block, block.asked.requested))
        } else {
            self.caches.get(id.cache).and_then(|cache| {
                let lease = cache.live(id)?;
                Some((self.state.blocks.leased(lease.row)?, lease.asked.requested))
            })
        };
        found.ok_or_else(|| id.unknown(call))
    }

    /// The largest live blocks of all pools, in order of their sizes as asked for.
    pub(super) fn largest_blocks(&self, most: usize) -> Vec<Leak> {
        let mut largest = Vec::new();
        self.each_live(|_, block, asked| {
            largest.push((Reverse(asked.requested), block.site.number));
        });
        largest.sort_unstable();
        largest.truncate(most);
        // Only these are named: to look a stack up takes long.
        let mut blocks = self.live(|block| largest.iter().any(|&(_, it)| it == block.site.number));
        blocks.sort_by_key(|block| Reverse(block.bytes));
        blocks.truncate(most);
        blocks
    }

    /// The live blocks of a pool that are wanted, in order of addresses.
    pub(super) fn live_of(&self, pool: PoolId, wanted: impl Fn(&LiveBlock) -> bool) -> Vec<Leak> {
        // All pools are searched for the names of those alone that there are.
        if !self.state.blocks.of(pool).any(&wanted) {
            return Vec::new();
        }
        self.live(|block| block.site.is_in(pool) && wanted(block))
    }

    /// The live blocks that are wanted, in order of addresses.
    fn live(&self, wanted: impl Fn(&LiveBlock) -> bool) -> Vec<Leak> {
        let (pools, mut live) = (&self.state.pools, Vec::new());
        self.each_live(|block, it, asked| {
            if wanted(it) {
                live.push(Leak {
                    block,
                    pool: pools.label(pools.pool_of(it.site.heap)),
                    asked_of: it.tenure.asked_of().map(|pool| pools.label(pool)),
                    address: pools.place(it.site).0,
                    bytes: asked.requested,
                    stream: asked.stream,
                    origin: asked.frames.as_ref().map(|it| it.resolve()).unwrap_or_default(),
                });
            }
        });
        live.sort_by_key(|leak| leak.address);
        live
    }

    /// Names every live block, with what was asked for.
    pub(super) fn each_live(&self, mut tell: impl FnMut(BlockId, &LiveBlock, &Asked)) {
        for (id, block) in self.state.blocks.named().filter(|(_, block)| !block.is_leased()) {
            tell(id, block, &block.asked);
        }
        for cache in self.caches.used() {
            for (id, _, lease) in cache.leases().filter(|(_, cached, _)| !cached) {
                if let Some(block) = self.state.blocks.leased(lease.row) {
                    tell(id, block, &lease.asked);
                }
            }
        }
    }

    /// Notes in counts and history what a heap got from the driver and gave back, and says it.
    pub(super) fn count_changes(&mut self, heap: u32) {
        if !self.state.pools.find_heap(heap).is_some_and(Heap::is_changed) {
            return;
        }
        let pools = &mut self.state.pools;
        let changes = pools.counted_heap_mut(heap).take_changes();
        let pool = pools.pool_of(heap);
        let reserved = pools.reserved(pool);
        for (came, what) in [(true, "has grown by"), (false, "has given back")] {
            let changes = || changes.iter().filter(|(moved, ..)| moved.came() == came);
            let bytes: u64 = changes().map(|&(_, (_, bytes), _)| bytes).sum();
            if bytes == 0 {
                continue;
            }
            self.state.say_of(pool, Level::Debug, |pool| {
                let pieces: usize = changes().map(|(.., pieces)| pieces).sum();
                let (bytes, reserved) = (Size(bytes), Size(reserved));
                format!("{pool} {what} {bytes} in {pieces} pieces, and holds {reserved}")
            });
        }
        for (moved, place @ (_, bytes), pieces) in changes {
            let counts = self.state.accounts.counts();
            match moved.came() {
                true => counts.num_device_alloc += pieces as u64,
                false => counts.num_device_free += pieces as u64,
            }
            if bytes > 0 {
                self.state.note_segment(moved.came(), place);
                self.state.record_event(EventKind::Memory(moved), place, None, pool);
            }
        }
    }

    /// Refuses a stream that a block that lives, a wait or a capture under way asks about.
    fn may_retire(&mut self, stream: StreamHandle) -> Result<(), Error> {
        let asked = self.driver.is_capturing(stream).map_err(|error| error.kind);
        if !matches!(asked, Ok(false) | Err(ErrorKind::ContextDestroyed)) {
            return Err(in_use(stream));
        }
        self.assign_stream(stream, false);
        // What waits for the stream without an event yet.
        self.poll_waits(usize::MAX);
        let names = |block: &LiveBlock| block.users().any(|user| user == stream);
        let recorded = |capture_state: &CaptureState| capture_state.proof.stream(stream).is_some();
        let asks = self.state.waiting.iter().any(|wait| wait.awaited().1.contains(&stream))
            || self.state.captures.iter().any(recorded)
            || self.state.blocks.iter().any(names)
            || self.caches.used().any(|cache| cache.names(stream));
        (!asks).then_some(()).ok_or_else(|| in_use(stream))
    }

    fn retire_stream(&mut self, stream: StreamHandle, unused: bool) -> Result<(), Error> {
        if unused {
            // Another thread may capture on a stream that goes on: nothing is asked about it there.
            let mut used = !self.state.timelines.is_mine(stream);
            self.each_live(|_, it, asked| used |= asked.stream == stream && it.gone.is_none());
            if used {
                return Err(in_use(stream));
            }
        }
        self.may_retire(stream)?;
        // First, so that no block that is freed meanwhile stays with the stream's cache.
        let retired = self.caches.of(stream).retire(stream);
        self.take_back(None, |of| of == stream);
        let left = self.leave_stream(stream, unused);
        left.inspect_err(|_| self.caches.of(stream).keep(retired))
    }

    /// Forgets a stream of which no cache has a block to hand out.
    fn leave_stream(&mut self, stream: StreamHandle, goes_on: bool) -> Result<(), Error> {
        let mine = |block: &LiveBlock| block.asked.stream == stream && block.gone.is_none();
        let gone = match self.state.blocks.iter().any(mine) {
            // They are free once it has completed what it holds now, whichever stream has its handle then.
            true if Timelines::is_gone(self.driver, stream) => {
                Some(self.state.timelines.mark_elsewhere(self.driver, stream))
            }
            true => Some(self.state.timelines.mark(self.driver, stream).ok_or(in_use(stream))?),
            false => None,
        };
        let Some(timeline) = self.state.timelines.known(stream) else { return Ok(()) };
        if !self.state.timelines.retire(self.driver, timeline, goes_on) {
            return Err(in_use(stream));
        }
        for block in self.state.blocks.iter_mut().filter(|block| mine(block)) {
            block.gone = gone.map(Box::new);
        }
        self.caches.of(stream).forget_stream(stream);
        if self.state.timelines.many_retired() {
            // What they had ordered is free by now, but for the latest.
            self.free_completed(None);
        }
        Ok(())
    }

    /// Takes back what stream caches have cached of one pool, or of all, for such streams; says whether any was.
    pub(super) fn take_back(
        &mut self,
        pool: Option<PoolId>,
        wanted: impl Fn(StreamHandle) -> bool,
    ) -> bool {
        let drain =
            |mut cache: MutexGuard<'_, StreamCache>| cache.drain(pool, |stream, _| wanted(stream));
        self.end_leases(self.caches.used().flat_map(drain).collect())
    }

    /// Takes back what stream caches have cached of a pool. They hand out nothing of it again.
    pub(super) fn bar(&mut self, pool: PoolId) {
        // What they have of it is in the table of its live blocks.
        if self.state.blocks.count_of(pool) > 0 {
            self.end_leases(self.caches.used().flat_map(|mut cache| cache.bar(pool)).collect());
        }
    }

    /// Takes back what a stream's own cache has cached of a pool's small or large blocks; says whether any was.
    pub(super) fn take_back_own(
        &mut self,
        (pool, stream): (PoolId, StreamHandle),
        small: bool,
    ) -> bool {
        let wanted = |of, is_small| of == stream && is_small == small;
        let leases = self.caches.of(stream).drain(Some(pool), wanted);
        self.end_leases(leases)
    }

    /// Takes back what a stream cache has given up of what it had cached.
    pub(super) fn end_leases(&mut self, leases: Leases) -> bool {
        for &row in &leases {
            let Some((site, stream)) = self.state.blocks.end_cached(row) else { continue };
            self.state.tell_gone(site, Origin::Outside);
            self.free_cached(site, stream);
        }
        !leases.is_empty()
    }

    /// Asks every stream that has ordered something where it stands, without waiting, and frees for everyone what is
    /// completed: in the heaps of one pool, or of all. Returns whether that was anything.
    pub(super) fn free_completed(&mut self, pool: Option<PoolId>) -> bool {
        let mut freed = self.take_back(pool, |_| true);
        let timelines: Vec<TimelineId> = self.state.timelines.all().collect();
        for &timeline in &timelines {
            self.state.timelines.fence(self.driver, timeline);
        }
        freed |= self.poll_waits(usize::MAX);
        for heap in self.state.pools.heaps_of(pool) {
            let State { timelines, pools, .. } = &mut *self.state;
            let row = pools.counted_heap_mut(heap);
            if row.free_completed(|mark| timelines.is_reached(mark)) {
                pools.change(heap);
                self.drop_uncached(heap);
                freed = true;
            }
        }
        if pool.is_some() {
            // What streams that are gone have ordered in other pools keeps their timelines, however often it is asked.
            return freed;
        }
        let State { timelines: all, pools, .. } = &mut *self.state;
        all.recycle(timelines, pools.heaps().flat_map(Heap::ordered_marks));
        freed
    }

    /// Gives memory of one pool, or of all, that is wholly free back to the driver, what was unused longest first: at
    /// least `most` bytes, if there are as many. `needs` is the pool that the memory is for: what that pool keeps goes
    /// too. Returns how much went. Nothing is waited for. What the driver refuses to take stays.
    pub(super) fn give_back(
        &mut self,
        pool: Option<PoolId>,
        most: u64,
        needs: Option<PoolId>,
    ) -> u64 {
        let mut gone = self.release_planned(pool);
        let mut surplus: Vec<(u64, u32, u64, RangeId)> = Vec::new();
        for heap in self.state.pools.heaps_of(pool) {
            let of = self.state.pools.pool_of(heap);
            // Also of pools that give nothing back: what the driver would not take is in no pool's blocks.
            let _ = self.state.pools.heap_mut(heap).release_stuck(self.driver);
            let is_for_all = pool.is_some() || needs == Some(of) || self.state.pools.gives(of);
            // While a pool settles, work from before a restoration may use what is free in it.
            if !is_for_all || self.state.is_settling(of) {
                continue;
            }
            // Of a suspended pool there is nothing to give back.
            let found = self.state.pools.heap(heap).surplus();
            surplus.extend(found.into_iter().map(|(age, address, id)| (age, heap, address, id)));
        }
        // Of equals what lies highest: what is low is taken first again.
        surplus.sort_by_key(|&(age, heap, address, _)| (Reverse(age), heap, Reverse(address)));
        for (_, heap, _, id) in surplus {
            if gone >= most {
                break;
            }
            gone += self.state.pools.heap_mut(heap).give_back(self.driver, id, most - gone);
        }
        gone
    }

    /// In a heap that caches nothing: gives back what has become free.
    pub(super) fn drop_uncached(&mut self, heap: u32) {
        if !self.state.pools.find_heap(heap).is_some_and(Heap::is_uncached) {
            return;
        }
        let row = self.state.pools.heap_mut(heap);
        for (.., id) in row.surplus() {
            // What the driver does not take stays for the next attempt.
            row.give_back(self.driver, id, u64::MAX);
        }
    }

    /// Gives back everything that is free now.
    pub(super) fn empty(&mut self, keep: u64) -> Emptied {
        self.settle_loans();
        self.state.imports.close_left(self.driver);
        self.free_completed(None);
        let before = self.state.pools.reserved_by_all();
        self.release_planned(None);
        if before > keep {
            // A pool that loses memory says so: it is suspended.
            let _ = self.drop_premapped_of_all(None);
        }
        self.destroy_leaving(usize::MAX);
        let most = self.state.pools.reserved_by_all().saturating_sub(keep);
        let gone = before.saturating_sub(self.state.pools.reserved_by_all());
        let released = gone + self.give_back(None, most, None);
        let pools = &self.state.pools;
        let mut waiting = 0;
        for pool in pools.ids().into_iter().filter(|&pool| !pools.is_shut(pool)) {
            waiting += pools.holdings(pool).map(|holding| holding.waiting().1).sum::<u64>();
            let ordered = pools.heaps_of(Some(pool)).into_iter();
            waiting += ordered.map(|heap| pools.heap(heap).stream_ordered_bytes()).sum::<u64>();
        }
        Emptied { released, waiting, reserved: pools.reserved_by_all() }
    }

    /// See [`Engine::destroy_pool`].
    pub(super) fn destroy_pool(&mut self, id: PoolId) -> Result<(), Error> {
        const CALL: &str = "destroy_pool";
        let heaps = self.state.pool(id, CALL)?.heaps();
        self.free_completed(Some(id));
        let waiting = self.state.unsettled(id) + usize::from(self.state.pools.is_moving(id));
        let blocks = self.state.blocks.count_of(id);
        let pool = self.state.pool(id, CALL)?;
        let (captures, graphs) = (pool.captures(), pool.graphs());
        if blocks + captures + graphs + waiting > 0 {
            let why = PoolRefusal::InUse { blocks, captures, graphs, waiting };
            return Err(self.state.pools.refuse(id, CALL, why));
        }
        self.shut(id);
        let mut gone = self.give_away(id, &mut NothingKept, Pieces::all(), CALL).map(drop);
        for heap in heaps {
            let stuck = self.state.pools.heap_mut(heap).release_stuck(self.driver);
            gone = gone.and(stuck.map_err(Error::from));
        }
        if let Err(error) = gone {
            // Its host is done with it: the rest goes when that is tried again.
            self.state.pools.set_owner(id, None);
            return Err(error);
        }
        for heap in heaps {
            self.state.pools.heap_mut(heap).note_close();
            self.count_changes(heap);
        }
        self.state.say_of(id, Level::Debug, |pool| format!("{pool} was destroyed"));
        let closed = self.state.pools.remove(id, self.driver);
        self.state.blocks.forget_pool(id);
        self.forget_figures(id);
        Ok(closed?)
    }

    /// Destroys those pools whose owners are gone, and that nothing uses any more, among `most` that are looked at in turn.
    pub(super) fn destroy_leaving(&mut self, most: usize) {
        for pool in self.state.pools.leaving(most) {
            // A freed block keeps its pool as long as a stream cache has it: this is tried again later.
            let _ = self.destroy_pool(pool);
        }
    }

    /// Gives back every pool that nothing uses. What graphs, blocks or running work may still touch
    /// stays with the driver: a leak is better than memory that is pulled away under a kernel.
    pub(super) fn close(&mut self) {
        self.state.timelines.assign_all();
        for pool in self.state.pools.ids() {
            // A pool in use stays, as this function's comment says; there is no caller for the driver's errors.
            if let Err(Error::Driver(_)) = self.destroy_pool(pool) {
                let _ = self.state.pools.remove(pool, self.driver);
            }
        }
        self.state.timelines.close(self.driver);
    }
}
