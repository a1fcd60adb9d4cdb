//! Ranges of addresses: every mapped byte of a segment lies in exactly one, and each knows its
//! neighbours in address order.

use std::num::NonZeroU32;

use super::markers::{Line, Spills};
use super::users::Users;
#[cfg(debug_assertions)]
use super::verify::{holds, times, Verdict};
use crate::capture::{NodeIndex, StreamIndex};
use crate::index::define_index;
use crate::journal::BlockNumber;

/// A row of a heap's table of ranges. Rows are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RangeId(NonZeroU32);

impl RangeId {
    /// The row at a position of the table.
    pub(crate) fn new(position: usize) -> Self {
        let row = u32::try_from(position + 1).ok().and_then(NonZeroU32::new);
        Self(row.expect("tables have fewer than 2^32 rows"))
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

define_index! {
    /// A segment of a heap.
    pub(crate) SegmentId
}

define_index! {
    /// The engine's row of a capture under way.
    pub(crate) CaptureSlot
}

define_index! {
    /// The engine's row of a stream that works outside captures.
    pub(crate) TimelineId
}

/// What a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeState {
    /// No range: the row waits for its next use.
    Vacant,
    /// In a block.
    Allocated,
    /// Free, and nothing of any capture under way ever used it.
    Idle { users: Users },
    /// Idle, and captures leave it alone until they would need more memory ([`open`](super::open)).
    Closed { users: Users },
    /// Free for work that this timeline submits from now on: it comes after all that used the range.
    /// For all streams once the timeline has completed the range's position.
    StreamOrdered {
        timeline: TimelineId,
        /// Eager, or graphs' memory that was lent.
        users: Users,
    },
    /// Free for a stream of a capture that proves the range's free markers; there is at least one.
    Pending {
        /// The capture whose nodes the markers are.
        capture: CaptureSlot,
        /// The stream that had the block.
        owner: StreamIndex,
        /// Of before the capture.
        users: Users,
    },
    /// Given back, but not free for any stream yet.
    Waiting,
    /// Addresses without memory.
    Hole,
}

impl RangeState {
    /// Whether a block may be placed here, at once or later, without further steps of the host.
    #[inline]
    pub(crate) fn is_free(self) -> bool {
        self.users().is_some()
    }

    /// Whose memory a free range is; none of what is not free.
    #[inline]
    pub(crate) fn users(self) -> Option<Users> {
        match self {
            Self::Idle { users }
            | Self::Closed { users }
            | Self::StreamOrdered { users, .. }
            | Self::Pending { users, .. } => Some(users),
            Self::Vacant | Self::Allocated | Self::Waiting | Self::Hole => None,
        }
    }

    /// Whose memory an idle range is, closed or not; none of others.
    #[inline]
    pub(crate) fn idle_users(self) -> Option<Users> {
        match self {
            Self::Idle { users } | Self::Closed { users } => Some(users),
            _ => None,
        }
    }
}

/// A range of addresses: two cache lines. All that a search reads lies in the first, but for the markers
/// of the few ranges that have many.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Range {
    pub(crate) bytes: u64,
    pub(crate) next: Option<RangeId>,
    pub(crate) state: RangeState,
    /// The free markers of a range that a capture gave back, and those that a block's place asked for
    /// before the block took it.
    markers: Line,
    pub(crate) previous: Option<RangeId>,
    pub(crate) segment: SegmentId,
    pub(crate) address: u64,
    /// The last block that lay here, for explanations.
    pub(crate) block: Option<BlockNumber>,
    /// When it became idle, by the heap's count of placements: old ones are given back first.
    pub(crate) since: u64,
    /// Of a stream-ordered range: what its timeline must have completed.
    pub(crate) position: u64,
}

const _: () = assert!(size_of::<Range>() == 128);

impl Range {
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// The table of ranges.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    rows: Vec<Range>,
    spills: Spills,
    vacant: Vec<RangeId>,
    /// How many are free.
    free: usize,
}

impl std::ops::Index<RangeId> for Ranges {
    type Output = Range;

    #[inline]
    fn index(&self, id: RangeId) -> &Range {
        &self.rows[id.index()]
    }
}

impl std::ops::IndexMut<RangeId> for Ranges {
    #[inline]
    fn index_mut(&mut self, id: RangeId) -> &mut Range {
        &mut self.rows[id.index()]
    }
}

impl Ranges {
    /// All rows in use.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RangeId> + '_ {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, range)| !matches!(range.state, RangeState::Vacant))
            .map(|(row, _)| RangeId::new(row))
    }

    /// How many ranges are free.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Makes a range something else.
    #[inline]
    pub(crate) fn set_state(&mut self, id: RangeId, state: RangeState) -> &mut Range {
        let range = &mut self.rows[id.index()];
        self.free -= usize::from(range.state.is_free());
        self.free += usize::from(state.is_free());
        range.state = state;
        range
    }

    /// Cuts an allocated range off the low end of another, which is larger; both have the markers that the other had.
    #[inline]
    pub(crate) fn cut_front(&mut self, id: RangeId, bytes: u64) -> RangeId {
        let &Range { address, segment, previous, markers, .. } = &self[id];
        self.shorten(id, bytes);
        let (place, sides) = ((address, bytes), (previous, Some(id)));
        if !markers.has_list() {
            return self.enter(place, segment, sides, RangeState::Allocated, markers);
        }
        // Each line has a list of its own.
        let front = self.enter(place, segment, sides, RangeState::Allocated, Line::default());
        self.unite_markers(front, id);
        front
    }

    /// Takes so many bytes off a range's low end; they must go to a neighbour.
    #[inline]
    pub(crate) fn shorten(&mut self, id: RangeId, bytes: u64) {
        let range = &mut self.rows[id.index()];
        range.address += bytes;
        range.bytes -= bytes;
    }

    /// What must precede new work in a range.
    #[inline]
    pub(crate) fn markers(&self, id: RangeId) -> &[NodeIndex] {
        self.markers_of(&self[id])
    }

    /// What must precede new work in a range that has been looked up.
    #[inline]
    pub(super) fn markers_of<'a>(&'a self, range: &'a Range) -> &'a [NodeIndex] {
        range.markers.nodes(&self.spills)
    }

    /// Gives a range other markers.
    #[inline]
    pub(crate) fn set_markers(&mut self, id: RangeId, nodes: &[NodeIndex]) {
        self.rows[id.index()].markers.set(nodes, &mut self.spills);
    }

    /// Adds the markers of `from` to those of `id`.
    #[inline]
    pub(crate) fn unite_markers(&mut self, id: RangeId, from: RangeId) {
        let rows = self.rows.get_disjoint_mut([id.index(), from.index()]);
        let [range, from] = rows.expect("markers of one range go to another");
        range.markers.unite(&from.markers, &mut self.spills);
    }

    /// Puts a range between two neighbours, without markers.
    pub(crate) fn insert(
        &mut self,
        place: (u64, u64),
        segment: SegmentId,
        sides: (Option<RangeId>, Option<RangeId>),
        state: RangeState,
    ) -> RangeId {
        self.enter(place, segment, sides, state, Line::default())
    }

    #[inline(always)]
    fn enter(
        &mut self,
        (address, bytes): (u64, u64),
        segment: SegmentId,
        (previous, next): (Option<RangeId>, Option<RangeId>),
        state: RangeState,
        markers: Line,
    ) -> RangeId {
        let range = Range {
            bytes,
            next,
            state,
            markers,
            previous,
            segment,
            address,
            block: None,
            since: 0,
            position: 0,
        };
        self.free += usize::from(state.is_free());
        let id = match self.vacant.pop() {
            Some(id) => {
                self[id] = range;
                id
            }
            None => {
                self.rows.push(range);
                RangeId::new(self.rows.len() - 1)
            }
        };
        if let Some(previous) = previous {
            self[previous].next = Some(id);
        }
        if let Some(next) = next {
            self[next].previous = Some(id);
        }
        id
    }

    /// Takes a range out of the table; its bytes must have gone to a neighbour.
    pub(crate) fn remove(&mut self, id: RangeId) {
        let Range { previous, next, .. } = self[id];
        if let Some(previous) = previous {
            self[previous].next = next;
        }
        if let Some(next) = next {
            self[next].previous = previous;
        }
        self.set_state(id, RangeState::Vacant);
        self.set_markers(id, &[]);
        self.vacant.push(id);
    }
}

#[cfg(debug_assertions)]
impl Ranges {
    /// What [`Heap::verify`](super::Heap::verify) says of the table itself.
    pub(super) fn verify(&self) -> Verdict {
        let vacant = times(self.vacant.iter().map(|id| id.index()), self.rows.len())?;
        let mut free = 0;
        for (row, vacant) in self.rows.iter().zip(vacant) {
            let right = vacant == usize::from(row.state == RangeState::Vacant);
            holds!(right, "vacant {vacant} times: {row:?}");
            free += usize::from(row.state.is_free());
        }
        holds!(free == self.free, "{free} ranges are free, {} counted", self.free);
        self.spills.verify(self.rows.iter().map(|row| &row.markers))
    }
}
