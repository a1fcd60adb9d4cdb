//! A block at a place that a layout has chosen.

use super::place::{Placed, Requester};
use super::range::{Range, RangeId};
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
        if self.is_uncached() || self.is_suspended() {
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

    /// Cuts a free range in two and returns the upper part. Both stay free for whom the whole was.
    fn split(&mut self, id: RangeId, address: u64) -> RangeId {
        let Range { segment, next, block, since, state, .. } = self.ranges[id];
        let upper = (address, self.ranges[id].end() - address);
        self.ranges[id].bytes -= upper.1;
        let rest = self.ranges.insert(upper, segment, (Some(id), next), state);
        self.ranges.unite_markers(rest, id);
        self.ranges[rest].block = block;
        self.ranges[rest].since = since;
        if next.is_none() {
            self.segment(segment).last = Some(rest);
        }
        rest
    }
}
