//! The mean time of a short call.

use std::time::{Duration, Instant};

/// Adds up the time of calls, less what taking the time costs.
#[derive(Clone)]
pub(super) struct Clock {
    overhead: Duration,
    total: Duration,
    calls: u32,
}

impl Clock {
    /// A clock that knows its own cost.
    pub(super) fn new() -> Self {
        // The smallest of many: an interruption is not the clock's cost.
        let overhead = (0..1_000).map(|_| Instant::now().elapsed()).min().unwrap_or_default();
        Self { overhead, total: Duration::ZERO, calls: 0 }
    }

    pub(super) fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = call();
        self.total += start.elapsed().saturating_sub(self.overhead);
        self.calls += 1;
        value
    }

    /// The mean in nanoseconds; zero without calls.
    pub(super) fn mean(&self) -> u64 {
        nanoseconds(self.total) / u64::from(self.calls.max(1))
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
