//! Ranges of addresses: every mapped byte of a segment lies in exactly one, and each knows its
//! neighbours in address order, whose memory it is ([`Users`]), and what must precede new work in it: its markers.

use std::num::NonZeroU32;

#[cfg(debug_assertions)]
use super::verify::{holds, Verdict};
use crate::capture::{Markers, NodeIndex, StreamIndex};
use crate::index::{define_index, Table};
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

/// A point on a timeline: reached once the position is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) timeline: TimelineId,
    pub(crate) position: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeState {
    /// No range: the row waits for its next use.
    Vacant,
    /// In a block.
    Allocated,
    /// Free, and nothing of any capture under way ever used it.
    Idle { users: Users },
    /// Idle, and captures leave it alone until they would need more memory ([`kept`](super::kept)).
    Closed { users: Users },
    /// Free for work that this timeline submits from now on: it comes after all that used the range.
    /// For all streams once the timeline has completed the range's position.
    /// Its users are eager, or it is graphs' memory that was lent.
    StreamOrdered { timeline: TimelineId, users: Users },
    /// Free for a stream of the capture that proves the range's free markers, nodes of it; there is at least one. The
    /// owner is the stream that had the block, and the users are those of before the capture.
    Pending { capture: CaptureSlot, owner: StreamIndex, users: Users },
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

/// Two cache lines: all that a search reads lies in the first, but for the markers of the few ranges that have many.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Range {
    bytes: u64,
    next: Option<RangeId>,
    state: RangeState,
    /// The free markers of what a capture gave back, and those that a block's place asked for before the block took it.
    /// The latest is first: where one is not proven, it mostly is that one.
    markers: Markers,
    previous: Option<RangeId>,
    segment: SegmentId,
    address: u64,
    /// The last block that lay here, for explanations.
    block: Option<BlockNumber>,
    /// Of an idle range: when it became so, by the heap's count of placements; old ones are given back first. Of a
    /// stream-ordered one: what its timeline must have completed.
    stamp: u64,
}

const _: () = assert!(size_of::<Range>() == 128);

impl Range {
    read!(address: u64, bytes: u64, segment: SegmentId, previous: Option<RangeId>, next: Option<RangeId>);
    read!(state: RangeState, block: Option<BlockNumber>, stamp: u64);

    /// Address and size, in bytes.
    #[inline]
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.address, self.bytes)
    }

    /// The ranges below and above.
    #[inline]
    pub(crate) fn sides(&self) -> (Option<RangeId>, Option<RangeId>) {
        (self.previous, self.next)
    }

    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// What must precede new work in it.
    #[inline]
    pub(crate) fn markers(&self) -> &[NodeIndex] {
        &self.markers
    }
}

/// The table of ranges.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    rows: Table<Range>,
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

impl Ranges {
    /// All rows in use.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RangeId> + '_ {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, range)| !matches!(range.state, RangeState::Vacant))
            .map(|(row, _)| RangeId::new(row))
    }

    read!(free: usize);

    /// Makes a range something else.
    #[inline]
    pub(crate) fn set_state(&mut self, id: RangeId, state: RangeState) -> &Range {
        let range = &mut self.rows[id.index()];
        self.free -= usize::from(range.state.is_free());
        self.free += usize::from(state.is_free());
        range.state = state;
        range
    }

    #[inline]
    pub(crate) fn set_block(&mut self, id: RangeId, block: Option<BlockNumber>) {
        self.row(id).block = block;
    }

    #[inline]
    pub(crate) fn set_stamp(&mut self, id: RangeId, stamp: u64) {
        self.row(id).stamp = stamp;
    }

    /// Cuts an allocated range off the low end of another, which is larger; both have the markers that the other had.
    #[inline]
    pub(crate) fn cut_front(&mut self, id: RangeId, bytes: u64) -> RangeId {
        let Range { address, segment, previous, ref markers, .. } = self[id];
        let markers = Markers::from_slice(markers);
        self.shorten(id, bytes);
        self.enter((address, bytes), segment, (previous, Some(id)), RangeState::Allocated, markers)
    }

    /// Cuts a range without markers off the high end of another, which is larger.
    pub(crate) fn cut_back(&mut self, id: RangeId, bytes: u64, state: RangeState) -> RangeId {
        let range = self.row(id);
        range.bytes -= bytes;
        let (place, segment, sides) = ((range.end(), bytes), range.segment, (Some(id), range.next));
        self.enter(place, segment, sides, state, Markers::new())
    }

    /// Moves so many bytes from the low end of the next range to a range's high end.
    #[inline]
    pub(crate) fn take_from_next(&mut self, id: RangeId, bytes: u64) {
        let range = self.row(id);
        range.bytes += bytes;
        if let Some(next) = range.next {
            self.shorten(next, bytes);
        }
    }

    /// Makes a range and the next one one, with the first one's state.
    #[inline]
    pub(crate) fn absorb_next(&mut self, id: RangeId, next: RangeId) {
        let bytes = self[next].bytes;
        self.row(id).bytes += bytes;
        self.remove(next);
    }

    #[inline]
    fn shorten(&mut self, id: RangeId, bytes: u64) {
        let range = self.row(id);
        range.address += bytes;
        range.bytes -= bytes;
    }

    #[inline]
    fn row(&mut self, id: RangeId) -> &mut Range {
        &mut self.rows[id.index()]
    }

    #[inline]
    pub(crate) fn set_markers(&mut self, id: RangeId, nodes: &[NodeIndex]) {
        let markers = &mut self.row(id).markers;
        markers.clear();
        nodes.iter().for_each(|&node| add(markers, node));
    }

    /// Adds the markers of `from` to those of `id`.
    #[inline]
    pub(crate) fn unite_markers(&mut self, id: RangeId, from: RangeId) {
        let rows = self.rows.get_disjoint_mut([id.index(), from.index()]);
        let [Range { markers, .. }, from] = rows.expect("markers of one range go to another");
        match markers.is_empty() {
            true => markers.extend_from_slice(&from.markers),
            false => from.markers.iter().for_each(|&node| {
                if !markers.contains(&node) {
                    add(markers, node);
                }
            }),
        }
    }

    /// Puts a range without markers behind its segment's last one.
    pub(crate) fn append(
        &mut self,
        place: (u64, u64),
        segment: SegmentId,
        last: Option<RangeId>,
        state: RangeState,
    ) -> RangeId {
        self.enter(place, segment, (last, None), state, Markers::new())
    }

    #[inline(always)]
    fn enter(
        &mut self,
        (address, bytes): (u64, u64),
        segment: SegmentId,
        (previous, next): (Option<RangeId>, Option<RangeId>),
        state: RangeState,
        markers: Markers,
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
            stamp: 0,
        };
        self.free += usize::from(state.is_free());
        let id = RangeId::new(self.rows.enter(range) as usize);
        if let Some(previous) = previous {
            self.row(previous).next = Some(id);
        }
        if let Some(next) = next {
            self.row(next).previous = Some(id);
        }
        id
    }

    /// Takes a range out of the table; its bytes must have gone to a neighbour.
    pub(crate) fn remove(&mut self, id: RangeId) {
        let Range { previous, next, .. } = self[id];
        if let Some(previous) = previous {
            self.row(previous).next = next;
        }
        if let Some(next) = next {
            self.row(next).previous = previous;
        }
        self.set_state(id, RangeState::Vacant);
        self.set_markers(id, &[]);
        self.rows.vacate(id.index() as u32);
    }
}

#[cfg(debug_assertions)]
impl Ranges {
    pub(super) fn verify(&self) -> Verdict {
        self.rows.verify(|_, row| row.state != RangeState::Vacant)?;
        let free = self.rows.iter().filter(|row| row.state.is_free()).count();
        holds!(free == self.free, "{free} ranges are free, {} counted", self.free);
        Ok(())
    }
}

/// Adds a marker that is not there, as the first one if it is the latest.
#[inline]
fn add(markers: &mut Markers, mut node: NodeIndex) {
    if let Some(first) = markers.first_mut().filter(|first| **first < node) {
        std::mem::swap(first, &mut node);
    }
    markers.push(node);
}

/// Whose memory a free range is, or the place of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// No finished graph of the pool uses it: work outside captures may take it.
    Eager,
    /// Finished graphs of the pool use it, and each of their launches writes it before it reads it. Of a block, or of
    /// what a capture gave back: graphs use it, and the heap knows by address what they keep.
    Graphs,
    /// They use it, and may find something there that they did not write ([`kept`](super::kept)). Of idle ranges alone.
    Kept,
    /// Graphs use it, and work outside captures borrows it between their launches.
    Lent,
}

/// Which of its graphs' memory a pool lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lent {
    /// What blocks alone have lain on that were allocated and freed in one capture: each launch writes it
    /// anew. What only the run of the capture wrote there, and no node of its graph, is lost.
    Temporary,
    /// All that is free. **The host promises** that no graph will read, of what lies there, anything that is not
    /// written again first: neither outputs that were freed nor inputs that a capture freed; and that it writes inputs
    /// by their addresses only while no such block lives there, after all that has used one. It waits for launches of
    /// other pools' graphs that read outputs there. And a block that lives when a capture into the pool is accepted is
    /// no longer lent: it is as an output of that capture, which graphs that were captured before may overwrite.
    AllFree,
}

impl Users {
    /// Whether a finished graph of the pool uses the memory.
    #[inline]
    pub(crate) fn are_graphs(self) -> bool {
        self != Self::Eager
    }

    /// Those of memory that these use, and graphs too if `graphs` do.
    #[inline]
    pub(crate) fn or_graphs(self, graphs: bool) -> Self {
        match self {
            Self::Eager if graphs => Self::Graphs,
            users => users,
        }
    }

    /// Those of a block in memory of these.
    #[inline]
    pub(crate) fn of_block(self) -> Self {
        match self {
            Self::Eager => Self::Eager,
            Self::Graphs | Self::Kept | Self::Lent => Self::Graphs,
        }
    }
}
