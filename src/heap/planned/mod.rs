//! Blocks of captures that get their memory at the capture's end.
//!
//! While a capture is under way its blocks here have addresses of their own, never given out twice,
//! and all of them are mapped to a little *scratch* memory, since copies can only be captured between
//! mapped addresses. At the end a plan says which physical pieces serve which addresses; they are
//! mapped there in the scratch memory's place ([`bind`]). What a graph's blocks were, where they lie and
//! on which pieces, is its *ground*.
//!
//! Pieces that hold nothing which must last are shared by the graphs of the pool, which never run at
//! once: plans of later captures are told of them. A piece lasts while a block on it is live, and then
//! no other graph uses it. Once no addresses lie on a piece it goes back to the driver ([`sweep`]).
//!
//! * [`fresh`]: addresses for a block; [`scratch`]: what lies behind them for the time being.
//! * [`bind`]: a plan carried out; [`sweep`]: memory and addresses that no block and no graph needs any more;
//!   [`suspend`]: no memory for a while.

mod bind;
mod fresh;
mod scratch;
mod suspend;
mod sweep;

use std::collections::BTreeMap;

use super::range::{RangeId, SegmentId, State};
pub(crate) use bind::{Lies, Others, Prepared, Sharable};
pub(crate) use fresh::Asker;

use super::{Heap, Plan, Splitting, Supply};
use crate::capture::{Markers, Moment, StreamIndex};
use crate::driver::{CaptureId, MemoryHandle};
use scratch::Scratch;

/// What a heap of such blocks knows beyond its ranges.
#[derive(Debug, Default)]
pub(super) struct Planned {
    grounds: Vec<Ground>,
    /// Rows are used again.
    pieces: Vec<Option<Physical>>,
    /// Numbers of pieces, to tell them apart for good.
    next: u64,
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
    /// Whether it is one block's alone for as long as it is mapped.
    fixed: bool,
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
    /// Whether it is mapped.
    there: bool,
    /// Whether a block lay here that the capture did not free.
    output: bool,
}

/// Where the next block of a stream goes.
#[derive(Debug, Default)]
struct Run {
    /// Addresses that are mapped and free, from here to the end.
    at: u64,
    end: u64,
    /// The stream's latest block, which ends at `at`, while it is live.
    last: Option<RangeId>,
    /// What must be proven of that block once it was given back.
    markers: Markers,
    /// Whole pages that the stream gave back, the latest last.
    free: Vec<Free>,
}

/// Pages that one stream had alone.
#[derive(Debug)]
struct Free {
    address: u64,
    bytes: u64,
    markers: Markers,
    since: Moment,
}

/// A block that is not free yet.
#[derive(Clone, Copy, Debug)]
struct Live {
    bytes: u64,
    /// Its stream's row; none for a block on memory of its own.
    run: Option<usize>,
    /// Whether another block begins on its last page.
    followed: bool,
    /// Whether its capture freed it, and something else still uses it.
    freed: bool,
}

/// The addresses of one capture's blocks.
#[derive(Debug)]
struct Ground {
    capture: CaptureId,
    owner: Owner,
    /// Reserved addresses, and how much of the last segment was given out.
    segments: Vec<SegmentId>,
    taken: u64,
    /// By stream.
    runs: Vec<Run>,
    /// Blocks that are not free yet, by address.
    live: BTreeMap<u64, Live>,
    /// How many bytes of them there are, and the most that there have been.
    held: u64,
    peak: u64,
    /// The device's granularity, in bytes.
    unit: u64,
    scratch: Scratch,
    bound: Vec<Bound>,
}

impl Planned {
    fn ground(&self, capture: CaptureId) -> Option<&Ground> {
        self.grounds.iter().find(|ground| ground.capture == capture)
    }

    fn ground_mut(&mut self, capture: CaptureId) -> Option<&mut Ground> {
        self.grounds.iter_mut().find(|ground| ground.capture == capture)
    }

    fn piece(&mut self, row: usize) -> &mut Physical {
        self.pieces[row].as_mut().expect("mapped pieces have rows")
    }
}

impl Ground {
    fn new(capture: CaptureId, unit: u64) -> Self {
        Self {
            capture,
            owner: Owner::Capture,
            segments: Vec::new(),
            taken: 0,
            runs: Vec::new(),
            live: BTreeMap::new(),
            held: 0,
            peak: 0,
            unit,
            scratch: Scratch::default(),
            bound: Vec::new(),
        }
    }

    fn run(&mut self, stream: StreamIndex) -> &mut Run {
        if self.runs.len() <= stream.index() {
            self.runs.resize_with(stream.index() + 1, Run::default);
        }
        &mut self.runs[stream.index()]
    }

    /// Whether a part of a block that is live lies here.
    fn is_live(&self, (address, bytes): (u64, u64)) -> bool {
        let below = self.live.range(..address + bytes).next_back();
        below.is_some_and(|(start, live)| start + live.bytes > address)
    }

    /// Whether a part of a block lies here that the capture has not freed.
    fn is_output(&self, (address, bytes): (u64, u64)) -> bool {
        let below = self.live.range(..address + bytes).rev();
        let mut here = below.take_while(|(start, live)| **start + live.bytes > address);
        here.any(|(_, live)| !live.freed)
    }

    /// The rows of the pieces that its graph writes, each with whether the host has freed an output
    /// that lay there.
    fn written(&self) -> BTreeMap<usize, bool> {
        let mut written = BTreeMap::new();
        for bound in self.bound.iter().filter(|_| self.owner == Owner::Graph) {
            let freed = bound.output && !self.is_live((bound.address, bound.bytes));
            *written.entry(bound.piece).or_default() |= freed;
        }
        written
    }
}

impl Heap {
    /// A heap for blocks that get their memory at their capture's end.
    pub(crate) fn new_planned(number: u32) -> Self {
        let supply = Supply::Growing { reserve: 0 };
        let plan = Plan { small: false, supply, splitting: Splitting::default() };
        let mut heap = Self::new(number, plan);
        heap.planned = Some(Box::default());
        heap
    }

    /// Whether blocks here get their memory at their capture's end.
    #[inline]
    pub(crate) fn is_planned(&self) -> bool {
        self.planned.is_some()
    }

    /// Whether a block here may belong to a capture and its memory is still to come. Fixed blocks have
    /// theirs.
    pub(crate) fn is_unbound(&self, capture: CaptureId) -> bool {
        let ground = self.planned.as_ref().and_then(|planned| planned.ground(capture));
        ground.is_some_and(|it| it.owner == Owner::Capture && it.scratch.is_mapped())
    }

    /// Notes that the capture of a live block has freed it.
    pub(super) fn note_freed(&mut self, id: RangeId) {
        let address = self.ranges[id].address;
        let Some(planned) = self.planned.as_mut() else { return };
        let mut under_way =
            planned.grounds.iter_mut().filter(|ground| ground.owner == Owner::Capture);
        if let Some(live) = under_way.find_map(|ground| ground.live.get_mut(&address)) {
            live.freed = true;
        }
    }

    /// Live blocks of a capture here, in bytes.
    pub(crate) fn planned_live(&self, capture: CaptureId) -> u64 {
        let ground = self.planned.as_ref().and_then(|planned| planned.ground(capture));
        ground.map_or(0, |ground| ground.held)
    }

    /// Takes a block out of use. Its stream may have whole pages of its again that it gave back with
    /// markers.
    pub(super) fn vanish(&mut self, id: RangeId, given: Option<(Markers, Moment)>) {
        self.leave(id);
        let address = self.ranges[id].address;
        self.ranges.set_state(id, State::Waiting);
        self.ranges.remove(id);
        let Some(planned) = self.planned.as_mut() else { return };
        for ground in &mut planned.grounds {
            let Some(live) = ground.live.remove(&address) else { continue };
            ground.held -= live.bytes;
            let unit = ground.unit;
            let Some(run) = live.run.and_then(|run| ground.runs.get_mut(run)) else { return };
            let (markers, since) = given.unwrap_or_default();
            if run.last == Some(id) {
                run.last = None;
                run.markers = markers.clone();
            }
            let end = address + live.bytes;
            let end = if live.followed { end / unit * unit } else { end.next_multiple_of(unit) };
            let address = address.next_multiple_of(unit);
            if !markers.is_empty() && address < end {
                run.free.push(Free { address, bytes: end - address, markers, since });
            }
            return;
        }
    }
}
