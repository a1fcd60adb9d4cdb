//! What was asked for outside captures lately: captures learn from it ([`layout`](super::layout)).
//!
//! Stream caches note requests apart, so that threads on different streams do not wait for each other. The order of
//! all is that of *turns*: a stream cache that notes a request while it is not its turn takes the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::streams::this_thread;
use crate::layout::Demand;
use crate::policy::PlanChoice;
use crate::settings::Settings;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// So many requests are kept of a stream cache's streams, the latest: two runs of most programs.
const HEARD: usize = 16_384;
/// After so many short runs in a row, each behind another thread's, threads ask in turns all the time.
const TURNS: u32 = 32;

/// What each stream cache keeps of requests outside captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hears {
    All,
    Latest,
    Nothing,
}

impl Hears {
    /// As the settings have it, where the host marks no run.
    pub(super) fn by(settings: &Settings) -> Self {
        if settings.plan == PlanChoice::Learned {
            Self::Latest
        } else {
            Self::Nothing
        }
    }

    /// How many requests that are.
    fn most(self) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Latest => HEARD,
            Self::Nothing => 0,
        }
    }
}

/// What a stream cache's streams asked for.
#[derive(Debug)]
pub(super) struct Hearing {
    turns: Arc<Turns>,
    /// The turn that the latest requests belong to.
    turn: u64,
    /// Turns that began here, each with the number of requests before, forgotten ones included.
    begun: VecDeque<(u64, u64)>,
    asked: VecDeque<Demand>,
    forgotten: u64,
    /// So many short turns in a row came behind another thread's.
    disturbed: u32,
    /// So many requests are not noted, since threads would wait for each other's turns.
    resting: usize,
}

/// What all stream caches of an engine share to note requests in order.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Turns {
    /// How many requests each stream cache keeps; none where captures do not learn from them.
    most: AtomicUsize,
    /// The number of the latest turn.
    latest: AtomicU64,
    /// The thread that took it.
    thread: AtomicUsize,
    /// The turn behind which nothing was heard yet that was not taken.
    taken: AtomicU64,
}

impl Turns {
    pub(super) fn new(hears: Hears) -> Self {
        Self {
            most: AtomicUsize::new(hears.most()),
            latest: AtomicU64::new(0),
            thread: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Whether anything was noted since [`Turns::set_taken`].
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.latest.load(Ordering::Relaxed) != self.taken.load(Ordering::Relaxed)
    }

    /// Notes that what was noted so far is about to be taken.
    pub(super) fn set_taken(&self) {
        self.taken.store(self.latest.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Has stream caches keep this of the requests from now on.
    pub(super) fn keep(&self, hears: Hears) {
        self.most.store(hears.most(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn keep_any(&self) -> bool {
        self.most() > 0
    }

    pub(super) fn keep_all(&self) -> bool {
        self.most() == Hears::All.most()
    }

    #[inline]
    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

impl Hearing {
    pub(super) fn new(turns: Arc<Turns>) -> Self {
        Self {
            turns,
            turn: u64::MAX,
            begun: VecDeque::new(),
            asked: VecDeque::new(),
            forgotten: 0,
            disturbed: 0,
            resting: 0,
        }
    }

    /// Notes a request.
    #[inline]
    pub(super) fn note(&mut self, asked: Demand) {
        let most = self.turns.most();
        if most == 0 {
            return;
        }
        if self.turns.latest.load(Ordering::Relaxed) != self.turn && !self.begin_turn() {
            return;
        }
        if self.asked.len() >= most {
            self.asked.pop_front();
            self.forgotten += 1;
        }
        self.asked.push_back(asked);
    }

    /// Takes the next turn. False where nothing is noted now.
    #[inline(never)]
    fn begin_turn(&mut self) -> bool {
        if self.resting > 0 {
            self.resting -= 1;
            return false;
        }
        let count = self.forgotten + self.asked.len() as u64;
        let short = self.begun.back().is_some_and(|begun| count - begun.1 < 8);
        let before = self.turns.thread.swap(this_thread(), Ordering::Relaxed);
        // Where the host marks a run, all of it counts, whatever it costs.
        let may_rest = self.turns.most() != Hears::All.most();
        let disturbed = short && before != this_thread() && may_rest;
        self.disturbed = if disturbed { self.disturbed + 1 } else { 0 };
        if self.disturbed == TURNS {
            self.take();
            self.resting = HEARD;
            return false;
        }
        self.turn = self.turns.latest.fetch_add(1, Ordering::Relaxed) + 1;
        // Turns of which all is forgotten are of no use.
        while self.begun.get(1).is_some_and(|next| next.1 <= self.forgotten) {
            self.begun.pop_front();
        }
        self.begun.push_back((self.turn, count));
        true
    }

    /// Forgets the requests that were noted; returns them by their turns.
    pub(super) fn take(&mut self) -> Vec<(u64, Vec<Demand>)> {
        let mut taken = Vec::with_capacity(self.begun.len());
        let mut begun = std::mem::take(&mut self.begun).into_iter().peekable();
        let mut asked = std::mem::take(&mut self.asked).into_iter();
        let end = self.forgotten + asked.len() as u64;
        while let Some((turn, first)) = begun.next() {
            let until = begun.peek().map_or(end, |next| next.1);
            let count = until.saturating_sub(first.max(self.forgotten));
            taken.push((turn, asked.by_ref().take(count as usize).collect()));
        }
        (self.forgotten, self.turn) = (0, u64::MAX);
        (self.disturbed, self.resting) = (0, 0);
        taken
    }
}
