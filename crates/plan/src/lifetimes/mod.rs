//! When the blocks of a capture are in use, as boxes.
//!
//! The nodes of a capture fall into *chains*: in each, every node is completed before the next one starts, or at least
//! a block that knows the next one to be completed knows it of this one. On S streams that never go back there are S.
//! What a stream knows to be completed is then one number a chain: how many of the chain's first nodes. At its
//! allocation a block *knows* such a point; it *needs* another: the least that holds all its free markers and the
//! terminals of its stream at its allocation. Memory can go from `a` to `b` without an edge being added if and only if
//! `b` knows all that `a` needs, number by number.
//!
//! That is a strict partial order of the blocks that were used: a node that used `a` came after what
//! `a` knew, so `a` needs more than it knows.

mod clocks;
mod nodes;
mod read;
mod reuse;
mod streams;

use regraph_record::journal::BlockNumber;

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifetime {
    /// The block.
    pub block: BlockNumber,
    /// Where it lies.
    pub address: u64,
    /// What it occupies, in bytes.
    pub bytes: u64,
    /// Its own stream, by order of first sight.
    pub stream: u32,
    /// Whether any node can have used it. One that was not used takes part in nothing.
    pub worked: bool,
    /// Whether it was freed with markers that prove something; else it is in use to the end.
    pub freed: bool,
    /// Whether each step of its streams while it was in use went on behind the one before. Where one was set back, or went
    /// on behind an edge that proves nothing, users may have escaped its markers, although what it *needs* says what every
    /// user that was seen needs, and may start before what it *knows* is completed: then it passes its memory to no other
    /// block, and a plan passes none to it.
    pub covered: bool,
}

impl Lifetime {
    /// A block that was used and, if `freed`, given back.
    pub fn new(block: BlockNumber, (address, bytes): (u64, u64), stream: u32, freed: bool) -> Self {
        Self { block, address, bytes, stream, worked: true, freed, covered: true }
    }
}

/// The blocks of a capture, in the order of their allocation.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes {
    chains: usize,
    /// Whether the nodes fall into more chains than are told apart.
    cut: bool,
    blocks: Vec<Lifetime>,
    /// A number for each block and chain.
    known: Vec<u32>,
    needed: Vec<u32>,
}

impl Lifetimes {
    /// No blocks, in a capture whose nodes fall into so many chains.
    pub fn new(chains: usize) -> Self {
        Self { chains, ..Self::default() }
    }

    /// Adds a block.
    ///
    /// # Panics
    /// Panics unless `known` and `needed` have a number for each chain.
    pub fn push(&mut self, block: Lifetime, known: &[u32], needed: &[u32]) {
        assert_eq!((known.len(), needed.len()), (self.chains, self.chains), "a number a chain");
        self.blocks.push(block);
        self.known.extend_from_slice(known);
        self.needed.extend_from_slice(needed);
    }

    /// Whether all is known that the capture proves. Else its nodes fall into more chains than are told
    /// apart, and some blocks count as not freed that were: a least memory for them is too high.
    pub fn is_exact(&self) -> bool {
        !self.cut
    }

    /// How many chains there are.
    pub fn chains(&self) -> usize {
        self.chains
    }

    /// The blocks.
    pub fn blocks(&self) -> &[Lifetime] {
        &self.blocks
    }

    /// What a block's stream knew at its allocation: of each chain, how many first nodes were completed.
    pub fn known(&self, block: usize) -> &[u32] {
        &self.known[block * self.chains..][..self.chains]
    }

    /// What must be known to be completed before another may have the block's memory. Of no meaning
    /// for a block that was not freed.
    pub fn needed(&self, block: usize) -> &[u32] {
        &self.needed[block * self.chains..][..self.chains]
    }

    /// Those of the blocks that are wanted.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&Lifetime) -> bool) -> Self {
        let mut some = Self::new(self.chains);
        some.known.reserve(self.known.len());
        some.needed.reserve(self.needed.len());
        for (number, block) in self.blocks.iter().enumerate().filter(|(_, block)| wanted(block)) {
            some.push(*block, self.known(number), self.needed(number));
        }
        some
    }

    /// Whether all users of `earlier` are completed before any user of `later` starts. A block that was
    /// used never precedes itself.
    pub fn precedes(&self, earlier: usize, later: usize) -> bool {
        let needed = self.needed(earlier).iter().zip(self.known(later));
        self.blocks[earlier].freed && needed.into_iter().all(|(needed, known)| needed <= known)
    }
}
