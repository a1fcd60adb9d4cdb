//! What has changed since it was counted last, and the sums for reports.

use std::sync::Arc;

use smallvec::SmallVec;

use super::names::PoolId;
use super::peaks::{
    class, Amounts, Counter, Gone, Part, Peaks, Totals, ACTIVE, ACTIVE_BYTES, ALLOCATED,
    ALLOCATIONS, REQUESTED, RESERVED, SEGMENTS, SPLIT, SPLIT_BYTES, SUSPENDED,
};
use super::pools::with_heap;
use super::state::State;
use super::statistics::{Counts, Statistics};

/// What is counted behind the engine's lock.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// What is counted here and not by a stream cache: by pool and class.
    counters: Vec<Counter>,
    /// What was counted in pools that are gone.
    gone: Gone,
    /// Heaps whose figures have changed since they were last counted.
    touched: SmallVec<[u32; 8]>,
    /// Whether a stream cache's figures may have exceeded their allowance.
    may_have_peaked: bool,
    counts: Counts,
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

    /// Takes the heaps that are still to be counted, until they are put back.
    pub(super) fn take_touched(&mut self) -> SmallVec<[u32; 8]> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn put_back_touched(&mut self, touched: SmallVec<[u32; 8]>) {
        self.touched = touched;
    }
}

/// What is to be done with the peaks and sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    Peaks,
    Accumulated,
}

impl State {
    /// Notes that a heap's figures have changed.
    #[inline]
    pub(super) fn touch(&mut self, heap: u32) {
        if !self.accounts.touched.contains(&heap) {
            self.accounts.touched.push(heap);
        }
    }

    /// Counts what has changed. Every call that changes anything ends with this.
    pub(super) fn account(&mut self, counts: bool) {
        while let Some(heap) = self.accounts.touched.pop() {
            self.count_changes(heap);
            let Some(pool) = self.pools.find_pool(heap) else { continue };
            let (class, mut amounts) = self.amounts(pool, heap);
            if !counts {
                let all = std::mem::take(&mut amounts);
                for kind in [SEGMENTS, RESERVED, SUSPENDED] {
                    amounts[kind] = all[kind];
                }
            }
            self.set_counter(pool, class, amounts);
        }
        if std::mem::take(&mut self.accounts.may_have_peaked) {
            self.sum_up();
        }
    }

    /// Counts a pool that is gone out everywhere: its row will be another's. What it was in all goes
    /// on to be in the sums over all pools.
    pub(super) fn forget_figures(&mut self, pool: PoolId) {
        let row = pool.row();
        let Self { caches, accounts: Accounts { counters, gone, .. }, .. } = self;
        let mut sum_up = |class: usize, counter: &mut Counter, peaks: &mut Peaks| {
            debug_assert_eq!(counter.current, Amounts::default());
            peaks.adjust(row, class, counter);
            gone.add(class, &counter.risen);
        };
        for mut cache in caches.used() {
            cache.forget_pool(pool, |class, counter| sum_up(class, counter, &mut caches.peaks()));
        }
        for class in 0..2 {
            let Some(counter) = counters.get_mut(2 * row + class) else { continue };
            counter.set(&Amounts::default());
            sum_up(class, counter, &mut caches.peaks());
            *counter = Counter::default();
        }
        caches.peaks().forget_pool(row);
    }

    #[inline]
    fn set_counter(&mut self, pool: PoolId, class: usize, amounts: Amounts) {
        let row = 2 * pool.row() + class;
        let Accounts { counters, may_have_peaked, .. } = &mut self.accounts;
        if counters.len() <= row {
            counters.resize_with((row | 1) + 1, Counter::default);
        }
        let counter = &mut counters[row];
        if !counter.set(&amounts) {
            *may_have_peaked |= !self.caches.peaks().allow_ahead(pool.row(), class, counter);
        }
    }

    /// What a heap holds that no stream cache counts.
    #[inline]
    fn amounts(&self, pool: PoolId, heap: u32) -> (usize, Amounts) {
        let row = self.pools.get(pool).expect("a pool lives as long as its heaps");
        let class = class(row.small() == heap);
        let counted = row.counted(class);
        let mut amounts = Amounts::default();
        amounts[ALLOCATIONS] = counted.blocks;
        amounts[ALLOCATED] = counted.bytes;
        amounts[REQUESTED] = counted.requested;
        amounts[ACTIVE] = counted.blocks;
        amounts[ACTIVE_BYTES] = counted.bytes;
        // Large blocks may lie in two heaps.
        let (first, second) =
            if heap == row.small() { (heap, None) } else { (row.large(), row.planned()) };
        let heap = self.pools.heap(first);
        // Addresses of planned blocks are not memory, so nothing of it can be said to be left over.
        let (pieces, free) = heap.free_pieces();
        amounts[SPLIT] = pieces as u64;
        amounts[SPLIT_BYTES] = free;
        for heap in [first].into_iter().chain(second) {
            with_heap!(self.pools, heap, |heap| {
                let (blocks, bytes) = heap.waiting();
                amounts[ACTIVE] += blocks as u64;
                amounts[ACTIVE_BYTES] += bytes;
                amounts[SEGMENTS] += heap.pieces() as u64;
                amounts[RESERVED] += heap.reserved();
                amounts[SUSPENDED] += heap.suspended();
            });
        }
        (class, amounts)
    }

    /// Adds everything up, with all locks held, and notes new peaks.
    pub(super) fn sum_up(&mut self) -> Totals {
        self.with_totals(|_, _| {})
    }

    /// The figures of a pool, or of all.
    pub(super) fn statistics(&mut self, pool: Option<PoolId>) -> Statistics {
        let pool = pool.map(PoolId::row);
        let totals = self.sum_up();
        let caches = Arc::clone(&self.caches);
        let mut peaks = caches.peaks();
        let mut counts = self.accounts.counts;
        counts.num_sync_all_streams = self.timelines.synchronized();
        Statistics {
            all: peaks.figures(&totals, pool, Part::All),
            small_pool: peaks.figures(&totals, pool, Part::Small),
            large_pool: peaks.figures(&totals, pool, Part::Large),
            counts,
        }
    }

    pub(super) fn reset(&mut self, what: Reset) {
        self.with_totals(|peaks, totals| match what {
            Reset::Peaks => peaks.reset_peaks(totals),
            Reset::Accumulated => peaks.reset_accumulated(totals),
        });
        if what == Reset::Accumulated {
            self.accounts.counts = Counts::default();
        }
    }

    fn with_totals(&mut self, then: impl FnOnce(&mut Peaks, &Totals)) -> Totals {
        let caches = Arc::clone(&self.caches);
        let mut totals = Totals::new(&self.accounts.gone);
        let mut guards: SmallVec<[_; 4]> = caches.used().collect();
        for (row, counter) in self.accounts.counters.iter_mut().enumerate() {
            totals.add(row / 2, row % 2, counter);
        }
        for cache in &mut guards {
            cache.add_up(&mut totals);
        }
        let mut peaks = caches.peaks();
        peaks.raise(&totals);
        then(&mut peaks, &totals);
        totals
    }
}
