//! Who waits for which node.
//!
//! A free range whose markers are not all proven for every stream is entered at each of its
//! markers. A stream's traversal that proves a node walks that node's list and nothing else, so
//! that no allocation ever scans all ranges that wait.

use super::dag::NodeIndex;

/// A name for whatever waits, given by the heap: a range, and a generation that tells it from
/// later uses of the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) heap: u32,
    pub(crate) row: u32,
    pub(crate) generation: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    token: Token,
    next: u32,
}

/// Lists of waiting tokens, one a node.
#[derive(Debug, Default)]
pub(crate) struct WatchLists {
    /// The first entry of each node's list; shorter than the DAG where later nodes have none.
    heads: Vec<u32>,
    entries: Vec<Entry>,
    /// The first row of `entries` that is unused.
    vacant: Option<u32>,
}

impl WatchLists {
    /// Enters a token at a node.
    pub(crate) fn watch(&mut self, node: NodeIndex, token: Token) {
        if self.heads.len() <= node.index() {
            self.heads.resize(node.index() + 1, NONE);
        }
        let head = &mut self.heads[node.index()];
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

    /// Calls `keep` with each token at a node, and drops the entries for which it is false.
    #[inline]
    pub(crate) fn visit(&mut self, node: NodeIndex, mut keep: impl FnMut(Token) -> bool) {
        let Some(&head) = self.heads.get(node.index()) else {
            return;
        };
        let mut at = head;
        let mut previous = NONE;
        while at != NONE {
            let Entry { token, next } = self.entries[at as usize];
            if keep(token) {
                previous = at;
            } else {
                match previous {
                    NONE => self.heads[node.index()] = next,
                    row => self.entries[row as usize].next = next,
                }
                self.entries[at as usize].next = self.vacant.unwrap_or(NONE);
                self.vacant = Some(at);
            }
            at = next;
        }
    }
}
