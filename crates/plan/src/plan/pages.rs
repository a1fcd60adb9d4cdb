//! Pages of addresses, as runs that are in use together.

use crate::cover::{Item, Items};
use crate::lifetimes::{Lifetime, Lifetimes};
use crate::numbers::{within, Lanes, Numbers};

/// Consecutive pages with the same blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first page, in pages from address 0.
    pub first: u64,
    /// How many.
    pub pages: u64,
    /// The stream of the first block.
    stream: u32,
    /// The first of the blocks: runs are allocated in this order.
    block: usize,
    /// Whether all of the blocks give their memory back.
    pub freed: bool,
}

impl Run {
    /// The page behind it.
    pub fn end(&self) -> u64 {
        self.first + self.pages
    }
}

/// The runs of a capture by address, with what they know and need.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    chains: usize,
    runs: Vec<Run>,
    known: Numbers,
    needed: Numbers,
}

impl Runs {
    /// The pages that hold any block that was used, or that is not given back. Blocks may have had the
    /// same pages one after the other.
    pub fn new(lifetimes: &Lifetimes, granularity: u64) -> Self {
        let blocks = lifetimes.blocks();
        let mut runs = Self::with_capacity(lifetimes.chains(), blocks.len());
        // By page; at one page blocks end before others begin.
        let edge_at = |page: u64, begins: bool, block: usize| {
            u128::from(page) << 64 | u128::from(begins) << 32 | block as u128
        };
        let mut edges: Vec<u128> = Vec::with_capacity(2 * blocks.len());
        for (number, block) in blocks.iter().enumerate().filter(|(_, block)| occupies(block)) {
            let end = (block.address + (block.bytes - 1)) / granularity + 1;
            edges.push(edge_at(block.address / granularity, true, number));
            edges.push(edge_at(end, false, number));
        }
        edges.sort_unstable();
        let (mut here, mut ended): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let nothing = vec![0; lifetimes.chains()];
        let page_of = |edge: u128| (edge >> 64) as u64;
        let begins_at = |edge: u128| edge >> 32 & 1 == 1;
        let mut edges = edges.into_iter().peekable();
        while let Some(edge) = edges.next() {
            let (page, number) = (page_of(edge), edge as u32 as usize);
            let of = if begins_at(edge) { &mut here } else { &mut ended };
            of.push(number);
            // Those that end at a page come first, by their numbers, and leave together.
            let more = edges.peek().is_some_and(|&it| page_of(it) == page && !begins_at(it));
            if !ended.is_empty() && !more {
                here.retain(|it| ended.binary_search(it).is_err());
                ended.clear();
            }
            let next = edges.peek().map_or(page, |&next| page_of(next));
            if next > page && !here.is_empty() {
                runs.add(lifetimes, &here, (page, next - page), &nothing);
            }
        }
        runs
    }

    /// None, and room for so many.
    fn with_capacity(chains: usize, runs: usize) -> Self {
        Self {
            chains,
            runs: Vec::with_capacity(runs),
            known: Numbers::new(chains, runs),
            needed: Numbers::new(chains, runs),
        }
    }

    /// Adds pages that these blocks have, as a run behind all that are there.
    fn add(
        &mut self,
        lifetimes: &Lifetimes,
        here: &[usize],
        (first, pages): (u64, u64),
        nothing: &[u32],
    ) {
        let at = self.runs.len();
        for &block in here {
            let it = &lifetimes.blocks()[block];
            let run = Run { first, pages, stream: it.stream, block, freed: gives(it) };
            // Else its users may start before what its stream knew is completed.
            let known = if it.covered { lifetimes.known(block) } else { nothing };
            let needed = lifetimes.needed(block);
            if self.runs.len() > at {
                self.merge(at, &run, known, needed);
            } else {
                self.runs.push(run);
                self.known.push(known);
                self.needed.push(needed);
            }
        }
    }

    /// A run's pages are in use for these too.
    fn merge(&mut self, at: usize, other: &Run, known: &[u32], needed: &[u32]) {
        let run = &mut self.runs[at];
        if other.block < run.block {
            (run.block, run.stream) = (other.block, other.stream);
        }
        run.freed &= other.freed;
        for (own, known) in self.known.row_mut(at).as_flattened_mut().iter_mut().zip(known) {
            *own = (*own).min(*known);
        }
        for (own, needed) in self.needed.row_mut(at).as_flattened_mut().iter_mut().zip(needed) {
            *own = (*own).max(*needed);
        }
    }

    /// All of them, by address.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How many pages do not give their memory back.
    pub fn lasting(&self) -> u64 {
        self.runs.iter().filter(|run| !run.freed).map(|run| run.pages).sum()
    }

    /// Whether a run begins where the one before it ends, and its memory may go on there.
    pub fn touches(&self, run: usize) -> bool {
        run > 0 && self.runs[run - 1].end() == self.runs[run].first
    }

    /// What a run knows.
    pub fn known(&self, run: usize) -> &[Lanes] {
        self.known.row(run)
    }

    /// What a run needs.
    pub fn needed(&self, run: usize) -> &[Lanes] {
        self.needed.row(run)
    }

    /// Whether a run precedes one of others.
    pub fn precedes(&self, run: usize, others: &Self, other: usize) -> bool {
        let known = others.known(other);
        self.runs[run].freed && within(self.needed(run), known) && within(self.known(run), known)
    }

    /// When the pages of two runs are free again: the sum of what they need. Never is late.
    pub fn end_of_both(&self, run: usize, other: usize) -> u64 {
        if !(self.runs[run].freed && self.runs[other].freed) {
            return u64::from(u32::MAX) * self.chains as u64;
        }
        let [one, other] = [run, other].map(|run| self.needed(run).as_flattened().iter());
        one.zip(other).map(|(one, other)| u64::from(*one.max(other))).sum()
    }

    /// The runs in the order of their allocation. What precedes another comes before it: all its blocks do.
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.runs.len() as u32).collect();
        order.sort_unstable_by_key(|run| (self.runs[*run as usize].block, *run));
        order
    }

    /// The runs as items, in the order given.
    pub fn items(&self, order: &[u32]) -> Items {
        let mut items = Items::with_capacity(self.chains, order.len());
        for run in order.iter().map(|run| *run as usize) {
            let Run { pages, stream, freed, .. } = self.runs[run];
            items.push_rows(Item::new(pages, stream, freed), self.known(run), self.needed(run));
        }
        items
    }

    /// A copy with each marked run joined to the run before it, whose last page its first one follows: the two
    /// are taken and given back as one.
    pub fn joined(&self, marked: &[bool]) -> Self {
        let mut runs = Self::with_capacity(self.chains, self.runs.len());
        for (at, run) in self.runs.iter().enumerate() {
            if marked[at] {
                let last = runs.runs.len() - 1;
                let (known, needed) = (self.known(at), self.needed(at));
                runs.merge(last, run, known.as_flattened(), needed.as_flattened());
                runs.runs[last].pages += run.pages;
            } else {
                runs.runs.push(*run);
                runs.known.push_row(self.known(at));
                runs.needed.push_row(self.needed(at));
            }
        }
        runs
    }
}

/// Whether a block's pages must be mapped.
fn occupies(block: &Lifetime) -> bool {
    block.bytes > 0 && (block.worked || !gives(block))
}

/// Whether a block's memory may go to others of its graph and of others.
///
/// Any other reason to forbid that belongs here.
fn gives(block: &Lifetime) -> bool {
    block.freed && block.covered
}
