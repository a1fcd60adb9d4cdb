//! Weighing every place that a stream may take, where there are few.

use super::carve::Edge;
use super::place::Requester;
use super::range::{CaptureSlot, Range, RangeId, State};
use super::Heap;
use crate::capture::{NodeIndex, StreamIndex};

/// The most ranges among which all places are weighed.
pub(super) const FEW: usize = 96;

/// A range, or neighbours, that may be taken.
#[derive(Clone, Copy, Debug)]
struct Extent {
    first: RangeId,
    address: u64,
    bytes: u64,
}

/// What a place costs the stream that takes it and those that come after: the least is taken, each
/// field counting only where all before it are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Whether a run is not used up, to its last byte.
    leaves: bool,
    /// Whether any of it belongs to another stream or to none: other streams may take those.
    shared: bool,
    /// Whether it lies inside a run.
    inside: bool,
    /// How much of it is not the stream's own, in bytes.
    not_own: u64,
    /// Over how many ranges it spreads.
    ranges: usize,
    /// Its address: low ones first, so that the free end of the heap stays large.
    address: u64,
}

impl Heap {
    /// How many ranges the stream may have to choose from, but for what it has not read yet.
    pub(super) fn choices(&mut self, capture: CaptureSlot, stream: StreamIndex) -> usize {
        let idle = self.idle[0].len() + self.idle[1].len();
        let free_list = self.free_list(capture, stream);
        free_list.own_ranges + free_list.cross_stream.len() + idle
    }

    /// The place of least [`Cost`]: at either end of a run of everything that the requester may take,
    /// or, inside a run, where a block fits whole ranges exactly.
    ///
    /// Costs a sort of what the requester may take, and for each range a walk over those that a block
    /// beginning there would cover.
    pub(super) fn choose(
        &mut self,
        bytes: u64,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Option<Edge> {
        let Requester::Capture { stream, .. } = requester else { return None };
        let extents = self.takeable(requester, prove);
        let mut best: Option<(Cost, Edge)> = None;
        let mut offer = |cost: Cost, edge: Edge| {
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, edge));
            }
        };
        let mut rest = &extents[..];
        while !rest.is_empty() {
            let length =
                1 + rest.windows(2).take_while(|pair| self.adjoin(pair[0], pair[1])).count();
            let (run, after) = rest.split_at(length);
            rest = after;
            let leaves = run.iter().map(|extent| extent.bytes).sum::<u64>() != bytes;
            for start in 0..length {
                let Some((count, held)) = covering(run[start..].iter(), bytes) else { break };
                let inside = start > 0;
                if inside && held != bytes {
                    continue;
                }
                let covered = &run[start..start + count];
                let (shared, not_own) = self.owners(covered, bytes, stream);
                let address = covered[0].address;
                let cost = Cost { leaves, shared, inside, not_own, ranges: count, address };
                offer(cost, Edge::Low(covered[0].first));
            }
            // A block that fits whole ranges needs no second look from their high end.
            if let Some((count, held)) =
                covering(run.iter().rev(), bytes).filter(|&(_, held)| held != bytes)
            {
                let covered = &run[length - count..];
                let (shared, not_own) = self.owners(covered, bytes, stream);
                let address = covered[0].address + held - bytes;
                let cost = Cost { leaves, shared, inside: false, not_own, ranges: count, address };
                offer(cost, Edge::High(covered[count - 1].first));
            }
        }
        best.map(|(_, edge)| edge)
    }

    /// Whether any of the covered ranges is not the stream's own, and how much of a block of
    /// `bytes` there the own ones cannot hold.
    fn owners(&self, covered: &[Extent], bytes: u64, stream: StreamIndex) -> (bool, u64) {
        let mut own = 0;
        let mut shared = false;
        for extent in covered {
            match &self.ranges[extent.first].state {
                State::Pending(pending) if pending.owner == stream => own += extent.bytes,
                _ => shared = true,
            }
        }
        (shared, bytes.saturating_sub(own))
    }

    /// Everything that a requester may take, in address order.
    fn takeable(
        &mut self,
        requester: Requester,
        prove: &mut dyn FnMut(&[NodeIndex]) -> bool,
    ) -> Vec<Extent> {
        let mut ids: Vec<RangeId> = Vec::new();
        let Requester::Capture { capture, stream, share } = requester else {
            return Vec::new();
        };
        let runs: Vec<RangeId> =
            self.free_list(capture, stream).own.iter().map(|run| run.id).collect();
        for first in runs {
            let mut at = Some(first);
            while let Some(id) = at {
                ids.push(id);
                at = self.run_mate(id, self.ranges[id].next);
            }
        }
        if share {
            self.read_on(capture, stream, prove);
            let cross_stream =
                &self.free_lists[capture.index()].streams[stream.index()].cross_stream;
            let alive =
                cross_stream.iter().filter(|entry| self.ranges.given(entry.given).is_some());
            ids.extend(alive.map(|entry| entry.given.id));
        }
        ids.retain(
            |&id| matches!(&self.ranges[id].state, State::Pending(pending) if prove(&pending.markers)),
        );
        ids.extend(self.idle.iter().flat_map(|idle| idle.iter()).map(|range| range.id));
        let mut extents: Vec<Extent> = ids
            .into_iter()
            .map(|first| {
                let Range { address, bytes, .. } = self.ranges[first];
                Extent { first, address, bytes }
            })
            .collect();
        extents.sort_unstable_by_key(|extent| extent.address);
        extents.dedup_by_key(|extent| extent.address);
        extents
    }

    fn adjoin(&self, run: Extent, next: Extent) -> bool {
        run.address + run.bytes == next.address
            && self.ranges[run.first].segment == self.ranges[next.first].segment
    }
}

/// How many extents, from the first on, hold `bytes`, and what they hold.
fn covering<'a>(extents: impl Iterator<Item = &'a Extent>, bytes: u64) -> Option<(usize, u64)> {
    let mut held = 0;
    for (count, extent) in extents.enumerate() {
        held += extent.bytes;
        if held >= bytes {
            return Some((count + 1, held));
        }
    }
    None
}
