//! Addresses for a block: such as others have had ([`Space`]), or new ones.
//!
//! Each stream has runs of new addresses of its own and goes along them, and a block begins on a page of
//! its own there, or in the gap at the end of the page before. Of a *layout*'s addresses it is known beforehand what
//! lies where.
//!
//! Scratch memory is a few pieces, each mapped over and over (design/plans.md, "Scratch memory"): the largest piece that
//! is there is mapped wherever it fits, and a larger one is made as soon as it may be.

use super::space::{Asker, Space};
use super::{BlockLife, Bound, Physical, PlannedBlock, PlannedCapture, PlannedHeap};
use crate::capture::{Markers, StreamIndex};
use crate::driver::{CaptureId, Driver, DriverError};
use crate::heap::enter_row;
use crate::heap::place::Placed;
use crate::heap::range::{RangeState, SegmentId, Users};
use crate::heap::segment::{create, unit, Access, HeapSegment};
use crate::heap::Supply;

/// Sizes of scratch pieces, in units of the device's granularity.
const SIZES: [u64; 4] = [1, 4, 16, 64];

/// Addresses that a capture reserves at once, in bytes: the `n`-th of a pool, if it has more than so many, as many `n`-ths.
const RESERVE: u64 = 64 << 30;
const ROOMY: u64 = 16;

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
        let range = self.ranges.append(place, no_segment, None, RangeState::Allocated);
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
            let segment = open(RESERVE / ROOMY.max(self.captures.len() as u64) * ROOMY)
                .or_else(|_| open(bytes))?;
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

    /// Maps scratch memory at `address`, at most `bytes`, for a block of which `asked` are new, and says how much.
    /// After an error of the driver's nothing has changed, but that what it could not unmap again stays noted.
    fn lay(
        &mut self,
        driver: &impl Driver,
        row: usize,
        (address, bytes): (u64, u64),
        asked: u64,
        limit: u64,
    ) -> Result<u64, DriverError> {
        let unit = unit(driver.memory_support());
        let planned = &mut self.captures[row];
        let most = planned.peak.max(planned.held + asked);
        let PlannedCapture { scratch: pieces, scratch_at: mapped, .. } = planned;
        if let Some(row) = mapped.iter().rposition(|it| it.0 == address) {
            // What could neither be opened nor unmapped.
            driver.unmap(address, mapped[row].1)?;
            mapped.swap_remove(row);
        }
        let held: u64 = pieces.iter().map(|(size, _)| size).sum();
        let pays = |size: &u64| *size <= limit && held + size <= most;
        let mut sizes = SIZES.iter().rev().map(|units| units * unit);
        let wanted = sizes.find(pays).unwrap_or(unit).min(bytes);
        let fits = pieces.iter().copied().filter(|&(size, _)| size <= bytes);
        let fits = fits.max_by_key(|&(size, _)| size);
        let (size, memory) = match fits {
            Some(piece) if piece.0 >= wanted => piece,
            smaller => {
                let create = |size: u64| (size <= limit).then(|| driver.create(size));
                let made = match create(wanted) {
                    Some(Err(error)) if error.is_out_of_memory() && smaller.is_none() => {
                        (unit, create(unit))
                    }
                    made => (wanted, made),
                };
                match (smaller, made) {
                    (_, (size, Some(Ok(memory)))) => {
                        pieces.push((size, memory));
                        self.holding.came(size, 1);
                        (size, memory)
                    }
                    // What is there does too, in more mappings.
                    (Some(piece), _) => piece,
                    (None, (_, Some(Err(error)))) => return Err(error),
                    (None, (_, None)) => return Ok(0),
                }
            }
        };
        driver.map(address, size, memory)?;
        mapped.push((address, size));
        driver.set_access(address, size).inspect_err(|_| {
            // If this fails too, the next attempt begins with it, or it goes with the rest.
            if driver.unmap(address, size).is_ok() {
                mapped.pop();
            }
        })?;
        Ok(size)
    }

    /// Takes the scratch memory of a capture away before its plan is carried out, and returns how often it was mapped.
    pub(crate) fn clear_scratch_of(
        &mut self,
        driver: &impl Driver,
        capture: CaptureId,
    ) -> Result<usize, DriverError> {
        let Some(row) = self.row(capture) else { return Ok(0) };
        let mapped = self.captures[row].scratch_at.len();
        self.clear_scratch(driver, row)?;
        Ok(mapped)
    }

    /// Takes all scratch memory of a capture away. What the driver does not take stays for the next attempt.
    pub(super) fn clear_scratch(
        &mut self,
        driver: &impl Driver,
        row: usize,
    ) -> Result<(), DriverError> {
        let planned = &mut self.captures[row];
        while let Some(&(address, bytes)) = planned.scratch_at.last() {
            driver.unmap(address, bytes)?;
            planned.scratch_at.pop();
        }
        while let Some((bytes, memory)) = planned.scratch.pop() {
            self.holding.went(bytes, 1);
            self.holding.release(driver, memory);
        }
        Ok(())
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
