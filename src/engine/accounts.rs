//! What has changed since it was counted last, and the sums for reports.

use std::sync::Arc;

use smallvec::SmallVec;

use super::names::PoolId;
use super::peaks::{
    row, Counter, Counters, Peaks, SizeClass, ACTIVE, ACTIVE_BYTES, ALLOCATED, ALLOCATIONS,
    REQUESTED, RESERVED, SEGMENTS, SPLIT, SPLIT_BYTES, SUSPENDED,
};
use super::pools::Pools;
use super::state::State;
use super::statistics::{Counts, Statistics};

/// Live blocks: how many, their bytes, and their bytes as asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    blocks: u64,
    bytes: u64,
    requested: u64,
}

/// What is counted behind the engine's lock.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// What is counted here and not by a stream cache.
    counters: Counters<Counter>,
    /// Live blocks that no stream cache counts, by pool and heap.
    live: Vec<Counted>,
    /// Whether a stream cache's figures may have exceeded their allowance.
    may_have_peaked: bool,
    counts: Counts,
    /// In blocks that were given up for lost, as asked for.
    lost_bytes: u64,
}

impl Accounts {
    /// Notes that a stream cache stayed within its allowance, or that there may be a new peak.
    #[inline]
    pub(super) fn heard(&mut self, within: bool) {
        self.may_have_peaked |= !within;
    }

    /// What happened, to be counted.
    pub(super) fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// A block is never freed.
    pub(super) fn count_lost(&mut self, bytes: u64) {
        self.lost_bytes += bytes;
    }
}

#[cfg(debug_assertions)]
impl Accounts {
    /// Live blocks that are counted here in a pool's heaps of small or large blocks: how many, their bytes, and
    /// their bytes as asked for.
    pub(super) fn live_in(&self, row: usize) -> [u64; 3] {
        let live = self.live.get(row).copied().unwrap_or_default();
        [live.blocks, live.bytes, live.requested]
    }

    /// What is counted here.
    pub(super) fn counters(&self) -> &Counters<Counter> {
        &self.counters
    }
}

/// What is to be done with the peaks and sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    Peaks,
    Accumulated,
}

impl State {
    /// Counts a block into the heap in which it lies, and what is left over there.
    #[inline]
    pub(super) fn count_in(
        &mut self,
        (pool, heap): (PoolId, u32),
        (bytes, requested): (u64, u64),
        counts: bool,
    ) {
        let live = self.live_figures(pool, heap);
        live.blocks += 1;
        live.bytes += bytes;
        live.requested += requested;
        let Some(row) = self.pools.find_heap(heap).filter(|_| counts) else {
            return self.pools.change(heap);
        };
        let (pieces, free) = row.free_pieces();
        let at = self.counter(pool, heap);
        let counter = self.accounts.counters.rise(at);
        let within = counter.add([
            (ALLOCATIONS, 1),
            (ALLOCATED, bytes),
            (REQUESTED, requested),
            (ACTIVE, 1),
            (ACTIVE_BYTES, bytes),
        ]) & counter.set([(SPLIT, pieces as u64), (SPLIT_BYTES, free)]);
        if !within {
            self.ask_for_allowance(at);
        }
    }

    /// Counts a block out that its host has freed. If its place is free at once,
    /// [`State::count_released`] follows, before anything else is counted; else its heap is counted at the end of the call.
    #[inline]
    pub(super) fn count_out(
        &mut self,
        (pool, heap): (PoolId, u32),
        (bytes, requested): (u64, u64),
        counts: bool,
    ) {
        let live = self.live_figures(pool, heap);
        live.blocks -= 1;
        live.bytes -= bytes;
        live.requested -= requested;
        if counts {
            let amounts = [(ALLOCATIONS, 1), (ALLOCATED, bytes), (REQUESTED, requested)];
            let at = self.counter(pool, heap);
            self.accounts.counters.change(at).take(amounts);
        }
    }

    /// Counts a block as used no more: its place is left over.
    #[inline]
    pub(super) fn count_released(&mut self, (pool, heap): (PoolId, u32), bytes: u64, counts: bool) {
        if counts {
            let at = self.counter(pool, heap);
            self.accounts.counters.change(at).take([(ACTIVE, 1), (ACTIVE_BYTES, bytes)]);
        }
        self.count_left_over((pool, heap), counts);
    }

    /// Counts what is left over in a heap, where nothing else has changed that is counted here.
    #[inline]
    pub(super) fn count_left_over(&mut self, (pool, heap): (PoolId, u32), counts: bool) {
        let Some(row) = self.pools.find_heap(heap).filter(|_| counts) else {
            return self.pools.change(heap);
        };
        let (pieces, free) = row.free_pieces();
        let at = self.counter(pool, heap);
        let counter = self.accounts.counters.change(at);
        if !counter.set([(SPLIT, pieces as u64), (SPLIT_BYTES, free)]) {
            self.ask_for_allowance(at);
        }
    }

    #[inline]
    fn live_figures(&mut self, pool: PoolId, heap: u32) -> &mut Counted {
        let row = row(pool, Pools::is_small(heap));
        let live = &mut self.accounts.live;
        if live.len() <= row {
            live.resize_with((row | 1) + 1, Counted::default);
        }
        &mut live[row]
    }

    /// Counts what has changed. Every call that changes anything ends with this.
    #[inline]
    pub(super) fn account(&mut self, counts: bool) {
        while let Some(heap) = self.pools.take_changed() {
            self.account_heap(heap, counts);
        }
        if self.accounts.may_have_peaked {
            self.note_peaks();
        }
    }

    /// Counts what has changed in a heap.
    pub(super) fn account_heap(&mut self, heap: u32, counts: bool) {
        self.count_changes(heap);
        if let Some(pool) = self.pools.find_pool(heap) {
            self.count(pool, heap, counts);
        }
    }

    /// Notes new peaks, if a stream cache or heap may have one.
    pub(super) fn note_peaks(&mut self) {
        if std::mem::take(&mut self.accounts.may_have_peaked) {
            self.sum_up();
        }
    }

    /// Counts what a heap holds that no stream cache counts; large blocks may lie in two heaps.
    #[inline]
    fn count(&mut self, pool: PoolId, heap: u32, counts: bool) {
        let small = Pools::is_small(heap);
        let live = *self.live_figures(pool, heap);
        let row = self.pools.get(pool).expect("a pool lives as long as its heaps");
        let (first, planned) =
            if small { (row.small(), None) } else { (row.large(), row.planned_heap()) };
        let first = self.pools.heap(first);
        let mut waiting = first.waiting();
        // Addresses of planned blocks are not memory, so nothing of it can be said to be left over.
        let (pieces, free) = first.free_pieces();
        let mut memory = [first.pieces() as u64, first.reserved(), first.suspended()];
        if let Some(planned) = planned {
            let more = planned.waiting();
            waiting = (waiting.0 + more.0, waiting.1 + more.1);
            memory[0] += planned.pieces() as u64;
            memory[1] += planned.reserved();
            memory[2] += planned.suspended();
        }
        let memory = [(SEGMENTS, memory[0]), (RESERVED, memory[1]), (SUSPENDED, memory[2])];
        self.set_figures(pool, small, memory);
        if counts {
            let blocks = [
                (ALLOCATIONS, live.blocks),
                (ALLOCATED, live.bytes),
                (REQUESTED, live.requested),
                (ACTIVE, live.blocks + waiting.0 as u64),
                (ACTIVE_BYTES, live.bytes + waiting.1),
                (SPLIT, pieces as u64),
                (SPLIT_BYTES, free),
            ];
            self.set_figures(pool, small, blocks);
        }
    }

    #[inline]
    fn set_figures<const N: usize>(
        &mut self,
        pool: PoolId,
        small: bool,
        figures: [(usize, u64); N],
    ) {
        let at = row(pool, small);
        self.accounts.counters.reach(at);
        if !self.accounts.counters.change(at).set(figures) {
            self.ask_for_allowance(at);
        }
    }

    /// The row of the counter of a heap's blocks, which is there.
    #[inline]
    fn counter(&mut self, pool: PoolId, heap: u32) -> usize {
        let at = row(pool, Pools::is_small(heap));
        self.accounts.counters.reach(at);
        at
    }

    /// Asks for what a counter is missing of its allowance.
    fn ask_for_allowance(&mut self, row: usize) {
        let Accounts { counters, may_have_peaked, .. } = &mut self.accounts;
        *may_have_peaked |= !counters.allow(row, &mut self.caches.peaks());
    }

    /// Counts a pool that is gone out everywhere: its row will be another's. What it was in all goes
    /// on to be in the sums over all pools.
    pub(super) fn forget_figures(&mut self, pool: PoolId) {
        let caches = Arc::clone(&self.caches);
        for mut cache in caches.used() {
            cache.forget_pool(pool, || caches.peaks());
        }
        let mut peaks = caches.peaks();
        self.accounts.counters.forget_pool(pool, &mut peaks);
        peaks.forget_pool(pool.row());
    }

    /// Notes new peaks, with all locks held. Looks at what has changed since this was last done, and at
    /// nothing else.
    pub(super) fn sum_up(&mut self) {
        self.with_sums(|_| {});
    }

    /// The figures of a pool, or of all.
    pub(super) fn statistics(&mut self, pool: Option<PoolId>) -> Statistics {
        let pool = pool.map(PoolId::row);
        let mut counts = self.accounts.counts;
        counts.num_sync_all_streams = self.timelines.synchronized();
        let parts = [SizeClass::All, SizeClass::Small, SizeClass::Large];
        let [all, small_pool, large_pool] =
            self.with_sums(|peaks| parts.map(|part| peaks.figures(pool, part)));
        Statistics { all, small_pool, large_pool, counts, lost_bytes: self.accounts.lost_bytes }
    }

    pub(super) fn reset(&mut self, what: Reset) {
        self.with_sums(|peaks| match what {
            Reset::Peaks => peaks.reset_peaks(),
            Reset::Accumulated => peaks.reset_accumulated(),
        });
        if what == Reset::Accumulated {
            self.accounts.counts = Counts::default();
        }
    }

    fn with_sums<R>(&mut self, then: impl FnOnce(&mut Peaks) -> R) -> R {
        let Self { caches, accounts: Accounts { counters, .. }, .. } = self;
        let mut guards: SmallVec<[_; 4]> = caches.used().collect();
        let mut peaks = caches.peaks();
        counters.settle(&mut peaks);
        guards.iter_mut().for_each(|cache| cache.settle(&mut peaks));
        // What one place has less of now another may have more of: peaks show only in the sum of all.
        counters.raise(&mut peaks);
        guards.iter_mut().for_each(|cache| cache.raise(&mut peaks));
        peaks.raise_all();
        then(&mut peaks)
    }
}
