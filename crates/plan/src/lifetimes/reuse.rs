//! Lifetimes under a policy of reuse.

use super::Lifetimes;
use regraph_driver::StreamHandle;
use regraph_record::index::Map;
use regraph_record::journal::{BlockNumber, Entry, Journal};
use regraph_record::policy::Reuse;

impl Lifetimes {
    /// The same blocks, but without [`Reuse::CrossStream`] a block precedes only those of its own
    /// stream, and with [`Reuse::Deferred`] one that other streams used precedes none.
    ///
    /// `journal` is the one that they were read from.
    #[must_use]
    pub fn held_to(self, journal: &Journal, reuse: Reuse) -> Self {
        if reuse == Reuse::CrossStream {
            return self;
        }
        let shared = shared(journal);
        let mut held = Self::new(self.chains + 2);
        held.cut = self.cut;
        for (row, block) in self.blocks.iter().enumerate() {
            let mut block = *block;
            block.freed &= reuse != Reuse::Deferred || !shared.contains_key(&block.block);
            // Two numbers are both at most another stream's only if it is the same.
            let stream = [block.stream, u32::MAX - block.stream];
            let known = [self.known(row), &stream].concat();
            let needed = [self.needed(row), &stream].concat();
            held.push(block, &known, &needed);
        }
        held
    }
}

/// The blocks that a stream beside their own used.
fn shared(journal: &Journal) -> Map<BlockNumber, ()> {
    let mut own: Map<BlockNumber, StreamHandle> = Map::default();
    let mut shared = Map::default();
    for entry in journal.iter() {
        match entry {
            Entry::Allocate { block, stream, .. } => drop(own.insert(block, stream)),
            Entry::Use { block, stream } | Entry::LastUse { block, stream }
                if own.get(&block).is_some_and(|own| *own != stream) =>
            {
                shared.insert(block, ());
            }
            _ => {}
        }
    }
    shared
}
