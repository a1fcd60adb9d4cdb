//! The time of single calls.

use std::hint::black_box;
use std::time::Instant;

/// Wraps the calls that a bench may want to time.
pub trait Meter {
    /// Wraps an allocation.
    fn allocate<R>(&mut self, call: impl FnOnce() -> R) -> R;
    /// Wraps a free.
    fn free<R>(&mut self, call: impl FnOnce() -> R) -> R;
}

/// Times nothing.
#[derive(Clone, Copy, Debug)]
pub struct Untimed;

impl Meter for Untimed {
    #[inline]
    fn allocate<R>(&mut self, call: impl FnOnce() -> R) -> R {
        call()
    }

    #[inline]
    fn free<R>(&mut self, call: impl FnOnce() -> R) -> R {
        call()
    }
}

/// Times every allocation and every free by a pair of clock readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timed {
    /// The allocations.
    pub allocations: Tally,
    /// The frees.
    pub frees: Tally,
}

impl Meter for Timed {
    #[inline]
    fn allocate<R>(&mut self, call: impl FnOnce() -> R) -> R {
        self.allocations.time(call)
    }

    #[inline]
    fn free<R>(&mut self, call: impl FnOnce() -> R) -> R {
        self.frees.time(call)
    }
}

/// Makes the calls of one kind within [`counted`].
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Whether these are allocations; else frees.
    pub allocations: bool,
    /// How many there were.
    pub calls: u64,
}

impl Meter for Counted {
    #[inline]
    fn allocate<R>(&mut self, call: impl FnOnce() -> R) -> R {
        if !self.allocations {
            return call();
        }
        self.calls += 1;
        counted(call)
    }

    #[inline]
    fn free<R>(&mut self, call: impl FnOnce() -> R) -> R {
        if self.allocations {
            return call();
        }
        self.calls += 1;
        counted(call)
    }
}

/// Makes a call. Never inlined, so that a profiler finds the call by this function's name.
#[inline(never)]
pub fn counted<R>(call: impl FnOnce() -> R) -> R {
    // No tail call, so that the profiler sees the return.
    black_box(call())
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    calls: u64,
    nanoseconds: u64,
}

impl Tally {
    #[inline]
    fn time<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = call();
        self.nanoseconds += start.elapsed().as_nanos() as u64;
        self.calls += 1;
        result
    }

    /// The mean time of a call in nanoseconds, less what the clock itself takes.
    pub fn mean(&self, clock: f64) -> f64 {
        self.nanoseconds as f64 / self.calls.max(1) as f64 - clock
    }
}

/// What an empty pair of clock readings measures: the median, in nanoseconds.
pub fn clock_cost() -> f64 {
    const SAMPLES: usize = 20_001;
    let mut samples: Vec<u64> = (0..SAMPLES)
        .map(|_| {
            let mut tally = Tally::default();
            tally.time(|| black_box(()));
            tally.nanoseconds
        })
        .collect();
    samples.sort_unstable();
    samples[SAMPLES / 2] as f64
}
