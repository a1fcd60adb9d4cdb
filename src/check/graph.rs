//! The finished graph, as the driver tells it now, beside the edges that the journal remembers.
//!
//! Nodes are numbered in a topological order, so "earlier" is "smaller" everywhere else.

use ahash::AHashMap;

use super::violation::Violation;
use crate::driver::{Dependency, Driver, EdgeData, GraphHandle, NodeHandle};
use crate::journal::{Entry, Journal};
use crate::policy::Programmatic;

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
            Programmatic::Lag => Proof::Start,
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

/// One list per node, behind one another.
pub(crate) struct Lists<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy> Lists<T> {
    /// Sorts items into the lists of their keys; a stable counting sort.
    fn new(count: usize, items: impl Iterator<Item = (u32, T)> + Clone) -> Self {
        let mut starts = vec![0_u32; count + 1];
        let mut sample = None;
        for (key, item) in items.clone() {
            starts[key as usize + 1] += 1;
            sample = Some(item);
        }
        for index in 0..count {
            starts[index + 1] += starts[index];
        }
        let mut next = starts.clone();
        let mut sorted = match sample {
            Some(sample) => vec![sample; starts[count] as usize],
            None => Vec::new(),
        };
        for (key, item) in items {
            sorted[next[key as usize] as usize] = item;
            next[key as usize] += 1;
        }
        Self { starts, items: sorted }
    }

    pub fn of(&self, index: u32) -> &[T] {
        let index = index as usize;
        &self.items[self.starts[index] as usize..self.starts[index + 1] as usize]
    }

    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }
}

/// The finished graph beside the remembered edges.
pub(crate) struct Graph {
    handles: Vec<NodeHandle>,
    numbers: AHashMap<NodeHandle, u32>,
    /// The finished graph's edges that prove something under the policy.
    pub proofs: Lists<Edge>,
    /// Each node's predecessors when it was first seen, by edges of any kind; those it has now
    /// where nobody looked. An edge that the user added since is not among them, so a node that
    /// such an edge put before an older one is not mistaken for an old one.
    pub seen: Lists<u32>,
    /// Predecessors by edges of any kind, of the finished graph and remembered ones.
    pub any: Lists<Edge>,
    /// Whether `any` goes from smaller to larger numbers only. Edits can undo that: an edge taken
    /// away and put back the other way round.
    pub any_ordered: bool,
}

/// An edge by the driver's order of nodes.
#[derive(Clone, Copy)]
struct Raw {
    from: u32,
    to: u32,
    proof: Proof,
}

impl Graph {
    pub fn read<D: Driver + ?Sized>(
        journal: &Journal,
        programmatic: Programmatic,
        driver: &D,
        graph: GraphHandle,
    ) -> Result<Self, Violation> {
        let mut handles = Vec::new();
        driver.nodes(graph, &mut handles)?;
        let mut numbers = AHashMap::with_capacity(handles.len());
        for (index, &handle) in handles.iter().enumerate() {
            numbers.insert(handle, index as u32);
        }
        let number = |node: NodeHandle| -> Result<u32, Violation> {
            let found = numbers.get(&node).copied();
            found.ok_or(Violation::UnknownNode { node })
        };

        let mut finished = Vec::with_capacity(handles.len() * 2);
        let mut ends = Vec::with_capacity(handles.len() + 1);
        ends.push(0);
        let mut dependencies = Vec::new();
        for (to, &handle) in handles.iter().enumerate() {
            driver.dependencies(handle, &mut dependencies)?;
            for &Dependency { node, edge } in &dependencies {
                finished.push(Raw {
                    from: number(node)?,
                    to: to as u32,
                    proof: proof(edge, programmatic),
                });
            }
            ends.push(finished.len());
        }

        // Only what differs from the finished graph is kept of the journal's edges.
        let mut edited = vec![false; handles.len()];
        let mut remembered = Vec::new();
        let mut added = Vec::new();
        for entry in journal.iter() {
            let Entry::Node { node, dependencies } = entry else {
                continue;
            };
            let to = number(node)?;
            let now = &finished[ends[to as usize]..ends[to as usize + 1]];
            let mut same = now.len() == dependencies.len();
            for (position, dependency) in dependencies.iter().enumerate() {
                let from = number(dependency.node)?;
                same = same && now[position].from == from;
            }
            if same || edited[to as usize] {
                continue;
            }
            edited[to as usize] = true;
            for dependency in dependencies {
                let edge = (number(dependency.node)?, to);
                remembered.push(edge);
                // A long list is not searched: an edge twice does no harm.
                if now.len() > 64 || now.iter().all(|raw| raw.from != edge.0) {
                    added.push(edge);
                }
            }
        }

        let edges = || finished.iter().map(|raw| (raw.from, raw.to));
        let all = || edges().chain(added.iter().copied());
        let count = handles.len();
        let (order, any_ordered) = if all().all(|(from, to)| from < to) {
            (None, true)
        } else {
            match sort(count, all()) {
                Ok(order) => (Some(order), true),
                Err(_) => match sort(count, edges()) {
                    Ok(order) => (Some(order), false),
                    Err(stuck) => return Err(Violation::Cyclic { node: handles[stuck as usize] }),
                },
            }
        };
        if let Some(order) = order {
            let mut rank = vec![0_u32; count];
            for (new, &old) in order.iter().enumerate() {
                rank[old as usize] = new as u32;
            }
            handles = order.iter().map(|&old| handles[old as usize]).collect();
            edited = order.iter().map(|&old| edited[old as usize]).collect();
            for number in numbers.values_mut() {
                *number = rank[*number as usize];
            }
            for raw in &mut finished {
                raw.from = rank[raw.from as usize];
                raw.to = rank[raw.to as usize];
            }
            for (from, to) in remembered.iter_mut().chain(&mut added) {
                *from = rank[*from as usize];
                *to = rank[*to as usize];
            }
        }

        let proofs = finished.iter().filter(|raw| raw.proof != Proof::Nothing);
        let proofs = proofs.map(|raw| {
            let edge = Edge { from: raw.from, full: raw.proof == Proof::Full };
            (raw.to, edge)
        });
        let kept = finished.iter().filter(|raw| !edited[raw.to as usize]);
        let seen = kept.map(|raw| (raw.to, raw.from));
        let seen = seen.chain(remembered.iter().map(|&(from, to)| (to, from)));
        let any = finished.iter().map(|raw| (raw.from, raw.to));
        let any = any.chain(added.iter().copied());
        let any = any.map(|(from, to)| (to, Edge { from, full: true }));
        Ok(Self {
            proofs: Lists::new(count, proofs),
            seen: Lists::new(count, seen),
            any: Lists::new(count, any),
            any_ordered,
            numbers,
            handles,
        })
    }

    pub fn len(&self) -> usize {
        self.handles.len()
    }

    pub fn handle(&self, node: u32) -> NodeHandle {
        self.handles[node as usize]
    }

    pub fn number(&self, node: NodeHandle) -> Result<u32, Violation> {
        let found = self.numbers.get(&node).copied();
        found.ok_or(Violation::UnknownNode { node })
    }

    /// Successors by edges of any kind.
    pub fn successors(&self) -> Lists<u32> {
        let edges = (0..self.len() as u32)
            .flat_map(|to| self.any.of(to).iter().map(move |edge| (edge.from, to)));
        Lists::new(self.len(), edges)
    }
}

/// A topological order, or a node that none can place.
fn sort(count: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Result<Vec<u32>, u32> {
    let successors = Lists::new(count, edges.clone());
    let mut waiting = vec![0_u32; count];
    for (_, to) in edges {
        waiting[to as usize] += 1;
    }
    let mut order: Vec<u32> =
        (0..count as u32).filter(|&node| waiting[node as usize] == 0).collect();
    let mut done = 0;
    while done < order.len() {
        for &to in successors.of(order[done]) {
            waiting[to as usize] -= 1;
            if waiting[to as usize] == 0 {
                order.push(to);
            }
        }
        done += 1;
    }
    match waiting.iter().position(|&left| left > 0) {
        Some(stuck) => Err(stuck as u32),
        None => Ok(order),
    }
}
