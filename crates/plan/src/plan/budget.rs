//! Fewer mappings for more memory.
//!
//! There are two ways. A run of pages may take new ones where used ones would come in several parts
//! or would have to be parted, if a mapping saved is worth so many pages. And neighbours in addresses
//! may be joined: they are then taken and given as one, from the first allocation to the last free. Where that
//! needs no more memory it is always tried (`together`). Else joints are chosen by how much longer their pages are in use then; how many of them it takes is
//! found by halving. When all are joined and nothing is shared, there is one mapping for each run of
//! addresses, and less is not possible.

use smallvec::smallvec;

use crate::cover::Cover;

use super::pages::Runs;
use super::pieces::{cut, Layout};
use super::tape::Interval;
use super::threads::{Threader, Threads, Weights};
use super::together::together;

/// What it may count to leave a part that others follow, in hundredths of a mapping: each is tried for the same cover.
const TRIED: [u64; 3] = [100, 50, 0];
/// How many of them on the way to more joints.
const QUICK: usize = 3;
/// With more runs than this only the first is tried.
const MANY: usize = 8192;
/// How often the joints are tried for one amount of memory. Each try takes a cover and tries of its own.
const TRIES: usize = 8;
/// How many runs these tries have together at most.
const COVERED: usize = 100_000;
/// So often the memory is halved between the least and the most.
const HALVINGS: usize = 7;
/// What a mapping may be worth, in pages.
const WORTH: [u64; 6] = [1, 2, 4, 16, 64, 1 << 20];

/// What came of it.
pub(super) struct Found {
    /// The layout.
    pub layout: Layout,
    /// The least memory, in pages.
    pub minimum: u64,
    /// Whether it has more mappings than it may, and none has fewer.
    pub over: bool,
}

/// Finds the layout of least memory with at most `budget` mappings, of pieces of at most `most` pages.
pub(super) fn within(runs: &Runs, budget: usize, most: u64) -> Found {
    let order = runs.order();
    let least = Cover::new(&runs.items(&order));
    let minimum = least.minimum;
    let mut exact = best(runs, &order, &least, None, most, TRIED.len());
    // Each range of addresses is one mapping at least.
    let ranges = (0..runs.runs().len()).filter(|run| !runs.touches(*run)).count();
    let may_gain = is_small(runs) && most > 1 && exact.mappings.len() > ranges;
    if let Some(joined) = may_gain.then(|| together(runs, minimum)).flatten() {
        let order = joined.order();
        let least = Cover::new(&joined.items(&order));
        let other = best(&joined, &order, &least, None, most, TRIED.len());
        if other.mappings.len() < exact.mappings.len() {
            exact = other;
        }
    }
    if exact.mappings.len() <= budget {
        exact.mark(runs);
        return Found { layout: exact, minimum, over: false };
    }
    let joints = joints(runs);
    let mut search = Search { runs, joints: &joints, budget, most, best: None };
    for worth in WORTH {
        search.offer(best(runs, &order, &least, Some(worth), most, TRIED.len()));
    }
    let apart = apart(runs, &joints, most);
    let over = apart.mappings.len() > budget;
    let (mut low, mut high) = (minimum, apart.pages());
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2;
        match search.join(middle, &[None, Some(1), Some(4), Some(1 << 20)], TRIES) {
            true => high = middle,
            false => low = middle + 1,
        }
        if low >= high {
            break;
        }
    }
    if over {
        search.budget = apart.mappings.len();
    }
    search.join(u64::MAX, &[Some(1 << 20)], TRIES);
    search.offer(apart);
    Found { over, ..search.found(minimum) }
}

struct Search<'a> {
    runs: &'a Runs,
    joints: &'a [u32],
    budget: usize,
    most: u64,
    best: Option<Layout>,
}

impl Search<'_> {
    fn found(self, minimum: u64) -> Found {
        let mut layout = self.best.unwrap_or_default();
        layout.mark(self.runs);
        Found { layout, minimum, over: false }
    }

    /// Takes a layout if it obeys and is better. Returns whether it obeys.
    fn offer(&mut self, layout: Layout) -> bool {
        if layout.mappings.len() > self.budget {
            return false;
        }
        let weight = |layout: &Layout| (layout.pages(), layout.mappings.len());
        if self.best.as_ref().is_none_or(|best| weight(&layout) < weight(best)) {
            self.best = Some(layout);
        }
        true
    }

    /// Tries with as many runs joined to those before them as need at most so many pages. Returns
    /// whether anything obeys.
    fn join(&mut self, pages: u64, worths: &[Option<u64>], most_tries: usize) -> bool {
        let mut marked = vec![false; self.runs.runs().len()];
        let mut tries = most_tries.min(COVERED / self.runs.runs().len().max(1));
        let mut parts = vec![self.joints];
        let mut obeys = false;
        while let Some(part) = parts.pop() {
            if pages != u64::MAX {
                if tries == 0 {
                    break;
                }
                tries -= 1;
            }
            part.iter().for_each(|joint| marked[*joint as usize] = true);
            let runs = self.runs.joined(&marked);
            let order = runs.order();
            let least = Cover::new(&runs.items(&order));
            if least.minimum <= pages {
                // On the way: joining more does not always make fewer mappings.
                obeys |= self.offer(best(&runs, &order, &least, worths[0], self.most, QUICK));
            } else {
                part.iter().for_each(|joint| marked[*joint as usize] = false);
                if part.len() > 1 {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        let runs = self.runs.joined(&marked);
        let order = runs.order();
        let least = Cover::new(&runs.items(&order));
        for worth in worths {
            obeys |= self.offer(best(&runs, &order, &least, *worth, self.most, TRIED.len()));
        }
        obeys
    }
}

/// Whether there are so few runs that more than one way is tried.
fn is_small(runs: &Runs) -> bool {
    runs.runs().len() <= MANY
}

/// The layout with the fewest mappings of those tried.
fn best(
    runs: &Runs,
    order: &[u32],
    least: &Cover,
    worth: Option<u64>,
    most: u64,
    tried: usize,
) -> Layout {
    let tried = if is_small(runs) && most > 1 { &TRIED[..tried] } else { &TRIED[..1] };
    let threader = Threader::new(runs, order, least);
    let layouts = tried.iter().map(|&parting| {
        let weights = Weights { pages_a_mapping: worth, parting };
        cut(runs, &threader.threads(weights), most)
    });
    layouts.min_by_key(|layout| layout.mappings.len()).unwrap_or_default()
}

/// Every run of addresses with memory of its own.
fn apart(runs: &Runs, joints: &[u32], most: u64) -> Layout {
    let mut marked = vec![false; runs.runs().len()];
    joints.iter().for_each(|joint| marked[*joint as usize] = true);
    let runs = runs.joined(&marked);
    let mut pages = 0;
    let own = runs.runs().iter().map(|run| {
        let start = pages;
        pages += run.pages;
        smallvec![Interval { start, pages: run.pages }]
    });
    let behind = own.collect();
    cut(&runs, &Threads { behind, pages }, most)
}

/// The runs that touch the one before them: first those that last, or not, as the one before does, and
/// of them first those that can be joined at the least cost.
fn joints(runs: &Runs) -> Vec<u32> {
    let known = |one: usize, other: usize| -> u64 {
        let [one, other] = [one, other].map(|run| runs.known(run).as_flattened().iter());
        one.zip(other).map(|(one, other)| u64::from(*one.min(other))).sum()
    };
    let span = |one, other| runs.end_of_both(one, other).saturating_sub(known(one, other));
    let longer = |one: usize, other: usize| {
        let more = span(one.min(other), one.max(other)).saturating_sub(span(one, one));
        u128::from(runs.runs()[one].pages) * u128::from(more)
    };
    let differ = |run: usize| runs.runs()[run - 1].freed != runs.runs()[run].freed;
    let touching = (1..runs.runs().len()).filter(|run| runs.touches(*run));
    let mut joints: Vec<(bool, u128, u32)> = touching
        .map(|run| (differ(run), longer(run - 1, run) + longer(run, run - 1), run as u32))
        .collect();
    joints.sort_unstable();
    joints.into_iter().map(|joint| joint.2).collect()
}
