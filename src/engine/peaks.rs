//! Figures that are exact, peaks included, though no single place sees all memory.
//!
//! Blocks are counted where they are handed out: by the *stream caches* of streams, each under a lock of
//! its own, and by the state behind the engine's lock. The sum over all of them is known only to
//! who holds every lock. So that a peak is not missed, each counts against a *allowance*: the sum of
//! all allowances never exceeds the peak seen so far, so as long as everyone stays within its allowance
//! there can be no new peak. Who needs more asks the peak statistics for it; where that would exceed the
//! peak, everything is added up and a new peak is noted (see `State::sum_up`).

use smallvec::SmallVec;

use super::statistics::{Figure, Figures};

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

/// Whether blocks are small, as an index.
pub(super) fn class(small: bool) -> usize {
    usize::from(!small)
}

/// What one place counts of one pool's small or large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter {
    pub(super) current: Amounts,
    pub(super) allowed: Amounts,
    /// By how much each figure has risen in all.
    pub(super) risen: Amounts,
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

    /// Counts nothing any more.
    pub(super) fn clear(&mut self) {
        self.current = Amounts::default();
    }
}

/// Sums over some of the memory.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    allowed: Amounts,
    peak: Amounts,
    /// When sums over time were last reset: what had risen by then, and what there was.
    reset_risen: Amounts,
    reset_current: Amounts,
}

/// Small blocks, large blocks, all blocks.
type Levels = [Level; 3];

/// Which of a pool's, or the engine's, blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Small,
    Large,
    All,
}

/// Grants and peaks.
#[derive(Debug, Default)]
pub(super) struct Peaks {
    pools: Vec<Levels>,
    engine: Levels,
}

/// Everything added up, under all locks: by pool and class.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pools: SmallVec<[[(Amounts, Amounts); 2]; 2]>,
    gone: Gone,
}

/// By how much each figure had risen in all in pools that are gone, for small and large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gone([Amounts; 2]);

impl Gone {
    pub(super) fn add(&mut self, class: usize, risen: &Amounts) {
        add(&mut self.0[class], risen);
    }
}

impl Totals {
    pub(super) fn new(gone: &Gone) -> Self {
        Self { pools: SmallVec::new(), gone: *gone }
    }

    /// Adds what one place counts, which is allowed exactly that from now on.
    pub(super) fn add(&mut self, row: usize, class: usize, counter: &mut Counter) {
        counter.allowed = counter.current;
        if self.pools.len() <= row {
            self.pools.resize_with(row + 1, Default::default);
        }
        let (current, risen) = &mut self.pools[row][class];
        add(current, &counter.current);
        add(risen, &counter.risen);
    }

    fn pool(&self, row: usize, part: Part) -> (Amounts, Amounts) {
        let empty = Default::default();
        let [small, large] = self.pools.get(row).copied().unwrap_or(empty);
        match part {
            Part::Small => small,
            Part::Large => large,
            Part::All => (sum(small.0, large.0), sum(small.1, large.1)),
        }
    }

    fn engine(&self, part: Part) -> (Amounts, Amounts) {
        let pools = (0..self.pools.len()).map(|row| self.pool(row, part));
        let Gone([small, large]) = self.gone;
        let gone = match part {
            Part::Small => small,
            Part::Large => large,
            Part::All => sum(small, large),
        };
        pools.fold((Amounts::default(), gone), |all, one| (sum(all.0, one.0), sum(all.1, one.1)))
    }
}

fn add(all: &mut Amounts, one: &Amounts) {
    for (all, one) in all.iter_mut().zip(one) {
        *all += one;
    }
}

/// Takes in what small and large blocks come to now.
fn take_in(levels: &mut Levels, [small, large]: [&Amounts; 2]) {
    for kind in 0..KINDS {
        let (small, large) = (small[kind], large[kind]);
        for (level, current) in levels.iter_mut().zip([small, large, small + large]) {
            level.allowed[kind] = current;
            level.peak[kind] = level.peak[kind].max(current);
        }
    }
}

fn sum(one: Amounts, other: Amounts) -> Amounts {
    std::array::from_fn(|kind| one[kind] + other[kind])
}

const PARTS: [Part; 3] = [Part::Small, Part::Large, Part::All];

impl Peaks {
    fn pool(&mut self, row: usize) -> &mut Levels {
        if self.pools.len() <= row {
            self.pools.resize_with(row + 1, Default::default);
        }
        &mut self.pools[row]
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
    pub(super) fn allow_ahead(&mut self, row: usize, class: usize, counter: &mut Counter) -> bool {
        self.pool(row);
        let Self { pools, engine } = self;
        let mut levels = [&mut pools[row], engine];
        let mut fits = true;
        for kind in 0..KINDS {
            let Counter { current, allowed, .. } = counter;
            if current[kind] <= allowed[kind] {
                continue;
            }
            let missing = current[kind] - allowed[kind];
            let mut left = u64::MAX;
            for levels in &levels {
                for level in [&levels[class], &levels[2]] {
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
                levels[2].allowed[kind] += more;
            }
            allowed[kind] += more;
        }
        fits
    }

    /// Takes back what a counter is allowed beyond what it counts.
    pub(super) fn take_surplus(&mut self, row: usize, class: usize, counter: &mut Counter) {
        self.pool(row);
        let Self { pools, engine } = self;
        for kind in 0..KINDS {
            let surplus = counter.allowed[kind].saturating_sub(counter.current[kind]);
            for levels in [&mut pools[row], &mut *engine] {
                levels[class].allowed[kind] -= surplus;
                levels[2].allowed[kind] -= surplus;
            }
            counter.allowed[kind] -= surplus;
        }
    }

    /// Takes in everything, added up: new peaks, and allowances as they are now.
    pub(super) fn raise(&mut self, totals: &Totals) {
        for row in 0..totals.pools.len() {
            self.pool(row);
        }
        let mut all = [[0; KINDS]; 2];
        for (levels, classes) in self.pools.iter_mut().zip(&totals.pools) {
            let classes = [&classes[0].0, &classes[1].0];
            for (all, current) in all.iter_mut().zip(classes) {
                add(all, current);
            }
            take_in(levels, classes);
        }
        take_in(&mut self.engine, [&all[0], &all[1]]);
    }

    /// Makes the present figures the highest.
    pub(super) fn reset_peaks(&mut self, totals: &Totals) {
        self.update(totals, |level, current, _| {
            level.allowed = current;
            level.peak = current;
        });
    }

    /// Makes sums over time begin now.
    pub(super) fn reset_accumulated(&mut self, totals: &Totals) {
        self.update(totals, |level, current, risen| {
            level.reset_risen = risen;
            level.reset_current = current;
        });
    }

    fn update(&mut self, totals: &Totals, change: impl Fn(&mut Level, Amounts, Amounts)) {
        for row in 0..totals.pools.len() {
            let levels = self.pool(row);
            for (level, part) in levels.iter_mut().zip(PARTS) {
                let (current, risen) = totals.pool(row, part);
                change(level, current, risen);
            }
        }
        for (level, part) in self.engine.iter_mut().zip(PARTS) {
            let (current, risen) = totals.engine(part);
            change(level, current, risen);
        }
    }

    /// The figures of a pool, or of all.
    pub(super) fn figures(&mut self, totals: &Totals, row: Option<usize>, part: Part) -> Figures {
        let which = PARTS.iter().position(|&it| it == part).unwrap_or(2);
        let (level, (current, risen)) = match row {
            Some(row) => (self.pool(row)[which], totals.pool(row, part)),
            None => (self.engine[which], totals.engine(part)),
        };
        let figure = |kind: usize| {
            let allocated = risen[kind] - level.reset_risen[kind];
            Figure {
                current: current[kind],
                peak: level.peak[kind],
                allocated,
                freed: (allocated + level.reset_current[kind]) - current[kind],
            }
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
struct Blocks {
    count: u64,
    bytes: u64,
    requested: u64,
}

impl Blocks {
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
}

/// What a stream cache counts of one pool's small or large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CacheCounter {
    live: Blocks,
    /// All that were ever handed out.
    risen: Blocks,
    /// By how much live ones may rise, and fall, without a new peak.
    ceiling: Blocks,
    floor: Blocks,
    /// How many may be cached without a new peak.
    spare: Blocks,
    /// Leased places, live or cached.
    leased: Blocks,
    /// Live ones that were given up: they were never cached.
    given_up: Blocks,
    counter: Counter,
}

impl CacheCounter {
    /// A cached block is handed out. False where there may be a new peak.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64, requested: u64) -> bool {
        self.live.add(bytes, requested);
        self.risen.add(bytes, requested);
        let Self { live, ceiling, .. } = self;
        live.count <= ceiling.count
            && live.bytes <= ceiling.bytes
            && live.requested <= ceiling.requested
    }

    /// Whether such a block can be handed out without a new peak.
    #[inline]
    pub(super) fn can_take(&self, bytes: u64, requested: u64) -> bool {
        let Self { live, ceiling, .. } = self;
        live.count < ceiling.count
            && live.bytes + bytes <= ceiling.bytes
            && live.requested + requested <= ceiling.requested
    }

    /// Whether such a block can be cached without a new peak of what is.
    #[inline]
    pub(super) fn can_give(&self, bytes: u64) -> bool {
        let Self { live, floor, .. } = self;
        live.count > floor.count && live.bytes >= floor.bytes + bytes
    }

    /// A block is cached. False where there may be a new peak of what is.
    #[inline]
    pub(super) fn give(&mut self, bytes: u64, requested: u64) -> bool {
        self.live.subtract(bytes, requested);
        self.live.count >= self.floor.count && self.live.bytes >= self.floor.bytes
    }

    /// Whether it counts no more than it is allowed.
    #[inline]
    pub(super) fn is_within(&self) -> bool {
        let Self { live, ceiling, floor, .. } = self;
        let low = live.count >= floor.count && live.bytes >= floor.bytes;
        low && live.count <= ceiling.count
            && live.bytes <= ceiling.bytes
            && live.requested <= ceiling.requested
    }

    fn set_floor(&mut self) {
        let Self { leased, spare, .. } = self;
        self.floor.count = leased.count.saturating_sub(spare.count);
        self.floor.bytes = leased.bytes.saturating_sub(spare.bytes);
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

    /// Lets the peak statistics see, and change, what is counted and allowed.
    pub(super) fn with_counter<R>(&mut self, change: impl FnOnce(&mut Counter) -> R) -> R {
        let Self { live, risen, leased, given_up, counter, .. } = self;
        let split = |leased: u64, live: u64| leased - live;
        let cached = |risen: u64, live: u64, given_up: u64| risen - live - given_up;
        for (kind, current, all) in [
            (ALLOCATIONS, live.count, risen.count),
            (ALLOCATED, live.bytes, risen.bytes),
            (REQUESTED, live.requested, risen.requested),
            (ACTIVE, live.count, risen.count),
            (ACTIVE_BYTES, live.bytes, risen.bytes),
            (
                SPLIT,
                split(leased.count, live.count),
                cached(risen.count, live.count, given_up.count),
            ),
            (
                SPLIT_BYTES,
                split(leased.bytes, live.bytes),
                cached(risen.bytes, live.bytes, given_up.bytes),
            ),
        ] {
            counter.current[kind] = current;
            counter.risen[kind] = all;
        }
        let result = change(counter);
        let allowed = &self.counter.allowed;
        self.ceiling = Blocks {
            count: allowed[ALLOCATIONS].min(allowed[ACTIVE]),
            bytes: allowed[ALLOCATED].min(allowed[ACTIVE_BYTES]),
            requested: allowed[REQUESTED],
        };
        self.spare = Blocks { count: allowed[SPLIT], bytes: allowed[SPLIT_BYTES], requested: 0 };
        self.set_floor();
        result
    }
}
