//! Counts of what is never split: blocks and pieces of memory of at least `max_split_size`.

use regraph::engine::Figure;
use regraph::sync::{AtomicU64, Ordering};

/// Blocks begin and end at multiples of this, in bytes.
const UNIT: u64 = 512;

/// Such blocks of a device. Few programs set the limit, so what others pay is one comparison.
#[derive(Debug)]
pub(super) struct Oversize {
    /// From which size on, in bytes.
    least: u64,
    current: AtomicU64,
    peak: AtomicU64,
    allocated: AtomicU64,
    freed: AtomicU64,
}

impl Oversize {
    /// `least` is in bytes; without, nothing counts.
    pub(super) fn new(least: Option<u64>) -> Self {
        let [current, peak, allocated, freed] = [0; 4].map(AtomicU64::new);
        Self { least: least.unwrap_or(u64::MAX), current, peak, allocated, freed }
    }

    /// Whether a block of so many bytes counts, by the size that it occupies.
    #[inline]
    pub(super) fn has(&self, bytes: u64) -> bool {
        bytes > self.least.saturating_sub(UNIT) && self.least < u64::MAX
    }

    pub(super) fn rise(&self) {
        let now = self.current.fetch_add(1, Ordering::Relaxed) + 1;
        self.peak.fetch_max(now, Ordering::Relaxed);
        self.allocated.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fall(&self) {
        self.current.fetch_sub(1, Ordering::Relaxed);
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn figure(&self) -> Figure {
        let mut figure = Figure::default();
        figure.current = self.current.load(Ordering::Relaxed);
        figure.peak = self.peak.load(Ordering::Relaxed);
        figure.allocated = self.allocated.load(Ordering::Relaxed);
        figure.freed = self.freed.load(Ordering::Relaxed);
        figure
    }

    pub(super) fn reset_peak(&self) {
        self.peak.store(self.current.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn reset_accumulated(&self) {
        self.allocated.store(0, Ordering::Relaxed);
        self.freed.store(0, Ordering::Relaxed);
    }
}
