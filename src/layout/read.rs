//! A layout from the record of a capture.

use std::collections::HashMap;

use super::Layout;
use crate::journal::{BlockNumber, Entry, Journal};
use crate::lifetimes::Lifetimes;
use crate::policy::{Programmatic, Reuse};

impl Layout {
    /// A layout for the blocks of a capture, by its record so far, that `keep` says yes to by their
    /// addresses. The policies are those under which it is to be followed.
    pub fn read(
        journal: &Journal,
        programmatic: Programmatic,
        reuse: Reuse,
        keep: impl Fn(u64) -> bool,
    ) -> Self {
        let all = Lifetimes::read(journal, programmatic);
        let mut lifetimes = Lifetimes::new(all.chains());
        let mut rows: HashMap<BlockNumber, usize> = HashMap::new();
        for (block, lifetime) in all.blocks().iter().enumerate() {
            if keep(lifetime.address) {
                rows.insert(lifetime.block, lifetimes.blocks().len());
                lifetimes.push(*lifetime, all.known(block), all.needed(block));
            }
        }
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
        Self::new(&lifetimes, &frees, reuse)
    }
}
