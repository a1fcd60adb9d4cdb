//! Places that span neighbours of several kinds, and the free end of a segment.

use smallvec::SmallVec;

use super::place::Claim;
use super::range::{Given, RangeId, SegmentId, State};
use super::Heap;
use crate::capture::NodeIndex;

/// How many ranges of each kind are tried as the middle of a place that spans several.
const SEEDS: usize = 8;

impl Heap {
    /// Neighbours of any kind that the claim may take together, around the largest of each kind.
    ///
    /// Looks at a bounded number of places, so that it stays cheap where there are many; a place
    /// that it overlooks costs memory, not safety.
    pub(super) fn joined(
        &mut self,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let Claim::Capture { capture, stream, share } = claim else { return None };
        let mut seeds: SmallVec<[RangeId; 3 * SEEDS]> = SmallVec::new();
        let shelf = self.shelf(capture, stream);
        seeds.extend(shelf.own.largest().take(SEEDS).map(|run| run.id));
        if share {
            let entries: SmallVec<[Given; SEEDS]> =
                shelf.foreign.largest().take(SEEDS).map(|entry| entry.given).collect();
            let alive = entries.iter().filter(|&&given| self.ranges.given(given).is_some());
            seeds.extend(alive.map(|given| given.id));
        }
        for quiet in &self.quiet {
            seeds.extend(quiet.largest().take(SEEDS / 2).map(|range| range.id));
        }
        seeds.into_iter().find_map(|seed| self.around(seed, bytes, claim, prove))
    }

    /// The first of the neighbours around a range that hold `bytes` together, if the claim may
    /// take so many.
    fn around(
        &self,
        seed: RangeId,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let mut held = 0;
        let mut at = Some(seed);
        while let Some(id) = at.filter(|&id| held < bytes && self.may_take(id, claim, prove)) {
            held += self.ranges[id].bytes;
            at = self.ranges[id].next;
        }
        let mut first = seed;
        let mut at = self.ranges[seed].previous.filter(|_| held > 0);
        while let Some(id) = at.filter(|&id| held < bytes && self.may_take(id, claim, prove)) {
            held += self.ranges[id].bytes;
            first = id;
            at = self.ranges[id].previous;
        }
        (held >= bytes).then_some(first)
    }

    /// Whether a claim may take a range.
    pub(super) fn may_take(
        &self,
        id: RangeId,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> bool {
        match (&self.ranges[id].state, claim) {
            (State::Quiet { graphs }, Claim::Outside) => !graphs,
            (State::Quiet { .. }, Claim::Capture { .. }) => true,
            (State::Marked(marked), Claim::Capture { capture, stream, share }) => {
                marked.capture == capture
                    && (share || marked.owner == stream)
                    && prove(&marked.markers)
            }
            _ => false,
        }
    }

    /// The free end of a segment that the claim may take: its first range and its size, at most
    /// `bytes`.
    pub(super) fn free_end(
        &self,
        segment: SegmentId,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> (Option<RangeId>, u64) {
        let mut first = None;
        let mut usable = 0;
        let mut at = self.segments[segment.index()].last;
        while let Some(id) = at.filter(|_| usable < bytes) {
            if !self.may_take(id, claim, prove) {
                break;
            }
            first = Some(id);
            usable += self.ranges[id].bytes;
            at = self.ranges[id].previous;
        }
        // The walk ends as soon as it has enough; a place that large would have been found before.
        (first, usable.min(bytes))
    }
}
