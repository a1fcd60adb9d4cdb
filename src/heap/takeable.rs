//! Which free ranges a requester may take.

use super::place::Requester;
use super::range::{CaptureSlot, Range, RangeId, RangeState, TimelineId};
use super::users::{Lent, Users};
use super::Heap;
use crate::capture::{Proof, StreamIndex};

impl Heap {
    /// Whether a requester may take a range.
    #[inline]
    pub(super) fn may_take(&self, id: RangeId, requester: Requester, proof: Proof<'_>) -> bool {
        self.takes(&self.ranges[id], requester, proof) == Some(true)
    }

    /// Whether a requester may take a range that has been looked up. None where it is not free.
    pub(super) fn takes(
        &self,
        range: &Range,
        requester: Requester,
        proof: Proof<'_>,
    ) -> Option<bool> {
        match requester {
            Requester::Capture { capture, stream, share } => {
                self.takes_inside(range, capture, (!share).then_some(stream), proof)
            }
            Requester::Outside { timeline } => self.takes_outside(range, timeline, false),
            Requester::Lent { timeline, lent } => self.takes_lent(range, timeline, lent),
        }
    }

    /// [`Heap::takes`] for a stream of a capture: with `own` only what that stream gave back. Each range of
    /// a capture is proven here, in the call that takes it.
    #[inline(always)]
    pub(super) fn takes_inside(
        &self,
        range: &Range,
        capture: CaptureSlot,
        own: Option<StreamIndex>,
        proof: Proof<'_>,
    ) -> Option<bool> {
        match range.state {
            RangeState::Pending { capture: of, owner, .. } => {
                let asked = of == capture && own.is_none_or(|own| own == owner);
                Some(asked && proof.covers(self.ranges.markers_of(range)))
            }
            RangeState::Idle { .. } => Some(true),
            state => state.is_free().then_some(false),
        }
    }

    /// [`Heap::takes`] for work outside captures. With `whole` all of the range is taken, so it may be one that is
    /// not split.
    #[inline]
    pub(super) fn takes_outside(
        &self,
        range: &Range,
        timeline: Option<TimelineId>,
        whole: bool,
    ) -> Option<bool> {
        let fits = || whole || self.may_split(range.bytes);
        match range.state {
            RangeState::Idle { users } | RangeState::Closed { users } => {
                Some(users == Users::Eager && fits())
            }
            RangeState::StreamOrdered { timeline: of, users: Users::Eager } => {
                Some(timeline == Some(of) && fits())
            }
            state => state.is_free().then_some(false),
        }
    }

    /// [`Heap::takes`] for work outside captures that comes after all launches of the pool's graphs so far, and
    /// before all that come: what these do not keep, or with [`Lent::AllFree`] all that they use.
    #[inline]
    pub(super) fn takes_lent(
        &self,
        range: &Range,
        timeline: TimelineId,
        lent: Lent,
    ) -> Option<bool> {
        let all = lent == Lent::AllFree;
        match range.state {
            RangeState::Idle { users } | RangeState::Closed { users } => {
                Some(users == Users::Graphs || (users == Users::Kept && all))
            }
            RangeState::StreamOrdered { timeline: of, users: Users::Lent } => {
                Some(of == timeline && (all || !self.is_kept((range.address, range.end()))))
            }
            state => state.is_free().then_some(false),
        }
    }

    /// Whether a free range of so many bytes may be split, or joined with others, outside captures.
    #[inline]
    pub(super) fn may_split(&self, bytes: u64) -> bool {
        self.plan.splitting.most.is_none_or(|most| bytes < most)
    }

    /// The free ranges that the requester may take from `last` downwards: the first of them, and how
    /// much they hold, at most `bytes`.
    pub(super) fn usable_before(
        &self,
        last: Option<RangeId>,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> (Option<RangeId>, u64) {
        let mut first = None;
        let mut usable = 0;
        let mut at = last;
        while let Some(id) = at.filter(|_| usable < bytes) {
            if !self.may_take(id, requester, proof) {
                break;
            }
            first = Some(id);
            usable += self.ranges[id].bytes;
            at = self.ranges[id].previous;
        }
        // The walk ends as soon as it has enough; a place that large would have been found before.
        (first, usable.min(bytes))
    }

    /// How much the free ranges hold that the requester may take from `first` upwards, at most `bytes`.
    pub(super) fn usable_after(
        &self,
        first: Option<RangeId>,
        bytes: u64,
        requester: Requester,
        proof: Proof<'_>,
    ) -> u64 {
        let mut usable = 0;
        let mut at = first;
        while let Some(id) = at.filter(|_| usable < bytes) {
            if !self.may_take(id, requester, proof) {
                break;
            }
            usable += self.ranges[id].bytes;
            at = self.ranges[id].next;
        }
        usable.min(bytes)
    }
}
