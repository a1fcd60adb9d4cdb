//! What one stream waits for.
//!
//! A free range that the stream looked at and could not take is entered at one marker that is not
//! proven for it. The traversal that proves this node hands the range's token back, and it is
//! entered at the next unproven marker or is free for the stream. So nothing scans the ranges that
//! wait: each is touched once per marker and stream.

use fixedbitset::{Block, FixedBitSet};

use super::dag::NodeIndex;
use super::windows::WORD;

/// A name for whatever waits, given by the heap: a range, and a generation that tells it from
/// later uses of the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The heap's number.
    pub heap: u32,
    /// The row of the range in its heap.
    pub row: u32,
    /// Tells the ranges of one row apart.
    pub generation: u32,
}

/// Ends a list.
const NONE: u32 = u32::MAX;

/// Nodes whose lists' heads lie together. Watched nodes are mostly recent ones, so few pages are in
/// use at a time, and they stay in the cache.
const PAGE: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry {
    token: Token,
    next: u32,
}

/// The lists of one stream, by node.
#[derive(Debug, Default)]
pub struct WatchLists {
    /// The nodes with a list: traversals ask for every node they prove, and nearly all have none.
    watched: FixedBitSet,
    /// The first entry of each node's list, page by page; pages without a list are left out.
    heads: Vec<Option<Box<[u32; PAGE]>>>,
    entries: Vec<Entry>,
    /// The first row of `entries` that is unused; the unused ones are linked like a list.
    vacant: Option<u32>,
}

impl WatchLists {
    /// Enters a token at a node.
    pub fn watch(&mut self, node: NodeIndex, token: Token) {
        let page = node.index() / PAGE;
        if self.heads.len() <= page {
            self.heads.resize(page + 1, None);
        }
        if self.watched.len() <= node.index() {
            // Doubling keeps the cost of growing constant per node.
            self.watched.grow((node.index() + 1).next_power_of_two().max(PAGE));
        }
        self.watched.insert(node.index());
        let page = self.heads[page].get_or_insert_with(|| Box::new([NONE; PAGE]));
        let head = &mut page[node.index() % PAGE];
        let entry = Entry { token, next: *head };
        *head = match self.vacant {
            Some(row) => {
                let next = self.entries[row as usize].next;
                self.vacant = (next != NONE).then_some(next);
                self.entries[row as usize] = entry;
                row
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 watches")
            }
        };
    }

    /// Hands back the tokens at nodes that are proven now: those of one word of a set of nodes, the
    /// latest first.
    #[inline]
    pub fn fire(&mut self, word: usize, nodes: Block, woken: &mut Vec<Token>) {
        let mut fired = nodes & self.watched.as_slice().get(word).copied().unwrap_or(0);
        while fired != 0 {
            let bit = fired.ilog2();
            fired ^= 1 << bit;
            self.empty(NodeIndex::new(word * WORD + bit as usize), woken);
        }
    }

    fn empty(&mut self, node: NodeIndex, woken: &mut Vec<Token>) {
        self.watched.remove(node.index());
        let Some(Some(page)) = self.heads.get_mut(node.index() / PAGE) else { return };
        let mut at = std::mem::replace(&mut page[node.index() % PAGE], NONE);
        while at != NONE {
            let Entry { token, next } = self.entries[at as usize];
            woken.push(token);
            self.entries[at as usize].next = self.vacant.unwrap_or(NONE);
            self.vacant = Some(at);
            at = next;
        }
    }
}
