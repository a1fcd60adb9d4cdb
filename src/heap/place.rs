//! Where a block goes.
//!
//! A stream of a capture may take its own ranges, ranges of other streams that are proven for it,
//! and quiet ones, each by itself or neighbours of all kinds together. While there are few of
//! them, all places are weighed (`choose`); where there are many, or where the blocks are so small
//! that the time would not pay, the first fit of an index is taken: the stream's own runs, then
//! ranges of other streams (`foreign`), then quiet ranges, each by best fit. What lies in no single
//! range is looked for among neighbours (`joined`). Last, the heap grows behind whatever free end it
//! has. What was found is cut out (`carve`).

use super::carve::Edge;
use super::choose::FEW;
use super::range::{CaptureSlot, RangeId, SegmentId, State};
use super::segment::{unit, Segment};
use super::Heap;
use crate::capture::{Markers, NodeIndex, StreamIndex};
use crate::driver::{Driver, DriverError};

/// Who asks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A stream of a capture under way. With `share` it may take what others gave back.
    Capture { capture: CaptureSlot, stream: StreamIndex, share: bool },
    /// Work outside captures: only what no graph uses.
    Outside,
}

/// What a place asked for before a block took it: with it the place can be given back as if the
/// block had never been.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    /// United over the ranges that the block covers; all proven for the block's stream.
    pub(crate) markers: Markers,
    /// Whether a finished graph uses any of it.
    pub(crate) graphs: bool,
}

/// A place that was carved out.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) range: RangeId,
    pub(crate) address: u64,
    pub(crate) before: Before,
}

impl Heap {
    /// Carves a block out of free memory, if there is a place; never asks the driver.
    ///
    /// `bytes` is a multiple of 512; `prove` says whether markers precede the claim's new work.
    pub(crate) fn place(
        &mut self,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<Placed> {
        let edge = match claim {
            Claim::Capture { capture, stream, share } => {
                if self.weigh && self.choices(capture, stream) <= FEW {
                    self.choose(bytes, claim, prove)
                } else {
                    self.own_run(bytes, capture, stream, prove)
                        .or_else(|| {
                            share.then(|| self.foreign_range(bytes, capture, stream, prove))?
                        })
                        .or_else(|| self.quiet_range(bytes, true))
                        .or_else(|| self.joined(bytes, claim, prove))
                        .map(Edge::Low)
                }
            }
            Claim::Outside => self.quiet_range(bytes, false).map(Edge::Low),
        }?;
        Some(self.carve(edge, bytes))
    }

    /// Gets memory from the driver behind the free end of a segment and carves a block out of it.
    /// `limit` bounds what the driver may be asked for, in bytes.
    ///
    /// # Errors
    /// The driver's. The heap is then as it was.
    pub(crate) fn grow<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        bytes: u64,
        claim: Claim,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
        limit: u64,
    ) -> Result<Option<Placed>, DriverError> {
        let unit = unit(driver.memory_support());
        if let Some(segment) = self.segments.len().checked_sub(1).map(SegmentId::new) {
            let (first, usable) = self.free_end(segment, bytes, claim, prove);
            let missing = (bytes - usable).next_multiple_of(unit);
            if missing > limit {
                return Ok(None);
            }
            if let (0, Some(first)) = (missing, first) {
                return Ok(Some(self.carve(Edge::Low(first), bytes)));
            }
            if self.segments[segment.index()].room() >= missing {
                self.segments[segment.index()].extend(driver, missing)?;
                let fresh = self.append(segment, missing);
                return Ok(Some(self.carve(Edge::Low(first.unwrap_or(fresh)), bytes)));
            }
        }
        let wanted = bytes.next_multiple_of(unit);
        if wanted > limit {
            return Ok(None);
        }
        let mut opened = Segment::open(driver, wanted, self.reserve)?;
        if opened.mapped == 0 {
            if let Err(error) = opened.extend(driver, wanted) {
                // Its addresses are of no use now; failing to give them back loses nothing else.
                let _ = opened.close(driver);
                return Err(error);
            }
        }
        let mapped = opened.mapped;
        self.segments.push(opened);
        let fresh = self.append(SegmentId::new(self.segments.len() - 1), mapped);
        Ok(Some(self.carve(Edge::Low(fresh), bytes)))
    }

    /// Enters newly mapped bytes behind a segment's last range.
    fn append(&mut self, segment: SegmentId, bytes: u64) -> RangeId {
        let Segment { address, mapped, last, .. } = self.segments[segment.index()];
        let state = State::Quiet { graphs: false };
        let start = address + mapped - bytes;
        let id = self.ranges.insert((start, bytes), segment, (last, None), state);
        self.segments[segment.index()].last = Some(id);
        self.list_quiet(id, false);
        self.reserved += bytes;
        id
    }

    /// The best fit among a stream's own runs.
    pub(super) fn own_run(
        &mut self,
        bytes: u64,
        capture: CaptureSlot,
        stream: StreamIndex,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        loop {
            let shelf = self.shelf(capture, stream);
            let first = shelf.own.best(bytes, |run| Some(run.bytes))?.id;
            let Some(id) = self.unproven_in(first, bytes, prove) else { return Some(first) };
            // The stream was set back since this was proven.
            self.unshelve(id);
            let token = self.token(id);
            self.unproven.push((token, stream));
        }
    }

    /// The first range from `first` on, up to `bytes`, whose markers are not proven.
    fn unproven_in(
        &self,
        first: RangeId,
        bytes: u64,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<RangeId> {
        let end = self.ranges[first].address + bytes;
        let mut at = Some(first);
        while let Some(id) = at.filter(|&id| self.ranges[id].address < end) {
            match &self.ranges[id].state {
                State::Marked(marked) if !prove(&marked.markers) => return Some(id),
                _ => at = self.ranges[id].next,
            }
        }
        None
    }

    /// The best fit among quiet ranges.
    pub(super) fn quiet_range(&mut self, bytes: u64, graphs: bool) -> Option<RangeId> {
        let mut found = self.quiet[0].best(bytes, |range| Some(range.bytes));
        if graphs {
            // Of equals what graphs use already, so that the rest stays free for work outside.
            let used = self.quiet[1].best(bytes, |range| Some(range.bytes));
            found = match (found, used) {
                (Some(new), Some(used)) if used.bytes <= new.bytes => Some(used),
                (None, used) => used,
                (new, _) => new,
            };
        }
        found.map(|range| range.id)
    }
}
