//! Where a block goes.
//!
//! A stream of a capture may take its own ranges, ranges of other streams that are proven for it,
//! and idle ones, each by itself or neighbours of all kinds together. While there are few of
//! them, all places are weighed (`choose`); where there are many, or where the blocks are so small
//! that the time would not pay, the first fit of an index is taken: the stream's own runs, then
//! ranges of other streams (`cross_stream`), then idle ranges, each by best fit. What lies in no single
//! range is looked for among neighbours (`joined`). Last, the heap grows behind whatever free end it
//! has (`grow`). What was found is cut out (`carve`).
//!
//! Work outside captures may take idle ranges that no graph uses and what its own stream gave back
//! before: by best fit, then among neighbours, then by growth.

use super::carve::Edge;
use super::choose::FEW;
use super::range::{CaptureSlot, RangeId, State, TimelineId};
use super::{Heap, Splitting};
use crate::capture::{Markers, NodeIndex, StreamIndex};

/// Who asks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A stream of a capture under way. With `share` it may take what others gave back.
    Capture { capture: CaptureSlot, stream: StreamIndex, share: bool },
    /// Work outside captures: only what no graph uses, and what its own timeline gave back.
    Outside { timeline: Option<TimelineId> },
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
    pub(crate) bytes: u64,
    pub(crate) before: Before,
}

impl Heap {
    /// Carves a block out of free memory, if there is a place; never asks the driver.
    ///
    /// `bytes` is a multiple of 512; `weigh` says whether every place is worth a look where there
    /// are few; `prove` says whether markers precede the requester's new work.
    pub(crate) fn place(
        &mut self,
        bytes: u64,
        weigh: bool,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<Placed> {
        if self.is_uncached() || self.is_suspended() {
            return None;
        }
        self.clock += 1;
        let mut bytes = bytes;
        let edge = match requester {
            Requester::Capture { capture, stream, share } => {
                if weigh && self.choices(capture, stream) <= FEW {
                    self.choose(bytes, requester, prove)
                } else {
                    self.own_run(bytes, capture, stream, prove)
                        .or_else(|| {
                            share.then(|| self.cross_stream_range(bytes, capture, stream, prove))?
                        })
                        .or_else(|| self.idle_range(bytes, true))
                        .or_else(|| self.joined(bytes, requester, prove))
                        .map(Edge::Low)
                }
            }
            Requester::Outside { timeline } => {
                let single = self.single_range(bytes, timeline);
                if let Some(id) = single {
                    bytes = self.unsplit(id, bytes);
                }
                single.or_else(|| self.joined(bytes, requester, prove)).map(Edge::Low)
            }
        }?;
        Some(self.carve(edge, bytes))
    }

    /// The best fit, outside captures, among what a timeline gave back and what is idle.
    fn single_range(&mut self, bytes: u64, timeline: Option<TimelineId>) -> Option<RangeId> {
        let own = timeline.and_then(|timeline| self.stream_ordered.get_mut(timeline.index()));
        let own = own.and_then(|own| own.best(bytes, |range| Some(range.bytes)));
        let idle = self.idle[0].best(bytes, |range| Some(range.bytes));
        let closed = self.closed[0].best(bytes, |range| Some(range.bytes));
        let idle = idle.into_iter().chain(closed).min_by_key(|range| range.bytes);
        let found = match (own, idle) {
            (Some(own), Some(idle)) if idle.bytes < own.bytes => idle,
            (Some(own), _) => own,
            (None, idle) => idle?,
        };
        let Splitting { most, slack } = self.plan.splitting;
        let fits = match most {
            Some(most) if bytes >= most => found.bytes < bytes + slack,
            Some(most) => found.bytes < most,
            None => true,
        };
        fits.then_some(found.id)
    }

    /// How much of a range a block of `bytes` takes: all of it, where it is too large to be split.
    fn unsplit(&self, id: RangeId, bytes: u64) -> u64 {
        match self.plan.splitting.most {
            Some(most) if bytes >= most => self.ranges[id].bytes,
            _ => bytes,
        }
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
            let free_list = self.free_list(capture, stream);
            let first = free_list.own.best(bytes, |run| Some(run.bytes))?.id;
            let Some(id) = self.unproven_in(first, bytes, prove) else { return Some(first) };
            // The stream was set back since this was proven.
            self.leave_run(id);
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
                State::Pending(pending) if !prove(&pending.markers) => return Some(id),
                _ => at = self.ranges[id].next,
            }
        }
        None
    }

    /// The best fit among idle ranges.
    pub(super) fn idle_range(&mut self, bytes: u64, graphs: bool) -> Option<RangeId> {
        let mut found = self.idle[0].best(bytes, |range| Some(range.bytes));
        if graphs {
            // Of equals what graphs use already, so that the rest stays free for work outside.
            let used = self.idle[1].best(bytes, |range| Some(range.bytes));
            found = match (found, used) {
                (Some(new), Some(used)) if used.bytes <= new.bytes => Some(used),
                (None, used) => used,
                (new, _) => new,
            };
        }
        found.map(|range| range.id)
    }
}
