//! Addresses for a block: such as others have had ([`Space`]), or new ones.
//!
//! Each stream has runs of new addresses of its own and goes along them, and a block begins on a page of
//! its own there, or in the gap at the end of the page before. Of a *layout*'s addresses it is known beforehand what
//! lies where. A *stretch* is whole pages of addresses, with what lies on each of their bytes, and the gaps in them.

use smallvec::SmallVec;

use super::space::{Asker, Space};
use super::{BlockLife, Bound, Physical, PlannedBlock, PlannedCapture, PlannedHeap};
use crate::capture::{Markers, Proof, StreamIndex};
use crate::driver::{CaptureId, Driver, DriverError};
use crate::heap::enter_row;
use crate::heap::place::Placed;
use crate::heap::range::{RangeState, SegmentId, Users};
use crate::heap::segment::{create, unit, Access, HeapSegment};
use crate::heap::Supply;

/// Addresses that a capture reserves at once, in bytes.
const RESERVE: u64 = 64 << 30;

impl PlannedHeap {
    /// Addresses for a block of a capture, mapped to scratch memory, with `limit` bytes more of it at most. `None`
    /// where the limit allows none. After an error nothing has changed but that more addresses may be reserved or
    /// mapped.
    pub(crate) fn place_fresh(
        &mut self,
        driver: &impl Driver,
        capture: CaptureId,
        asker: Asker<'_>,
        bytes: u64,
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let row = self.enter_capture(capture, unit(driver.memory_support()));
        let (stream, before) = (asker.stream, self.reserved());
        let (address, new) = loop {
            let planned = &mut self.captures[row];
            let &mut (at, end) = planned.run(stream);
            let spot = planned.space.find(&asker, bytes, at);
            if spot.1 <= end - at {
                break spot;
            }
            // Some of what is missing is mapped behind the run, or in a new one: then other places may be better.
            let (next, room) = planned.next_place();
            let limit = limit.saturating_sub(self.reserved() - before);
            if next != end || room < spot.1 - (end - at) {
                let address = self.next_address(driver, row, spot.1)?;
                *self.captures[row].run(stream) = (address, address);
            }
            let planned = &mut self.captures[row];
            let place = (planned.run(stream).1, planned.next_place().1);
            let laid = self.lay(driver, row, place, spot.1, limit)?;
            if laid == 0 {
                return Ok(None);
            }
            let planned = &mut self.captures[row];
            planned.take(laid);
            planned.run(stream).1 += laid;
        };
        let planned = &mut self.captures[row];
        planned.run(stream).0 += new;
        let place = (address, bytes);
        let beneath = planned.space.take(stream, place);
        planned.space.forget(&asker, new);
        Ok(Some(self.enter_block(row, place, Some((stream, beneath)))))
    }

    /// Hands a capture a block of `bytes` on memory of its own, which is there at once and stays until no graph's
    /// addresses lie on it; other processes can map it if the heap's is exportable. None where it takes more than
    /// `limit` bytes. After an error more addresses may be reserved, and what the driver could not unmap stays noted.
    pub(crate) fn place_fixed(
        &mut self,
        driver: &impl Driver,
        capture: CaptureId,
        bytes: u64,
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        let size = bytes.next_multiple_of(unit);
        if size > limit {
            return Ok(None);
        }
        let row = self.enter_capture(capture, unit);
        let address = self.next_address(driver, row, size)?;
        let memory = create(driver, self.exportable, size)?;
        let mapped = driver.map(address, size, memory);
        mapped.inspect_err(|_| self.holding.release(driver, memory))?;
        self.captures[row].take(size);
        // The first error is the one to report. What stays mapped goes with the capture's scratch memory.
        driver.set_access(address, size).inspect_err(|_| match driver.unmap(address, size) {
            Ok(()) => self.holding.release(driver, memory),
            Err(_) => {
                self.holding.came(size, 1);
                self.captures[row].scratch.push((size, memory));
                self.captures[row].scratch_at.push((address, size));
            }
        })?;
        let piece = self.enter_piece(size, memory, Some(false));
        let bound = Bound { address, bytes: size, piece, access: Access::Open };
        self.captures[row].bound.push(bound);
        Ok(Some(self.enter_block(row, (address, bytes), None)))
    }

    /// The row of a capture under way, new at its first block.
    fn enter_capture(&mut self, capture: CaptureId, unit: u64) -> usize {
        self.row(capture).unwrap_or_else(|| {
            self.captures.push(PlannedCapture::new(capture, unit));
            self.captures.len() - 1
        })
    }

    /// Has the memory at a place stay behind its addresses, where it is fixed. False where it is not: then it is
    /// exchanged for other memory.
    pub(crate) fn keep_exported(&mut self, (address, bytes): (u64, u64)) -> bool {
        let here = |bound: &&Bound| {
            let offset = address.checked_sub(bound.address);
            offset.is_some_and(|offset| bytes <= bound.bytes.saturating_sub(offset))
        };
        let mut bound = self.captures.iter().flat_map(|planned| &planned.bound);
        let row = bound.find(here).map(|bound| bound.piece);
        let piece = row.and_then(|row| self.pieces[row].as_mut());
        let fixed = piece.and_then(|piece| piece.fixed.as_mut());
        fixed.map(|exported| *exported = true).is_some()
    }

    /// Whether any of its memory has to stay behind its addresses.
    pub(crate) fn has_exported(&self) -> bool {
        let mut pieces = self.pieces.iter().flatten();
        pieces.any(|piece| piece.fixed == Some(true))
    }

    pub(super) fn enter_piece(
        &mut self,
        bytes: u64,
        memory: crate::driver::MemoryHandle,
        fixed: Option<bool>,
    ) -> usize {
        self.holding.came(bytes, 1);
        let number = self.next;
        self.next += 1;
        let piece = Physical { number, bytes, memory: Some(memory), fixed };
        enter_row(&mut self.pieces, piece)
    }

    /// Enters a block of a capture, with its stream and what had to be proven for it unless it is fixed.
    fn enter_block(
        &mut self,
        row: usize,
        place: (u64, u64),
        owner: Option<(StreamIndex, Markers)>,
    ) -> Placed {
        let (address, bytes) = place;
        let planned = &mut self.captures[row];
        planned.blocks.insert(address, PlannedBlock { bytes, owner, life: BlockLife::Live });
        planned.held += bytes;
        planned.peak = planned.peak.max(planned.held);
        // Its segment is its capture's.
        let no_segment = SegmentId::new(0);
        let range = self.ranges.insert(place, no_segment, (None, None), RangeState::Allocated);
        Placed { range, address, bytes, users: Users::Eager }
    }

    /// Where the next addresses begin, so many that `bytes` of them are reserved.
    fn next_address(
        &mut self,
        driver: &impl Driver,
        row: usize,
        bytes: u64,
    ) -> Result<u64, DriverError> {
        if self.captures[row].next_place().1 < bytes {
            let open =
                |reserve| HeapSegment::open(driver, bytes, Supply::Growing { reserve }, false);
            // Where so many fail, addresses are scarce.
            let segment = open(RESERVE).or_else(|_| open(bytes))?;
            self.captures[row].segments.push(segment);
        }
        Ok(self.captures[row].next_place().0)
    }

    /// A block of `bytes` at the addresses that a layout has for it: `offset` bytes behind the layout's first address,
    /// where the whole layout has `span` bytes of addresses, in whole pages. They are mapped to scratch memory, of
    /// which the driver is asked for `limit` bytes more at most. `None` where the limit allows none, and where what lay
    /// there is not proven to be done with. After an error nothing has changed but that more addresses may be reserved
    /// or mapped.
    pub(crate) fn place_laid(
        &mut self,
        driver: &impl Driver,
        capture: CaptureId,
        asker: Asker<'_>,
        ((offset, span), bytes): ((u64, u64), u64),
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        let row = self.enter_capture(capture, unit);
        if self.captures[row].laid.is_none() {
            let start = self.next_address(driver, row, span)?;
            self.captures[row].take(span);
            let (end, space) = (start + span, Space::new(unit));
            self.captures[row].laid = Some(Laid { start, mapped: start, end, space });
        }
        let before = self.reserved();
        let place = loop {
            let Some(laid) = &self.captures[row].laid else { return Ok(None) };
            let &Laid { start, mapped, end, .. } = laid;
            if start + offset + bytes <= mapped {
                break (start + offset, bytes);
            }
            let limit = limit.saturating_sub(self.reserved() - before);
            let more = self.lay(driver, row, (mapped, end - mapped), bytes, limit)?;
            if more == 0 {
                return Ok(None);
            }
            if let Some(laid) = &mut self.captures[row].laid {
                laid.space.open(mapped, more);
                laid.mapped += more;
            }
        };
        let Some(laid) = &mut self.captures[row].laid else { return Ok(None) };
        if !laid.space.is_for(&asker, place) {
            return Ok(None);
        }
        let beneath = laid.space.take(asker.stream, place);
        Ok(Some(self.enter_block(row, place, Some((asker.stream, beneath)))))
    }
}

/// Addresses for one layout. No other blocks lie there.
#[derive(Debug)]
pub(super) struct Laid {
    start: u64,
    /// So far scratch memory lies behind them.
    mapped: u64,
    end: u64,
    space: Space,
}

impl Laid {
    /// What is free here, where an address is of these.
    pub(super) fn space_of(&mut self, address: u64) -> Option<&mut Space> {
        (self.start..self.end).contains(&address).then_some(&mut self.space)
    }
}

/// Whole pages: one, or more without a live block.
#[derive(Debug)]
pub(super) struct Stretch {
    /// Whose block it had first; `None` where there was none.
    owner: Option<StreamIndex>,
    /// All its bytes, by address: one part at least. What is live lies between what is free.
    parts: SmallVec<[Part; 1]>,
}

#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    /// What must be proven to have it; none while a block lies there.
    given: Option<Markers>,
}

impl Part {
    fn is_free(&self) -> bool {
        self.given.is_some()
    }

    fn is_for(&self, proof: Proof<'_>) -> bool {
        self.given.as_ref().is_some_and(|markers| proof.covers(markers))
    }

    fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

impl Stretch {
    /// Addresses without a live block: a stream that gets them must have proven `given`.
    pub(super) fn idle(
        (start, end): (u64, u64),
        owner: Option<StreamIndex>,
        given: Markers,
    ) -> Self {
        let parts = SmallVec::from_buf([Part { start, end, given: Some(given) }]);
        Self { owner, parts }
    }

    /// Where it begins and ends.
    #[inline]
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.parts[0].start, self.parts[self.parts.len() - 1].end)
    }

    pub(super) fn owner(&self) -> Option<StreamIndex> {
        self.owner
    }

    /// It is a stream's from now on.
    pub(super) fn owned_by(self, owner: StreamIndex) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// What has been given back, each with what must be proven to have it.
    pub(super) fn given(&self) -> impl Iterator<Item = &Markers> {
        self.parts.iter().filter_map(|part| part.given.as_ref())
    }

    /// Whether there is more than one proof to be had for parts of it.
    pub(super) fn is_mixed(&self) -> bool {
        self.parts.len() > 1
    }

    /// How many live blocks have a part of it.
    pub(super) fn live(&self) -> usize {
        self.parts.iter().filter(|part| !part.is_free()).count()
    }

    /// Whether a stream may have all of it.
    pub(super) fn is_for(&self, proof: Proof<'_>) -> bool {
        self.parts.iter().all(|part| part.is_for(proof))
    }

    /// Whether a stream may have all that lies there of some addresses.
    pub(super) fn is_free(&self, (from, to): (u64, u64), proof: Proof<'_>) -> bool {
        let mut here = self.parts.iter().filter(|part| part.start < to && part.end > from);
        here.all(|part| part.is_for(proof))
    }

    /// How many bytes at its beginning are free for a stream.
    pub(super) fn start_gap(&self, proof: Proof<'_>) -> u64 {
        self.parts.iter().take_while(|part| part.is_for(proof)).map(Part::bytes).sum()
    }

    /// How many bytes at its end are free for a stream.
    pub(super) fn end_gap(&self, proof: Proof<'_>) -> u64 {
        self.parts.iter().rev().take_while(|part| part.is_for(proof)).map(Part::bytes).sum()
    }

    /// Whether no live block lies at its beginning.
    pub(super) fn begins_free(&self) -> bool {
        self.parts.first().is_some_and(Part::is_free)
    }

    /// Whether no live block lies at its end.
    pub(super) fn ends_free(&self) -> bool {
        self.parts.last().is_some_and(Part::is_free)
    }

    /// The first address of a gap at which a stream may have `bytes`.
    pub(super) fn fit(
        &self,
        (start, end): (u64, u64),
        bytes: u64,
        proof: Proof<'_>,
    ) -> Option<u64> {
        let mut begin = None;
        let gap = &self.parts[self.first_from(start)..self.first_from(end)];
        gap.iter().find_map(|part| {
            if !part.is_for(proof) {
                begin = None;
                return None;
            }
            let begin = *begin.get_or_insert(part.start);
            (part.end - begin >= bytes).then_some(begin)
        })
    }

    /// Cuts off what lies behind an address, where no live block does.
    pub(super) fn split_off(&mut self, at: u64) -> Self {
        self.part_at(at);
        let parts = self.parts.drain(self.first_from(at)..).collect();
        Self { owner: self.owner, parts }
    }

    /// A block lies in a gap from now on; adds what had to be proven for it. Returns the gap.
    pub(super) fn occupy(&mut self, (from, to): (u64, u64), beneath: &mut Markers) -> (u64, u64) {
        // It parts one into three at most.
        self.parts.reserve(2);
        self.part_at(from);
        self.part_at(to);
        let (first, behind) = (self.first_from(from), self.first_from(to));
        let here = self.parts.drain(first..behind);
        here.for_each(|part| add(beneath, part.given.as_slice()));
        self.parts.insert(first, Part { start: from, end: to, given: None });
        self.gap_around(first)
    }

    /// A block is gone from there. Returns the gap that there is then, if it was there.
    pub(super) fn vacate(&mut self, (from, to): (u64, u64), given: &Markers) -> Option<(u64, u64)> {
        let mut at = self.parts.binary_search_by_key(&from, |part| part.start).ok()?;
        self.parts.get(at).filter(|part| part.end == to && !part.is_free())?;
        let same = |part: &Part| part.given.as_ref() == Some(given);
        let mut gone = Part { start: from, end: to, given: Some(given.clone()) };
        if let Some(after) = self.parts.get(at + 1).filter(|part| same(part)) {
            gone.end = after.end;
            self.parts.remove(at + 1);
        }
        if let Some(before) = at.checked_sub(1).filter(|&before| same(&self.parts[before])) {
            gone.start = self.parts[before].start;
            self.parts.remove(at);
            at = before;
        }
        self.parts[at] = gone;
        Some(self.gap_around(at))
    }

    /// What lies side by side around a part without a live block.
    fn gap_around(&self, at: usize) -> (u64, u64) {
        let Part { start, end, .. } = self.parts[at];
        let before = self.parts[..at].iter().rev().take_while(|part| part.is_free()).last();
        let after = self.parts[at + 1..].iter().take_while(|part| part.is_free()).last();
        (before.map_or(start, |part| part.start), after.map_or(end, |part| part.end))
    }

    /// Parts what is around an address there.
    fn part_at(&mut self, at: u64) {
        let next = self.first_from(at);
        let around = next.checked_sub(1).map(|around| &mut self.parts[around]);
        let Some(around) = around.filter(|around| around.end > at) else { return };
        let rest = Part { start: at, end: around.end, given: around.given.clone() };
        around.end = at;
        self.parts.insert(next, rest);
    }

    /// Which part is the first that begins at an address or behind it.
    fn first_from(&self, at: u64) -> usize {
        self.parts.partition_point(|part| part.start < at)
    }
}

/// A gap in a page of a stream, as gaps are sorted: by stream, size and address. None where the page is no stream's.
pub(super) fn gap(
    owner: Option<StreamIndex>,
    (start, end): (u64, u64),
) -> Option<(usize, u64, u64)> {
    owner.filter(|_| start < end).map(|owner| (owner.index(), end - start, start))
}

pub(super) fn add<'a>(all: &mut Markers, given: impl IntoIterator<Item = &'a Markers>) {
    for marker in given.into_iter().flatten() {
        if !all.contains(marker) {
            all.push(*marker);
        }
    }
}
