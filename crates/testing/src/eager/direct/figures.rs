//! What the engine's figures must say.

use regraph::engine::{Figure, Figures, Statistics};

/// One figure over time.
#[derive(Clone, Copy, Default)]
struct Kept {
    current: u64,
    peak: u64,
    risen: u64,
    /// What it was when sums over time were last reset.
    base: u64,
}

impl Kept {
    fn add(&mut self, amount: u64) {
        self.current += amount;
        self.risen += amount;
        self.peak = self.peak.max(self.current);
    }

    fn judge(&self, figure: Figure, what: &str) {
        let freed = self.base + self.risen - self.current;
        let expected = [self.current, self.peak, self.risen, freed];
        let found = [figure.current, figure.peak, figure.allocated, figure.freed];
        assert_eq!(found, expected, "{what}: current, peak, allocated, freed");
    }
}

/// Blocks, their bytes, their bytes as asked for.
type Kinds = [Kept; 3];

/// Small blocks, large blocks, all.
type Parts = [Kinds; 3];

/// The engine's figures, then each pool's.
pub(super) struct Model {
    rows: Vec<Parts>,
    /// Whether there was a capture: captures put blocks of either class into one heap.
    shared: bool,
}

/// What may differ between what is held and what the device says is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    Exact,
    /// A call that gives memory back has failed.
    Lossy,
}

impl Model {
    pub(super) fn new(pools: usize) -> Self {
        Self { rows: vec![Parts::default(); pools + 1], shared: false }
    }

    /// A capture begins.
    pub(super) fn share(&mut self) {
        self.shared = true;
    }

    fn each(&mut self, pool: usize, large: bool, mut change: impl FnMut(&mut Kinds)) {
        let class = usize::from(large);
        for row in [0, pool + 1] {
            for part in [class, 2] {
                change(&mut self.rows[row][part]);
            }
        }
    }

    pub(super) fn add(&mut self, (pool, large): (usize, bool), bytes: u64, requested: u64) {
        self.each(pool, large, |kinds| {
            for (kept, amount) in kinds.iter_mut().zip([1, bytes, requested]) {
                kept.add(amount);
            }
        });
    }

    pub(super) fn remove(&mut self, (pool, large): (usize, bool), bytes: u64, requested: u64) {
        self.each(pool, large, |kinds| {
            for (kept, amount) in kinds.iter_mut().zip([1, bytes, requested]) {
                kept.current -= amount;
            }
        });
    }

    pub(super) fn reset_peaks(&mut self) {
        for kept in self.rows.iter_mut().flatten().flatten() {
            kept.peak = kept.current;
        }
    }

    pub(super) fn reset_accumulated(&mut self) {
        for kept in self.rows.iter_mut().flatten().flatten() {
            (kept.risen, kept.base) = (0, kept.current);
        }
    }

    /// Judges the figures of the engine and of its pools.
    pub(super) fn judge(&self, all: &Statistics, pools: &[Statistics], used: u64, device: Device) {
        for (row, statistics) in std::iter::once(all).chain(pools).enumerate() {
            let parts = [statistics.small_pool, statistics.large_pool, statistics.all];
            for (number, figures) in parts.iter().enumerate() {
                let kinds = &self.rows[row][number];
                let name = ["small", "large", "all"][number];
                judge_sums(figures, &format!("{row}, {name}"));
                if self.shared && name != "all" {
                    continue;
                }
                kinds[0].judge(figures.allocation, &format!("{row}, {name}: allocation"));
                kinds[1].judge(figures.allocated_bytes, &format!("{row}, {name}: allocated"));
                kinds[2].judge(figures.requested_bytes, &format!("{row}, {name}: requested"));
            }
            let sum = sum(&statistics.small_pool, &statistics.large_pool);
            assert_eq!(currents(&statistics.all), sum, "{row}: all = small + large");
            assert_eq!(statistics.counts, all.counts, "counts are of the whole device");
        }
        let mut total = [0; 10];
        for statistics in pools {
            for (sum, figure) in total.iter_mut().zip(currents(&statistics.all)) {
                *sum += figure;
            }
        }
        assert_eq!(currents(&all.all), total, "all = the sum of the pools");
        let reserved = all.all.reserved_bytes.current;
        match device {
            Device::Exact => assert_eq!(reserved, used, "reserved = in use on the device"),
            Device::Lossy => assert!(reserved <= used, "{reserved} reserved, {used} in use"),
        }
    }
}

fn judge_sums(figures: &Figures, what: &str) {
    let &Figures { reserved_bytes, active_bytes, inactive_split_bytes, allocated_bytes, .. } =
        figures;
    assert_eq!(
        reserved_bytes.current + figures.suspended_bytes.current,
        active_bytes.current + inactive_split_bytes.current,
        "{what}: reserved + suspended = active + inactive"
    );
    assert!(active_bytes.current >= allocated_bytes.current, "{what}: active holds allocated");
    assert!(figures.active.current >= figures.allocation.current, "{what}");
    for figure in all(figures) {
        assert!(figure.peak >= figure.current, "{what}: {figure:?}");
    }
}

fn all(figures: &Figures) -> [Figure; 10] {
    [
        figures.allocation,
        figures.allocated_bytes,
        figures.requested_bytes,
        figures.active,
        figures.active_bytes,
        figures.inactive_split,
        figures.inactive_split_bytes,
        figures.segment,
        figures.reserved_bytes,
        figures.suspended_bytes,
    ]
}

fn currents(figures: &Figures) -> [u64; 10] {
    all(figures).map(|figure| figure.current)
}

fn sum(one: &Figures, other: &Figures) -> [u64; 10] {
    let (one, other) = (currents(one), currents(other));
    std::array::from_fn(|kind| one[kind] + other[kind])
}
