//! Which index a node's handle has.
//!
//! A table by open addressing. Handles are addresses, on an H200 1,896 bytes apart. Rejected: a table for each page of
//! 4 KiB of addresses, with a slot for every 16 bytes; two of its 256 slots were used.

use super::dag::NodeIndex;
use regraph_driver::NodeHandle;

/// So many rows there are at least; a power of two.
const LEAST: usize = 32;
/// So many times as many there are when there are too few.
const GROWTH: usize = 4;

/// No node has these indices: memory would have run out long before.
const UNKNOWN: u32 = u32::MAX;
const OPEN: u32 = u32::MAX - 1;

/// What is known of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Unknown,
    /// Its dependencies are being mirrored.
    Open,
    Mirrored(NodeIndex),
}

/// The places of a capture's nodes.
#[derive(Debug)]
pub(super) struct Places {
    /// Handles, and an index or [`OPEN`], or [`UNKNOWN`] where there is none; a power of two, at most half of them in
    /// use. A handle is in the first row that was free from that on which its hash names.
    rows: Vec<(NodeHandle, u32)>,
    /// How many are in use.
    used: usize,
    /// How far a hash is shifted to be a row.
    shift: u32,
}

impl Places {
    pub(super) fn new() -> Self {
        Self { rows: vec![VACANT; LEAST], used: 0, shift: shift(LEAST) }
    }

    /// Forgets all handles. What is allocated stays; as many rows are emptied as the next capture will need if it is
    /// like this one.
    pub(super) fn clear(&mut self) {
        if self.used == 0 {
            return;
        }
        self.rows.truncate((2 * GROWTH * self.used).next_power_of_two().max(LEAST));
        self.rows.fill(VACANT);
        (self.used, self.shift) = (0, shift(self.rows.len()));
    }

    /// Costs a look at one or two rows as a rule.
    #[inline]
    pub(super) fn get(&self, node: NodeHandle) -> Place {
        match self.rows[self.row(node)].1 {
            UNKNOWN => Place::Unknown,
            OPEN => Place::Open,
            index => Place::Mirrored(NodeIndex::from_raw(index)),
        }
    }

    /// Says that the dependencies of a node are being mirrored.
    pub(super) fn open(&mut self, node: NodeHandle) {
        self.set(node, OPEN);
    }

    /// Gives a node its index.
    #[inline]
    pub(super) fn name(&mut self, node: NodeHandle, index: NodeIndex) {
        self.set(node, index.index() as u32);
    }

    #[inline]
    fn set(&mut self, node: NodeHandle, place: u32) {
        let row = self.row(node);
        self.used += usize::from(self.rows[row].1 == UNKNOWN);
        self.rows[row] = (node, place);
        if 2 * self.used > self.rows.len() {
            self.grow();
        }
    }

    /// The row of a handle, or the free one where it would be.
    #[inline]
    fn row(&self, node: NodeHandle) -> usize {
        // The multiplication (Fibonacci hashing) spreads what lies regular distances apart.
        let hash = (node.bits() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut row = (hash >> self.shift) as usize;
        while self.rows[row].0 != node && self.rows[row].1 != UNKNOWN {
            row = (row + 1) & (self.rows.len() - 1);
        }
        row
    }

    #[cold]
    fn grow(&mut self) {
        let more = vec![VACANT; GROWTH * self.rows.len()];
        self.shift = shift(more.len());
        for (node, place) in std::mem::replace(&mut self.rows, more) {
            if place != UNKNOWN {
                let row = self.row(node);
                self.rows[row] = (node, place);
            }
        }
    }
}

const VACANT: (NodeHandle, u32) = (NodeHandle::from_bits(0), UNKNOWN);

fn shift(rows: usize) -> u32 {
    u64::BITS - rows.ilog2()
}
