//! Pages of addresses that lie on one page of memory at the same time.
//!
//! Blocks at different addresses of it are in use in different lines, or one after the other: every set that is
//! told is proven by the lifetimes of all its blocks, and what does not keep to that is left out of it.

use std::collections::BTreeMap;

use super::pages::{gives, occupies};
use crate::lifetimes::Lifetimes;

/// No aligned line of so many bytes is in use at two addresses at the same time.
const LINE: u64 = 512;

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
