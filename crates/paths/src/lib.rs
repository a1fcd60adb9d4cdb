//! What comes before what in a capture, by definition: paths in a graph of `petgraph`'s.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use petgraph::algo::{has_path_connecting, is_cyclic_directed};
use petgraph::graph::{DiGraph, NodeIndex as Place};
use petgraph::visit::{Dfs, EdgeFiltered, Visitable};
use regraph_driver::{Dependency, Driver, EdgeData, GraphHandle, NodeHandle};
use regraph_record::policy::Programmatic;

/// Nodes of a capture.
pub type Nodes = BTreeSet<NodeHandle>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Start,
    Completion,
}

/// The nodes of one capture, each as its start and its completion. A later moment has an edge to
/// each earlier one, of which the weight says whether it is proof. Its methods panic where a node or a dependency that
/// they are given has not been entered.
#[derive(Clone, Debug)]
pub struct Paths {
    programmatic: Programmatic,
    graph: DiGraph<(NodeHandle, Moment), bool>,
    /// By node: its start and its completion.
    moments: BTreeMap<NodeHandle, [Place; 2]>,
}

impl Paths {
    /// No nodes, and what programmatic edges are to prove: under `Auto` as under `Lag`, the start
    /// of the earlier node alone.
    pub fn new(programmatic: Programmatic) -> Self {
        Self { programmatic, graph: DiGraph::new(), moments: BTreeMap::new() }
    }

    /// The nodes of a graph with the edges that they have now. Panics if the driver fails, or the graph has a cycle.
    pub fn of_graph<D: Driver>(driver: &D, graph: GraphHandle, policy: Programmatic) -> Self {
        let mut this = Self::new(policy);
        let (mut nodes, mut dependencies) = (Vec::new(), Vec::new());
        driver.nodes(graph, &mut nodes).expect("the graph is there");
        nodes.iter().for_each(|&node| this.enter(node, &[]));
        for node in nodes {
            driver.dependencies(node, &mut dependencies).expect("a node of the graph");
            this.enter(node, &dependencies);
        }
        assert!(!is_cyclic_directed(&this.graph), "a captured graph has no cycle");
        this
    }

    /// Enters a node, or more dependencies of one.
    pub fn enter(&mut self, node: NodeHandle, dependencies: &[Dependency]) {
        let graph = &mut self.graph;
        let [start, completion] = *self.moments.entry(node).or_insert_with(|| {
            let moments = [Moment::Start, Moment::Completion].map(|it| graph.add_node((node, it)));
            graph.add_edge(moments[1], moments[0], true);
            moments
        });
        for dependency in dependencies {
            let earlier = self.moments[&dependency.node];
            match self.proof(dependency.edge) {
                Some(Moment::Completion) => _ = self.graph.add_edge(start, earlier[1], true),
                Some(Moment::Start) => {
                    self.graph.add_edge(start, earlier[0], true);
                    // A node's completion includes that of what it was launched beside.
                    self.graph.add_edge(completion, earlier[1], true);
                }
                None => _ = self.graph.add_edge(start, earlier[0], false),
            }
        }
    }

    /// What of the earlier node comes before the later one's start.
    fn proof(&self, edge: EdgeData) -> Option<Moment> {
        match (edge, self.programmatic) {
            (EdgeData::FULL, _) | (EdgeData::PROGRAMMATIC, Programmatic::Trust) => {
                Some(Moment::Completion)
            }
            (EdgeData::PROGRAMMATIC, Programmatic::Auto | Programmatic::Lag) => Some(Moment::Start),
            _ => None,
        }
    }

    /// All nodes, in the order in which they were entered.
    pub fn nodes(&self) -> impl Iterator<Item = NodeHandle> + '_ {
        let starts = self.graph.node_weights().filter(|it| it.1 == Moment::Start);
        starts.map(|it| it.0)
    }

    /// The nodes of which a path leads to such a moment, by all edges or by those that are proof.
    fn found(&self, from: Vec<Place>, moment: Moment, proof: bool) -> Nodes {
        let found = self.search(from, proof);
        let found = found.ones().map(|place| self.graph[Place::new(place)]);
        found.filter(|it| it.1 == moment).map(|it| it.0).collect()
    }

    /// The moments to which a path leads, by their places.
    fn search(&self, from: Vec<Place>, proof: bool) -> FixedBitSet {
        let edges = EdgeFiltered::from_fn(&self.graph, |edge| !proof || *edge.weight());
        let mut search = Dfs::from_parts(from, self.graph.visit_map());
        while search.next(&edges).is_some() {}
        search.discovered
    }

    fn places(&self, dependencies: &[Dependency]) -> Vec<Place> {
        let from = dependencies.iter().filter_map(|it| {
            let which = self.proof(it.edge)?;
            Some(self.moments[&it.node][usize::from(which == Moment::Completion)])
        });
        from.collect()
    }

    /// The nodes that are completed before one with these dependencies starts.
    pub fn completed(&self, dependencies: &[Dependency]) -> Nodes {
        self.found(self.places(dependencies), Moment::Completion, true)
    }

    /// What comes before the start of a node with these dependencies.
    pub fn before(&self, dependencies: &[Dependency]) -> Before<'_> {
        Before { paths: self, moments: self.search(self.places(dependencies), true) }
    }

    /// The nodes that are completed before a node starts.
    pub fn completed_before(&self, node: NodeHandle) -> Nodes {
        self.found(vec![self.moments[&node][0]], Moment::Completion, true)
    }

    /// The nodes behind these dependencies and their own, by edges of any kind.
    pub fn behind(&self, dependencies: &[Dependency]) -> Nodes {
        let from = dependencies.iter().map(|it| self.moments[&it.node][0]);
        self.found(from.collect(), Moment::Start, false)
    }

    /// Whether edges of any kind lead from one node to another.
    pub fn leads(&self, earlier: NodeHandle, later: NodeHandle) -> bool {
        let [earlier, later] = [earlier, later].map(|node| self.moments[&node][0]);
        earlier != later && has_path_connecting(&self.graph, later, earlier, None)
    }
}

/// The moments before the start of a node.
#[derive(Clone, Debug)]
pub struct Before<'a> {
    paths: &'a Paths,
    /// By their places.
    moments: FixedBitSet,
}

impl Before<'_> {
    /// Whether a node has started.
    pub fn has_started(&self, node: NodeHandle) -> bool {
        self.has(node, Moment::Start)
    }

    /// Whether a node is completed.
    pub fn is_completed(&self, node: NodeHandle) -> bool {
        self.has(node, Moment::Completion)
    }

    /// The number of nodes that are completed.
    pub fn completed(&self) -> usize {
        let moments = self.moments.ones().map(|place| self.paths.graph[Place::new(place)].1);
        moments.filter(|&moment| moment == Moment::Completion).count()
    }

    fn has(&self, node: NodeHandle, moment: Moment) -> bool {
        let places = self.paths.moments.get(&node);
        places.is_some_and(|places| self.moments.contains(places[moment as usize].index()))
    }
}
