//! What a host does outside captures.

use regraph_trace::{BlockIndex, StreamIndex};

/// A step of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Allocates a block.
    Allocate {
        /// The block's number; they count from 0 in the order of allocation.
        id: BlockIndex,
        /// Its size.
        bytes: u64,
        /// Its own stream.
        stream: StreamIndex,
    },
    /// Says that a stream other than its own uses a block, behind its allocation.
    Use {
        /// The block.
        id: BlockIndex,
        /// The stream.
        stream: StreamIndex,
    },
    /// Frees a block.
    Free {
        /// The block.
        id: BlockIndex,
    },
    /// Submits a kernel.
    Work {
        /// Where.
        stream: StreamIndex,
    },
    /// Lets a stream wait for what another holds.
    Wait {
        /// The stream that waits.
        stream: StreamIndex,
        /// The stream that it waits for.
        on: StreamIndex,
    },
    /// The host has waited for the device: all that was submitted has completed.
    Complete,
}
