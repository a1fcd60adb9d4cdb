//! The finished graph, as the driver tells it now, beside the edges that the journal remembers.
//!
//! Nodes are numbered in a topological order, so "earlier" is "smaller" everywhere else.

use std::borrow::Cow;

use super::finished::FinishedGraph;
use super::lists::{sort, Lists};
use super::numbers::Numbers;
use super::violation::Violation;
use regraph_driver::{EdgeData, NodeHandle};
use regraph_record::journal::Journal;
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
    numbers: Numbers,
    proofs: Lists<Edge>,
    /// Nothing where all edges prove something and none was edited: then they are the proofs.
    others: Option<Others>,
    /// Whether some of the proofs are about starts only.
    starts: bool,
    /// Whether the edges of any kind go from smaller to larger numbers only. Edits can undo that:
    /// an edge taken away and put back the other way round.
    pub any_ordered: bool,
}

struct Others {
    seen: Lists<Edge>,
    any: Lists<Edge>,
}

/// The finished graph's edges by the driver's order of nodes.
struct Finished {
    edges: Lists<Edge>,
    /// All that its edges prove, one bit for each kind.
    proofs: u32,
    /// Whether none leads back in the driver's order.
    ordered: bool,
}

impl Finished {
    /// Later node and edge.
    fn iter(&self) -> impl Iterator<Item = (u32, Edge)> + Clone + '_ {
        let nodes = 0..self.edges.len() as u32;
        nodes.flat_map(move |to| self.edges.of(to).iter().map(move |&edge| (to, edge)))
    }
}

/// What the journal remembers otherwise than it is now: earlier and later node.
#[derive(Default)]
struct Edits {
    edited: Vec<bool>,
    remembered: Vec<(u32, u32)>,
    /// Those of them that the finished graph lacks.
    added: Vec<(u32, u32)>,
}

impl<'a> Graph<'a> {
    pub fn read(
        journal: &Journal,
        programmatic: Programmatic,
        graph: &'a FinishedGraph,
    ) -> Result<Self, Violation> {
        let handles = graph.nodes();
        assert!(handles.len() <= Edge::FROM as usize, "a graph of so many nodes is not judged");
        let mut numbers = Numbers::with_capacity(handles.len());
        for (index, &handle) in handles.iter().enumerate() {
            numbers.insert(handle.bits() as u64, index as u32, |it| key(handles, it));
        }
        let mut read = Self {
            handles: Cow::Borrowed(handles),
            numbers,
            proofs: Lists::ready(vec![0], Vec::new()),
            others: None,
            starts: false,
            any_ordered: true,
        };
        let finished = read.numbered(graph, programmatic)?;
        let edits = read.compare(journal, graph, &finished.edges)?;
        read.starts = finished.proofs & Edge::START != 0;
        let rank = read.order(&finished, &edits)?;
        read.fill(rank.as_deref(), finished, &edits);
        Ok(read)
    }

    /// All edges of the finished graph.
    fn numbered(
        &self,
        graph: &FinishedGraph,
        programmatic: Programmatic,
    ) -> Result<Finished, Violation> {
        let mut starts = Vec::with_capacity(self.len() + 1);
        let mut edges = Vec::with_capacity(graph.edges());
        let (mut proofs, mut ordered) = (0, true);
        starts.push(0);
        for to in 0..self.len() as u32 {
            for &node in graph.dependencies(to) {
                let from = self.number(node)?;
                ordered &= from < to;
                edges.push(Edge(from));
            }
            starts.push(edges.len() as u32);
        }
        for &(at, edge) in graph.others() {
            let proof = Edge::proof(edge, programmatic);
            proofs |= proof;
            edges[at as usize].0 |= proof;
        }
        Ok(Finished { edges: Lists::ready(starts, edges), proofs, ordered })
    }

    /// What differs from the finished graph of the journal's edges.
    fn compare(
        &self,
        journal: &Journal,
        graph: &FinishedGraph,
        finished: &Lists<Edge>,
    ) -> Result<Edits, Violation> {
        let number = |node: NodeHandle| self.number(node);
        let mut edits = Edits::default();
        for (node, dependencies) in journal.nodes() {
            let to = number(node)?;
            let now = graph.dependencies(to).iter().copied();
            if now.eq(dependencies.iter().map(|dependency| dependency.node)) {
                continue;
            }
            let now = finished.of(to);
            for dependency in dependencies.iter() {
                number(dependency.node)?;
            }
            edits.edited.resize(self.len(), false);
            if std::mem::replace(&mut edits.edited[to as usize], true) {
                continue;
            }
            for dependency in dependencies.iter() {
                let edge = (number(dependency.node)?, to);
                edits.remembered.push(edge);
                // A long list is not searched: an edge twice does no harm.
                if now.len() > 64 || now.iter().all(|it| it.from() != edge.0) {
                    edits.added.push(edge);
                }
            }
        }
        Ok(edits)
    }

    /// Orders the nodes. Answers the new number of each where the driver's order does not do.
    fn order(&mut self, finished: &Finished, edits: &Edits) -> Result<Option<Vec<u32>>, Violation> {
        let edges = || finished.iter().map(|(to, edge)| (edge.from(), to));
        let all = || edges().chain(edits.added.iter().copied());
        if finished.ordered && edits.added.iter().all(|&(from, to)| from < to) {
            return Ok(None);
        }
        let count = self.handles.len();
        let order = match sort(count, all()) {
            Ok(order) => order,
            Err(_) => {
                self.any_ordered = false;
                let stuck = |node| Violation::Cyclic { node: self.handles[node as usize] };
                sort(count, edges()).map_err(stuck)?
            }
        };
        let mut rank = vec![0_u32; count];
        for (new, &old) in order.iter().enumerate() {
            rank[old as usize] = new as u32;
        }
        self.handles = order.iter().map(|&old| self.handles[old as usize]).collect();
        self.numbers.change(|number| rank[number as usize]);
        Ok(Some(rank))
    }

    /// Sorts the edges into lists.
    fn fill(&mut self, rank: Option<&[u32]>, finished: Finished, edits: &Edits) {
        let count = self.handles.len();
        let number = |node: u32| rank.map_or(node, |rank| rank[node as usize]);
        let renumber = |edge: Edge| Edge(number(edge.from()) | edge.0 & !Edge::FROM);
        // A node whose edges are all gone is edited, too, and so is one that had none.
        let whole = edits.edited.is_empty() && finished.proofs & Edge::NOTHING == 0;
        if whole && rank.is_none() {
            self.proofs = finished.edges;
            return;
        }
        let proofs = finished.iter().filter(|(_, edge)| edge.0 & Edge::NOTHING == 0);
        self.proofs = Lists::new(count, proofs.map(|(to, edge)| (number(to), renumber(edge))));
        if whole {
            return;
        }
        let untyped = |(from, to): (u32, u32)| (number(to), Edge(number(from)));
        let is_edited = |to: u32| edits.edited.get(to as usize).is_some_and(|&edited| edited);
        let edges = finished.iter().map(|(to, edge)| (edge.from(), to));
        let kept = edges.clone().filter(|&(_, to)| !is_edited(to));
        let seen = kept.chain(edits.remembered.iter().copied()).map(untyped);
        let any = edges.chain(edits.added.iter().copied()).map(untyped);
        self.others = Some(Others { seen: Lists::new(count, seen), any: Lists::new(count, any) });
    }

    pub fn len(&self) -> usize {
        self.handles.len()
    }

    #[inline]
    pub fn handle(&self, node: u32) -> NodeHandle {
        self.handles[node as usize]
    }

    #[inline]
    pub fn number(&self, node: NodeHandle) -> Result<u32, Violation> {
        match self.numbers.get(node.bits() as u64, |it| key(&self.handles, it)) {
            Some(number) => Ok(number),
            None => Err(Violation::UnknownNode { node }),
        }
    }

    /// Gives back the memory that [`Graph::number`] needs, which finds no node from then on.
    pub fn forget_numbers(&mut self) {
        self.numbers = Numbers::with_capacity(0);
    }

    /// The finished graph's edges that prove something under the policy.
    pub fn proofs(&self) -> &Lists<Edge> {
        &self.proofs
    }

    /// Each node's predecessors when it was first seen, by edges of any kind; those it has now
    /// where no look was taken. An edge that the user added since is not among them, so a node that
    /// such an edge put before an older one is not mistaken for an old one.
    pub fn seen(&self) -> &Lists<Edge> {
        self.others.as_ref().map_or(&self.proofs, |others| &others.seen)
    }

    /// Predecessors by edges of any kind, of the finished graph and remembered ones.
    pub fn any(&self) -> &Lists<Edge> {
        self.others.as_ref().map_or(&self.proofs, |others| &others.any)
    }

    /// Whether the three are the same edges: all prove something, and none was edited.
    pub fn is_whole(&self) -> bool {
        self.others.is_none()
    }

    /// Whether some of the proofs are about starts only.
    pub fn has_starts(&self) -> bool {
        self.starts
    }
}

/// A node's handle, as a key.
#[inline]
fn key(handles: &[NodeHandle], node: u32) -> u64 {
    handles[node as usize].bits() as u64
}
