//! What holds of a pool's planned heap between calls: see `engine/verify.rs`.

use super::{Owner, PlannedCapture, PlannedHeap};
use crate::driver::CaptureId;
use crate::heap::range::{RangeId, RangeState};
use crate::heap::verify::{holds, Verdict};

impl PlannedHeap {
    pub(crate) fn verify(&self) -> Verdict {
        self.ranges.verify()?;
        self.ranges_are_blocks()?;
        self.pieces_are_mapped_as_counted()?;
        self.sums_are_sums()?;
        self.bindings.captures.iter().try_for_each(PlannedCapture::verify)
    }

    /// Every block that is live or waits.
    pub(crate) fn each_state(&self) -> impl Iterator<Item = (RangeId, RangeState)> + '_ {
        self.ranges.ids().map(|id| (id, self.ranges[id].state))
    }

    /// The captures under way with blocks here, and those whose graphs have them.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (CaptureId, bool)> + '_ {
        let owners = self.bindings.captures.iter().filter(|it| it.owner != Owner::Over);
        owners.map(|planned| (planned.capture, planned.owner == Owner::Capture))
    }

    /// The addresses that it has reserved, each with their end.
    pub(crate) fn reservations(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let segments = self.bindings.captures.iter().flat_map(|planned| &planned.segments);
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
        let blocks = self.bindings.captures.iter().flat_map(|planned| &planned.live);
        let mut blocks: Vec<_> = blocks.map(|(&at, live)| (at, live.bytes, true)).collect();
        blocks.sort_unstable();
        holds!(ranges == blocks, "ranges {ranges:x?}, blocks {blocks:x?}");
        Ok(())
    }

    /// A piece is mapped as often as it is counted, at least once, and has its own number. Only one that has memory is
    /// mapped, and only one that is mapped can be used.
    fn pieces_are_mapped_as_counted(&self) -> Verdict {
        let pieces = &self.bindings.pieces;
        let mut mappings = vec![0; pieces.len()];
        for bound in self.bindings.captures.iter().flat_map(|planned| &planned.bound) {
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
        let past = numbers.last().is_none_or(|&last| last < self.bindings.next);
        holds!(apart && past, "numbers of pieces {numbers:?}, next {}", self.bindings.next);
        Ok(())
    }

    /// What is counted by hand is what the pieces, the scratch memory and the blocks that wait come to. All memory is
    /// there while the heap is open.
    fn sums_are_sums(&self) -> Verdict {
        let scratch = self.bindings.captures.iter().map(|planned| planned.scratch.held());
        let (mut handles, mut held) = scratch.fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
        let mut gone = 0;
        for piece in self.bindings.pieces.iter().flatten() {
            match piece.memory {
                Some(_) => (handles, held) = (handles + 1, held + piece.bytes),
                None => gone += piece.bytes,
            }
        }
        let sums = (handles, held, gone);
        let counted = (self.handles, self.reserved, self.suspended);
        holds!(sums == counted, "pieces, their bytes, suspended: {sums:?}, counted {counted:?}");
        let waiting = self.ranges.ids().map(|id| &self.ranges[id]);
        let waiting = waiting.filter(|range| range.state == RangeState::Waiting);
        let waiting = waiting.fold((0, 0), |all, range| (all.0 + 1, all.1 + range.bytes));
        holds!(waiting == self.waiting, "{waiting:?} wait, {:?} counted", self.waiting);
        let whole = self.is_whole() && gone == 0;
        holds!(whole || self.presence.is_shut(), "memory is missing, and the heap is open");
        Ok(())
    }
}

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
