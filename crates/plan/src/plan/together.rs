//! Neighbours in addresses that can be taken and given as one for no memory more.
//!
//! Runs that touch are joined first and parted where that costs memory. While the heaviest antichain weighs
//! more than the least memory, it holds runs that were joined to others: some of a run's parts are in use beside
//! all else in the antichain, and some are not, but have to be there with them. These are parted from each other, and only
//! there; the antichain weighs less by the latter then.

use super::pages::Runs;
use crate::cover::Cover;

/// So often runs are parted at most.
const ROUNDS: usize = 16;
/// How many runs there are in all rounds together, at most.
const COVERED: usize = 100_000;
/// It is given up when fewer than one run of so many is joined: what may be saved takes less time than a search.
const WORTH: usize = 3;

/// The runs with neighbours joined, needing at most `minimum` pages; `None` where too few can be.
///
/// Takes a cover for each round, and in each round compares the runs of an antichain with each other.
pub(super) fn together(runs: &Runs, minimum: u64) -> Option<Runs> {
    let all = runs.runs();
    let alike = |run: usize| runs.touches(run) && all[run - 1].freed == all[run].freed;
    let mut marked: Vec<bool> = (0..all.len()).map(alike).collect();
    for _ in 0..ROUNDS.min(COVERED / all.len().max(1)) {
        if marked.iter().filter(|joined| **joined).count() * WORTH < all.len() {
            return None;
        }
        let joined = runs.joined(&marked);
        let order = joined.order();
        let cover = Cover::new(&joined.items(&order));
        if cover.minimum <= minimum {
            return Some(joined);
        }
        let antichain = cover.antichain.iter().map(|item| order[*item as usize] as usize);
        if !part(runs, &joined, &antichain.collect::<Vec<_>>(), &mut marked) {
            return None;
        }
    }
    None
}

/// Parts the joined runs of an antichain. Returns whether any could be.
fn part(runs: &Runs, joined: &Runs, antichain: &[usize], marked: &mut [bool]) -> bool {
    let all = runs.runs();
    let parts_of = |at: usize| {
        let run = joined.runs()[at];
        all.partition_point(|it| it.first < run.first)
            ..all.partition_point(|it| it.first < run.end())
    };
    let mut parted = false;
    for &at in antichain {
        let parts = parts_of(at);
        let beside = |part: usize| {
            antichain.iter().all(|&other| other == at || !runs.are_in_order(part, joined, other))
        };
        let in_use: Vec<bool> = parts.clone().map(beside).collect();
        for (next, pair) in parts.skip(1).zip(in_use.windows(2)) {
            let differ = marked[next] && pair[0] != pair[1];
            marked[next] &= !differ;
            parted |= differ;
        }
    }
    if !parted {
        // Each part is there with the other runs, but not with their parts.
        for part in antichain.iter().flat_map(|&at| parts_of(at).skip(1)) {
            parted |= marked[part];
            marked[part] = false;
        }
    }
    parted
}
