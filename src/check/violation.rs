//! What the checker found wrong.

use std::fmt;

use thiserror::Error;

use crate::driver::{DriverError, NodeHandle, StreamHandle};
use crate::journal::BlockNumber;

/// A block and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The block.
    pub block: BlockNumber,
    /// Its own stream; a standing block has none.
    pub stream: Option<StreamHandle>,
    /// Where it begins.
    pub address: u64,
    /// How much it occupies, in bytes.
    pub bytes: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} at {:#x}+{}", self.block.0, self.address, self.bytes)?;
        match self.stream {
            Some(stream) => write!(f, " (stream {:#x})", stream.bits()),
            None => write!(f, " (not of this capture)"),
        }
    }
}

/// Why a capture cannot be vouched for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A block was handed out over one that was not freed.
    #[error("{later} was handed out over {earlier}, which had not been freed")]
    LiveOverlap {
        /// The live block.
        earlier: Place,
        /// The one handed out over it.
        later: Place,
    },
    /// Two blocks share an address, and a user of the later one may start before a user of the
    /// earlier one has completed.
    #[error(
        "{earlier} may be used by node {:#x}, and {later}, which shares its address, by node \
         {:#x}: no path of the graph makes the second wait for the first to complete; if edges \
         were removed or made programmatic after the blocks were handed out, put them back, or \
         switch cross-stream reuse off for this capture",
        .earlier_node.bits(), .later_node.bits()
    )]
    NotOrdered {
        /// The block that held the address first.
        earlier: Place,
        /// The block that held it next.
        later: Place,
        /// A possible user of the earlier block.
        earlier_node: NodeHandle,
        /// A possible user of the later block.
        later_node: NodeHandle,
    },
    /// A block with users outside the capture was followed at its address inside the capture.
    #[error(
        "{later} was handed out at the address of {earlier}, which something outside the capture \
         uses: no node of the graph can prove that use over; free such blocks after the capture"
    )]
    OutsideUse {
        /// The block with users outside.
        earlier: Place,
        /// The block that followed it.
        later: Place,
    },
    /// A block shares an address with one from outside this capture that is not settled.
    #[error(
        "{block} shares an address with {standing}, which is not known to be gone; let the engine \
         see that its users have completed before its memory is handed out again"
    )]
    Standing {
        /// The block from outside this capture.
        standing: Place,
        /// The block of this capture.
        block: Place,
    },
    /// The journal or an edge names a node that the finished graph does not hold.
    #[error(
        "node {:#x} is not in the finished graph; check the graph that was captured, before nodes \
         are removed from it",
        .node.bits()
    )]
    UnknownNode {
        /// The node.
        node: NodeHandle,
    },
    /// A node of the finished graph belongs to no stream that was looked at, so it may use any
    /// block, and blocks share addresses.
    #[error(
        "node {:#x} follows from no state that any stream was seen in, so it may use {earlier} or \
         {later}, which share an address; have the engine look at a stream just before and just \
         after its dependencies are set, and add nodes through captured streams",
        .node.bits()
    )]
    Unattributed {
        /// The node that nobody accounts for.
        node: NodeHandle,
        /// The block that held the address first.
        earlier: Place,
        /// The block that held it next.
        later: Place,
    },
    /// The finished graph has a cycle.
    #[error("the finished graph has a cycle through or before node {:#x}", .node.bits())]
    Cyclic {
        /// A node that no order can place.
        node: NodeHandle,
    },
    /// The journal holds no look at a stream before an entry that rests on one.
    #[error(
        "entry {entry} of the journal, of block {}, rests on stream {:#x}, which was never looked \
         at before it",
        .block.0, .stream.bits()
    )]
    NeverLooked {
        /// The entry's place in the journal.
        entry: usize,
        /// The block.
        block: BlockNumber,
        /// The stream.
        stream: StreamHandle,
    },
    /// The journal contradicts itself.
    #[error("entry {entry} of the journal, of block {}: {flaw}", .block.0)]
    Malformed {
        /// The entry's place in the journal.
        entry: usize,
        /// The block.
        block: BlockNumber,
        /// What is wrong with it.
        flaw: Flaw,
    },
    /// A question to the driver failed.
    #[error("the finished graph cannot be read: {0}")]
    Driver(#[from] DriverError),
}

/// How a journal contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Flaw {
    /// A number was given out again.
    #[error("the block's number was taken before")]
    NumberTaken,
    /// No earlier entry introduced the block.
    #[error("no earlier entry introduces the block")]
    Unknown,
    /// A block of this capture was meant.
    #[error("the block was not allocated by this capture")]
    NotOurs,
    /// A standing block was meant.
    #[error("the block is not a standing one")]
    NotStanding,
    /// The block was freed before.
    #[error("the block was freed before")]
    Freed,
    /// The block was settled before.
    #[error("the block was settled before")]
    Settled,
    /// The address range wraps around.
    #[error("the block's address range wraps around")]
    Wraps,
}
