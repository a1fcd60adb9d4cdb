//! Figures that are exact, peaks included, though no single place sees all memory: `design/allocator.md` ("Figures").
//!
//! The sum of all allowances never exceeds the peak seen so far, so as long as every counter stays within its allowance
//! there can be no new peak. A counter is *settled* when its allowance becomes what it counts, and the sums are changed
//! by the difference; so once all counters are settled the sums of the allowances are the figures.
//!
//! [`Accounts`] know what has changed since it was counted last, and the sums for reports; [`Figures`] are what
//! reports say, with the meanings that PyTorch gives them.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use smallvec::SmallVec;

use super::names::PoolId;
use super::pools::Pools;
use super::State;
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, times, Verdict};
use crate::size::Size;

/// The figures that are counted.
pub(super) const ALLOCATIONS: usize = 0;
pub(super) const ALLOCATED: usize = 1;
pub(super) const REQUESTED: usize = 2;
pub(super) const ACTIVE: usize = 3;
pub(super) const ACTIVE_BYTES: usize = 4;
pub(super) const SPLIT: usize = 5;
pub(super) const SPLIT_BYTES: usize = 6;
pub(super) const SEGMENTS: usize = 7;
pub(super) const RESERVED: usize = 8;
pub(super) const SUSPENDED: usize = 9;
const KINDS: usize = 10;

/// One of each figure.
pub(super) type Amounts = [u64; KINDS];

/// What one place counts of one pool's small or large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter {
    current: Amounts,
    allowed: Amounts,
    /// By how much each figure has risen since the counter was settled.
    risen: Amounts,
}

impl Counter {
    /// Takes some new figures. Says whether they are no more than was allowed.
    #[inline]
    pub(super) fn set<const N: usize>(&mut self, figures: [(usize, u64); N]) -> bool {
        let mut within = true;
        for (kind, value) in figures {
            self.risen[kind] += value.saturating_sub(self.current[kind]);
            self.current[kind] = value;
            within &= value <= self.allowed[kind];
        }
        within
    }

    /// Adds to some figures. Says whether they are no more than was allowed.
    #[inline]
    pub(super) fn add<const N: usize>(&mut self, amounts: [(usize, u64); N]) -> bool {
        let mut within = true;
        for (kind, amount) in amounts {
            self.risen[kind] += amount;
            self.current[kind] += amount;
            within &= self.current[kind] <= self.allowed[kind];
        }
        within
    }

    /// Takes from some figures.
    #[inline]
    pub(super) fn take<const N: usize>(&mut self, amounts: [(usize, u64); N]) {
        for (kind, amount) in amounts {
            self.current[kind] -= amount;
        }
    }
}

/// A counter of one pool's small or large blocks.
pub(super) trait Counting: Default {
    /// Whether it counts no more than it is allowed.
    fn is_within(&self) -> bool;

    /// Lets the peak statistics see, and change, what is counted and allowed.
    fn with_counter<R>(&mut self, change: impl FnOnce(&mut Counter) -> R) -> R;

    /// Sets the allowance of the counter to what it counts.
    fn settle(&mut self, peaks: &mut Peaks, row: usize);

    /// What is counted, as far as it is counted by kinds, and what is allowed.
    #[cfg(debug_assertions)]
    fn amounts(&self) -> (Amounts, Amounts);
}

impl Counting for Counter {
    fn is_within(&self) -> bool {
        self.current.iter().zip(&self.allowed).all(|(current, allowed)| current <= allowed)
    }

    fn with_counter<R>(&mut self, change: impl FnOnce(&mut Counter) -> R) -> R {
        change(self)
    }

    fn settle(&mut self, peaks: &mut Peaks, row: usize) {
        peaks.settle(row, self);
    }

    #[cfg(debug_assertions)]
    fn amounts(&self) -> (Amounts, Amounts) {
        (self.current, self.allowed)
    }
}

/// The counters of one place, by pool and class.
///
/// Of a counter that is not listed as changed the allowance is what it counts. So what is counted first after
/// that exceeds its allowance if it is a rise, and [`Counters::allow`] lists it: only what may fall first
/// needs [`Counters::change`].
#[derive(Debug)]
pub(super) struct Counters<C> {
    rows: Vec<(C, bool)>,
    /// Those that may have changed since they were settled; each is marked too.
    changed: Vec<u32>,
}

impl<C> Default for Counters<C> {
    fn default() -> Self {
        Self { rows: Vec::new(), changed: Vec::new() }
    }
}

/// The row of a pool's small or large blocks.
#[inline]
pub(super) fn row(pool: PoolId, small: bool) -> usize {
    2 * pool.row() + usize::from(!small)
}

impl<C: Counting> Counters<C> {
    /// Makes a row, if there is none.
    #[inline]
    pub(super) fn reach(&mut self, row: usize) {
        if self.rows.len() <= row {
            self.rows.resize_with((row | 1) + 1, Default::default);
        }
    }

    /// A counter that is there, in which nothing falls before something has risen.
    #[inline]
    pub(super) fn rise(&mut self, row: usize) -> &mut C {
        &mut self.rows[row].0
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> &C {
        &self.rows[row].0
    }

    /// A counter that is there and about to change.
    #[inline]
    pub(super) fn change(&mut self, row: usize) -> &mut C {
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
        let ask = |counter: &mut C, peaks: &mut Peaks| {
            counter.is_within() || counter.with_counter(|counter| peaks.allow_ahead(row, counter))
        };
        if ask(self.change(row), peaks) {
            return true;
        }
        /// To settle a counter costs more than to take back what it has left over.
        const FEW: usize = 8;
        // One class may be allowed too much where the other lacks something: after blocks of one size come
        // blocks of another, for instance. What is settled here is not met again before it changes.
        let Self { rows, changed } = self;
        let few = changed.len() <= FEW;
        changed.retain(|&row| {
            let row = row as usize;
            let (counter, changed) = &mut rows[row];
            *changed = few || !counter.is_within();
            match *changed {
                true => counter.with_counter(|counter| peaks.take_surplus(row, counter)),
                false => counter.settle(peaks, row),
            }
            *changed
        });
        ask(&mut rows[row].0, peaks)
    }

    /// Settles what has changed. With all places settled, [`Counters::raise`] notes the peaks.
    pub(super) fn settle(&mut self, peaks: &mut Peaks) {
        for &row in &self.changed {
            self.rows[row as usize].0.settle(peaks, row as usize);
        }
    }

    /// Notes new peaks of the pools that have changed, after all counters of all places were settled.
    pub(super) fn raise(&mut self, peaks: &mut Peaks) {
        for row in self.changed.drain(..) {
            self.rows[row as usize].1 = false;
            raise(peaks.pool(row as usize / 2));
        }
    }

    /// Counts a pool out that is gone: its rows will be another's. What rose in it stays in the sums over all pools.
    pub(super) fn forget_pool(&mut self, pool: PoolId, peaks: &mut Peaks) {
        for row in [row(pool, true), row(pool, false)] {
            let Some((counter, _)) = self.rows.get_mut(row) else { continue };
            counter.with_counter(|counter| {
                counter.current = Amounts::default();
                peaks.settle(row, counter);
            });
            // It stays listed where it is.
            *counter = C::default();
        }
    }
}

/// Sums over some of the memory.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Of all allowances: the figures, once all counters are settled.
    allowed: Amounts,
    peak: Amounts,
    /// By how much each figure had risen when the counters were settled, since sums over time were reset.
    risen: Amounts,
    /// What there was when sums over time were reset.
    reset_current: Amounts,
}

/// Small blocks, large blocks, all blocks.
type Levels = [Level; 3];

/// The index of the level of all blocks, behind those of small and of large ones.
const ALL: usize = 2;

/// Grants and peaks.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    pools: Vec<Levels>,
    engine: Levels,
}

/// Notes new peaks of a pool, or of all pools. All counters are settled.
fn raise(levels: &mut Levels) {
    for level in levels {
        for (peak, &current) in level.peak.iter_mut().zip(&level.allowed) {
            *peak = current.max(*peak);
        }
    }
}

impl Peaks {
    fn pool(&mut self, row: usize) -> &mut Levels {
        if self.pools.len() <= row {
            self.pools.resize_with(row + 1, Default::default);
        }
        &mut self.pools[row]
    }

    /// What a counter's row is a part of, the pool's sums and those over all, and which of its levels.
    fn of(&mut self, row: usize) -> ([&mut Levels; 2], usize) {
        self.pool(row / 2);
        ([&mut self.pools[row / 2], &mut self.engine], row % 2)
    }

    /// Lets a row be another pool's.
    pub(super) fn forget_pool(&mut self, row: usize) {
        if let Some(levels) = self.pools.get_mut(row) {
            *levels = Levels::default();
        }
    }

    /// Grants a counter what it is missing, figure by figure, if there can be no new peak by that; a
    /// figure that is missing something gets half of what else is left for all too, so that it need
    /// not ask again soon. False where there may be a new peak; the allowance then stays as it is.
    fn allow_ahead(&mut self, row: usize, counter: &mut Counter) -> bool {
        let (mut levels, class) = self.of(row);
        let mut fits = true;
        for kind in 0..KINDS {
            let Counter { current, allowed, .. } = counter;
            if current[kind] <= allowed[kind] {
                continue;
            }
            let missing = current[kind] - allowed[kind];
            let mut left = u64::MAX;
            for levels in &levels {
                for level in [&levels[class], &levels[ALL]] {
                    left = left.min(level.peak[kind].saturating_sub(level.allowed[kind]));
                }
            }
            if left < missing {
                fits = false;
                continue;
            }
            let more = missing + (left - missing) / 2;
            for levels in &mut levels {
                levels[class].allowed[kind] += more;
                levels[ALL].allowed[kind] += more;
            }
            allowed[kind] += more;
        }
        fits
    }

    /// Takes back what a counter is allowed beyond what it counts.
    fn take_surplus(&mut self, row: usize, counter: &mut Counter) {
        let (levels, class) = self.of(row);
        for levels in levels {
            for kind in 0..KINDS {
                let surplus = counter.allowed[kind].saturating_sub(counter.current[kind]);
                levels[class].allowed[kind] -= surplus;
                levels[ALL].allowed[kind] -= surplus;
            }
        }
        for (allowed, &current) in counter.allowed.iter_mut().zip(&counter.current) {
            *allowed = current.min(*allowed);
        }
    }

    /// Makes the allowance of a counter what it counts, and takes in by how much its figures have risen.
    fn settle(&mut self, row: usize, counter: &mut Counter) {
        let (levels, class) = self.of(row);
        for levels in levels {
            for part in [class, ALL] {
                let level = &mut levels[part];
                for kind in 0..KINDS {
                    // The counter's allowance is a part of the sum.
                    level.allowed[kind] -= counter.allowed[kind];
                    level.allowed[kind] += counter.current[kind];
                    level.risen[kind] += counter.risen[kind];
                }
            }
        }
        counter.allowed = counter.current;
        counter.risen = Amounts::default();
    }

    /// Makes the present figures the highest, with all counters settled.
    pub(super) fn reset_peaks(&mut self) {
        self.levels().for_each(|level| level.peak = level.allowed);
    }

    /// Makes sums over time begin now, with all counters settled.
    pub(super) fn reset_accumulated(&mut self) {
        self.levels().for_each(|level| {
            (level.risen, level.reset_current) = (Amounts::default(), level.allowed);
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
    fn figures(&self) -> Figures {
        let figure = |kind: usize| {
            let (current, allocated) = (self.allowed[kind], self.risen[kind]);
            let freed = (allocated + self.reset_current[kind]) - current;
            Figure { current, peak: self.peak[kind], allocated, freed }
        };
        Figures {
            allocation: figure(ALLOCATIONS),
            allocated_bytes: figure(ALLOCATED),
            requested_bytes: figure(REQUESTED),
            active: figure(ACTIVE),
            active_bytes: figure(ACTIVE_BYTES),
            inactive_split: figure(SPLIT),
            inactive_split_bytes: figure(SPLIT_BYTES),
            segment: figure(SEGMENTS),
            reserved_bytes: figure(RESERVED),
            suspended_bytes: figure(SUSPENDED),
        }
    }
}

/// How many blocks, their bytes, and their bytes as asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: u64,
    bytes: u64,
    requested: u64,
}

impl Tally {
    #[inline]
    fn add(&mut self, bytes: u64, requested: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.requested += requested;
    }

    #[inline]
    fn subtract(&mut self, bytes: u64, requested: u64) {
        self.count -= 1;
        self.bytes -= bytes;
        self.requested -= requested;
    }

    #[inline]
    fn is_within(&self, bound: &Self) -> bool {
        self.count <= bound.count && self.bytes <= bound.bytes && self.requested <= bound.requested
    }
}

/// What a stream cache counts of one pool's small or large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheCounter {
    live: Tally,
    /// Those that were live when the counter was settled.
    settled: Tally,
    /// All that were handed out since then.
    risen: Tally,
    /// What live ones may rise to, and fall to, without a new peak.
    ceiling: Tally,
    floor: Tally,
    /// Leased places, live or cached.
    leased: Tally,
    /// Live ones that were given up since the counter was settled: they were never cached.
    given_up: Tally,
    counter: Counter,
}

impl CacheCounter {
    /// A cached block is handed out. False where there may be a new peak.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64, requested: u64) -> bool {
        self.live.add(bytes, requested);
        self.risen.add(bytes, requested);
        self.live.is_within(&self.ceiling)
    }

    /// Whether such a block can be handed out without a new peak.
    #[inline]
    pub(super) fn can_take(&self, bytes: u64, requested: u64) -> bool {
        let mut live = self.live;
        live.add(bytes, requested);
        live.is_within(&self.ceiling)
    }

    /// Whether such a block can be cached without a new peak of what is.
    #[inline]
    pub(super) fn can_give(&self, bytes: u64) -> bool {
        let mut floor = self.floor;
        floor.add(bytes, 0);
        floor.is_within(&self.live)
    }

    /// A block is cached. False where there may be a new peak of what is.
    #[inline]
    pub(super) fn give(&mut self, bytes: u64, requested: u64) -> bool {
        self.live.subtract(bytes, requested);
        self.floor.is_within(&self.live)
    }

    fn set_floor(&mut self) {
        let Self { leased, counter: Counter { allowed, .. }, .. } = self;
        self.floor.count = leased.count.saturating_sub(allowed[SPLIT]);
        self.floor.bytes = leased.bytes.saturating_sub(allowed[SPLIT_BYTES]);
    }

    /// A place is leased and handed out.
    pub(super) fn enter(&mut self, bytes: u64, requested: u64) {
        self.leased.add(bytes, 0);
        self.set_floor();
        self.live.add(bytes, requested);
        self.risen.add(bytes, requested);
    }

    /// A live block is given up.
    pub(super) fn leave(&mut self, bytes: u64, requested: u64) {
        self.leased.subtract(bytes, 0);
        self.set_floor();
        self.live.subtract(bytes, requested);
        self.given_up.add(bytes, 0);
    }

    /// Cached blocks are given up.
    pub(super) fn drop_cached(&mut self, count: u64, bytes: u64) {
        self.leased.count -= count;
        self.leased.bytes -= count * bytes;
        self.set_floor();
    }
}

impl Counting for CacheCounter {
    fn is_within(&self) -> bool {
        self.floor.is_within(&self.live) && self.live.is_within(&self.ceiling)
    }

    fn settle(&mut self, peaks: &mut Peaks, row: usize) {
        self.with_counter(|counter| peaks.settle(row, counter));
        (self.settled, self.risen, self.given_up) = (self.live, Tally::default(), Tally::default());
    }

    #[cfg(debug_assertions)]
    fn amounts(&self) -> (Amounts, Amounts) {
        let Self { live, leased, .. } = self;
        let mut current = Amounts::default();
        current[ALLOCATIONS] = live.count;
        current[ALLOCATED] = live.bytes;
        current[REQUESTED] = live.requested;
        (current[ACTIVE], current[ACTIVE_BYTES]) = (live.count, live.bytes);
        current[SPLIT] = leased.count - live.count;
        current[SPLIT_BYTES] = leased.bytes - live.bytes;
        (current, self.counter.allowed)
    }

    /// Lets the peak statistics see, and change, what is counted and allowed.
    fn with_counter<R>(&mut self, change: impl FnOnce(&mut Counter) -> R) -> R {
        let Self { live, settled, risen, leased, given_up, counter, .. } = self;
        let split = |leased: u64, live: u64| leased - live;
        // What was live or was handed out, and is neither live nor given up, was cached.
        let cached = |all: u64, live: u64, given_up: u64| all - live - given_up;
        for (kind, current, all) in [
            (ALLOCATIONS, live.count, risen.count),
            (ALLOCATED, live.bytes, risen.bytes),
            (REQUESTED, live.requested, risen.requested),
            (ACTIVE, live.count, risen.count),
            (ACTIVE_BYTES, live.bytes, risen.bytes),
            (
                SPLIT,
                split(leased.count, live.count),
                cached(settled.count + risen.count, live.count, given_up.count),
            ),
            (
                SPLIT_BYTES,
                split(leased.bytes, live.bytes),
                cached(settled.bytes + risen.bytes, live.bytes, given_up.bytes),
            ),
        ] {
            counter.current[kind] = current;
            counter.risen[kind] = all;
        }
        let result = change(counter);
        let allowed = &self.counter.allowed;
        self.ceiling = Tally {
            count: allowed[ALLOCATIONS].min(allowed[ACTIVE]),
            bytes: allowed[ALLOCATED].min(allowed[ACTIVE_BYTES]),
            requested: allowed[REQUESTED],
        };
        self.set_floor();
        result
    }
}

#[cfg(debug_assertions)]
impl<C: Counting> Counters<C> {
    /// What a row counts.
    pub(super) fn amounts(&self, row: usize) -> Amounts {
        self.rows.get(row).map(|(counter, _)| counter.amounts().0).unwrap_or_default()
    }

    /// Of a counter that is not listed as changed the allowance is what it counts. Adds all allowances to `sums`.
    pub(super) fn verify(&self, sums: &mut Vec<Amounts>) -> Verdict {
        let listed = times(self.changed.iter().map(|&row| row as usize), self.rows.len())?;
        for (row, ((counter, changed), listed)) in self.rows.iter().zip(listed).enumerate() {
            let (current, allowed) = counter.amounts();
            holds!(listed == usize::from(*changed), "counter {row} is listed {listed} times");
            let settled = *changed || current == allowed;
            holds!(settled, "counter {row} may count {allowed:?} and counts {current:?}");
            if sums.len() <= row {
                sums.resize((row | 1) + 1, Amounts::default());
            }
            sums[row].iter_mut().zip(allowed).for_each(|(sum, allowed)| *sum += allowed);
        }
        Ok(())
    }
}

#[cfg(debug_assertions)]
impl Peaks {
    /// The sums that pools and the engine are allowed are those of the counters, by class, and not above the peaks.
    pub(super) fn verify(&self, sums: &[Amounts]) -> Verdict {
        let plus = |a: Amounts, b: Amounts| std::array::from_fn(|kind| a[kind] + b[kind]);
        let mut engine = [Amounts::default(); 2];
        let none = [Amounts::default(); 2];
        for row in 0..self.pools.len().max(sums.len() / 2) {
            let of_pool = sums.get(2 * row..2 * row + 2).unwrap_or(&none);
            engine = [plus(engine[0], of_pool[0]), plus(engine[1], of_pool[1])];
            let levels = self.pools.get(row).copied().unwrap_or_default();
            check_levels(&levels, [of_pool[0], of_pool[1]], plus)
                .map_err(|what| format!("row {row} of pools: {what}"))?;
        }
        check_levels(&self.engine, engine, plus).map_err(|what| format!("all pools: {what}"))
    }
}

#[cfg(debug_assertions)]
fn check_levels(
    levels: &Levels,
    [small, large]: [Amounts; 2],
    plus: impl Fn(Amounts, Amounts) -> Amounts,
) -> Verdict {
    for (level, sum) in levels.iter().zip([small, large, plus(small, large)]) {
        let Level { allowed, peak, .. } = level;
        holds!(*allowed == sum, "counters may count {sum:?}, and the sum is {allowed:?}");
        let within = allowed.iter().zip(peak).all(|(allowed, peak)| allowed <= peak);
        holds!(within, "counters may count {allowed:?}, and the peak is {peak:?}");
    }
    Ok(())
}

#[cfg(debug_assertions)]
impl CacheCounter {
    /// Live blocks, their bytes, and their bytes as asked for; leased places and their bytes.
    pub(super) fn figures(&self) -> [u64; 5] {
        let Self { live, leased, .. } = self;
        [live.count, live.bytes, live.requested, leased.count, leased.bytes]
    }
}

/// What is counted behind the engine's lock.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// What is counted here and not by a stream cache.
    counters: Counters<Counter>,
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
    /// What is counted here.
    pub(super) fn counters(&self) -> &Counters<Counter> {
        &self.counters
    }
}

impl State {
    /// Counts a block into the heap in which it lies, and what is left over there.
    #[inline(always)]
    pub(super) fn count_in(&mut self, heap: u32, bytes: u64, requested: u64) {
        let at = self.counter(heap);
        let live = [(ALLOCATIONS, 1), (ALLOCATED, bytes), (REQUESTED, requested)];
        let Some(row) = self.pools.find_heap(heap) else {
            self.accounts.counters.change(at).add(live);
            return self.pools.change(heap);
        };
        let (pieces, free) = row.free_pieces();
        let counter = self.accounts.counters.rise(at);
        let within = counter.add(live)
            & counter.add([(ACTIVE, 1), (ACTIVE_BYTES, bytes)])
            & counter.set([(SPLIT, pieces as u64), (SPLIT_BYTES, free)]);
        if !within {
            self.ask_for_allowance(at);
        }
    }

    /// Counts a block out that its host has freed. If its place is free at once, [`State::count_left_over`] follows,
    /// before anything else is counted; else its heap is counted at the end of the call.
    #[inline(always)]
    pub(super) fn count_out(&mut self, heap: u32, bytes: u64, requested: u64) {
        let amounts = [(ALLOCATIONS, 1), (ALLOCATED, bytes), (REQUESTED, requested)];
        let at = self.counter(heap);
        self.accounts.counters.change(at).take(amounts);
    }

    /// Counts what is left over in a heap, where nothing else has changed that is counted here but that a block of
    /// `ended` bytes is used no more: none if a stream cache counted it.
    #[inline(always)]
    pub(super) fn count_left_over(&mut self, heap: u32, ended: Option<u64>) {
        let Some(row) = self.pools.find_heap(heap) else { return self.pools.change(heap) };
        let (pieces, free) = row.free_pieces();
        let at = self.counter(heap);
        let counter = self.accounts.counters.change(at);
        if let Some(bytes) = ended {
            counter.take([(ACTIVE, 1), (ACTIVE_BYTES, bytes)]);
        }
        if !counter.set([(SPLIT, pieces as u64), (SPLIT_BYTES, free)]) {
            self.ask_for_allowance(at);
        }
    }

    /// Counts what has changed. Every call that changes anything ends with this.
    #[inline]
    pub(super) fn account(&mut self) {
        while let Some(heap) = self.pools.take_changed() {
            self.account_heap(heap);
        }
        if self.accounts.may_have_peaked {
            self.note_peaks();
        }
    }

    /// Counts what has changed in a heap.
    pub(super) fn account_heap(&mut self, heap: u32) {
        self.count_changes(heap);
        if self.pools.find_pool(heap).is_some() {
            self.count(heap);
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
    fn count(&mut self, heap: u32) {
        let row = self.pools.find_pool(heap).expect("a pool lives as long as its heaps");
        let (first, planned) = match Pools::is_small(heap) {
            true => (row.small(), None),
            false => (row.large(), row.planned_heap()),
        };
        let first = self.pools.heap(first);
        let mut waiting = first.holding().waiting();
        // Addresses of planned blocks are not memory, so nothing of it can be said to be left over.
        let (pieces, free) = first.free_pieces();
        let mut memory =
            [first.holding().pieces() as u64, first.reserved(), first.holding().suspended()];
        if let Some(planned) = planned {
            let more = planned.holding().waiting();
            waiting = (waiting.0 + more.0, waiting.1 + more.1);
            memory[0] += planned.holding().pieces() as u64;
            memory[1] += planned.reserved();
            memory[2] += planned.holding().suspended();
        }
        let at = self.counter(heap);
        let counter = self.accounts.counters.change(at);
        // Live blocks are counted as they come and go.
        counter.set([
            (SEGMENTS, memory[0]),
            (RESERVED, memory[1]),
            (SUSPENDED, memory[2]),
            (ACTIVE, counter.current[ALLOCATIONS] + waiting.0 as u64),
            (ACTIVE_BYTES, counter.current[ALLOCATED] + waiting.1),
            (SPLIT, pieces as u64),
            (SPLIT_BYTES, free),
        ]);
        if !counter.is_within() {
            self.ask_for_allowance(at);
        }
    }

    /// The row of the counter of a heap's blocks, which is there.
    #[inline]
    fn counter(&mut self, heap: u32) -> usize {
        let at = 2 * Pools::row(heap) + usize::from(!Pools::is_small(heap));
        self.accounts.counters.reach(at);
        at
    }

    /// Asks for what a counter is missing of its allowance.
    fn ask_for_allowance(&mut self, row: usize) {
        let Accounts { counters, may_have_peaked, .. } = &mut self.accounts;
        *may_have_peaked |= !counters.allow(row, &mut self.caches.peaks());
    }

    /// Counts a pool that is gone out everywhere: its row will be another's. What rose in it stays in the sums.
    pub(super) fn forget_figures(&mut self, pool: PoolId) {
        let caches = Arc::clone(&self.caches);
        for mut cache in caches.used() {
            cache.forget_pool(pool, || caches.peaks());
        }
        let mut peaks = caches.peaks();
        self.accounts.counters.forget_pool(pool, &mut peaks);
        peaks.forget_pool(pool.row());
    }

    /// Notes new peaks, with all locks held. Looks at what has changed since this was last done, and at nothing else.
    pub(super) fn sum_up(&mut self) {
        self.with_sums(|_| {});
    }

    /// The figures of a pool, or of all.
    pub(super) fn statistics(&mut self, pool: Option<PoolId>) -> Statistics {
        let pool = pool.map(PoolId::row);
        let mut counts = self.accounts.counts;
        counts.num_sync_all_streams = self.timelines.synchronized();
        let [small_pool, large_pool, all] = self.with_sums(|peaks| peaks.figures(pool));
        Statistics { all, small_pool, large_pool, counts, lost_bytes: self.accounts.lost_bytes }
    }

    /// Makes sums over time, and counts, begin now.
    pub(super) fn reset_accumulated(&mut self) {
        self.with_sums(Peaks::reset_accumulated);
        self.accounts.counts = Counts::default();
    }

    /// Does what needs the sums, with all counters settled and all locks held.
    pub(super) fn with_sums<R>(&mut self, then: impl FnOnce(&mut Peaks) -> R) -> R {
        let Self { caches, accounts: Accounts { counters, .. }, .. } = self;
        let mut guards: SmallVec<[_; 4]> = caches.used().collect();
        let mut peaks = caches.peaks();
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
    /// The highest it has been since [`Engine::reset_peaks`](super::Engine::reset_peaks).
    pub peak: u64,
    /// By how much it has risen in all since
    /// [`Engine::reset_accumulated`](super::Engine::reset_accumulated).
    pub allocated: u64,
    /// By how much it has fallen in all since then.
    pub freed: u64,
}

/// The figures of some memory: of all, or of the heaps of small or large blocks (up to 1 MiB, and
/// above). What counts is the heap in which a block lies: captures put blocks of every size into that of
/// large ones where it grows in place, and into what is free in the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Blocks that have not been freed.
    pub allocation: Figure,
    /// Their bytes as placed, rounded up.
    pub allocated_bytes: Figure,
    /// Their bytes as asked for.
    pub requested_bytes: Figure,
    /// Blocks that have not been freed, and freed ones that no stream may take yet.
    pub active: Figure,
    /// Their bytes.
    pub active_bytes: Figure,
    /// Free pieces of segments that are, or may be, in use elsewhere.
    pub inactive_split: Figure,
    /// Their bytes.
    pub inactive_split_bytes: Figure,
    /// Pieces of memory held from the driver: mappings and allocations.
    pub segment: Figure,
    /// Their bytes.
    pub reserved_bytes: Figure,
    /// Bytes of suspended pools that were given back to the driver, and that the pool asks for again
    /// when it is resumed.
    pub suspended_bytes: Figure,
}

/// A table: a line for each figure, now, at its peak, and what came and went.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:22}{:>14}{:>14}{:>14}{:>14}", "", "now", "peak", "allocated", "freed")?;
        for (name, figure, is_bytes) in [
            ("blocks", self.allocation, false),
            ("allocated bytes", self.allocated_bytes, true),
            ("requested bytes", self.requested_bytes, true),
            ("active", self.active, false),
            ("active bytes", self.active_bytes, true),
            ("inactive split", self.inactive_split, false),
            ("inactive split bytes", self.inactive_split_bytes, true),
            ("segments", self.segment, false),
            ("reserved bytes", self.reserved_bytes, true),
            ("suspended bytes", self.suspended_bytes, true),
        ] {
            write!(f, "\n{name:22}")?;
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
/// At any time `reserved_bytes + suspended_bytes = active_bytes + inactive_split_bytes`, to the byte, and
/// `active_bytes` is `allocated_bytes` and what waits. Without suspended pools
/// ([`HostCalls::suspend_discarding_outputs`](crate::engine::HostCalls::suspend_discarding_outputs)) `suspended_bytes`
/// is zero.
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
    /// What was asked for in blocks that are never freed, since uses of them may not be known
    /// ([`Memory::leak`](crate::Memory::leak), lost buffers of `regraph::cudarc`), in bytes. The same for every
    /// pool; no reset changes it.
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
    /// How often the host was made to wait for the work of streams.
    pub num_sync_all_streams: u64,
    /// Pieces of memory got from the driver.
    pub num_device_alloc: u64,
    /// Pieces given back.
    pub num_device_free: u64,
    /// Captures that the checker has accepted.
    pub num_captures_verified: u64,
    /// Captures that have ended and that it did not judge.
    pub num_captures_unjudged: u64,
    /// Captures that were refused at their end.
    pub num_captures_refused: u64,
    /// Refused captures that the host was asked to make again ([`Error::CaptureAgain`](super::Error::CaptureAgain)).
    pub num_captures_again: u64,
    /// How long the checker has judged, in nanoseconds.
    pub check_ns: u64,
}
