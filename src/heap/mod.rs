//! One heap of a pool: ranges of addresses, who may take the free ones, and growth.
//!
//! * [`range`]: the table of ranges in address order.
//! * [`segment`]: where memory comes from.
//! * [`bins`]: places by size.
//! * [`stream_ordered`]: what streams gave back outside captures.
//! * [`free_list`]: what each stream of a capture may take; [`cross_stream`]: what others gave back.
//! * [`place`]: where a block goes; with [`choose`], [`joined`] and [`carve`].
//! * [`laid`]: a block at a place that a layout has chosen.
//! * [`open`]: what graphs left, opened to captures bit by bit.
//! * [`planned`]: a heap by itself, of blocks whose memory comes at the end of their capture.
//! * [`grow`]: more memory from the driver; [`premapped`]: some of it ahead; [`give_back`]: less;
//!   [`suspend`]: none for a while.
//!
//! A heap decides *where*; whether a stream may is asked of the caller's `prove` for every marker
//! of every range that a block would cover. What the heap remembers of earlier answers (free lists) only saves questions.
//!
//! The same calls give the same addresses: every order here is one of sizes, addresses and rows.

mod bins;
mod carve;
mod choose;
mod cross_stream;
mod free_list;
mod give_back;
mod grow;
mod joined;
mod laid;
mod open;
mod place;
mod planned;
mod premapped;
mod range;
mod segment;
mod stream_ordered;
mod suspend;

pub(crate) use give_back::Surplus;
pub(crate) use grow::Wanted;
pub(crate) use place::{Before, Placed, Requester};
pub(crate) use planned::{Others, Placement, PlannedHeap, PlannedRequester, Prepared, Sharable};
pub(crate) use premapped::Bounds;
pub(crate) use range::{CaptureSlot, Pending, RangeId, State, TimelineId};
pub(crate) use segment::unit;

use crate::capture::{Markers, NodeIndex, StreamIndex, Token};
use crate::driver::{Driver, DriverError, MemoryHandle};
use crate::journal::BlockNumber;
use bins::Bins;
use free_list::{CaptureFreeLists, Listed, StreamFreeList};
use range::{Given, Range, Ranges, SegmentId};
use segment::Segment;

/// Which free ranges a block may be cut from outside captures (PyTorch's `max_split_size_mb`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Splitting {
    /// Free ranges of at least so many bytes are never split, and given to blocks of that size only.
    pub(crate) most: Option<u64>,
    /// By how much such a range may be larger than the block, in bytes.
    pub(crate) slack: u64,
}

/// What a heap is for and how it gets memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Whether it holds small blocks.
    pub(crate) small: bool,
    pub(crate) supply: Supply,
    pub(crate) splitting: Splitting,
}

/// How a heap gets memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// Segments that reserve this many bytes of addresses and grow.
    Growing { reserve: u64 },
    /// Segments of fixed sizes.
    Fixed,
    /// An allocation of the driver's for each block, given back with it.
    Uncached,
}

/// Small or large blocks of one pool.
#[derive(Debug)]
pub(crate) struct Heap {
    /// The engine's number of this heap, for tokens.
    number: u32,
    plan: Plan,
    ranges: Ranges,
    segments: Vec<Option<Segment>>,
    /// The latest segment that can grow.
    growing: Option<SegmentId>,
    holes: Vec<RangeId>,
    /// Idle ranges that are not closed; `[1]` holds those that graphs use.
    idle: [Bins<Listed>; 2],
    /// Idle ranges that are closed, in the same order.
    closed: [Bins<Listed>; 2],
    /// StreamOrdered ranges by timeline; rows appear as they are needed.
    stream_ordered: Vec<Bins<Listed>>,
    /// By capture; rows appear as they are needed.
    free_lists: Vec<CaptureFreeLists>,
    /// What a search found unproven, with the stream that must wait for it.
    unproven: Vec<(Token, StreamIndex)>,
    /// Memory that is mapped nowhere and could not be released.
    orphans: Vec<MemoryHandle>,
    reserved: u64,
    /// Bytes that are mapped and lie in no range; counted as reserved.
    premapped: u64,
    /// Bytes that are held to be exchanged for others, and not counted as reserved elsewhere.
    replacements: u64,
    /// What captures under way made the heap grow by in steps, in bytes.
    grown: u64,
    /// Whether growth maps nothing ahead until a capture ends: what it had was wanted elsewhere.
    exact: bool,
    /// Whether nothing may be handed out: its memory, or a part of it, is with the driver.
    is_suspended: bool,
    /// Bytes that the driver has until the heap is resumed.
    suspended: u64,
    pieces: usize,
    in_blocks: u64,
    waiting: u64,
    waiting_ranges: usize,
    /// Counts placements, to tell old from new.
    clock: u64,
    /// What came from the driver and went back since that was last asked.
    changes: Vec<Change>,
}

/// Memory that came from the driver or went back to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) mapped: bool,
    /// Whether it was a whole segment.
    pub(crate) whole: bool,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// In how many pieces.
    pub(crate) pieces: usize,
}

impl Heap {
    pub(crate) fn new(number: u32, plan: Plan) -> Self {
        Self {
            number,
            plan,
            ranges: Ranges::default(),
            segments: Vec::new(),
            growing: None,
            holes: Vec::new(),
            idle: [Bins::default(), Bins::default()],
            closed: [Bins::default(), Bins::default()],
            stream_ordered: Vec::new(),
            free_lists: Vec::new(),
            unproven: Vec::new(),
            orphans: Vec::new(),
            reserved: 0,
            premapped: 0,
            replacements: 0,
            grown: 0,
            exact: false,
            is_suspended: false,
            suspended: 0,
            pieces: 0,
            in_blocks: 0,
            waiting: 0,
            waiting_ranges: 0,
            clock: 0,
            changes: Vec::new(),
        }
    }

    /// Bytes held from the driver.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved + self.replacements
    }

    /// Address and size of a range.
    pub(crate) fn extent(&self, id: RangeId) -> (u64, u64) {
        (self.ranges[id].address, self.ranges[id].bytes)
    }

    /// Every range that is not in a block: address, bytes, state, last block.
    pub(crate) fn free_ranges(
        &self,
    ) -> impl Iterator<Item = (u64, u64, &State, Option<BlockNumber>)> + '_ {
        self.ranges.ids().map(|id| &self.ranges[id]).filter_map(|range| {
            let free = !matches!(range.state, State::Allocated | State::Hole);
            free.then_some((range.address, range.bytes, &range.state, range.block))
        })
    }

    /// Every range with memory in it, in address order: its address and size, and the number of its
    /// segment.
    pub(crate) fn mapped(&self) -> Vec<(RangeId, (u64, u64), usize)> {
        let ids = self.ranges.ids().filter(|&id| !matches!(self.ranges[id].state, State::Hole));
        let mut mapped: Vec<_> = ids
            .map(|id| {
                let range = &self.ranges[id];
                (id, (range.address, range.bytes), range.segment.index())
            })
            .collect();
        mapped.sort_unstable_by_key(|&(_, place, _)| place);
        mapped
    }

    /// Whether an address lies in what the heap has from the driver, or has reserved there.
    pub(crate) fn owns(&self, address: u64) -> bool {
        self.segments.iter().flatten().any(|segment| {
            address.checked_sub(segment.address).is_some_and(|offset| offset < segment.bytes)
        })
    }

    /// What a range is.
    pub(crate) fn state(&self, id: RangeId) -> &State {
        &self.ranges[id].state
    }

    /// Whether it holds small blocks.
    pub(crate) fn is_small(&self) -> bool {
        self.plan.small
    }

    /// Whether a segment can grow.
    pub(crate) fn is_growable(&self, segment: usize) -> bool {
        self.segments[segment].as_ref().is_some_and(|segment| segment.growable)
    }

    /// How many pieces the driver holds for it.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces
    }

    fn note_change(&mut self, change: Change) {
        if change.mapped {
            self.pieces += change.pieces;
            self.reserved += change.bytes;
        } else {
            self.pieces -= change.pieces;
            self.reserved -= change.bytes;
        }
        self.changes.push(change);
    }

    /// Free pieces of segments: how many, and their bytes.
    pub(crate) fn free_pieces(&self) -> (usize, u64) {
        let premapped_ranges = if self.premapped > 0 { self.premapped_ranges().count() } else { 0 };
        (
            self.ranges.free() + premapped_ranges,
            self.reserved + self.suspended - self.in_blocks - self.waiting,
        )
    }

    /// Address and size of every range that a capture under way gave back.
    pub(crate) fn given_back(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.free_ranges().filter_map(|(address, bytes, state, _)| {
            matches!(state, State::Pending(_)).then_some((address, bytes))
        })
    }

    /// Ranges that were given back and that no stream may take yet: how many, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        (self.waiting_ranges, self.waiting)
    }

    /// What a token waits for; `None` once the range has been taken.
    #[inline]
    pub(crate) fn markers(&self, token: Token) -> Option<&[NodeIndex]> {
        let given = Given { id: self.range_of(token), generation: token.generation };
        self.ranges.given(given).map(|(pending, _)| &pending.markers[..])
    }

    /// Notes that `stream` now proves the markers that the token waits for.
    pub(crate) fn learn(&mut self, token: Token, stream: StreamIndex) {
        let id = self.range_of(token);
        let given = Given { id, generation: token.generation };
        let Some((pending, _)) = self.ranges.given(given) else { return };
        let (capture, owner, in_run) = (pending.capture, pending.owner, pending.in_run);
        if owner != stream {
            self.free_list(capture, stream).newly_proven.push(given);
        } else if !in_run {
            self.join_run(id);
        }
    }

    /// What the last searches found unproven, for the caller to let wait.
    pub(crate) fn take_unproven(&mut self) -> Vec<(Token, StreamIndex)> {
        std::mem::take(&mut self.unproven)
    }

    /// Frees an allocated range at once: nothing of a capture under way ever used it.
    pub(crate) fn free_idle(&mut self, id: RangeId, graphs: bool, block: BlockNumber) {
        self.ranges[id].block = Some(block);
        self.settle(id, graphs);
    }

    /// Whether anything came from the driver or went back since [`Heap::take_changes`].
    #[inline]
    pub(crate) fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// What came from the driver and went back since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// How many placements ago something was.
    pub(crate) fn age(&self, since: u64) -> u64 {
        self.clock - since
    }

    /// Whether placed blocks are given back to the driver as soon as they are idle.
    pub(crate) fn is_uncached(&self) -> bool {
        self.plan.supply == Supply::Uncached
    }

    /// Whether its segments grow where the device allows it.
    pub(crate) fn grows_in_place(&self) -> bool {
        matches!(self.plan.supply, Supply::Growing { .. })
    }

    /// Frees an allocated range for streams that prove its markers, and returns the token under which
    /// it waits. The caller says whether its owner proves them already ([`Heap::learn`]); other
    /// streams find it in the capture's list of freed ranges.
    pub(crate) fn free_pending(
        &mut self,
        id: RangeId,
        pending: Freed,
        block: BlockNumber,
    ) -> Token {
        let Freed { capture, owner, markers, graphs } = pending;
        self.leave(id);
        self.ranges.renew(id);
        let range = &mut self.ranges[id];
        let bytes = range.bytes;
        range.block = Some(block);
        let pending = Pending { capture, owner, markers, graphs, in_run: false, run_end: id };
        self.ranges.set_state(id, State::Pending(pending));
        let token = self.token(id);
        self.free_lists(capture).freed.push(bytes, Given { id, generation: token.generation });
        token
    }

    /// Takes an allocated range out of use without making it free for any stream.
    pub(crate) fn free_later(&mut self, id: RangeId, block: BlockNumber) {
        self.ranges[id].block = Some(block);
        self.hold(id);
    }

    /// Makes a range free that [`Heap::free_later`] or [`Heap::end_capture`] held back.
    pub(crate) fn free_held(&mut self, id: RangeId, graphs: bool) {
        self.settle(id, graphs);
    }

    /// Ends a capture: its free ranges become idle. With `graphs` they belong to a finished graph
    /// from now on; without, the capture is rolled back and they are what they were before it.
    /// With `hold` they wait instead and are returned.
    pub(crate) fn end_capture(
        &mut self,
        capture: CaptureSlot,
        graphs: bool,
        hold: bool,
    ) -> Vec<(RangeId, bool)> {
        if let Some(free_lists) = self.free_lists.get_mut(capture.index()) {
            *free_lists = CaptureFreeLists::default();
        }
        self.unproven.clear();
        let mut held = Vec::new();
        for row in 0..self.ranges.len() {
            let id = RangeId::new(row);
            let State::Pending(pending) = &self.ranges[id].state else {
                continue;
            };
            if pending.capture != capture {
                continue;
            }
            let graphs = graphs || pending.graphs;
            if hold {
                self.hold(id);
                held.push((id, graphs));
            } else {
                self.settle(id, graphs);
            }
        }
        held
    }

    /// The pool has no graph any more: work outside captures may take what they used too.
    pub(crate) fn forget_graphs(&mut self) {
        self.open_all();
        for Listed { id, .. } in std::mem::take(&mut self.idle[1]).iter().copied() {
            self.settle(id, false);
        }
    }

    /// Counts everything that the driver holds as gone, before [`Heap::close`].
    pub(crate) fn note_close(&mut self) {
        let segments = self.segments.iter().flatten();
        let held: Vec<_> = segments
            .flat_map(|segment| segment.held().into_iter().map(|it| (it, !segment.growable)))
            .collect();
        for ((address, bytes), whole) in held {
            self.note_change(Change { mapped: false, whole, address, bytes, pieces: 1 });
        }
    }

    /// Gives everything back to the driver.
    pub(crate) fn close<D: Driver + ?Sized>(mut self, driver: &D) -> Result<(), DriverError> {
        let mut result = Ok(());
        for segment in self.segments.iter().flatten() {
            result = result.and(segment.close(driver));
        }
        self.release_orphans(driver);
        result
    }

    fn range_of(&self, token: Token) -> RangeId {
        RangeId::new(token.row as usize)
    }

    fn token(&self, id: RangeId) -> Token {
        Token { heap: self.number, row: id.index() as u32, generation: self.ranges.generation(id) }
    }

    /// Counts an allocated range, or one that waits, out of its kind.
    fn leave(&mut self, id: RangeId) {
        let bytes = self.ranges[id].bytes;
        match self.ranges[id].state {
            State::Allocated => self.in_blocks -= bytes,
            State::Waiting => {
                self.waiting -= bytes;
                self.waiting_ranges -= 1;
            }
            _ => {}
        }
    }

    /// Lets an unlisted range wait.
    fn hold(&mut self, id: RangeId) {
        self.leave(id);
        self.ranges.renew(id);
        self.ranges.set_state(id, State::Waiting);
        self.waiting += self.ranges[id].bytes;
        self.waiting_ranges += 1;
    }

    /// Makes a range idle and merges it with idle neighbours of its kind.
    fn settle(&mut self, id: RangeId, graphs: bool) {
        self.leave(id);
        self.ranges.renew(id);
        self.ranges.set_state(id, State::Idle { graphs, closed: false });
        self.ranges[id].since = self.clock;
        self.list_merged(id, graphs);
    }

    /// Lists an idle range that is not closed, merged with neighbours of its kind.
    fn list_merged(&mut self, mut id: RangeId, graphs: bool) {
        let alike = |range: &Range| matches!(range.state, State::Idle { graphs: g, closed: false } if g == graphs);
        let mut since = self.ranges[id].since;
        if let Some(next) = self.ranges[id].next.filter(|&next| alike(&self.ranges[next])) {
            since = since.max(self.ranges[next].since);
            self.unlist_single(next);
            self.absorb_next(id, next);
        }
        if let Some(previous) = self.ranges[id].previous {
            if alike(&self.ranges[previous]) {
                since = since.max(self.ranges[previous].since);
                self.unlist_single(previous);
                self.absorb_next(previous, id);
                id = previous;
            }
        }
        self.ranges[id].since = since;
        self.list_single(id);
    }

    /// Lists an idle or stream-ordered range among its kind.
    fn list_single(&mut self, id: RangeId) {
        let entry = Listed { id, bytes: self.ranges[id].bytes };
        let slot = self.singles(id).insert(entry);
        self.ranges[id].slot = slot;
    }

    fn unlist_single(&mut self, id: RangeId) {
        let slot = self.ranges[id].slot;
        if let Some(moved) = self.singles(id).remove(slot) {
            self.ranges[moved.id].slot = slot;
        }
    }

    /// The list of an idle or stream-ordered range's kind.
    fn singles(&mut self, id: RangeId) -> &mut Bins<Listed> {
        match self.ranges[id].state {
            State::Idle { graphs, closed: false } => &mut self.idle[usize::from(graphs)],
            State::Idle { graphs, closed: true } => &mut self.closed[usize::from(graphs)],
            State::StreamOrdered { timeline, .. } => {
                if self.stream_ordered.len() <= timeline.index() {
                    self.stream_ordered.resize_with(timeline.index() + 1, Bins::default);
                }
                &mut self.stream_ordered[timeline.index()]
            }
            ref state => {
                unreachable!("only idle and stream-ordered ranges stand alone, not {state:?}")
            }
        }
    }

    fn segment(&mut self, segment: SegmentId) -> &mut Segment {
        self.segments[segment.index()].as_mut().expect("ranges lie in segments")
    }

    /// Adds an unlisted range's bytes to the one before it.
    fn absorb_next(&mut self, id: RangeId, next: RangeId) {
        let Range { bytes, segment, .. } = self.ranges[next];
        self.ranges.remove(next);
        self.ranges[id].bytes += bytes;
        let segment = self.segment(segment);
        if segment.last == Some(next) {
            segment.last = Some(id);
        }
    }

    fn free_lists(&mut self, capture: CaptureSlot) -> &mut CaptureFreeLists {
        if self.free_lists.len() <= capture.index() {
            self.free_lists.resize_with(capture.index() + 1, CaptureFreeLists::default);
        }
        &mut self.free_lists[capture.index()]
    }

    fn free_list(&mut self, capture: CaptureSlot, stream: StreamIndex) -> &mut StreamFreeList {
        let streams = &mut self.free_lists(capture).streams;
        if streams.len() <= stream.index() {
            streams.resize_with(stream.index() + 1, StreamFreeList::default);
        }
        &mut streams[stream.index()]
    }
}

/// How a block is given back to its capture.
#[derive(Clone, Debug)]
pub(crate) struct Freed {
    /// The capture whose nodes the markers are.
    pub(crate) capture: CaptureSlot,
    /// The stream that had the block.
    pub(crate) owner: StreamIndex,
    /// What must precede new work.
    pub(crate) markers: Markers,
    /// Whether a finished graph used the memory before the capture did.
    pub(crate) graphs: bool,
}
