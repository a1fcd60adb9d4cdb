//! Blocks at places that are given: one that a layout has chosen, those that blocks had at a checkpoint.
//!
//! Where blocks lay at a checkpoint the engine has remembered; that what used the places meanwhile comes before what
//! uses them now its host has promised (`HostCalls::restore`). So nothing is proven here, and each free or waiting
//! range of the heap may be taken. What is in a block, or has no memory, never is.

use super::place::{Placed, Requester};
use super::range::{Range, RangeId, RangeState, Users};
use super::Heap;
use crate::capture::Proof;

impl Heap {
    /// Whether blocks can have places of the caller's choice: not where each block has a segment of its own, nor while
    /// memory may be missing.
    fn has_places(&self) -> bool {
        !self.is_uncached() && !self.is_shut() && !self.plan.whole
    }

    /// Carves a block of `bytes` out at an address, both multiples of 512, if all that it would cover lies in one
    /// segment and the requester may take it. Never asks the driver. Costs a look at each free range below.
    pub(crate) fn place_at(
        &mut self,
        address: u64,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<Placed> {
        if !self.has_places() {
            return None;
        }
        match requester {
            Requester::Capture { .. } => {}
            // Of what is never split a request has all.
            Requester::Outside { .. } if self.may_split(bytes) => {}
            _ => return None,
        }
        let holds = |range: &Range| range.address() <= address && address < range.end();
        let first = self.free_ids().find(|&id| holds(&self.ranges[id]))?;
        let below = address - self.ranges[first].address();
        let all = below + bytes;
        if self.usable(Some(first), Range::next, all, requester, proof).1 < all {
            return None;
        }
        self.clock += 1;
        let first = if below > 0 { self.split(first, address) } else { first };
        Some(self.carve(first, bytes))
    }

    /// Behind how many bytes of these addresses there is no memory, not yet or not any more; `None` where they do not
    /// all lie in ranges of one segment. Costs a look at each hole.
    pub(crate) fn missing(&self, address: u64, bytes: u64) -> Option<u64> {
        let end = address + bytes;
        let mut segments = self.segments.iter().flatten();
        segments.find(|it| it.address() <= address && end <= it.front())?;
        let holes = self.holes.iter().map(|&hole| &self.ranges[hole]);
        let here =
            holes.map(|hole| hole.end().min(end).saturating_sub(hole.address().max(address)));
        Some(here.sum())
    }

    /// The lowest address at which [`Heap::place_at`] would put a block and it lies over none of these addresses
    /// (begins and ends, by their begins). Costs a look at each of them and each free range.
    pub(crate) fn find_place(
        &self,
        busy: &[(u64, u64)],
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<u64> {
        if !self.has_places() {
            return None;
        }
        let mut busy = busy.iter().peekable();
        // Where free addresses without a gap begin; they go up to the end of `last`.
        let (mut begin, mut last) = (0, None);
        for id in self.free_ids().filter(|&id| self.may_take(id, requester, proof)) {
            let range = &self.ranges[id];
            if last.is_none() || range.previous() != last {
                begin = range.address();
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
                return Some(begin);
            }
        }
        None
    }

    /// The first of some places at which no block could lie even if all of the heap's blocks were given back: not one
    /// segment has memory for all of it, or a capture under way has a part of it.
    pub(crate) fn first_unclaimable(&self, places: &[(u64, u64)]) -> Option<(u64, u64)> {
        let mapped = self.mapped_in_order();
        let could_hold = |&(address, size): &(u64, u64)| {
            let above = mapped.partition_point(|&(_, (start, _), _)| start <= address);
            let Some(first) = above.checked_sub(1) else { return false };
            let mut reached = address;
            for &(id, (start, bytes), segment) in &mapped[first..] {
                let follows = start <= reached && reached < start + bytes;
                let pending = matches!(self.ranges[id].state(), RangeState::Pending { .. });
                if !follows || pending || segment != mapped[first].2 {
                    return false;
                }
                reached = start + bytes;
                if reached >= address + size {
                    return true;
                }
            }
            false
        };
        places.iter().copied().find(|place| !could_hold(place))
    }

    /// Puts blocks at places that [`Heap::first_unclaimable`] has nothing against, in order of addresses,
    /// where no block lies any more. Never asks the driver. Of each returns its range, whose memory that is (eager, or
    /// graphs where a finished graph uses any of it), and what became of the waiting ranges that lay there.
    pub(crate) fn claim(&mut self, places: &[(u64, u64)]) -> Vec<(RangeId, Users, Vec<Cut>)> {
        let mapped = self.mapped_in_order();
        let mut last: Option<RangeId> = None;
        let mut claimed = Vec::with_capacity(places.len());
        for &(address, bytes) in places {
            let start = mapped.partition_point(|&(_, (start, _), _)| start <= address) - 1;
            let (start, _, segment) = mapped[start];
            // Rows of a segment below the place before may be gone, or other ranges by now.
            let here = last.filter(|&last| self.ranges[last].segment().index() == segment);
            let place = self.claim_from(here.unwrap_or(start), address, bytes);
            last = Some(place.0);
            claimed.push(place);
        }
        claimed
    }

    /// Takes one place, which lies at a range or above it in the same segment.
    fn claim_from(
        &mut self,
        start: RangeId,
        address: u64,
        bytes: u64,
    ) -> (RangeId, Users, Vec<Cut>) {
        const HELD: &str = "the places were looked at before";
        let end = address + bytes;
        self.clock += 1;
        let mut first = start;
        while self.ranges[first].end() <= address {
            first = self.ranges[first].next().expect(HELD);
        }
        let mut cuts: Vec<Cut> = Vec::new();
        let mut users = Users::Eager;
        let mut lower = None;
        if self.ranges[first].address() < address {
            lower = Some((first, self.ranges[first].address()));
            first = self.split(first, address);
        }
        let mut at = first;
        loop {
            let above = (self.ranges[at].end() > end).then(|| self.split(at, end));
            match self.ranges[at].state() {
                RangeState::Waiting => {
                    let lower = lower.take();
                    let was = lower.unwrap_or((at, self.ranges[at].address()));
                    cuts.push((was, [lower.map(|(id, _)| id), above]));
                    self.leave(at);
                }
                RangeState::Idle { users: of }
                | RangeState::Closed { users: of }
                | RangeState::StreamOrdered { users: of, .. } => {
                    users = users.or_graphs(of.are_graphs());
                    self.unlist(at);
                }
                state => unreachable!("a block that is given back leaves no such range: {state:?}"),
            }
            lower = None;
            self.ranges.set_markers(at, &[]);
            self.ranges.set_state(at, RangeState::Allocated);
            if above.is_some() || self.ranges[at].end() == end {
                break;
            }
            at = self.ranges[at].next().expect(HELD);
        }
        while self.ranges[first].bytes() < bytes {
            let next = self.ranges[first].next().expect(HELD);
            self.absorb_next(first, next);
        }
        self.in_blocks += bytes;
        (first, users, cuts)
    }

    /// Cuts a range in two that is free or waits, and returns the upper part. Both stay what the whole was.
    pub(super) fn split(&mut self, id: RangeId, address: u64) -> RangeId {
        let range = &self.ranges[id];
        let (state, block, stamp) = (range.state(), range.block(), range.stamp());
        let rest = self.cut_back(id, range.end() - address, state);
        self.ranges.unite_markers(rest, id);
        self.ranges.set_block(rest, block);
        self.ranges.set_stamp(rest, stamp);
        match state {
            RangeState::StreamOrdered { .. } => self.ordered += 1,
            // Its bytes wait already.
            RangeState::Waiting => self.holding.begin_wait(0),
            _ => {}
        }
        rest
    }
}

/// A waiting range of which a place took a part, or all, with its address before; and what is left of it below the
/// place and above, and goes on waiting.
pub(crate) type Cut = ((RangeId, u64), [Option<RangeId>; 2]);
