//! Addresses for a block.
//!
//! Each stream has a run of addresses of its own and goes along it. A block begins on a page of its
//! own, unless it is small, or saves a page, and begins on the last page of the stream's latest block: then both
//! are on one page, which stays in use from the first block's start to the last block's end. So that is done
//! only where the latest block is live or not proven to be done with, and the two overlap in time anyway.

use super::{Bound, Free, Live, Physical, PlannedCapture, PlannedHeap, Run};
use crate::capture::{Markers, Moment, Proof, StreamIndex};
use crate::driver::{CaptureId, Driver, DriverError};
use crate::heap::place::Placed;
use crate::heap::range::{SegmentId, State};
use crate::heap::segment::{unit, Segment, Shape};

/// Addresses that a capture reserves at once, in bytes.
const RESERVE: u64 = 64 << 30;

/// What addresses a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the end of its stream's run.
    New,
    /// Such as the stream had before.
    Again,
    /// On memory of its own.
    Fixed,
}

/// Who asks for addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedRequester {
    pub(crate) capture: CaptureId,
    pub(crate) stream: StreamIndex,
    /// When the stream last came to follow others.
    pub(crate) learned: Moment,
    /// The most memory to get for it, in bytes.
    pub(crate) limit: u64,
}

impl PlannedHeap {
    /// Addresses for a block of a capture, mapped to scratch memory. `None` where the limit allows
    /// none.
    ///
    /// # Errors
    /// The driver's. Nothing has changed then but that more addresses may be reserved or mapped.
    pub(crate) fn place_fresh<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        requester: PlannedRequester,
        bytes: u64,
        proof: Proof<'_>,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        let run = self.enter_capture(requester.capture, unit).run(requester.stream);
        let latest = run.free.last_mut();
        let fits = |free: &&mut Free| free.bytes >= bytes && free.since >= requester.learned;
        if let Some(free) = latest.filter(fits).filter(|free| proof.covers(&free.markers)) {
            let address = free.address;
            free.address += bytes.next_multiple_of(unit);
            free.bytes -= bytes.next_multiple_of(unit);
            let taken_until = free.address;
            run.free.pop_if(|free| free.bytes == 0);
            // The rest of the last page is this block's now, even if the order is lost by which the
            // block before it was proven.
            if taken_until - unit < run.at && run.at < taken_until {
                run.at = taken_until;
            }
            return Ok(Some(self.enter_block(requester, (address, bytes), unit, Place::Again)));
        }
        let room = run.at.next_multiple_of(unit) - run.at;
        let pages = |bytes: u64| bytes.div_ceil(unit);
        let (on_both, alone) = (pages(bytes.saturating_sub(room)), pages(bytes));
        // Of what is smaller than two pages too much would be left over.
        let saves =
            on_both < alone || on_both == alone && bytes < 2 * unit && !bytes.is_multiple_of(unit);
        let beside = room > 0 && saves && (run.last.is_some() || !proof.covers(&run.markers));
        let skipped = if beside { 0 } else { room };
        if !self.lengthen(driver, requester, skipped + bytes, unit)? {
            return Ok(None);
        }
        let run = self.enter_capture(requester.capture, unit).run(requester.stream);
        // A run that begins anew begins on a page.
        run.at = if beside { run.at } else { run.at.next_multiple_of(unit) };
        let address = run.at;
        run.at += bytes;
        self.follow(requester, address, unit);
        Ok(Some(self.enter_block(requester, (address, bytes), unit, Place::New)))
    }

    /// The same on memory of its own, which is there at once and stays until no graph's addresses lie
    /// on it.
    ///
    /// # Errors
    /// The driver's. Nothing has changed then but that more addresses may be reserved.
    pub(crate) fn place_fixed<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        requester: PlannedRequester,
        bytes: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        let size = bytes.next_multiple_of(unit);
        if size > requester.limit {
            return Ok(None);
        }
        self.enter_capture(requester.capture, unit);
        let address = self.next_address(driver, requester.capture, size)?;
        self.capture_of(requester.capture).taken += size;
        let memory = driver.create(size)?;
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
        let piece = self.enter_piece(size, memory, true);
        self.bindings.piece(piece).mappings = 1;
        self.enter_capture(requester.capture, unit).bound.push(Bound {
            address,
            bytes: size,
            piece,
            there: true,
            output: false,
        });
        Ok(Some(self.enter_block(requester, (address, bytes), unit, Place::Fixed)))
    }

    /// What is known of a capture under way, new at its first block.
    fn enter_capture(&mut self, capture: CaptureId, unit: u64) -> &mut PlannedCapture {
        let bindings = &mut self.bindings;
        let known = bindings.captures.iter().position(|planned| planned.capture == capture);
        let row = known.unwrap_or_else(|| {
            bindings.captures.push(PlannedCapture::new(capture, unit));
            bindings.captures.len() - 1
        });
        &mut bindings.captures[row]
    }

    /// The same, of a capture that has one.
    fn capture_of(&mut self, capture: CaptureId) -> &mut PlannedCapture {
        self.bindings.capture_mut(capture).expect("entered before")
    }

    pub(super) fn enter_piece(
        &mut self,
        bytes: u64,
        memory: crate::driver::MemoryHandle,
        fixed: bool,
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

    fn enter_block(
        &mut self,
        requester: PlannedRequester,
        place: (u64, u64),
        unit: u64,
        how: Place,
    ) -> Placed {
        let (address, bytes) = place;
        let planned = self.enter_capture(requester.capture, unit);
        let run = (how != Place::Fixed).then_some(requester.stream.index());
        planned.live.insert(address, Live { bytes, run, followed: false, freed: false });
        planned.held += bytes;
        planned.peak = planned.peak.max(planned.held);
        // Its segment is its capture's.
        let no_segment = SegmentId::new(0);
        let range = self.ranges.insert(place, no_segment, (None, None), State::Allocated);
        if how == Place::New {
            let run = self.enter_capture(requester.capture, unit).run(requester.stream);
            (run.last, run.markers) = (Some(range), Markers::new());
        }
        Placed { range, address, bytes, graphs: false }
    }

    /// Notes that a block begins at an address, for the one whose last page that is.
    fn follow(&mut self, requester: PlannedRequester, address: u64, unit: u64) {
        let page = address / unit * unit;
        if page == address {
            return;
        }
        let planned = self.enter_capture(requester.capture, unit);
        let before = planned.live.range_mut(..address).next_back();
        if let Some((_, live)) = before.filter(|(start, live)| *start + live.bytes == address) {
            live.followed = true;
        }
        // It may be free already, though not proven.
        let free = &mut planned.run(requester.stream).free;
        for pages in free.iter_mut().filter(|free| free.address + free.bytes == page + unit) {
            pages.bytes -= unit;
        }
        free.retain(|free| free.bytes > 0);
    }

    /// Sees to it that `bytes` behind where a run is are mapped, in the run or in a new one.
    fn lengthen<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        requester: PlannedRequester,
        bytes: u64,
        unit: u64,
    ) -> Result<bool, DriverError> {
        let PlannedRequester { capture, stream, limit, .. } = requester;
        let before = self.reserved;
        loop {
            let planned = self.capture_of(capture);
            let &mut Run { at, end, .. } = planned.run(stream);
            if end - at >= bytes {
                return Ok(true);
            }
            let missing = (bytes - (end - at)).next_multiple_of(unit);
            let behind = planned.next_address() == end && planned.room() >= missing;
            let address = if behind {
                end
            } else {
                let wanted = bytes.next_multiple_of(unit);
                let address = self.next_address(driver, capture, wanted)?;
                let run = self.capture_of(capture).run(stream);
                (run.at, run.end, run.last) = (address, address, None);
                run.markers.clear();
                address
            };
            let wanted = self.capture_of(capture).room();
            let limit = limit.saturating_sub(self.reserved - before);
            let laid = self.lay(driver, capture, (address, wanted), unit, limit)?;
            if laid == 0 {
                return Ok(false);
            }
            let planned = self.capture_of(capture);
            planned.taken += laid;
            planned.run(stream).end += laid;
        }
    }

    /// Where the next addresses begin, so many that `bytes` of them are reserved.
    fn next_address<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        bytes: u64,
    ) -> Result<u64, DriverError> {
        if self.capture_of(capture).room() < bytes {
            let shape = Shape::Growable { reserve: RESERVE };
            let segment = match Segment::open(driver, bytes, shape, false) {
                // Addresses are scarce there.
                Err(_) => Segment::open(driver, bytes, Shape::Growable { reserve: bytes }, false)?,
                Ok(segment) => segment,
            };
            let planned = self.capture_of(capture);
            planned.segments.push(segment);
            planned.taken = 0;
        }
        Ok(self.capture_of(capture).next_address())
    }
}
