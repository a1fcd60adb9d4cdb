//! Giving memory back to the driver that no work uses any more, without waiting for anything.
//!
//! Only idle ranges that no graph uses are touched, and of those only whole pieces, since the
//! driver unmaps no parts. Where a piece was, a hole stays in the table of ranges; growth fills
//! holes again.

use super::range::{Range, RangeId, RangeState};
use super::segment::HeapSegment;
use super::users::Users;
use super::{Change, Heap};
use crate::driver::{Driver, DriverError};

/// A range with memory in it that can be given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surplus {
    pub(crate) id: RangeId,
    /// Of the pieces that lie wholly in it.
    pub(crate) bytes: u64,
    /// When it became idle, by the heap's count of placements.
    pub(crate) since: u64,
    pub(crate) address: u64,
}

impl Heap {
    /// Every range that memory can be given back from, in no promised order. None of a suspended heap:
    /// its ranges have no memory in them.
    pub(crate) fn surplus(&self) -> Vec<Surplus> {
        if self.presence().is_shut() {
            return Vec::new();
        }
        let surplus = self
            .ids_where(|state| state.idle_users() == Some(Users::Eager))
            .into_iter()
            .map(|id| {
                let range = &self.ranges[id];
                let bytes = self.segment_of(range).whole(range.address, range.end());
                Surplus { id, bytes, since: range.since, address: range.address }
            });
        surplus.filter(|surplus| surplus.bytes > 0).collect()
    }

    /// Gives whole pieces of an idle range back until `most` bytes are gone. Returns how many bytes
    /// went; after an error the rest of the range is as it was.
    pub(crate) fn give_back<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        id: RangeId,
        most: u64,
    ) -> (u64, Result<(), DriverError>) {
        debug_assert!(self.ranges[id].state.idle_users() == Some(Users::Eager));
        if self.presence().is_shut() {
            return (0, Ok(()));
        }
        let Range { address, bytes, segment, .. } = self.ranges[id];
        let number = segment.index();
        let Some(row) = self.segments[number].as_mut() else { return (0, Ok(())) };
        if !row.growable {
            if row.whole(address, address + bytes) == 0 {
                return (0, Ok(()));
            }
            if let Err(error) = row.dismantle(driver, &mut self.orphans) {
                return (0, Err(error));
            }
            self.unlist(id);
            self.ranges.remove(id);
            self.segments[number] = None;
            self.note_change(Change { mapped: false, whole: true, address, bytes, pieces: 1 });
            return (bytes, Ok(()));
        }
        let range = (address, address + bytes);
        let held = row.pieces();
        let (gone, result) = match row.unmap(driver, range, most, &mut self.orphans) {
            Ok(gone) => (gone, Ok(())),
            Err((first, until, error)) => ((first, until), Err(error)),
        };
        let pieces = held - row.pieces();
        if gone.0 < gone.1 {
            let (address, bytes) = (gone.0, gone.1 - gone.0);
            self.note_change(Change { mapped: false, whole: false, address, bytes, pieces });
            self.make_hole(id, gone);
        }
        (gone.1 - gone.0, result)
    }

    /// Releases the handles that could not be released before. What fails again is kept.
    pub(crate) fn release_orphans<D: Driver + ?Sized>(&mut self, driver: &D) {
        self.orphans.retain(|&memory| driver.release(memory).is_err());
    }

    /// Turns a part of an idle range, which is unmapped now, into a hole.
    fn make_hole(&mut self, id: RangeId, (start, end): (u64, u64)) {
        self.unlist(id);
        let Range { address, bytes, segment, previous, next, since, .. } = self.ranges[id];
        let idle = self.ranges[id].state;
        self.ranges.set_state(id, RangeState::Hole);
        let hole = &mut self.ranges[id];
        (hole.address, hole.bytes, hole.block) = (start, end - start, None);
        if address < start {
            let sides = (previous, Some(id));
            let head = self.ranges.insert((address, start - address), segment, sides, idle);
            self.ranges[head].since = since;
            self.list(head);
        }
        if end < address + bytes {
            let sides = (Some(id), next);
            let tail = self.ranges.insert((end, address + bytes - end), segment, sides, idle);
            self.ranges[tail].since = since;
            if next.is_none() {
                self.segment(segment).last = Some(tail);
            }
            self.list(tail);
        }
        self.holes.push(id);
        self.join_holes(id);
    }

    /// Joins a hole with the holes beside it; one at the end of what is mapped is no hole any more.
    fn join_holes(&mut self, mut id: RangeId) {
        let is_hole = |range: &Range| matches!(range.state, RangeState::Hole);
        if let Some(next) = self.ranges[id].next.filter(|&next| is_hole(&self.ranges[next])) {
            self.forget_hole(next);
            self.absorb_next(id, next);
        }
        if let Some(previous) = self.ranges[id].previous {
            if is_hole(&self.ranges[previous]) {
                self.forget_hole(id);
                self.absorb_next(previous, id);
                id = previous;
            }
        }
        if self.ranges[id].next.is_none() {
            let Range { bytes, segment, previous, .. } = self.ranges[id];
            self.forget_hole(id);
            self.ranges.remove(id);
            let segment = self.segment(segment);
            segment.mapped -= bytes;
            segment.last = previous;
        }
    }

    pub(super) fn forget_hole(&mut self, id: RangeId) {
        self.holes.retain(|&hole| hole != id);
    }

    fn segment_of(&self, range: &Range) -> &HeapSegment {
        self.segments[range.segment.index()].as_ref().expect("ranges lie in segments")
    }
}
