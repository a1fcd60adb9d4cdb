//! Suspension: the memory behind bound addresses goes back to the driver and comes again.
//!
//! Contents are lost and addresses stay, and each piece comes back wherever it was mapped. Where a call
//! fails, either way goes on from there.

use super::{Bound, PlannedHeap};
use crate::driver::{Driver, DriverError};
use crate::heap::segment::create;
use crate::heap::suspend::{Keeper, Presence};

impl PlannedHeap {
    /// How much of its memory is there.
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

    /// How many blocks were given back and may still be in use.
    pub(crate) fn unsettled(&self) -> usize {
        self.waiting.0
    }

    /// Whether all bound addresses have memory.
    pub(crate) fn is_whole(&self) -> bool {
        let captures = self.bindings.captures.iter();
        captures.flat_map(|planned| &planned.bound).all(|bound| bound.open)
    }

    /// Gives the memory of all pieces back.
    ///
    /// # Errors
    /// The driver's. The heap is suspended then if anything that the device could use was unmapped.
    pub(crate) fn suspend<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        keeper: &mut dyn Keeper,
    ) -> Result<(), DriverError> {
        self.release_orphans(driver);
        let bindings = &mut self.bindings;
        for bound in bindings.captures.iter_mut().flat_map(|planned| &mut planned.bound) {
            if bound.there {
                keeper.leaving(bound.address, bound.bytes)?;
                driver.unmap(bound.address, bound.bytes)?;
                if bound.open {
                    self.presence = Presence::Suspended;
                }
                (bound.there, bound.open) = (false, false);
            }
        }
        for piece in bindings.pieces.iter_mut().flatten() {
            let Some(memory) = piece.memory else { continue };
            driver.release(memory)?;
            piece.memory = None;
            self.reserved -= piece.bytes;
            self.suspended += piece.bytes;
            self.handles -= 1;
        }
        Ok(())
    }

    /// Gets it again.
    pub(crate) fn resume<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        keeper: &mut dyn Keeper,
    ) -> Result<(), DriverError> {
        let bindings = &mut self.bindings;
        for piece in bindings.pieces.iter_mut().flatten().filter(|piece| piece.memory.is_none()) {
            let exportable = piece.fixed.is_some_and(|fixed| fixed.exportable);
            piece.memory = Some(create(driver, exportable, piece.bytes)?);
            self.reserved += piece.bytes;
            self.suspended -= piece.bytes;
            self.handles += 1;
        }
        let memory = |row: usize| bindings.pieces[row].as_ref().and_then(|piece| piece.memory);
        for bound in bindings.captures.iter_mut().flat_map(|planned| &mut planned.bound) {
            let &mut Bound { address, bytes, piece, there, open, .. } = bound;
            let Some(memory) = memory(piece).filter(|_| !open) else { continue };
            if !there {
                driver.map(address, bytes, memory)?;
                bound.there = true;
            }
            driver.set_access(address, bytes)?;
            keeper.came(address, bytes)?;
            bound.open = true;
        }
        Ok(())
    }
}
