//! What was found.

use std::fmt;

use crate::Place;
use regraph_driver::{NodeHandle, NodeKind, StreamHandle};
use regraph_record::journal::BlockNumber;

/// Where a block's recorded use by one stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Marker {
    /// The stream.
    pub stream: StreamHandle,
    /// Whether a last use was declared; otherwise the free ended it.
    pub last_use: bool,
    /// The stream's terminals then.
    pub nodes: Vec<NodeHandle>,
}

/// A node that has an address in a block which it comes too late for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LateUse {
    /// The node.
    pub node: NodeHandle,
    /// Its type, where the driver tells.
    pub kind: Option<NodeKind>,
    /// The name of the kernel that it launches, where the driver tells.
    pub kernel: Option<String>,
    /// The block.
    pub block: Place,
    /// The block that lay at the address before, if one did. Where the node's stream was looked at
    /// late, it may be the one that is meant.
    pub before: Option<BlockNumber>,
    /// The address among the node's parameters.
    pub address: u64,
    /// How far into the block it is, in bytes.
    pub offset: u64,
    /// The block's free markers, none of which is the node or comes after it; its own stream's first.
    pub markers: Vec<Marker>,
}

/// A node, for people.
pub(super) fn write_node(
    f: &mut fmt::Formatter<'_>,
    node: NodeHandle,
    kind: Option<NodeKind>,
    kernel: Option<&str>,
) -> fmt::Result {
    write!(f, "node {:#x}", node.bits())?;
    match (kernel, kind) {
        (Some(kernel), _) => write!(f, " (kernel {kernel})"),
        (None, Some(NodeKind::KERNEL)) => write!(f, " (a kernel)"),
        (None, Some(NodeKind::COPY)) => write!(f, " (a copy)"),
        (None, Some(NodeKind::FILL)) => write!(f, " (a fill)"),
        (None, Some(kind)) => write!(f, " (of type {})", kind.0),
        (None, None) => Ok(()),
    }
}

impl fmt::Display for LateUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_node(f, self.node, self.kind, self.kernel.as_deref())?;
        write!(
            f,
            " has address {:#x} among its parameters, {} bytes into {}",
            self.address, self.offset, self.block
        )?;
        if let Some(before) = self.before {
            write!(f, " (or into block {}, which lay there before)", before.0)?;
        }
        write!(f, ", and is not before the end of its recorded uses:")?;
        for (index, marker) in self.markers.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let call = if marker.last_use { "record_use" } else { "the free" };
            write!(f, "{comma} stream {:#x} at {call}", marker.stream.bits())?;
        }
        write!(
            f,
            "; record_use or the free came too early, or record_stream is missing for the stream \
             that launched it"
        )
    }
}
