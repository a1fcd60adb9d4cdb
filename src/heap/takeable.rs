//! Which free ranges a requester may take.

use super::place::Requester;
use super::range::{Range, RangeId, State};
use super::Heap;
use crate::capture::Proof;

impl Heap {
    /// Whether a requester may take a free range. Each range of a capture is proven here, in the call that
    /// takes it.
    #[inline]
    pub(super) fn may_take(&self, id: RangeId, requester: Requester, proof: Proof<'_>) -> bool {
        self.takes(id, &self.ranges[id], requester, proof)
    }

    /// [`Heap::may_take`], where the range has been looked up.
    #[inline(always)]
    pub(super) fn takes(
        &self,
        id: RangeId,
        Range { bytes, state, .. }: &Range,
        requester: Requester,
        proof: Proof<'_>,
    ) -> bool {
        match (*state, requester) {
            (
                State::Pending { capture: of, owner, .. },
                Requester::Capture { capture, stream, share },
            ) => {
                of == capture && (share || owner == stream) && proof.covers(self.ranges.markers(id))
            }
            (State::Idle { closed, .. }, Requester::Capture { .. }) => !closed,
            (State::Idle { graphs, .. }, Requester::Outside { .. }) => {
                !graphs && self.may_split(*bytes)
            }
            (State::StreamOrdered { timeline }, Requester::Outside { timeline: asks }) => {
                asks == Some(timeline) && self.may_split(*bytes)
            }
            _ => false,
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
