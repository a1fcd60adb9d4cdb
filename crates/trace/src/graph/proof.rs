//! Which path of the graph lets memory be used again.

use petgraph::algo::astar;
use petgraph::graph::{DiGraph, NodeIndex as Place};
use petgraph::visit::{EdgeRef, NodeFiltered};

use super::{Dag, Edge};
use crate::{BlockIndex, NodeIndex};
use regraph_record::policy::Programmatic;

/// Memory that goes from a block to a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reuse {
    /// The block that had it.
    pub from: BlockIndex,
    /// The block that has it next.
    pub to: BlockIndex,
    /// Each of the first block's free markers, and how it is proven.
    pub proofs: Vec<Proof>,
}

/// What proves a free marker to be completed before the next use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// The marker.
    pub marker: NodeIndex,
    /// A shortest path from the marker to the first user of the later block; empty where there is none, and nothing
    /// is proven.
    pub path: Vec<NodeIndex>,
}

impl Dag {
    /// What goes from block to block where these lie at the addresses that `address` tells, with what proves it where
    /// `programmatic` says what programmatic edges prove. A block without a user needs no proof and gives and takes
    /// nothing; neither does one whose address is not told.
    ///
    /// Takes at most time linear in the nodes and edges between for each marker of a block that gives memory, and in the
    /// pairs of blocks.
    pub fn reuses(
        &self,
        address: impl Fn(BlockIndex) -> Option<u64>,
        programmatic: Programmatic,
    ) -> Vec<Reuse> {
        let paths = Paths::new(self, programmatic);
        let at: Vec<_> = self
            .blocks
            .iter()
            .map(|block| {
                let begin = address(block.id).filter(|_| block.first.is_some())?;
                Some((begin, begin + block.bytes))
            })
            .collect();
        let mut reuses = Vec::new();
        for (later, block) in self.blocks.iter().enumerate() {
            let (Some(whole), Some(first)) = (at[later], block.first) else { continue };
            // What no block between had.
            let mut open = vec![whole];
            for (earlier, other) in self.blocks[..later].iter().enumerate().rev() {
                let (Some((begin, end)), Some(markers)) = (at[earlier], &other.markers) else {
                    continue;
                };
                let meets = |&(from, to): &(u64, u64)| from < end && begin < to;
                if other.life.end > block.life.start || !open.iter().any(meets) {
                    continue;
                }
                let rest = open.iter().flat_map(|&(from, to)| {
                    [(from, to.min(begin)), (from.max(end), to)].into_iter().filter(|(a, b)| a < b)
                });
                open = rest.collect();
                let proof = |&marker| Proof { marker, path: paths.find(marker, first) };
                let proofs = markers.iter().map(proof).collect();
                reuses.push(Reuse { from: other.id, to: block.id, proofs });
            }
        }
        reuses
    }
}

/// The graph twice: a path changes over by an edge behind which the nodes before it are completed.
struct Paths {
    graph: DiGraph<(), ()>,
    /// The number of nodes of the captured graph.
    count: usize,
}

impl Paths {
    fn new(dag: &Dag, programmatic: Programmatic) -> Self {
        let count = dag.graph.node_count();
        let mut graph = DiGraph::with_capacity(2 * count, 3 * dag.graph.edge_count());
        (0..2 * count).for_each(|_| _ = graph.add_node(()));
        for edge in dag.graph.edge_references() {
            let full = *edge.weight() == Edge::Full || programmatic == Programmatic::Trust;
            let (from, to) = (edge.source().index(), edge.target().index());
            let mut lead =
                |from: usize, to: usize| graph.add_edge(Place::new(from), Place::new(to), ());
            if full {
                lead(from, count + to);
            }
            if full || programmatic != Programmatic::Deny {
                lead(from, to);
                lead(count + from, count + to);
            }
        }
        Self { graph, count }
    }

    fn find(&self, marker: NodeIndex, first: NodeIndex) -> Vec<NodeIndex> {
        let (from, to) = (marker as usize, first as usize);
        let number = |place: Place| place.index() % self.count;
        // Edges lead on in launch order.
        let between =
            NodeFiltered::from_fn(&self.graph, |place| (from..=to).contains(&number(place)));
        let ends = |place: Place| place.index() == self.count + to;
        let found = astar(&between, Place::new(from), ends, |_| 1, |_| 0_u32);
        let nodes = found.map(|(_, path)| path).unwrap_or_default();
        nodes.into_iter().map(|place| number(place) as NodeIndex).collect()
    }
}
