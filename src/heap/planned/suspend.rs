//! Suspension: the memory behind bound addresses goes back to the driver and comes again.
//!
//! Contents are lost and addresses stay, and each piece comes back wherever it was mapped. Where a call
//! fails, either way goes on from there.

use super::super::Heap;
use super::Bound;
use crate::driver::{Driver, DriverError};

impl Heap {
    /// Whether all bound addresses have memory.
    pub(in super::super) fn is_bound_whole(&self) -> bool {
        let grounds = self.planned.iter().flat_map(|planned| &planned.grounds);
        grounds.flat_map(|ground| &ground.bound).all(|bound| bound.there)
    }

    /// Gives the memory of all pieces back.
    pub(in super::super) fn suspend_planned<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
    ) -> Result<(), DriverError> {
        let Some(planned) = self.planned.as_mut() else { return Ok(()) };
        for bound in planned.grounds.iter_mut().flat_map(|ground| &mut ground.bound) {
            if bound.there {
                driver.unmap(bound.address, bound.bytes)?;
                bound.there = false;
            }
        }
        for piece in planned.pieces.iter_mut().flatten() {
            let Some(memory) = piece.memory else { continue };
            driver.release(memory)?;
            piece.memory = None;
            self.reserved -= piece.bytes;
            self.suspended += piece.bytes;
            self.pieces -= 1;
        }
        Ok(())
    }

    /// Gets it again.
    pub(in super::super) fn resume_planned<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
    ) -> Result<(), DriverError> {
        let Some(planned) = self.planned.as_mut() else { return Ok(()) };
        for piece in planned.pieces.iter_mut().flatten().filter(|piece| piece.memory.is_none()) {
            piece.memory = Some(driver.create(piece.bytes)?);
            self.reserved += piece.bytes;
            self.suspended -= piece.bytes;
            self.pieces += 1;
        }
        let memory = |row: usize| planned.pieces[row].as_ref().and_then(|piece| piece.memory);
        for bound in planned.grounds.iter_mut().flat_map(|ground| &mut ground.bound) {
            let &mut Bound { address, bytes, piece, there, .. } = bound;
            let Some(memory) = memory(piece).filter(|_| !there) else { continue };
            driver.map(address, bytes, memory)?;
            if let Err(error) = driver.set_access(address, bytes) {
                // If this fails too, mapping it again will, and says so.
                let _ = driver.unmap(address, bytes);
                return Err(error);
            }
            bound.there = true;
        }
        Ok(())
    }
}
