//! What engine calls return.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::follow::Followed;
use super::names::{BlockId, GraphId};
use crate::driver::{CaptureId, NodeHandle, StreamHandle};
use crate::journal::{BlockNumber, Journal};
use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;
use crate::policy::Programmatic;
use crate::uses::LateUse;

use super::plan_report::PlanReport;

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name, for later calls.
    pub id: BlockId,
    /// Where it lies: a device address, a multiple of 512.
    pub address: u64,
    /// What was asked for, in bytes.
    pub bytes: u64,
}

/// What a capture came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureReport {
    /// The capture.
    pub capture: CaptureId,
    /// The graph's claim on its pools: release it when the graph is destroyed.
    pub graph: GraphId,
    /// Nodes that the engine saw.
    pub nodes: usize,
    /// Blocks allocated in the capture.
    pub blocks: usize,
    /// Whether the checker judged the capture.
    pub verified: bool,
    /// How often the driver was asked for a node's dependencies while the capture was recorded.
    pub dependency_queries: u64,
    /// Nodes that use a block later than was recorded, as far as their parameters show it; at most
    /// [`uses::MOST`](crate::uses::MOST). Empty unless
    /// [`Config::find_late_uses`](super::Config::find_late_uses) is set and a journal was kept.
    pub late_uses: Vec<LateUse>,
    /// How far its blocks lie by the layout that it was given
    /// ([`Engine::follow_layout`](super::Engine::follow_layout)); `None` without one.
    pub layout: Option<Followed>,
    /// What the memory that came at the capture's end amounts to; `None` where none did.
    pub plan: Option<PlanReport>,
    pub(super) record: Option<Arc<Record>>,
}

/// What a report's figures are found from when they are asked for.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) journal: Journal,
    pub(super) programmatic: Programmatic,
    pub(super) minimum: OnceLock<Minimum>,
}

impl CaptureReport {
    /// The least memory that the capture's blocks need, in any placement that adds no edges to the
    /// graph, and why less does not do. `None` where the capture kept no journal
    /// ([`Settings::check`](crate::settings::Settings::check), [`Config::journal`](super::Config::journal)),
    /// or it was [forgotten](Self::forget_journal).
    ///
    /// Found when it is first asked for, in some milliseconds, or in about a second for 100,000 blocks;
    /// clones of a report share it.
    pub fn minimum(&self) -> Option<&Minimum> {
        let record = self.record.as_deref()?;
        Some(record.minimum.get_or_init(|| Minimum::of(&record.lifetimes())))
    }

    /// When the capture's blocks were in use; `None` as for [`CaptureReport::minimum`]. Read from the
    /// journal at each call.
    pub fn lifetimes(&self) -> Option<Lifetimes> {
        self.record.as_deref().map(Record::lifetimes)
    }

    /// Gives up the capture's journal, which takes some 50 to 100 bytes of host memory for each node
    /// and block for as long as the report, or a clone of it, is there.
    pub fn forget_journal(&mut self) {
        self.record = None;
    }
}

impl Record {
    fn lifetimes(&self) -> Lifetimes {
        Lifetimes::read(&self.journal, self.programmatic)
    }
}

/// Figures of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Held from the driver.
    pub reserved: u64,
    /// Given back by a suspension, until the pool is resumed.
    pub suspended: u64,
    /// In blocks that have not been freed, as placed (rounded up to 512).
    pub allocated: u64,
    /// The highest `allocated` has been.
    pub peak_allocated: u64,
    /// Asked for in blocks that have not been freed.
    pub requested: u64,
    /// In blocks not freed, and freed ones that nobody may take yet.
    pub active: u64,
    /// Blocks that have not been freed.
    pub blocks: usize,
}

/// What came of giving memory back. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emptied {
    /// Given back to the driver.
    pub released: u64,
    /// Free, but for work that may still use it: it can be given back when that has completed.
    pub waiting: u64,
    /// Still held.
    pub reserved: u64,
}

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
            Self::Marker { node, owner } => {
                write!(f, "marker {node:?} (block of {owner:?}) is not proven to precede")
            }
            Self::OwnStreamOnly { owner } => write!(f, "only its own {owner:?} may take it"),
            Self::Waiting(WaitReason::OutsideStream(stream)) => {
                write!(f, "{stream:?} uses it and is not in its capture")
            }
            Self::Waiting(WaitReason::Untrusted(stream)) => {
                write!(f, "{stream:?} was set back or overtaken while it used it")
            }
            Self::Waiting(WaitReason::NestedCapture(capture)) => {
                write!(f, "capture {} began in the same pool meanwhile", capture.0)
            }
            Self::Waiting(WaitReason::Policy) => write!(f, "the policy holds it until the end"),
            Self::Waiting(WaitReason::Capture(capture)) => {
                write!(f, "capture {} is still under way", capture.0)
            }
            Self::Waiting(WaitReason::OutsideWork(stream)) => {
                write!(f, "work of {stream:?} that has not completed may use it")
            }
            Self::Ordered { owner } => {
                write!(f, "what {owner:?} did with it may not have completed")
            }
            Self::OtherCapture => write!(f, "it belongs to another capture"),
            Self::UsedByGraph => write!(f, "a graph of the pool uses it"),
            Self::Suspended => write!(f, "its pool is suspended"),
            Self::Ahead => write!(f, "it is mapped ahead for growth in captures"),
        }
    }
}
