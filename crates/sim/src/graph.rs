//! Graphs: nodes, edges, edits.
//!
//! Nodes of all graphs share one vector, and their dependencies one arena in which each node has a range. Both only
//! grow: a node whose dependencies grow gets a new range at the arena's end, and a node's slot is never used again.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::kernel::Kernel;
use super::refusal::Fallible;
use super::slots::{self, short};
use regraph::driver::{Dependency, EdgeData, ErrorKind, NodeHandle, NodeKind};

#[derive(Debug)]
struct Node {
    start: usize,
    count: u32,
    kind: NodeKind,
    /// `None` once the graph is destroyed.
    graph: Option<u32>,
    work: Option<u32>,
    body: Option<u32>,
}

#[derive(Debug)]
struct Graph {
    alive: bool,
    nodes: Vec<NodeHandle>,
    /// Whether it is a conditional node's body, which lives and dies with its node.
    body: bool,
    capturing: bool,
    /// Whether an edge leads from a later node to an earlier one; until then the order of creation rules out cycles.
    backward: bool,
}

/// What a node does.
#[derive(Debug)]
struct Work {
    /// Where it runs.
    device: u32,
    kernel: Arc<dyn Kernel>,
}

/// What a new node is.
#[derive(Debug)]
pub(super) struct NewNode {
    pub(super) kind: NodeKind,
    pub(super) work: Option<u32>,
    pub(super) body: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Graphs {
    nodes: Vec<Node>,
    edges: Vec<Dependency>,
    graphs: Vec<Graph>,
    works: Vec<Work>,
}

impl Graphs {
    pub(super) fn create(&mut self, body: bool) -> usize {
        self.graphs.push(Graph {
            alive: true,
            nodes: Vec::new(),
            body,
            capturing: false,
            backward: false,
        });
        self.graphs.len() - 1
    }

    /// The slot, if the graph is alive.
    pub(super) fn alive(&self, graph: usize) -> Fallible<usize> {
        match self.graphs.get(graph) {
            Some(it) if it.alive => Ok(graph),
            _ => Err(ErrorKind::InvalidValue.into()),
        }
    }

    pub(super) fn is_capturing(&self, graph: usize) -> bool {
        self.graphs[graph].capturing
    }

    pub(super) fn set_capturing(&mut self, graph: usize, capturing: bool) {
        self.graphs[graph].capturing = capturing;
    }

    pub(super) fn is_body(&self, graph: usize) -> bool {
        self.graphs[graph].body
    }

    pub(super) fn nodes(&self, graph: usize) -> &[NodeHandle] {
        &self.graphs[graph].nodes
    }

    #[inline]
    fn node(&self, node: NodeHandle) -> Fallible<&Node> {
        match self.nodes.get(slots::of_node(node)) {
            Some(it) if it.graph.is_some() => Ok(it),
            _ => Err(ErrorKind::InvalidValue.into()),
        }
    }

    #[inline]
    pub(super) fn dependencies(&self, node: NodeHandle) -> Fallible<&[Dependency]> {
        let node = self.node(node)?;
        Ok(&self.edges[node.start..node.start + node.count as usize])
    }

    pub(super) fn kind(&self, node: NodeHandle) -> Fallible<NodeKind> {
        Ok(self.node(node)?.kind)
    }

    pub(super) fn body(&self, node: NodeHandle) -> Fallible<Option<usize>> {
        Ok(self.node(node)?.body.map(|body| body as usize))
    }

    pub(super) fn work(&self, node: NodeHandle) -> Fallible<Option<u32>> {
        Ok(self.node(node)?.work)
    }

    /// A node's kind as the driver tells it, and what it does.
    pub(super) fn told(&self, node: NodeHandle) -> Fallible<(NodeKind, Option<&dyn Kernel>)> {
        let (kind, work) = (self.kind(node)?, self.work(node)?);
        let kernel = work.filter(|_| kind == NodeKind::KERNEL).map(|work| self.kernel(work).1);
        Ok((kernel.map_or(kind, Kernel::kind), kernel))
    }

    /// Keeps what a node does, if it does anything.
    pub(super) fn store(&mut self, device: u32, kernel: Option<Arc<dyn Kernel>>) -> Option<u32> {
        self.works.push(Work { device, kernel: kernel? });
        Some(short(self.works.len() - 1))
    }

    /// The kernel of a piece of work, and the device that it runs on.
    pub(super) fn kernel(&self, work: u32) -> (u32, &dyn Kernel) {
        let Work { device, kernel } = &self.works[work as usize];
        (*device, &**kernel)
    }

    /// Adds a node whose dependencies are known to be good.
    pub(super) fn add(
        &mut self,
        graph: usize,
        dependencies: &[Dependency],
        new: NewNode,
    ) -> NodeHandle {
        let handle = slots::node(self.nodes.len());
        let start = self.edges.len();
        self.edges.extend_from_slice(dependencies);
        self.nodes.push(Node {
            start,
            count: short(dependencies.len()),
            kind: new.kind,
            graph: Some(short(graph)),
            work: new.work,
            body: new.body,
        });
        self.graphs[graph].nodes.push(handle);
        handle
    }

    /// Refuses an edge that leaves the graph or is of a type that its ends cannot have.
    pub(super) fn check(
        &self,
        graph: usize,
        dependency: Dependency,
        later: NodeKind,
    ) -> Fallible<()> {
        let node = self.node(dependency.node)?;
        let programmatic = dependency.edge.kind == EdgeData::PROGRAMMATIC.kind;
        let kernels = node.kind == NodeKind::KERNEL && later == NodeKind::KERNEL;
        if node.graph != Some(short(graph)) || (programmatic && !kernels) {
            return Err(ErrorKind::InvalidValue.into());
        }
        Ok(())
    }

    /// Refuses what a new node of kind `later` cannot depend on.
    pub(super) fn check_all(
        &self,
        graph: usize,
        dependencies: &[Dependency],
        later: NodeKind,
    ) -> Fallible<()> {
        for (position, dependency) in dependencies.iter().enumerate() {
            self.check(graph, *dependency, later)?;
            let before = &dependencies[..position];
            if before.iter().any(|other| other.node == dependency.node) {
                return Err(ErrorKind::InvalidValue.into());
            }
        }
        Ok(())
    }

    pub(super) fn link(&mut self, graph: usize, from: Dependency, to: NodeHandle) -> Fallible<()> {
        self.check(graph, Dependency::full(to), NodeKind::KERNEL)?;
        self.check(graph, from, self.kind(to)?)?;
        let present = self.dependencies(to)?;
        let known = present.iter().any(|other| other.node == from.node);
        let backward = from.node >= to;
        let search = backward || self.graphs[graph].backward;
        if known || from.node == to || (search && self.precedes(graph, to, from.node)) {
            return Err(ErrorKind::InvalidValue.into());
        }
        self.graphs[graph].backward |= backward;
        let slot = slots::of_node(to);
        let (start, count) = (self.nodes[slot].start, self.nodes[slot].count as usize);
        if start + count != self.edges.len() {
            let moved = self.edges.len();
            self.edges.extend_from_within(start..start + count);
            self.nodes[slot].start = moved;
        }
        self.edges.push(from);
        self.nodes[slot].count += 1;
        Ok(())
    }

    pub(super) fn unlink(
        &mut self,
        graph: usize,
        from: Dependency,
        to: NodeHandle,
    ) -> Fallible<()> {
        self.check(graph, Dependency::full(to), NodeKind::KERNEL)?;
        let position = self
            .dependencies(to)?
            .iter()
            .position(|other| *other == from)
            .ok_or(ErrorKind::InvalidValue)?;
        let node = &mut self.nodes[slots::of_node(to)];
        let range = node.start + position..node.start + node.count as usize;
        node.count -= 1;
        self.edges[range].rotate_left(1);
        Ok(())
    }

    /// Makes a graph of another one's nodes, which has none from then on.
    pub(super) fn move_nodes(&mut self, from: usize) -> usize {
        let to = self.create(false);
        let nodes = std::mem::take(&mut self.graphs[from].nodes);
        for &node in &nodes {
            self.nodes[slots::of_node(node)].graph = Some(short(to));
        }
        self.graphs[to].backward = std::mem::take(&mut self.graphs[from].backward);
        self.graphs[to].nodes = nodes;
        to
    }

    /// Destroys a graph and the bodies of its conditional nodes.
    pub(super) fn destroy(&mut self, graph: usize) {
        let mut doomed = vec![graph];
        while let Some(graph) = doomed.pop() {
            self.graphs[graph].alive = false;
            for node in std::mem::take(&mut self.graphs[graph].nodes) {
                let node = &mut self.nodes[slots::of_node(node)];
                node.graph = None;
                doomed.extend(node.body.map(|body| body as usize));
            }
        }
    }

    /// Whether the graph or a body in it is under capture.
    pub(super) fn any_capturing(&self, graph: usize) -> bool {
        let mut found = vec![graph];
        while let Some(graph) = found.pop() {
            if self.graphs[graph].capturing {
                return true;
            }
            for node in &self.graphs[graph].nodes {
                let body = self.nodes[slots::of_node(*node)].body;
                found.extend(body.map(|body| body as usize));
            }
        }
        false
    }

    /// Whether all of `wanted` are among `from` or before them by paths of edges that `passes`.
    pub(super) fn reaches(
        &self,
        graph: usize,
        from: impl Iterator<Item = NodeHandle>,
        mut wanted: Vec<NodeHandle>,
        passes: impl Fn(EdgeData) -> bool,
    ) -> bool {
        let nodes = &self.graphs[graph].nodes;
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else {
            return wanted.is_empty();
        };
        // Slots grow with time, so that a graph's nodes lie between its first and its last.
        let first = slots::of_node(*first);
        let mut seen = FixedBitSet::with_capacity(slots::of_node(*last) - first + 1);
        let mut found: Vec<NodeHandle> = from.collect();
        while let Some(node) = found.pop() {
            if wanted.is_empty() {
                break;
            }
            if seen.put(slots::of_node(node) - first) {
                continue;
            }
            wanted.retain(|other| *other != node);
            let before = self.dependencies(node).unwrap_or_default();
            found.extend(before.iter().filter(|it| passes(it.edge)).map(|it| it.node));
        }
        wanted.is_empty()
    }

    fn precedes(&self, graph: usize, earlier: NodeHandle, later: NodeHandle) -> bool {
        self.reaches(graph, std::iter::once(later), vec![earlier], |_| true)
    }
}
