//! One line of a trace.

use regraph::driver::{Dependency, EdgeData, NodeHandle};
use serde::{Deserialize, Serialize};

use super::{BlockIndex, NodeIndex, PoolIndex, StreamIndex};

/// What the host did.
///
/// A stream's terminals are the nodes that its next node would depend on. They are empty when a capture begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// A capture begins.
    Begin {
        /// On this stream.
        stream: StreamIndex,
        /// And allocates from this pool.
        pool: PoolIndex,
    },
    /// One node after the stream's terminals, which becomes the stream's only terminal.
    Kernel {
        /// The stream.
        stream: StreamIndex,
        /// Blocks that it is known to touch.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        uses: Vec<BlockIndex>,
        /// Whether it may start before the stream's last kernel ends.
        #[serde(default, skip_serializing_if = "is_false")]
        programmatic: bool,
    },
    /// The stream's terminals become the union of both streams'.
    Wait {
        /// The stream that waits.
        stream: StreamIndex,
        /// The stream that it waits for.
        on: StreamIndex,
    },
    /// The raw form of a node: no stream's terminals change.
    Node {
        /// Its number: nodes are numbered from 0 in order of appearance, kernels included.
        node: NodeIndex,
        /// What it depends on.
        after: Vec<NodeIndex>,
        /// The driver's number of its type (`CUgraphNodeType`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<u32>,
        /// Blocks that it is known to touch.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        uses: Vec<BlockIndex>,
        /// Those of `after` whose edge is programmatic.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        programmatic: Vec<NodeIndex>,
    },
    /// The raw form of everything that moves a stream: its terminals are now these.
    Terminals {
        /// The stream.
        stream: StreamIndex,
        /// Its terminals.
        nodes: Vec<NodeIndex>,
    },
    /// A block is allocated.
    Alloc {
        /// Its name: no other block of the trace has it.
        id: BlockIndex,
        /// Its size.
        bytes: u64,
        /// Its own stream.
        stream: StreamIndex,
    },
    /// A stream uses a block, some time before its free.
    Use {
        /// The block.
        id: BlockIndex,
        /// The stream.
        stream: StreamIndex,
    },
    /// What a stream holds so far includes its last use of a block.
    LastUse {
        /// The block.
        id: BlockIndex,
        /// The stream.
        stream: StreamIndex,
    },
    /// A block is freed.
    Free {
        /// The block.
        id: BlockIndex,
    },
    /// The capture ends. Blocks not freed are its outputs.
    End {},
}

impl Operation {
    /// The name of every operation, and of every other line, and the fields that it has, for messages.
    pub(super) const FORMS: &'static [(&'static str, &'static str)] = &[
        ("begin", "`begin` with stream (below 65536) and pool"),
        (
            "kernel",
            "`kernel` with stream (below 65536), optional uses [block ids] and programmatic (bool)",
        ),
        ("wait", "`wait` with stream and on (below 65536)"),
        (
            "node",
            "`node` with node, after [node ids], optional kind, uses [block ids] and programmatic \
             [node ids]",
        ),
        ("terminals", "`terminals` with stream (below 65536) and nodes [node ids]"),
        ("alloc", "`alloc` with id, bytes (1 to 2^60 - 1) and stream (below 65536)"),
        ("use", "`use` with id and stream (below 65536)"),
        ("last_use", "`last_use` with id and stream (below 65536)"),
        ("free", "`free` with id"),
        ("end", "`end` with no other field"),
        ("stack", "`stack` with stack (its number) and frames [filename, line and name of each]"),
        ("label", "`label` with block or node, optional name and stack (a number)"),
    ];

    /// The name of the operation, as in a file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Begin { .. } => "begin",
            Self::Kernel { .. } => "kernel",
            Self::Wait { .. } => "wait",
            Self::Node { .. } => "node",
            Self::Terminals { .. } => "terminals",
            Self::Alloc { .. } => "alloc",
            Self::Use { .. } => "use",
            Self::LastUse { .. } => "last_use",
            Self::Free { .. } => "free",
            Self::End {} => "end",
        }
    }

    /// The streams that the operation names.
    pub fn streams(&self) -> impl Iterator<Item = StreamIndex> {
        let (first, second) = match *self {
            Self::Wait { stream, on } => (Some(stream), Some(on)),
            Self::Begin { stream, .. }
            | Self::Kernel { stream, .. }
            | Self::Terminals { stream, .. }
            | Self::Alloc { stream, .. }
            | Self::Use { stream, .. }
            | Self::LastUse { stream, .. } => (Some(stream), None),
            Self::Node { .. } | Self::Free { .. } | Self::End {} => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Nodes of a trace as dependencies, by the handles of its nodes; those without a handle are left out.
pub fn dependencies(
    handles: &[NodeHandle],
    nodes: &[NodeIndex],
    programmatic: &[NodeIndex],
) -> Vec<Dependency> {
    let edge = |node| match programmatic.contains(node) {
        true => EdgeData::PROGRAMMATIC,
        false => EdgeData::FULL,
    };
    let found = nodes.iter().map(|node| (edge(node), handles.get(*node as usize)));
    found.filter_map(|(edge, node)| Some(Dependency { node: *node?, edge })).collect()
}

fn is_false(flag: &bool) -> bool {
    !flag
}
