//! Addresses for a block: such as others have had ([`Space`]), or new ones.
//!
//! Each stream has runs of new addresses of its own and goes along them, and a block begins on a page of
//! its own there, or in the gap at the end of the page before.

use super::space::Asker;
use super::{Bound, Fixed, Live, Physical, PlannedCapture, PlannedHeap, Run};
use crate::capture::{Markers, StreamIndex};
use crate::driver::{CaptureId, Driver, DriverError};
use crate::heap::place::Placed;
use crate::heap::range::{RangeState, SegmentId};
use crate::heap::segment::{create, unit, HeapSegment, SegmentShape};
use crate::heap::users::Users;

/// Addresses that a capture reserves at once, in bytes.
const RESERVE: u64 = 64 << 30;

impl PlannedHeap {
    /// Addresses for a block of a capture, mapped to scratch memory, with `limit` bytes more of it at most.
    /// `None` where the limit allows none.
    ///
    /// # Errors
    /// The driver's. Nothing has changed then but that more addresses may be reserved or mapped.
    pub(crate) fn place_fresh<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        asker: Asker<'_>,
        bytes: u64,
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        let stream = asker.stream;
        let before = self.reserved;
        let spot = loop {
            let planned = self.enter_capture(capture, unit);
            let &mut Run { at, end } = planned.run(stream);
            let spot = planned.space.find(&asker, bytes, at);
            if spot.new <= end - at {
                break spot;
            }
            // What is missing may come elsewhere: then other places may be better.
            let limit = limit.saturating_sub(self.reserved - before);
            if !self.lengthen(driver, capture, stream, spot.new, limit)? {
                return Ok(None);
            }
        };
        let planned = self.enter_capture(capture, unit);
        planned.run(stream).at += spot.new;
        let place = (spot.address, bytes);
        let beneath = planned.space.take(stream, place);
        planned.space.forget(&asker, spot.new);
        Ok(Some(self.enter_block(capture, place, Some((stream, beneath)))))
    }

    /// Hands a capture a block of `bytes` on memory of its own, which is there at once and stays until no graph's
    /// addresses lie on it; other processes can map it if it is `exportable`. None where it takes more than `limit`
    /// bytes.
    ///
    /// # Errors
    /// The driver's. Nothing has changed then but that more addresses may be reserved.
    pub(crate) fn place_fixed<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        (bytes, exportable): (u64, bool),
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        let size = bytes.next_multiple_of(unit);
        if size > limit {
            return Ok(None);
        }
        self.enter_capture(capture, unit);
        let address = self.next_address(driver, capture, size)?;
        self.capture_of(capture).taken += size;
        let memory = create(driver, exportable, size)?;
        let mapped = driver.map(address, size, memory);
        let mapped = mapped.and_then(|()| {
            driver.set_access(address, size).inspect_err(|_| {
                // The first error is the one to report.
                let _ = driver.unmap(address, size);
            })
        });
        if let Err(error) = mapped {
            if driver.release(memory).is_err() {
                self.orphans.push(memory);
            }
            return Err(error);
        }
        let fixed = Some(Fixed { exportable, exported: false });
        let piece = self.enter_piece(size, memory, fixed);
        self.bindings.piece(piece).mappings = 1;
        self.enter_capture(capture, unit).bound.push(Bound {
            address,
            bytes: size,
            piece,
            there: true,
            open: true,
        });
        Ok(Some(self.enter_block(capture, (address, bytes), None)))
    }

    /// What is known of a capture under way, new at its first block.
    pub(super) fn enter_capture(&mut self, capture: CaptureId, unit: u64) -> &mut PlannedCapture {
        let bindings = &mut self.bindings;
        let known = bindings.captures.iter().position(|planned| planned.capture == capture);
        let row = known.unwrap_or_else(|| {
            bindings.captures.push(PlannedCapture::new(capture, unit));
            bindings.captures.len() - 1
        });
        &mut bindings.captures[row]
    }

    /// What is known of a capture under way that has a block.
    fn capture_of(&mut self, capture: CaptureId) -> &mut PlannedCapture {
        self.bindings.capture_mut(capture).expect("entered before")
    }

    /// Has the memory at a place stay behind its addresses, where it is fixed. False where it is not: then it is
    /// exchanged for other memory.
    pub(crate) fn keep_exported(&mut self, (address, bytes): (u64, u64)) -> bool {
        let bindings = &mut self.bindings;
        let here = |bound: &&Bound| {
            let offset = address.checked_sub(bound.address);
            bound.open && offset.is_some_and(|offset| bytes <= bound.bytes.saturating_sub(offset))
        };
        let mut bound = bindings.captures.iter().flat_map(|planned| &planned.bound);
        let row = bound.find(here).map(|bound| bound.piece);
        let piece = row.and_then(|row| bindings.pieces[row].as_mut());
        let fixed = piece.and_then(|piece| piece.fixed.as_mut());
        fixed.map(|fixed| fixed.exported = true).is_some()
    }

    /// Whether any of its memory has to stay behind its addresses.
    pub(crate) fn has_exported(&self) -> bool {
        let mut pieces = self.bindings.pieces.iter().flatten();
        pieces.any(|piece| piece.fixed.is_some_and(|fixed| fixed.exported))
    }

    pub(super) fn enter_piece(
        &mut self,
        bytes: u64,
        memory: crate::driver::MemoryHandle,
        fixed: Option<Fixed>,
    ) -> usize {
        self.reserved += bytes;
        self.handles += 1;
        let bindings = &mut self.bindings;
        let number = bindings.next;
        bindings.next += 1;
        let piece = Some(Physical { number, bytes, memory: Some(memory), mappings: 0, fixed });
        match bindings.pieces.iter().position(Option::is_none) {
            Some(row) => {
                bindings.pieces[row] = piece;
                row
            }
            None => {
                bindings.pieces.push(piece);
                bindings.pieces.len() - 1
            }
        }
    }

    /// Enters a block, with its stream and what had to be proven for it unless it is fixed.
    pub(super) fn enter_block(
        &mut self,
        capture: CaptureId,
        place: (u64, u64),
        owner: Option<(StreamIndex, Markers)>,
    ) -> Placed {
        let (address, bytes) = place;
        let planned = self.capture_of(capture);
        planned.live.insert(address, Live { bytes, owner, freed: false });
        planned.held += bytes;
        planned.peak = planned.peak.max(planned.held);
        // Its segment is its capture's.
        let no_segment = SegmentId::new(0);
        let range = self.ranges.insert(place, no_segment, (None, None), RangeState::Allocated);
        Placed { range, address, bytes, users: Users::Eager }
    }

    /// Maps some of what is missing of `bytes` behind where a run is, in the run or in a new one. Returns
    /// whether anything was.
    fn lengthen<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        stream: StreamIndex,
        bytes: u64,
        limit: u64,
    ) -> Result<bool, DriverError> {
        let planned = self.capture_of(capture);
        let &mut Run { at, end } = planned.run(stream);
        let missing = bytes - (end - at);
        let behind = planned.next_address() == end && planned.room() >= missing;
        if !behind {
            let address = self.next_address(driver, capture, bytes)?;
            *self.capture_of(capture).run(stream) = Run { at: address, end: address };
        }
        let planned = self.capture_of(capture);
        let (end, room) = (planned.run(stream).end, planned.room());
        let laid = self.lay(driver, capture, (end, room), bytes, limit)?;
        let planned = self.capture_of(capture);
        planned.taken += laid;
        planned.run(stream).end += laid;
        Ok(laid > 0)
    }

    /// Where the next addresses begin, so many that `bytes` of them are reserved.
    pub(super) fn next_address<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        bytes: u64,
    ) -> Result<u64, DriverError> {
        if self.capture_of(capture).room() < bytes {
            let shape = SegmentShape::Growable { reserve: RESERVE };
            let segment = match HeapSegment::open(driver, bytes, shape, false) {
                // Addresses are scarce there.
                Err(_) => HeapSegment::open(
                    driver,
                    bytes,
                    SegmentShape::Growable { reserve: bytes },
                    false,
                )?,
                Ok(segment) => segment,
            };
            let planned = self.capture_of(capture);
            planned.segments.push(segment);
            planned.taken = 0;
        }
        Ok(self.capture_of(capture).next_address())
    }
}
