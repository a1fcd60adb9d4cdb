//! Why a stream may or may not take what is free.

use super::config::Config;
use super::names::PoolId;
use super::report::{FreeRange, Refusal, WaitReason};
use super::state::State;
use crate::heap::{Claim, State as RangeState};
use crate::index::{new_map, Map};
use crate::policy::Reuse;

/// From where free ranges are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Claim(Claim),
    /// A capture that has not asked for anything yet.
    NewCapture,
}

impl State {
    /// Every range of a pool that is in no block, in address order within each heap's table, with
    /// the reason why the stream may not take it.
    pub(super) fn free_ranges(&self, config: &Config, pool: PoolId, view: View) -> Vec<FreeRange> {
        let Some(row) = self.pools.get(pool) else { return Vec::new() };
        let mut ranges = Vec::new();
        for number in [row.small(), row.large()] {
            let heap = self.pools.heap(number);
            let suspended = heap.is_suspended().then_some(Refusal::Suspended);
            let mut reasons = self.wait_reasons(number);
            for (address, bytes, state, block) in heap.free_ranges() {
                let refusal = match state {
                    RangeState::Waiting => {
                        let reason = reasons.remove(&address);
                        Some(Refusal::Waiting(reason.expect("what waits has a reason")))
                    }
                    RangeState::Quiet { graphs, .. } => {
                        let outside = matches!(view, View::Claim(Claim::Outside { .. }));
                        (*graphs && outside).then_some(Refusal::UsedByGraph)
                    }
                    RangeState::Ordered { lane, .. } => match view {
                        View::Claim(Claim::Outside { lane: asks }) if asks == Some(*lane) => None,
                        _ => Some(Refusal::Ordered { owner: self.lanes.stream(*lane) }),
                    },
                    RangeState::Marked(marked) => match view {
                        View::Claim(Claim::Capture { capture, stream, .. })
                            if capture == marked.capture =>
                        {
                            let recording = self.recordings[capture.index()].as_ref();
                            let capture = &recording.expect("a claim names one under way").capture;
                            let owner = capture.stream_handle(marked.owner);
                            if config.settings.reuse != Reuse::CrossStream && marked.owner != stream
                            {
                                Some(Refusal::OwnStreamOnly { owner })
                            } else {
                                capture.unproven(stream, &marked.markers).map(|marker| {
                                    Refusal::Marker { node: capture.node_handle(marker), owner }
                                })
                            }
                        }
                        _ => Some(Refusal::OtherCapture),
                    },
                    RangeState::Allocated | RangeState::Vacant | RangeState::Hole => continue,
                };
                let refusal = refusal.or(suspended.clone());
                ranges.push(FreeRange { address, bytes, block, refusal });
            }
            ranges.extend(heap.spares().map(|((address, bytes), _)| FreeRange {
                address,
                bytes,
                block: None,
                refusal: Some(Refusal::Ahead),
            }));
        }
        ranges.sort_unstable_by_key(|range| range.address);
        ranges
    }

    /// What the ranges of a heap that wait are waiting for, by address.
    pub(super) fn wait_reasons(&self, number: u32) -> Map<u64, WaitReason> {
        let mut reasons = new_map();
        let heap = self.pools.heap(number);
        let held = self.recordings.iter().flatten().flat_map(|recording| &recording.held);
        for held in held.filter(|held| held.heap == number) {
            reasons.insert(heap.extent(held.range).0, held.reason.clone());
        }
        for waiting in self.deferred.iter().filter(|waiting| waiting.heap == number) {
            reasons.insert(heap.extent(waiting.range).0, waiting.reason(&self.lanes));
        }
        reasons
    }
}
