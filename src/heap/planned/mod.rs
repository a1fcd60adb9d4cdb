//! Blocks of captures that get their memory at the capture's end (design/plans.md).
//!
//! Until then their addresses are mapped to a little *scratch* memory, since copies can only be captured between mapped
//! addresses. A *planned capture* is what the heap knows of one: its blocks, where they lie and on which pieces. Pieces
//! that hold nothing which must last are shared by the graphs of the pool, which never run at once. A piece lasts while
//! a block on it is live, and then no other graph uses it. Once no addresses lie on it, it goes back to the driver.
//!
//! * [`place`]: addresses for a block, new ones or those of a layout, and what lies on the pages that blocks have had.
//! * [`space`]: which of those pages a stream may have again, and what lies behind addresses for the time being.
//! * [`bind`]: a plan carried out; less memory for graphs that are there, none for a while, none any more.

mod bind;
mod place;
mod space;

use std::collections::BTreeMap;

use super::range::{RangeId, RangeState, Ranges};
use super::segment::HeapSegment;
use super::suspend::Holding;
#[cfg(debug_assertions)]
use super::verify::{holds, Verdict};
use crate::capture::{Markers, NodeIndex, StreamIndex};
use crate::driver::{CaptureId, MemoryHandle};
pub(crate) use bind::{Others, Placement, Prepared, Sharable};
use place::Laid;
pub(crate) use place::LaidSpot;
pub(crate) use space::Asker;
use space::{Scratch, Space};

/// The heap of a pool for such blocks.
#[derive(Debug, Default)]
pub(crate) struct PlannedHeap {
    /// Blocks that are live or wait.
    ranges: Ranges,
    /// Those with blocks here.
    captures: Vec<PlannedCapture>,
    /// The memory behind them. Rows are used again.
    pieces: Vec<Option<Physical>>,
    /// Numbers of pieces, to tell them apart for good.
    next: u64,
    /// How many plans there have been.
    moment: u64,
    holding: Holding,
}

/// Physical memory.
#[derive(Debug)]
struct Physical {
    number: u64,
    bytes: u64,
    /// `None` while the driver has it.
    memory: Option<MemoryHandle>,
    /// How often it is mapped.
    mappings: usize,
    /// Of one that is one block's alone for as long as it is mapped.
    fixed: Option<Fixed>,
}

/// Memory that a block has at once and for good.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    /// Whether it is made for other processes to map.
    exportable: bool,
    /// Whether it stays behind its addresses, since others have it by handles of their own.
    exported: bool,
}

/// What keeps a planned capture's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A capture under way.
    Capture,
    /// A graph.
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
    /// Whether it is mapped, and whether the device may use it then.
    there: bool,
    open: bool,
}

/// A block that its capture did not free.
#[derive(Clone, Copy, Debug)]
struct Output {
    bytes: u64,
    /// Which plan is the first that was made after the host had freed it, by [`PlannedHeap::moment`].
    freed: Option<u64>,
}

/// New addresses for a stream: mapped, and had by no block yet.
#[derive(Clone, Copy, Debug, Default)]
struct NewAddresses {
    at: u64,
    end: u64,
}

/// How a block is given back.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// Behind these.
    Markers(Markers),
    /// Nothing can have used it.
    Unused,
    /// Its addresses are not given out again.
    Never,
}

/// A block that is not free yet.
#[derive(Clone, Debug)]
struct Live {
    bytes: u64,
    /// Its stream, and what had to be proven for it to lie there; none for a block on memory of its own.
    owner: Option<(StreamIndex, Markers)>,
    /// Whether its capture freed it, and something else still uses it.
    freed: bool,
}

/// The addresses of one capture's blocks.
#[derive(Debug)]
struct PlannedCapture {
    capture: CaptureId,
    owner: Owner,
    /// Reserved addresses, and how much of the last segment was given out.
    segments: Vec<HeapSegment>,
    taken: u64,
    /// By stream.
    runs: Vec<NewAddresses>,
    space: Space,
    /// Those where a layout says what lies where.
    laid: Option<Laid>,
    /// Blocks that are not free yet, by address.
    live: BTreeMap<u64, Live>,
    /// How many bytes of them there are, and the most that there have been.
    held: u64,
    peak: u64,
    scratch: Scratch,
    bound: Vec<Bound>,
    /// By address.
    outputs: BTreeMap<u64, Output>,
    /// Which plan of the heap it got.
    moment: u64,
    /// Whether others were under way beside it: one of them may run within the other.
    beside: bool,
}

impl PlannedHeap {
    /// What it holds of the driver's memory. What waits of it are blocks that were given back and are still in use.
    pub(crate) fn holding(&self) -> &Holding {
        &self.holding
    }

    pub(crate) fn holding_mut(&mut self) -> &mut Holding {
        &mut self.holding
    }

    fn capture(&self, capture: CaptureId) -> Option<&PlannedCapture> {
        self.captures.iter().find(|planned| planned.capture == capture)
    }

    fn capture_mut(&mut self, capture: CaptureId) -> Option<&mut PlannedCapture> {
        self.captures.iter_mut().find(|planned| planned.capture == capture)
    }

    fn piece(&mut self, row: usize) -> &mut Physical {
        self.pieces[row].as_mut().expect("mapped pieces have rows")
    }

    /// Everything that is mapped: address and size.
    pub(super) fn laid(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.captures.iter().flat_map(|planned| {
            let bound = planned.bound.iter().filter(|bound| bound.there);
            bound.map(|bound| (bound.address, bound.bytes)).chain(planned.scratch.mapped())
        })
    }

    /// Outputs of graphs that the host has freed, which other graphs may read: addresses and sizes in bytes.
    pub(crate) fn freed_outputs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let graphs = self.captures.iter().filter(|it| it.owner == Owner::Graph);
        let outputs = graphs.flat_map(|planned| &planned.outputs);
        let freed = outputs.filter(|(_, output)| output.freed.is_some());
        freed.map(|(&address, output)| (address, output.bytes))
    }

    /// Address and size of a block.
    pub(crate) fn extent(&self, id: RangeId) -> (u64, u64) {
        (self.ranges[id].address, self.ranges[id].bytes)
    }

    /// What a block is: allocated, or waiting.
    pub(crate) fn state(&self, id: RangeId) -> RangeState {
        self.ranges[id].state
    }

    /// What must precede new work in the place of a block that is live or waits: no node alone will do.
    pub(crate) fn markers(&self, _: RangeId) -> &[NodeIndex] {
        &[]
    }

    /// Every block in any order: its address and size, and the number of its segment.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (RangeId, (u64, u64), usize)> + '_ {
        let ids = self.ranges.ids();
        ids.map(|id| (id, self.extent(id), self.ranges[id].segment.index()))
    }

    /// Whether an address lies in what is reserved.
    pub(crate) fn owns(&self, address: u64) -> bool {
        self.captures.iter().any(|planned| planned.owns(address))
    }

    /// How many graphs have memory here.
    pub(crate) fn graphs(&self) -> usize {
        let captures = self.captures.iter();
        captures.filter(|planned| planned.owner == Owner::Graph).count()
    }

    /// Bytes held from the driver.
    pub(crate) fn reserved(&self) -> u64 {
        self.holding.reserved()
    }

    /// Whether a block here may belong to a capture and its memory is still to come. Fixed blocks have theirs.
    pub(crate) fn is_unbound(&self, capture: CaptureId) -> bool {
        let planned = self.capture(capture);
        planned.is_some_and(|it| it.owner == Owner::Capture && it.scratch.is_mapped())
    }

    /// Takes a block out of use that something else still uses: its capture has freed it, or the host.
    pub(crate) fn free_later(&mut self, id: RangeId) {
        let (address, bytes) = self.extent(id);
        self.leave(id);
        self.ranges.set_state(id, RangeState::Waiting);
        self.holding.begin_wait(bytes);
        let mut under_way =
            self.captures.iter_mut().filter(|planned| planned.owner == Owner::Capture);
        if let Some(live) = under_way.find_map(|planned| planned.live.get_mut(&address)) {
            live.freed = true;
        }
    }

    /// Live blocks of a capture here, in bytes.
    pub(crate) fn live_bytes(&self, capture: CaptureId) -> u64 {
        let planned = self.capture(capture);
        planned.map_or(0, |planned| planned.held)
    }

    /// Counts a block that waits out.
    fn leave(&mut self, id: RangeId) {
        if matches!(self.ranges[id].state, RangeState::Waiting) {
            self.holding.end_wait(self.ranges[id].bytes);
        }
    }

    /// Takes a block out of use. Its addresses are for who proves the markers that it was given back with; where
    /// nothing can have used it, those that its place asked for. Returns whether nothing needs to be proven.
    pub(crate) fn free(&mut self, id: RangeId, given: Ended) -> bool {
        self.leave(id);
        let address = self.ranges[id].address;
        self.ranges.remove(id);
        let next = self.moment + 1;
        for planned in &mut self.captures {
            let Some(Live { bytes, owner, .. }) = planned.live.remove(&address) else { continue };
            planned.held -= bytes;
            if let Some(output) = planned.outputs.get_mut(&address) {
                output.freed = Some(next);
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

impl PlannedCapture {
    fn new(capture: CaptureId, unit: u64) -> Self {
        Self {
            capture,
            owner: Owner::Capture,
            segments: Vec::new(),
            taken: 0,
            runs: Vec::new(),
            space: Space::new(unit),
            laid: None,
            live: BTreeMap::new(),
            held: 0,
            peak: 0,
            scratch: Scratch::default(),
            bound: Vec::new(),
            outputs: BTreeMap::new(),
            moment: 0,
            beside: false,
        }
    }

    /// It is over: nothing more gets addresses.
    fn owned_by(&mut self, owner: Owner) {
        self.owner = owner;
        self.runs.clear();
        self.space.clear();
        self.laid = None;
    }

    /// Whether an address lies in what is reserved for it.
    fn owns(&self, address: u64) -> bool {
        self.segments.iter().any(|it| (it.address..it.address + it.bytes).contains(&address))
    }

    /// The next address that it would give out; 0 before any are reserved.
    fn next_address(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.address + self.taken)
    }

    /// Reserved from there on, in bytes.
    fn room(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.bytes - self.taken)
    }

    fn run(&mut self, stream: StreamIndex) -> &mut NewAddresses {
        if self.runs.len() <= stream.index() {
            self.runs.resize_with(stream.index() + 1, NewAddresses::default);
        }
        &mut self.runs[stream.index()]
    }

    /// What is free among the addresses that one is of.
    fn space_of(&mut self, address: u64) -> &mut Space {
        match &mut self.laid {
            Some(laid) if laid.owns(address) => &mut laid.space,
            _ => &mut self.space,
        }
    }

    /// Whether a part of a block that is live lies here.
    fn is_live(&self, (address, bytes): (u64, u64)) -> bool {
        let below = self.live.range(..address + bytes).next_back();
        below.is_some_and(|(start, live)| start + live.bytes > address)
    }

    /// Blocks of which a part lies here that the capture did not free, from the highest down.
    fn outputs_in(&self, (address, bytes): (u64, u64)) -> impl Iterator<Item = (u64, Output)> + '_ {
        let below = self.outputs.range(..address + bytes).rev();
        let here = below.take_while(move |(start, output)| **start + output.bytes > address);
        here.map(|(&start, &output)| (start, output))
    }

    /// The rows of the pieces that its graph writes, each with whether the host has freed an output that lay there.
    fn written(&self) -> BTreeMap<usize, bool> {
        let mut written = BTreeMap::new();
        for bound in self.bound.iter().filter(|_| self.owner == Owner::Graph) {
            let place = (bound.address, bound.bytes);
            let freed = self.outputs_in(place).next().is_some() && !self.is_live(place);
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
        self.pieces_are_mapped_as_counted()?;
        self.sums_are_sums()?;
        self.captures.iter().try_for_each(PlannedCapture::verify)
    }

    /// Every block that is live or waits.
    pub(crate) fn each_state(&self) -> impl Iterator<Item = (RangeId, RangeState)> + '_ {
        self.ranges.ids().map(|id| (id, self.ranges[id].state))
    }

    /// The captures under way with blocks here, and those whose graphs have them.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (CaptureId, bool)> + '_ {
        let owners = self.captures.iter().filter(|it| it.owner != Owner::Over);
        owners.map(|planned| (planned.capture, planned.owner == Owner::Capture))
    }

    /// The addresses that it has reserved, each with their end.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let segments = self.captures.iter().flat_map(|planned| &planned.segments);
        segments.map(|segment| (segment.address, segment.address + segment.bytes))
    }

    /// Each range is a block of one capture, live or waiting, with its address and size.
    fn ranges_are_blocks(&self) -> Verdict {
        let ranges = self.ranges.ids().map(|id| {
            let it = &self.ranges[id];
            (it.address, it.bytes, matches!(it.state, RangeState::Allocated | RangeState::Waiting))
        });
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable();
        let blocks = self.captures.iter().flat_map(|planned| &planned.live);
        let mut blocks: Vec<_> = blocks.map(|(&at, live)| (at, live.bytes, true)).collect();
        blocks.sort_unstable();
        holds!(ranges == blocks, "ranges {ranges:x?}, blocks {blocks:x?}");
        Ok(())
    }

    /// A piece is mapped as often as it is counted, at least once, and has its own number. Only one that has memory is
    /// mapped, and only one that is mapped can be used.
    fn pieces_are_mapped_as_counted(&self) -> Verdict {
        let pieces = &self.pieces;
        let mut mappings = vec![0; pieces.len()];
        for bound in self.captures.iter().flat_map(|planned| &planned.bound) {
            let Some(piece) = pieces.get(bound.piece).and_then(Option::as_ref) else {
                return Err(format!("there is no piece {bound:?}"));
            };
            mappings[bound.piece] += 1;
            let there = !bound.there || piece.memory.is_some();
            let right = bound.bytes == piece.bytes && there && (bound.there || !bound.open);
            holds!(right, "{bound:?} of {piece:?}");
        }
        let mut numbers = Vec::new();
        for (piece, mappings) in pieces.iter().zip(mappings) {
            let Some(piece) = piece else { continue };
            let counted = mappings > 0 && piece.mappings == mappings;
            holds!(counted, "mapped {mappings} times: {piece:?}");
            numbers.push(piece.number);
        }
        numbers.sort_unstable();
        let apart = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        let past = numbers.last().is_none_or(|&last| last < self.next);
        holds!(apart && past, "numbers of pieces {numbers:?}, next {}", self.next);
        Ok(())
    }

    /// What is counted by hand is what the pieces, the scratch memory and the blocks that wait come to. All memory is
    /// there while the heap is open.
    fn sums_are_sums(&self) -> Verdict {
        let scratch = self.captures.iter().map(|planned| planned.scratch.held());
        let (mut handles, mut held) = scratch.fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
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
        let waiting = waiting.filter(|range| range.state == RangeState::Waiting);
        let waiting = waiting.fold((0, 0), |all, range| (all.0 + 1, all.1 + range.bytes));
        holds!(waiting == holding.waiting(), "{waiting:?} wait, {:?} counted", holding.waiting());
        let whole = self.is_whole() && gone == 0;
        holds!(whole || holding.presence().is_shut(), "memory is missing, and the heap is open");
        Ok(())
    }
}

#[cfg(debug_assertions)]
impl PlannedCapture {
    /// Blocks lie apart in its addresses, as pieces do, and are what is counted. What the host has not freed of its
    /// outputs lives.
    fn verify(&self) -> Verdict {
        let id = self.capture.0;
        let apart = |all: Vec<(u64, u64)>| {
            all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
                && all.iter().all(|&(at, bytes)| self.owns(at) && self.owns(at + bytes - 1))
        };
        let live = self.live.iter().map(|(&at, live)| (at, live.bytes));
        holds!(apart(live.collect()), "blocks of capture {id} are not apart: {:x?}", self.live);
        let mut bound: Vec<_> = self.bound.iter().map(|it| (it.address, it.bytes)).collect();
        bound.sort_unstable();
        holds!(apart(bound), "pieces of capture {id} are not apart: {:x?}", self.bound);
        let held: u64 = self.live.values().map(|live| live.bytes).sum();
        let counted = held == self.held && held <= self.peak;
        holds!(counted, "capture {id} has {held} bytes, {} counted", self.held);
        let lost = self.outputs.iter().find(|(at, output)| {
            output.freed.is_none() && self.live.get(at).is_none_or(|it| it.bytes != output.bytes)
        });
        holds!(lost.is_none(), "an output of capture {id} lives no more: {lost:x?}");
        let room = self.segments.last().is_none_or(|segment| self.taken <= segment.bytes);
        holds!(room, "capture {id} has given out {} bytes of addresses", self.taken);
        Ok(())
    }
}
