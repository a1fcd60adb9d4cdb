//! What engine calls return, and why a stream may or may not take what is free.

use std::fmt;
use std::sync::{Arc, OnceLock};

use thiserror::Error as ThisError;

use super::layout::Followed;
use super::names::{BlockId, GraphId, PoolId};
use super::planned::PlanReport;
use crate::driver::{CaptureId, NodeHandle, StreamHandle};
use crate::journal::{BlockNumber, Journal};
use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;
use crate::policy::Programmatic;
use crate::shown::shown;
use crate::size::Size;
use crate::uses::{EarlyRead, LateUse};

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name, for later calls.
    pub id: BlockId,
    /// Its device address, a multiple of 512.
    pub address: u64,
    /// The size that was asked for, in bytes.
    pub bytes: u64,
}

/// A block that has not been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockReport {
    /// The pool.
    pub pool: PoolId,
    /// Where it lies, a device address.
    pub address: u64,
    /// The size that was asked for, in bytes.
    pub requested: u64,
    /// The size that it occupies, in bytes.
    pub bytes: u64,
    /// The stream that it was handed out to.
    pub stream: StreamHandle,
}

/// What the engine reports of a capture at its end.
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
    /// The memory that the capture's pools held at its end, in bytes, memory of earlier graphs included.
    pub reserved: u64,
    /// Whether the checker judged the capture.
    pub verified: bool,
    /// How long the checker took, in nanoseconds; 0 where it did not judge.
    pub check_ns: u64,
    /// How often the driver was asked for a node's dependencies while the capture was recorded.
    pub dependency_queries: u64,
    /// Nodes that use a block later than was recorded, as far as their parameters show it; at most
    /// [`reports::MOST`](crate::reports::MOST). Empty unless
    /// [`Config::find_late_uses`](super::Config::find_late_uses) is set and a journal was kept.
    pub late_uses: Vec<LateUse>,
    /// Nodes that read, or may read, a block which no node of the graph wrote before, as far as their parameters show
    /// it; at most [`reports::MOST`](crate::reports::MOST). Empty unless
    /// [`Settings::early_reads`](crate::settings::Settings::early_reads) is set and a journal was kept.
    pub early_reads: Vec<EarlyRead>,
    /// How far the capture's blocks lie where its layout says
    /// ([`Plans::follow_layout`](crate::engine::Plans::follow_layout)); `None` without one.
    pub layout: Option<Followed>,
    /// The plan by which memory came at the capture's end; `None` where there was none.
    pub plan: Option<PlanReport>,
    pub(super) record: Option<Arc<Record>>,
}

/// What a report's figures are found from when they are asked for.
pub(super) struct Record {
    journal: Journal,
    programmatic: Programmatic,
    minimum: OnceLock<Minimum>,
}

impl CaptureReport {
    /// The least memory that the capture's blocks need in any placement that adds no edges to the graph, and the proof
    /// that less is not enough. `None` where the capture kept no journal
    /// ([`Settings::check`](crate::settings::Settings::check), [`Config::journal`](super::Config::journal)), or the
    /// journal was [dropped](Self::forget_journal).
    ///
    /// Computed at the first call, in some milliseconds, or in about a second for 100,000 blocks. Clones of a report
    /// share the result.
    pub fn minimum(&self) -> Option<&Minimum> {
        let record = self.record.as_deref()?;
        Some(record.minimum.get_or_init(|| Minimum::of(&record.lifetimes())))
    }

    /// When the capture's blocks were in use, read from the journal at each call; `None` without a journal.
    pub fn lifetimes(&self) -> Option<Lifetimes> {
        self.record.as_deref().map(Record::lifetimes)
    }

    /// Drops the capture's journal, which takes some 50 to 100 bytes of host memory for each node and block as long as
    /// the report or a clone of it lives.
    pub fn forget_journal(&mut self) {
        self.record = None;
    }
}

/// In a line: what ended, whether it was judged, and what it holds.
impl fmt::Display for CaptureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, blocks, graph, .. } = self;
        let (capture, reserved) = (self.capture.0, Size(self.reserved));
        match self.verified {
            true => write!(f, "capture {capture} is verified, in {} us", self.check_ns / 1000)?,
            false => write!(f, "capture {capture} has ended, and was not judged")?,
        }
        write!(
            f,
            ": {nodes} nodes and {blocks} blocks, in pools that hold {reserved}; it is {graph}"
        )
    }
}

// A journal has an entry for each node and block: too much to be read.
shown!([] Record: |it| programmatic = it.programmatic);

impl Record {
    pub(super) fn new(journal: Journal, programmatic: Programmatic) -> Self {
        Self { journal, programmatic, minimum: OnceLock::new() }
    }

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
    /// Given back to the driver while the pool is suspended.
    pub suspended: u64,
    /// In blocks that have not been freed, as placed (rounded up to 512).
    pub allocated: u64,
    /// The highest `allocated` has been.
    pub peak_allocated: u64,
    /// The sizes that were asked for, of blocks that have not been freed.
    pub requested: u64,
    /// In blocks not freed, and freed ones that no stream may take yet.
    pub active: u64,
    /// Blocks that have not been freed.
    pub blocks: usize,
    /// In blocks that have not been freed, in memory of graphs that is lent between their launches
    /// ([`HostCalls::lend`](crate::engine::HostCalls::lend)); a part of `allocated`.
    pub lent: u64,
}

impl fmt::Display for PoolStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [reserved, allocated, peak] =
            [self.reserved, self.allocated, self.peak_allocated].map(Size);
        let blocks = self.blocks;
        write!(f, "{reserved} reserved; {blocks} blocks of {allocated}, {peak} at most")?;
        for (bytes, what) in [
            (self.active - self.allocated, "freed that waits"),
            (self.suspended, "suspended"),
            (self.lent, "lent by graphs"),
        ] {
            if bytes > 0 {
                write!(f, "; {} {what}", Size(bytes))?;
            }
        }
        Ok(())
    }
}

/// How much memory was given back to the driver. All sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emptied {
    /// Given back to the driver.
    pub released: u64,
    /// Free memory that work may still use: it can be given back when that work has completed.
    pub waiting: u64,
    /// Still held.
    pub reserved: u64,
}

/// A free range as one stream sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeRange {
    /// Its device address.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The last block that lay there, if any.
    pub block: Option<BlockNumber>,
    /// Why the stream may not take it; `None` where it may.
    pub refusal: Option<Refusal>,
}

impl fmt::Display for FreeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}", Size(self.bytes), self.address)?;
        if let Some(block) = self.block {
            write!(f, ", where block {} lay", block.0)?;
        }
        match &self.refusal {
            Some(refusal) => write!(f, ": {refusal}"),
            None => write!(f, ": the stream may take it"),
        }
    }
}

/// Why a stream may not take a free range.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Refusal {
    /// This node must be completed first, and no path of edges that prove it leads from it to the stream's terminals.
    #[error(
        "{} is behind the block's last use on {owner} and not proven to have completed: make the stream that asks wait \
         for an event that was recorded on {owner} after it",
        named(node, kernel)
    )]
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
    #[error(
        "{} is behind the block's last use on {owner}, and the stream's next launch may start before it has completed: \
         it is free after one more launch, or if the setting `programmatic` is trust",
        named(node, kernel)
    )]
    EarlyLaunch {
        /// The free marker.
        node: NodeHandle,
        /// The stream that owned the block.
        owner: StreamHandle,
        /// The node's kernel, where the driver tells its name.
        kernel: Option<String>,
    },
    /// The setting `reuse` gives the range to its own stream only.
    #[error("the setting `reuse` gives it to its own {owner} alone")]
    OwnStreamOnly {
        /// The stream that owned the block.
        owner: StreamHandle,
    },
    /// The range is held back until a capture ends or outside work has completed.
    #[error("{0}")]
    Waiting(WaitReason),
    /// This stream gave the range back outside captures: it may take the range at once, others when its work is done.
    #[error("{owner} freed it, and may still run work that uses it")]
    Ordered {
        /// The stream.
        owner: StreamHandle,
    },
    /// The range belongs to another capture that is under way.
    #[error("it belongs to another capture that is under way")]
    OtherCapture,
    /// A graph of the pool uses the range, and the stream is not capturing.
    #[error("a graph of the pool uses it: release the graph, or use another pool")]
    UsedByGraph,
    /// Work outside captures gets the range whole or not at all: only blocks of nearly its size do
    /// ([`Settings::max_split_bytes`](crate::settings::Settings::max_split_bytes)).
    #[error("it goes to a block of nearly its size alone: the setting `max_split_size_mb` has ranges as large never split")]
    NotSplit,
    /// The range's pool is suspended: no memory lies behind its addresses.
    #[error("its pool is suspended: resume it")]
    Suspended,
    /// The range was mapped ahead for captures under way: they grow into it, and the rest goes back to the driver.
    #[error("it is premapped for growth in captures")]
    Ahead,
}

/// Why no stream may have a freed block yet.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum WaitReason {
    /// This stream uses the block, and is not in the block's capture.
    #[error(
        "{0} uses it and is not in its capture: join the stream to the capture, by an event of it, or record the use on \
         a stream that is in it"
    )]
    OutsideStream(StreamHandle),
    /// This stream was set back, or went on behind an edge that proves nothing, while it used the block: nodes that
    /// use the block may come after its free markers.
    #[error(
        "{0} was set back, or went on behind an edge that proves nothing, while it used the block: join the stream \
         before the free"
    )]
    Untrusted(StreamHandle),
    /// A younger capture of the same pool is under way; it may be the body of a conditional node.
    #[error("capture {} of the same pool began since and may be a part of it", .0.0)]
    NestedCapture(CaptureId),
    /// The setting `reuse:deferred` holds blocks that several streams used until the capture's end.
    #[error("the setting `reuse` holds blocks of several streams until the capture ends")]
    Policy,
    /// This capture was under way beside the block's, and has not ended.
    #[error("capture {} has not ended", .0.0)]
    Capture(CaptureId),
    /// Work of this stream, outside captures, that has not completed.
    #[error("work of {0} that has not completed may use it")]
    OutsideWork(StreamHandle),
}

/// A node in messages, with its kernel's name where that is known.
fn named(node: &NodeHandle, kernel: &Option<String>) -> String {
    match kernel {
        Some(kernel) => format!("kernel {kernel}, {node:?}"),
        None => format!("{node:?}"),
    }
}
