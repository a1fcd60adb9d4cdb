//! Pages of addresses that lie on one page of memory at the same time.
//!
//! Blocks at different addresses of it are in use in different lines, or one after the other: every set that is
//! told is proven by the lifetimes of all its blocks, and what does not keep to that is left out of it.

use std::collections::BTreeMap;

use super::pages::{gives, occupies, Runs};
use crate::cover::Heaviest;
use crate::lifetimes::Lifetimes;

/// No aligned line of so many bytes is in use at two addresses at the same time.
const LINE: u64 = 512;
/// So often pages are joined and the least memory is looked at.
const ROUNDS: usize = 16;

/// Which pages are planned for as one.
#[derive(Clone, Debug, Default)]
pub(super) struct Joint {
    /// By number of the page, from address 0: its set.
    sets: BTreeMap<u64, u32>,
}

/// A block's part of a page.
#[derive(Clone, Copy)]
struct Part {
    block: usize,
    page: u64,
    /// Lines, from the page's beginning.
    start: u64,
    end: u64,
}

impl Joint {
    /// The told sets of addresses of pages, without those of their pages that are out of order.
    ///
    /// Takes a look-up for each block and page, and each set once more for each page that is left out.
    pub fn new(lifetimes: &Lifetimes, granularity: u64, told: &[Vec<u64>]) -> Self {
        let mut joint = Self::default();
        if !granularity.is_multiple_of(LINE) {
            return joint;
        }
        for (set, pages) in told.iter().enumerate() {
            for page in pages.iter().filter(|page| page.is_multiple_of(granularity)) {
                joint.sets.entry(page / granularity).or_insert(set as u32);
            }
        }
        let mut parts: Vec<Vec<Part>> = vec![Vec::new(); told.len()];
        let blocks = lifetimes.blocks().iter().enumerate();
        for (number, block) in blocks.filter(|(_, block)| occupies(block)) {
            let (start, end) = (block.address, block.address + block.bytes);
            let pages = start / granularity..end.div_ceil(granularity);
            for (&page, &set) in joint.sets.range(pages) {
                let first = page * granularity;
                let lines = |at: u64| at.clamp(first, first + granularity) - first;
                let (start, end) = (lines(start) / LINE, lines(end).div_ceil(LINE));
                parts[set as usize].push(Part { block: number, page, start, end });
            }
        }
        for parts in &mut parts {
            while let Some(page) = out_of_order(lifetimes, parts) {
                parts.retain(|part| part.page != page);
                joint.sets.remove(&page);
            }
        }
        joint
    }

    /// The runs with those of these pages as one that save memory so: no more memory than with all of them as one.
    ///
    /// A joint page needs mappings of its own, and is in use for as long as any of its pages. So each round joins
    /// only pages of the antichain that the round before came to, where it holds at least two of a set. Once it holds
    /// no two of a set, it is one however many pages are joined. All are if that has not come in [`ROUNDS`].
    pub fn worth(self, lifetimes: &Lifetimes, granularity: u64) -> Runs {
        let mut joined = Self::default();
        let mut best: Option<(u64, Runs)> = None;
        for _ in 0..ROUNDS {
            let runs = Runs::new(lifetimes, granularity, &joined);
            let order = runs.order();
            let heaviest = Heaviest::of(&runs.items(&order));
            let mut needed: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            for item in heaviest.antichain {
                let run = &runs.runs()[order[item as usize] as usize];
                for (page, set) in self.within(run.first, run.end()) {
                    needed.entry(set).or_default().push(page);
                }
            }
            if best.as_ref().is_none_or(|best| heaviest.minimum < best.0) {
                best = Some((heaviest.minimum, runs));
            }
            let before = joined.sets.len();
            for (set, pages) in needed.into_iter().filter(|(_, pages)| pages.len() > 1) {
                joined.sets.extend(pages.into_iter().map(|page| (page, set)));
            }
            if joined.sets.len() == before {
                return best.map_or_else(Runs::default, |best| best.1);
            }
        }
        Runs::new(lifetimes, granularity, &self)
    }

    /// Whether no pages are planned for as one.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The pages among some, with their sets.
    pub fn within(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.sets.range(first..end).map(|(page, set)| (*page, *set))
    }
}

/// A page with a block that some block of the set, allocated before it, has a line in common with and does not
/// precede. Parts come in the order of allocation. Who had a line last stands for all before: what a block
/// knows counts as needed, so *precedes* is transitive.
fn out_of_order(lifetimes: &Lifetimes, parts: &[Part]) -> Option<u64> {
    // By first line: the line behind the last, and who had them last.
    let mut lines: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for &Part { block, page, start, end } in parts {
        let below = lines.range(..start).next_back().map(|(from, _)| *from);
        let here: Vec<(u64, u64, usize)> = lines
            .range(below.unwrap_or(start)..end)
            .map(|(from, (to, holder))| (*from, *to, *holder))
            .filter(|(_, to, _)| *to > start)
            .collect();
        for (from, to, holder) in here {
            let knows = within(lifetimes.known(holder), lifetimes.known(block));
            let gives = gives(&lifetimes.blocks()[holder]);
            if !gives || !knows || !lifetimes.precedes(holder, block) {
                return Some(page);
            }
            lines.remove(&from);
            if from < start {
                lines.insert(from, (start, holder));
            }
            if to > end {
                lines.insert(end, (to, holder));
            }
        }
        lines.insert(start, (end, block));
    }
    None
}

/// Whether one knows all that another does.
fn within(one: &[u32], other: &[u32]) -> bool {
    one.iter().zip(other).all(|(one, other)| one <= other)
}
