//! Runs: neighbours that one stream of a capture owns, all proven for it.
//!
//! A run is listed once, by its first range, with the size of all. Its two ends know each other.

use super::range::{Pending, Range, RangeId, State};
use super::shelf::Listed;
use super::Heap;

impl Heap {
    /// The neighbour, if both lie on the same owner's shelf. While a block is being carved the
    /// ranges on its two sides follow each other in the table, but are no neighbours.
    pub(super) fn run_mate(&self, id: RangeId, neighbour: Option<RangeId>) -> Option<RangeId> {
        let neighbour = neighbour?;
        let (range, other) = (&self.ranges[id], &self.ranges[neighbour]);
        let touch = range.end() == other.address || other.end() == range.address;
        match (&range.state, &other.state) {
            (State::Pending(a), State::Pending(b))
                if touch && b.shelved && a.owner == b.owner && a.capture == b.capture =>
            {
                Some(neighbour)
            }
            _ => None,
        }
    }

    pub(super) fn pending_of(&mut self, id: RangeId) -> &mut Pending {
        match &mut self.ranges[id].state {
            State::Pending(pending) => pending,
            state => unreachable!("a range on a shelf is pending, not {state:?}"),
        }
    }

    /// Puts a range on its owner's shelf, joined with the runs beside it.
    pub(super) fn shelve(&mut self, id: RangeId) {
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
        pending.shelved = true;
        let (capture, owner) = (pending.capture, pending.owner);
        self.shelf(capture, owner).own_ranges += 1;
        self.list_run(first, last);
    }

    /// Takes a range off its owner's shelf; what is left of its run stays.
    pub(super) fn unshelve(&mut self, id: RangeId) {
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
        pending.shelved = false;
        let (capture, owner) = (pending.capture, pending.owner);
        self.shelf(capture, owner).own_ranges -= 1;
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
        let slot = self.shelf(capture, owner).own.insert(Listed { id: first, bytes });
        self.ranges[first].slot = slot;
    }

    pub(super) fn unlist_run(&mut self, first: RangeId) {
        let slot = self.ranges[first].slot;
        let pending = self.pending_of(first);
        let (capture, owner) = (pending.capture, pending.owner);
        if let Some(moved) = self.shelf(capture, owner).own.remove(slot) {
            self.ranges[moved.id].slot = slot;
        }
    }
}
