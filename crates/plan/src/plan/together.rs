//! Neighbours in addresses that can be taken and given as one for no memory more.
//!
//! Runs that touch are joined first and parted where that costs memory. While the heaviest antichain weighs
//! more than the least memory, it holds runs that were joined to others: some of a run's parts are in use beside
//! all else in the antichain, and some are not, but have to be there with them. These are parted from each other, and only
//! there; the antichain weighs less by the latter then.

use super::pages::Runs;
use crate::cover::Heaviest;
use crate::numbers::within;

/// So often runs are parted at most.
const ROUNDS: usize = 16;
/// How many runs there are in all rounds together, at most.
const COVERED: usize = 100_000;
/// It is given up when fewer than one run of so many is joined: what may be saved takes less time than a search.
const WORTH: usize = 3;

/// Runs that are joined where they are marked.
struct Round {
    joined: Runs,
    /// By joined run its first run, and their end.
    starts: Vec<usize>,
    /// By item the joined run.
    order: Vec<u32>,
    heaviest: Heaviest,
}

impl Round {
    /// After a round in which no run was parted that is joined now.
    fn new(runs: &Runs, marked: &[bool], before: Option<&Self>) -> Self {
        let joined = runs.joined(marked);
        let firsts = (0..marked.len()).filter(|run| !marked[*run]);
        let starts: Vec<usize> = firsts.chain([marked.len()]).collect();
        let order = joined.order();
        let items = joined.items(&order);
        let heaviest = before.map_or_else(
            || Heaviest::of(&items),
            |before| {
                let mut item_of = vec![0; order.len()];
                (0..).zip(&order).for_each(|(item, run)| item_of[*run as usize] = item);
                let mut joined_at = vec![0; marked.len() + 1];
                starts.iter().enumerate().for_each(|(at, run)| joined_at[*run] = at);
                before.heaviest.of_parts(&items, |item| {
                    let at = before.order[item as usize] as usize;
                    &item_of[joined_at[before.starts[at]]..joined_at[before.starts[at + 1]]]
                })
            },
        );
        Self { joined, starts, order, heaviest }
    }

    /// Parts the joined runs of the antichain. Returns whether any could be.
    fn part(&self, runs: &Runs, marked: &mut [bool]) -> bool {
        let Self { joined, starts, order, heaviest } = self;
        let antichain = heaviest.antichain.iter().map(|item| order[*item as usize] as usize);
        // What precedes any of the antichain precedes one of the last; what any precedes, one of the first does.
        let knows = |run: usize, other: usize| within(joined.known(other), joined.known(run));
        let needs = |run: usize, other: usize| {
            knows(run, other) && within(joined.needed(other), joined.needed(run))
        };
        let (mut firsts, mut lasts): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for run in antichain.clone().rev() {
            if !lasts.iter().any(|last| knows(*last, run)) {
                lasts.push(run);
            }
        }
        for run in antichain.clone() {
            if joined.runs()[run].freed && !firsts.iter().any(|first| needs(run, *first)) {
                firsts.push(run);
            }
        }
        let beside = |part: usize| {
            !lasts.iter().any(|last| runs.precedes(part, joined, *last))
                && !firsts.iter().any(|first| joined.precedes(*first, runs, part))
        };
        let mut parted = false;
        let parts = antichain.map(|run| starts[run]..starts[run + 1]);
        for parts in parts.clone().filter(|parts| parts.len() > 1) {
            let mut before = beside(parts.start);
            for next in parts.skip(1) {
                let now = beside(next);
                if std::mem::replace(&mut before, now) != now {
                    parted |= std::mem::replace(&mut marked[next], false);
                }
            }
        }
        if !parted {
            // Each part is there with the other runs, but not with their parts.
            for part in parts.flat_map(|parts| parts.skip(1)) {
                parted |= std::mem::replace(&mut marked[part], false);
            }
        }
        parted
    }
}

/// The runs with neighbours joined, needing at most `minimum` pages; `None` where too few can be.
///
/// Each round takes what can flow besides what flowed in the round before, and compares parts of runs with what of the
/// antichain each stream has first and last.
pub(super) fn together(runs: &Runs, minimum: u64) -> Option<Runs> {
    let all = runs.runs();
    let alike = |run: usize| runs.touches(run) && all[run - 1].freed == all[run].freed;
    let mut marked: Vec<bool> = (0..all.len()).map(alike).collect();
    let mut before: Option<Round> = None;
    for _ in 0..ROUNDS.min(COVERED / all.len().max(1)) {
        if marked.iter().filter(|joined| **joined).count() * WORTH < all.len() {
            return None;
        }
        let round = Round::new(runs, &marked, before.as_ref());
        if round.heaviest.minimum <= minimum {
            return Some(round.joined);
        }
        if !round.part(runs, &mut marked) {
            return None;
        }
        before = Some(round);
    }
    None
}
