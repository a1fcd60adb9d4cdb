//! The graph that a capture of a trace makes, read off the trace alone.

use std::collections::HashMap;

use fixedbitset::FixedBitSet;

use regraph_trace::{NodeIndex, Operation, StreamIndex};

/// A capture's nodes and its streams' terminals, as far as the operations have been followed.
#[derive(Default)]
pub(super) struct Model {
    /// By node: what it depends on by full edges.
    full: Vec<Vec<NodeIndex>>,
    /// By node: all that it depends on.
    all: Vec<Vec<NodeIndex>>,
    /// By node: the stream that it belongs to, as soon as that is known.
    owner: Vec<Option<StreamIndex>>,
    terminals: HashMap<StreamIndex, Vec<NodeIndex>>,
}

impl Model {
    /// Follows one operation of the capture.
    pub(super) fn follow(&mut self, operation: &Operation) {
        match operation {
            Operation::Kernel { stream, programmatic, .. } => {
                let node = self.full.len() as NodeIndex;
                let after = self.terminals.insert(*stream, vec![node]).unwrap_or_default();
                let full = if *programmatic { Vec::new() } else { after.clone() };
                self.push(after, full, Some(*stream));
            }
            Operation::Node { after, programmatic, .. } => {
                let full =
                    after.iter().copied().filter(|node| !programmatic.contains(node)).collect();
                self.push(after.clone(), full, None);
            }
            Operation::Wait { stream, on } => {
                let more = self.terminals.get(on).cloned().unwrap_or_default();
                let terminals = self.terminals.entry(*stream).or_default();
                for node in more {
                    if !terminals.contains(&node) {
                        terminals.push(node);
                    }
                }
            }
            Operation::Terminals { stream, nodes } => {
                self.own(*stream, nodes);
                self.terminals.insert(*stream, nodes.clone());
            }
            _ => {}
        }
    }

    /// A stream's terminals now.
    pub(super) fn terminals(&self, stream: StreamIndex) -> &[NodeIndex] {
        self.terminals.get(&stream).map_or(&[], Vec::as_slice)
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> NodeIndex {
        self.full.len() as NodeIndex
    }

    /// The stream that a node belongs to.
    pub(super) fn owner(&self, node: NodeIndex) -> Option<StreamIndex> {
        self.owner[node as usize]
    }

    /// The nodes from `first` up that are, or by full edges precede, one of `nodes`; bit 0 is `first`.
    pub(super) fn up_to(&self, nodes: &[NodeIndex], first: NodeIndex) -> FixedBitSet {
        let top = nodes.iter().map(|node| node + 1).max().unwrap_or(first).max(first);
        let mut reached = FixedBitSet::with_capacity((top - first) as usize);
        for &node in nodes.iter().filter(|&&node| node >= first) {
            reached.insert((node - first) as usize);
        }
        for node in (first..top).rev() {
            if reached.contains((node - first) as usize) {
                for &earlier in self.full[node as usize].iter().filter(|&&node| node >= first) {
                    reached.insert((earlier - first) as usize);
                }
            }
        }
        reached
    }

    /// The nodes from `first` to below `end` that are, or by full edges follow, `first`; bit 0 is `first`.
    pub(super) fn from(&self, first: NodeIndex, end: NodeIndex) -> FixedBitSet {
        let mut reached = FixedBitSet::with_capacity((end - first) as usize);
        reached.insert(0);
        for node in first + 1..end {
            let follows = self.full[node as usize]
                .iter()
                .any(|&earlier| earlier >= first && reached.contains((earlier - first) as usize));
            reached.set((node - first) as usize, follows);
        }
        reached
    }

    /// Whether `node` follows all of `earlier` by full edges, or is one of them.
    pub(super) fn follows_all(&self, node: NodeIndex, earlier: &[NodeIndex]) -> bool {
        let Some(&first) = earlier.iter().min() else {
            return true;
        };
        // Nearly always its own dependencies say so.
        let direct = &self.full[node as usize];
        if earlier.iter().all(|wanted| *wanted == node || direct.contains(wanted)) {
            return true;
        }
        let reached = self.up_to(&[node], first);
        earlier.iter().all(|wanted| reached.contains((wanted - first) as usize))
    }

    fn push(&mut self, all: Vec<NodeIndex>, full: Vec<NodeIndex>, owner: Option<StreamIndex>) {
        self.all.push(all);
        self.full.push(full);
        self.owner.push(owner);
    }

    /// Raw nodes belong to the first stream whose terminals they stand behind.
    fn own(&mut self, stream: StreamIndex, nodes: &[NodeIndex]) {
        let mut stack = nodes.to_vec();
        while let Some(node) = stack.pop() {
            let owner = &mut self.owner[node as usize];
            if owner.is_none() {
                *owner = Some(stream);
                stack.extend_from_slice(&self.all[node as usize]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: NodeIndex, after: &[NodeIndex], programmatic: &[NodeIndex]) -> Operation {
        Operation::Node {
            node,
            after: after.to_vec(),
            kind: None,
            uses: vec![],
            programmatic: programmatic.to_vec(),
        }
    }

    fn kernel(stream: StreamIndex, programmatic: bool) -> Operation {
        Operation::Kernel { stream, uses: vec![], programmatic }
    }

    fn model(operations: &[Operation]) -> Model {
        let mut model = Model::default();
        for operation in operations {
            model.follow(operation);
        }
        model
    }

    #[test]
    fn order_goes_by_full_edges_alone() {
        let model = model(&[
            node(0, &[], &[]),
            node(1, &[0], &[]),
            node(2, &[1], &[1]),
            node(3, &[2, 1], &[]),
        ]);
        assert!(model.follows_all(3, &[0, 1, 2]));
        assert!(!model.follows_all(2, &[1]));
        assert_eq!(model.from(1, 4).ones().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(model.up_to(&[2], 0).ones().collect::<Vec<_>>(), [2]);
        assert_eq!(model.up_to(&[3], 1).ones().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn kernels_and_waits_move_terminals() {
        let wait = Operation::Wait { stream: 1, on: 0 };
        let model = model(&[kernel(0, false), kernel(1, false), wait, kernel(1, true)]);
        assert_eq!(model.terminals(1), [2]);
        assert_eq!(model.owner(2), Some(1));
        assert!(!model.follows_all(2, &[0]));
        assert!(model.terminals(7).is_empty());
    }

    #[test]
    fn raw_nodes_belong_to_the_first_stream_behind_them() {
        let terminals = |stream, node| Operation::Terminals { stream, nodes: vec![node] };
        let model = model(&[
            node(0, &[], &[]),
            node(1, &[0], &[]),
            terminals(5, 1),
            node(2, &[1], &[]),
            terminals(6, 2),
        ]);
        assert_eq!([0, 1, 2].map(|node| model.owner(node)), [Some(5), Some(5), Some(6)]);
    }
}
