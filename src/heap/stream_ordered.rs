//! What streams gave back outside captures.

use super::bins::Bins;
use super::free_list::Listed;
use super::range::{RangeId, State, TimelineId};
use super::Heap;

impl Heap {
    /// Frees an allocated range, or one that [`Heap::free_later`] held back, for what a timeline submits
    /// from now on, and for all streams once the timeline has completed the position.
    pub(crate) fn free_stream_ordered(&mut self, id: RangeId, timeline: TimelineId, position: u64) {
        self.leave(id);
        let mut position = position;
        let mut id = id;
        let freed = self.ranges[id].bytes;
        self.ranges.renew(id);
        if let Some(next) = self.ranges[id].next {
            if let Some(other) = self.mergeable(next, timeline, freed) {
                position = position.max(other);
                self.unlist_single(next);
                self.absorb_next(id, next);
            }
        }
        if let Some(previous) = self.ranges[id].previous {
            if let Some(other) = self.mergeable(previous, timeline, freed) {
                position = position.max(other);
                self.unlist_single(previous);
                // The lower one goes on; the upper one's row may be in the middle of a free.
                self.absorb_next(previous, id);
                id = previous;
            }
        }
        self.ranges.set_state(id, State::StreamOrdered { timeline, position });
        self.list_single(id);
    }

    /// The position that a free range asks for, if a timeline's stream-ordered ranges may take it in.
    fn mergeable(&self, id: RangeId, timeline: TimelineId, freed: u64) -> Option<u64> {
        match self.ranges[id].state {
            State::StreamOrdered { timeline: other, position } if other == timeline => {
                Some(position)
            }
            // It is free for all streams, and will be again; until then a whole range is worth more
            // to its timeline than a small one to others.
            State::Idle { graphs: false, .. } if self.ranges[id].bytes <= freed => Some(0),
            _ => None,
        }
    }

    /// Makes everything free for everyone that a timeline was given up to an position: it has completed
    /// that. Returns whether there was anything.
    pub(crate) fn complete_position(&mut self, timeline: TimelineId, completed: u64) -> bool {
        let Some(listed) = self.stream_ordered.get(timeline.index()) else { return false };
        let done = |listed: &&Listed| matches!(self.ranges[listed.id].state, State::StreamOrdered { position, .. } if position <= completed);
        let done: Vec<RangeId> = listed.iter().filter(done).map(|listed| listed.id).collect();
        for &id in &done {
            self.unlist_single(id);
            self.settle(id, false);
        }
        !done.is_empty()
    }

    /// Whether a timeline has stream-ordered ranges.
    pub(crate) fn has_stream_ordered(&self, timeline: TimelineId) -> bool {
        self.stream_ordered.get(timeline.index()).is_some_and(|listed| listed.len() > 0)
    }

    /// Bytes that timelines have ordered.
    pub(crate) fn stream_ordered_bytes(&self) -> u64 {
        self.stream_ordered.iter().flat_map(Bins::iter).map(|listed| listed.bytes).sum()
    }

    /// How many ranges timelines have ordered.
    pub(crate) fn stream_ordered_ranges(&self) -> usize {
        self.stream_ordered.iter().map(Bins::len).sum()
    }

    /// Takes all stream-ordered ranges out of use, as [`Heap::free_later`] does, and returns them with
    /// what they wait for.
    pub(crate) fn hold_stream_ordered(&mut self) -> Vec<(RangeId, TimelineId, u64)> {
        let mut held = Vec::new();
        for row in 0..self.ranges.len() {
            let id = RangeId::new(row);
            let State::StreamOrdered { timeline, position } = self.ranges[id].state else {
                continue;
            };
            self.unlist_single(id);
            self.hold(id);
            held.push((id, timeline, position));
        }
        held
    }
}
