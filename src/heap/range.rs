//! Ranges of addresses: every mapped byte of a segment lies in exactly one, and each knows its
//! neighbours in address order.

use super::bins::Slot;
use crate::capture::{Markers, StreamIndex, Token};
use crate::index::define_index;
use crate::journal::BlockNumber;

define_index! {
    /// A row of a heap's table of ranges. Rows are used again; a generation tells uses apart.
    pub(crate) RangeId
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

/// A free range that a capture gave back.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// The capture whose nodes the markers are.
    pub(crate) capture: CaptureSlot,
    /// The stream that had the block: it looks here first.
    pub(crate) owner: StreamIndex,
    /// What must precede new work; never empty.
    pub(crate) markers: Markers,
    /// Whether a finished graph of the pool used this memory before the capture did.
    pub(crate) graphs: bool,
    /// Whether it lies on its owner's free list, as part of a run.
    pub(crate) in_run: bool,
    /// At the first range of a run its last one, at the last one its first; else meaningless.
    pub(crate) run_end: RangeId,
}

/// What a range is.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// No range: the row waits for its next use.
    Vacant,
    /// In a block.
    Allocated,
    /// Free, and nothing of any capture under way ever used it.
    Idle {
        /// Whether a finished graph of the pool uses this memory: then only captures may take it.
        graphs: bool,
        /// Whether captures leave it alone until they would need more memory.
        closed: bool,
    },
    /// Free for work that this timeline submits from now on: it comes after all that used the range.
    /// For all streams once the timeline has completed the position.
    StreamOrdered { timeline: TimelineId, position: u64 },
    /// Free for a stream that proves its markers.
    Pending(Pending),
    /// Given back, but not free for any stream yet.
    Waiting,
    /// Addresses without memory.
    Hole,
}

impl State {
    /// Whether a block may be placed here, at once or later, without further steps of the host.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self, Self::Idle { .. } | Self::StreamOrdered { .. } | Self::Pending(_))
    }
}

/// A range of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) segment: SegmentId,
    pub(crate) previous: Option<RangeId>,
    pub(crate) next: Option<RangeId>,
    pub(crate) state: State,
    /// Where it is listed: an idle range, or the first one of a run.
    pub(crate) slot: Slot,
    /// The last block that lay here, for explanations.
    pub(crate) block: Option<BlockNumber>,
    /// When it became idle, by the heap's count of placements: old ones are given back first.
    pub(crate) since: u64,
}

impl Range {
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// A range and the generation under which it was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) id: RangeId,
    pub(crate) generation: u32,
}

impl Given {
    /// Its name outside the heap of this number.
    pub(crate) fn token(self, heap: u32) -> Token {
        Token { heap, row: self.id.index() as u32, generation: self.generation }
    }
}

/// The table of ranges.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    rows: Vec<Range>,
    /// By row: changes whenever the row's use or its markers change, not when a free range shrinks.
    /// Apart from the rows, so that names which are out of date are told cheaply.
    generations: Vec<u32>,
    vacant: Vec<RangeId>,
    /// How many are free.
    free: usize,
}

impl std::ops::Index<RangeId> for Ranges {
    type Output = Range;

    fn index(&self, id: RangeId) -> &Range {
        &self.rows[id.index()]
    }
}

impl std::ops::IndexMut<RangeId> for Ranges {
    fn index_mut(&mut self, id: RangeId) -> &mut Range {
        &mut self.rows[id.index()]
    }
}

impl Ranges {
    /// All rows in use.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RangeId> + '_ {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, range)| !matches!(range.state, State::Vacant))
            .map(|(row, _)| RangeId::new(row))
    }

    /// Tells uses of a row apart.
    #[inline]
    pub(crate) fn generation(&self, id: RangeId) -> u32 {
        self.generations[id.index()]
    }

    /// Makes every name of a row's use out of date.
    #[inline]
    pub(crate) fn renew(&mut self, id: RangeId) {
        let generation = &mut self.generations[id.index()];
        *generation = generation.wrapping_add(1);
    }

    /// Whether no block has covered a range since it was given back.
    #[inline]
    pub(crate) fn is_current(&self, given: Given) -> bool {
        self.generation(given.id) == given.generation
    }

    /// A range that was given back, if no block has covered it since, and its size now.
    #[inline]
    pub(crate) fn given(&self, given: Given) -> Option<(&Pending, u64)> {
        if !self.is_current(given) {
            return None;
        }
        let range = &self[given.id];
        match &range.state {
            State::Pending(pending) => Some((pending, range.bytes)),
            _ => None,
        }
    }

    /// How many ranges are free.
    pub(crate) fn free(&self) -> usize {
        self.free
    }

    /// Makes a range something else.
    pub(crate) fn set_state(&mut self, id: RangeId, state: State) {
        let range = &mut self.rows[id.index()];
        self.free -= usize::from(range.state.is_free());
        self.free += usize::from(state.is_free());
        range.state = state;
    }

    /// Upper bound of the rows; some may be vacant.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Puts a range between two neighbours.
    pub(crate) fn insert(
        &mut self,
        (address, bytes): (u64, u64),
        segment: SegmentId,
        (previous, next): (Option<RangeId>, Option<RangeId>),
        state: State,
    ) -> RangeId {
        let range = Range {
            address,
            bytes,
            segment,
            previous,
            next,
            state,
            slot: Slot::default(),
            block: None,
            since: 0,
        };
        self.free += usize::from(range.state.is_free());
        let id = match self.vacant.pop() {
            Some(id) => {
                self.renew(id);
                self[id] = range;
                id
            }
            None => {
                self.rows.push(range);
                self.generations.push(0);
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
        self.set_state(id, State::Vacant);
        self.renew(id);
        self.vacant.push(id);
    }
}
