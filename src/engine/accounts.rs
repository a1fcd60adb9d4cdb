//! What has changed since it was counted last, and the sums for reports.

use std::sync::Arc;

use smallvec::SmallVec;

use super::names::PoolId;
use super::peaks::{
    class, Amounts, Ledger, Part, Tally, Totals, ACTIVE, ACTIVE_BYTES, ALLOCATED, ALLOCATIONS,
    REQUESTED, RESERVED, SEGMENTS, SPLIT, SPLIT_BYTES, SUSPENDED,
};
use super::state::State;
use super::statistics::Statistics;

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
        if !self.touched.contains(&heap) {
            self.touched.push(heap);
        }
    }

    /// Counts what has changed. Every call that changes anything ends with this.
    pub(super) fn account(&mut self, counts: bool) {
        while let Some(heap) = self.touched.pop() {
            self.note_changes(heap);
            if self.pools.find_heap(heap).is_none() {
                continue;
            }
            let pool = self.pools.pool_of(heap);
            let (class, mut amounts) = self.amounts(pool, heap);
            if !counts {
                let all = std::mem::take(&mut amounts);
                for kind in [SEGMENTS, RESERVED, SUSPENDED] {
                    amounts[kind] = all[kind];
                }
            }
            self.set_tally(pool, class, amounts);
        }
        if std::mem::take(&mut self.unsettled) {
            self.settle();
        }
    }

    /// Counts a pool that is gone out everywhere: its row will be another's. What it was in all goes
    /// on to be in the sums over all pools.
    pub(super) fn forget_figures(&mut self, pool: PoolId) {
        let row = pool.row();
        let Self { fronts, tallies, gone, .. } = self;
        let mut sum_up = |class: usize, tally: &mut Tally, ledger: &mut Ledger| {
            debug_assert_eq!(tally.current, Amounts::default());
            ledger.adjust(row, class, tally);
            gone.add(class, &tally.risen);
        };
        for mut front in fronts.used() {
            front.forget_pool(pool, |class, tally| sum_up(class, tally, &mut fronts.ledger()));
        }
        for class in 0..2 {
            let Some(tally) = tallies.get_mut(2 * row + class) else { continue };
            tally.set(&Amounts::default());
            sum_up(class, tally, &mut fronts.ledger());
            *tally = Tally::default();
        }
        fronts.ledger().forget_pool(row);
    }

    #[inline]
    fn set_tally(&mut self, pool: PoolId, class: usize, amounts: Amounts) {
        let row = 2 * pool.row() + class;
        if self.tallies.len() <= row {
            self.tallies.resize_with((row | 1) + 1, Tally::default);
        }
        let tally = &mut self.tallies[row];
        if !tally.set(&amounts) {
            self.unsettled |= !self.fronts.ledger().grant_ahead(pool.row(), class, tally);
        }
    }

    /// What a heap holds that no front counts.
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
        for heap in [first].into_iter().chain(second) {
            let heap = self.pools.heap(heap);
            let (pieces, free) = heap.free_pieces();
            amounts[ACTIVE] += heap.waiting_ranges() as u64;
            amounts[ACTIVE_BYTES] += heap.waiting();
            amounts[SPLIT] += pieces as u64;
            amounts[SPLIT_BYTES] += free;
            amounts[SEGMENTS] += heap.pieces() as u64;
            amounts[RESERVED] += heap.reserved();
            amounts[SUSPENDED] += heap.suspended();
        }
        (class, amounts)
    }

    /// Adds everything up, with all locks held, and notes new peaks.
    pub(super) fn settle(&mut self) -> Totals {
        self.with_totals(|_, _| {})
    }

    /// The figures of a pool, or of all.
    pub(super) fn statistics(&mut self, pool: Option<PoolId>) -> Statistics {
        let pool = pool.map(PoolId::row);
        let totals = self.settle();
        let fronts = Arc::clone(&self.fronts);
        let mut ledger = fronts.ledger();
        let mut counts = self.counts;
        counts.num_sync_all_streams = self.lanes.synchronized();
        Statistics {
            all: ledger.figures(&totals, pool, Part::All),
            small_pool: ledger.figures(&totals, pool, Part::Small),
            large_pool: ledger.figures(&totals, pool, Part::Large),
            counts,
        }
    }

    pub(super) fn reset(&mut self, what: Reset) {
        self.with_totals(|ledger, totals| match what {
            Reset::Peaks => ledger.reset_peaks(totals),
            Reset::Accumulated => ledger.reset_accumulated(totals),
        });
    }

    fn with_totals(&mut self, then: impl FnOnce(&mut Ledger, &Totals)) -> Totals {
        let fronts = Arc::clone(&self.fronts);
        let mut totals = Totals::new(&self.gone);
        let mut guards: SmallVec<[_; 4]> = fronts.used().collect();
        for (row, tally) in self.tallies.iter_mut().enumerate() {
            totals.add(row / 2, row % 2, tally);
        }
        for front in &mut guards {
            front.add_up(&mut totals);
        }
        let mut ledger = fronts.ledger();
        ledger.settle(&totals);
        then(&mut ledger, &totals);
        totals
    }
}
