//! What streams gave back outside captures.

use super::range::{Range, RangeId, RangeState, TimelineId};
use super::users::Users;
use super::Heap;

impl Heap {
    /// Frees an allocated range, or one that [`Heap::free_later`] held back, for what a timeline submits
    /// from now on, and for all streams once the timeline has completed the position; what was [`Users::Lent`] for
    /// work that borrows, and for graphs.
    pub(crate) fn free_stream_ordered(
        &mut self,
        id: RangeId,
        (timeline, position): (TimelineId, u64),
        users: Users,
    ) {
        self.leave(id);
        self.ranges.set_markers(id, &[]);
        let Range { bytes: freed, previous, next, .. } = self.ranges[id];
        let above =
            next.and_then(|next| Some((next, self.mergeable(next, (timeline, users), freed)?)));
        let below =
            previous.and_then(|it| Some((it, self.mergeable(it, (timeline, users), freed)?)));
        let others = above.into_iter().chain(below);
        let position = others.map(|(_, other)| other).fold(position, u64::max);
        self.ranges.set_state(id, RangeState::StreamOrdered { timeline, users });
        self.ranges[id].position = position;
        self.list(id);
        if let Some((next, _)) = above {
            self.note_taken(self.ranges[next].state);
            self.absorb_next(id, next);
        }
        if let Some((previous, _)) = below {
            // The lower one goes on; the upper one's row may be in the middle of a free.
            self.note_taken(self.ranges[previous].state);
            self.ranges.set_state(previous, RangeState::StreamOrdered { timeline, users });
            self.ranges[previous].position = position;
            self.absorb_next(previous, id);
        }
    }

    /// The position that a free range asks for, if a timeline's stream-ordered ranges may take it in.
    fn mergeable(
        &self,
        id: RangeId,
        (timeline, users): (TimelineId, Users),
        freed: u64,
    ) -> Option<u64> {
        match self.ranges[id].state {
            RangeState::StreamOrdered { timeline: other, users: of }
                if (other, of) == (timeline, users) =>
            {
                Some(self.ranges[id].position)
            }
            // It is free for all streams, and will be again; until then a whole range is worth more
            // to its timeline than a small one to others.
            state => {
                let eager = (state.idle_users(), users) == (Some(Users::Eager), Users::Eager);
                (eager && self.ranges[id].bytes <= freed).then_some(0)
            }
        }
    }

    /// Makes everything free for all streams whose timeline has completed its position. Returns whether
    /// there was anything. Costs a look at each free range, where timelines have ordered any.
    pub(crate) fn free_completed(&mut self, completed: impl Fn(TimelineId) -> u64) -> bool {
        if self.stream_ordered_ranges() == 0 {
            return false;
        }
        let done = |&id: &RangeId| match self.ranges[id] {
            Range { state: RangeState::StreamOrdered { timeline, .. }, position, .. } => {
                position <= completed(timeline)
            }
            _ => false,
        };
        let done: Vec<RangeId> = self.free_ids().filter(done).collect();
        for &id in &done {
            let users = self.ranges[id].state.users().map_or(Users::Eager, Users::of_block);
            self.unlist(id);
            self.settle_outside(id, users);
        }
        !done.is_empty()
    }

    /// Makes all that was lent and freed the graphs' again: a launch has come after what streams did with it.
    pub(crate) fn free_lent(&mut self) {
        if self.stream_ordered_ranges() == 0 {
            return;
        }
        let lent = |state| matches!(state, RangeState::StreamOrdered { users: Users::Lent, .. });
        for id in self.ids_where(lent) {
            self.unlist(id);
            self.settle_outside(id, Users::Graphs);
        }
    }

    /// Whether a timeline has stream-ordered ranges.
    pub(crate) fn has_stream_ordered(&self, timeline: TimelineId) -> bool {
        self.ordered.get(timeline.index()).is_some_and(|&ranges| ranges > 0)
    }

    /// What timelines have ordered: for each such range its timeline, and what that must have completed.
    pub(crate) fn ordered_positions(&self) -> impl Iterator<Item = (TimelineId, u64)> + '_ {
        self.free_ids().filter_map(|id| match self.ranges[id] {
            Range { state: RangeState::StreamOrdered { timeline, .. }, position, .. } => {
                Some((timeline, position))
            }
            _ => None,
        })
    }

    /// Bytes that timelines have ordered.
    pub(crate) fn stream_ordered_bytes(&self) -> u64 {
        if self.stream_ordered_ranges() == 0 {
            return 0;
        }
        let ordered =
            |id: &RangeId| matches!(self.ranges[*id].state, RangeState::StreamOrdered { .. });
        self.free_ids().filter(ordered).map(|id| self.ranges[id].bytes).sum()
    }

    /// How many ranges timelines have ordered.
    pub(crate) fn stream_ordered_ranges(&self) -> usize {
        self.ordered.iter().sum()
    }

    /// Nothing is lent any more, for the pool has no graph: what was is its streams' own.
    pub(super) fn end_lending(&mut self) {
        if self.stream_ordered_ranges() == 0 {
            return;
        }
        for id in self.ids_where(|state| matches!(state, RangeState::StreamOrdered { .. })) {
            if let RangeState::StreamOrdered { timeline, .. } = self.ranges[id].state {
                self.ranges
                    .set_state(id, RangeState::StreamOrdered { timeline, users: Users::Eager });
            }
        }
    }

    /// Takes all stream-ordered ranges out of use, as [`Heap::free_later`] does, and returns them with
    /// what they wait for and whose they are: eager, or lent.
    pub(crate) fn hold_stream_ordered(&mut self) -> Vec<(RangeId, (TimelineId, u64), Users)> {
        let mut held = Vec::new();
        if self.stream_ordered_ranges() == 0 {
            return held;
        }
        for id in self.ids_where(|state| matches!(state, RangeState::StreamOrdered { .. })) {
            let Range { state, position, .. } = self.ranges[id];
            let RangeState::StreamOrdered { timeline, users } = state else { continue };
            self.unlist(id);
            self.hold(id);
            held.push((id, (timeline, position), users));
        }
        held
    }
}
