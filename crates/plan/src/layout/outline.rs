//! What a layout is made from.

use std::collections::HashMap;

use super::order::Order;
use super::Layout;
use crate::lifetimes::Lifetimes;
use regraph_record::journal::{BlockNumber, Entry, Journal};
use regraph_record::policy::{Programmatic, Reuse};

/// The blocks of a run and when they are in use.
#[derive(Clone, Debug)]
pub struct Outline {
    lifetimes: Lifetimes,
    frees: Vec<Option<u32>>,
    reuse: Reuse,
}

impl Outline {
    pub(super) fn new(lifetimes: Lifetimes, frees: Vec<Option<u32>>, reuse: Reuse) -> Self {
        Self { lifetimes, frees, reuse }
    }

    /// The blocks of a capture, by its record so far, that `keep` says yes to by their addresses. The
    /// policies are those under which a layout for them is to be followed.
    pub fn read(
        journal: &Journal,
        programmatic: Programmatic,
        reuse: Reuse,
        keep: impl Fn(u64) -> bool,
    ) -> Self {
        let all = Lifetimes::read(journal, programmatic);
        let lifetimes = all.only(|lifetime| keep(lifetime.address));
        let blocks = lifetimes.blocks().iter().zip(0..);
        let rows: HashMap<BlockNumber, usize> =
            blocks.map(|(lifetime, row)| (lifetime.block, row)).collect();
        let mut frees = vec![None; lifetimes.blocks().len()];
        let mut allocated = 0;
        for entry in journal.iter() {
            match entry {
                Entry::Allocate { block, .. } if rows.contains_key(&block) => allocated += 1,
                Entry::Free { block } => {
                    if let Some(&row) = rows.get(&block) {
                        frees[row] = Some(allocated);
                    }
                }
                _ => {}
            }
        }
        Self { lifetimes, frees, reuse }
    }

    /// What the blocks take, in the order of allocation.
    pub fn pattern(&self) -> Pattern {
        let mut pattern = Pattern::default();
        self.lifetimes.blocks().iter().for_each(|block| pattern.add(block.bytes));
        pattern
    }

    /// Whether a layout for them may put one block over an earlier one; not so where either is none of them.
    pub fn passes_on(&self, earlier: BlockNumber, later: BlockNumber) -> bool {
        let blocks = self.lifetimes.blocks();
        let row = |number| blocks.iter().position(|lifetime| lifetime.block == number);
        let Some((earlier, later)) = row(earlier).zip(row(later)) else { return false };
        let order = Order::new(&self.lifetimes, &self.frees, self.reuse);
        earlier < later && order.precedes(earlier, later)
    }

    /// A layout for them where that takes less than they take as they come, as good as a short
    /// search finds, for memory that comes in units of `unit` bytes.
    ///
    /// # Panics
    /// Panics if the unit is 0.
    pub fn quick_layout(&self, unit: u64) -> Option<Layout> {
        Layout::quick(&self.lifetimes, &self.frees, self.reuse, unit)
    }

    /// A layout for them, as [`Layout::searched`] lays them out.
    ///
    /// # Panics
    /// Panics if the unit is 0.
    pub fn layout(&self, unit: Option<u64>, times: usize) -> Layout {
        Layout::searched(&self.lifetimes, &self.frees, self.reuse, (unit, times as u64))
    }
}

/// What blocks take, in the order of allocation: equal for runs that ask for the same, and in practice for no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// What the first three blocks take, in bytes.
    first: [u64; 3],
    blocks: u64,
    mixed: u64,
    /// What was mixed of the first [`FEW`] blocks, or of all.
    beginning: u64,
}

/// Runs are told apart by so many blocks before all are compared; and so many may have been asked for behind one.
const FEW: usize = 16;

impl Pattern {
    /// What the first block takes, in bytes; 0 where there is none.
    pub fn first(&self) -> u64 {
        self.first[0]
    }

    /// Whether the first blocks, up to three, take so many bytes.
    pub fn begins_as(&self, first: &[u64]) -> bool {
        self.first[..self.first.len().min(self.blocks as usize)].starts_with(first)
    }

    /// Whether blocks of these sizes, in bytes, begin with those that this is of. Costs a constant for each of the first
    /// few, and for each of all where those are the same.
    pub fn begins(&self, sizes: impl Iterator<Item = u64>) -> bool {
        let mut beginning = Self::default();
        for bytes in sizes.take(self.blocks as usize) {
            beginning.add(bytes);
            if beginning.blocks as usize == FEW && beginning.beginning != self.beginning {
                return false;
            }
        }
        beginning == *self
    }

    /// Whether blocks of these sizes, in bytes, are these in a row, but for as many again behind them and a few.
    pub fn came_lately(&self, sizes: &[u64]) -> bool {
        let blocks = self.blocks as usize;
        let latest = &sizes[sizes.len().saturating_sub(2 * blocks + FEW)..];
        let is_it = |part: &[u64]| part[0] == self.first() && self.begins(part.iter().copied());
        blocks > 0 && latest.windows(blocks).any(is_it)
    }

    /// Adds a block of so many bytes.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        if let Some(first) = self.first.get_mut(self.blocks as usize) {
            *first = bytes;
        }
        self.blocks += 1;
        self.mixed = (self.mixed.rotate_left(5) ^ bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if self.blocks as usize <= FEW {
            self.beginning = self.mixed;
        }
    }
}
