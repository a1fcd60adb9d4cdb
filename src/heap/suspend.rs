//! Suspension: all memory of a heap goes back to the driver and comes again at the same addresses.
//!
//! The table of ranges stays as it is, and is kept as ever: who frees a block of a suspended heap
//! changes the table and nothing else. Nothing is handed out, and nothing is given back by range.
//!
//! A piece of memory goes and comes in single steps, each of them one call of the driver. Where a
//! call fails, the piece stands where the call before it left it, and either way goes on from there.

use super::segment::{create, HeapSegment, Piece};
use super::{Change, Heap};
use crate::driver::{Driver, DriverError, MemoryHandle};

/// Up to so many bytes neighbours come back as one piece. A call of the driver costs the same for any size,
/// 40 us on one H100: pieces of 2 MiB come at a third of the speed at which the link copies. Larger ones would
/// save little, and a piece is given back only as a whole.
const JOINED: u64 = 16 << 20;

/// How much of a heap's memory is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Presence {
    /// All of it.
    #[default]
    Whole,
    /// All but what the driver has refused to give back. What is there keeps what it holds.
    Short,
    /// None, or what is there is to go: nothing that it holds is kept.
    Suspended,
}

impl Presence {
    /// Whether nothing may be handed out, since there may be no memory behind the addresses.
    #[inline]
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

/// Is told of pieces of memory as they go and come, each an address and a size in bytes.
pub(crate) trait Keeper {
    /// All that the piece holds and that is to be kept has been read when this returns: it is unmapped
    /// then.
    ///
    /// # Errors
    /// The driver's. The piece stays.
    fn leaving(&mut self, address: u64, bytes: u64) -> Result<(), DriverError>;

    /// The piece is mapped again, with any contents.
    ///
    /// # Errors
    /// The driver's. It is told again, or leaves again, before the device uses the piece.
    fn came(&mut self, address: u64, bytes: u64) -> Result<(), DriverError>;
}

/// Keeps nothing.
pub(crate) struct NothingKept;

impl Keeper for NothingKept {
    fn leaving(&mut self, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }

    fn came(&mut self, _: u64, _: u64) -> Result<(), DriverError> {
        Ok(())
    }
}

/// A piece of a segment that the device may not touch now.
#[derive(Clone, Debug)]
pub(super) struct Absent {
    pub(super) bytes: u64,
    stage: AbsentStage,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AbsentStage {
    /// The driver has its memory.
    Gone,
    /// Its memory is held, and mapped nowhere.
    Unmapped(MemoryHandle),
    /// Its memory is mapped, and the device has no access.
    Mapped(MemoryHandle),
}

impl Absent {
    /// A piece whose memory the driver has.
    pub(super) fn gone(bytes: u64) -> Self {
        Self { bytes, stage: AbsentStage::Gone }
    }

    /// A piece whose memory is held.
    pub(super) fn at(piece: Piece, stage: impl FnOnce(MemoryHandle) -> AbsentStage) -> Self {
        Self { bytes: piece.bytes, stage: stage(piece.memory) }
    }

    /// Whether memory is held for it.
    pub(super) fn is_held(&self) -> bool {
        !matches!(self.stage, AbsentStage::Gone)
    }

    /// Gives its memory back. Returns whether there was any.
    pub(super) fn lower<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        keeper: &mut dyn Keeper,
        address: u64,
    ) -> Result<bool, DriverError> {
        if let AbsentStage::Mapped(memory) = self.stage {
            keeper.leaving(address, self.bytes)?;
            driver.unmap(address, self.bytes)?;
            self.stage = AbsentStage::Unmapped(memory);
        }
        let AbsentStage::Unmapped(memory) = self.stage else { return Ok(false) };
        driver.release(memory)?;
        self.stage = AbsentStage::Gone;
        Ok(true)
    }

    /// Gets memory for it.
    fn raise<D: Driver + ?Sized>(
        &mut self,
        (driver, exportable): (&D, bool),
        keeper: &mut dyn Keeper,
        address: u64,
        got: &mut Vec<(u64, u64)>,
    ) -> Result<Piece, DriverError> {
        let bytes = self.bytes;
        loop {
            self.stage = match self.stage {
                AbsentStage::Gone => {
                    let memory = create(driver, exportable, bytes)?;
                    got.push((address, bytes));
                    AbsentStage::Unmapped(memory)
                }
                AbsentStage::Unmapped(memory) => {
                    driver.map(address, bytes, memory)?;
                    AbsentStage::Mapped(memory)
                }
                AbsentStage::Mapped(memory) => {
                    driver.set_access(address, bytes)?;
                    // If this fails, all of this step is taken again.
                    keeper.came(address, bytes)?;
                    return Ok(Piece { bytes, memory });
                }
            }
        }
    }
}

impl HeapSegment {
    /// Gives the memory of every piece back, from the lowest until the driver refuses; enters what
    /// went into `gone`.
    fn suspend<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        keeper: &mut dyn Keeper,
        gone: &mut Vec<(u64, u64)>,
    ) -> Result<(), DriverError> {
        self.free_stuck(driver);
        let mut addresses: Vec<u64> =
            self.pieces.keys().chain(self.absent.keys()).copied().collect();
        addresses.sort_unstable();
        for address in addresses {
            if let Some(&Piece { bytes, memory }) = self.pieces.get(&address) {
                keeper.leaving(address, bytes)?;
                driver.unmap(address, bytes)?;
                self.remove_piece(address);
                self.absent.insert(address, Absent { bytes, stage: AbsentStage::Unmapped(memory) });
            }
            let Some(absent) = self.absent.get_mut(&address) else { continue };
            if absent.lower(driver, keeper, address)? {
                gone.push((address, absent.bytes));
            }
        }
        Ok(())
    }

    /// Joins neighbours that the driver has, so that fewer pieces come.
    fn join_absent(&mut self) {
        for (address, piece) in std::mem::take(&mut self.absent) {
            if let Some(mut last) = self.absent.last_entry().filter(|_| !piece.is_held()) {
                let (start, last) = (*last.key(), last.get_mut());
                let joined = last.bytes + piece.bytes;
                if !last.is_held() && start + last.bytes == address && joined <= JOINED {
                    last.bytes = joined;
                    continue;
                }
            }
            self.absent.insert(address, piece);
        }
    }

    /// Gets memory for every absent piece, from the lowest until the driver refuses; enters what came
    /// into `got`.
    fn resume<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        keeper: &mut dyn Keeper,
        got: &mut Vec<(u64, u64)>,
    ) -> Result<(), DriverError> {
        self.free_stuck(driver);
        self.join_absent();
        let exportable = self.is_exportable();
        while let Some(mut first) = self.absent.first_entry() {
            let address = *first.key();
            let piece = first.get_mut().raise((driver, exportable), keeper, address, got)?;
            first.remove();
            self.pieces.insert(address, piece);
        }
        Ok(())
    }
}

impl Heap {
    /// How much of its memory is there.
    #[inline]
    pub(crate) fn presence(&self) -> Presence {
        self.presence
    }

    pub(crate) fn presence_mut(&mut self) -> &mut Presence {
        &mut self.presence
    }

    /// Bytes that the driver has until the heap is resumed.
    pub(crate) fn suspended(&self) -> u64 {
        self.suspended
    }

    /// How many ranges were given back and may still be in use, as far as the table says.
    pub(crate) fn unsettled(&self) -> usize {
        self.waiting.0 + self.stream_ordered_ranges()
    }

    /// Whether every piece of its memory is mapped.
    pub(crate) fn is_whole(&self) -> bool {
        self.segments.iter().flatten().all(|segment| segment.absent.is_empty())
    }

    /// Gives all memory of a heap that is shut back to the driver and keeps the addresses. No block
    /// of it may be in use.
    ///
    /// # Errors
    /// The driver's. What had gone by then is gone, and the heap is suspended if that was anything that
    /// was mapped; calling again goes on.
    pub(crate) fn suspend<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        keeper: &mut dyn Keeper,
    ) -> Result<(), DriverError> {
        debug_assert!(self.presence.is_shut(), "or a block could be placed in what goes");
        self.release_orphans(driver);
        let there = self.mapped_pieces();
        let done = self.each_segment(false, |segment, gone| segment.suspend(driver, keeper, gone));
        if self.mapped_pieces() < there {
            self.presence = Presence::Suspended;
        }
        done
    }

    fn mapped_pieces(&self) -> usize {
        self.segments.iter().flatten().map(|segment| segment.pieces.len()).sum()
    }

    /// Gets all memory back that [`Heap::suspend`] gave back, at the same addresses; neighbours may come
    /// as one piece.
    ///
    /// # Errors
    /// The driver's. What had come by then is here; calling again goes on.
    pub(crate) fn resume<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        keeper: &mut dyn Keeper,
    ) -> Result<(), DriverError> {
        self.each_segment(true, |segment, got| segment.resume(driver, keeper, got))
    }

    /// Everything that a suspended heap still holds: address, size and segment, neighbours of one
    /// segment together.
    pub(crate) fn still_held(&self) -> Vec<((u64, u64), usize)> {
        let mut still: Vec<((u64, u64), usize)> = Vec::new();
        for (number, segment) in self.segments.iter().enumerate() {
            let held = segment.iter().flat_map(HeapSegment::held);
            still.extend(runs(held).map(|(place, _)| (place, number)));
        }
        still
    }

    /// Runs a step on each segment until one fails, and counts what that moved.
    fn each_segment(
        &mut self,
        mapped: bool,
        mut step: impl FnMut(&mut HeapSegment, &mut Vec<(u64, u64)>) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        for row in 0..self.segments.len() {
            let Some(segment) = self.segments[row].as_mut() else { continue };
            let whole = !segment.growable;
            let mut moved = Vec::new();
            let done = step(segment, &mut moved);
            for ((address, bytes), pieces) in runs(moved.into_iter()) {
                self.note_change(Change { mapped, whole, address, bytes, pieces });
                if mapped {
                    self.suspended -= bytes;
                } else {
                    self.suspended += bytes;
                }
            }
            done?;
        }
        Ok(())
    }
}

/// Neighbours in address order, together: where they begin, their size, and how many they are.
pub(super) fn runs(
    places: impl Iterator<Item = (u64, u64)>,
) -> impl Iterator<Item = ((u64, u64), usize)> {
    let mut places = places.peekable();
    std::iter::from_fn(move || {
        let (address, mut bytes) = places.next()?;
        let mut count = 1;
        while let Some((_, more)) = places.next_if(|&(next, _)| next == address + bytes) {
            bytes += more;
            count += 1;
        }
        Some(((address, bytes), count))
    })
}
