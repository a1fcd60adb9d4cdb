//! The mirrored DAG: each node's dependencies are asked of the driver once per capture.
//!
//! Nodes are stored in topological order: a node goes in after everything it depends on, so an
//! edge always leads from a higher index to a lower one, and rows are only ever appended to the
//! compressed sparse rows.

use std::collections::hash_map::{Entry, HashMap};

use petgraph::csr::Csr;
use petgraph::Directed;

use super::nearby::NearbyState;
use super::order::Order;
use super::recent::Recent;
use crate::driver::{Dependency, Driver, EdgeData, NodeHandle};
use crate::index::define_index;
use crate::journal::{Entry as Fact, Journal};
use crate::policy::Programmatic;

define_index! {
    /// A mirrored node. Lower indices come earlier in a topological order.
    pub(crate) NodeIndex
}

/// The part of a capture's graph that some stream's terminals have led to.
#[derive(Debug)]
pub(crate) struct Dag {
    /// Row `n` holds the nodes that `n` depends on.
    rows: Csr<NodeHandle, Order, Directed, u32>,
    /// `None` while the node's own dependencies are being mirrored.
    by_handle: HashMap<NodeHandle, Option<NodeIndex>, NearbyState>,
    recent: Recent<NodeIndex>,
    programmatic: Programmatic,
    /// Whether every edge so far is [`Order::Full`].
    all_full: bool,
    queries: u64,
    /// The walk's stack and the dependencies of the nodes on it; empty between calls.
    pending: Vec<Pending>,
    fetched: Vec<Fetched>,
    answer: Vec<Dependency>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    node: NodeHandle,
    /// Where its dependencies begin in `fetched`; they end at its end, or where those of the node
    /// above it on the stack begin.
    start: usize,
    /// The next dependency to look up.
    next: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug)]
struct Fetched {
    dependency: Dependency,
    index: Option<NodeIndex>,
}

impl Dag {
    pub(crate) fn new(programmatic: Programmatic) -> Self {
        Self {
            rows: Csr::new(),
            by_handle: HashMap::with_hasher(NearbyState::new()),
            recent: Recent::new(),
            programmatic,
            all_full: true,
            queries: 0,
            pending: Vec::new(),
            fetched: Vec::new(),
            answer: Vec::new(),
        }
    }

    /// How many nodes are mirrored.
    pub(crate) fn len(&self) -> usize {
        self.rows.node_count()
    }

    /// How often the driver was asked for a node's dependencies.
    pub(crate) fn queries(&self) -> u64 {
        self.queries
    }

    /// The driver's handle of a node.
    pub(crate) fn handle(&self, node: NodeIndex) -> NodeHandle {
        self.rows[node.0]
    }

    /// The direct predecessors of a node and what their edges prove.
    #[inline]
    pub(crate) fn dependencies(
        &self,
        node: NodeIndex,
    ) -> impl Iterator<Item = (NodeIndex, Order)> + '_ {
        let targets = self.rows.neighbors_slice(node.0);
        let orders = self.rows.edges_slice(node.0);
        targets.iter().zip(orders).map(|(&target, &order)| (NodeIndex(target), order))
    }

    /// Whether every edge so far is [`Order::Full`].
    pub(crate) fn all_full(&self) -> bool {
        self.all_full
    }

    /// The direct predecessors of a node, by number.
    #[inline]
    pub(crate) fn predecessors(&self, node: NodeIndex) -> &[u32] {
        self.rows.neighbors_slice(node.0)
    }

    /// What an edge with this data proves.
    pub(crate) fn order(&self, edge: EdgeData) -> Order {
        Order::of(edge, self.programmatic)
    }

    /// The index of a node; mirrors it and everything behind it first, where it is new.
    ///
    /// A node whose dependencies the driver refuses to tell is mirrored without any: nothing
    /// behind it is then proven through it.
    ///
    /// Costs a look-up, and for each new node one driver query and a look-up per edge; nearly all
    /// are answered without hashing.
    pub(crate) fn insert<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        node: NodeHandle,
        mut journal: Option<&mut Journal>,
    ) -> NodeIndex {
        if let Some(index) = self.recent.get(node.bits()) {
            return index;
        }
        match self.by_handle.entry(node) {
            Entry::Occupied(entry) => {
                let index = entry.get().expect("no walk is under way between calls");
                self.recent.put(node.bits(), index);
                return index;
            }
            Entry::Vacant(entry) => {
                self.queries += 1;
                ask(driver, node, &mut self.answer, &mut journal);
                // Nearly always the node is all that is new, and its edges are full.
                let known = |dependency: &Dependency| {
                    dependency.edge == EdgeData::FULL
                        && self.recent.get(dependency.node.bits()).is_some()
                };
                if self.answer.iter().all(known) {
                    let row = self.rows.add_node(node);
                    for dependency in &self.answer {
                        if let Some(target) = self.recent.get(dependency.node.bits()) {
                            self.rows.add_edge(row, target.0, Order::Full);
                        }
                    }
                    let index = NodeIndex(row);
                    entry.insert(Some(index));
                    self.recent.put(node.bits(), index);
                    return index;
                }
                entry.insert(None);
            }
        }
        self.push(node);
        // A depth-first walk with a stack of its own: captures are deeper than the call stack.
        loop {
            let top = self.pending.last_mut().expect("the walk ends in the branch below");
            if top.next < top.end {
                let position = top.next;
                top.next += 1;
                let dependency = self.fetched[position].dependency.node;
                if let Some(index) = self.recent.get(dependency.bits()) {
                    self.fetched[position].index = Some(index);
                    continue;
                }
                match self.by_handle.entry(dependency) {
                    // A node that is still open would close a cycle: no driver has one, and the
                    // edge is left out, so that less is proven.
                    Entry::Occupied(entry) => self.fetched[position].index = *entry.get(),
                    Entry::Vacant(entry) => {
                        entry.insert(None);
                        self.queries += 1;
                        ask(driver, dependency, &mut self.answer, &mut journal);
                        self.push(dependency);
                    }
                }
            } else {
                let index = self.close();
                match self.pending.last() {
                    Some(parent) => self.fetched[parent.next - 1].index = Some(index),
                    None => return index,
                }
            }
        }
    }

    /// Puts a node on the stack with the dependencies just asked for.
    fn push(&mut self, node: NodeHandle) {
        let start = self.fetched.len();
        self.fetched
            .extend(self.answer.iter().map(|&dependency| Fetched { dependency, index: None }));
        self.pending.push(Pending { node, start, next: start, end: self.fetched.len() });
    }

    /// Appends the node on top of the stack, whose dependencies are all mirrored.
    fn close(&mut self) -> NodeIndex {
        let done = self.pending.pop().expect("called with a node on the stack");
        let row = self.rows.add_node(done.node);
        let mut add = |wanted: Option<Order>| {
            let mut all_full = true;
            for &Fetched { dependency, index } in &self.fetched[done.start..done.end] {
                let order = Order::of(dependency.edge, self.programmatic);
                all_full &= order == Order::Full;
                if let Some(target) = index.filter(|_| wanted.is_none_or(|wanted| wanted == order))
                {
                    self.rows.add_edge(row, target.0, order);
                }
            }
            all_full
        };
        let full = |dependency: &Fetched| dependency.dependency.edge == EdgeData::FULL;
        if self.fetched[done.start..done.end].iter().all(full) {
            add(None);
        } else {
            // Of two edges between the same nodes the stronger one counts, and goes in first.
            for order in [Order::Full, Order::Start, Order::Nothing] {
                self.all_full &= add(Some(order));
            }
        }
        self.fetched.truncate(done.start);
        let index = NodeIndex(row);
        self.by_handle.insert(done.node, Some(index));
        self.recent.put(done.node.bits(), index);
        index
    }
}

/// Asks for a node's dependencies: none where the driver refuses.
fn ask<D: Driver + ?Sized>(
    driver: &D,
    node: NodeHandle,
    answer: &mut Vec<Dependency>,
    journal: &mut Option<&mut Journal>,
) {
    if driver.dependencies(node, answer).is_err() {
        answer.clear();
    } else if let Some(journal) = journal {
        journal.push(Fact::Node { node, dependencies: answer });
    }
}
