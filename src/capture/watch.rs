//! What one stream waits for.
//!
//! A free range that the stream looked at and could not take is entered at one marker that is not
//! proven for it. The traversal that proves this node hands the range's token back, and it is
//! entered at the next unproven marker or is free for the stream. So nothing scans the ranges that
//! wait: each is touched once per marker and stream.

use fixedbitset::FixedBitSet;

use super::dag::NodeIndex;
use crate::index::{new_map, Map};

/// A name for whatever waits, given by the heap: a range, and a generation that tells it from
/// later uses of the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) heap: u32,
    pub(crate) row: u32,
    pub(crate) generation: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    token: Token,
    next: Option<u32>,
}

/// The lists of one stream, by node.
#[derive(Debug)]
pub(crate) struct WatchLists {
    /// The nodes with a list: traversals ask for every node they prove, and nearly all have none.
    watched: FixedBitSet,
    heads: Map<NodeIndex, u32>,
    entries: Vec<Entry>,
    /// The first row of `entries` that is unused.
    vacant: Option<u32>,
}

impl WatchLists {
    pub(crate) fn new() -> Self {
        Self { watched: FixedBitSet::new(), heads: new_map(), entries: Vec::new(), vacant: None }
    }

    /// Enters a token at a node.
    pub(crate) fn watch(&mut self, node: NodeIndex, token: Token) {
        self.watched.grow_and_insert(node.index());
        let row = match self.vacant {
            Some(row) => {
                self.vacant = self.entries[row as usize].next;
                self.entries[row as usize] = Entry { token, next: None };
                row
            }
            None => {
                self.entries.push(Entry { token, next: None });
                u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 watches")
            }
        };
        self.entries[row as usize].next = self.heads.insert(node, row);
    }

    /// Hands back the tokens at a node that is proven now.
    #[inline]
    pub(crate) fn fire(&mut self, node: NodeIndex, woken: &mut Vec<Token>) {
        if self.watched.contains(node.index()) {
            self.empty(node, woken);
        }
    }

    fn empty(&mut self, node: NodeIndex, woken: &mut Vec<Token>) {
        self.watched.remove(node.index());
        let mut at = self.heads.remove(&node);
        while let Some(row) = at {
            let Entry { token, next } = self.entries[row as usize];
            woken.push(token);
            self.entries[row as usize].next = self.vacant;
            self.vacant = Some(row);
            at = next;
        }
    }
}
