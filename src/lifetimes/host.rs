//! Lifetimes in the order of the host.

use super::Lifetimes;
use crate::index::{new_map, Map};
use crate::journal::{BlockNumber, Entry, Journal};

impl Lifetimes {
    /// The same blocks with one number more: how many blocks the host had freed. A block then precedes
    /// only those that were allocated after it had been freed, as whoever walks the journal sees it.
    /// Otherwise it may also precede one that was allocated before, if nothing was launched in between.
    ///
    /// `journal` is the one that they were read from.
    #[must_use]
    pub(crate) fn in_host_order(&self, journal: &Journal) -> Self {
        let (mut allocated, mut freed): (Map<BlockNumber, u32>, Map<BlockNumber, u32>) =
            (new_map(), new_map());
        let mut count: u32 = 0;
        for entry in journal.iter() {
            match entry {
                Entry::Allocate { block, .. } => {
                    allocated.insert(block, count);
                }
                Entry::Free { block } => {
                    count = count.saturating_add(1);
                    freed.insert(block, count);
                }
                _ => {}
            }
        }
        let mut ordered = Self::new(self.chains + 1);
        ordered.cut = self.cut;
        let (mut known, mut needed) = (Vec::new(), Vec::new());
        for (row, block) in self.blocks.iter().enumerate() {
            known.clear();
            known.extend_from_slice(self.known(row));
            known.push(allocated.get(&block.block).copied().unwrap_or(0));
            needed.clear();
            needed.extend_from_slice(self.needed(row));
            needed.push(freed.get(&block.block).copied().unwrap_or(u32::MAX));
            ordered.push(*block, &known, &needed);
        }
        ordered
    }
}
