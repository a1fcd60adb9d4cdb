//! Memory that goes back to the driver: for a while, or for good (design/allocator.md, "Suspension" and "Giving back").
//!
//! A piece goes and comes in single steps, each one call of the driver; from a failed one either way goes on.

use super::range::{Range, RangeId, RangeState, Users};
use super::segment::HeapSegment;
use super::{Heap, MemoryMove};
use crate::driver::{Driver, DriverError, MemoryHandle};

/// How much of a heap's memory is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// All of it.
    #[default]
    Whole,
    /// It is shut, and what is there keeps what it holds: all of it while a sleep only copies, else all but what the
    /// driver has refused to give back.
    Short,
    /// Some of it has gone, or all. What is still there may hold anything: the contents are lost, or its region keeps
    /// them.
    Suspended,
}

impl Presence {
    /// Whether nothing may be handed out, since there may be no memory behind the addresses.
    pub(crate) fn is_shut(self) -> bool {
        self != Self::Whole
    }

    /// Hands nothing out from now on.
    pub(crate) fn shut(&mut self) {
        if *self == Self::Whole {
            *self = Self::Short;
        }
    }
}

/// What a heap holds of the driver's memory.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    presence: Presence,
    /// What the driver holds for it: in how many pieces, and its bytes.
    reserved: (usize, u64),
    /// Bytes that the driver has until the heap is resumed.
    suspended: u64,
    /// What was given back and no stream may take yet: in how many places, and its bytes.
    waiting: (usize, u64),
    /// Memory that is mapped nowhere and could not be released.
    orphans: Vec<MemoryHandle>,
}

impl Holding {
    read!(presence: Presence, suspended: u64, waiting: (usize, u64));

    pub(crate) fn presence_mut(&mut self) -> &mut Presence {
        &mut self.presence
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.1
    }

    pub(crate) fn pieces(&self) -> usize {
        self.reserved.0
    }

    pub(super) fn came(&mut self, bytes: u64, pieces: usize) {
        self.reserved = (self.reserved.0 + pieces, self.reserved.1 + bytes);
    }

    pub(super) fn went(&mut self, bytes: u64, pieces: usize) {
        self.reserved = (self.reserved.0 - pieces, self.reserved.1 - bytes);
    }

    pub(super) fn suspend(&mut self, bytes: u64) {
        self.suspended += bytes;
    }

    pub(super) fn resume(&mut self, bytes: u64) {
        self.suspended -= bytes;
    }

    pub(super) fn begin_wait(&mut self, bytes: u64) {
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + bytes);
    }

    pub(super) fn end_wait(&mut self, bytes: u64) {
        self.waiting = (self.waiting.0 - 1, self.waiting.1 - bytes);
    }

    /// Releases a handle that is mapped nowhere. What the driver does not take is kept for the next time.
    pub(super) fn release(&mut self, driver: &impl Driver, memory: MemoryHandle) {
        self.orphans.extend(driver.release(memory).is_err().then_some(memory));
    }

    /// Releases the handles that could not be released before. What fails again is kept; returns the first error.
    pub(super) fn release_orphans(&mut self, driver: &impl Driver) -> Result<(), DriverError> {
        let orphans = std::mem::take(&mut self.orphans).into_iter();
        let released = orphans.map(|it| driver.release(it).inspect_err(|_| self.orphans.push(it)));
        released.fold(Ok(()), Result::and)
    }
}

/// How many pieces may still go or come in one call; another call goes on with the rest.
pub(crate) struct Pieces(u32);

impl Pieces {
    pub(crate) const fn new(most: u32) -> Self {
        Self(most)
    }

    /// However many there are.
    pub(crate) fn all() -> Self {
        Self::new(u32::MAX)
    }

    /// Takes one, if one is left.
    pub(super) fn take(&mut self) -> bool {
        self.0.checked_sub(1).map(|left| self.0 = left).is_some()
    }
}

/// Keeps what pieces of memory hold while they are away. A piece is an address and a size in bytes. It is asked and
/// told with the engine's lock held, and so waits for nothing.
pub(crate) trait Keeper {
    /// Whether all that the piece holds and that is to be kept has been read: it is unmapped then. Where not, the call
    /// ends, and another call goes on.
    fn may_leave(&mut self, _address: u64, _bytes: u64) -> bool {
        true
    }

    /// The piece is mapped again, with any contents.
    fn came(&mut self, _address: u64, _bytes: u64) {}
}

/// Keeps nothing.
pub(crate) struct NothingKept;

impl Keeper for NothingKept {}

impl Heap {
    /// How many ranges were given back and may still be in use, as far as the table says.
    pub(crate) fn unsettled(&self) -> usize {
        self.holding.waiting().0 + self.stream_ordered_ranges()
    }

    /// Whether every piece of its memory is mapped.
    pub(crate) fn is_whole(&self) -> bool {
        self.segments.iter().flatten().all(HeapSegment::is_open)
    }

    /// Gives all memory of a heap that is shut back to the driver and keeps the addresses, as far as `keeper` and
    /// `left` let it. No block of it may be in use. Returns whether all has gone. After an error of the driver's what
    /// had gone is gone, and the heap is suspended if that was anything that was mapped; calling again goes on.
    pub(crate) fn suspend(
        &mut self,
        driver: &impl Driver,
        keeper: &mut dyn Keeper,
        left: &mut Pieces,
    ) -> Result<bool, DriverError> {
        debug_assert!(self.is_shut(), "or a block could be placed in what goes");
        let _ = self.release_stuck(driver);
        let there = self.mapped_pieces();
        let step = |segment: &mut HeapSegment, gone: &mut Vec<(u64, u64)>| {
            segment.suspend(driver, keeper, left, gone)
        };
        let done = self.each_segment(false, step);
        if self.mapped_pieces() < there {
            self.holding.presence = Presence::Suspended;
        }
        done
    }

    /// Tells of each piece that is there, of a heap that is suspended: what it holds may be anything.
    pub(crate) fn tell_there(&self, keeper: &mut dyn Keeper) {
        let pieces = self.segments.iter().flatten().flat_map(HeapSegment::open_pieces);
        pieces.for_each(|(address, bytes)| keeper.came(address, bytes));
    }

    fn mapped_pieces(&self) -> usize {
        self.segments.iter().flatten().flat_map(HeapSegment::open_pieces).count()
    }

    /// Gets all memory back that [`Heap::suspend`] gave back, at the same addresses, as far as `left` lets it;
    /// neighbours may come as one piece. Returns whether all has come. After an error of the driver's what had come is
    /// here; calling again goes on.
    pub(crate) fn resume(
        &mut self,
        driver: &impl Driver,
        keeper: &mut dyn Keeper,
        left: &mut Pieces,
    ) -> Result<bool, DriverError> {
        self.each_segment(true, |segment, got| segment.resume(driver, keeper, left, got))
    }

    /// Everything that a suspended heap still holds: address, size and segment, neighbours of one segment together.
    pub(crate) fn still_held(&self) -> Vec<((u64, u64), usize)> {
        let mut still: Vec<((u64, u64), usize)> = Vec::new();
        for (number, segment) in self.segments.iter().enumerate() {
            let held: Vec<_> = segment.iter().flat_map(HeapSegment::held).collect();
            still.extend(runs(&held).map(|(place, _)| (place, number)));
        }
        still
    }

    /// Runs a step on each segment until one fails or does not come to its end, and counts what that moved. Returns
    /// whether all have.
    fn each_segment(
        &mut self,
        came: bool,
        mut step: impl FnMut(&mut HeapSegment, &mut Vec<(u64, u64)>) -> Result<bool, DriverError>,
    ) -> Result<bool, DriverError> {
        for row in 0..self.segments.len() {
            let Some(segment) = self.segments[row].as_mut() else { continue };
            let how = MemoryMove::new(came, segment.is_growable());
            let mut moved = Vec::new();
            let done = step(segment, &mut moved);
            for (place, pieces) in runs(&moved) {
                self.note_change(how, place, pieces);
                match came {
                    true => self.holding.resume(place.1),
                    false => self.holding.suspend(place.1),
                }
            }
            if !done? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives back what the driver would not take before, and addresses of segments where nothing is mapped, but for the
    /// one that grows. What fails again is kept; returns the first error.
    pub(crate) fn release_stuck(&mut self, driver: &impl Driver) -> Result<(), DriverError> {
        let mut result = self.holding.release_orphans(driver);
        for (number, row) in self.segments.iter_mut().enumerate() {
            let grows = self.growing.is_some_and(|it| it.index() == number);
            result = result.and(row.as_mut().map_or(Ok(()), |it| it.free_stuck(driver)));
            let empty = row.take_if(|it| it.is_empty() && !grows);
            // Addresses that cannot be given back cost no memory.
            let _ = empty.map(|it| it.unreserve(driver));
        }
        result
    }

    /// Every range that memory can be given back from, in no promised order: how many placements ago it became idle,
    /// its address, and itself. None of a heap that is shut.
    pub(crate) fn surplus(&self) -> Vec<(u64, u64, RangeId)> {
        let mut ids = match self.is_shut() {
            true => Vec::new(),
            false => self.ids_where(|state| state.idle_users() == Some(Users::Eager)),
        };
        ids.retain(|&id| {
            let range = &self.ranges[id];
            let segment = self.segments[range.segment().index()].as_ref();
            segment.is_some_and(|segment| segment.whole(range.address(), range.end()) > 0)
        });
        let surplus = ids.into_iter().map(|id| (id, &self.ranges[id]));
        surplus.map(|(id, range)| (self.clock - range.stamp(), range.address(), id)).collect()
    }

    /// Gives whole pieces of a range of [`Heap::surplus`] back until `most` bytes are gone or the driver refuses. Returns
    /// how many bytes went; the rest of the range is as it was.
    pub(crate) fn give_back(&mut self, driver: &impl Driver, id: RangeId, most: u64) -> u64 {
        debug_assert!(self.ranges[id].state().idle_users() == Some(Users::Eager));
        let ((address, bytes), segment) = (self.ranges[id].place(), self.ranges[id].segment());
        let row = self.segments[segment.index()].as_mut().expect("ranges lie in segments");
        if !row.is_growable() {
            if row.dismantle(driver, &mut self.holding).is_err() {
                return 0;
            }
            self.unlist(id);
            self.ranges.remove(id);
            self.segments[segment.index()] = None;
            self.note_change(MemoryMove::SegmentBack, (address, bytes), 1);
            return bytes;
        }
        let range = (address, address + bytes);
        let (gone, pieces, _) = row.unmap(driver, range, most, &mut self.holding);
        if gone.0 < gone.1 {
            self.note_change(MemoryMove::Unmap, (gone.0, gone.1 - gone.0), pieces);
            self.make_hole(id, gone);
        }
        gone.1 - gone.0
    }

    /// Turns a part of an idle range, which is unmapped now, into a hole.
    fn make_hole(&mut self, id: RangeId, (start, end): (u64, u64)) {
        self.unlist(id);
        let head = (self.ranges[id].address() < start).then_some(id);
        let hole = head.map_or(id, |head| self.split(head, start));
        let tail = (end < self.ranges[hole].end()).then(|| self.split(hole, end));
        self.ranges.set_state(hole, RangeState::Hole);
        self.ranges.set_block(hole, None);
        head.into_iter().chain(tail).for_each(|rest| self.list(rest));
        self.holes.push(hole);
        self.join_holes(hole);
    }

    /// Joins a hole with the holes beside it; one at the end of what is mapped is no hole any more.
    pub(super) fn join_holes(&mut self, mut id: RangeId) {
        let is_hole = |range: &Range| matches!(range.state(), RangeState::Hole);
        if let Some(next) = self.ranges[id].next().filter(|&next| is_hole(&self.ranges[next])) {
            self.forget_hole(next);
            self.absorb_next(id, next);
        }
        if let Some(previous) = self.ranges[id].previous() {
            if is_hole(&self.ranges[previous]) {
                self.forget_hole(id);
                self.absorb_next(previous, id);
                id = previous;
            }
        }
        if self.ranges[id].next().is_none() {
            let range = &self.ranges[id];
            let (bytes, previous, segment) = (range.bytes(), range.previous(), range.segment());
            self.forget_hole(id);
            self.ranges.remove(id);
            let segment = self.segment(segment);
            segment.retreat(bytes);
            segment.set_last(previous);
        }
    }

    pub(super) fn forget_hole(&mut self, id: RangeId) {
        self.holes.retain(|&hole| hole != id);
    }
}

/// Neighbours in address order, together: where they begin, their size, and how many they are.
pub(super) fn runs(places: &[(u64, u64)]) -> impl Iterator<Item = ((u64, u64), usize)> + '_ {
    let runs = places.chunk_by(|(address, bytes), (next, _)| address + bytes == *next);
    runs.map(|run| ((run[0].0, run.iter().map(|it| it.1).sum()), run.len()))
}
