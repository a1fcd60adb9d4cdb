//! The record of one capture: what the engine saw and what it handed out, in the order of calls.
//!
//! The checker judges it and the trace writer prints it. It holds facts only (what the driver
//! answered, what the host asked for, which address it got), never a conclusion of the engine's.

use crate::driver::{Dependency, NodeHandle, StreamHandle};

/// A block's number, unique while its engine lives.
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
        terminals: &'a [Dependency],
    },
    /// The dependencies of a node, as the driver gave them when it was first seen. They may have
    /// been edited since.
    Node {
        /// The node.
        node: NodeHandle,
        /// Its direct predecessors then.
        dependencies: &'a [Dependency],
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
    /// The host freed a block that this capture allocated.
    Free {
        /// The block.
        block: BlockNumber,
    },
    /// A block that this capture did not allocate lies here: from before the capture, from outside
    /// it, or from another capture.
    Standing {
        /// The block.
        block: BlockNumber,
        /// Where it lies.
        address: u64,
        /// How much of the address range it occupies, in bytes.
        bytes: u64,
    },
    /// A standing block is gone for good: it was freed, and everything that could touch it is known
    /// to have completed or to run never again beside this capture.
    Settled {
        /// The block.
        block: BlockNumber,
    },
}

#[derive(Clone, Copy, Debug)]
enum Packed {
    Terminals { stream: StreamHandle, end: u32 },
    Node { node: NodeHandle, end: u32 },
    Allocate { block: BlockNumber, stream: StreamHandle, address: u64, bytes: u64 },
    Use { block: BlockNumber, stream: StreamHandle },
    LastUse { block: BlockNumber, stream: StreamHandle },
    Outside { block: BlockNumber },
    Free { block: BlockNumber },
    Standing { block: BlockNumber, address: u64, bytes: u64 },
    Settled { block: BlockNumber },
}

/// The record of one capture.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: Vec<Packed>,
    /// The slices of [`Entry::Terminals`] and [`Entry::Node`], one behind the other; each such
    /// entry holds its end, and begins where the one before it ended.
    dependencies: Vec<Dependency>,
}

impl Journal {
    /// An empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact.
    pub fn push(&mut self, entry: Entry<'_>) {
        let packed = match entry {
            Entry::Terminals { stream, terminals } => {
                Packed::Terminals { stream, end: self.store(terminals) }
            }
            Entry::Node { node, dependencies } => {
                Packed::Node { node, end: self.store(dependencies) }
            }
            Entry::Allocate { block, stream, address, bytes } => {
                Packed::Allocate { block, stream, address, bytes }
            }
            Entry::Use { block, stream } => Packed::Use { block, stream },
            Entry::LastUse { block, stream } => Packed::LastUse { block, stream },
            Entry::Outside { block } => Packed::Outside { block },
            Entry::Free { block } => Packed::Free { block },
            Entry::Standing { block, address, bytes } => Packed::Standing { block, address, bytes },
            Entry::Settled { block } => Packed::Settled { block },
        };
        self.entries.push(packed);
    }

    /// The facts in order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> + '_ {
        let mut start = 0;
        self.entries.iter().map(move |packed| {
            let mut slice = |end: u32| {
                let slice = &self.dependencies[start..end as usize];
                start = end as usize;
                slice
            };
            match *packed {
                Packed::Terminals { stream, end } => {
                    Entry::Terminals { stream, terminals: slice(end) }
                }
                Packed::Node { node, end } => Entry::Node { node, dependencies: slice(end) },
                Packed::Allocate { block, stream, address, bytes } => {
                    Entry::Allocate { block, stream, address, bytes }
                }
                Packed::Use { block, stream } => Entry::Use { block, stream },
                Packed::LastUse { block, stream } => Entry::LastUse { block, stream },
                Packed::Outside { block } => Entry::Outside { block },
                Packed::Free { block } => Entry::Free { block },
                Packed::Standing { block, address, bytes } => {
                    Entry::Standing { block, address, bytes }
                }
                Packed::Settled { block } => Entry::Settled { block },
            }
        })
    }

    /// How many facts there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn store(&mut self, slice: &[Dependency]) -> u32 {
        self.dependencies.extend_from_slice(slice);
        u32::try_from(self.dependencies.len()).expect("a capture has fewer than 2^32 dependencies")
    }
}
