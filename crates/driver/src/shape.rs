//! The shape of a graph: what an update of an executable by another graph does not change.

use std::collections::HashMap;

use super::{Dependency, EdgeData, GraphHandle, HostApi, NodeHandle, NodeKind, Result};

/// Child graphs within child graphs that are looked into.
const DEEPEST: usize = 64;

/// A graph as far as an executable of it is bound to it: its nodes in the driver's order, each with what an update
/// cannot change, and the edges between them.
///
/// Two graphs are compared node for node ([`GraphShape::is_like`]), never by a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphShape {
    nodes: Vec<PlacedNode>,
    provable: bool,
}

/// A node with what it depends on, each by its position among the graph's nodes, in the driver's order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlacedNode {
    node: NodeShape,
    child: Option<GraphShape>,
    dependencies: Vec<(usize, EdgeData)>,
}

/// What a driver tells of one node ([`HostApi::node_shape`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShape {
    kind: NodeKind,
    /// What runs: a kernel, or a function on the host. An update takes it over from the graph.
    function: Vec<usize>,
    /// Where each of the function's parameters lies among them, and its size in bytes.
    parameters: Vec<(usize, usize)>,
    /// What an update does not take over: a kernel's attributes, the kinds of memory of a copy.
    fixed: Vec<u64>,
    child: Option<GraphHandle>,
    provable: bool,
}

impl NodeShape {
    /// A node of which nothing but its kind is to be compared.
    pub fn new(kind: NodeKind) -> Self {
        Self {
            kind,
            function: Vec::new(),
            parameters: Vec::new(),
            fixed: Vec::new(),
            child: None,
            provable: true,
        }
    }

    /// A node for which it is not known what an update does to it: its graph is like no other.
    pub fn unknown(kind: NodeKind) -> Self {
        Self { provable: false, ..Self::new(kind) }
    }

    /// A child graph node, by the graph within it.
    pub fn child(graph: GraphHandle) -> Self {
        Self { child: Some(graph), ..Self::new(NodeKind::CHILD_GRAPH) }
    }

    /// Says what runs, by the driver's handles, with offset and size in bytes of each parameter.
    #[must_use]
    pub fn function(
        mut self,
        handles: impl IntoIterator<Item = usize>,
        parameters: Vec<(usize, usize)>,
    ) -> Self {
        self.function = handles.into_iter().collect();
        self.parameters = parameters;
        self
    }

    /// Says what an update does not take over.
    #[must_use]
    pub fn fixed(mut self, words: Vec<u64>) -> Self {
        self.fixed = words;
        self
    }

    fn parameter_bytes(&self) -> u64 {
        self.parameters.iter().map(|&(_, bytes)| bytes as u64).sum()
    }

    fn is_like(&self, other: &Self, functions: Functions) -> bool {
        let Self { kind, function, parameters, fixed, child: _, provable: _ } = self;
        let same = *function == other.function && *parameters == other.parameters;
        *kind == other.kind
            && *fixed == other.fixed
            && (same || (functions == Functions::Any && *kind == NodeKind::KERNEL))
    }
}

/// Which functions the nodes of two graphs of one shape run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Functions {
    /// Those of one graph at each node of the other, with parameters of the same sizes at the same places.
    #[default]
    Same,
    /// A kernel node of one may run another kernel in the other. An update takes kernels over as it does parameters;
    /// where the driver cannot, as with kernels that launch kernels, it refuses.
    Any,
}

impl GraphShape {
    /// The shape of a graph that is not under capture.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn of<D: HostApi + ?Sized>(driver: &D, graph: GraphHandle) -> Result<Self> {
        Self::within(driver, graph, 0)
    }

    fn within<D: HostApi + ?Sized>(driver: &D, graph: GraphHandle, depth: usize) -> Result<Self> {
        let mut handles = Vec::new();
        driver.nodes(graph, &mut handles)?;
        let places: HashMap<NodeHandle, usize> = handles.iter().copied().zip(0..).collect();
        let (mut nodes, mut before) = (Vec::with_capacity(handles.len()), Vec::new());
        for handle in handles {
            let mut node = driver.node_shape(handle)?;
            let child = match node.child.take() {
                Some(child) if depth < DEEPEST => Some(Self::within(driver, child, depth + 1)?),
                Some(_) => {
                    node.provable = false;
                    None
                }
                None => None,
            };
            node.provable &= child.as_ref().is_none_or(|child| child.provable);
            driver.dependencies(handle, &mut before)?;
            let place = |it: &Dependency| Some((*places.get(&it.node)?, it.edge));
            let dependencies: Vec<_> = before.iter().filter_map(place).collect();
            node.provable &= dependencies.len() == before.len();
            nodes.push(PlacedNode { node, child, dependencies });
        }
        let provable = nodes.iter().all(|it| it.node.provable) && is_paired_by_edges(&nodes);
        Ok(Self { nodes, provable })
    }

    /// Whether an executable of one of the graphs can be updated by the other, as far as nodes and edges tell:
    /// node for node of the same kind, with the same attributes and the same edges, types and ports included. The
    /// driver may refuse still. Never of graphs with nodes of which that cannot be proven.
    pub fn is_like(&self, other: &Self, functions: Functions) -> bool {
        let like = |(one, other): (&PlacedNode, &PlacedNode)| {
            one.node.is_like(&other.node, functions)
                && one.dependencies == other.dependencies
                && match (&one.child, &other.child) {
                    (Some(one), Some(other)) => one.is_like(other, functions),
                    (None, None) => true,
                    _ => false,
                }
        };
        self.provable
            && other.provable
            && self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(like)
    }

    /// How many nodes there are, those of child graphs included.
    pub fn nodes(&self) -> usize {
        self.nodes.iter().map(|it| 1 + it.child.as_ref().map_or(0, Self::nodes)).sum()
    }

    /// The bytes of the parameters of each node, those of child graphs included.
    pub fn parameter_bytes(&self) -> Vec<u64> {
        let mut bytes = Vec::new();
        for it in &self.nodes {
            bytes.push(it.node.parameter_bytes());
            bytes.extend(it.child.iter().flat_map(Self::parameter_bytes));
        }
        bytes
    }

    /// Whether some nodes may run beside each other.
    pub fn is_forked(&self) -> bool {
        let mut followed = vec![false; self.nodes.len()];
        let mut forked = self.nodes.iter().filter(|it| it.dependencies.is_empty()).count() > 1;
        for &(place, _) in self.nodes.iter().flat_map(|it| &it.dependencies) {
            forked |= std::mem::replace(&mut followed[place], true);
        }
        forked || self.nodes.iter().flat_map(|it| &it.child).any(Self::is_forked)
    }
}

/// Whether an update cannot pair a node with one that has other attributes: there is one way to pair the nodes, or all
/// ways are equally good.
///
/// Drivers pair nodes from the last ones on, along their dependencies in order, but for the order of the last nodes,
/// which no call tells. So where there are several, all nodes must have the same attributes, none may be a child graph,
/// and all edges must be ordinary.
fn is_paired_by_edges(nodes: &[PlacedNode]) -> bool {
    let mut followed = vec![false; nodes.len()];
    nodes.iter().flat_map(|it| &it.dependencies).for_each(|&(place, _)| followed[place] = true);
    let ordinary = |it: &PlacedNode| {
        it.dependencies.iter().all(|&(_, edge)| edge == EdgeData::FULL)
            && it.node.fixed == nodes[0].node.fixed
            && it.child.is_none()
    };
    followed.iter().filter(|&&followed| !followed).count() < 2 || nodes.iter().all(ordinary)
}
