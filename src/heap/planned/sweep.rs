//! Memory and addresses that no block and no graph needs any more.

use super::super::Heap;
use super::{Bound, Owner, Physical};
use crate::driver::{CaptureId, Driver};

impl Heap {
    /// A capture's graph never was, or is gone. What its live blocks lie on stays until they are freed.
    pub(crate) fn leave_ground<D: Driver + ?Sized>(&mut self, driver: &D, capture: CaptureId) {
        if let Some(ground) = self.planned.as_mut().and_then(|it| it.ground_mut(capture)) {
            ground.owner = Owner::Over;
            ground.runs.clear();
        }
        self.sweep(driver);
    }

    /// A capture has a graph from now on. One whose memory never came keeps the scratch memory.
    /// Returns whether it has any blocks here.
    pub(crate) fn keep_ground(&mut self, capture: CaptureId) -> bool {
        let ground = self.planned.as_mut().and_then(|planned| planned.ground_mut(capture));
        let Some(ground) = ground else { return false };
        ground.owner = Owner::Graph;
        ground.runs.clear();
        true
    }

    /// Gives back to the driver what is not used any more: mappings of grounds that are over, but for
    /// those with live blocks; pieces that are mapped nowhere; addresses of grounds without either.
    /// What the driver does not take stays for the next time.
    pub(crate) fn sweep<D: Driver + ?Sized>(&mut self, driver: &D) {
        self.release_orphans(driver);
        let Some(planned) = self.planned.as_ref() else { return };
        let over = planned.grounds.iter().filter(|ground| ground.owner == Owner::Over);
        let over: Vec<CaptureId> = over.map(|ground| ground.capture).collect();
        for capture in over {
            let cleared = self.clear_scratch(driver, capture).is_ok();
            self.unbind(driver, capture);
            let Some(planned) = self.planned.as_mut() else { return };
            let done = |ground: &super::Ground| {
                ground.capture == capture && ground.live.is_empty() && ground.bound.is_empty()
            };
            let Some(row) = planned.grounds.iter().position(done).filter(|_| cleared) else {
                continue;
            };
            let ground = planned.grounds.remove(row);
            for segment in ground.segments {
                if let Some(segment) = self.segments[segment.index()].take() {
                    // Addresses that cannot be given back cost no memory.
                    let _ = driver.unreserve(segment.address, segment.bytes);
                }
            }
        }
    }

    /// Unmaps what a ground has mapped and drops pieces that are mapped nowhere then. What holds live
    /// blocks of a ground that is over stays, and what is fixed of one that is not.
    pub(super) fn unbind<D: Driver + ?Sized>(&mut self, driver: &D, capture: CaptureId) {
        let Some(planned) = self.planned.as_mut() else { return };
        let row = planned.grounds.iter().position(|ground| ground.capture == capture);
        let Some(ground) = row.map(|row| &mut planned.grounds[row]) else { return };
        let is_over = ground.owner == Owner::Over;
        let mut rows = Vec::new();
        let all = std::mem::take(&mut ground.bound);
        let kept = all.into_iter().filter(|&Bound { address, bytes, piece, there, .. }| {
            let fixed = planned.pieces[piece].as_ref().is_some_and(|piece| piece.fixed);
            // Nodes of a capture that may still stand use what is fixed, freed or not.
            let kept = if is_over { ground.is_live((address, bytes)) } else { fixed };
            if kept || (there && driver.unmap(address, bytes).is_err()) {
                return true;
            }
            rows.push(piece);
            false
        });
        let kept: Vec<Bound> = kept.collect();
        ground.bound = kept;
        for &row in &rows {
            planned.piece(row).mappings -= 1;
        }
        self.drop_unmapped(driver, &rows);
    }

    /// Releases those of the pieces that are mapped nowhere.
    pub(super) fn drop_unmapped<D: Driver + ?Sized>(&mut self, driver: &D, rows: &[usize]) {
        let Some(planned) = self.planned.as_mut() else { return };
        for &row in rows {
            let unused = planned.pieces[row].take_if(|piece| piece.mappings == 0);
            let Some(Physical { bytes, memory, .. }) = unused else { continue };
            let Some(memory) = memory else {
                self.suspended -= bytes;
                continue;
            };
            self.reserved -= bytes;
            self.pieces -= 1;
            if driver.release(memory).is_err() {
                self.orphans.push(memory);
            }
        }
    }

    /// Gives everything back to the driver.
    pub(in super::super) fn close_planned<D: Driver + ?Sized>(&mut self, driver: &D) {
        let Some(planned) = self.planned.as_mut() else { return };
        for ground in &mut planned.grounds {
            ground.owner = Owner::Over;
            ground.live.clear();
        }
        self.sweep(driver);
    }
}
