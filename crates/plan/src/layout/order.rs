//! Which blocks may lie over one another.

use super::GRANULE;
use crate::lifetimes::Lifetimes;
use regraph_record::policy::Reuse;

/// The blocks, and who comes after whom.
#[derive(Debug)]
pub(super) struct Order<'a> {
    lifetimes: &'a Lifetimes,
    /// How many blocks had been allocated at each block's free.
    freed: Vec<u32>,
    across: bool,
}

impl<'a> Order<'a> {
    pub(super) fn new(lifetimes: &'a Lifetimes, frees: &[Option<u32>], reuse: Reuse) -> Self {
        assert_eq!(lifetimes.blocks().len(), frees.len(), "an entry for each block");
        let blocks = lifetimes.blocks().iter().zip(frees);
        let freed = blocks
            .map(|(block, free)| free.filter(|_| block.freed || !block.worked).unwrap_or(u32::MAX))
            .collect();
        Self { lifetimes, freed, across: reuse == Reuse::CrossStream }
    }

    pub(super) fn len(&self) -> usize {
        self.freed.len()
    }

    /// What a block takes, in bytes: whole granules.
    pub(super) fn bytes(&self, block: usize) -> u64 {
        self.lifetimes.blocks()[block].bytes.next_multiple_of(GRANULE)
    }

    /// Whether no other block gets a block's memory.
    pub(super) fn is_kept(&self, block: usize) -> bool {
        self.freed[block] == u32::MAX
    }

    /// Whether `later`, which was allocated after `earlier`, may have its memory.
    #[inline]
    pub(super) fn precedes(&self, earlier: usize, later: usize) -> bool {
        if self.freed[earlier] as usize > later {
            return false;
        }
        let blocks = self.lifetimes.blocks();
        if !self.across && blocks[earlier].stream != blocks[later].stream {
            return false;
        }
        if blocks[earlier].worked {
            return self.lifetimes.precedes(earlier, later);
        }
        // It leaves its place as it found it: a block that knows what it knew may have what lay there.
        let known = self.lifetimes.known(earlier).iter().zip(self.lifetimes.known(later));
        known.into_iter().all(|(earlier, later)| earlier <= later)
    }
}

/// The pairs of blocks that may not lie over one another.
#[derive(Debug)]
pub(super) struct Conflicts {
    /// Words of a row.
    words: usize,
    bits: Vec<u64>,
}

impl Conflicts {
    pub(super) fn new(order: &Order<'_>) -> Self {
        let words = order.len().div_ceil(64);
        let mut bits = vec![0; words * order.len()];
        for later in 0..order.len() {
            for earlier in 0..later {
                if !order.precedes(earlier, later) {
                    bits[later * words + earlier / 64] |= 1 << (earlier % 64);
                    bits[earlier * words + later / 64] |= 1 << (later % 64);
                }
            }
        }
        Self { words, bits }
    }

    /// The most bytes found of blocks none of which may lie over another: no layout takes less. `order`
    /// says which blocks are tried first.
    pub(super) fn least(&self, blocks: &Order<'_>, order: &[u32]) -> u64 {
        /// So many blocks are begun with; fewer where there are many.
        const SEEDS: usize = 200;
        let seeds = (100_000 / blocks.len().max(1)).min(SEEDS);
        let mut most = 0;
        for &seed in order.iter().take(seeds) {
            let mut rest = self.of(seed as usize).0.to_vec();
            let mut held = blocks.bytes(seed as usize);
            for &other in order {
                if Row(&rest).has(other) {
                    held += blocks.bytes(other as usize);
                    let row = self.of(other as usize).0;
                    rest.iter_mut().zip(row).for_each(|(rest, row)| *rest &= row);
                }
            }
            most = most.max(held);
        }
        most
    }

    /// Those of one block.
    #[inline]
    pub(super) fn of(&self, block: usize) -> Row<'_> {
        Row(&self.bits[block * self.words..][..self.words])
    }
}

/// The blocks that one may not lie over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a>(&'a [u64]);

impl Row<'_> {
    #[inline]
    pub(super) fn has(self, other: u32) -> bool {
        self.0[other as usize / 64] >> (other % 64) & 1 == 1
    }

    /// All of them.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let words = self.0.to_vec();
        let all = words.len() * 64;
        (0..all).filter(move |&other| words[other / 64] >> (other % 64) & 1 == 1)
    }
}
