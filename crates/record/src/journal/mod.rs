//! The record of one capture: what the engine saw and what it handed out, in the order of calls.
//!
//! The checker judges it and the trace writer prints it. It holds facts only (what the driver
//! answered, what the host asked for, which address it got), never a conclusion of the engine's.

mod compaction;
mod nodes;
mod words;

use std::fmt;

pub use compaction::{Compaction, Extent, FreedOutput, GraphMemory};
pub use nodes::Nodes;
use regraph_driver::{CaptureId, NodeHandle, StreamHandle};
use words::Words;

/// A block's number, unique while its engine lives. A block that came later has a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u64);

/// One fact. Streams are those of the capture unless an entry says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// The driver answered that `stream` is in this capture with these terminals. Written at each
    /// look at a stream whose answer differs from the last one; a stream's first look is always
    /// written. Before an [`Entry::Allocate`] the block's stream has been looked at, before an
    /// [`Entry::LastUse`] that stream, and before an [`Entry::Free`] the block's own stream and
    /// every stream that used it, so that the latest entry for each is its state at the call.
    Terminals {
        /// The stream.
        stream: StreamHandle,
        /// What its next node would depend on.
        terminals: Nodes<'a>,
    },
    /// The dependencies of a node, as the driver gave them when it was first seen. They may have been edited since.
    Node {
        /// The node.
        node: NodeHandle,
        /// Its direct predecessors then.
        dependencies: Nodes<'a>,
    },
    /// A block was handed out to `stream`.
    Allocate {
        /// The block.
        block: BlockNumber,
        /// Its own stream.
        stream: StreamHandle,
        /// Where it lies.
        address: u64,
        /// How much of the address range it occupies, in bytes.
        bytes: u64,
    },
    /// A stream of this capture uses the block at some time before its free.
    Use {
        /// The block.
        block: BlockNumber,
        /// The stream.
        stream: StreamHandle,
    },
    /// What the stream holds so far includes its last use of the block. A later [`Entry::Use`] of
    /// the same stream takes this back.
    LastUse {
        /// The block.
        block: BlockNumber,
        /// The stream.
        stream: StreamHandle,
    },
    /// Something outside this capture uses the block: its users are not all nodes of this graph.
    Outside {
        /// The block.
        block: BlockNumber,
    },
    /// The host freed a block that this capture allocated, or took for its own.
    Free {
        /// The block.
        block: BlockNumber,
    },
    /// The capture uses a pool from now on, or ends in it now. Of the blocks with lower numbers than `next` that
    /// stand there, those that the capture meets are told of later, by [`Entry::Standing`]: before a block of the
    /// capture is handed out over one, and when one is live no more but may be in use.
    Pool {
        /// No block has this number or a higher one yet.
        next: BlockNumber,
        /// What the pool's memory holds in live blocks, in bytes.
        held: u64,
        /// What the live blocks occupy that such an entry can tell of, in bytes.
        listed: u64,
    },
    /// A block that this capture did not allocate lies here: from before the capture, from outside it, or from another
    /// capture. One with a lower number than an earlier [`Entry::Pool`] names has lain here since then.
    Standing {
        /// The block.
        block: BlockNumber,
        /// Where it lies.
        address: u64,
        /// How much of the address range it occupies, in bytes.
        bytes: u64,
    },
    /// A block that stood before the first look at any stream is one of this capture's from now on, as if it had been
    /// handed out to `stream` then: everything outside the capture that used it has completed.
    Input {
        /// The block.
        block: BlockNumber,
        /// Its own stream.
        stream: StreamHandle,
    },
    /// A standing block is gone for good: it was freed, and everything that could touch it is known
    /// to have completed or to run never again beside this capture.
    Settled {
        /// The block.
        block: BlockNumber,
    },
    /// The addresses `address..address + bytes` lie on this physical memory from this offset on.
    ///
    /// It may be addresses of this capture's blocks or of standing ones. Wherever it comes in the
    /// journal, it holds for all of the capture: memory is bound at a capture's end, and nothing of
    /// it runs before. Addresses that no entry binds have memory of their own, which no others have.
    Bound {
        /// Where it begins.
        address: u64,
        /// How much of the address range is bound, in bytes.
        bytes: u64,
        /// The physical memory, by a number that no other one has in this journal.
        memory: u64,
        /// Where in that memory the first address lies, in bytes.
        offset: u64,
    },
    /// Another graph of the pool overwrites this physical memory whenever it runs: nothing that is in
    /// use beyond the capture may lie on it, unless the same graph has an [`Entry::OutputFreed`]
    /// there. Wherever it comes in the journal, it holds for all of the capture.
    Shared {
        /// The physical memory.
        memory: u64,
        /// Its size, in bytes.
        bytes: u64,
        /// The graph, by its capture.
        graph: CaptureId,
    },
    /// A block of another graph lay on this physical memory that the graph's capture did not free, and the host has
    /// freed it since: from then on the host keeps apart the graph's launches and what it needs of the memory. Wherever
    /// it comes in the journal, it holds for all of the capture.
    OutputFreed {
        /// The physical memory.
        memory: u64,
        /// The graph, by its capture.
        graph: CaptureId,
    },
    /// A pool that the capture uses from now on has graphs: the capture's blocks may lie where blocks of theirs do.
    Graphs,
    /// The capture ends, and is under way in the driver still: each known stream that is in it has just been looked at,
    /// so what no look saw is no launch of any of them.
    Looked,
}

/// The record of one capture.
#[derive(Clone, Default)]
pub struct Journal {
    words: Words,
    count: usize,
}

impl Journal {
    /// An empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry<'_>) {
        self.words.push(entry);
        self.count += 1;
    }

    /// The facts in order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        self.words.iter()
    }

    /// The nodes that were asked for, in order, with what each depends on: [`Entry::Node`] alone.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeHandle, Nodes<'_>)> + '_ {
        self.iter().filter_map(|entry| match entry {
            Entry::Node { node, dependencies } => Some((node, dependencies)),
            _ => None,
        })
    }

    /// How many facts there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes the facts take.
    pub fn bytes(&self) -> usize {
        self.words.bytes()
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("entries", &self.count).finish_non_exhaustive()
    }
}
