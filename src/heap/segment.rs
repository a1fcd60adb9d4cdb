//! Segments: where a heap's memory comes from.
//!
//! With virtual memory management a segment is one reserved range of addresses into which pieces of
//! physical memory are mapped. One that can grow is filled from the front, so that growth extends
//! its last free range; pieces that are given back leave holes, which growth fills again. Without
//! virtual memory management, or where segments are fixed, each is got whole and given back whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::range::RangeId;
use super::sharing::Export;
use super::suspend::{Absent, Holding};
use crate::driver::{
    Driver, DriverError, ErrorKind, MemoryHandle, MemorySupport, Source, StreamHandle,
};

/// Unit of allocation where mapping is not supported, in bytes.
const ALLOCATION_UNIT: u64 = 2 << 20;

/// Memory from the driver.
#[derive(Debug, Default)]
pub(crate) struct HeapSegment {
    pub(crate) address: u64,
    /// Reserved, or allocated, in bytes.
    pub(crate) bytes: u64,
    /// Up to where memory is in use, or was mapped, in bytes from the front.
    pub(crate) mapped: u64,
    /// Mapped behind that, as the end of the last piece, in bytes.
    pub(super) premapped: u64,
    /// The range that ends at `mapped`.
    pub(crate) last: Option<RangeId>,
    /// What is mapped, by address; empty for an allocation.
    pub(super) pieces: BTreeMap<u64, Piece>,
    /// What is to be mapped again when the heap is resumed, by address.
    pub(super) absent: BTreeMap<u64, Absent>,
    /// What was mapped in vain and could not be unmapped, by address.
    stuck: Vec<(u64, Piece)>,
    /// Whether pieces may come and go.
    pub(crate) growable: bool,
    /// Whether it is one allocation, of the driver's or of a source of the host's.
    allocated: bool,
    /// The source, and how many bytes it was asked for.
    given: Option<(Arc<dyn Source>, u64)>,
    /// Whether its pieces are made for other processes to map.
    exportable: bool,
    /// Pieces that other processes were shown, by address.
    pub(super) exports: BTreeMap<u64, Arc<Export>>,
    /// Pieces that stay behind their addresses, since others have them by handles of their own.
    pub(super) staying: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) bytes: u64,
    pub(super) memory: MemoryHandle,
}

/// How a segment is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentShape {
    /// Reserves this many bytes of addresses where that is possible, and grows in them.
    Growable { reserve: u64 },
    /// Is had whole.
    Fixed,
    /// Is had whole, as an allocation of the driver's.
    Allocated,
}

/// How far apart memory can be had, in bytes.
pub(crate) fn unit(support: MemorySupport) -> u64 {
    match support {
        MemorySupport::Mapped { granularity } => granularity,
        MemorySupport::Allocated => ALLOCATION_UNIT,
    }
}

/// Gets memory for a piece.
pub(super) fn create(
    driver: &impl Driver,
    exportable: bool,
    bytes: u64,
) -> Result<MemoryHandle, DriverError> {
    if exportable {
        driver.create_exportable(bytes)
    } else {
        driver.create(bytes)
    }
}

/// What addresses of segments are multiples of: blocks in them are.
const ALIGNMENT: u64 = 512;

impl HeapSegment {
    /// A segment of so many bytes from a source of the host's.
    pub(crate) fn ask(
        source: &Arc<dyn Source>,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Self, DriverError> {
        let address = source.allocate(bytes, stream)?;
        let end = address.checked_add(bytes.next_multiple_of(ALIGNMENT));
        if address == 0 || address % ALIGNMENT != 0 || end.is_none() {
            // The address is the error to report; what the source does not take back is its own.
            let _ = source.free(address, bytes);
            let text = format!("{address:#x} is not an address that blocks of 512 bytes can have");
            return Err(DriverError::new("Source::allocate", 0, ErrorKind::Other(text)));
        }
        let given = Some((Arc::clone(source), bytes));
        Ok(Self { mapped: bytes, allocated: true, given, ..Self::reserved(address, bytes) })
    }

    /// Gives an allocation back.
    fn free(&self, driver: &impl Driver) -> Result<(), DriverError> {
        match &self.given {
            Some((source, bytes)) => source.free(self.address, *bytes),
            None => driver.free(self.address),
        }
    }

    /// Addresses with nothing behind them.
    pub(super) fn reserved(address: u64, bytes: u64) -> Self {
        Self { address, bytes, ..Self::default() }
    }

    /// A segment that can hold at least `bytes`. One that can grow is empty at first.
    pub(crate) fn open(
        driver: &impl Driver,
        bytes: u64,
        shape: SegmentShape,
        exportable: bool,
    ) -> Result<Self, DriverError> {
        let segment = |address, bytes, mapped, growable, allocated| Self {
            growable,
            allocated,
            exportable,
            mapped,
            ..Self::reserved(address, bytes)
        };
        match (driver.memory_support(), shape) {
            (MemorySupport::Mapped { granularity }, SegmentShape::Growable { reserve }) => {
                let bytes = bytes.max(reserve).next_multiple_of(granularity);
                Ok(segment(driver.reserve(bytes)?, bytes, 0, true, false))
            }
            (MemorySupport::Mapped { granularity }, SegmentShape::Fixed) => {
                let bytes = bytes.next_multiple_of(granularity);
                let mut fixed = segment(driver.reserve(bytes)?, bytes, 0, false, false);
                if let Err(error) = fixed.extend(driver, bytes) {
                    // Its addresses are of no use now; failing to give them back loses nothing else.
                    let _ = driver.unreserve(fixed.address, fixed.bytes);
                    return Err(error);
                }
                Ok(fixed)
            }
            (MemorySupport::Allocated, SegmentShape::Growable { .. } | SegmentShape::Fixed) => {
                let bytes = bytes.next_multiple_of(ALLOCATION_UNIT);
                Ok(segment(driver.allocate(bytes)?, bytes, bytes, false, true))
            }
            (_, SegmentShape::Allocated) => {
                Ok(segment(driver.allocate(bytes)?, bytes, bytes, false, true))
            }
        }
    }

    /// Bytes that can still come into use behind what is.
    pub(crate) fn room(&self) -> u64 {
        self.bytes - self.mapped
    }

    /// How many pieces the driver holds for it.
    pub(crate) fn pieces(&self) -> usize {
        if self.allocated {
            1
        } else {
            self.pieces.len()
        }
    }

    /// Address and size of everything that the driver holds for it.
    pub(crate) fn held(&self) -> Vec<(u64, u64)> {
        if self.allocated {
            return vec![(self.address, self.bytes)];
        }
        let pieces = self.pieces.iter().map(|(&address, piece)| (address, piece.bytes));
        let absent = self.absent.iter().filter(|(_, absent)| absent.is_held());
        let mut held: Vec<_> =
            pieces.chain(absent.map(|(&address, absent)| (address, absent.bytes))).collect();
        held.sort_unstable();
        held
    }

    /// Maps `bytes` more, a multiple of the granularity, behind what is mapped. On failure nothing has changed.
    pub(crate) fn extend(&mut self, driver: &impl Driver, bytes: u64) -> Result<(), DriverError> {
        self.map(driver, self.address + self.mapped, bytes)?;
        self.mapped += bytes;
        Ok(())
    }

    /// Gets memory for a piece.
    pub(super) fn create(
        &self,
        driver: &impl Driver,
        bytes: u64,
    ) -> Result<MemoryHandle, DriverError> {
        create(driver, self.exportable, bytes)
    }

    /// Takes a piece that was unmapped out of the table. What other processes have of it they keep.
    pub(super) fn remove_piece(&mut self, address: u64) {
        self.pieces.remove(&address);
        self.exports.remove(&address);
        self.staying.remove(&address);
    }

    /// Whether it is one allocation of the driver's.
    pub(super) fn is_allocated(&self) -> bool {
        self.allocated
    }

    /// Whether it comes from a source of the host's.
    pub(super) fn is_given(&self) -> bool {
        self.given.is_some()
    }

    /// Whether its pieces are made for other processes to map.
    pub(super) fn is_exportable(&self) -> bool {
        self.exportable
    }

    /// Maps a piece at an address of the segment where nothing is mapped. On failure nothing has changed.
    pub(crate) fn map(
        &mut self,
        driver: &impl Driver,
        address: u64,
        bytes: u64,
    ) -> Result<(), DriverError> {
        let refused = self.free_stuck(driver);
        let stuck =
            |(at, piece): &(u64, Piece)| *at < address + bytes && address < at + piece.bytes;
        if let Some(error) = refused.filter(|_| self.stuck.iter().any(stuck)) {
            return Err(error);
        }
        let memory = self.create(driver, bytes)?;
        self.attach(driver, address, bytes, memory)
    }

    /// Maps memory where nothing is mapped. On failure the memory is released, and nothing else has changed.
    pub(super) fn attach(
        &mut self,
        driver: &impl Driver,
        address: u64,
        bytes: u64,
        memory: MemoryHandle,
    ) -> Result<(), DriverError> {
        if let Err(error) = driver.map(address, bytes, memory) {
            // The handle is lost if this fails too; the first error is the one to report.
            let _ = driver.release(memory);
            return Err(error);
        }
        if let Err(error) = driver.set_access(address, bytes) {
            self.stuck.push((address, Piece { bytes, memory }));
            self.free_stuck(driver);
            return Err(error);
        }
        self.pieces.insert(address, Piece { bytes, memory });
        Ok(())
    }

    /// Unmaps what was mapped in vain. What the driver does not take is kept for the next time, and why is returned.
    pub(super) fn free_stuck(&mut self, driver: &impl Driver) -> Option<DriverError> {
        let mut refused = None;
        self.stuck.retain(|&(address, Piece { bytes, memory })| {
            if let Err(error) = driver.unmap(address, bytes) {
                refused.get_or_insert(error);
                return true;
            }
            // The handle is lost if this fails; the first error is the one to report.
            let _ = driver.release(memory);
            false
        });
        refused
    }

    /// The bytes of the pieces that lie wholly in `start..end`; of an allocation, all or nothing.
    pub(crate) fn whole(&self, start: u64, end: u64) -> u64 {
        if !self.growable {
            let all = start == self.address && end == self.address + self.bytes;
            return if all { self.bytes } else { 0 };
        }
        self.inside(start, end).map(|(_, piece)| piece.bytes).sum()
    }

    fn inside(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Piece)> + '_ {
        let pieces = self.pieces.range(start..end).map(|(&address, &piece)| (address, piece));
        pieces.filter(move |(address, piece)| address + piece.bytes <= end)
    }

    /// Unmaps pieces that lie wholly in `start..end` and that no work uses any more, from the front until at least
    /// `most` bytes are unmapped or the driver refuses. Returns what is unmapped now; `holding` takes care of the
    /// handles.
    pub(crate) fn unmap(
        &mut self,
        driver: &impl Driver,
        (start, end): (u64, u64),
        most: u64,
        holding: &mut Holding,
    ) -> Result<(u64, u64), (u64, u64, DriverError)> {
        let pieces: Vec<(u64, Piece)> = self.inside(start, end).collect();
        let first = pieces.first().map_or(start, |piece| piece.0);
        let mut until = first;
        for (address, piece) in pieces {
            if until - first >= most {
                break;
            }
            if let Err(error) = driver.unmap(address, piece.bytes) {
                return Err((first, until, error));
            }
            self.remove_piece(address);
            until = address + piece.bytes;
            holding.release(driver, piece.memory);
        }
        Ok((first, until))
    }

    /// Gives a segment that was had whole back to the driver. On failure nothing has changed.
    pub(crate) fn dismantle(
        &mut self,
        driver: &impl Driver,
        holding: &mut Holding,
    ) -> Result<(), DriverError> {
        if self.allocated {
            return self.free(driver);
        }
        // One piece, so an error means that it is still mapped.
        let all = (self.address, self.address + self.bytes);
        self.unmap(driver, all, u64::MAX, holding).map_err(|(_, _, error)| error)?;
        // Addresses that cannot be given back cost no memory.
        let _ = driver.unreserve(self.address, self.bytes);
        Ok(())
    }

    /// Gives everything back to the driver. Goes on after an error and returns the first.
    pub(crate) fn close(&self, driver: &impl Driver) -> Result<(), DriverError> {
        if self.allocated {
            return self.free(driver);
        }
        let mut result = Ok(());
        let stuck = self.stuck.iter().map(|(address, piece)| (address, piece));
        for (&address, piece) in self.pieces.iter().chain(stuck) {
            result = result.and(driver.unmap(address, piece.bytes));
            result = result.and(driver.release(piece.memory));
        }
        for (&address, absent) in &self.absent {
            result = result.and(absent.clone().lower(driver, address).map(|_| ()));
        }
        result.and(driver.unreserve(self.address, self.bytes))
    }
}
