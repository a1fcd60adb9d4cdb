//! What lies behind addresses while their capture is under way: a few pieces of memory, each mapped
//! over and over. Nothing is ever read from it or written to it.
//!
//! A mapping of any size costs the same, so the largest piece that is there is mapped wherever it fits, and a
//! larger one is made as soon as it may be. They are memory too: together they are no more than what the
//! capture's blocks hold at once, which it will take in any case, or one page.

use super::PlannedHeap;
use crate::driver::{CaptureId, Driver, DriverError, MemoryHandle};
use crate::heap::segment::unit;

/// Sizes of scratch pieces, in units of the device's granularity.
const SIZES: [u64; 4] = [1, 4, 16, 64];

/// Scratch memory of one capture.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Size and handle.
    pieces: Vec<(u64, MemoryHandle)>,
    /// Where they are mapped: address and size.
    mapped: Vec<(u64, u64)>,
}

impl Scratch {
    /// Where it lies: address and size.
    pub(super) fn mapped(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.mapped.iter().copied()
    }

    /// How many pieces there are, and their bytes.
    #[cfg(debug_assertions)]
    pub(super) fn held(&self) -> (usize, u64) {
        (self.pieces.len(), self.pieces.iter().map(|(bytes, _)| bytes).sum())
    }

    /// Whether it lies behind any addresses.
    pub(super) fn is_mapped(&self) -> bool {
        !self.mapped.is_empty()
    }
}

impl PlannedHeap {
    /// Maps scratch memory at `address`, at most `bytes`, for a block of which `asked` are new, and says how
    /// much.
    ///
    /// # Errors
    /// The driver's. Nothing has changed then.
    pub(super) fn lay<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
        (address, bytes): (u64, u64),
        asked: u64,
        limit: u64,
    ) -> Result<u64, DriverError> {
        let unit = unit(driver.memory_support());
        let planned = self.bindings.capture_mut(capture);
        let Some(planned) = planned else { return Ok(0) };
        let most = planned.peak.max(planned.held + asked);
        let Scratch { pieces, mapped } = &mut planned.scratch;
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
                        self.reserved += size;
                        self.handles += 1;
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
        if let Err(error) = driver.set_access(address, size) {
            // If this fails too the addresses stay mapped: they lie in no run, so they are never used.
            let _ = driver.unmap(address, size);
            return Err(error);
        }
        mapped.push((address, size));
        Ok(size)
    }

    /// Scratch memory of a capture, in bytes, and how often it is mapped.
    pub(crate) fn scratch_of(&self, capture: CaptureId) -> (u64, usize) {
        let scratch = self.bindings.capture(capture).map(|planned| &planned.scratch);
        let bytes = |scratch: &Scratch| scratch.pieces.iter().map(|(bytes, _)| bytes).sum();
        scratch.map_or((0, 0), |scratch| (bytes(scratch), scratch.mapped.len()))
    }

    /// Takes all scratch memory of a capture away. What the driver does not take stays for the next
    /// attempt.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn clear_scratch<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        capture: CaptureId,
    ) -> Result<(), DriverError> {
        let planned = self.bindings.capture_mut(capture);
        let Some(scratch) = planned.map(|planned| &mut planned.scratch) else { return Ok(()) };
        while let Some(&(address, bytes)) = scratch.mapped.last() {
            driver.unmap(address, bytes)?;
            scratch.mapped.pop();
        }
        while let Some((bytes, memory)) = scratch.pieces.pop() {
            self.reserved -= bytes;
            self.handles -= 1;
            if driver.release(memory).is_err() {
                self.orphans.push(memory);
            }
        }
        Ok(())
    }
}
