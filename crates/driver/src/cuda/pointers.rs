//! Addresses among a node's parameters, by the node's kind.

use super::super::{Access, Driver, GraphHandle, NodeHandle, NodeKind, NodePointer, Result};
use super::error::failure;
use super::inspection::Inspected;
use super::CudaDriver;

/// Child graphs within child graphs that are looked into.
const DEEPEST: usize = 64;

impl CudaDriver {
    /// The values of a node, or of all nodes of a child graph. The thread is relaxed and its context current.
    pub(super) fn push_pointers(
        &self,
        node: NodeHandle,
        depth: usize,
        pointers: &mut Vec<NodePointer>,
    ) -> Result<()> {
        let (kind, does): (_, &[Access]) = match self.node_kind(node)? {
            NodeKind::KERNEL => (Inspected::Kernel, &[]),
            // As `Inspection::values` has them.
            NodeKind::COPY => (Inspected::Copy, &[Access::Reads, Access::Writes]),
            NodeKind::FILL => (Inspected::Fill, &[Access::Writes]),
            NodeKind::CHILD_GRAPH if depth < DEEPEST => {
                let graph = self.inspection.child(node.as_raw());
                let graph = graph.map_err(|(call, code)| failure(&self.symbols, call, code))?;
                let Some(graph) = graph else { return Ok(()) };
                let mut nodes = Vec::new();
                self.nodes(GraphHandle::from_raw(graph), &mut nodes)?;
                let mut nodes = nodes.into_iter();
                return nodes.try_for_each(|node| self.push_pointers(node, depth + 1, pointers));
            }
            _ => return Ok(()),
        };
        let mut values = Vec::new();
        let pushed = self.inspection.values(node.as_raw(), kind, &mut values);
        let does = if depth == 0 { does } else { &[] };
        let does = does.iter().copied().chain(std::iter::repeat(Access::Unknown));
        let found = values.into_iter().zip(does);
        pointers.extend(found.map(|(address, access)| NodePointer { address, access }));
        pushed.map_err(|(call, code)| failure(&self.symbols, call, code))
    }
}
