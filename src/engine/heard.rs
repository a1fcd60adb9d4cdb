//! What was asked for outside captures lately: captures learn from it ([`layout`](super::layout)).
//!
//! Each stream cache notes its own requests, with a number for each. The numbers put the requests of all stream caches
//! in the order of the calls. Requests that two threads make at the same moment may get one number.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::layout::Demand;
use crate::settings::{PlanChoice, Settings};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// So many requests are kept of a stream cache's streams, the latest: two runs of most programs.
const HEARD: usize = 16_384;

/// As many as there are: where the host marks a run.
pub(super) const ALL: usize = usize::MAX;

/// How many requests are kept of each stream cache's streams where the host marks no run, as the settings have it.
pub(super) fn kept_by(settings: &Settings) -> usize {
    HEARD * usize::from(settings.plan == PlanChoice::Auto)
}

/// Requests in the order of their numbers: that of the calls.
pub(super) fn in_order(mut asked: Vec<(u64, Demand)>) -> impl Iterator<Item = Demand> {
    asked.sort_by_key(|asked| asked.0);
    asked.into_iter().map(|asked| asked.1)
}

/// What a stream cache's streams asked for.
#[derive(Clone, Debug)]
pub(super) struct Hearing {
    numbers: Arc<Numbers>,
    /// The latest requests with their numbers, in order.
    asked: VecDeque<(u64, Demand)>,
    /// The next request's number is at least this.
    least: u64,
}

/// What all stream caches of an engine share to note requests in order.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Numbers {
    /// How many requests each stream cache keeps; none where captures do not learn from them.
    most: AtomicUsize,
    /// How many were noted.
    noted: AtomicU64,
    /// How many of them were noted when they were last taken.
    taken: AtomicU64,
}

impl Numbers {
    pub(super) fn new(most: usize) -> Self {
        let most = AtomicUsize::new(most);
        Self { most, noted: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// Whether anything was noted since [`Numbers::set_taken`].
    pub(super) fn has_news(&self) -> bool {
        self.noted.load(Ordering::Relaxed) != self.taken.load(Ordering::Relaxed)
    }

    /// Notes that what was noted so far is about to be taken.
    pub(super) fn set_taken(&self) {
        self.taken.store(self.noted.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Has stream caches keep so many of the requests from now on.
    pub(super) fn keep(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn keep_any(&self) -> bool {
        self.most.load(Ordering::Relaxed) > 0
    }

    pub(super) fn keep_all(&self) -> bool {
        self.most.load(Ordering::Relaxed) == ALL
    }
}

impl Hearing {
    pub(super) fn new(numbers: Arc<Numbers>) -> Self {
        Self { numbers, asked: VecDeque::new(), least: 0 }
    }

    /// Notes a request.
    #[inline]
    pub(super) fn note(&mut self, asked: Demand) {
        let most = self.numbers.most.load(Ordering::Relaxed);
        if most > 0 {
            self.keep(asked, most);
        }
    }

    fn keep(&mut self, asked: Demand, most: usize) {
        let Numbers { noted, .. } = &*self.numbers;
        // A load and a store, since an atomic addition keeps other threads waiting. Another thread may store a lower
        // number in between: `least` keeps this stream cache from using a number twice.
        let number = noted.load(Ordering::Relaxed).max(self.least);
        self.least = number + 1;
        noted.store(number + 1, Ordering::Relaxed);
        if self.asked.len() >= most {
            self.asked.pop_front();
        }
        self.asked.push_back((number, asked));
    }

    /// Forgets the requests that were noted; returns them with their numbers, in order.
    pub(super) fn take(&mut self) -> Vec<(u64, Demand)> {
        std::mem::take(&mut self.asked).into()
    }
}
