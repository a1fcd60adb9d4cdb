//! A block at a place that a layout has chosen.

use super::place::{Placed, Requester};
use super::range::{Range, RangeId, RangeState};
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
        if self.is_uncached() || self.presence().is_shut() || self.plan.whole {
            return None;
        }
        match requester {
            Requester::Capture { .. } => {}
            // Of what is never split a request has all.
            Requester::Outside { .. } if self.may_split(bytes) => {}
            _ => return None,
        }
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

    /// Whether there is memory behind all of these addresses, free or not, in one segment.
    pub(crate) fn holds(&self, address: u64, bytes: u64) -> bool {
        let end = address + bytes;
        let here = |id: &RangeId| {
            let range = &self.ranges[*id];
            !matches!(range.state, RangeState::Hole) && range.address < end && address < range.end()
        };
        let mut parts: Vec<(u64, u64)> = self
            .ranges
            .ids()
            .filter(here)
            .map(|id| (self.ranges[id].address, self.ranges[id].end()))
            .collect();
        parts.sort_unstable();
        let mut at = address;
        parts.into_iter().all(|(from, to)| {
            let joins = from <= at;
            at = to;
            joins
        }) && at >= end
    }

    /// Carves a block out at the lowest address at which [`Heap::place_at`] would and it lies over none of
    /// these addresses (begins and ends, by their begins).
    ///
    /// Costs a look at each free range and each of the addresses.
    pub(crate) fn place_beside(
        &mut self,
        busy: &[(u64, u64)],
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Placed> {
        let mut busy = busy.iter().peekable();
        // Where free addresses without a gap begin; they go up to the end of `last`.
        let (mut begin, mut last) = (0, None);
        let mut found = None;
        for id in self.free_ids().filter(|&id| self.may_take(id, requester, proof)) {
            let range = &self.ranges[id];
            if last.is_none() || range.previous != last {
                begin = range.address;
            }
            last = Some(id);
            let end = range.end();
            while let Some(&&(from, to)) = busy.peek().filter(|busy| busy.0 < end) {
                if from >= begin.saturating_add(bytes) {
                    break;
                }
                begin = begin.max(to);
                if to > end {
                    break;
                }
                busy.next();
            }
            if begin.saturating_add(bytes) <= end {
                found = Some(begin);
                break;
            }
        }
        self.place_at(found?, bytes, requester, proof)
    }
}
