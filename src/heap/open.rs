//! What earlier graphs left, opened to captures bit by bit.
//!
//! A capture that finds much memory mapped and free would scatter its blocks over it. Where all of the
//! heap of captures' blocks is idle as a capture begins in a pool with graphs, it is therefore *closed*,
//! and opened from the front in units of the device's granularity, as if it were mapped only then. So
//! where blocks lie depends on what is asked for, and not on what was captured before. Work outside
//! captures sees no difference.

use super::place::{Placed, Requester};
use super::range::{Range, RangeId, RangeState};
use super::segment::unit;
use super::Heap;
use crate::capture::Proof;
use crate::driver::Driver;

/// So many closed ranges, the lowest, are looked at.
const LOOKED_AT: usize = 256;

/// Closed neighbours that a block would reach into.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// How much of them must be opened, in bytes.
    missing: u64,
    /// Where the first of them begins.
    address: u64,
    first_closed: RangeId,
    /// The first free range that the block covers.
    first: RangeId,
}

impl Heap {
    /// Closes what is idle, if that is all there is: a capture begins, and no other is under way.
    pub(crate) fn close_idle(&mut self) {
        if self.in_blocks + self.waiting.1 > 0 || self.plan.whole {
            return;
        }
        for id in self.ids_where(|state| matches!(state, RangeState::Idle { .. })) {
            if let RangeState::Idle { users } = self.ranges[id].state {
                self.ranges.set_state(id, RangeState::Closed { users });
                self.has_closed = true;
            }
        }
    }

    /// Opens all that is closed.
    pub(crate) fn open_all(&mut self) {
        if !std::mem::take(&mut self.has_closed) {
            return;
        }
        for id in self.ids_where(|state| matches!(state, RangeState::Closed { .. })) {
            // It may have been merged into the one before.
            if let RangeState::Closed { users } = self.ranges[id].state {
                self.ranges.set_state(id, RangeState::Idle { users });
                self.merge(id);
            }
        }
    }

    /// Carves a block out of closed memory and of the free ranges before it, where the least must
    /// be opened; of equals where it is lowest.
    pub(crate) fn open<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Placed> {
        let Requester::Capture { .. } = requester else { return None };
        if self.presence().is_shut() || !self.has_closed {
            return None;
        }
        let seeds = self.free_ids().filter(|&id| self.is_closed(id)).take(LOOKED_AT);
        let sites = seeds.filter_map(|id| self.opening(id, bytes, requester, proof));
        let site = sites.min_by_key(|site| (site.missing, site.address))?;
        self.open_from(site.first_closed, site.missing, unit(driver.memory_support()));
        Some(self.carve(site.first, bytes))
    }

    /// The site that begins at a closed range, if it is the first of its neighbours and they hold
    /// enough.
    fn opening(
        &self,
        id: RangeId,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Opening> {
        let Range { address, previous, .. } = self.ranges[id];
        if previous.is_some_and(|previous| self.is_closed(previous)) {
            return None;
        }
        let (first, below) = self.usable_before(previous, bytes, requester, proof);
        let missing = bytes - below;
        let mut held = 0;
        let mut at = Some(id);
        while let Some(closed) = at.filter(|&at| held < missing && self.is_closed(at)) {
            held += self.ranges[closed].bytes;
            at = self.ranges[closed].next;
        }
        let first = first.unwrap_or(id);
        (held >= missing).then_some(Opening { missing, address, first_closed: id, first })
    }

    /// Opens `missing` bytes from a closed range on, up to the next whole unit of its segment.
    fn open_from(&mut self, first: RangeId, missing: u64, unit: u64) {
        let Range { address, segment, .. } = self.ranges[first];
        let start = self.segment(segment).address;
        let end = start + (address + missing - start).next_multiple_of(unit);
        let mut at = Some(first);
        while let Some(id) = at.filter(|&id| self.is_closed(id) && self.ranges[id].address < end) {
            let Range { address, bytes, next, .. } = self.ranges[id];
            let RangeState::Closed { users } = self.ranges[id].state else { return };
            let opened = bytes.min(end - address);
            if opened < bytes {
                self.ranges[id].bytes = opened;
                let rest = (address + opened, bytes - opened);
                let state = RangeState::Closed { users };
                let rest = self.ranges.insert(rest, segment, (Some(id), next), state);
                self.ranges[rest].since = self.ranges[id].since;
                if next.is_none() {
                    self.segment(segment).last = Some(rest);
                }
            }
            self.ranges.set_state(id, RangeState::Idle { users });
            at = next;
        }
    }

    fn is_closed(&self, id: RangeId) -> bool {
        matches!(self.ranges[id].state, RangeState::Closed { .. })
    }
}
