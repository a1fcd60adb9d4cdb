//! What streams gave back outside captures.

use super::bins::Bins;
use super::range::{LaneIndex, RangeId, State};
use super::shelf::Listed;
use super::Heap;

impl Heap {
    /// Frees an allocated range, or one that [`Heap::free_later`] held back, for what a lane submits
    /// from now on, and for everyone once the lane has completed the epoch.
    pub(crate) fn free_ordered(&mut self, id: RangeId, lane: LaneIndex, epoch: u64) {
        self.leave(id);
        let mut epoch = epoch;
        let mut id = id;
        let freed = self.ranges[id].bytes;
        self.ranges.renew(id);
        if let Some(next) = self.ranges[id].next {
            if let Some(other) = self.mergeable(next, lane, freed) {
                epoch = epoch.max(other);
                self.unlist_single(next);
                self.absorb_next(id, next);
            }
        }
        if let Some(previous) = self.ranges[id].previous {
            if let Some(other) = self.mergeable(previous, lane, freed) {
                epoch = epoch.max(other);
                self.unlist_single(previous);
                // The lower one goes on; the upper one's row may be in the middle of a free.
                self.absorb_next(previous, id);
                id = previous;
            }
        }
        self.ranges.set_state(id, State::Ordered { lane, epoch });
        self.list_single(id);
    }

    /// The epoch that a free range asks for, if a lane's ordered ranges may take it in.
    fn mergeable(&self, id: RangeId, lane: LaneIndex, freed: u64) -> Option<u64> {
        match self.ranges[id].state {
            State::Ordered { lane: other, epoch } if other == lane => Some(epoch),
            // It is free for everyone, and will be again; until then a whole range is worth more to
            // its lane than a small one to others.
            State::Quiet { graphs: false, .. } if self.ranges[id].bytes <= freed => Some(0),
            _ => None,
        }
    }

    /// Makes everything free for everyone that a lane was given up to an epoch: it has completed
    /// that. Returns whether there was anything.
    pub(crate) fn settle_lane(&mut self, lane: LaneIndex, completed: u64) -> bool {
        let Some(listed) = self.ordered.get(lane.index()) else { return false };
        let done = |listed: &&Listed| matches!(self.ranges[listed.id].state, State::Ordered { epoch, .. } if epoch <= completed);
        let done: Vec<RangeId> = listed.iter().filter(done).map(|listed| listed.id).collect();
        for &id in &done {
            self.unlist_single(id);
            self.settle(id, false);
        }
        !done.is_empty()
    }

    /// Whether a lane has ordered ranges.
    pub(crate) fn is_ordered(&self, lane: LaneIndex) -> bool {
        self.ordered.get(lane.index()).is_some_and(|listed| listed.len() > 0)
    }

    /// Bytes that lanes have ordered.
    pub(crate) fn ordered_bytes(&self) -> u64 {
        self.ordered.iter().flat_map(Bins::iter).map(|listed| listed.bytes).sum()
    }

    /// How many ranges lanes have ordered.
    pub(crate) fn ordered_ranges(&self) -> usize {
        self.ordered.iter().map(Bins::len).sum()
    }

    /// Takes all ordered ranges out of use, as [`Heap::free_later`] does, and returns them with
    /// what they wait for.
    pub(crate) fn hold_ordered(&mut self) -> Vec<(RangeId, LaneIndex, u64)> {
        let mut held = Vec::new();
        for row in 0..self.ranges.len() {
            let id = RangeId::new(row);
            let State::Ordered { lane, epoch } = self.ranges[id].state else { continue };
            self.unlist_single(id);
            self.hold(id);
            held.push((id, lane, epoch));
        }
        held
    }
}
