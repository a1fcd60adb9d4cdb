//! Blocks of captures that get their memory at the capture's end (design/plans.md).
//!
//! Until then their addresses are mapped to a little *scratch* memory, since copies can only be captured between mapped
//! addresses. A *planned capture* is what the heap knows of one: its blocks, where they lie and on which pieces. Pieces
//! that hold nothing which must last are shared by the graphs of the pool, which never run at once. A piece lasts while
//! a block on it is live, and then no other graph uses it. Once no addresses lie on it, it goes back to the driver.
//!
//! * [`place`]: addresses for a block, new ones or those of a layout, and what lies behind them for the time being.
//! * [`space`]: what lies on the pages that blocks have had, and which of them a stream may have again.
//! * [`bind`]: a plan carried out; less memory for graphs that are there, none for a while, none any more.

mod bind;
mod place;
mod space;

use std::collections::BTreeMap;

use super::range::{RangeId, RangeState, Ranges};
use super::reach;
use super::segment::{Access, HeapSegment};
use super::suspend::Holding;
#[cfg(debug_assertions)]
use super::verify::{holds, Verdict};
use crate::capture::{Markers, NodeIndex, StreamIndex};
use crate::driver::{CaptureId, MemoryHandle};
pub(crate) use bind::Prepared;
use place::Laid;
pub(crate) use space::Asker;
use space::Space;

/// The heap of a pool for such blocks.
#[derive(Debug, Default)]
pub(crate) struct PlannedHeap {
    /// Blocks that are live or wait.
    ranges: Ranges,
    /// The captures and graphs with blocks here.
    captures: Vec<PlannedCapture>,
    /// The memory behind them. Rows are used again.
    pieces: Vec<Option<Physical>>,
    /// The number of the next new piece. No number is used again in this heap.
    next: u64,
    /// How many plans there have been.
    moment: u64,
    holding: Holding,
    /// Whether memory that a block has at once and for good is made for other processes to map.
    exportable: bool,
}

/// Physical memory.
#[derive(Debug)]
struct Physical {
    number: u64,
    bytes: u64,
    /// `None` while the driver has it.
    memory: Option<MemoryHandle>,
    /// Of a piece that is one block's alone, at once and for as long as it is mapped: whether it stays behind its
    /// addresses, since others have it by handles of their own.
    fixed: Option<bool>,
}

/// What keeps a planned capture's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A capture under way.
    Capture,
    Graph,
    /// Only the blocks that are still live.
    Over,
}

/// A piece at an address.
#[derive(Clone, Copy, Debug)]
struct Bound {
    address: u64,
    bytes: u64,
    /// Its row.
    piece: usize,
    access: Access,
}

/// How a block is given back.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// Its addresses are for streams that prove these.
    Markers(Markers),
    /// Nothing can have used it.
    Unused,
    /// Its addresses are not given out again.
    Never,
}

/// A block that is not free yet, or an output: one that its capture did not free.
#[derive(Clone, Debug)]
struct PlannedBlock {
    bytes: u64,
    /// Its stream, and what had to be proven for it to lie there; none for a block on memory of its own.
    owner: Option<(StreamIndex, Markers)>,
    life: BlockLife,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockLife {
    Live,
    /// Its capture freed it, and something else still uses it.
    Waits,
    /// An output that the host has freed: the first plan that was made after that, by [`PlannedHeap::moment`].
    Freed(u64),
}

/// The addresses of one capture's blocks.
#[derive(Debug)]
struct PlannedCapture {
    capture: CaptureId,
    owner: Owner,
    /// Reserved addresses. Here a segment's `mapped` counts the bytes of addresses that were given out, from the front,
    /// with memory behind them or not. Only the last segment gives out more.
    segments: Vec<HeapSegment>,
    /// The new addresses of each stream, mapped and had by no block yet: where they begin, and their end.
    runs: Vec<(u64, u64)>,
    space: Space,
    /// The addresses at which a layout says what lies where.
    laid: Option<Laid>,
    /// By address.
    blocks: BTreeMap<u64, PlannedBlock>,
    /// How many bytes of its blocks are not free yet, and the most that there have been.
    held: u64,
    peak: u64,
    /// Its scratch memory: the size and the handle of each piece.
    scratch: Vec<(u64, MemoryHandle)>,
    /// Where that is mapped: addresses and sizes.
    scratch_at: Vec<(u64, u64)>,
    bound: Vec<Bound>,
    /// Which plan of the heap it got; 0 before.
    moment: u64,
    /// Whether others were under way beside it: one of them may run within the other.
    beside: bool,
}

impl PlannedHeap {
    /// One without blocks; `exportable` as the field.
    pub(crate) fn new(exportable: bool) -> Self {
        Self { exportable, ..Self::default() }
    }

    /// What it holds of the driver's memory. What waits of it are blocks that were given back and are still in use.
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    pub(crate) fn holding_mut(&mut self) -> &mut Holding {
        &mut self.holding
    }

    /// The row of a capture, which mostly came last: graphs of many may lie before it.
    fn row(&self, capture: CaptureId) -> Option<usize> {
        self.captures.iter().rposition(|planned| planned.capture == capture)
    }

    fn capture(&self, capture: CaptureId) -> Option<&PlannedCapture> {
        Some(&self.captures[self.row(capture)?])
    }

    fn capture_mut(&mut self, capture: CaptureId) -> Option<&mut PlannedCapture> {
        let row = self.row(capture)?;
        Some(&mut self.captures[row])
    }

    fn piece(&mut self, row: usize) -> &mut Physical {
        self.pieces[row].as_mut().expect("mapped pieces have rows")
    }

    /// Everything that is mapped: address and size.
    pub(super) fn laid(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.captures.iter().flat_map(|planned| {
            let bound = planned.bound.iter().filter(|bound| bound.access != Access::Unmapped);
            bound
                .map(|bound| (bound.address, bound.bytes))
                .chain(planned.scratch_at.iter().copied())
        })
    }

    /// What lasts of memory that came: of blocks that are not free yet, and of graphs' outputs that the host has freed,
    /// which other graphs may read. Addresses and sizes in bytes.
    pub(crate) fn kept_places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.captures.iter().flat_map(|planned| {
            let lasts =
                |block: &PlannedBlock| planned.owner == Owner::Graph || block.freed().is_none();
            planned.bound.iter().flat_map(move |bound| {
                let (low, high) = (bound.address, bound.address + bound.bytes);
                let blocks = planned.blocks_in((low, high - low)).filter(move |it| lasts(it.1));
                blocks.map(move |(at, block)| {
                    let start = at.max(low);
                    (start, (at + block.bytes).min(high) - start)
                })
            })
        })
    }

    /// Address and size of a block.
    pub(crate) fn extent(&self, id: RangeId) -> (u64, u64) {
        self.ranges[id].place()
    }

    /// What a block is: allocated, or waiting.
    pub(crate) fn state(&self, id: RangeId) -> RangeState {
        self.ranges[id].state()
    }

    /// What must precede new work in the place of a block that is live or waits: no node alone will do.
    pub(crate) fn markers(&self, _: RangeId) -> &[NodeIndex] {
        &[]
    }

    /// Every block in any order: its address and size, and the number of its segment.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (RangeId, (u64, u64), usize)> + '_ {
        let ids = self.ranges.ids();
        ids.map(|id| (id, self.extent(id), self.ranges[id].segment().index()))
    }

    /// Whether an address lies in what is reserved.
    pub(crate) fn owns(&self, address: u64) -> bool {
        self.captures.iter().any(|planned| planned.owns(address))
    }

    /// Whether nothing of any capture is here.
    pub(crate) fn is_empty(&self) -> bool {
        self.captures.is_empty()
    }

    /// How many graphs have memory here.
    pub(crate) fn graphs(&self) -> usize {
        let captures = self.captures.iter();
        captures.filter(|planned| planned.owner == Owner::Graph).count()
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.holding.reserved()
    }

    /// Whether a block here may belong to a capture and its memory is still to come. Fixed blocks have theirs.
    pub(crate) fn is_unbound(&self, capture: CaptureId) -> bool {
        let planned = self.capture(capture);
        planned.is_some_and(|it| {
            let unfixed = !it.runs.is_empty() || it.laid.is_some();
            it.owner == Owner::Capture && unfixed && !it.scratch_at.is_empty()
        })
    }

    /// Takes a block out of use that something else still uses: its capture has freed it, or the host.
    pub(crate) fn free_later(&mut self, id: RangeId) {
        let (address, bytes) = self.extent(id);
        self.leave(id);
        self.ranges.set_state(id, RangeState::Waiting);
        self.holding.begin_wait(bytes);
        let captures = self.captures.iter_mut().rev();
        let mut under_way = captures.filter(|planned| planned.owner == Owner::Capture);
        if let Some(block) = under_way.find_map(|planned| planned.blocks.get_mut(&address)) {
            block.life = BlockLife::Waits;
        }
    }

    /// Live blocks of a capture here, in bytes.
    pub(crate) fn live_bytes(&self, capture: CaptureId) -> u64 {
        self.capture(capture).map_or(0, |planned| planned.held)
    }

    /// Counts a block that waits out.
    fn leave(&mut self, id: RangeId) {
        if matches!(self.ranges[id].state(), RangeState::Waiting) {
            self.holding.end_wait(self.ranges[id].bytes());
        }
    }

    /// Takes a block out of use. Its addresses are for who proves the markers that it was given back with; where
    /// nothing can have used it, those that its place asked for. Returns whether nothing needs to be proven.
    pub(crate) fn free(&mut self, id: RangeId, given: Ended) -> bool {
        self.leave(id);
        let address = self.ranges[id].address();
        self.ranges.remove(id);
        let next = self.moment + 1;
        for planned in self.captures.iter_mut().rev() {
            let Some(block) = planned.blocks.get_mut(&address) else { continue };
            let (bytes, owner) = (block.bytes, block.owner.take());
            planned.held -= bytes;
            // Fixed blocks need no plan to be outputs.
            if planned.owner != Owner::Capture && block.life == BlockLife::Live {
                block.life = BlockLife::Freed(next);
            } else {
                planned.blocks.remove(&address);
            }
            let Some((stream, beneath)) = owner else { return true };
            let markers = match given {
                Ended::Markers(markers) => markers,
                Ended::Unused => beneath,
                Ended::Never => return true,
            };
            let settled = markers.is_empty();
            planned.space_of(address).give(stream, (address, bytes), markers);
            return settled;
        }
        true
    }
}

impl PlannedBlock {
    /// Of an output that the host has freed: the first plan that was made after that.
    fn freed(&self) -> Option<u64> {
        match self.life {
            BlockLife::Freed(moment) => Some(moment),
            BlockLife::Live | BlockLife::Waits => None,
        }
    }
}

impl PlannedCapture {
    fn new(capture: CaptureId, unit: u64) -> Self {
        Self {
            capture,
            owner: Owner::Capture,
            segments: Vec::new(),
            runs: Vec::new(),
            space: Space::new(unit),
            laid: None,
            blocks: BTreeMap::new(),
            held: 0,
            peak: 0,
            scratch: Vec::new(),
            scratch_at: Vec::new(),
            bound: Vec::new(),
            moment: 0,
            beside: false,
        }
    }

    /// Its capture is over: no more blocks get addresses here.
    fn owned_by(&mut self, owner: Owner) {
        self.owner = owner;
        self.runs.clear();
        self.space.clear();
        self.laid = None;
    }

    /// Whether an address lies in what is reserved for it.
    fn owns(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| segment.owns(address))
    }

    /// The next address that it would give out, and how many bytes are reserved from there on; 0 before any are.
    fn next_place(&self) -> (u64, u64) {
        self.segments.last().map_or((0, 0), |it| (it.front(), it.room()))
    }

    /// Gives out so many bytes from [`next_place`](Self::next_place) on.
    fn take(&mut self, bytes: u64) {
        self.segments.last_mut().into_iter().for_each(|segment| segment.advance(bytes));
    }

    fn run(&mut self, stream: StreamIndex) -> &mut (u64, u64) {
        reach(&mut self.runs, stream.index())
    }

    /// What is free among the addresses that this one belongs to: those of its layout, or all others.
    fn space_of(&mut self, address: u64) -> &mut Space {
        let laid = self.laid.as_mut().and_then(|laid| laid.space_of(address));
        laid.unwrap_or(&mut self.space)
    }

    /// The blocks that are not free yet: addresses and sizes.
    #[cfg(debug_assertions)]
    fn live(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let live = self.blocks.iter().filter(|(_, block)| block.freed().is_none());
        live.map(|(&address, block)| (address, block.bytes))
    }

    /// Blocks of which a part lies here, from the highest down.
    fn blocks_in(
        &self,
        (address, bytes): (u64, u64),
    ) -> impl Iterator<Item = (u64, &PlannedBlock)> {
        let below = self.blocks.range(..address + bytes).rev();
        let here = below.take_while(move |(start, block)| **start + block.bytes > address);
        here.map(|(&start, block)| (start, block))
    }

    /// Whether a part of a block that is live lies here.
    fn is_live(&self, place: (u64, u64)) -> bool {
        self.blocks_in(place).any(|(_, block)| block.freed().is_none())
    }

    /// The rows of the pieces that its graph writes, each with whether the host has freed an output that lay there.
    fn written(&self) -> BTreeMap<usize, bool> {
        let mut written = BTreeMap::new();
        for bound in self.bound.iter().filter(|_| self.owner == Owner::Graph) {
            let place = (bound.address, bound.bytes);
            let freed = self.blocks_in(place).next().is_some() && !self.is_live(place);
            *written.entry(bound.piece).or_default() |= freed;
        }
        written
    }
}

#[cfg(debug_assertions)]
impl PlannedHeap {
    pub(crate) fn verify(&self) -> Verdict {
        self.ranges.verify()?;
        self.ranges_are_blocks()?;
        self.pieces_are_bound()?;
        self.sums_are_sums()?;
        self.captures.iter().try_for_each(PlannedCapture::verify)
    }

    /// Every block that is live or waits.
    pub(crate) fn each_state(&self) -> impl Iterator<Item = (RangeId, RangeState)> + '_ {
        self.ranges.ids().map(|id| (id, self.ranges[id].state()))
    }

    /// The captures under way with blocks here, and those whose graphs have them.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (CaptureId, bool)> + '_ {
        let owners = self.captures.iter().filter(|it| it.owner != Owner::Over);
        owners.map(|planned| (planned.capture, planned.owner == Owner::Capture))
    }

    /// The addresses that it has reserved, each with their end.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let segments = self.captures.iter().flat_map(|planned| &planned.segments);
        segments.map(|segment| (segment.address(), segment.end()))
    }

    /// Each range is a block of one capture, live or waiting, with its address and size.
    fn ranges_are_blocks(&self) -> Verdict {
        let ranges = self.ranges.ids().map(|id| {
            let it = &self.ranges[id];
            let is_block = matches!(it.state(), RangeState::Allocated | RangeState::Waiting);
            (it.address(), it.bytes(), is_block)
        });
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable();
        let blocks = self.captures.iter().flat_map(PlannedCapture::live);
        let mut blocks: Vec<_> = blocks.map(|(at, bytes)| (at, bytes, true)).collect();
        blocks.sort_unstable();
        holds!(ranges == blocks, "ranges {ranges:x?}, blocks {blocks:x?}");
        Ok(())
    }

    /// A piece lies at some addresses and has its own number. Only one that has memory is mapped.
    fn pieces_are_bound(&self) -> Verdict {
        let pieces = &self.pieces;
        let mut found = vec![false; pieces.len()];
        for bound in self.captures.iter().flat_map(|planned| &planned.bound) {
            let Some(piece) = pieces.get(bound.piece).and_then(Option::as_ref) else {
                return Err(format!("there is no piece {bound:?}"));
            };
            found[bound.piece] = true;
            let there = bound.access == Access::Unmapped || piece.memory.is_some();
            holds!(bound.bytes == piece.bytes && there, "{bound:?} of {piece:?}");
        }
        let mut numbers = Vec::new();
        for (piece, found) in pieces.iter().zip(found) {
            let Some(piece) = piece else { continue };
            holds!(found, "at no addresses: {piece:?}");
            numbers.push(piece.number);
        }
        numbers.sort_unstable();
        let apart = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let past = numbers.last().is_none_or(|&last| last < self.next);
        holds!(apart && past, "numbers of pieces {numbers:?}, next {}", self.next);
        Ok(())
    }

    /// What is counted by hand is what pieces, scratch memory and blocks that wait come to.
    fn sums_are_sums(&self) -> Verdict {
        let scratch = self.captures.iter().flat_map(|planned| &planned.scratch);
        let (mut handles, mut held) = scratch.fold((0, 0), |all, it| (all.0 + 1, all.1 + it.0));
        let mut gone = 0;
        for piece in self.pieces.iter().flatten() {
            match piece.memory {
                Some(_) => (handles, held) = (handles + 1, held + piece.bytes),
                None => gone += piece.bytes,
            }
        }
        let sums = (handles, held, gone);
        let holding = &self.holding;
        let counted = (holding.pieces(), holding.reserved(), holding.suspended());
        holds!(sums == counted, "pieces, their bytes, suspended: {sums:?}, counted {counted:?}");
        let waiting = self.ranges.ids().map(|id| &self.ranges[id]);
        let waiting = waiting.filter(|range| range.state() == RangeState::Waiting);
        let waiting = waiting.fold((0, 0), |all, range| (all.0 + 1, all.1 + range.bytes()));
        holds!(waiting == holding.waiting(), "{waiting:?} wait, {:?} counted", holding.waiting());
        let whole = self.is_whole() && gone == 0;
        holds!(whole || holding.presence().is_shut(), "memory is missing, and the heap is open");
        Ok(())
    }
}

#[cfg(debug_assertions)]
impl PlannedCapture {
    /// Blocks lie apart in its addresses, as pieces do, and those that are not free yet are what is counted. One under
    /// way has no freed outputs.
    fn verify(&self) -> Verdict {
        let id = self.capture.0;
        let apart = |all: Vec<(u64, u64)>| {
            all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
                && all.iter().all(|&(at, bytes)| self.owns(at) && self.owns(at + bytes - 1))
        };
        let blocks = self.blocks.iter().map(|(&at, block)| (at, block.bytes));
        holds!(apart(blocks.collect()), "blocks of capture {id} are not apart: {:x?}", self.blocks);
        let mut bound: Vec<_> = self.bound.iter().map(|it| (it.address, it.bytes)).collect();
        bound.sort_unstable();
        holds!(apart(bound), "pieces of capture {id} are not apart: {:x?}", self.bound);
        let held: u64 = self.live().map(|it| it.1).sum();
        let counted = held == self.held && held <= self.peak;
        holds!(counted, "capture {id} has {held} bytes, {} counted", self.held);
        let bare = self.owner != Owner::Capture || self.live().count() == self.blocks.len();
        holds!(bare, "capture {id} is under way and has freed outputs: {:x?}", self.blocks);
        let room = self.segments.last().is_none_or(|segment| segment.front() <= segment.end());
        holds!(room, "capture {id} has given out more than all addresses: {:x?}", self.segments);
        Ok(())
    }
}
