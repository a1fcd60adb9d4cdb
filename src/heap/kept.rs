//! What finished graphs left: what they keep of it between launches, and how captures come to it (design/allocator.md,
//! "From graph to graph"; design/safety.md, "What graphs lend").
//!
//! Memory that a freed output or a freed input ever lay on is *kept*, by address, for as long as the pool has a graph.

use std::collections::BTreeMap;

use super::place::{Placed, Requester};
use super::range::{Range, RangeId, RangeState, Users};
use super::segment::unit;
use super::{idle, Heap};
use crate::capture::Proof;
use crate::driver::Driver;

/// Stretches of addresses, none of which touches another: where each begins, and its end.
#[derive(Debug, Default)]
pub(super) struct Kept(BTreeMap<u64, u64>);

impl Kept {
    fn insert(&mut self, (start, end): (u64, u64)) {
        let (mut start, mut end) = (start, end);
        while let Some((&low, &high)) = self.0.range(..=end).next_back().filter(|it| *it.1 >= start)
        {
            self.0.remove(&low);
            (start, end) = (start.min(low), end.max(high));
        }
        self.0.insert(start, end);
    }

    /// No graph uses an address any more, or ever did: what a capture frees as an input is none's where the capture is
    /// rolled back, or had launched nothing by then.
    pub(super) fn remove(&mut self, (start, end): (u64, u64)) {
        while let Some((&low, &high)) = self.0.range(..end).next_back().filter(|it| *it.1 > start) {
            self.0.remove(&low);
            self.0.extend((low < start).then_some((low, start)));
            self.0.extend((high > end).then_some((end, high)));
        }
    }

    /// Whether an address is kept, and where that changes.
    pub(super) fn at(&self, address: u64) -> (bool, u64) {
        match self.0.range(..=address).next_back() {
            Some((_, &end)) if end > address => (true, end),
            _ => (false, self.0.range(address..).next().map_or(u64::MAX, |(&start, _)| start)),
        }
    }

    /// Whether any of these addresses is kept.
    fn touches(&self, (start, end): (u64, u64)) -> bool {
        let (kept, until) = self.at(start);
        kept || until < end
    }
}

impl Heap {
    /// A graph may find something in an allocated or waiting range that its launch did not write.
    pub(crate) fn keep(&mut self, id: RangeId) {
        let range = (self.ranges[id].address(), self.ranges[id].end());
        self.kept.insert(range);
    }

    /// Whether graphs keep any of a range.
    #[inline]
    pub(super) fn is_kept(&self, (address, end): (u64, u64)) -> bool {
        !self.kept.0.is_empty() && self.kept.touches((address, end))
    }

    /// What graphs keep: addresses and sizes in bytes, ascending and apart.
    pub(crate) fn kept_places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.kept.0.iter().map(|(&start, &end)| (start, end - start))
    }

    /// Free memory of graphs in which they keep nothing between launches: addresses and sizes in bytes.
    pub(crate) fn temporary_places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let temporary = |id: &RangeId| self.ranges[*id].state().idle_users() == Some(Users::Graphs);
        let ids = self.free_ids().filter(temporary);
        ids.map(|id| self.ranges[id].place())
    }

    /// Makes an unlisted range idle, or closed, as graphs' memory: cut where graphs begin or cease to keep it.
    pub(super) fn settle_cut(&mut self, id: RangeId, closed: bool) {
        self.ranges.set_state(id, RangeState::Allocated);
        let since = self.clock;
        let mut at = Some(id);
        while let Some(part) = at {
            let (address, end) = (self.ranges[part].address(), self.ranges[part].end());
            let (kept, until) = self.kept.at(address);
            // What lies above is in no list yet, and of no kind that a neighbour could take in.
            at = (until < end).then(|| self.split(part, until));
            let users = if kept { Users::Kept } else { Users::Graphs };
            self.ranges.set_state(part, idle(users, closed));
            self.ranges.set_stamp(part, since);
            self.list(part);
            self.merge(part);
        }
    }

    /// Closes what is idle, if that is all there is: a capture begins, and no other is under way.
    pub(crate) fn close_idle(&mut self) {
        if self.in_blocks + self.holding.waiting().1 > 0 || self.plan.whole {
            return;
        }
        for id in self.ids_where(|state| matches!(state, RangeState::Idle { .. })) {
            if let RangeState::Idle { users } = self.ranges[id].state() {
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
            if let RangeState::Closed { users } = self.ranges[id].state() {
                self.ranges.set_state(id, RangeState::Idle { users });
                self.merge(id);
            }
        }
    }

    /// Carves a block out of closed memory and of the free ranges before it, where the least must
    /// be opened; of equals where it is lowest.
    pub(crate) fn open(
        &mut self,
        driver: &impl Driver,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Placed> {
        let Opening { first, .. } = self.open_site(driver, bytes, requester, proof)?;
        Some(self.carve(first, bytes))
    }

    /// Opens closed memory as [`Heap::open`] does. The address at which [`Heap::place_at`] finds so many bytes then.
    pub(crate) fn open_place(
        &mut self,
        driver: &impl Driver,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<u64> {
        let site = self.open_site(driver, bytes, requester, proof)?;
        let address = self.ranges[site.first].address();
        // What was opened lies above what was idle.
        self.merge(site.first_closed);
        Some(address)
    }

    /// Opens what is missing of the place for which the least must be opened.
    fn open_site(
        &mut self,
        driver: &impl Driver,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Opening> {
        let Requester::Capture { .. } = requester else { return None };
        if self.is_shut() || !self.has_closed {
            return None;
        }
        let seeds = self.free_ids().filter(|&id| self.is_closed(id)).take(LOOKED_AT);
        let sites = seeds.filter_map(|id| self.opening(id, bytes, requester, proof));
        let address = |site: &Opening| self.ranges[site.first_closed].address();
        let site = sites.min_by_key(|site| (site.missing, address(site)))?;
        self.open_from(site.first_closed, site.missing, unit(driver.memory_support()));
        Some(site)
    }

    /// The site that begins at a closed range, if that and the closed ones above it hold enough.
    fn opening(
        &self,
        id: RangeId,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Opening> {
        let step = |range: &Range| range.previous();
        let (first, below) = self.usable(self.ranges[id].previous(), step, bytes, requester, proof);
        let missing = bytes - below;
        let mut held = 0;
        let mut at = Some(id);
        while let Some(closed) = at.filter(|&at| held < missing && self.is_closed(at)) {
            held += self.ranges[closed].bytes();
            at = self.ranges[closed].next();
        }
        let first = first.unwrap_or(id);
        (held >= missing).then_some(Opening { missing, first_closed: id, first })
    }

    /// Opens `missing` bytes from a closed range on, up to the next whole unit of its segment. What is opened is one with
    /// what is idle above it, and not with what is idle below it.
    fn open_from(&mut self, first: RangeId, missing: u64, unit: u64) {
        let address = self.ranges[first].address();
        let start = self.segment(self.ranges[first].segment()).address();
        let end = start + (address + missing - start).next_multiple_of(unit);
        let mut at = Some(first);
        while let Some(id) = at.filter(|&id| self.ranges[id].address() < end) {
            let RangeState::Closed { users } = self.ranges[id].state() else { return };
            let next = self.ranges[id].next();
            if end < self.ranges[id].end() {
                self.split(id, end);
            }
            self.ranges.set_state(id, RangeState::Idle { users });
            self.merge_next(id);
            // Where that was idle it is gone now.
            at = next;
        }
    }

    fn is_closed(&self, id: RangeId) -> bool {
        matches!(self.ranges[id].state(), RangeState::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;

    /// Memory comes in a part of an arena that lies above closed memory, of which a block then takes a part.
    #[cfg(debug_assertions)]
    #[test]
    fn what_is_opened_is_one_with_what_is_idle_above_it() {
        use crate::capture::Proof;
        use crate::heap::{CaptureSlot, Heap, Plan, Requester, StreamIndex, Supply};
        use regraph_sim::{SimConfig, SimDriver};

        const PIECE: u64 = 2 << 20;
        let driver = SimDriver::new(SimConfig::default());
        let supply = Supply::Growing { reserve: 8 * PIECE };
        let mut heap = Heap::new(Plan::new(false, supply, false, &crate::Settings::default()));
        let base = heap.open_arena(&driver, 2 * PIECE).unwrap().unwrap();
        heap.fill(&driver, (base, PIECE), (base, PIECE), u64::MAX).unwrap();
        heap.close_idle();
        heap.fill(&driver, (base, PIECE), (base + PIECE, PIECE), u64::MAX).unwrap();
        let (capture, stream) = (CaptureSlot::new(0), StreamIndex::new(0));
        let requester = Requester::Capture { capture, stream, share: true };
        let above = base + PIECE + PIECE / 2;
        assert!(heap.place_at(above, PIECE / 2, requester, Proof::NONE).is_some());
        let opened = heap.open(&driver, 3 * PIECE / 4, requester, Proof::NONE);
        assert_eq!(opened.map(|it| it.address), Some(base));
        heap.verify().unwrap();
    }

    #[test]
    fn stretches_unite_and_tell_where_they_end() {
        let mut kept = Kept::default();
        kept.insert((10, 20));
        kept.insert((30, 40));
        assert_eq!(kept.at(5), (false, 10));
        assert_eq!(kept.at(10), (true, 20));
        assert_eq!(kept.at(20), (false, 30));
        assert_eq!(kept.at(40), (false, u64::MAX));
        assert!(kept.touches((0, 11)) && !kept.touches((20, 30)) && kept.touches((39, 50)));
        kept.insert((20, 25));
        assert_eq!(kept.at(12), (true, 25));
        kept.insert((5, 60));
        assert_eq!((kept.at(5), kept.0.len()), ((true, 60), 1));
        kept.remove((60, 70));
        kept.remove((20, 30));
        assert_eq!((kept.at(5), kept.at(20), kept.at(30)), ((true, 20), (false, 30), (true, 60)));
        kept.remove((10, 40));
        assert_eq!((kept.at(5), kept.at(10), kept.at(40)), ((true, 10), (false, 40), (true, 60)));
        kept.remove((0, 60));
        assert_eq!(kept.0.len(), 0);
    }
}

/// So many closed ranges, the lowest, are looked at.
const LOOKED_AT: usize = 256;

/// Closed neighbours that a block would reach into.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// How much of them must be opened, in bytes.
    missing: u64,
    first_closed: RangeId,
    /// The first free range that the block covers.
    first: RangeId,
}
