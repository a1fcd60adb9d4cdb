//! What the engine's figures must say.

use regraph::engine::{Figure, Figures, Statistics};

/// One figure over time, kept by hand.
#[derive(Clone, Copy, Default)]
pub struct Kept {
    /// The figure now, which only [`Self::add`] raises.
    pub current: u64,
    peak: u64,
    risen: u64,
    /// What it was when sums over time were last reset.
    base: u64,
}

impl Kept {
    /// The figure rises.
    pub fn add(&mut self, amount: u64) {
        self.current += amount;
        self.risen += amount;
        self.peak = self.peak.max(self.current);
    }

    /// Peaks are reset.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// Sums over time are reset.
    pub fn reset_accumulated(&mut self) {
        (self.risen, self.base) = (0, self.current);
    }

    /// The engine says the same.
    pub fn judge(&self, figure: Figure, what: &str) {
        let freed = self.base + self.risen - self.current;
        let expected = [self.current, self.peak, self.risen, freed];
        let found = [figure.current, figure.peak, figure.allocated, figure.freed];
        assert_eq!(found, expected, "{what}: current, peak, allocated, freed");
    }
}

/// Blocks, their bytes, their bytes as asked for.
type Kinds = [Kept; 3];

/// The engine's figures.
#[derive(Default)]
pub(super) struct Model {
    /// Of small blocks, of large ones, of all.
    parts: [Kinds; 3],
    /// Whether there was a capture: captures put blocks of either class into one heap.
    shared: bool,
}

impl Model {
    /// A capture begins.
    pub(super) fn share(&mut self) {
        self.shared = true;
    }

    fn kept(&mut self, large: bool) -> impl Iterator<Item = (&mut Kept, usize)> {
        let class = usize::from(large);
        let parts = self.parts.iter_mut().enumerate().filter(move |it| it.0 == class || it.0 == 2);
        parts.flat_map(|(_, kinds)| kinds.iter_mut().zip(0..))
    }

    pub(super) fn add(&mut self, large: bool, bytes: u64, requested: u64) {
        for (kept, kind) in self.kept(large) {
            kept.add([1, bytes, requested][kind]);
        }
    }

    pub(super) fn remove(&mut self, large: bool, bytes: u64, requested: u64) {
        self.kept(large).for_each(|(kept, kind)| kept.current -= [1, bytes, requested][kind]);
    }

    pub(super) fn reset_peaks(&mut self) {
        self.parts.iter_mut().flatten().for_each(Kept::reset_peak);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.parts.iter_mut().flatten().for_each(Kept::reset_accumulated);
    }

    /// Judges the figures of the engine and of its pools.
    pub(super) fn judge(&self, all: &Statistics, pools: &[Statistics]) {
        for (row, statistics) in std::iter::once(all).chain(pools).enumerate() {
            let Statistics { small_pool, large_pool, all: both, .. } = statistics;
            for figures in [small_pool, large_pool, both] {
                judge_sums(figures, &row.to_string());
            }
            let sum = sum(&[small_pool, large_pool]);
            assert_eq!(currents(both), sum, "{row}: all = small + large");
            assert_eq!(statistics.counts, all.counts, "counts are of the whole device");
        }
        let parts = [all.small_pool, all.large_pool, all.all];
        for ((kinds, figures), name) in self.parts.iter().zip(parts).zip(["small", "large", "all"])
        {
            if self.shared && name != "all" {
                continue;
            }
            kinds[0].judge(figures.allocation, &format!("{name}: allocation"));
            kinds[1].judge(figures.allocated_bytes, &format!("{name}: allocated"));
            kinds[2].judge(figures.requested_bytes, &format!("{name}: requested"));
        }
        let pools: Vec<&Figures> = pools.iter().map(|it| &it.all).collect();
        assert_eq!(currents(&all.all), sum(&pools), "all = the sum of the pools");
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

fn sum(figures: &[&Figures]) -> [u64; 10] {
    let add = |sum: [u64; 10], it: &&Figures| {
        let more = currents(it);
        std::array::from_fn(|kind| sum[kind] + more[kind])
    };
    figures.iter().fold([0; 10], add)
}
