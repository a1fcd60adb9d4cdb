//! A capture as a graph of `petgraph`'s, for looking at and for its algorithms.
//!
//! ```
//! use petgraph::algo::toposort;
//! use regraph_trace::graph::{Dag, Edge};
//!
//! let lines = r#"{"op":"begin","stream":0,"pool":0}
//! {"op":"alloc","id":0,"bytes":4096,"stream":0}
//! {"op":"kernel","stream":0}
//! {"op":"free","id":0}
//! {"op":"wait","stream":1,"on":0}
//! {"op":"alloc","id":1,"bytes":4096,"stream":1}
//! {"op":"kernel","stream":1}
//! {"op":"end"}"#;
//! let trace = regraph_trace::read(lines.as_bytes()).unwrap();
//! let dag = Dag::new(&trace, 0).unwrap();
//! assert_eq!(toposort(dag.graph(), None).unwrap().len(), 2);
//! assert!(dag.graph().edge_weights().all(|edge| *edge == Edge::Full));
//!
//! // Were both blocks at one address: the path that proves it right.
//! let reuses = dag.reuses(|_| Some(0x1000), Default::default());
//! assert_eq!((reuses[0].from, reuses[0].to), (0, 1));
//! assert_eq!(reuses[0].proofs[0].path, [0, 1]);
//! ```

mod dot;
mod proof;
mod svg;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use petgraph::graph::{DiGraph, NodeIndex as Place};
use petgraph::visit::EdgeRef;
use petgraph::Direction;

use super::{BlockIndex, Members, NodeIndex, Operation, StreamIndex, Trace};
pub use dot::dot;
pub use proof::{Proof, Reuse};
pub use svg::svg;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A kernel.
    Kernel,
    /// A node of this type (`CUgraphNodeType`).
    Other(u32),
    /// The trace does not say.
    Unknown,
}

impl Kind {
    fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::Other(0))
    }

    /// The driver's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel | Self::Other(0) => "kernel",
            Self::Other(1) => "memcpy",
            Self::Other(2) => "memset",
            Self::Other(3) => "host",
            Self::Other(4) => "graph",
            Self::Other(5) => "empty",
            Self::Other(6) => "wait event",
            Self::Other(7) => "record event",
            Self::Other(10) => "alloc",
            Self::Other(11) => "free",
            Self::Other(13) => "conditional",
            Self::Other(_) | Self::Unknown => "node",
        }
    }
}

/// What an edge promises. Traces know these two; an edge from a port that promises less is not in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Edge {
    /// The first node is completed before the second one starts.
    Full,
    /// The first node has started before the second one does.
    Programmatic,
}

/// One node. Its place in launch order is its index in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Its kernel's name, where the trace says it.
    pub label: Option<String>,
    /// The stream that it was launched on; of the raw form, the first stream whose terminals were it or came after it.
    pub stream: Option<StreamIndex>,
    /// Blocks that it is the first to be able to use, on their own stream.
    pub allocated: Vec<BlockIndex>,
    /// Blocks that it can use: allocated and not freed on its stream, and those that the trace says it touches.
    pub used: Vec<BlockIndex>,
    /// Blocks that it is a free marker of: their memory goes to others once all of them are completed.
    pub freed: Vec<BlockIndex>,
}

/// One block that the capture allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// Its name in the trace.
    pub id: BlockIndex,
    /// What the trace says of it: a name, a line of code.
    pub label: Option<String>,
    /// Its size, as asked for.
    pub bytes: u64,
    /// Its own stream.
    pub stream: StreamIndex,
    /// What its stream's next node follows at its allocation: what uses it comes behind all of these.
    pub after: Vec<NodeIndex>,
    /// Whether its stream was in the capture at its allocation. The graph may not rely on others.
    pub inside: bool,
    /// The nodes that can use it, in launch order.
    pub users: Vec<NodeIndex>,
    /// Its free markers, in launch order; `None` where it was not freed.
    pub markers: Option<Vec<NodeIndex>>,
    /// The first of its users on its own stream, else on any.
    pub first: Option<NodeIndex>,
    /// By operations: from its allocation to its free, or the end of all.
    life: Range<usize>,
}

/// A captured graph.
#[derive(Clone, Debug)]
pub struct Dag {
    graph: DiGraph<Node, Edge>,
    blocks: Vec<Block>,
}

impl Dag {
    /// The graph of a capture of a trace, counted from 0; `None` where there are fewer.
    ///
    /// Takes time linear in operations, edges, and blocks times the nodes that can use them.
    pub fn new(trace: &Trace, capture: usize) -> Option<Self> {
        let begins = |operation: &Operation| matches!(operation, Operation::Begin { .. });
        let all = trace.operations();
        let begin = (0..all.len()).filter(|&at| begins(&all[at])).nth(capture)?;
        let Operation::Begin { stream, .. } = all[begin] else { return None };
        let rest = &all[begin + 1..];
        let end = rest.iter().position(|operation| matches!(operation, Operation::End {}));
        let mut dag = Self::of(stream, &rest[..end.unwrap_or(rest.len())]);
        let labels = trace.labels();
        for (number, node) in dag.graph.node_weights_mut().enumerate() {
            let name = labels.node_name(capture, number as NodeIndex);
            node.label = name.map(str::to_owned);
        }
        for block in &mut dag.blocks {
            block.label = labels.describe(block.id);
        }
        Some(dag)
    }

    /// The graph of a capture that begins on a stream, of the operations between its begin and its end.
    pub fn of(origin: StreamIndex, operations: &[Operation]) -> Self {
        Reader::new(origin, operations).read()
    }

    /// The nodes that a node is behind by full edges.
    pub fn before(&self, node: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
        let edges = self.graph.edges_directed(at(node), Direction::Incoming);
        let full = edges.filter(|edge| *edge.weight() == Edge::Full);
        full.map(|edge| edge.source().index() as NodeIndex)
    }

    /// Its nodes, in launch order, and their edges.
    pub fn graph(&self) -> &DiGraph<Node, Edge> {
        &self.graph
    }

    /// The blocks that the capture allocated, in that order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}

/// Which nodes are drawn: those of the numbers, in launch order, with the blocks that they can use.
#[derive(Clone, Debug)]
pub struct Window(pub Range<u32>);

impl Window {
    fn of(&self, dag: &Dag) -> Range<u32> {
        let count = dag.graph.node_count() as u32;
        self.0.start.min(count)..self.0.end.min(count)
    }

    /// What is left out, in words.
    fn remark(&self, dag: &Dag) -> Option<String> {
        let (shown, count) = (self.of(dag), dag.graph.node_count());
        (shown.len() < count).then(|| match shown.len() {
            0 => format!("none of {count} nodes"),
            _ => format!("nodes {} to {} of {count}", shown.start, shown.end - 1),
        })
    }
}

/// What is wrong with a capture: drawn in red.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrong {
    /// In words.
    pub text: String,
    /// The blocks that it is about.
    pub blocks: Vec<BlockIndex>,
    /// The nodes that it is about. Two of them have no order.
    pub nodes: Vec<NodeIndex>,
}

impl Wrong {
    /// Two nodes without an order, where both are shown.
    fn pair(&self, shown: &Range<u32>) -> Option<[NodeIndex; 2]> {
        let pair = <[NodeIndex; 2]>::try_from(self.nodes.as_slice()).ok()?;
        pair.iter().all(|node| shown.contains(node)).then_some(pair)
    }
}

/// A node's place in the graph.
fn at(number: NodeIndex) -> Place {
    Place::new(number as usize)
}

/// A block that is being read.
struct Open {
    /// By stream: the number of nodes at the last use, and the terminals then.
    streams: BTreeMap<StreamIndex, Option<(usize, Vec<NodeIndex>)>>,
    /// The number of nodes at the allocation.
    since: usize,
    touched: Vec<NodeIndex>,
}

struct Reader<'a> {
    operations: &'a [Operation],
    members: Members,
    terminals: BTreeMap<StreamIndex, Vec<NodeIndex>>,
    /// The nodes that were launched, by stream.
    launched: BTreeMap<StreamIndex, Vec<NodeIndex>>,
    open: HashMap<BlockIndex, (usize, Open)>,
    dag: Dag,
}

impl<'a> Reader<'a> {
    fn new(origin: StreamIndex, operations: &'a [Operation]) -> Self {
        Self {
            operations,
            members: Members::new(origin, operations),
            terminals: BTreeMap::new(),
            launched: BTreeMap::new(),
            open: HashMap::new(),
            dag: Dag { graph: DiGraph::new(), blocks: Vec::new() },
        }
    }

    fn read(mut self) -> Dag {
        for (now, operation) in self.operations.iter().enumerate() {
            for stream in operation.streams() {
                self.members.enters_at_once(stream);
            }
            self.step(now, operation);
        }
        // What was not freed is used to the end.
        let mut rest: Vec<_> = self.open.drain().map(|(_, it)| it).collect();
        rest.sort_by_key(|(row, _)| *row);
        for (row, open) in rest {
            self.close(row, &open, None);
        }
        for (row, block) in self.dag.blocks.iter().enumerate() {
            let id = self.dag.blocks[row].id;
            if let Some(first) = block.first {
                self.dag.graph[at(first)].allocated.push(id);
            }
            for &user in &block.users {
                self.dag.graph[at(user)].used.push(id);
            }
            for &marker in block.markers.iter().flatten() {
                self.dag.graph[at(marker)].freed.push(id);
            }
        }
        self.dag
    }

    fn step(&mut self, now: usize, operation: &Operation) {
        let count = self.dag.graph.node_count();
        match *operation {
            Operation::Kernel { stream, ref uses, programmatic } => {
                let after = self.terminals.get(&stream).cloned().unwrap_or_default();
                let early: &[NodeIndex] = if programmatic { &after } else { &[] };
                let node = self.add(Kind::Kernel, Some(stream), &after, early, uses);
                self.launched.entry(stream).or_default().push(node);
                self.terminals.insert(stream, vec![node]);
            }
            Operation::Node { ref after, kind, ref uses, ref programmatic, .. } => {
                let kind = kind.map_or(Kind::Unknown, Kind::Other);
                self.add(kind, None, after, programmatic, uses);
            }
            Operation::Wait { stream, on } => {
                if self.members.waits(stream, on) {
                    let others = self.terminals.get(&on).cloned().unwrap_or_default();
                    let own = self.terminals.entry(stream).or_default();
                    let known: BTreeSet<_> = own.iter().copied().collect();
                    own.extend(others.iter().filter(|node| !known.contains(node)));
                }
            }
            Operation::Terminals { stream, ref nodes } => {
                // With what lies before them and no stream was seen to launch.
                let mut open = nodes.clone();
                while let Some(node) = open.pop() {
                    let own = &mut self.dag.graph[at(node)].stream;
                    if own.is_none() {
                        *own = Some(stream);
                        self.launched.entry(stream).or_default().push(node);
                        let before =
                            self.dag.graph.neighbors_directed(at(node), Direction::Incoming);
                        open.extend(before.map(|node| node.index() as NodeIndex));
                    }
                }
                self.terminals.insert(stream, nodes.clone());
            }
            Operation::Alloc { id, bytes, stream } => {
                let row = self.dag.blocks.len();
                let life = now..self.operations.len();
                let block = Block {
                    id,
                    label: None,
                    bytes,
                    stream,
                    after: self.terminals.get(&stream).cloned().unwrap_or_default(),
                    inside: self.members.is_inside(stream),
                    users: Vec::new(),
                    markers: None,
                    first: None,
                    life,
                };
                self.dag.blocks.push(block);
                let streams = BTreeMap::from([(stream, None)]);
                self.open.insert(id, (row, Open { streams, since: count, touched: Vec::new() }));
            }
            Operation::Use { id, stream } => {
                if let Some((_, open)) = self.open.get_mut(&id) {
                    open.streams.insert(stream, None);
                }
            }
            Operation::LastUse { id, stream } => {
                let terminals = self.terminals.get(&stream).cloned().unwrap_or_default();
                if let Some((_, open)) = self.open.get_mut(&id) {
                    open.streams.insert(stream, Some((count, terminals)));
                }
            }
            Operation::Free { id } => {
                if let Some((row, open)) = self.open.remove(&id) {
                    self.close(row, &open, Some(now));
                }
            }
            Operation::Begin { .. } | Operation::End {} => {}
        }
    }

    fn add(
        &mut self,
        kind: Kind,
        stream: Option<StreamIndex>,
        after: &[NodeIndex],
        early: &[NodeIndex],
        uses: &[BlockIndex],
    ) -> NodeIndex {
        let graph = &mut self.dag.graph;
        let (allocated, used, freed) = (Vec::new(), Vec::new(), Vec::new());
        let node = graph.add_node(Node { kind, label: None, stream, allocated, used, freed });
        for &other in after {
            // Only kernels let others start early.
            let programmatic = early.contains(&other) && graph[at(other)].kind.is_kernel();
            let edge = if programmatic { Edge::Programmatic } else { Edge::Full };
            graph.add_edge(at(other), node, edge);
        }
        let number = node.index() as NodeIndex;
        for id in uses {
            if let Some((_, open)) = self.open.get_mut(id) {
                open.touched.push(number);
            }
        }
        number
    }

    /// Ends a block, with its free or without.
    fn close(&mut self, row: usize, open: &Open, freed: Option<usize>) {
        let count = self.dag.graph.node_count();
        let mut users: BTreeSet<NodeIndex> = open.touched.iter().copied().collect();
        let mut markers = BTreeSet::new();
        for (stream, last) in &open.streams {
            let until = last.as_ref().map_or(count, |(count, _)| *count);
            let launched = self.launched.get(stream).map_or(&[][..], Vec::as_slice);
            let own = launched.iter().filter(|&&it| (open.since..until).contains(&(it as usize)));
            users.extend(own);
            let now = self.terminals.get(stream).map_or(&[][..], Vec::as_slice);
            markers.extend(last.as_ref().map_or(now, |(_, terminals)| terminals));
        }
        let block = &mut self.dag.blocks[row];
        let own = |node: &&NodeIndex| self.dag.graph[at(**node)].stream == Some(block.stream);
        block.first = users.iter().find(own).or(users.first()).copied();
        if let Some(freed) = freed {
            block.life.end = freed;
            // One that no node can have used waits for none.
            let markers = if users.is_empty() { BTreeSet::new() } else { markers };
            block.markers = Some(markers.into_iter().collect());
        }
        block.users = users.into_iter().collect();
    }
}
