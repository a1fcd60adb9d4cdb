//! One heap of a pool: ranges of addresses, who may take the free ones, and growth (design/allocator.md, "Heaps").
//!
//! * [`range`]: the table of ranges in address order, with what must precede new work in each; [`runs`]: free
//!   neighbours by address and size; [`segment`]: where memory comes from.
//! * [`place`]: where a block goes; [`laid`]: a block at a given place; [`kept`]: what graphs left, opened bit by bit.
//! * [`grow`]: more memory from the driver; [`suspend`]: less, or none for a while; [`sharing`]: for others too.
//! * [`planned`]: a heap by itself, of blocks whose memory comes at the end of their capture.
//!
//! A heap decides *where*; whether a stream may is asked of the caller's [`Proof`] for every marker of every range that
//! a block would cover, at the moment when it is placed: a heap remembers no answers. The same calls give the same
//! addresses, since every order here is one of sizes, addresses and rows.

mod grow;
mod kept;
mod laid;
mod place;
mod planned;
mod range;
mod runs;
mod segment;
mod sharing;
mod suspend;
#[cfg(debug_assertions)]
pub(crate) mod verify;

pub(crate) use grow::Wanted;
pub(crate) use laid::Cut;
pub(crate) use place::{Placed, Requester};
pub(crate) use planned::{Asker, Ended, PlannedHeap, Prepared};
pub use range::Lent;
pub(crate) use range::Users;
pub(crate) use range::{CaptureSlot, Mark, RangeId, RangeState, TimelineId};
pub(crate) use segment::{unit, HeapSegment};
pub use sharing::{Export, Shared, SharedPiece, WhyNotShared};
pub(crate) use suspend::{Holding, Keeper, NothingKept, Pieces, Presence};

use crate::capture::{NodeIndex, StreamIndex};
use crate::driver::{Driver, DriverError};
use crate::journal::BlockNumber;
use crate::settings::Settings;
use kept::Kept;
use place::Vain;
use range::{Range, Ranges, SegmentId};
use runs::Runs;

/// What a heap is for and how it gets memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// Whether it holds small blocks.
    small: bool,
    supply: Supply,
    /// Outside captures free ranges of at least so many bytes are never split, and given to blocks of that size only
    /// (PyTorch's `max_split_size_mb`); and by how many bytes such a range may be larger than the block.
    splitting: Option<(u64, u64)>,
    /// Whether its memory is made for other processes to map.
    exportable: bool,
    /// Whether free ranges are handed out whole, each a segment of its own.
    whole: bool,
}

impl Plan {
    /// `whole` as the field; the rest as the settings say.
    pub(crate) fn new(small: bool, supply: Supply, whole: bool, settings: &Settings) -> Self {
        let slack = settings.max_non_split_rounding_bytes;
        // Small blocks never lie in segments of their own.
        let splitting = settings.max_split_bytes.filter(|_| !small).map(|most| (most, slack));
        Self { small, supply, splitting, exportable: settings.exportable, whole }
    }

    pub(crate) fn grows_in_place(&self) -> bool {
        matches!(self.supply, Supply::Growing { .. })
    }
}

/// How a heap gets memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Supply {
    /// Segments that reserve at least this many bytes of addresses and grow in them.
    Growing { reserve: u64 },
    /// Segments of fixed sizes.
    Fixed,
    /// Segments of such sizes that are the driver's own allocations, which libraries can export by `cuIpcGetMemHandle`.
    Allocated,
    /// An allocation of the driver's for each block, given back with it.
    #[default]
    Uncached,
}

/// The largest small block, in bytes: PyTorch's limit, so that figures compare.
const SMALL: u64 = 1 << 20;

/// Whether a block of so many bytes lies in the heap of small ones, outside captures.
pub(crate) fn is_small(bytes: u64) -> bool {
    bytes <= SMALL
}

/// One of a pool's two heaps with memory behind every block: that of small or that of large blocks.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    plan: Plan,
    ranges: Ranges,
    segments: Vec<Option<HeapSegment>>,
    /// The latest segment that can grow.
    growing: Option<SegmentId>,
    holes: Vec<RangeId>,
    /// Every free range lies in one of these.
    runs: Runs,
    /// Whether some idle ranges may be closed.
    has_closed: bool,
    /// What graphs keep between launches of what is free, or has been.
    kept: Kept,
    /// How many ranges timelines have ordered.
    ordered: usize,
    /// By stream or timeline: what its searches that gave up came to.
    vain: Vec<Vain>,
    holding: Holding,
    /// Bytes that are mapped and lie in no range; counted as reserved.
    premapped: u64,
    /// How many bytes growth in steps has mapped for captures under way. `None` where premapped memory went back, since
    /// it was wanted elsewhere: growth maps nothing ahead then until a capture ends.
    grown: Option<u64>,
    in_blocks: u64,
    /// Counts placements, to tell old from new.
    clock: u64,
    /// What came from the driver and went back since that was last asked.
    changes: Vec<Change>,
}

/// What came from the driver or went back to it: address and size in bytes, and in how many pieces.
type Change = (MemoryMove, (u64, u64), usize);

/// How memory came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryMove {
    /// A whole segment came.
    Segment,
    /// Memory was mapped into one.
    Map,
    /// A whole segment went back.
    SegmentBack,
    /// Memory was unmapped.
    Unmap,
}

impl MemoryMove {
    /// Memory of a segment came or went.
    fn new(came: bool, growable: bool) -> Self {
        match (came, growable) {
            (true, false) => Self::Segment,
            (true, true) => Self::Map,
            (false, false) => Self::SegmentBack,
            (false, true) => Self::Unmap,
        }
    }

    /// Whether it came.
    pub(crate) fn came(self) -> bool {
        matches!(self, Self::Segment | Self::Map)
    }
}

impl Heap {
    pub(crate) fn new(plan: Plan) -> Box<Self> {
        // Made where it stays: it is large.
        let mut heap = Box::<Self>::default();
        (heap.plan, heap.grown) = (plan, Some(0));
        heap
    }

    /// What it holds of the driver's memory. What waits of it are ranges that no stream may take yet.
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    pub(crate) fn holding_mut(&mut self) -> &mut Holding {
        &mut self.holding
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.holding.reserved()
    }

    /// Whether nothing is handed out or given back by range, since memory may be missing.
    fn is_shut(&self) -> bool {
        self.holding.presence().is_shut()
    }

    /// Address and size of a range.
    pub(crate) fn extent(&self, id: RangeId) -> (u64, u64) {
        self.ranges[id].place()
    }

    /// Every range that is not in a block, with the last block that lay there.
    pub(crate) fn unallocated(&self) -> impl Iterator<Item = (RangeId, Option<BlockNumber>)> + '_ {
        self.ranges.ids().map(|id| (id, &self.ranges[id])).filter_map(|(id, range)| {
            let free = !matches!(range.state(), RangeState::Allocated | RangeState::Hole);
            free.then_some((id, range.block()))
        })
    }

    /// Every free range, in address order.
    fn free_ids(&self) -> impl Iterator<Item = RangeId> + '_ {
        self.runs.iter().flat_map(|(_, _, first)| {
            std::iter::successors(Some(first), |&id| {
                self.ranges[id].next().filter(|&next| self.ranges[next].state().is_free())
            })
        })
    }

    /// The free ranges whose state a test picks, in address order.
    fn ids_where(&self, picks: impl Fn(RangeState) -> bool) -> Vec<RangeId> {
        self.free_ids().filter(|&id| picks(self.ranges[id].state())).collect()
    }

    /// Where the memory around an allocated range begins, and how far it goes on without a hole.
    pub(crate) fn surroundings(&self, id: RangeId) -> (u64, u64) {
        let last = |step: fn(&Range) -> Option<RangeId>| {
            let next = |id: &RangeId| step(&self.ranges[*id]);
            let ranges = std::iter::successors(Some(id), next).map(|id| &self.ranges[id]);
            ranges.take_while(|range| range.state() != RangeState::Hole).last()
        };
        let [first, last] = [last(Range::previous), last(Range::next)];
        let start = first.map_or(0, Range::address);
        (start, last.map_or(0, Range::end) - start)
    }

    /// The largest place for work outside captures that needs nothing but that streams complete, in bytes.
    pub(crate) fn largest_place(&self) -> u64 {
        if self.is_uncached() || self.is_shut() {
            return 0;
        }
        let (mut largest, mut run, mut end) = (0, 0, 0);
        for id in self.free_ids() {
            let range = &self.ranges[id];
            let takes = range.state().users() == Some(Users::Eager)
                && !matches!(range.state(), RangeState::Pending { .. });
            let joins = takes && range.address() == end && range.previous().is_some();
            run = match takes {
                true if joins && !self.plan.whole => run + range.bytes(),
                true => range.bytes(),
                false => 0,
            };
            end = range.end();
            largest = largest.max(run);
        }
        largest
    }

    /// Every range with memory in it, in any order: its address and size, and the number of its segment.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (RangeId, (u64, u64), usize)> + '_ {
        let ids =
            self.ranges.ids().filter(|&id| !matches!(self.ranges[id].state(), RangeState::Hole));
        ids.map(|id| {
            let range = &self.ranges[id];
            (id, range.place(), range.segment().index())
        })
    }

    /// Those in the order of their addresses.
    fn mapped_in_order(&self) -> Vec<(RangeId, (u64, u64), usize)> {
        let mut mapped: Vec<_> = self.mapped().collect();
        mapped.sort_unstable_by_key(|&(_, place, _)| place);
        mapped
    }

    /// Whether an address lies in what the heap has from the driver, or has reserved there.
    pub(crate) fn owns(&self, address: u64) -> bool {
        self.segments.iter().flatten().any(|segment| segment.owns(address))
    }

    pub(crate) fn state(&self, id: RangeId) -> RangeState {
        self.ranges[id].state()
    }

    /// What must precede new work in a free range of a capture, or had to precede a block that a capture allocated.
    #[inline]
    pub(crate) fn markers(&self, id: RangeId) -> &[NodeIndex] {
        self.ranges[id].markers()
    }

    /// Of each segment, whether it can grow.
    pub(crate) fn growable(&self) -> Vec<bool> {
        let growable = HeapSegment::is_growable;
        self.segments.iter().map(|segment| segment.as_ref().is_some_and(growable)).collect()
    }

    fn note_change(&mut self, moved: MemoryMove, (address, bytes): (u64, u64), pieces: usize) {
        match moved.came() {
            true => self.holding.came(bytes, pieces),
            false => self.holding.went(bytes, pieces),
        }
        self.changes.push((moved, (address, bytes), pieces));
    }

    /// Free pieces of segments: how many, and their bytes.
    pub(crate) fn free_pieces(&self) -> (usize, u64) {
        let premapped_ranges = if self.premapped > 0 { self.premapped_ranges().count() } else { 0 };
        let held = self.holding.reserved() + self.holding.suspended();
        let bytes = held - self.in_blocks - self.holding.waiting().1;
        (self.ranges.free() + premapped_ranges, bytes)
    }

    pub(crate) fn bytes_in_blocks(&self) -> u64 {
        self.in_blocks
    }

    /// Address and size of every range that a capture under way gave back.
    pub(crate) fn given_back(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let given =
            self.free_ids().filter(|&id| matches!(self.state(id), RangeState::Pending { .. }));
        given.map(|id| self.extent(id))
    }

    /// Frees an allocated range at once: nothing of a capture under way ever used it.
    pub(crate) fn free_idle(&mut self, id: RangeId, users: Users, block: BlockNumber) {
        self.ranges.set_block(id, Some(block));
        self.settle(id, users, false);
    }

    /// Whether anything came from the driver or went back since [`Heap::take_changes`].
    pub(crate) fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// What came from the driver and went back since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether placed blocks are given back to the driver as soon as they are idle.
    pub(crate) fn is_uncached(&self) -> bool {
        self.plan.supply == Supply::Uncached
    }

    /// Whether its memory is mapped where the device can.
    pub(crate) fn is_mapped(&self) -> bool {
        !matches!(self.plan.supply, Supply::Uncached | Supply::Allocated)
    }

    /// Frees an allocated range of a capture for streams that prove its markers, nodes of the capture: the given ones,
    /// or else those that the block's place had asked for. `owner` is the stream that had the block, and `users` says
    /// whose memory the range was before. Returns whether there are no markers: the range is free for all streams then.
    #[inline]
    pub(crate) fn free_pending(
        &mut self,
        id: RangeId,
        (capture, owner, users): (CaptureSlot, StreamIndex, Users),
        markers: Option<&[NodeIndex]>,
        block: BlockNumber,
    ) -> bool {
        if let Some(markers) = markers {
            self.ranges.set_markers(id, markers);
        }
        if self.ranges[id].markers().is_empty() {
            self.free_idle(id, users, block);
            return true;
        }
        self.leave(id);
        self.ranges.set_state(id, RangeState::Pending { capture, owner, users });
        self.ranges.set_block(id, Some(block));
        self.add_run(id);
        false
    }

    /// Forgets what an allocated range asked for when it was placed: the nodes of another capture.
    pub(crate) fn forget_markers(&mut self, id: RangeId) {
        self.ranges.set_markers(id, &[]);
    }

    /// Takes an allocated range out of use without making it free for any stream.
    pub(crate) fn free_later(&mut self, id: RangeId, block: BlockNumber) {
        self.ranges.set_block(id, Some(block));
        self.hold(id);
    }

    /// Makes a range free that [`Heap::free_later`] or [`Heap::end_capture`] held back. Graphs keep what they
    /// use of it, but for what was only [lent](Users::Lent).
    pub(crate) fn free_held(&mut self, id: RangeId, users: Users) {
        if users == Users::Graphs {
            self.keep(id);
        }
        self.settle_outside(id, users.of_block());
    }

    /// Ends a capture: its free ranges become idle, with `graphs` as a finished graph's, without as they were before
    /// it. With `hold` they wait instead and are returned.
    pub(crate) fn end_capture(
        &mut self,
        capture: CaptureSlot,
        graphs: bool,
        hold: bool,
    ) -> Vec<(RangeId, Users)> {
        self.vain.clear();
        // Growth begins with small steps again.
        self.grown = Some(0);
        let mut held = Vec::new();
        let ids: Vec<RangeId> = self.free_ids().collect();
        for id in ids {
            let RangeState::Pending { capture: of, users, .. } = self.ranges[id].state() else {
                continue;
            };
            if of != capture {
                continue;
            }
            let users = users.or_graphs(graphs);
            self.unlist(id);
            if hold {
                self.hold(id);
                held.push((id, users));
            } else {
                self.settle(id, users, false);
            }
        }
        held
    }

    /// The pool has no graph any more: work outside captures may take what they used too.
    pub(crate) fn forget_graphs(&mut self) {
        self.open_all();
        self.kept = Kept::default();
        self.end_lending();
        for id in self.ids_where(|state| state.idle_users().is_some_and(Users::are_graphs)) {
            self.unlist(id);
            self.settle(id, Users::Eager, false);
        }
    }

    /// Counts everything that the driver holds as gone, before [`Heap::close`].
    pub(crate) fn note_close(&mut self) {
        let segments = self.segments.iter().flatten();
        let held: Vec<_> = segments
            .flat_map(|segment| segment.held().into_iter().map(|it| (it, segment.is_growable())))
            .collect();
        for (place, growable) in held {
            self.note_change(MemoryMove::new(false, growable), place, 1);
        }
    }

    /// Gives everything back to the driver.
    pub(crate) fn close(mut self, driver: &impl Driver) -> Result<(), DriverError> {
        let closed = self.segments.iter_mut().flatten().map(|segment| segment.close(driver));
        closed.fold(Ok(()), Result::and).and(self.holding.release_orphans(driver))
    }

    /// Counts an allocated range, or one that waits, out of its kind.
    fn leave(&mut self, id: RangeId) {
        let bytes = self.ranges[id].bytes();
        match self.ranges[id].state() {
            RangeState::Allocated => self.in_blocks -= bytes,
            RangeState::Waiting => self.holding.end_wait(bytes),
            _ => {}
        }
    }

    /// Lets an unlisted range wait.
    fn hold(&mut self, id: RangeId) {
        self.leave(id);
        let bytes = self.ranges.set_state(id, RangeState::Waiting).bytes();
        self.holding.begin_wait(bytes);
    }

    /// Makes an unlisted range idle, and closed beside closed memory, so that whole pieces can go back to the driver.
    fn settle_outside(&mut self, id: RangeId, users: Users) {
        let (previous, next) = self.ranges[id].sides();
        let is_closed = |id: RangeId| match self.ranges[id].state() {
            RangeState::Closed { users: of } => of.are_graphs() == users.are_graphs(),
            _ => false,
        };
        let closed = previous.is_some_and(is_closed) || next.is_some_and(is_closed);
        self.settle(id, users, closed);
    }

    /// Makes an unlisted range idle or closed, and merges it with neighbours of its kind.
    fn settle(&mut self, id: RangeId, users: Users, closed: bool) {
        self.leave(id);
        self.ranges.set_markers(id, &[]);
        let place = (self.ranges[id].address(), self.ranges[id].end());
        if !users.are_graphs() {
            self.kept.remove(place);
        } else if self.is_kept(place) {
            return self.settle_cut(id, closed);
        }
        self.ranges.set_state(id, idle(users, closed));
        self.ranges.set_stamp(id, self.clock);
        self.list(id);
        self.merge(id);
    }

    /// Merges a listed idle range with idle neighbours of its kind.
    fn merge(&mut self, id: RangeId) {
        self.merge_next(id);
        let state = self.ranges[id].state();
        let previous = self.ranges[id].previous();
        if let Some(previous) = previous.filter(|&it| self.ranges[it].state() == state) {
            self.merge_next(previous);
        }
    }

    /// Merges a listed idle range with the next one if that is of its kind.
    fn merge_next(&mut self, id: RangeId) {
        let range = &self.ranges[id];
        if let Some(next) = range.next().filter(|&it| self.ranges[it].state() == range.state()) {
            self.ranges.set_stamp(id, range.stamp().max(self.ranges[next].stamp()));
            self.absorb_next(id, next);
        }
    }

    /// Enters a free range into the runs.
    #[inline]
    fn list(&mut self, id: RangeId) {
        self.add_run(id);
        let is_ordered = matches!(self.ranges[id].state(), RangeState::StreamOrdered { .. });
        self.ordered += usize::from(is_ordered);
    }

    #[inline]
    fn add_run(&mut self, id: RangeId) {
        let is_free = |id: Option<RangeId>| id.is_some_and(|id| self.ranges[id].state().is_free());
        let (previous, next) = self.ranges[id].sides();
        self.runs.add(self.ranges[id].place(), id, (is_free(previous), is_free(next)));
    }

    /// Takes a free range out of the runs.
    fn unlist(&mut self, id: RangeId) {
        let range = &self.ranges[id];
        let (place, next) = (range.place(), range.next());
        self.note_taken(range.state());
        self.runs.cut(self.runs.of(place.0), place, next);
    }

    /// Counts a free range out of its kind.
    #[inline]
    fn note_taken(&mut self, state: RangeState) {
        self.ordered -= usize::from(matches!(state, RangeState::StreamOrdered { .. }));
    }

    fn segment(&mut self, segment: SegmentId) -> &mut HeapSegment {
        self.segments[segment.index()].as_mut().expect("ranges lie in segments")
    }

    /// Cuts so many bytes off the high end of a range, as one of its own without markers.
    fn cut_back(&mut self, id: RangeId, bytes: u64, state: RangeState) -> RangeId {
        let part = self.ranges.cut_back(id, bytes, state);
        if self.ranges[part].next().is_none() {
            self.segment(self.ranges[part].segment()).set_last(Some(part));
        }
        part
    }

    /// Adds a range's bytes to the one before it. What they are to the runs stays as it is.
    fn absorb_next(&mut self, id: RangeId, next: RangeId) {
        self.ranges.absorb_next(id, next);
        let segment = self.segment(self.ranges[id].segment());
        if segment.last() == Some(next) {
            segment.set_last(Some(id));
        }
    }
}

/// Enters a row in the first vacant place of a table, and returns which that is.
pub(crate) fn enter_row<T>(table: &mut Vec<Option<T>>, row: T) -> usize {
    let place = table.iter().position(Option::is_none).unwrap_or(table.len());
    match table.get_mut(place) {
        Some(vacant) => *vacant = Some(row),
        None => table.push(Some(row)),
    }
    place
}

/// A row of a table, which is made longer where it has no such row.
#[inline]
pub(crate) fn reach<T: Default>(table: &mut Vec<T>, row: usize) -> &mut T {
    if table.len() <= row {
        table.resize_with(row + 1, T::default);
    }
    &mut table[row]
}

fn idle(users: Users, closed: bool) -> RangeState {
    match closed {
        true => RangeState::Closed { users },
        false => RangeState::Idle { users },
    }
}
