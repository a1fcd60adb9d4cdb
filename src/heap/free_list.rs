//! Stream free lists: what one stream of a capture may take.
//!
//! Its own ranges are listed as *runs*: neighbours that all belong to it and are all proven for it, so
//! that a large block can span them without any of them giving up its own free markers. A run is
//! listed once, by its first range, with the size of all. Its two ends know each other.
//!
//! What other streams give back stands in the capture's list of freed ranges, by size class. A stream
//! reads on in it only when its own ranges do not serve, and only in the classes that it needs; by then
//! many are taken again. What is proven for it goes on its free list, what is not waits for a marker.
//! Entries may be out of date and are compared with the range itself on use.

use super::bins::{Bins, FreedRanges, ReadPositions, Sized512};
use super::range::{Given, Pending, Range, RangeId, State};
use super::Heap;

/// What the streams of a capture may take.
#[derive(Debug, Default)]
pub(crate) struct CaptureFreeLists {
    /// By stream; rows appear as they are needed.
    pub(crate) streams: Vec<StreamFreeList>,
    /// Every range that was given back, by its size then and in host order.
    pub(crate) freed: FreedRanges<Given>,
}

/// A run, named by its first range, or an idle range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) id: RangeId,
    pub(crate) bytes: u64,
}

impl Sized512 for Listed {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A range of another stream's, with its size when it was entered: it may have shrunk since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrossStream {
    pub(crate) given: Given,
    pub(crate) bytes: u64,
}

impl Sized512 for CrossStream {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What one stream may take.
#[derive(Debug, Default)]
pub(crate) struct StreamFreeList {
    pub(crate) own: Bins<Listed>,
    /// How many ranges the runs in `own` are made of.
    pub(crate) own_ranges: usize,
    pub(crate) cross_stream: Bins<CrossStream>,
    /// How many entries `cross-stream` had when those out of date were last dropped.
    pub(crate) cross_stream_kept: usize,
    /// How far it has read in `freed`.
    pub(crate) read: ReadPositions,
    /// Ranges of others whose last awaited marker was proven; not sorted in yet.
    pub(crate) newly_proven: Vec<Given>,
}

impl Heap {
    /// The neighbour, if both lie on the same owner's free list. While a block is being carved the
    /// ranges on its two sides follow each other in the table, but are no neighbours.
    pub(super) fn run_mate(&self, id: RangeId, neighbour: Option<RangeId>) -> Option<RangeId> {
        let neighbour = neighbour?;
        let (range, other) = (&self.ranges[id], &self.ranges[neighbour]);
        let touch = range.end() == other.address || other.end() == range.address;
        match (&range.state, &other.state) {
            (State::Pending(a), State::Pending(b))
                if touch && b.in_run && a.owner == b.owner && a.capture == b.capture =>
            {
                Some(neighbour)
            }
            _ => None,
        }
    }

    pub(super) fn pending_of(&mut self, id: RangeId) -> &mut Pending {
        match &mut self.ranges[id].state {
            State::Pending(pending) => pending,
            state => unreachable!("a range in a run is pending, not {state:?}"),
        }
    }

    /// Puts a range on its owner's free list, joined with the runs beside it.
    pub(super) fn join_run(&mut self, id: RangeId) {
        let Range { previous, next, .. } = self.ranges[id];
        let mut first = id;
        let mut last = id;
        if let Some(previous) = self.run_mate(id, previous) {
            first = self.pending_of(previous).run_end;
            self.unlist_run(first);
        }
        if let Some(next) = self.run_mate(id, next) {
            last = self.pending_of(next).run_end;
            self.unlist_run(next);
        }
        let pending = self.pending_of(id);
        pending.in_run = true;
        let (capture, owner) = (pending.capture, pending.owner);
        self.free_list(capture, owner).own_ranges += 1;
        self.list_run(first, last);
    }

    /// Takes a range off its owner's free list; what is left of its run stays.
    pub(super) fn leave_run(&mut self, id: RangeId) {
        let Range { previous, next, .. } = self.ranges[id];
        let previous = self.run_mate(id, previous);
        let next = self.run_mate(id, next);
        // The ends are at hand unless the range lies in the middle.
        let (first, last) = match (previous, next) {
            (None, None) => (id, id),
            (None, Some(_)) => (id, self.pending_of(id).run_end),
            (Some(_), None) => (self.pending_of(id).run_end, id),
            (Some(_), Some(_)) => {
                let mut first = id;
                while let Some(mate) = self.run_mate(first, self.ranges[first].previous) {
                    first = mate;
                }
                (first, self.pending_of(first).run_end)
            }
        };
        self.unlist_run(first);
        let pending = self.pending_of(id);
        pending.in_run = false;
        let (capture, owner) = (pending.capture, pending.owner);
        self.free_list(capture, owner).own_ranges -= 1;
        if let Some(previous) = previous {
            self.list_run(first, previous);
        }
        if let Some(next) = next {
            self.list_run(next, last);
        }
    }

    pub(super) fn list_run(&mut self, first: RangeId, last: RangeId) {
        let bytes = self.ranges[last].end() - self.ranges[first].address;
        self.pending_of(last).run_end = first;
        let pending = self.pending_of(first);
        pending.run_end = last;
        let (capture, owner) = (pending.capture, pending.owner);
        let slot = self.free_list(capture, owner).own.insert(Listed { id: first, bytes });
        self.ranges[first].slot = slot;
    }

    pub(super) fn unlist_run(&mut self, first: RangeId) {
        let slot = self.ranges[first].slot;
        let pending = self.pending_of(first);
        let (capture, owner) = (pending.capture, pending.owner);
        if let Some(moved) = self.free_list(capture, owner).own.remove(slot) {
            self.ranges[moved.id].slot = slot;
        }
    }
}
