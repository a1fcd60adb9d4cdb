//! A finished graph as the driver tells it at one moment.

use regraph_driver::{Dependency, Driver, DriverError, EdgeData, GraphHandle, NodeHandle};
use regraph_record::journal::Journal;

/// The nodes and edges of a graph. A copy, so that it can be judged while its host goes on with the
/// graph: the driver's own object must not be read while another thread instantiates it.
pub struct FinishedGraph {
    nodes: Vec<NodeHandle>,
    /// Where each node's dependencies end; begins with a zero.
    ends: Vec<u32>,
    dependencies: Vec<NodeHandle>,
    /// Which of them are not full edges, in order, and what they are.
    others: Vec<(u32, EdgeData)>,
}

impl FinishedGraph {
    /// Asks the driver for each node's dependencies, which takes it less time than all edges at once.
    ///
    /// # Errors
    /// The driver's.
    pub fn read<D: Driver + ?Sized>(driver: &D, graph: GraphHandle) -> Result<Self, DriverError> {
        let mut nodes = Vec::new();
        driver.nodes(graph, &mut nodes)?;
        let mut read = Self::with_capacity(nodes.len());
        let mut some = Vec::new();
        for &node in &nodes {
            driver.dependencies(node, &mut some)?;
            read.add(some.iter().copied());
        }
        read.dependencies.shrink_to_fit();
        Ok(Self { nodes, ..read })
    }

    /// The part of a graph that a journal remembers, with the edges that its nodes had when they were first
    /// seen: for a graph that cannot be read any more.
    pub fn remembered(journal: &Journal) -> Self {
        let mut graph = Self::with_capacity(0);
        for (node, dependencies) in journal.nodes() {
            graph.nodes.push(node);
            graph.add(dependencies.iter());
        }
        graph
    }

    fn with_capacity(nodes: usize) -> Self {
        let mut ends = Vec::with_capacity(nodes + 1);
        ends.push(0);
        let dependencies = Vec::with_capacity(nodes * 2);
        Self { nodes: Vec::new(), ends, dependencies, others: Vec::new() }
    }

    /// Adds the dependencies of the next node.
    fn add(&mut self, dependencies: impl Iterator<Item = Dependency>) {
        for Dependency { node, edge } in dependencies {
            if edge != EdgeData::FULL {
                self.others.push((self.dependencies.len() as u32, edge));
            }
            self.dependencies.push(node);
        }
        self.ends.push(self.dependencies.len() as u32);
    }

    /// In the driver's order.
    pub fn nodes(&self) -> &[NodeHandle] {
        &self.nodes
    }

    /// Of a node, by its place among the nodes.
    #[inline]
    pub(super) fn dependencies(&self, node: u32) -> &[NodeHandle] {
        &self.dependencies[self.ends[node as usize] as usize..self.ends[node as usize + 1] as usize]
    }

    /// Where each node's dependencies end among all, behind a zero.
    pub(super) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// How many dependencies all nodes have.
    pub(super) fn edges(&self) -> usize {
        self.dependencies.len()
    }

    /// Which of all nodes' dependencies, one behind the other, are not full edges, and what they are.
    pub(super) fn others(&self) -> &[(u32, EdgeData)] {
        &self.others
    }

    /// Whether every edge means completion.
    pub fn is_full(&self) -> bool {
        self.others.is_empty()
    }
}
