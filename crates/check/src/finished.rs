//! A finished graph as the driver tells it at one moment.

use regraph_driver::{Dependency, Driver, DriverError, EdgeData, GraphHandle, NodeHandle};
use regraph_record::journal::Journal;

/// The nodes and edges of a graph. A copy, so that it can be judged while its host goes on with the
/// graph: the driver's own object must not be read while another thread instantiates it.
#[derive(Default)]
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
        Self::default().read_anew(driver, graph)
    }

    /// [`FinishedGraph::read`], in what another copy has allocated.
    pub(super) fn read_anew<D: Driver + ?Sized>(
        self,
        driver: &D,
        graph: GraphHandle,
    ) -> Result<Self, DriverError> {
        let mut read = self;
        read.nodes.clear();
        driver.nodes(graph, &mut read.nodes)?;
        read.begin(read.nodes.len());
        let mut some = Vec::new();
        for row in 0..read.nodes.len() {
            driver.dependencies(read.nodes[row], &mut some)?;
            read.add(some.iter().copied());
        }
        // A few are not worth the move.
        read.dependencies.shrink_to(64);
        Ok(read)
    }

    /// The part of a graph that a journal remembers, with the edges that its nodes had when they were first
    /// seen: for a graph that cannot be read any more.
    pub fn remembered(journal: &Journal) -> Self {
        let mut graph = Self::default();
        graph.begin(0);
        for (node, dependencies) in journal.nodes() {
            graph.nodes.push(node);
            graph.add(dependencies.iter());
        }
        graph
    }

    /// Forgets all dependencies, and makes room for those of so many nodes.
    fn begin(&mut self, nodes: usize) {
        let Self { nodes: _, ends, dependencies, others } = self;
        ends.clear();
        ends.reserve(nodes + 1);
        ends.push(0);
        dependencies.clear();
        dependencies.reserve(nodes * 2);
        others.clear();
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
