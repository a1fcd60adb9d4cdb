//! Segments: where a heap's memory comes from. One that grows is a reserved range of addresses, with pieces of physical
//! memory mapped from the front; any other is got whole and given back whole (design/allocator.md, "Growth").

use std::collections::BTreeMap;
use std::sync::Arc;

use super::range::RangeId;
use super::sharing::{Export, Shared, SharedPiece, WhyNotShared};
use super::suspend::{Holding, Keeper, Pieces};
use super::Supply;
use crate::driver::{
    Driver, DriverError, ErrorKind, MemoryHandle, MemorySupport, Source, StreamHandle,
};

/// Unit of allocation where mapping is not supported, in bytes.
const ALLOCATION_UNIT: u64 = 2 << 20;

/// Memory from the driver.
#[derive(Debug, Default)]
pub(crate) struct HeapSegment {
    address: u64,
    /// Reserved, or allocated, in bytes.
    bytes: u64,
    /// Up to where memory is in use, or was mapped, in bytes from the front.
    mapped: u64,
    /// The range that ends at `mapped`.
    last: Option<RangeId>,
    /// What is mapped, and what is to be mapped again when the heap is resumed, by address; empty for an allocation.
    pieces: BTreeMap<u64, Piece>,
    /// What was mapped in vain, or is over, and could not be unmapped or released, by address.
    stuck: Vec<(u64, Piece)>,
    kind: SegmentKind,
    /// Whether its pieces are made for other processes to map.
    exportable: bool,
}

#[derive(Debug, Default)]
enum SegmentKind {
    /// Pieces may come and go.
    Growable,
    #[default]
    Fixed,
    /// It is one allocation of the driver's.
    Allocated,
    /// It is one allocation of a source of the host's, which was asked for so many bytes.
    Given(Arc<dyn Source>, u64),
}

/// A piece of a segment.
#[derive(Debug)]
struct Piece {
    bytes: u64,
    /// Its memory, and how far that is usable; none while the driver has it.
    held: Option<(MemoryHandle, Access)>,
    /// What other processes were shown of it.
    export: Option<Arc<Export>>,
    /// Whether it stays behind its addresses, since others have it by handles of their own.
    stays: bool,
}

/// Whether memory is mapped, and whether the device may use it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Unmapped,
    Mapped,
    Open,
}

impl Piece {
    fn new(bytes: u64, held: Option<(MemoryHandle, Access)>) -> Self {
        Self { bytes, held, export: None, stays: false }
    }

    /// Its memory; none while the driver has it.
    fn memory(&self) -> Option<MemoryHandle> {
        self.held.map(|(memory, _)| memory)
    }

    fn is_open(&self) -> bool {
        matches!(self.held, Some((_, Access::Open)))
    }

    fn is_mapped(&self) -> bool {
        self.held.is_some_and(|(_, access)| access != Access::Unmapped)
    }

    /// Gives its memory back; what other processes have of it they keep.
    fn lower(&mut self, driver: &impl Driver, address: u64) -> Result<(), DriverError> {
        let Some((memory, access)) = self.held else { return Ok(()) };
        if access != Access::Unmapped {
            driver.unmap(address, self.bytes)?;
            *self = Self::new(self.bytes, Some((memory, Access::Unmapped)));
        }
        driver.release(memory)?;
        self.held = None;
        Ok(())
    }

    /// Makes it open, from where an earlier attempt has stopped. Where the driver had its memory, `got` gets its
    /// address and size.
    fn raise(
        &mut self,
        (driver, exportable): (&impl Driver, bool),
        address: u64,
        got: &mut Vec<(u64, u64)>,
    ) -> Result<(), DriverError> {
        let bytes = self.bytes;
        loop {
            self.held = Some(match self.held {
                None => {
                    let memory = create(driver, exportable, bytes)?;
                    got.push((address, bytes));
                    (memory, Access::Unmapped)
                }
                Some((memory, Access::Unmapped)) => {
                    driver.map(address, bytes, memory)?;
                    (memory, Access::Mapped)
                }
                Some((memory, Access::Mapped)) => {
                    driver.set_access(address, bytes)?;
                    (memory, Access::Open)
                }
                Some((_, Access::Open)) => return Ok(()),
            });
        }
    }
}

/// How far apart memory can be had, in bytes.
pub(crate) fn unit(support: MemorySupport) -> u64 {
    support.granularity().unwrap_or(ALLOCATION_UNIT)
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

/// Up to so many bytes neighbours come back as one piece: a call of the driver costs 40 us on one H100 for any size, so
/// that pieces of 2 MiB come at a third of the speed at which the link copies. A piece is given back only as a whole.
const JOINED: u64 = 16 << 20;

/// What stands for a piece that the device cannot use any more, as it is not mapped, or without access: its bytes,
/// whether it has memory, and the driver's error.
type LostPiece = (u64, bool, DriverError);

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
        let kind = SegmentKind::Given(Arc::clone(source), bytes);
        Ok(Self { mapped: bytes, kind, ..Self::reserved(address, bytes) })
    }

    /// Gives an allocation back.
    fn free(&self, driver: &impl Driver) -> Result<(), DriverError> {
        match &self.kind {
            SegmentKind::Given(source, bytes) => source.free(self.address, *bytes),
            _ => driver.free(self.address),
        }
    }

    /// Addresses with nothing behind them.
    pub(super) fn reserved(address: u64, bytes: u64) -> Self {
        Self { address, bytes, ..Self::default() }
    }

    /// A segment that can hold at least `bytes`. Where memory is mapped it is empty at first; an allocation is had whole.
    pub(crate) fn open(
        driver: &impl Driver,
        bytes: u64,
        supply: Supply,
        exportable: bool,
    ) -> Result<Self, DriverError> {
        let segment = |address, bytes, mapped, kind| Self {
            kind,
            exportable,
            mapped,
            ..Self::reserved(address, bytes)
        };
        match (driver.memory_support(), supply) {
            (MemorySupport::Mapped { granularity }, Supply::Growing { .. } | Supply::Fixed) => {
                let (kind, reserve) = match supply {
                    Supply::Growing { reserve } => (SegmentKind::Growable, reserve),
                    _ => (SegmentKind::Fixed, 0),
                };
                let least = bytes.next_multiple_of(granularity);
                let mut bytes = bytes.max(reserve).next_multiple_of(granularity);
                loop {
                    match driver.reserve(bytes) {
                        // The process has no more addresses than these in one piece.
                        Err(error) if error.is_out_of_memory() && bytes > least => {
                            bytes = (bytes / 2).max(least).next_multiple_of(granularity);
                        }
                        reserved => return Ok(segment(reserved?, bytes, 0, kind)),
                    }
                }
            }
            (_, supply) => {
                let unit = if supply == Supply::Uncached { 1 } else { ALLOCATION_UNIT };
                let bytes = bytes.next_multiple_of(unit);
                Ok(segment(driver.allocate(bytes)?, bytes, bytes, SegmentKind::Allocated))
            }
        }
    }

    read!(address: u64, bytes: u64, mapped: u64, last: Option<RangeId>);

    /// Where what is reserved, or allocated, ends.
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// Where what is in use, or was mapped, ends.
    pub(crate) fn front(&self) -> u64 {
        self.address + self.mapped
    }

    /// So many bytes more come into use, or their addresses.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.mapped += bytes;
    }

    /// The last bytes go out of use.
    pub(crate) fn retreat(&mut self, bytes: u64) {
        self.mapped -= bytes;
    }

    pub(crate) fn set_last(&mut self, last: Option<RangeId>) {
        self.last = last;
    }

    /// An allocation is taken for one of so many bytes.
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        (self.bytes, self.mapped) = (bytes, bytes);
    }

    /// Whether an address lies in what is reserved, or allocated.
    pub(super) fn owns(&self, address: u64) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
    }

    /// Bytes that can still come into use behind what is.
    pub(crate) fn room(&self) -> u64 {
        self.bytes - self.mapped
    }

    /// Address and size of everything that the driver holds for it.
    pub(crate) fn held(&self) -> Vec<(u64, u64)> {
        if self.is_allocated() {
            return vec![(self.address, self.bytes)];
        }
        let held = self.pieces.iter().filter(|(_, piece)| piece.memory().is_some());
        held.map(|(&address, piece)| (address, piece.bytes)).collect()
    }

    /// Whether the device may use all its pieces.
    pub(super) fn is_open(&self) -> bool {
        self.pieces.values().all(Piece::is_open)
    }

    /// Bytes of the pieces that the driver has.
    #[cfg(debug_assertions)]
    pub(super) fn away(&self) -> u64 {
        let away = self.pieces.values().filter(|piece| piece.memory().is_none());
        away.map(|piece| piece.bytes).sum()
    }

    /// The pieces that the device may use: address and size.
    pub(super) fn open_pieces(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let open = self.pieces.iter().filter(|(_, piece)| piece.is_open());
        open.map(|(&address, piece)| (address, piece.bytes))
    }

    /// Whether pieces may come and go.
    pub(super) fn is_growable(&self) -> bool {
        matches!(self.kind, SegmentKind::Growable)
    }

    /// Whether it is one allocation, of the driver's or of a source of the host's.
    pub(super) fn is_allocated(&self) -> bool {
        matches!(self.kind, SegmentKind::Allocated | SegmentKind::Given(..))
    }

    /// Maps memory at addresses of the segment where nothing is mapped, in pieces of at most `most` bytes, and returns
    /// how many. On failure nothing has changed.
    pub(crate) fn map(
        &mut self,
        driver: &impl Driver,
        (address, bytes): (u64, u64),
        most: u64,
    ) -> Result<usize, DriverError> {
        let freed = self.free_stuck(driver);
        let (end, before) = (address + bytes, self.stuck.len());
        let mut stuck = self.stuck.iter().filter(|(_, it)| it.is_mapped());
        if stuck.any(|(at, it)| *at < end && address < at + it.bytes) {
            freed?;
        }
        let mut at = address;
        while at < end {
            let bytes = most.min(end - at);
            let memory = create(driver, self.exportable, bytes);
            if let Err(error) = memory.and_then(|memory| self.attach(driver, at, bytes, memory)) {
                // The first error is the one to report, here and below.
                let _ = self.free_stuck(driver);
                return Err(error);
            }
            at += bytes;
        }
        self.open_attached(driver, before)
    }

    /// Maps memory where nothing is mapped, without access. On failure it counts as mapped in vain too.
    pub(super) fn attach(
        &mut self,
        driver: &impl Driver,
        address: u64,
        bytes: u64,
        memory: MemoryHandle,
    ) -> Result<(), DriverError> {
        let mapped = driver.map(address, bytes, memory);
        let access = if mapped.is_ok() { Access::Mapped } else { Access::Unmapped };
        // Until it is open it counts as mapped in vain.
        self.stuck.push((address, Piece::new(bytes, Some((memory, access)))));
        mapped
    }

    /// Opens what was attached, neighbours in order of their addresses, since `before` pieces were stuck, and returns
    /// how many that are. On failure all of it is unmapped and released.
    pub(super) fn open_attached(
        &mut self,
        driver: &impl Driver,
        before: usize,
    ) -> Result<usize, DriverError> {
        let attached = &self.stuck[before..];
        let (count, address) = (attached.len(), attached.first().map_or(0, |it| it.0));
        let bytes = attached.iter().map(|(_, piece)| piece.bytes).sum();
        if let Err(error) = driver.set_access(address, bytes) {
            let _ = self.free_stuck(driver);
            return Err(error);
        }
        for (address, Piece { bytes, held, .. }) in self.stuck.drain(before..) {
            let held = held.map(|(memory, _)| (memory, Access::Open));
            self.pieces.insert(address, Piece::new(bytes, held));
        }
        Ok(count)
    }

    /// Gives back what was mapped in vain, or is over. What the driver does not take is kept for the next time; returns
    /// the first error.
    pub(super) fn free_stuck(&mut self, driver: &impl Driver) -> Result<(), DriverError> {
        let mut result = Ok(());
        self.stuck.retain_mut(|(address, piece)| {
            result = result.clone().and(piece.lower(driver, *address));
            piece.memory().is_some()
        });
        result
    }

    /// Whether nothing lies at its addresses.
    pub(super) fn is_empty(&self) -> bool {
        self.mapped == 0 && self.pieces.is_empty() && self.stuck.is_empty()
    }

    /// The bytes of the pieces that lie wholly in `start..end`; of an allocation, all or nothing.
    pub(crate) fn whole(&self, start: u64, end: u64) -> u64 {
        if !self.is_growable() {
            let all = start == self.address && end == self.address + self.bytes;
            return if all { self.bytes } else { 0 };
        }
        self.inside(start, end).map(|(_, bytes)| bytes).sum()
    }

    /// The pieces that lie wholly in `start..end`: address and size.
    pub(super) fn inside(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pieces = self.pieces.range(start..end).map(|(&address, piece)| (address, piece.bytes));
        pieces.filter(move |(address, bytes)| address + bytes <= end)
    }

    /// Unmaps pieces that lie wholly in `start..end` and that no work uses any more, from the front until at least
    /// `most` bytes are unmapped or the driver refuses. Returns what is unmapped now, in how many pieces, and the
    /// driver's error; `holding` takes care of the handles.
    pub(crate) fn unmap(
        &mut self,
        driver: &impl Driver,
        (start, end): (u64, u64),
        most: u64,
        holding: &mut Holding,
    ) -> ((u64, u64), usize, Result<(), DriverError>) {
        let pieces: Vec<(u64, u64)> = self.inside(start, end).collect();
        let first = pieces.first().map_or(start, |piece| piece.0);
        let (mut until, mut count) = (first, 0);
        for (address, bytes) in pieces {
            if until - first >= most {
                break;
            }
            if let Err(error) = driver.unmap(address, bytes) {
                return ((first, until), count, Err(error));
            }
            (until, count) = (address + bytes, count + 1);
            let memory = self.pieces.remove(&address).and_then(|piece| piece.memory());
            memory.into_iter().for_each(|memory| holding.release(driver, memory));
        }
        ((first, until), count, Ok(()))
    }

    /// Gives a segment that was had whole back to the driver. On failure nothing has changed.
    pub(crate) fn dismantle(
        &mut self,
        driver: &impl Driver,
        holding: &mut Holding,
    ) -> Result<(), DriverError> {
        if self.is_allocated() {
            return self.free(driver);
        }
        // One piece, so an error means that it is still mapped.
        let all = (self.address, self.address + self.bytes);
        self.unmap(driver, all, u64::MAX, holding).2?;
        // Addresses that cannot be given back cost no memory.
        let _ = self.unreserve(driver);
        Ok(())
    }

    /// Gives everything back to the driver. Goes on after an error and returns the first; then another call gives back
    /// the rest, but for an allocation.
    pub(crate) fn close(&mut self, driver: &impl Driver) -> Result<(), DriverError> {
        if self.is_allocated() {
            return self.free(driver);
        }
        self.stuck.extend(std::mem::take(&mut self.pieces));
        self.free_stuck(driver)?;
        self.unreserve(driver)
    }

    /// Gives its addresses back, behind which nothing is mapped.
    pub(super) fn unreserve(&self, driver: &impl Driver) -> Result<(), DriverError> {
        driver.unreserve(self.address, self.bytes)
    }

    /// The pieces that a place lies on, in order; `None` where not all of it lies on pieces.
    fn pieces_at(
        &mut self,
        (address, bytes): (u64, u64),
    ) -> Option<impl Iterator<Item = (u64, &mut Piece)>> {
        let (&first, _) = self.pieces.range(..=address).next_back()?;
        let end = address + bytes;
        let reach =
            |reached, (&at, piece): (&u64, &Piece)| (at <= reached).then_some(at + piece.bytes);
        let reached = self.pieces.range(first..end).try_fold(address, reach);
        let here = self.pieces.range_mut(first..end).map(|(&at, piece)| (at, piece));
        reached.filter(|&reached| reached >= end).map(|_| here)
    }

    /// Where a place of it lies, for others; exports what was not exported before.
    pub(super) fn share(
        &mut self,
        driver: &impl Driver,
        place: (u64, u64),
    ) -> Result<Result<Shared, WhyNotShared>, DriverError> {
        if let SegmentKind::Given(..) = self.kind {
            return Ok(Err(WhyNotShared::FromSource));
        }
        if self.is_allocated() {
            let address = self.address;
            return Ok(Ok(Shared::Allocation { address, offset: place.0 - address }));
        }
        if !self.exportable {
            return Ok(Err(WhyNotShared::NotExportable));
        }
        let Some(here) = self.pieces_at(place) else { return Ok(Err(WhyNotShared::Suspended)) };
        let (mut start, mut pieces) = (None, Vec::new());
        for (at, piece) in here {
            start.get_or_insert(at);
            if let (None, Some(memory)) = (&piece.export, piece.memory()) {
                piece.export = Some(Arc::new(Export::new(driver.export(memory)?)));
            }
            let export = piece.export.iter().cloned();
            pieces.extend(export.map(|export| SharedPiece { bytes: piece.bytes, export }));
        }
        Ok(Ok(Shared::Pieces { offset: place.0 - start.unwrap_or(place.0), pieces }))
    }

    /// Has the pieces that a place lies on stay behind their addresses. False where not all of it lies on pieces.
    pub(super) fn keep_exported(&mut self, place: (u64, u64)) -> bool {
        let here = self.pieces_at(place);
        here.map(|here| here.for_each(|(_, piece)| piece.stays = true)).is_some()
    }

    /// Whether any piece stays behind its addresses.
    pub(super) fn has_exported(&self) -> bool {
        self.pieces.values().any(|piece| piece.stays)
    }

    /// Gives the memory of every piece back, from the lowest until the driver refuses, `keeper` has it wait or none is
    /// `left`; enters what went into `gone`. Returns whether all has gone.
    pub(super) fn suspend(
        &mut self,
        driver: &impl Driver,
        keeper: &mut dyn Keeper,
        left: &mut Pieces,
        gone: &mut Vec<(u64, u64)>,
    ) -> Result<bool, DriverError> {
        for (&address, piece) in self.pieces.iter_mut().filter(|(_, it)| it.memory().is_some()) {
            if !left.take() || !keeper.may_leave(address, piece.bytes) {
                return Ok(false);
            }
            piece.lower(driver, address)?;
            gone.push((address, piece.bytes));
        }
        Ok(true)
    }

    /// Joins a piece that the driver has with such neighbours above it, so that fewer pieces come.
    fn join_gone(&mut self, address: u64) {
        let gone = |segment: &Self, at: u64| {
            let piece = segment.pieces.get(&at)?;
            piece.memory().is_none().then_some(piece.bytes)
        };
        let Some(mut bytes) = gone(self, address) else { return };
        while let Some(more) = gone(self, address + bytes).filter(|more| bytes + more <= JOINED) {
            self.pieces.remove(&(address + bytes));
            bytes += more;
        }
        self.pieces.insert(address, Piece::new(bytes, None));
    }

    /// Gets memory for every absent piece, from the lowest until the driver refuses or none is `left`;
    /// enters what came into `got`. Returns whether all has come.
    pub(super) fn resume(
        &mut self,
        driver: &impl Driver,
        keeper: &mut dyn Keeper,
        left: &mut Pieces,
        got: &mut Vec<(u64, u64)>,
    ) -> Result<bool, DriverError> {
        // What still cannot go is in no one's way.
        let _ = self.free_stuck(driver);
        let exportable = self.exportable;
        let closed = self.pieces.iter().filter(|(_, piece)| !piece.is_open());
        let closed: Vec<u64> = closed.map(|(&address, _)| address).collect();
        for address in closed {
            // What was joined to the one before is no piece any more.
            if self.pieces.contains_key(&address) && !left.take() {
                return Ok(false);
            }
            self.join_gone(address);
            let Some(piece) = self.pieces.get_mut(&address) else { continue };
            piece.raise((driver, exportable), address, got)?;
            keeper.came(address, piece.bytes);
        }
        Ok(true)
    }

    /// The piece that ends in premapped memory: where it begins, its size, and how much of it is in use.
    pub(super) fn premapped_piece(&self) -> Option<(u64, u64, u64)> {
        let (&address, piece) = self.pieces.last_key_value()?;
        let used = self.address + self.mapped - address;
        (piece.bytes > used).then_some((address, piece.bytes, used))
    }

    /// Bytes that are mapped behind what is in use.
    pub(super) fn premapped(&self) -> u64 {
        self.premapped_piece().map_or(0, |(_, bytes, used)| bytes - used)
    }

    /// Exchanges the piece that ends in premapped memory for one without, which is made already where there is room for
    /// both, and returns whether it did: where not, the piece is as it was, unless it is lost.
    pub(super) fn exchange(
        &mut self,
        driver: &impl Driver,
        holding: &mut Holding,
        replacement: Option<MemoryHandle>,
    ) -> Result<bool, LostPiece> {
        let Some((address, bytes, used)) = self.premapped_piece() else { return Ok(false) };
        let old = self.pieces.get(&address).and_then(Piece::memory);
        let Some(old) = old.filter(|_| driver.unmap(address, bytes).is_ok()) else {
            replacement.into_iter().for_each(|memory| holding.release(driver, memory));
            return Ok(false);
        };
        let Some(memory) = replacement else {
            // There is no room for both at once.
            if driver.release(old).is_err() {
                return self.put(driver, address, (bytes, Some(old))).map(|()| false);
            }
            return self.put(driver, address, (used, None)).map(|()| true);
        };
        let new = self.put(driver, address, (used, Some(memory)));
        let Err(lost) = new else {
            holding.release(driver, old);
            return Ok(true);
        };
        let is_mapped = self.pieces.get(&address).is_some_and(Piece::is_mapped);
        if is_mapped && driver.unmap(address, used).is_err() {
            holding.release(driver, old);
            return Err(lost);
        }
        holding.release(driver, memory);
        // The first error is the one to report.
        let back = self.put(driver, address, (bytes, Some(old)));
        back.map(|()| false).map_err(|(bytes, held, _)| (bytes, held, lost.2))
    }

    /// Maps a piece at addresses at which none lies; memory is made for it where it has none.
    fn put(
        &mut self,
        driver: &impl Driver,
        address: u64,
        (bytes, memory): (u64, Option<MemoryHandle>),
    ) -> Result<(), LostPiece> {
        let mut piece = Piece::new(bytes, memory.map(|it| (it, Access::Unmapped)));
        let done = piece.raise((driver, self.exportable), address, &mut Vec::new());
        let held = piece.memory().is_some();
        self.pieces.insert(address, piece);
        done.map_err(|error| (bytes, held, error))
    }

    /// Gives the devices that the driver was told of access to all that is mapped.
    pub(crate) fn grant(&self, driver: &impl Driver) -> Result<(), DriverError> {
        self.open_pieces().try_for_each(|(address, bytes)| driver.set_access(address, bytes))
    }
}
