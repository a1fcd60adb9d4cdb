//! Places that span neighbours of several kinds, and the free end of a segment.

use smallvec::SmallVec;

use super::place::Requester;
use super::range::{Given, Range, RangeId, State};
use super::Heap;
use crate::capture::NodeIndex;

/// How many ranges of each kind are tried as the middle of a place that spans several.
const SEEDS: usize = 8;

impl Heap {
    /// Neighbours of any kind that the requester may take together, around the largest of each kind.
    ///
    /// Looks at a bounded number of places, so that it stays cheap where there are many; a place
    /// that it overlooks costs memory, not safety.
    pub(super) fn joined(
        &mut self,
        bytes: u64,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let mut seeds: SmallVec<[RangeId; 3 * SEEDS]> = SmallVec::new();
        let (capture, stream, share) = match requester {
            Requester::Capture { capture, stream, share } => (capture, stream, share),
            Requester::Outside { timeline } => {
                let own = timeline.and_then(|timeline| self.stream_ordered.get(timeline.index()));
                seeds.extend(own.iter().flat_map(|own| own.largest()).take(SEEDS).map(|it| it.id));
                for idle in [&self.idle[0], &self.closed[0]] {
                    seeds.extend(idle.largest().take(SEEDS).map(|range| range.id));
                }
                return seeds
                    .into_iter()
                    .find_map(|seed| self.around(seed, bytes, requester, prove));
            }
        };
        let free_list = self.free_list(capture, stream);
        seeds.extend(free_list.own.largest().take(SEEDS).map(|run| run.id));
        if share {
            let entries: SmallVec<[Given; SEEDS]> =
                free_list.cross_stream.largest().take(SEEDS).map(|entry| entry.given).collect();
            let alive = entries.iter().filter(|&&given| self.ranges.given(given).is_some());
            seeds.extend(alive.map(|given| given.id));
        }
        for idle in &self.idle {
            seeds.extend(idle.largest().take(SEEDS / 2).map(|range| range.id));
        }
        seeds.into_iter().find_map(|seed| self.around(seed, bytes, requester, prove))
    }

    /// The first of the neighbours around a range that hold `bytes` together, if the requester may
    /// take so many.
    fn around(
        &self,
        seed: RangeId,
        bytes: u64,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let mut held = 0;
        let mut at = Some(seed);
        while let Some(id) = at.filter(|&id| held < bytes && self.may_take(id, requester, prove)) {
            held += self.ranges[id].bytes;
            at = self.ranges[id].next;
        }
        let mut first = seed;
        let mut at = self.ranges[seed].previous.filter(|_| held > 0);
        while let Some(id) = at.filter(|&id| held < bytes && self.may_take(id, requester, prove)) {
            held += self.ranges[id].bytes;
            first = id;
            at = self.ranges[id].previous;
        }
        (held >= bytes).then_some(first)
    }

    /// Whether a requester may take a range.
    pub(super) fn may_take(
        &self,
        id: RangeId,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> bool {
        let Range { bytes, state, .. } = &self.ranges[id];
        if let (Requester::Outside { .. }, Some(most)) = (requester, self.plan.splitting.most) {
            if *bytes >= most {
                // It is given whole or not at all.
                return false;
            }
        }
        match (state, requester) {
            (State::Idle { graphs, .. }, Requester::Outside { .. }) => !graphs,
            (State::StreamOrdered { timeline, .. }, Requester::Outside { timeline: asks }) => {
                asks == Some(*timeline)
            }
            (State::Idle { closed, .. }, Requester::Capture { .. }) => !closed,
            (State::Pending(pending), Requester::Capture { capture, stream, share }) => {
                pending.capture == capture
                    && (share || pending.owner == stream)
                    && prove(&pending.markers)
            }
            _ => false,
        }
    }

    /// The free ranges that the requester may take from `last` downwards: the first of them, and how
    /// much they hold, at most `bytes`.
    pub(super) fn usable_before(
        &self,
        last: Option<RangeId>,
        bytes: u64,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> (Option<RangeId>, u64) {
        let mut first = None;
        let mut usable = 0;
        let mut at = last;
        while let Some(id) = at.filter(|_| usable < bytes) {
            if !self.may_take(id, requester, prove) {
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
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> u64 {
        let mut usable = 0;
        let mut at = first;
        while let Some(id) = at.filter(|_| usable < bytes) {
            if !self.may_take(id, requester, prove) {
                break;
            }
            usable += self.ranges[id].bytes;
            at = self.ranges[id].next;
        }
        usable.min(bytes)
    }
}
