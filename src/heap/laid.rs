//! A block at a place that a layout has chosen.

use super::place::{Placed, Requester};
use super::range::Range;
use super::Heap;
use crate::capture::Proof;

impl Heap {
    /// Carves a block out at an address, if all that it would cover lies in one segment and is free
    /// and the requester may take it: by `proof`, as [`Heap::place`] asks it. Never asks the driver.
    ///
    /// `address` and `bytes` are multiples of 512. Costs a look at each free range below.
    pub(crate) fn place_at(
        &mut self,
        address: u64,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Placed> {
        if self.is_uncached() || self.is_suspended() || self.plan.whole {
            return None;
        }
        let Requester::Capture { .. } = requester else { return None };
        let holds = |range: &Range| range.address <= address && address < range.end();
        let first = self.free_ids().find(|&id| holds(&self.ranges[id]))?;
        let end = address + bytes;
        let mut at = first;
        loop {
            if !self.may_take(at, requester, proof) {
                return None;
            }
            if end <= self.ranges[at].end() {
                break;
            }
            at = self.ranges[at].next?;
        }
        self.clock += 1;
        let first =
            if self.ranges[first].address < address { self.split(first, address) } else { first };
        Some(self.carve(first, bytes))
    }
}
