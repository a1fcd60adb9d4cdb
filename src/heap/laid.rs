//! A block at a place that a layout has chosen.

use super::carve::Edge;
use super::place::{Placed, Requester};
use super::range::{Range, RangeId, State};
use super::Heap;
use crate::capture::NodeIndex;

impl Heap {
    /// Carves a block out at an address, if all that it would cover lies in one segment and is free
    /// and the requester may take it: by `prove`, as [`Heap::place`] asks it. Never asks the driver.
    ///
    /// `address` and `bytes` are multiples of 512. Costs a search of the table of ranges.
    pub(crate) fn place_at(
        &mut self,
        address: u64,
        bytes: u64,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<Placed> {
        if self.is_uncached() || self.is_suspended() {
            return None;
        }
        let Requester::Capture { .. } = requester else { return None };
        let holds = |range: &Range| range.address <= address && address < range.end();
        let first = self.ranges.ids().find(|&id| holds(&self.ranges[id]))?;
        let end = address + bytes;
        let mut at = first;
        loop {
            if !self.may_take(at, requester, prove) {
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
        Some(self.carve(Edge::Low(first), bytes))
    }

    /// Cuts a free range in two and returns the upper part. Both stay free for whom the whole was.
    fn split(&mut self, id: RangeId, address: u64) -> RangeId {
        let Range { segment, next, block, since, .. } = self.ranges[id];
        let upper = (address, self.ranges[id].end() - address);
        let mut state = self.ranges[id].state.clone();
        let mut waits = None;
        let mut in_run = false;
        if let State::Pending(pending) = &mut state {
            in_run = std::mem::take(&mut pending.in_run);
            waits = Some((pending.capture, pending.owner));
        }
        if in_run {
            self.leave_run(id);
        } else if waits.is_none() {
            self.unlist_single(id);
        }
        self.ranges[id].bytes -= upper.1;
        let rest = self.ranges.insert(upper, segment, (Some(id), next), state);
        self.ranges[rest].block = block;
        self.ranges[rest].since = since;
        if next.is_none() {
            self.segment(segment).last = Some(rest);
        }
        let Some((capture, owner)) = waits else {
            self.list_single(id);
            self.list_single(rest);
            return rest;
        };
        // To others it is as if the upper part had been given back by itself, just now.
        let token = self.token(rest);
        let given = super::Given { id: rest, generation: token.generation };
        self.free_lists(capture).freed.push(upper.1, given);
        if in_run {
            self.join_run(id);
            self.join_run(rest);
        } else {
            self.unproven.push((token, owner));
        }
        rest
    }
}
