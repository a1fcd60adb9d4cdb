//! Memory and addresses that no block and no graph needs any more.

use super::{Bound, Owner, Physical, PlannedHeap};
use crate::driver::{CaptureId, Driver, DriverError};

impl PlannedHeap {
    /// A capture's graph never was, or is gone. What its live blocks lie on stays until they are freed.
    pub(crate) fn end_graph<D: Driver + ?Sized>(&mut self, driver: &D, capture: CaptureId) {
        if let Some(planned) = self.bindings.capture_mut(capture) {
            planned.owned_by(Owner::Over);
        }
        self.release_unused(driver);
    }

    /// A capture has a graph from now on. One whose memory never came keeps the scratch memory.
    /// Returns whether it has any blocks here.
    pub(crate) fn keep_graph(&mut self, capture: CaptureId) -> bool {
        let planned = self.bindings.capture_mut(capture);
        let Some(planned) = planned else { return false };
        planned.owned_by(Owner::Graph);
        true
    }

    /// Gives back to the driver what is not used any more: mappings of captures that are over, but for
    /// those with live blocks; pieces that are mapped nowhere; addresses of captures without either.
    /// What the driver does not take stays for the next time.
    pub(crate) fn release_unused<D: Driver + ?Sized>(&mut self, driver: &D) {
        self.release_orphans(driver);
        let bindings = &self.bindings;
        let over = bindings.captures.iter().filter(|planned| planned.owner == Owner::Over);
        let over: Vec<CaptureId> = over.map(|planned| planned.capture).collect();
        for capture in over {
            let cleared = self.clear_scratch(driver, capture).is_ok();
            self.unbind(driver, capture);
            let bindings = &mut self.bindings;
            let done = |planned: &super::PlannedCapture| {
                planned.capture == capture && planned.live.is_empty() && planned.bound.is_empty()
            };
            let Some(row) = bindings.captures.iter().position(done).filter(|_| cleared) else {
                continue;
            };
            let planned = bindings.captures.remove(row);
            for segment in planned.segments {
                // Addresses that cannot be given back cost no memory.
                let _ = driver.unreserve(segment.address, segment.bytes);
            }
        }
    }

    /// Unmaps what a capture has mapped and drops pieces that are mapped nowhere then. What holds live
    /// blocks of a capture that is over stays, and what is fixed of one that is not.
    pub(super) fn unbind<D: Driver + ?Sized>(&mut self, driver: &D, capture: CaptureId) {
        let bindings = &mut self.bindings;
        let row = bindings.captures.iter().position(|planned| planned.capture == capture);
        let Some(planned) = row.map(|row| &mut bindings.captures[row]) else { return };
        let is_over = planned.owner == Owner::Over;
        let mut rows = Vec::new();
        let all = std::mem::take(&mut planned.bound);
        let kept = all.into_iter().filter(|&Bound { address, bytes, piece, there, .. }| {
            let fixed = bindings.pieces[piece].as_ref().is_some_and(|piece| piece.fixed.is_some());
            // Nodes of a capture that may still stand use what is fixed, freed or not.
            let kept = if is_over { planned.is_live((address, bytes)) } else { fixed };
            if kept || (there && driver.unmap(address, bytes).is_err()) {
                return true;
            }
            rows.push(piece);
            false
        });
        let kept: Vec<Bound> = kept.collect();
        planned.bound = kept;
        for &row in &rows {
            bindings.piece(row).mappings -= 1;
        }
        self.drop_unmapped(driver, &rows);
    }

    /// Releases those of the pieces that are mapped nowhere.
    pub(super) fn drop_unmapped<D: Driver + ?Sized>(&mut self, driver: &D, rows: &[usize]) {
        let bindings = &mut self.bindings;
        for &row in rows {
            let unused = bindings.pieces[row].take_if(|piece| piece.mappings == 0);
            let Some(Physical { bytes, memory, .. }) = unused else { continue };
            let Some(memory) = memory else {
                self.suspended -= bytes;
                continue;
            };
            self.reserved -= bytes;
            self.handles -= 1;
            if driver.release(memory).is_err() {
                self.orphans.push(memory);
            }
        }
    }

    /// Releases the handles that could not be released before. What fails again is kept.
    pub(super) fn release_orphans<D: Driver + ?Sized>(&mut self, driver: &D) {
        self.orphans.retain(|&memory| driver.release(memory).is_err());
    }

    /// Gives everything back to the driver.
    ///
    /// # Errors
    /// The driver's, where addresses are still reserved.
    pub(crate) fn close<D: Driver + ?Sized>(mut self, driver: &D) -> Result<(), DriverError> {
        for planned in &mut self.bindings.captures {
            planned.owner = Owner::Over;
            planned.live.clear();
        }
        self.release_unused(driver);
        let mut result = Ok(());
        for segment in self.bindings.captures.iter().flat_map(|planned| &planned.segments) {
            result = result.and(segment.close(driver));
        }
        self.release_orphans(driver);
        result
    }
}
