//! What the checker found wrong.

use std::fmt;

use thiserror::Error;

use regraph_driver::{CaptureId, Driver, DriverError, NodeHandle, StreamHandle};
use regraph_record::journal::BlockNumber;

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

/// What two blocks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Common {
    /// Addresses.
    Address,
    /// Physical memory that is mapped at addresses of both.
    Memory {
        /// Its number in the journal.
        memory: u64,
        /// Where in it what they share begins, in bytes.
        offset: u64,
    },
}

impl Common {
    /// What the message about an order says of the later block.
    fn of_order(self) -> String {
        match self {
            Self::Address => "shares its address".to_owned(),
            Self::Memory { .. } => format!("shares {self} with it"),
        }
    }

    /// What the host can do about an order that is not there.
    fn remedy(self) -> &'static str {
        match self {
            Self::Address => "capture with the setting reuse:own_stream",
            Self::Memory { .. } => "capture without binding memory at the end",
        }
    }

    /// Where the later block was handed out.
    fn place(self) -> String {
        match self {
            Self::Address => "at the address".to_owned(),
            Self::Memory { .. } => format!("on {self}"),
        }
    }

    /// What the message about a live block adds.
    fn of_live(self) -> String {
        match self {
            Self::Address => String::new(),
            Self::Memory { .. } => format!(" on {self}"),
        }
    }
}

impl fmt::Display for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("an address"),
            Self::Memory { memory, offset } => {
                write!(f, "physical memory {memory} (from byte {offset:#x} on)")
            }
        }
    }
}

/// A node with the kernel that it launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNode {
    /// The node.
    pub node: NodeHandle,
    /// The kernel that it launches, where the driver tells.
    pub kernel: Option<String>,
    /// A stream whose work it comes after, where that is asked for.
    pub after: Option<StreamHandle>,
}

impl NamedNode {
    /// A node whose kernel is not asked for yet.
    pub(super) fn new(node: NodeHandle) -> Self {
        Self { node, kernel: None, after: None }
    }
}

impl fmt::Display for NamedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {:#x}", self.node.bits())?;
        match &self.kernel {
            Some(kernel) => write!(f, " (kernel {kernel})"),
            None => Ok(()),
        }
    }
}

/// Why a capture cannot be vouched for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A block was handed out over one that was not freed.
    #[error(
        "{later} was handed out over {earlier}{}, which had not been freed", .common.of_live()
    )]
    LiveOverlap {
        /// The live block.
        earlier: Place,
        /// The one handed out over it.
        later: Place,
        /// What both have.
        common: Common,
    },
    /// Two blocks share an address or physical memory, and a user of the later one may start before a user of the
    /// earlier one has completed.
    #[error(
        "{earlier} may be used by {}, and {later}, which {}, by {}: no path of the graph makes the \
         second wait for the first to complete; if edges were removed or made programmatic after the \
         blocks were handed out, put them back, or {}",
        .users[0], .common.of_order(), .users[1], .common.remedy()
    )]
    NotOrdered {
        /// The block that held it first.
        earlier: Place,
        /// The block that held it next.
        later: Place,
        /// What both have.
        common: Common,
        /// A possible user of the earlier block, and one of the later block.
        users: Box<[NamedNode; 2]>,
    },
    /// A block with users outside the capture was followed where it had been inside the capture.
    #[error(
        "{later} was handed out {} of {earlier}, which something outside the capture uses: no node \
         of the graph can prove that use over; free such blocks after the capture",
        .common.place()
    )]
    OutsideUse {
        /// The block with users outside.
        earlier: Place,
        /// The block that followed it.
        later: Place,
        /// What both have.
        common: Common,
    },
    /// A block shares an address or physical memory with one from outside this capture that is not settled.
    #[error(
        "{block} shares {common} with {standing}, which is not known to be gone; let the engine \
         see that its users have completed before its memory is handed out again"
    )]
    Standing {
        /// The block from outside this capture.
        standing: Place,
        /// The block of this capture.
        block: Place,
        /// What both have.
        common: Common,
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
    /// A node of the finished graph was launched on no stream that the engine looked at in time, so
    /// it may use any block, and blocks share addresses or physical memory.
    #[error(
        "{} was launched {}on a stream that the engine did not look at, so it may use {earlier} or \
         {later}, which share {common}: record the stream with record_stream for the blocks that it \
         uses, or join it to a stream of the capture before the capture ends; if the stream's \
         dependencies were set by hand, call observe just before and just after",
        .node, after_text(.node.after)
    )]
    Unattributed {
        /// The node.
        node: Box<NamedNode>,
        /// The block that held it first.
        earlier: Place,
        /// The block that held it next.
        later: Place,
        /// What both have.
        common: Common,
    },
    /// A node of the finished graph was launched on no stream that the engine looked at in time, so it may be one of
    /// another graph of the capture's pool which became a part of this one, and a block may lie in that graph's memory.
    #[error(
        "{} was launched {}on a stream that the engine did not look at, or was in the graph before the capture, and \
         {block} may lie in memory of other graphs of its pool: join the stream to a stream of the capture before \
         the capture ends; a capture into a graph that has nodes begins behind all of them, or takes another pool",
        .node, after_text(.node.after)
    )]
    Unseen {
        /// The node.
        node: Box<NamedNode>,
        /// The first block with users.
        block: Place,
    },
    /// A block was freed without users that looks saw, and a node of the finished graph was launched on no stream that the
    /// engine looked at in time, so it may have used the block, whose memory other work has now.
    #[error(
        "{} was launched {}on a stream that the engine did not look at, or was added by hand, and may have used \
         {block}, which was freed before a look saw another user of it: join the stream to a stream of the capture \
         before the free, or free the block once the capture has ended",
        .node, after_text(.node.after)
    )]
    OnlyUser {
        /// The node.
        node: Box<NamedNode>,
        /// The block.
        block: Place,
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
    /// The record of the capture lacks live blocks of a pool that the capture uses.
    #[error(
        "entry {entry} of the journal: a pool of the capture holds {held} bytes in live blocks, and blocks of \
         {listed} bytes are known there"
    )]
    Unlisted {
        /// The entry's place in the journal.
        entry: usize,
        /// What the pool's memory holds in live blocks, in bytes.
        held: u64,
        /// What those occupy that are known, in bytes.
        listed: u64,
    },
    /// The same physical memory lies at two addresses of one block.
    #[error(
        "{block} has {common} at two of its addresses, so that a write to one changes the other; \
         map each piece of memory once within a block"
    )]
    Folded {
        /// The block.
        block: Place,
        /// The memory.
        common: Common,
    },
    /// A block that is in use beyond the capture lies on physical memory that other graphs overwrite.
    #[error(
        "{block} is in use beyond the capture and lies on physical memory {memory}, which other \
         graphs of its pool overwrite whenever they run; free it before the capture ends, or give \
         it memory of its own"
    )]
    Overwritten {
        /// The block, which was not freed, or is used outside the capture.
        block: Place,
        /// The memory's number in the journal.
        memory: u64,
    },
    /// The journal says of an address that it lies in two places of physical memory.
    #[error(
        "the journal binds address {address:#x} to two places, in physical memory {} and in {}",
        .memories[0], .memories[1]
    )]
    BoundTwice {
        /// The address.
        address: u64,
        /// The numbers of the memories, which may be the same.
        memories: [u64; 2],
    },
    /// A binding goes on behind the end of its memory or of all addresses.
    #[error("the journal binds addresses from {address:#x} on behind the end of physical memory {memory}")]
    BoundBeyond {
        /// Where the binding begins.
        address: u64,
        /// The memory's number in the journal.
        memory: u64,
    },
    /// Compacting a pool would take from a graph or a block what it needs.
    #[error("address {address:#x} of the graph of capture {}: {why}", .graph.0)]
    Misplaced {
        /// The graph, by its capture.
        graph: CaptureId,
        /// Where what it needs begins.
        address: u64,
        /// What would become of it.
        why: Misplaced,
    },
    /// A question to the driver failed.
    #[error("the finished graph cannot be read: {0}")]
    Driver(#[from] DriverError),
}

impl Violation {
    /// The blocks that it speaks of, the earlier one first.
    pub fn places(&self) -> Vec<Place> {
        match *self {
            Self::LiveOverlap { earlier, later, .. }
            | Self::NotOrdered { earlier, later, .. }
            | Self::OutsideUse { earlier, later, .. }
            | Self::Unattributed { earlier, later, .. } => vec![earlier, later],
            Self::Standing { standing, block, .. } => vec![standing, block],
            Self::Folded { block, .. }
            | Self::Overwritten { block, .. }
            | Self::Unseen { block, .. }
            | Self::OnlyUser { block, .. } => vec![block],
            _ => Vec::new(),
        }
    }

    /// The nodes that it speaks of: of two blocks without an order a user of each, the earlier one's first.
    pub fn nodes(&self) -> Vec<NodeHandle> {
        match self {
            Self::NotOrdered { users, .. } => users.iter().map(|user| user.node).collect(),
            Self::Unattributed { node, .. }
            | Self::Unseen { node, .. }
            | Self::OnlyUser { node, .. } => vec![node.node],
            Self::UnknownNode { node } | Self::Cyclic { node } => vec![*node],
            _ => Vec::new(),
        }
    }

    /// Adds the names of the kernels that it speaks of, where the driver tells.
    pub fn name_kernels<D: Driver + ?Sized>(mut self, driver: &D) -> Self {
        match &mut self {
            Self::NotOrdered { users, .. } => {
                for NamedNode { node, kernel, .. } in users.iter_mut() {
                    *kernel = driver.kernel_name(*node);
                }
            }
            Self::Unattributed { node, .. }
            | Self::Unseen { node, .. }
            | Self::OnlyUser { node, .. } => {
                node.kernel = driver.kernel_name(node.node);
            }
            _ => {}
        }
        self
    }
}

fn after_text(stream: Option<StreamHandle>) -> String {
    stream.map_or(String::new(), |stream| format!("after work of stream {:#x}, ", stream.bits()))
}

/// What compacting a pool would do to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misplaced {
    /// It would lose its memory.
    #[error("it would have no memory, and the graph can still be launched")]
    Unmapped,
    /// Memory would come to where there was none, or to where there is some.
    #[error("memory would come to where none was, or where other memory is")]
    Strange,
    /// It would lie on other memory.
    #[error("it would lie on other memory, and what it holds is wanted, or its memory is not to be moved")]
    Moved,
    /// Memory that stays elsewhere would lie behind it too.
    #[error("it would share memory that stays as it is elsewhere")]
    Joined,
    /// Another address of the graph would share its memory, and does not now.
    #[error("another address of the graph would share its memory, and does not now")]
    Folded,
    /// An output there was freed, and a graph that may read it would write there.
    #[error("an output there would lie on memory of a later graph that may read it")]
    Read,
    /// An output there was freed, and a graph that was captured earlier would overwrite it.
    #[error("an output there would lie on memory that an earlier graph overwrites")]
    Overwritten,
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
    /// A block that stood before the first look was meant.
    #[error("the block did not stand before the first look at a stream")]
    Late,
    /// The address range wraps around.
    #[error("the block's address range wraps around")]
    Wraps,
}
