//! Cutting a block out of free ranges.

use super::place::Placed;
use super::range::{Range, RangeId, RangeState};
use super::runs::Position;
use super::users::Users;
use super::Heap;

impl Heap {
    /// Cuts a block out of the low end of a range and of as many behind it as it needs, all of them
    /// free and the requester's to take. The block's range knows the markers of all that it covers.
    pub(super) fn carve(&mut self, first: RangeId, bytes: u64) -> Placed {
        let run = self.runs.of(self.ranges[first].address);
        self.carve_in(run, first, bytes)
    }

    /// [`Heap::carve`], where the run is known in which they lie.
    #[inline]
    pub(super) fn carve_in(&mut self, run: Position, first: RangeId, bytes: u64) -> Placed {
        let Range { address, bytes: held, state, .. } = self.ranges[first];
        let mut users = users_of(state);
        self.in_blocks += bytes;
        let (range, after) = if held > bytes {
            // The block gets a row of its own, and the rest keeps its row, markers and names.
            (self.ranges.cut_front(first, bytes), Some(first))
        } else {
            self.note_taken(state);
            let mut missing = bytes - held;
            while missing > 0 {
                let next = self.ranges[first].next;
                let next = next.unwrap_or_else(|| unreachable!("the neighbours were large enough"));
                let Range { bytes: held, state, .. } = self.ranges[next];
                users = users.or_graphs(users_of(state).are_graphs());
                self.ranges.unite_markers(first, next);
                if held > missing {
                    self.ranges.shorten(next, missing);
                    break;
                }
                self.note_taken(state);
                self.absorb_next(first, next);
                missing -= held;
            }
            let range = self.ranges.set_state(first, RangeState::Allocated);
            range.bytes = bytes;
            (first, range.next)
        };
        self.runs.cut(run, (address, bytes), after);
        Placed { range, address, bytes, users }
    }
}

/// Whose memory a block is in what a free range holds.
fn users_of(state: RangeState) -> Users {
    state.users().map_or(Users::Eager, Users::of_block)
}
