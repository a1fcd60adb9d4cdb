//! One heap of a pool: ranges of addresses, who may take the free ones, and growth.
//!
//! * [`range`]: the table of ranges in address order.
//! * [`segment`]: where memory comes from.
//! * [`bins`]: places by size.
//! * [`shelf`]: what each stream of a capture may take.
//! * [`place`]: where a block goes; with [`choose`], [`foreign`], [`joined`] and [`carve`].
//!
//! A heap decides *where*; whether a stream may is asked of the caller's `prove` for every marker
//! of every range that a block would cover. What the heap remembers of earlier answers (shelves,
//! news) only saves questions.
//!
//! The same calls give the same addresses: every order here is one of sizes, addresses and rows.

mod bins;
mod carve;
mod choose;
mod foreign;
mod joined;
mod place;
mod range;
mod segment;
mod shelf;

pub(crate) use place::{Before, Claim, Placed};
pub(crate) use range::{CaptureSlot, Marked, RangeId, State};
pub(crate) use segment::unit;

use crate::capture::{Markers, NodeIndex, StreamIndex, Token};
use crate::driver::{Driver, DriverError};
use crate::journal::BlockNumber;
use bins::Bins;
use range::{Given, Range, Ranges};
use segment::Segment;
use shelf::{Listed, Shelf, Shelves};

/// Small or large blocks of one pool.
#[derive(Debug)]
pub(crate) struct Heap {
    /// The engine's number of this heap, for tokens.
    number: u32,
    /// Address space of a segment, in bytes.
    reserve: u64,
    /// Whether all places are weighed where there are few.
    weigh: bool,
    ranges: Ranges,
    segments: Vec<Segment>,
    /// Quiet ranges; `[1]` holds those that graphs use.
    quiet: [Bins<Listed>; 2],
    /// By capture; rows appear as they are needed.
    shelves: Vec<Shelves>,
    /// What a search found unproven, with the stream that must wait for it.
    unproven: Vec<(Token, StreamIndex)>,
    reserved: u64,
}

impl Heap {
    pub(crate) fn new(number: u32, reserve: u64, weigh: bool) -> Self {
        Self {
            number,
            reserve,
            weigh,
            ranges: Ranges::default(),
            segments: Vec::new(),
            quiet: [Bins::default(), Bins::default()],
            shelves: Vec::new(),
            unproven: Vec::new(),
            reserved: 0,
        }
    }

    /// Bytes held from the driver.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
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
            let free = !matches!(range.state, State::Allocated);
            free.then_some((range.address, range.bytes, &range.state, range.block))
        })
    }

    /// Address and size of every range that a capture under way gave back.
    pub(crate) fn given_back(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.free_ranges().filter_map(|(address, bytes, state, _)| {
            matches!(state, State::Marked(_)).then_some((address, bytes))
        })
    }

    /// Bytes that were given back and that nobody may take yet.
    pub(crate) fn waiting(&self) -> u64 {
        let waiting = |state: &State| matches!(state, State::Waiting);
        self.free_ranges().filter(|range| waiting(range.2)).map(|range| range.1).sum()
    }

    /// What a token waits for; `None` once the range has been taken.
    #[inline]
    pub(crate) fn markers(&self, token: Token) -> Option<&[NodeIndex]> {
        let given = Given { id: self.range_of(token), generation: token.generation };
        self.ranges.given(given).map(|(marked, _)| &marked.markers[..])
    }

    /// Notes that `stream` now proves the markers that the token waits for.
    pub(crate) fn learn(&mut self, token: Token, stream: StreamIndex) {
        let id = self.range_of(token);
        let given = Given { id, generation: token.generation };
        let Some((marked, _)) = self.ranges.given(given) else { return };
        let (capture, owner, shelved) = (marked.capture, marked.owner, marked.shelved);
        if owner != stream {
            self.shelf(capture, stream).news.push(given);
        } else if !shelved {
            self.shelve(id);
        }
    }

    /// What the last searches found unproven, for the caller to let wait.
    pub(crate) fn take_unproven(&mut self) -> Vec<(Token, StreamIndex)> {
        std::mem::take(&mut self.unproven)
    }

    /// Frees an allocated range at once: nothing of a capture under way ever used it.
    pub(crate) fn free_quiet(&mut self, id: RangeId, graphs: bool, block: BlockNumber) {
        self.ranges[id].block = Some(block);
        self.settle(id, graphs);
    }

    /// Frees an allocated range for whoever proves its markers, and returns the name under which
    /// it waits. The caller says whether its owner proves them already ([`Heap::learn`]); others
    /// find it in the log.
    pub(crate) fn free_marked(&mut self, id: RangeId, marked: Freed, block: BlockNumber) -> Token {
        let Freed { capture, owner, markers, graphs } = marked;
        self.ranges.renew(id);
        let range = &mut self.ranges[id];
        let bytes = range.bytes;
        range.block = Some(block);
        range.state =
            State::Marked(Marked { capture, owner, markers, graphs, shelved: false, run_end: id });
        let token = self.token(id);
        self.shelves(capture).log.push(bytes, Given { id, generation: token.generation });
        token
    }

    /// Takes an allocated range out of use without making it free for anyone.
    pub(crate) fn free_later(&mut self, id: RangeId, block: BlockNumber) {
        self.ranges.renew(id);
        let range = &mut self.ranges[id];
        range.block = Some(block);
        range.state = State::Waiting;
    }

    /// Makes a range free that [`Heap::free_later`] or [`Heap::end_capture`] held back.
    pub(crate) fn free_waiting(&mut self, id: RangeId, graphs: bool) {
        self.settle(id, graphs);
    }

    /// Ends a capture: its free ranges become quiet. With `graphs` they belong to a finished graph
    /// from now on; without, the capture is rolled back and they are what they were before it.
    /// With `hold` they wait instead and are returned.
    pub(crate) fn end_capture(
        &mut self,
        capture: CaptureSlot,
        graphs: bool,
        hold: bool,
    ) -> Vec<(RangeId, bool)> {
        if let Some(shelves) = self.shelves.get_mut(capture.index()) {
            *shelves = Shelves::default();
        }
        self.unproven.clear();
        let mut held = Vec::new();
        for row in 0..self.ranges.len() {
            let id = RangeId::new(row);
            let State::Marked(marked) = &self.ranges[id].state else {
                continue;
            };
            if marked.capture != capture {
                continue;
            }
            let graphs = graphs || marked.graphs;
            if hold {
                self.ranges.renew(id);
                self.ranges[id].state = State::Waiting;
                held.push((id, graphs));
            } else {
                self.settle(id, graphs);
            }
        }
        held
    }

    /// The pool has no graph any more: work outside captures may take what they used too.
    pub(crate) fn forget_graphs(&mut self) {
        for Listed { id, .. } in std::mem::take(&mut self.quiet[1]).iter().copied() {
            self.settle(id, false);
        }
    }

    /// Gives everything back to the driver.
    pub(crate) fn close<D: Driver + ?Sized>(self, driver: &D) -> Result<(), DriverError> {
        let mut result = Ok(());
        for segment in self.segments {
            result = result.and(segment.close(driver));
        }
        result
    }

    fn range_of(&self, token: Token) -> RangeId {
        RangeId::new(token.row as usize)
    }

    fn token(&self, id: RangeId) -> Token {
        Token { heap: self.number, row: id.index() as u32, generation: self.ranges.generation(id) }
    }

    /// Makes a range quiet and merges it with quiet neighbours of its kind.
    fn settle(&mut self, mut id: RangeId, graphs: bool) {
        let alike =
            |range: &Range| matches!(range.state, State::Quiet { graphs: g } if g == graphs);
        self.ranges.renew(id);
        self.ranges[id].state = State::Quiet { graphs };
        if let Some(next) = self.ranges[id].next.filter(|&next| alike(&self.ranges[next])) {
            self.unlist_quiet(next, graphs);
            self.absorb_next(id, next);
        }
        if let Some(previous) = self.ranges[id].previous {
            if alike(&self.ranges[previous]) {
                self.unlist_quiet(previous, graphs);
                self.absorb_next(previous, id);
                id = previous;
            }
        }
        self.list_quiet(id, graphs);
    }

    fn list_quiet(&mut self, id: RangeId, graphs: bool) {
        let bytes = self.ranges[id].bytes;
        self.ranges[id].slot = self.quiet[usize::from(graphs)].insert(Listed { id, bytes });
    }

    fn unlist_quiet(&mut self, id: RangeId, graphs: bool) {
        let slot = self.ranges[id].slot;
        if let Some(moved) = self.quiet[usize::from(graphs)].remove(slot) {
            self.ranges[moved.id].slot = slot;
        }
    }

    /// Adds an unlisted quiet range's bytes to the one before it.
    fn absorb_next(&mut self, id: RangeId, next: RangeId) {
        let Range { bytes, segment, .. } = self.ranges[next];
        self.ranges.remove(next);
        self.ranges[id].bytes += bytes;
        let segment = &mut self.segments[segment.index()];
        if segment.last == Some(next) {
            segment.last = Some(id);
        }
    }

    fn shelves(&mut self, capture: CaptureSlot) -> &mut Shelves {
        if self.shelves.len() <= capture.index() {
            self.shelves.resize_with(capture.index() + 1, Shelves::default);
        }
        &mut self.shelves[capture.index()]
    }

    fn shelf(&mut self, capture: CaptureSlot, stream: StreamIndex) -> &mut Shelf {
        let streams = &mut self.shelves(capture).streams;
        if streams.len() <= stream.index() {
            streams.resize_with(stream.index() + 1, Shelf::default);
        }
        &mut streams[stream.index()]
    }

    /// The neighbour, if both lie on the same owner's shelf. While a block is being carved the
    /// ranges on its two sides follow each other in the table, but are no neighbours.
    fn run_mate(&self, id: RangeId, neighbour: Option<RangeId>) -> Option<RangeId> {
        let neighbour = neighbour?;
        let (range, other) = (&self.ranges[id], &self.ranges[neighbour]);
        let touch = range.end() == other.address || other.end() == range.address;
        match (&range.state, &other.state) {
            (State::Marked(a), State::Marked(b))
                if touch && b.shelved && a.owner == b.owner && a.capture == b.capture =>
            {
                Some(neighbour)
            }
            _ => None,
        }
    }

    fn marked(&mut self, id: RangeId) -> &mut Marked {
        match &mut self.ranges[id].state {
            State::Marked(marked) => marked,
            state => unreachable!("a range on a shelf is marked, not {state:?}"),
        }
    }

    /// Puts a range on its owner's shelf, joined with the runs beside it.
    fn shelve(&mut self, id: RangeId) {
        let Range { previous, next, .. } = self.ranges[id];
        let mut first = id;
        let mut last = id;
        if let Some(previous) = self.run_mate(id, previous) {
            first = self.marked(previous).run_end;
            self.unlist_run(first);
        }
        if let Some(next) = self.run_mate(id, next) {
            last = self.marked(next).run_end;
            self.unlist_run(next);
        }
        let marked = self.marked(id);
        marked.shelved = true;
        let (capture, owner) = (marked.capture, marked.owner);
        self.shelf(capture, owner).own_ranges += 1;
        self.list_run(first, last);
    }

    /// Takes a range off its owner's shelf; what is left of its run stays.
    fn unshelve(&mut self, id: RangeId) {
        let Range { previous, next, .. } = self.ranges[id];
        let previous = self.run_mate(id, previous);
        let next = self.run_mate(id, next);
        // The ends are at hand unless the range lies in the middle.
        let (first, last) = match (previous, next) {
            (None, None) => (id, id),
            (None, Some(_)) => (id, self.marked(id).run_end),
            (Some(_), None) => (self.marked(id).run_end, id),
            (Some(_), Some(_)) => {
                let mut first = id;
                while let Some(mate) = self.run_mate(first, self.ranges[first].previous) {
                    first = mate;
                }
                (first, self.marked(first).run_end)
            }
        };
        self.unlist_run(first);
        let marked = self.marked(id);
        marked.shelved = false;
        let (capture, owner) = (marked.capture, marked.owner);
        self.shelf(capture, owner).own_ranges -= 1;
        if let Some(previous) = previous {
            self.list_run(first, previous);
        }
        if let Some(next) = next {
            self.list_run(next, last);
        }
    }

    fn list_run(&mut self, first: RangeId, last: RangeId) {
        let bytes = self.ranges[last].end() - self.ranges[first].address;
        self.marked(last).run_end = first;
        let marked = self.marked(first);
        marked.run_end = last;
        let (capture, owner) = (marked.capture, marked.owner);
        let slot = self.shelf(capture, owner).own.insert(Listed { id: first, bytes });
        self.ranges[first].slot = slot;
    }

    fn unlist_run(&mut self, first: RangeId) {
        let slot = self.ranges[first].slot;
        let marked = self.marked(first);
        let (capture, owner) = (marked.capture, marked.owner);
        if let Some(moved) = self.shelf(capture, owner).own.remove(slot) {
            self.ranges[moved.id].slot = slot;
        }
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
