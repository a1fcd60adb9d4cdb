//! Addresses among a node's parameters, by the node's kind.

use super::super::{Driver, GraphHandle, NodeHandle, NodeKind, Result};
use super::error::failure;
use super::inspection::Inspected;
use super::CudaDriver;

/// Child graphs within child graphs that are looked into.
const DEEPEST: usize = 64;

impl CudaDriver {
    /// The values of a node, or of all nodes of a child graph. The thread is relaxed and its
    /// context current.
    pub(super) fn push_pointers(
        &self,
        node: NodeHandle,
        depth: usize,
        values: &mut Vec<u64>,
    ) -> Result<()> {
        let kind = match self.node_kind(node)? {
            NodeKind::KERNEL => Inspected::Kernel,
            NodeKind::COPY => Inspected::Copy,
            NodeKind::FILL => Inspected::Fill,
            NodeKind::CHILD_GRAPH if depth < DEEPEST => {
                return self.push_child(node, depth + 1, values);
            }
            _ => return Ok(()),
        };
        let pushed = self.inspection.values(node.as_raw(), kind, values);
        pushed.map_err(|(call, code)| failure(&self.symbols, call, code))
    }

    fn push_child(&self, node: NodeHandle, depth: usize, values: &mut Vec<u64>) -> Result<()> {
        let graph = self.inspection.child(node.as_raw());
        let graph = graph.map_err(|(call, code)| failure(&self.symbols, call, code))?;
        let Some(graph) = graph else { return Ok(()) };
        let mut nodes = Vec::new();
        self.nodes(GraphHandle::from_raw(graph), &mut nodes)?;
        nodes.into_iter().try_for_each(|node| self.push_pointers(node, depth, values))
    }
}
