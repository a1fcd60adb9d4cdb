//! The possible users of one block.

use smallvec::SmallVec;

use super::log::{Log, NONE};

/// A part of a stream's log.
#[derive(Clone, Copy)]
pub(in super::super) struct Slice {
    pub stream: u32,
    pub start: u32,
    pub end: u32,
}

/// The possible users of one block.
#[derive(Default)]
pub(in super::super) struct Users {
    pub slices: SmallVec<[Slice; 2]>,
    /// Users that were told apart one by one.
    pub others: Vec<User>,
}

/// A possible user of a block.
#[derive(Clone, Copy)]
pub(in super::super) struct User {
    pub node: u32,
    /// A look at a stream whose terminals all come before it; a number of no look where none is
    /// known.
    pub stream: u32,
    pub look: u32,
}

impl Users {
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty() && self.others.is_empty()
    }

    /// Adds the steps after `after` until `end`.
    pub(super) fn add_steps(
        &mut self,
        log: &Log,
        stream: u32,
        after: u32,
        end: u32,
        new: impl Fn(&u32) -> bool,
    ) {
        let mut start = log.step_end(after);
        let tail = log.tail();
        if after < tail && end == tail {
            let seen = log.step_start(tail)..log.seen_tail.max(log.step_start(tail));
            if !seen.is_empty() {
                let nodes = &log.nodes[seen.start as usize..seen.end as usize];
                self.add_others(stream, nodes.iter().filter(|&node| new(node)));
                self.add_slice(Slice { stream, start, end: seen.start });
                start = seen.end;
            }
        }
        self.add_slice(Slice { stream, start, end: log.step_end(end) });
    }

    pub(super) fn add_others<'a>(&mut self, stream: u32, nodes: impl Iterator<Item = &'a u32>) {
        self.others.extend(nodes.map(|&node| User { node, stream, look: NONE }));
    }

    fn add_slice(&mut self, slice: Slice) {
        if slice.start < slice.end {
            self.slices.push(slice);
        }
    }
}
