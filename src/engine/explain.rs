//! Why a stream may or may not take what is free.

use std::fmt;

use super::allocate::POLLED;
use super::names::PoolId;
use super::snapshot::Range;
use super::state::{Locked, State};
use super::{Engine, Error};
use crate::driver::{AsStream, CaptureId, Driver, NodeHandle, StreamHandle};
use crate::heap::{RangeState, Requester, Users};
use crate::index::{new_map, Map};
use crate::journal::BlockNumber;
use crate::policy::Reuse;

/// A free range as one stream sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeRange {
    /// Where it lies.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The last block that lay there, if any.
    pub block: Option<BlockNumber>,
    /// Why the stream may not take it; `None` where it may.
    pub refusal: Option<Refusal>,
}

/// Why a stream may not take a free range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// This node must be completed first, and no path of edges that prove it leads from it to the
    /// stream's terminals.
    Marker {
        /// The free marker that is missing.
        node: NodeHandle,
        /// The stream that owned the block.
        owner: StreamHandle,
        /// The node's kernel, where the driver tells its name.
        kernel: Option<String>,
    },
    /// This node must be completed first. It precedes the stream's next work, but that may start before
    /// it is completed: the setting `programmatic` is `lag`, or `auto` and the stream launched so when
    /// the work was captured before.
    EarlyLaunch {
        /// The free marker.
        node: NodeHandle,
        /// The stream that owned the block.
        owner: StreamHandle,
        /// The node's kernel, where the driver tells its name.
        kernel: Option<String>,
    },
    /// The policy gives it to its own stream only.
    OwnStreamOnly {
        /// The stream that owned the block.
        owner: StreamHandle,
    },
    /// It is held back until a capture ends or outside work has completed.
    Waiting(WaitReason),
    /// This stream gave it back outside captures: it may take it at once, others when its work has
    /// completed.
    Ordered {
        /// The stream.
        owner: StreamHandle,
    },
    /// It belongs to another capture that is under way.
    OtherCapture,
    /// A graph of the pool uses it, and the stream is not capturing.
    UsedByGraph,
    /// Its pool is suspended: there is no memory behind it.
    Suspended,
    /// It was mapped ahead for captures under way: their growth takes it before more is mapped, and
    /// what is left goes back to the driver.
    Ahead,
}

/// Why a freed block is held back from everyone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// A stream that is not in the block's capture uses it.
    OutsideStream(StreamHandle),
    /// A stream that used it was set back, or went on behind an edge that proves nothing: its
    /// users may escape the free markers.
    Untrusted(StreamHandle),
    /// A younger capture of the same pool is under way; it may be the body of a conditional node.
    NestedCapture(CaptureId),
    /// The policy holds blocks that several streams used until the capture's end.
    Policy,
    /// A capture that was under way beside it.
    Capture(CaptureId),
    /// Work of this stream, outside captures, that has not completed.
    OutsideWork(StreamHandle),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EarlyLaunch { node, owner, kernel } => {
                write_node(f, *node, kernel.as_deref())?;
                write!(
                    f,
                    " is behind the block's last use on {owner}, and the stream's next launch may start \
                     before it has completed: it is free after one more launch, or if the setting \
                     `programmatic` is trust"
                )
            }
            Self::Marker { node, owner, kernel } => {
                write_node(f, *node, kernel.as_deref())?;
                write!(
                    f,
                    " is behind the block's last use on {owner} and not proven to have completed: make \
                     the stream that asks wait for an event that was recorded on {owner} after it"
                )
            }
            Self::OwnStreamOnly { owner } => {
                write!(f, "the setting `reuse` gives it to its own {owner} alone")
            }
            Self::Waiting(reason) => reason.fmt(f),
            Self::Ordered { owner } => {
                write!(f, "{owner} freed it, and may still run work that uses it")
            }
            Self::OtherCapture => write!(f, "it belongs to another capture that is under way"),
            Self::UsedByGraph => {
                write!(f, "a graph of the pool uses it: release the graph, or use another pool")
            }
            Self::Suspended => write!(f, "its pool is suspended: resume it"),
            Self::Ahead => write!(f, "it is premapped for growth in captures"),
        }
    }
}

fn write_node(f: &mut fmt::Formatter<'_>, node: NodeHandle, kernel: Option<&str>) -> fmt::Result {
    match kernel {
        Some(kernel) => write!(f, "kernel {kernel}, {node:?}"),
        None => write!(f, "{node:?}"),
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideStream(stream) => write!(
                f,
                "{stream} uses it and is not in its capture: join the stream to the capture, by an event \
                 of it, or record the use on a stream that is in it"
            ),
            Self::Untrusted(stream) => write!(
                f,
                "{stream} was set back, or went on behind an edge that proves nothing, while it used \
                 the block: join the stream before the free"
            ),
            Self::NestedCapture(capture) => {
                write!(f, "capture {} of the same pool began since and may be a part of it", capture.0)
            }
            Self::Policy => {
                write!(f, "the setting `reuse` holds blocks of several streams until the capture ends")
            }
            Self::Capture(capture) => write!(f, "capture {} has not ended", capture.0),
            Self::OutsideWork(stream) => {
                write!(f, "work of {stream} that has not completed may use it")
            }
        }
    }
}

/// From where free ranges are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Requester(Requester),
    /// A capture that has not asked for anything yet.
    NewCapture,
}

impl State {
    /// What the ranges that wait are waiting for.
    pub(super) fn all_wait_reasons(&self) -> impl Iterator<Item = (Range, WaitReason)> + '_ {
        self.waiting.iter().map(|it| ((it.heap, it.range), it.reason(&self.timelines)))
    }

    /// What those of a heap are waiting for, by address.
    fn wait_reasons(&self, number: u32) -> Map<u64, WaitReason> {
        let reasons = self.all_wait_reasons().filter(|((heap, _), _)| *heap == number);
        let mut by_address = new_map();
        by_address
            .extend(reasons.map(|((_, id), reason)| (self.pools.extent(number, id).0, reason)));
        by_address
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Every range of a pool that is in no block, in address order within each heap's table, with
    /// the reason why the stream may not take it.
    pub(super) fn free_ranges(&self, pool: PoolId, view: View) -> Vec<FreeRange> {
        let Some(row) = self.state.pools.get(pool) else { return Vec::new() };
        let mut ranges = Vec::new();
        for number in [row.small(), row.large()] {
            let heap = self.state.pools.heap(number);
            let suspended = heap.presence().is_shut().then_some(Refusal::Suspended);
            let mut reasons = self.state.wait_reasons(number);
            for (id, block) in heap.unallocated() {
                let (address, bytes) = heap.extent(id);
                let refusal = match heap.state(id) {
                    RangeState::Waiting => {
                        let reason = reasons.remove(&address);
                        Some(Refusal::Waiting(reason.expect("what waits has a reason")))
                    }
                    RangeState::Idle { users } | RangeState::Closed { users } => {
                        let outside = matches!(view, View::Requester(Requester::Outside { .. }));
                        (users.are_graphs() && outside).then_some(Refusal::UsedByGraph)
                    }
                    RangeState::StreamOrdered { timeline, users } => match view {
                        View::Requester(Requester::Outside { timeline: asks })
                            if asks == Some(timeline) && users == Users::Eager =>
                        {
                            None
                        }
                        _ => {
                            Some(Refusal::Ordered { owner: self.state.timelines.stream(timeline) })
                        }
                    },
                    RangeState::Pending { capture: of, owner: of_stream, .. } => match view {
                        View::Requester(Requester::Capture { capture, stream, .. })
                            if capture == of =>
                        {
                            let capture = &self.state.captures.get(capture).proof;
                            let owner = capture.stream_handle(of_stream);
                            if self.config.settings.reuse != Reuse::CrossStream
                                && of_stream != stream
                            {
                                Some(Refusal::OwnStreamOnly { owner })
                            } else {
                                capture.unproven(stream, heap.markers(id)).map(|marker| {
                                    let (node, kernel) = (capture.node_handle(marker), None);
                                    if capture.precedes(stream, marker) {
                                        Refusal::EarlyLaunch { node, owner, kernel }
                                    } else {
                                        Refusal::Marker { node, owner, kernel }
                                    }
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
            ranges.extend(heap.premapped_ranges().map(|((address, bytes), _)| FreeRange {
                address,
                bytes,
                block: None,
                refusal: Some(Refusal::Ahead),
            }));
        }
        ranges.sort_unstable_by_key(|range| range.address);
        ranges
    }
}

impl<D: Driver> Engine<D> {
    /// Every free range of a pool as `stream` sees it now, in address order: where it may not take
    /// one, why, and which marker it waits for.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::CaptureInvalidated`], or the driver's.
    pub fn explain(&self, pool: PoolId, stream: impl AsStream) -> Result<Vec<FreeRange>, Error> {
        let stream = stream.as_stream();
        const CALL: &str = "explain";
        self.change(|locked| {
            locked.state.pool(pool, CALL)?;
            // As a request would, so that one that follows finds what this says.
            locked.take_back(Some(pool), |_| true);
            locked.poll_waits(POLLED);
            let view = match locked.capture_of(stream, CALL)? {
                Some(capture) => match locked.state.captures.slot(capture) {
                    Some(slot) => {
                        let stream = locked.look(slot, stream);
                        let share = self.config.settings.reuse == Reuse::CrossStream;
                        View::Requester(Requester::Capture { capture: slot, stream, share })
                    }
                    None => View::NewCapture,
                },
                None => View::Requester(Requester::Outside {
                    timeline: locked.state.timelines.known(stream),
                }),
            };
            let mut ranges = locked.free_ranges(pool, view);
            for range in &mut ranges {
                if let Some(
                    Refusal::Marker { node, kernel, .. }
                    | Refusal::EarlyLaunch { node, kernel, .. },
                ) = &mut range.refusal
                {
                    *kernel = self.driver.kernel_name(*node);
                }
            }
            Ok(ranges)
        })
    }
}
