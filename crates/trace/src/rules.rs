//! The rules that make a sequence of operations a trace.

use std::collections::HashMap;

use thiserror::Error;

use super::{BlockIndex, NodeIndex, Operation, ALL_BYTES_LIMIT, BYTES_LIMIT};

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected {expected}, found {found}")]
pub struct Violation {
    /// What stands there.
    pub found: String,
    /// What the format asks for.
    pub expected: String,
}

pub(super) fn broken<T>(
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Result<T, Violation> {
    Err(Violation { found: found.into(), expected: expected.into() })
}

/// The state that the rules speak of: which blocks live and how many nodes the capture has.
#[derive(Default)]
pub(super) struct Rules {
    /// Nodes of the capture under way.
    nodes: Option<NodeIndex>,
    /// Captures that have begun.
    captures: usize,
    /// Every block so far, and whether it lives.
    blocks: HashMap<BlockIndex, bool>,
    /// What all blocks so far had, in bytes.
    bytes: u64,
}

impl Rules {
    pub(super) fn accept(&mut self, operation: &Operation) -> Result<(), Violation> {
        match operation {
            Operation::Begin { .. } => {
                if self.nodes.is_some() {
                    return broken("`end` before the next capture begins", "a nested `begin`");
                }
                self.nodes = Some(0);
                self.captures += 1;
            }
            Operation::Kernel { uses, .. } => {
                let nodes = self.capture("kernel")?;
                self.known(uses)?;
                self.nodes = Some(following(nodes)?);
            }
            Operation::Wait { .. } => {
                self.capture("wait")?;
            }
            Operation::Node { node, after, uses, programmatic, .. } => {
                let nodes = self.capture("node")?;
                if *node != nodes {
                    return broken(
                        format!("node {nodes}, the next number of this capture"),
                        format!("node {node}"),
                    );
                }
                earlier("after", after, nodes)?;
                let known = sorted(after);
                if let Some(stranger) =
                    programmatic.iter().find(|node| known.binary_search(node).is_err())
                {
                    return broken(
                        "programmatic nodes that are also in `after`",
                        format!("node {stranger}, which is not in `after`"),
                    );
                }
                once("programmatic", &sorted(programmatic))?;
                self.known(uses)?;
                self.nodes = Some(following(nodes)?);
            }
            Operation::Terminals { nodes, .. } => {
                earlier("nodes", nodes, self.capture("terminals")?)?;
            }
            Operation::Alloc { id, bytes, .. } => {
                if *bytes == 0 || *bytes >= BYTES_LIMIT {
                    return broken(
                        format!("1 to 2^60 - 1 bytes for block {id}"),
                        format!("{bytes} bytes"),
                    );
                }
                // No two of them may have a byte in common.
                self.bytes += *bytes;
                if self.bytes >= ALL_BYTES_LIMIT {
                    return broken(
                        "less than 2^63 bytes in all blocks together",
                        format!("{} bytes with block {id}", self.bytes),
                    );
                }
                if let Some(live) = self.blocks.insert(*id, true) {
                    let found = if live { "is live" } else { "was allocated and freed before" };
                    return broken(
                        "an id that no block has had",
                        format!("block {id}, which {found}"),
                    );
                }
            }
            Operation::Use { id, .. } | Operation::LastUse { id, .. } => self.live(*id)?,
            Operation::Free { id } => {
                self.live(*id)?;
                self.blocks.insert(*id, false);
            }
            Operation::End {} => {
                if self.nodes.take().is_none() {
                    return broken("`begin` before `end`", "`end` outside a capture");
                }
            }
        }
        Ok(())
    }

    /// A label speaks of a block that was allocated, or of a node that the capture under way has. Returns the capture,
    /// counted from 0.
    pub(super) fn label(
        &self,
        block: Option<BlockIndex>,
        node: Option<NodeIndex>,
    ) -> Result<usize, Violation> {
        if let Some(id) = block.filter(|id| !self.blocks.contains_key(id)) {
            return broken(
                "a label of an allocated block",
                format!("block {id}, which was never allocated"),
            );
        }
        if let Some(node) = node {
            earlier("node", &[node], self.capture("label")?)?;
        }
        Ok(self.captures.saturating_sub(1))
    }

    pub(super) fn finish(&self) -> Result<(), Violation> {
        if self.nodes.is_some() {
            return broken("`end` of the capture", "the end of the file");
        }
        Ok(())
    }

    fn capture(&self, name: &str) -> Result<NodeIndex, Violation> {
        match self.nodes {
            Some(nodes) => Ok(nodes),
            None => {
                broken(format!("`begin` before `{name}`"), format!("`{name}` outside a capture"))
            }
        }
    }

    fn live(&self, id: BlockIndex) -> Result<(), Violation> {
        match self.blocks.get(&id) {
            Some(true) => Ok(()),
            Some(false) => broken("a live block", format!("block {id}, which has been freed")),
            None => broken("a live block", format!("block {id}, which was never allocated")),
        }
    }

    fn known(&self, uses: &[BlockIndex]) -> Result<(), Violation> {
        match uses.iter().find(|id| !self.blocks.contains_key(id)) {
            None => Ok(()),
            Some(id) => broken(
                "`uses` of allocated blocks",
                format!("block {id}, which was never allocated"),
            ),
        }
    }
}

fn following(nodes: NodeIndex) -> Result<NodeIndex, Violation> {
    match nodes.checked_add(1) {
        Some(next) => Ok(next),
        None => broken("fewer than 2^32 nodes in a capture", "one more"),
    }
}

fn sorted(nodes: &[NodeIndex]) -> Vec<NodeIndex> {
    let mut nodes = nodes.to_vec();
    nodes.sort_unstable();
    nodes
}

/// Nodes of a list come before the `count`th, and each once.
fn earlier(field: &str, nodes: &[NodeIndex], count: NodeIndex) -> Result<(), Violation> {
    if let Some(later) = nodes.iter().find(|&&node| node >= count) {
        let expected = match count {
            0 => format!("no node in `{field}`, since the capture has none yet"),
            _ => format!("nodes 0 to {} in `{field}`", count - 1),
        };
        return broken(expected, format!("node {later}"));
    }
    once(field, &sorted(nodes))
}

fn once(field: &str, sorted: &[NodeIndex]) -> Result<(), Violation> {
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            broken(format!("each node of `{field}` once"), format!("node {} twice", pair[0]))
        }
    }
}
