//! Who comes before whom, by paths.

use std::collections::BTreeMap;

use regraph::driver::{Dependency, Driver, GraphHandle, NodeHandle};
use regraph::settings::Programmatic;

use regraph_paths::{Nodes, Paths};

/// The nodes of one capture.
pub(super) struct NodeTable {
    /// By the edges that each had when it was made, on a device where programmatic successors never wait.
    made: Paths,
    /// By node: what was behind it by any edges when it was made.
    behind: BTreeMap<NodeHandle, Nodes>,
    /// Every stream that was ever in the capture.
    pub streams: Vec<usize>,
    /// By node: what is completed before it starts in the finished graph.
    finished: BTreeMap<NodeHandle, Nodes>,
}

impl NodeTable {
    pub(super) fn new(stream: usize) -> Self {
        Self {
            made: Paths::new(Programmatic::Lag),
            behind: BTreeMap::new(),
            streams: vec![stream],
            finished: BTreeMap::new(),
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeHandle> + '_ {
        self.made.nodes()
    }

    pub(super) fn enter(&mut self, node: NodeHandle, dependencies: &[Dependency]) {
        self.behind.insert(node, self.made.behind(dependencies));
        self.made.enter(node, dependencies);
    }

    /// Whether a node is one of, or behind one of, `terminals`.
    pub(super) fn reaches(&self, terminals: &[Dependency], node: NodeHandle) -> bool {
        self.made.behind(terminals).contains(&node)
    }

    pub(super) fn is_behind(&self, earlier: NodeHandle, later: NodeHandle) -> bool {
        self.behind.get(&later).is_some_and(|behind| behind.contains(&earlier))
    }

    /// What is completed before a node with these dependencies starts.
    pub(super) fn completed(&self, dependencies: &[Dependency]) -> Nodes {
        self.made.completed(dependencies)
    }

    /// Reads the finished graph and says who is completed before whom under a policy.
    pub(super) fn finish<D: Driver>(
        &mut self,
        driver: &D,
        graph: GraphHandle,
        policy: Programmatic,
    ) {
        let paths = Paths::of_graph(driver, graph, policy);
        self.finished = paths.nodes().map(|node| (node, paths.completed_before(node))).collect();
    }

    /// Whether, in the finished graph, `earlier` is completed before `later` starts.
    pub(super) fn completed_before(&self, earlier: NodeHandle, later: NodeHandle) -> bool {
        self.finished.get(&later).is_some_and(|completed| completed.contains(&earlier))
    }
}
