//! The finished graph, as the driver tells it now, beside the edges that the journal remembers.
//!
//! Nodes are numbered in a topological order, so "earlier" is "smaller" everywhere else.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::RangeInclusive;

use super::finished::FinishedGraph;
use super::lists::{sort, Lists};
use super::numbers::Numbers;
use super::violation::Violation;
use regraph_driver::{Dependency, EdgeData, NodeHandle};
use regraph_record::journal::Nodes;
use regraph_record::policy::Programmatic;

/// An edge, seen from its later node: the number of the earlier one, and above it what the edge proves.
#[derive(Clone, Copy)]
pub(crate) struct Edge(u32);

impl Edge {
    /// The later node starts when the earlier one has completed.
    const FULL: u32 = 0;
    /// The later node starts after the earlier one starts, and completes after it completes.
    const START: u32 = 1 << 30;
    const NOTHING: u32 = 1 << 31;
    /// The bits of the earlier node.
    const FROM: u32 = Self::START - 1;

    fn proof(edge: EdgeData, programmatic: Programmatic) -> u32 {
        match (edge.kind, edge.from_port, edge.to_port) {
            (0, 0, 0) => Self::FULL,
            (1, 1, 0) => match programmatic {
                Programmatic::Deny => Self::NOTHING,
                Programmatic::Auto | Programmatic::Lag => Self::START,
                Programmatic::Trust => Self::FULL,
            },
            _ => Self::NOTHING,
        }
    }

    #[inline]
    pub fn from(self) -> u32 {
        self.0 & Self::FROM
    }

    /// Whether it proves completion; otherwise it proves an order of starts, among proofs.
    #[inline]
    pub fn full(self) -> bool {
        self.0 <= Self::FROM
    }
}

/// The finished graph beside the remembered edges.
pub(crate) struct Graph<'a> {
    handles: Cow<'a, [NodeHandle]>,
    any: Lists<Edge>,
    /// Nothing where all edges prove something and none was edited: then they are all edges.
    proofs: Option<Lists<Edge>>,
    /// Nothing where none was edited.
    seen: Option<Lists<Edge>>,
    /// The nodes with an edge that proves nothing, or with edges that were edited, in order.
    loose: Vec<u32>,
    /// The nodes that an edge leads on from which proves an order of starts only, in order.
    early: Vec<u32>,
    /// Whether the edges of any kind go from smaller to larger numbers only. Edits can undo that:
    /// an edge taken away and put back the other way round.
    pub any_ordered: bool,
}

/// What lists of edges are made of.
pub(crate) type EdgeLists = (Vec<u32>, Vec<Edge>);

/// Among so many nodes one is looked for where it is expected.
const NEAR: usize = 32;

/// The finished graph by the driver's order of nodes, while the journal is read and compared with it.
pub(crate) struct Draft<'a> {
    graph: &'a FinishedGraph,
    /// Of all nodes, once one is asked for that is not where it was expected.
    numbers: OnceCell<Numbers>,
    edges: Lists<Edge>,
    /// All that its edges prove, one bit for each kind.
    proofs: u32,
    /// Whether none leads back.
    ordered: bool,
    /// The node that the journal told of last.
    last: u32,
    /// The highest of those that it told of.
    highest: u32,
    edits: Edits,
}

/// What the journal remembers otherwise than it is now: earlier and later node.
#[derive(Default)]
struct Edits {
    edited: Vec<bool>,
    remembered: Vec<(u32, u32)>,
    /// Those of them that the finished graph lacks.
    added: Vec<(u32, u32)>,
}

impl<'a> Draft<'a> {
    /// All nodes and edges of the finished graph, in what `kept` has allocated.
    pub fn read(
        programmatic: Programmatic,
        graph: &'a FinishedGraph,
        kept: EdgeLists,
    ) -> Result<Self, Violation> {
        let handles = graph.nodes();
        assert!(handles.len() <= Edge::FROM as usize, "a graph of so many nodes is not judged");
        let numbers = OnceCell::new();
        let edges = Lists::ready(Vec::new(), Vec::new());
        let (proofs, ordered, last, highest) = (0, true, 0, 0);
        let edits = Edits::default();
        let mut draft = Self { graph, numbers, edges, proofs, ordered, last, highest, edits };
        let (mut starts, mut edges) = kept;
        edges.clear();
        edges.reserve(graph.edges());
        for to in 0..handles.len() as u32 {
            for &node in graph.dependencies(to) {
                let before = to.wrapping_sub(1);
                let from = draft.number_near(node, before, to.saturating_sub(NEAR as u32));
                let Some(from) = from else { return Err(Violation::UnknownNode { node }) };
                draft.ordered &= from < to;
                edges.push(Edge(from));
            }
        }
        for &(at, edge) in graph.others() {
            let proof = Edge::proof(edge, programmatic);
            draft.proofs |= proof;
            edges[at as usize].0 |= proof;
        }
        starts.clear();
        starts.extend_from_slice(graph.ends());
        draft.edges = Lists::ready(starts, edges);
        Ok(draft)
    }

    /// The number of a node, which is likely to be the guessed one or to come soon from another one on.
    #[inline]
    fn number_near(&self, node: NodeHandle, guess: u32, from: u32) -> Option<u32> {
        match self.graph.nodes().get(guess as usize) == Some(&node) {
            true => Some(guess),
            false => self.find(node, from as usize),
        }
    }

    fn find(&self, node: NodeHandle, from: usize) -> Option<u32> {
        let handles = self.graph.nodes();
        let key = |it: u32| handles[it as usize].bits() as u64;
        let numbers = match self.numbers.get() {
            Some(numbers) => numbers,
            None => {
                // Where one stream launches at a time all are near: then no table is made.
                let mut near = handles.iter().enumerate().skip(from).take(NEAR);
                if let Some((at, _)) = near.find(|&(_, &it)| it == node) {
                    return Some(at as u32);
                }
                self.numbers.get_or_init(|| {
                    let mut numbers = Numbers::with_capacity(handles.len());
                    for number in 0..handles.len() as u32 {
                        numbers.insert(key(number), number, key);
                    }
                    numbers
                })
            }
        };
        numbers.get(node.bits() as u64, key)
    }

    /// The number of a node that the journal names: mostly of the one that it told of last, or the highest of those.
    #[inline]
    pub fn number(&self, node: NodeHandle) -> Option<u32> {
        let is_highest = self.graph.nodes().get(self.highest as usize) == Some(&node);
        self.number_near(node, if is_highest { self.highest } else { self.last }, self.last)
    }

    /// Takes note where the journal remembers a node's dependencies otherwise than they are now.
    #[inline]
    pub fn compare(&mut self, node: NodeHandle, seen: Nodes<'_>) -> Result<(), Violation> {
        // What one look finds is told from the last to the first.
        let number = self.number_near(node, self.last.saturating_sub(1), self.highest);
        let Some(number) = number else { return Err(Violation::UnknownNode { node }) };
        (self.last, self.highest) = (number, self.highest.max(number));
        let now = self.graph.dependencies(self.last).iter().copied();
        match now.eq(seen.iter().map(|dependency| dependency.node)) {
            true => Ok(()),
            false => self.edited(self.last, seen),
        }
    }

    #[cold]
    fn edited(&mut self, to: u32, seen: Nodes<'_>) -> Result<(), Violation> {
        let before = seen.iter().map(|Dependency { node, .. }| {
            self.number(node).ok_or(Violation::UnknownNode { node })
        });
        let before = before.collect::<Result<Vec<u32>, Violation>>()?;
        let Edits { edited, remembered, added } = &mut self.edits;
        edited.resize(self.graph.nodes().len(), false);
        if std::mem::replace(&mut edited[to as usize], true) {
            return Ok(());
        }
        let now = self.edges.of(to);
        for from in before {
            remembered.push((from, to));
            // A long list is not searched: an edge twice does no harm.
            if now.len() > 64 || now.iter().all(|it| it.from() != from) {
                added.push((from, to));
            }
        }
        Ok(())
    }

    /// Orders the nodes. Answers the graph, and the new number of each node where the driver's order does not do.
    pub fn finish(self) -> Result<(Graph<'a>, Option<Vec<u32>>), Violation> {
        let mut graph = Graph {
            handles: Cow::Borrowed(self.graph.nodes()),
            any: Lists::ready(Vec::new(), Vec::new()),
            proofs: None,
            seen: None,
            loose: Vec::new(),
            early: Vec::new(),
            any_ordered: true,
        };
        let rank = self.order(&mut graph)?;
        self.fill(&mut graph, rank.as_deref());
        Ok((graph, rank))
    }

    /// Later node and edge.
    fn edges(&self) -> impl Iterator<Item = (u32, Edge)> + Clone + '_ {
        let nodes = 0..self.edges.len() as u32;
        nodes.flat_map(move |to| self.edges.of(to).iter().map(move |&edge| (to, edge)))
    }

    fn order(&self, graph: &mut Graph<'a>) -> Result<Option<Vec<u32>>, Violation> {
        let added = &self.edits.added;
        let edges = || self.edges().map(|(to, edge)| (edge.from(), to));
        let all = || edges().chain(added.iter().copied());
        if self.ordered && added.iter().all(|&(from, to)| from < to) {
            return Ok(None);
        }
        let count = graph.len();
        let order = match sort(count, all()) {
            Ok(order) => order,
            Err(_) => {
                graph.any_ordered = false;
                let stuck = |node| Violation::Cyclic { node: graph.handle(node) };
                sort(count, edges()).map_err(stuck)?
            }
        };
        let mut rank = vec![0_u32; count];
        for (new, &old) in order.iter().enumerate() {
            rank[old as usize] = new as u32;
        }
        graph.handles = order.iter().map(|&old| graph.handle(old)).collect();
        Ok(Some(rank))
    }

    /// Sorts the edges into lists.
    fn fill(self, graph: &mut Graph<'a>, rank: Option<&[u32]>) {
        let count = graph.len();
        let number = |node: u32| rank.map_or(node, |rank| rank[node as usize]);
        let Edits { edited, remembered, added } = &self.edits;
        // A node whose edges are all gone is edited, too, and so is one that had none.
        let is_edited = |to: u32| edited.get(to as usize).is_some_and(|&edited| edited);
        let renumber = |(to, edge): (u32, Edge)| {
            (number(to), Edge(number(edge.from()) | edge.0 & !Edge::FROM))
        };
        let renumber_ends = |&(from, to): &(u32, u32)| (number(to), Edge(number(from)));
        if !edited.is_empty() || self.proofs & Edge::NOTHING != 0 {
            let proves = |edge: &Edge| edge.0 & Edge::NOTHING == 0;
            let is_loose = |&to: &u32| is_edited(to) || !self.edges.of(to).iter().all(proves);
            graph.loose = (0..count as u32).filter(is_loose).map(number).collect();
            graph.loose.sort_unstable();
            let proofs = self.edges().filter(|(_, edge)| edge.0 & Edge::NOTHING == 0);
            graph.proofs = Some(Lists::new(count, proofs.map(renumber)));
        }
        if self.proofs & Edge::START != 0 {
            let early = self.edges().filter(|(_, edge)| edge.0 & Edge::START != 0);
            graph.early = early.map(|(_, edge)| number(edge.from())).collect();
            graph.early.sort_unstable();
            graph.early.dedup();
        }
        if edited.is_empty() && rank.is_none() {
            graph.any = self.edges;
            return;
        }
        let any = self.edges().map(renumber).chain(added.iter().map(renumber_ends));
        graph.any = Lists::new(count, any);
        if !edited.is_empty() {
            let kept = self.edges().filter(|&(to, _)| !is_edited(to)).map(renumber);
            graph.seen = Some(Lists::new(count, kept.chain(remembered.iter().map(renumber_ends))));
        }
    }
}

impl Graph<'_> {
    /// What it has allocated for its edges, for another graph.
    pub fn into_edges(self) -> EdgeLists {
        self.any.into_parts()
    }

    pub fn len(&self) -> usize {
        self.handles.len()
    }

    #[inline]
    pub fn handle(&self, node: u32) -> NodeHandle {
        self.handles[node as usize]
    }

    /// The finished graph's edges that prove something under the policy.
    pub fn proofs(&self) -> &Lists<Edge> {
        self.proofs.as_ref().unwrap_or(&self.any)
    }

    /// Each node's predecessors when it was first seen, by edges of any kind; those it has now
    /// where no look was taken. An edge that the user added since is not among them, so a node that
    /// such an edge put before an older one is not mistaken for an old one.
    pub fn seen(&self) -> &Lists<Edge> {
        self.seen.as_ref().unwrap_or(&self.any)
    }

    /// Predecessors by edges of any kind, of the finished graph and remembered ones.
    pub fn any(&self) -> &Lists<Edge> {
        &self.any
    }

    /// Whether the three are the same edges: all prove something, and none was edited.
    pub fn is_whole(&self) -> bool {
        self.proofs.is_none()
    }

    /// Whether the three are the same edges for each of these nodes.
    pub fn is_whole_in(&self, nodes: &RangeInclusive<u32>) -> bool {
        let next = self.loose.partition_point(|it| it < nodes.start());
        self.loose.get(next).is_none_or(|it| it > nodes.end())
    }

    /// Whether some of the proofs are about starts only.
    pub fn has_starts(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether what comes after a node may start before that is completed: one of the edges that lead on from it proves
    /// an order of starts only.
    pub fn leads_early(&self, node: u32) -> bool {
        self.early.binary_search(&node).is_ok()
    }
}
