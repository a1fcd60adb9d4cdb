//! A finished graph as the driver tells it at one moment.

use regraph_driver::{Dependency, Driver, DriverError, EdgeData, GraphHandle, NodeHandle};
use regraph_record::journal::Journal;

/// The nodes and edges of a graph. A copy, so that it can be judged while its host goes on with the
/// graph: the driver's own object must not be read while another thread instantiates it.
pub struct FinishedGraph {
    nodes: Vec<NodeHandle>,
    /// Where each node's dependencies end; begins with a zero.
    ends: Vec<u32>,
    dependencies: Vec<Dependency>,
}

impl FinishedGraph {
    /// Asks the driver for each node's dependencies, which takes it less time than all edges at once.
    ///
    /// # Errors
    /// The driver's.
    pub fn read<D: Driver + ?Sized>(driver: &D, graph: GraphHandle) -> Result<Self, DriverError> {
        let mut nodes = Vec::new();
        driver.nodes(graph, &mut nodes)?;
        let mut ends = Vec::with_capacity(nodes.len() + 1);
        ends.push(0);
        let mut dependencies = Vec::with_capacity(nodes.len() * 2);
        let mut some = Vec::new();
        for &node in &nodes {
            driver.dependencies(node, &mut some)?;
            dependencies.extend_from_slice(&some);
            ends.push(dependencies.len() as u32);
        }
        Ok(Self { nodes, ends, dependencies })
    }

    /// The part of a graph that a journal remembers, with the edges that its nodes had when they were first
    /// seen: for a graph that cannot be read any more.
    pub fn remembered(journal: &Journal) -> Self {
        let mut graph = Self { nodes: Vec::new(), ends: vec![0], dependencies: Vec::new() };
        for (node, dependencies) in journal.nodes() {
            graph.nodes.push(node);
            graph.dependencies.extend(dependencies.iter());
            graph.ends.push(graph.dependencies.len() as u32);
        }
        graph
    }

    /// In the driver's order.
    pub fn nodes(&self) -> &[NodeHandle] {
        &self.nodes
    }

    /// Of all nodes.
    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    /// Whether every edge means completion.
    pub fn is_full(&self) -> bool {
        self.dependencies.iter().all(|dependency| dependency.edge == EdgeData::FULL)
    }

    /// Of each node, in the order of [`FinishedGraph::nodes`].
    pub fn by_node(&self) -> impl Iterator<Item = &[Dependency]> + '_ {
        let ranges = self.ends.windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
        ranges.map(|range| &self.dependencies[range])
    }
}
