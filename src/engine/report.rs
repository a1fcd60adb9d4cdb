//! What engine calls return.

use crate::driver::CaptureId;
use crate::journal::BlockNumber;

/// A pool of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub(crate) u32);

/// A graph whose memory lies in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphId(pub(crate) u64);

/// A live block of one engine. Names are never given twice, so a stale one is an error and
/// nothing worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    pub(crate) slot: u32,
    pub(crate) number: u64,
}

impl BlockId {
    /// The block's number in journals and messages, counted from 0 in order of allocation.
    pub fn number(self) -> BlockNumber {
        BlockNumber(self.number)
    }
}

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
    /// The graph's claim on the pool: release it when the graph is destroyed.
    pub graph: GraphId,
    /// Nodes of the finished graph that the engine knew.
    pub nodes: usize,
    /// Blocks allocated in the capture.
    pub blocks: usize,
    /// Whether the checker judged the capture.
    pub verified: bool,
    /// Queries for a node's dependencies while the capture was recorded.
    pub dependency_queries: u64,
}

/// Figures of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Mapped or allocated from the driver.
    pub reserved: u64,
    /// In blocks that have not been freed, rounded as placed.
    pub allocated: u64,
    /// The highest `allocated` has been.
    pub peak_allocated: u64,
    /// Asked for in blocks that have not been freed.
    pub requested: u64,
    /// In blocks not freed, or freed and not yet free for any reuse.
    pub active: u64,
}
