//! Why a stream may or may not take what is free.

use super::config::Config;
use super::report::{FreeRange, PoolId, Refusal, WaitReason};
use super::state::State;
use crate::heap::{Claim, State as RangeState};
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
        let Some(Some(row)) = self.pools.get(pool.0 as usize) else {
            return Vec::new();
        };
        let mut ranges = Vec::new();
        for number in [row.small, row.large] {
            let Some(heap) = &self.heaps[number as usize] else {
                continue;
            };
            for (address, bytes, state, block) in heap.free_ranges() {
                let refusal = match state {
                    RangeState::Waiting => {
                        Some(Refusal::Waiting(self.wait_reason(number, address)))
                    }
                    RangeState::Quiet { graphs } => (*graphs
                        && view == View::Claim(Claim::Outside))
                    .then_some(Refusal::UsedByGraph),
                    RangeState::Marked(marked) => match view {
                        View::Claim(Claim::Capture { capture, stream, .. })
                            if capture == marked.capture =>
                        {
                            let recording = self.recordings[capture.index()].as_ref();
                            let capture = &recording.expect("a claim names one under way").capture;
                            let owner = capture.stream_handle(marked.owner);
                            if config.reuse != Reuse::CrossStream && marked.owner != stream {
                                Some(Refusal::OwnStreamOnly { owner })
                            } else {
                                capture.unproven(stream, &marked.markers).map(|marker| {
                                    Refusal::Marker { node: capture.node_handle(marker), owner }
                                })
                            }
                        }
                        _ => Some(Refusal::OtherCapture),
                    },
                    RangeState::Allocated | RangeState::Vacant => continue,
                };
                ranges.push(FreeRange { address, bytes, block, refusal });
            }
        }
        ranges.sort_unstable_by_key(|range| range.address);
        ranges
    }

    fn wait_reason(&self, heap: u32, address: u64) -> WaitReason {
        let lies_here = |number, range| {
            number == heap
                && self.heaps[number as usize]
                    .as_ref()
                    .is_some_and(|h| h.extent(range).0 == address)
        };
        let held = self.recordings.iter().flatten().flat_map(|recording| &recording.held);
        for held in held {
            if lies_here(held.heap, held.range) {
                return held.reason.clone();
            }
        }
        let waiting = self.deferred.iter().find(|waiting| lies_here(waiting.heap, waiting.range));
        waiting.map_or(WaitReason::OutsideWork, |waiting| waiting.reason())
    }
}
