//! Blocks in some order, each at a place that is free of those that conflict with it.

use super::order::{Conflicts, Order};

/// Which of the gaps that are large enough a block goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The lowest one.
    First,
    /// The smallest one, of equals the lowest.
    Best,
}

/// What the blocks take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// Up to the highest end.
    pub(super) taken: u64,
    /// How far they reach above an aim, all of them together: less of it is nearer to the aim,
    /// even where the highest end is the same.
    pub(super) above: u64,
}

/// Places blocks, again and again.
#[derive(Debug)]
pub(super) struct Packer<'a> {
    conflicts: &'a Conflicts,
    bytes: Vec<u64>,
    /// What is placed, by offset: where it begins and ends, and what it is.
    placed: Vec<(u64, u64, u32)>,
    /// By block.
    pub(super) offsets: Vec<u64>,
    /// How many placed blocks have been looked at.
    pub(super) steps: u64,
}

impl<'a> Packer<'a> {
    pub(super) fn new(order: &Order<'_>, conflicts: &'a Conflicts) -> Self {
        let bytes = order.all_bytes().to_vec();
        let offsets = vec![0; bytes.len()];
        Self { conflicts, placed: Vec::with_capacity(bytes.len()), bytes, offsets, steps: 0 }
    }

    pub(super) fn bytes(&self, block: u32) -> u64 {
        self.bytes[block as usize]
    }

    /// Places all blocks; `None` as soon as they reach above `aim` by more than `most`, or one of them to `below`.
    pub(super) fn pack(
        &mut self,
        order: &[u32],
        fit: Fit,
        aim: u64,
        (most, below): (u64, u64),
    ) -> Option<Packed> {
        self.placed.clear();
        let mut packed = Packed { taken: 0, above: 0 };
        for &block in order {
            let offset = self.find(block, fit);
            let end = offset + self.bytes(block);
            packed.taken = packed.taken.max(end);
            packed.above += end.saturating_sub(aim);
            if packed.above > most || end >= below {
                return None;
            }
            self.offsets[block as usize] = offset;
            let at = self.placed.partition_point(|&(begin, ..)| begin < offset);
            self.placed.insert(at, (offset, end, block));
        }
        Some(packed)
    }

    /// How many blocks of the latest order have places: where it was given up, the next one is too high.
    pub(super) fn placed(&self) -> usize {
        self.placed.len()
    }

    fn find(&mut self, block: u32, fit: Fit) -> u64 {
        let bytes = self.bytes(block);
        let row = self.conflicts.of(block as usize);
        let mut best: Option<(u64, u64)> = None;
        let mut free_from = 0;
        for (looked, &(begin, end, other)) in self.placed.iter().enumerate() {
            if end <= free_from || !row.has(other) {
                continue;
            }
            if begin >= free_from + bytes {
                let gap = begin - free_from;
                if fit == Fit::First || gap == bytes {
                    self.steps += looked as u64;
                    return free_from;
                }
                if best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, free_from));
                }
            }
            free_from = free_from.max(end);
        }
        self.steps += self.placed.len() as u64;
        best.map_or(free_from, |(_, offset)| offset)
    }
}
