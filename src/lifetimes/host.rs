//! Lifetimes as a capture's host and its policy have them.

use super::Lifetimes;
use crate::driver::StreamHandle;
use crate::index::{new_map, Map};
use crate::journal::{BlockNumber, Entry, Journal};
use crate::policy::Reuse;

/// What the host did with a block. Moments are counts of the blocks freed so far.
struct Told {
    stream: StreamHandle,
    allocated: u32,
    freed: u32,
    /// Whether a stream beside its own used it.
    shared: bool,
}

impl Lifetimes {
    /// The same blocks with a few numbers more, so that a block precedes only those that were allocated
    /// after it had been freed and, but for [`Reuse::CrossStream`], on the same stream. With
    /// [`Reuse::Deferred`] one that other streams used precedes none.
    ///
    /// Without the first a block that is freed after the other's allocation precedes that if nothing was
    /// launched in between; the checker takes two live blocks in one place for an error all the same.
    ///
    /// `journal` is the one that they were read from.
    #[must_use]
    pub(crate) fn held_to(&self, journal: &Journal, reuse: Reuse) -> Self {
        let told = tell(journal);
        let across = reuse == Reuse::CrossStream;
        let mut held = Self::new(self.chains + if across { 1 } else { 3 });
        held.cut = self.cut;
        let (mut known, mut needed) = (Vec::new(), Vec::new());
        for (row, block) in self.blocks.iter().enumerate() {
            let (mut allocated, mut freed) = (0, u32::MAX);
            if let Some(told) = told.get(&block.block) {
                allocated = told.allocated;
                let deferred = reuse == Reuse::Deferred && told.shared;
                freed = if deferred { u32::MAX } else { told.freed };
            }
            known.clear();
            known.extend_from_slice(self.known(row));
            known.push(allocated);
            needed.clear();
            needed.extend_from_slice(self.needed(row));
            needed.push(freed);
            if !across {
                // Both are at most another stream's only if it is the same.
                let stream = [block.stream, u32::MAX - 1 - block.stream];
                known.extend(stream);
                needed.extend(stream);
            }
            held.push(*block, &known, &needed);
        }
        held
    }
}

fn tell(journal: &Journal) -> Map<BlockNumber, Told> {
    let mut told: Map<BlockNumber, Told> = new_map();
    let mut count: u32 = 0;
    for entry in journal.iter() {
        match entry {
            Entry::Allocate { block, stream, .. } => {
                let new = Told { stream, allocated: count, freed: u32::MAX, shared: false };
                told.insert(block, new);
            }
            Entry::Use { block, stream } | Entry::LastUse { block, stream } => {
                if let Some(told) = told.get_mut(&block) {
                    told.shared |= stream != told.stream;
                }
            }
            Entry::Free { block } => {
                count = count.saturating_add(1);
                if let Some(told) = told.get_mut(&block) {
                    told.freed = count;
                }
            }
            _ => {}
        }
    }
    told
}
