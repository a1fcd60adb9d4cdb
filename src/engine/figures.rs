//! Figures that are exact, peaks included, though no single place sees all memory (design/allocator.md, "Figures").
//!
//! A counter is *settled* when its allowance becomes what it counts, and the sums are changed by the difference: once
//! all are settled the sums of the allowances are the figures. [`Accounts`] know what has changed since it was counted
//! last, and the sums for reports; [`Figures`] are what reports say, with the meanings that PyTorch gives them.

use std::fmt;

use serde::Serialize;
use smallvec::SmallVec;

use super::names::PoolId;
use super::pools::Pools;
use super::stream_cache::{StreamCache, StreamCaches};
use super::{Locked, State};
use crate::driver::Driver;
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, times, Verdict};
use crate::heap::{reach, Heap, Holding, PlannedHeap};
use crate::size::Size;

/// Makes the kinds of figures that are counted, and what reports say of each, of one table. What is counted as waiting
/// is, with what is live, the figure of what is active.
macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $number:literal $kind:ident: $field:ident, $shown:literal;)*) => {
        $(pub(super) const $kind: usize = $number;)*

        /// The figures of all memory, or of the heaps of small blocks (up to 1 MiB) or of large blocks. A block counts
        /// for the heap in which it lies: captures put blocks of every size into the heap of large blocks where that
        /// grows in place, and into free memory of the other.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Figures {
            $($(#[doc = $doc])+ pub $field: Figure,)*
        }

        impl Figures {
            /// Of what each kind comes to.
            fn of(figure: impl Fn(usize) -> Figure) -> Self {
                Self { $($field: figure($kind),)* }
            }

            /// Each with its name in tables.
            fn named(&self) -> [(&'static str, Figure); KINDS] {
                [$(($shown, self.$field),)*]
            }
        }
    };
}

const KINDS: usize = 10;

figures! {
    /// Blocks that have not been freed.
    0 ALLOCATIONS: allocation, "blocks";
    /// Their bytes as placed, rounded up.
    1 ALLOCATED: allocated_bytes, "allocated bytes";
    /// Their bytes as asked for.
    2 REQUESTED: requested_bytes, "requested bytes";
    /// Blocks that have not been freed, and freed ones that no stream may take yet.
    3 WAITING: active, "active";
    /// Their bytes.
    4 WAITING_BYTES: active_bytes, "active bytes";
    /// Free pieces of segments that are, or may be, in use elsewhere.
    5 SPLIT: inactive_split, "inactive split";
    /// Their bytes.
    6 SPLIT_BYTES: inactive_split_bytes, "inactive split bytes";
    /// Pieces of memory held from the driver: mappings and allocations.
    7 SEGMENTS: segment, "segments";
    /// Their bytes.
    8 RESERVED: reserved_bytes, "reserved bytes";
    /// Bytes of suspended pools that were given back to the driver, and that the pool asks for again
    /// when it is resumed.
    9 SUSPENDED: suspended_bytes, "suspended bytes";
}

/// One of each figure.
pub(super) type Amounts = [i64; KINDS];

/// Small blocks, large blocks, all blocks.
type Levels<T> = [T; 3];

/// The index of the level of all blocks, behind those of small and of large ones.
const ALL: usize = 2;

/// The index of a level, or class, of small or of large blocks.
#[inline]
pub(super) fn class(small: bool) -> usize {
    usize::from(!small)
}

#[inline]
fn figure(counted: &Amounts, kind: usize) -> i64 {
    let live = match kind {
        WAITING => counted[ALLOCATIONS],
        WAITING_BYTES => counted[ALLOCATED],
        _ => 0,
    };
    counted[kind] + live
}

/// What there is of each figure, of what is counted.
fn figures(counted: &Amounts) -> Amounts {
    std::array::from_fn(|kind| figure(counted, kind))
}

/// Takes so much from each figure.
#[inline]
fn take(figures: &mut Amounts, back: &Amounts) {
    figures.iter_mut().zip(back).for_each(|(figure, back)| *figure -= back);
}

/// What one place counts of one pool's blocks.
///
/// What is left over in bytes is counted so that it stays as it is when a block passes from one place to another: the
/// engine counts what is free in heaps and what stream caches have on lease, and a stream cache takes its live blocks
/// from that. So what a stream cache counts of it is below zero.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter {
    allowed: Levels<Amounts>,
    /// What is left of that: so much less is counted, or more where it is below zero.
    left: Levels<Amounts>,
    /// By how much each figure of small and of large blocks has risen since the counter was settled.
    risen: [Amounts; 2],
    /// What was free in the heaps of small and of large blocks when that was last counted, in bytes.
    free: [i64; 2],
}

impl Counter {
    /// Adds to some figures of a class, and of all blocks. Says whether they are no more than was allowed.
    #[inline]
    pub(super) fn add<const N: usize>(&mut self, class: usize, amounts: [(usize, i64); N]) -> bool {
        let mut within = true;
        for level in [class, ALL] {
            let left = &mut self.left[level];
            for (kind, amount) in amounts {
                left[kind] -= amount;
                within &= left[kind] >= 0;
            }
        }
        within
    }

    /// Takes from some figures of a class, and of all blocks.
    #[inline(always)]
    pub(super) fn take_from<const N: usize>(&mut self, class: usize, amounts: [(usize, i64); N]) {
        for level in [class, ALL] {
            for (kind, amount) in amounts {
                self.left[level][kind] += amount;
            }
        }
    }

    /// What is counted.
    #[inline]
    fn now(&self, level: usize, kind: usize) -> i64 {
        self.allowed[level][kind] - self.left[level][kind]
    }

    /// Adds to some figures by which they rise in all. Says whether they are no more than was allowed.
    #[inline(always)]
    pub(super) fn raise<const N: usize>(
        &mut self,
        class: usize,
        amounts: [(usize, i64); N],
    ) -> bool {
        for (kind, amount) in amounts {
            self.risen[class][kind] += amount;
        }
        self.add(class, amounts)
    }

    /// Takes some new figures of a class. Says whether they are no more than was allowed.
    #[inline]
    fn set<const N: usize>(&mut self, class: usize, figures: [(usize, i64); N]) -> bool {
        figures.into_iter().fold(true, |within, (kind, value)| {
            let more = value - self.now(class, kind);
            self.risen[class][kind] += more.max(0);
            within & self.add(class, [(kind, more)])
        })
    }

    /// Takes what is left over in a heap, pieces and bytes, and the bytes there that stream caches have on lease. Says
    /// whether that is no more than was allowed.
    #[inline]
    fn set_left_over(&mut self, class: usize, (pieces, free): (i64, i64), leased: i64) -> bool {
        self.risen[class][SPLIT_BYTES] += (free - self.free[class]).max(0);
        self.free[class] = free;
        let more = free + leased - self.now(class, SPLIT_BYTES);
        self.set(class, [(SPLIT, pieces)]) & self.add(class, [(SPLIT_BYTES, more)])
    }

    /// Whether so much more is still within what was allowed.
    #[inline]
    pub(super) fn can_add<const N: usize>(&self, class: usize, amounts: [(usize, i64); N]) -> bool {
        let fits = |level: usize| amounts.iter().all(|&(kind, it)| it <= self.left[level][kind]);
        fits(class) && fits(ALL)
    }
}

/// A block that a stream cache has cached.
#[inline]
pub(super) fn cached(bytes: u64) -> [(usize, i64); 2] {
    [(SPLIT, 1), (SPLIT_BYTES, bytes as i64)]
}

/// A live block, its bytes, and its bytes as asked for.
#[inline]
pub(super) fn live(bytes: u64, requested: u64) -> [(usize, i64); 3] {
    [(ALLOCATIONS, 1), (ALLOCATED, bytes as i64), (REQUESTED, requested as i64)]
}

/// The counters of one place, by the rows of the pools.
///
/// Of a counter that is not listed as changed the allowance is what it counts. So what is counted first after
/// that exceeds its allowance if it is a rise, and [`Counters::allow`] lists it: only what may fall first
/// needs [`Counters::change`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    rows: Vec<(Counter, bool)>,
    /// Those that may have changed since they were settled; each is marked too.
    changed: Vec<u32>,
}

impl Counters {
    /// Makes a row, if there is none.
    #[inline]
    pub(super) fn reach(&mut self, row: usize) {
        reach(&mut self.rows, row);
    }

    /// A counter that is there, in which nothing falls before something has risen.
    #[inline]
    pub(super) fn rise(&mut self, row: usize) -> &mut Counter {
        &mut self.rows[row].0
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> &Counter {
        &self.rows[row].0
    }

    /// A counter that is there and about to change.
    #[inline]
    pub(super) fn change(&mut self, row: usize) -> &mut Counter {
        let (counter, changed) = &mut self.rows[row];
        if !*changed {
            *changed = true;
            self.changed.push(row as u32);
        }
        counter
    }

    /// Asks for what a counter is missing of its allowance, and for more where there is any, so that it seldom
    /// has to. False where there may be a new peak.
    pub(super) fn allow(&mut self, row: usize, peaks: &mut Peaks) -> bool {
        if peaks.allow(row, self.change(row)) {
            return true;
        }
        // One pool's counter may be allowed too much where another's lacks something.
        let Self { rows, changed } = self;
        changed.retain(|&row| {
            let (counter, changed) = &mut rows[row as usize];
            peaks.settle(row as usize, counter, |left| left.max(0));
            *changed = counter.left.iter().flatten().any(|&left| left < 0);
            *changed
        });
        peaks.allow(row, &mut rows[row].0)
    }

    /// Settles what has changed. With all places settled, [`Counters::raise`] notes the peaks.
    fn settle(&mut self, peaks: &mut Peaks) {
        for &row in &self.changed {
            peaks.settle(row as usize, &mut self.rows[row as usize].0, |left| left);
        }
    }

    /// Notes new peaks of the pools that have changed, after all counters of all places were settled.
    fn raise(&mut self, peaks: &mut Peaks) {
        for row in self.changed.drain(..) {
            self.rows[row as usize].1 = false;
            raise(peaks.pool(row as usize));
        }
    }

    /// Counts a pool out that is gone: its row will be another's. What rose in it stays in the sums over all pools.
    pub(super) fn forget_pool(&mut self, row: usize, peaks: &mut Peaks) {
        let Some((counter, _)) = self.rows.get_mut(row) else { return };
        counter.left = counter.allowed;
        peaks.settle(row, counter, |left| left);
        // It stays listed where it is.
        *counter = Counter::default();
    }
}

/// Sums over some of the memory.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Of all allowances: what is counted, once all counters are settled.
    allowed: Amounts,
    peak: Amounts,
    /// By how much each figure had risen when the counters were settled, since sums over time were reset.
    risen: Amounts,
    /// What there was when sums over time were reset.
    reset_current: Amounts,
}

/// Grants and peaks.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    pools: Vec<Levels<Level>>,
    engine: Levels<Level>,
}

/// Notes new peaks of a pool, or of all pools. All counters are settled.
fn raise(levels: &mut Levels<Level>) {
    for level in levels {
        for (peak, current) in level.peak.iter_mut().zip(figures(&level.allowed)) {
            *peak = current.max(*peak);
        }
    }
}

impl Peaks {
    fn pool(&mut self, row: usize) -> &mut Levels<Level> {
        reach(&mut self.pools, row)
    }

    /// The sums that a counter of a pool is a part of.
    fn of(&mut self, row: usize) -> [&mut Levels<Level>; 2] {
        [reach(&mut self.pools, row), &mut self.engine]
    }

    /// Lets a row be another pool's.
    pub(super) fn forget_pool(&mut self, row: usize) {
        if let Some(levels) = self.pools.get_mut(row) {
            *levels = Default::default();
        }
    }

    /// Grants a counter what it is missing, figure by figure, if there can be no new peak by that; a
    /// figure that is missing something gets half of what else is left for all too, so that it need
    /// not ask again soon. False where there may be a new peak.
    fn allow(&mut self, row: usize, counter: &mut Counter) -> bool {
        let mut sums = self.of(row);
        let mut fits = true;
        for level in 0..=ALL {
            let of_level = counter.left[level].iter_mut().zip(&mut counter.allowed[level]);
            for (kind, (own, allowed)) in of_level.enumerate().filter(|(_, (own, _))| **own < 0) {
                let missing = -*own;
                let left = sums.iter().map(|sums| sums[level].left(kind)).fold(i64::MAX, i64::min);
                if left < missing {
                    fits = false;
                    continue;
                }
                let more = missing + (left - missing) / 2;
                sums.iter_mut().for_each(|sums| sums[level].allowed[kind] += more);
                *own += more;
                *allowed += more;
            }
        }
        fits
    }

    /// Takes `part` of what is left of a counter's allowance back, figure by figure, and takes in by how much its figures
    /// have risen.
    fn settle(&mut self, row: usize, counter: &mut Counter, part: impl Fn(i64) -> i64) {
        let Counter { allowed, left, risen, .. } = counter;
        let all = std::array::from_fn(|kind| risen[0][kind] + risen[1][kind]);
        let mut sums = self.of(row);
        for (level, more) in [risen[0], risen[1], all].into_iter().enumerate() {
            let back = left[level].map(&part);
            // Mostly the blocks are all small, or all large.
            if [back, more] == [Amounts::default(); 2] {
                continue;
            }
            for sum in sums.iter_mut().map(|sums| &mut sums[level]) {
                take(&mut sum.allowed, &back);
                sum.risen.iter_mut().zip(more).for_each(|(risen, more)| *risen += more);
            }
            take(&mut allowed[level], &back);
            take(&mut left[level], &back);
        }
        *risen = Default::default();
    }

    /// Makes the present figures the highest, with all counters settled.
    pub(super) fn reset_peaks(&mut self) {
        self.levels().for_each(|level| level.peak = figures(&level.allowed));
    }

    /// Makes sums over time begin now, with all counters settled.
    pub(super) fn reset_accumulated(&mut self) {
        self.levels().for_each(|level| {
            (level.risen, level.reset_current) = (Amounts::default(), figures(&level.allowed));
        });
    }

    fn levels(&mut self) -> impl Iterator<Item = &mut Level> {
        self.pools.iter_mut().flatten().chain(&mut self.engine)
    }

    /// The figures of small, large and all blocks of a pool, or of all pools. All counters are settled.
    fn figures(&mut self, row: Option<usize>) -> [Figures; 3] {
        row.map_or(self.engine, |row| *self.pool(row)).map(|level| level.figures())
    }
}

impl Level {
    /// How much more of a figure may be allowed without a new peak.
    fn left(&self, kind: usize) -> i64 {
        let left = |kind: usize| self.peak[kind] - figure(&self.allowed, kind);
        match kind {
            ALLOCATIONS => left(ALLOCATIONS).min(left(WAITING)),
            ALLOCATED => left(ALLOCATED).min(left(WAITING_BYTES)),
            _ => left(kind),
        }
    }

    fn figures(&self) -> Figures {
        let (current, risen) = (figures(&self.allowed), figures(&self.risen));
        Figures::of(|kind| {
            let [current, peak, allocated, base] =
                [current, self.peak, risen, self.reset_current].map(|it| it[kind] as u64);
            Figure { current, peak, allocated, freed: (allocated + base) - current }
        })
    }
}

#[cfg(debug_assertions)]
impl Counter {
    /// Live blocks, their bytes, and their bytes as asked for, of a class; and what is left over, in pieces and bytes.
    pub(super) fn live_and_left_over(&self, class: usize) -> [i64; 5] {
        let kinds = [ALLOCATIONS, ALLOCATED, REQUESTED, SPLIT, SPLIT_BYTES];
        kinds.map(|kind| self.now(class, kind))
    }

    fn amounts(&self, level: usize) -> Amounts {
        std::array::from_fn(|kind| self.now(level, kind))
    }
}

#[cfg(debug_assertions)]
impl Counters {
    pub(super) fn amounts(&self, row: usize, class: usize) -> Amounts {
        self.rows.get(row).map(|(counter, _)| counter.amounts(class)).unwrap_or_default()
    }

    /// Of a counter that is not listed as changed the allowance is what it counts, and of all blocks it counts what it
    /// counts of small and of large ones. Adds all allowances to `sums`.
    pub(super) fn verify(&self, sums: &mut Vec<Levels<Amounts>>) -> Verdict {
        let listed = times(self.changed.iter().map(|&row| row as usize), self.rows.len())?;
        for (row, ((counter, changed), listed)) in self.rows.iter().zip(listed).enumerate() {
            let Counter { allowed, left, .. } = counter;
            holds!(listed == usize::from(*changed), "counter {row} is listed {listed} times");
            let settled = *changed || left.iter().flatten().all(|&left| left == 0);
            holds!(settled, "counter {row} may count {allowed:?}, of which is left {left:?}");
            let [small, large, all] = [0, 1, ALL].map(|level| counter.amounts(level));
            holds!(all == plus(small, large), "counter {row} counts {small:?}, {large:?}, {all:?}");
            for (sum, &allowed) in reach(sums, row).iter_mut().zip(allowed) {
                *sum = plus(*sum, allowed);
            }
        }
        Ok(())
    }
}

#[cfg(debug_assertions)]
fn plus(one: Amounts, other: Amounts) -> Amounts {
    std::array::from_fn(|kind| one[kind] + other[kind])
}

#[cfg(debug_assertions)]
impl Peaks {
    /// The sums that pools and the engine are allowed are those of the counters, by class, and not above the peaks.
    pub(super) fn verify(&self, sums: &[Levels<Amounts>]) -> Verdict {
        let mut engine = Levels::default();
        for row in 0..self.pools.len().max(sums.len()) {
            let of_pool = sums.get(row).copied().unwrap_or_default();
            for (sum, of_pool) in engine.iter_mut().zip(of_pool) {
                *sum = plus(*sum, of_pool);
            }
            let levels = self.pools.get(row).copied().unwrap_or_default();
            check_levels(&levels, of_pool).map_err(|what| format!("row {row} of pools: {what}"))?;
        }
        check_levels(&self.engine, engine).map_err(|what| format!("all pools: {what}"))
    }
}

#[cfg(debug_assertions)]
fn check_levels(levels: &Levels<Level>, sums: Levels<Amounts>) -> Verdict {
    for (level, sum) in levels.iter().zip(sums) {
        let Level { allowed, peak, .. } = level;
        holds!(*allowed == sum, "counters may count {sum:?}, and the sum is {allowed:?}");
        let within = figures(allowed).iter().zip(peak).all(|(allowed, peak)| allowed <= peak);
        holds!(within, "counters may count {allowed:?}, and the peak is {peak:?}");
    }
    Ok(())
}

/// What is counted behind the engine's lock.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// What is counted here and not by a stream cache.
    counters: Counters,
    /// Whether a stream cache's figures may have exceeded their allowance.
    may_have_peaked: bool,
    counts: Counts,
    /// In blocks that were given up for lost, as asked for.
    lost_bytes: u64,
}

impl Accounts {
    /// Asks for what one of the stream caches is missing of its allowance for a pool, if it is not within it.
    #[inline]
    pub(super) fn keep_within(
        &mut self,
        caches: &StreamCaches,
        cache: &mut StreamCache,
        (row, within): (usize, bool),
    ) {
        if !within {
            self.may_have_peaked |= !cache.counters().allow(row, &mut caches.peaks());
        }
    }

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
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// What is left over in a heap, in pieces and bytes.
#[inline]
fn left_over(heap: &Heap) -> (i64, i64) {
    let (pieces, bytes) = heap.free_pieces();
    (pieces as i64, bytes as i64)
}

impl<D: Driver> Locked<'_, D> {
    /// Counts a block into the heap in which it lies, and what is left over there.
    #[inline(always)]
    pub(super) fn count_in(&mut self, heap: u32, bytes: u64, requested: u64) {
        let (row, class) = self.counter(heap);
        let State { pools, blocks, accounts, .. } = &mut *self.state;
        let mut within = accounts.counters.rise(row).raise(class, live(bytes, requested));
        match pools.find_heap(heap) {
            Some(it) => {
                let leased = blocks.leased_bytes(row, class);
                let counter = accounts.counters.rise(row);
                within &= counter.set_left_over(class, left_over(it), leased);
            }
            None => pools.change(heap),
        }
        self.keep_within(row, within);
    }

    /// Counts a block out that its host has freed. Unless its place is free at once, [`Locked::count_waiting`] follows.
    #[inline(always)]
    pub(super) fn count_out(&mut self, heap: u32, bytes: u64, requested: u64) {
        let (row, class) = self.counter(heap);
        self.state.accounts.counters.change(row).take_from(class, live(bytes, requested));
    }

    /// Counts a block that was live a moment ago as waiting, by which nothing rises that was active before.
    pub(super) fn count_waiting(&mut self, heap: u32, bytes: u64) {
        let (row, class) = self.counter(heap);
        let counter = self.state.accounts.counters.change(row);
        let within = counter.add(class, [(WAITING, 1), (WAITING_BYTES, bytes as i64)]);
        self.keep_within(row, within);
    }

    /// Counts what is left over in a heap, where nothing else has changed that is counted here.
    #[inline(always)]
    pub(super) fn count_left_over(&mut self, heap: u32) {
        let (row, class) = self.counter(heap);
        let State { pools, blocks, accounts, .. } = &mut *self.state;
        let Some(it) = pools.find_heap(heap) else { return pools.change(heap) };
        let leased = blocks.leased_bytes(row, class);
        let counter = accounts.counters.change(row);
        let within = counter.set_left_over(class, left_over(it), leased);
        self.keep_within(row, within);
    }

    /// Counts what has changed. Every call that changes anything ends with this.
    #[inline]
    pub(super) fn account(&mut self) {
        while let Some(heap) = self.state.pools.take_changed() {
            self.account_heap(heap);
        }
        if self.state.accounts.may_have_peaked {
            self.note_peaks();
        }
    }

    /// Counts what has changed in a heap.
    pub(super) fn account_heap(&mut self, heap: u32) {
        self.count_changes(heap);
        if self.state.pools.find_pool(heap).is_some() {
            self.count(heap);
        }
    }

    /// Notes new peaks, if a stream cache or heap may have one.
    pub(super) fn note_peaks(&mut self) {
        if std::mem::take(&mut self.state.accounts.may_have_peaked) {
            self.with_sums(|_| {});
        }
    }

    /// Counts what a heap holds that no stream cache counts; large blocks may lie in two heaps.
    #[inline]
    fn count(&mut self, heap: u32) {
        let pools = &self.state.pools;
        let row = pools.find_pool(heap).expect("a pool lives as long as its heaps");
        let is_small = Pools::is_small(heap);
        let first = pools.heap(row.heaps()[usize::from(!is_small)]);
        let planned = row.planned_heap().filter(|_| !is_small).map(PlannedHeap::holding);
        // Addresses of planned blocks are not memory, so nothing of it can be said to be left over.
        let left_over = left_over(first);
        let held = |it: &Holding| {
            let (waits, waiting) = it.waiting();
            [
                (SEGMENTS, it.pieces() as i64),
                (RESERVED, it.reserved() as i64),
                (SUSPENDED, it.suspended() as i64),
                (WAITING, waits as i64),
                (WAITING_BYTES, waiting as i64),
            ]
        };
        let mut sums = held(first.holding());
        if let Some(planned) = planned {
            sums.iter_mut().zip(held(planned)).for_each(|(sum, more)| sum.1 += more.1);
        }
        let (row, class) = self.counter(heap);
        let leased = self.state.blocks.leased_bytes(row, class);
        let counter = self.state.accounts.counters.change(row);
        // Live blocks are counted as they come and go.
        let within = counter.set_left_over(class, left_over, leased) & counter.set(class, sums);
        self.keep_within(row, within);
    }

    /// The row of the counter of a heap's blocks, which is there, and their class.
    #[inline]
    fn counter(&mut self, heap: u32) -> (usize, usize) {
        let row = Pools::row(heap);
        self.state.accounts.counters.reach(row);
        (row, class(Pools::is_small(heap)))
    }

    /// Asks for what the engine's counter is missing of its allowance, if it is not within it.
    #[inline]
    fn keep_within(&mut self, row: usize, within: bool) {
        let Accounts { counters, may_have_peaked, .. } = &mut self.state.accounts;
        match within {
            true => {}
            // All that have changed are going to be settled.
            false if *may_have_peaked => _ = counters.change(row),
            false => *may_have_peaked = !counters.allow(row, &mut self.caches.peaks()),
        }
    }

    /// Counts a pool that is gone out everywhere: its row will be another's. What rose in it stays in the sums.
    pub(super) fn forget_figures(&mut self, pool: PoolId) {
        for mut cache in self.caches.used() {
            cache.forget_pool(pool, || self.caches.peaks());
        }
        let mut peaks = self.caches.peaks();
        self.state.accounts.counters.forget_pool(pool.row(), &mut peaks);
        peaks.forget_pool(pool.row());
    }

    /// The figures of a pool, or of all.
    pub(super) fn statistics(&mut self, pool: Option<PoolId>) -> Statistics {
        let pool = pool.map(PoolId::row);
        let Accounts { counts, lost_bytes, .. } = self.state.accounts;
        let [small_pool, large_pool, all] = self.with_sums(|peaks| peaks.figures(pool));
        Statistics { all, small_pool, large_pool, counts, lost_bytes }
    }

    /// Makes sums over time, and counts, begin now.
    pub(super) fn reset_accumulated(&mut self) {
        self.with_sums(Peaks::reset_accumulated);
        self.state.accounts.counts = Counts::default();
    }

    /// Does what needs the sums, with all counters settled and all locks held.
    pub(super) fn with_sums<R>(&mut self, then: impl FnOnce(&mut Peaks) -> R) -> R {
        let counters = &mut self.state.accounts.counters;
        let mut guards: SmallVec<[_; 4]> = self.caches.used().collect();
        let mut peaks = self.caches.peaks();
        counters.settle(&mut peaks);
        guards.iter_mut().for_each(|cache| cache.counters().settle(&mut peaks));
        // What one place has less of now another may have more of: peaks show only in the sum of all.
        counters.raise(&mut peaks);
        guards.iter_mut().for_each(|cache| cache.counters().raise(&mut peaks));
        raise(&mut peaks.engine);
        then(&mut peaks)
    }
}

/// One figure over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// Now.
    pub current: u64,
    /// The highest value since [`Engine::reset_peaks`](super::Engine::reset_peaks).
    pub peak: u64,
    /// The sum of all increases since [`Engine::reset_accumulated`](super::Engine::reset_accumulated).
    pub allocated: u64,
    /// The sum of all decreases since [`Engine::reset_accumulated`](super::Engine::reset_accumulated).
    pub freed: u64,
}

/// A table: a line for each figure, now, at its peak, and what came and went.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:22}{:>14}{:>14}{:>14}{:>14}", "", "now", "peak", "allocated", "freed")?;
        for (name, figure) in self.named() {
            write!(f, "\n{name:22}")?;
            let is_bytes = name.ends_with("bytes");
            for part in [figure.current, figure.peak, figure.allocated, figure.freed] {
                let told = if is_bytes { Size(part).to_string() } else { part.to_string() };
                write!(f, "{told:>14}")?;
            }
        }
        Ok(())
    }
}

/// The figures of all blocks as a table, and a line of counts.
impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, counts, .. } = self;
        writeln!(f, "{all}")?;
        write!(
            f,
            "driver calls: {} allocations, {} frees; waits for streams: {}; requests tried again: {}, out of \
             memory: {}; captures verified: {}, not judged: {}, refused: {}",
            counts.num_device_alloc,
            counts.num_device_free,
            counts.num_sync_all_streams,
            counts.num_alloc_retries,
            counts.num_ooms,
            counts.num_captures_verified,
            counts.num_captures_unjudged,
            counts.num_captures_refused
        )
    }
}

/// The figures of an engine or of a pool.
///
/// Without memory that captures map ahead or get at their end, and fixed blocks of captures, `reserved_bytes +
/// suspended_bytes = active_bytes + inactive_split_bytes`, to the byte. `active_bytes` is `allocated_bytes` plus freed
/// blocks that no stream may take yet. `suspended_bytes` is zero without suspended pools
/// ([`HostCalls::suspend_discarding_outputs`](crate::engine::HostCalls::suspend_discarding_outputs)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// All blocks.
    pub all: Figures,
    /// The heaps of small blocks.
    pub small_pool: Figures,
    /// The heaps of large blocks.
    pub large_pool: Figures,
    /// Counts of what happened on the whole device; the same for every pool.
    pub counts: Counts,
    /// The sizes that were asked for of blocks that are never freed, since uses of them may not be known
    /// ([`Memory::leak`](crate::Memory::leak), lost buffers of `regraph::cudarc`), in bytes. Every pool shows the
    /// engine's figure, and no reset changes it.
    pub lost_bytes: u64,
}

/// Counts of what an engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that were tried again after memory had been given back.
    pub num_alloc_retries: u64,
    /// Requests that failed for want of memory.
    pub num_ooms: u64,
    /// How often the host waited for the work of a stream.
    pub num_sync_all_streams: u64,
    /// Pieces of memory got from the driver.
    pub num_device_alloc: u64,
    /// Pieces given back.
    pub num_device_free: u64,
    /// Captures that the checker has accepted.
    pub num_captures_verified: u64,
    /// Captures that have ended and that the checker did not judge.
    pub num_captures_unjudged: u64,
    /// Captures that were refused at their end.
    pub num_captures_refused: u64,
    /// Refused captures that the host was asked to make again ([`Error::CaptureAgain`](super::Error::CaptureAgain)).
    pub num_captures_again: u64,
    /// How long the checker has judged, in nanoseconds.
    pub check_ns: u64,
}
