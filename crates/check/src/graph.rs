//! The finished graph, as the driver tells it now, beside the edges that the journal remembers.
//!
//! Nodes are numbered in a topological order, so "earlier" is "smaller" everywhere else.

use super::finished::FinishedGraph;
use super::lists::{sort, Lists};
use super::numbers::Numbers;
use super::violation::Violation;
use regraph_driver::{Dependency, EdgeData, NodeHandle};
use regraph_record::journal::Journal;
use regraph_record::policy::Programmatic;

/// What an edge proves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The later node starts when the earlier one has completed.
    Full,
    /// The later node starts after the earlier one starts, and completes after it completes.
    Start,
    Nothing,
}

fn proof(edge: EdgeData, programmatic: Programmatic) -> Proof {
    match (edge.kind, edge.from_port, edge.to_port) {
        (0, 0, 0) => Proof::Full,
        (1, 1, 0) => match programmatic {
            Programmatic::Deny => Proof::Nothing,
            Programmatic::Auto | Programmatic::Lag => Proof::Start,
            Programmatic::Trust => Proof::Full,
        },
        _ => Proof::Nothing,
    }
}

/// An edge, seen from its later node.
#[derive(Clone, Copy)]
pub(crate) struct Edge {
    pub from: u32,
    /// Whether it proves completion; otherwise it proves an order of starts.
    pub full: bool,
}

/// The finished graph beside the remembered edges.
pub(crate) struct Graph {
    handles: Vec<NodeHandle>,
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
#[derive(Default)]
struct Finished {
    /// Where each node's edges end; begins with a zero.
    ends: Vec<u32>,
    edges: Vec<Edge>,
    proofs: Vec<Proof>,
    /// Whether none leads back in the driver's order.
    ordered: bool,
}

impl Finished {
    fn of(&self, to: u32) -> &[Edge] {
        &self.edges[self.ends[to as usize] as usize..self.ends[to as usize + 1] as usize]
    }

    /// Later node, edge and what it proves.
    fn iter(&self) -> impl Iterator<Item = (u32, Edge, Proof)> + Clone + '_ {
        (0..self.ends.len() as u32 - 1).flat_map(move |to| {
            let start = self.ends[to as usize] as usize;
            let proofs = &self.proofs[start..self.ends[to as usize + 1] as usize];
            self.of(to).iter().zip(proofs).map(move |(&edge, &proof)| (to, edge, proof))
        })
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

impl Graph {
    pub fn read(
        journal: &Journal,
        programmatic: Programmatic,
        graph: &FinishedGraph,
    ) -> Result<Self, Violation> {
        let handles = graph.nodes().to_vec();
        let mut numbers = Numbers::with_capacity(handles.len());
        for (index, &handle) in handles.iter().enumerate() {
            numbers.insert(handle.bits() as u64, index as u32);
        }
        let finished = Self::numbered(graph, &numbers, programmatic)?;
        let edits = Self::compare(journal, &handles, &numbers, &finished)?;
        let mut read = Self {
            handles,
            numbers,
            proofs: Lists::ready(Vec::new(), Vec::new()),
            others: None,
            starts: finished.proofs.contains(&Proof::Start),
            any_ordered: true,
        };
        let rank = read.order(&finished, &edits)?;
        read.fill(rank.as_deref(), finished, &edits);
        Ok(read)
    }

    /// All edges of the finished graph.
    fn numbered(
        graph: &FinishedGraph,
        numbers: &Numbers,
        programmatic: Programmatic,
    ) -> Result<Finished, Violation> {
        let mut finished = Finished::default();
        finished.ends.reserve(graph.nodes().len() + 1);
        finished.edges.reserve(graph.dependencies().len());
        finished.proofs.reserve(graph.dependencies().len());
        finished.ends.push(0);
        finished.ordered = true;
        for (to, dependencies) in (0..).zip(graph.by_node()) {
            for &Dependency { node, edge } in dependencies {
                let from = numbers.node(node)?;
                let proof = proof(edge, programmatic);
                finished.ordered &= from < to;
                finished.edges.push(Edge { from, full: proof == Proof::Full });
                finished.proofs.push(proof);
            }
            finished.ends.push(finished.edges.len() as u32);
        }
        Ok(finished)
    }

    /// What differs from the finished graph of the journal's edges.
    fn compare(
        journal: &Journal,
        handles: &[NodeHandle],
        numbers: &Numbers,
        finished: &Finished,
    ) -> Result<Edits, Violation> {
        let number = |node: NodeHandle| numbers.node(node);
        let mut edits = Edits::default();
        for (node, dependencies) in journal.nodes() {
            let to = number(node)?;
            let now = finished.of(to);
            let is = |(edge, dependency): (&Edge, Dependency)| {
                handles[edge.from as usize] == dependency.node
            };
            if now.len() == dependencies.len() && now.iter().zip(dependencies.iter()).all(is) {
                continue;
            }
            for dependency in dependencies.iter() {
                number(dependency.node)?;
            }
            edits.edited.resize(handles.len(), false);
            if std::mem::replace(&mut edits.edited[to as usize], true) {
                continue;
            }
            for dependency in dependencies.iter() {
                let edge = (number(dependency.node)?, to);
                edits.remembered.push(edge);
                // A long list is not searched: an edge twice does no harm.
                if now.len() > 64 || now.iter().all(|it| it.from != edge.0) {
                    edits.added.push(edge);
                }
            }
        }
        Ok(edits)
    }

    /// Orders the nodes. Answers the new number of each where the driver's order does not do.
    fn order(&mut self, finished: &Finished, edits: &Edits) -> Result<Option<Vec<u32>>, Violation> {
        let edges = || finished.iter().map(|(to, edge, _)| (edge.from, to));
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
        let renumber = |edge: Edge| Edge { from: number(edge.from), ..edge };
        // A node whose edges are all gone is edited, too, and so is one that had none.
        let whole = edits.edited.is_empty() && !finished.proofs.contains(&Proof::Nothing);
        if whole && rank.is_none() {
            self.proofs = Lists::ready(finished.ends, finished.edges);
            return;
        }
        let proofs = finished.iter().filter(|&(.., proof)| proof != Proof::Nothing);
        self.proofs = Lists::new(count, proofs.map(|(to, edge, _)| (number(to), renumber(edge))));
        if whole {
            return;
        }
        let untyped =
            |(from, to): (u32, u32)| (number(to), Edge { from: number(from), full: true });
        let is_edited = |to: u32| edits.edited.get(to as usize).is_some_and(|&edited| edited);
        let edges = finished.iter().map(|(to, edge, _)| (edge.from, to));
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
        self.numbers.node(node)
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

    /// Successors by edges of any kind.
    pub fn successors(&self) -> Lists<u32> {
        self.any().turned(|edge| edge.from)
    }
}
