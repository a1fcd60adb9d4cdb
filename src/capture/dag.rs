//! The mirrored DAG: each node's dependencies are asked of the driver once per capture.
//!
//! Nodes are stored in topological order: a node goes in after everything it depends on, so an
//! edge always leads from a higher index to a lower one, and rows are only ever appended.

use super::order::Order;
use super::places::{Place, Places, Slot};
use super::rows::Rows;
use super::windows::{Window, Windows};
use crate::driver::{Dependency, Driver, EdgeData, NodeHandle};
use crate::index::define_index;
use crate::journal::{Entry as Fact, Journal};
use crate::policy::Programmatic;

define_index! {
    /// A mirrored node. Lower indices come earlier in a topological order.
    pub NodeIndex
}

/// The part of a capture's graph that some stream's terminals have led to.
#[derive(Debug)]
pub struct Dag {
    /// Row `n` holds the nodes that `n` depends on.
    rows: Rows,
    handles: Vec<NodeHandle>,
    /// As long as every edge is [`Order::Full`].
    windows: Windows,
    places: Places,
    programmatic: Programmatic,
    /// Whether every edge so far is [`Order::Full`].
    all_full: bool,
    /// Whether one so far is [`Order::Start`].
    starts: bool,
    queries: u64,
    /// The walk's stack and the dependencies of the nodes on it; empty between calls.
    pending: Vec<Pending>,
    fetched: Vec<Fetched>,
    answer: Vec<Dependency>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    node: NodeHandle,
    slot: Slot,
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
    pub fn new(programmatic: Programmatic) -> Self {
        Self {
            rows: Rows::default(),
            handles: Vec::new(),
            windows: Windows::default(),
            places: Places::new(),
            programmatic,
            all_full: true,
            starts: false,
            queries: 0,
            pending: Vec::new(),
            fetched: Vec::new(),
            answer: Vec::new(),
        }
    }

    /// How many nodes are mirrored.
    #[inline]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// How often the driver was asked for a node's dependencies.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// The driver's handle of a node.
    pub fn handle(&self, node: NodeIndex) -> NodeHandle {
        self.handles[node.index()]
    }

    /// The direct predecessors of a node and what their edges prove.
    #[inline]
    pub fn dependencies(&self, node: NodeIndex) -> impl Iterator<Item = (NodeIndex, Order)> + '_ {
        self.rows.edges(node.index()).map(|(target, order)| (NodeIndex(target), order))
    }

    /// Whether every edge so far is [`Order::Full`].
    #[inline]
    pub fn all_full(&self) -> bool {
        self.all_full
    }

    /// Whether an edge so far is [`Order::Start`].
    #[inline]
    pub fn starts(&self) -> bool {
        self.starts
    }

    /// Which nodes lie close behind a node, if it is one of the latest. Only where every edge is
    /// [`Order::Full`].
    #[inline]
    pub fn window(&self, node: NodeIndex) -> Option<Window<'_>> {
        self.windows.of(node)
    }

    /// The direct predecessors of every node, by number.
    #[inline]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// What an edge with this data proves.
    pub fn order(&self, edge: EdgeData) -> Order {
        Order::of(edge, self.programmatic)
    }

    /// The index of a node; mirrors it and everything behind it first, where it is new.
    ///
    /// A node whose dependencies the driver refuses to tell is mirrored without any: nothing
    /// behind it is then proven through it.
    ///
    /// Costs a look-up, and for each new node one driver query and a look-up per edge.
    pub fn insert<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        node: NodeHandle,
        mut journal: Option<&mut Journal>,
    ) -> NodeIndex {
        let slot = self.places.slot(node);
        if let Place::Mirrored(index) = self.places.get(slot) {
            return index;
        }
        self.queries += 1;
        ask(driver, node, &mut self.answer, &mut journal);
        if let Some(index) = self.append_answer(node, slot) {
            return index;
        }
        self.push(node, slot);
        // A depth-first walk with a stack of its own: captures are deeper than the call stack.
        loop {
            let top = self.pending.last_mut().expect("the walk ends in the branch below");
            if top.next < top.end {
                let position = top.next;
                top.next += 1;
                let dependency = self.fetched[position].dependency.node;
                let slot = self.places.slot(dependency);
                match self.places.get(slot) {
                    Place::Mirrored(index) => self.fetched[position].index = Some(index),
                    // It would close a cycle: no driver has one, and the edge is left out, so that
                    // less is proven.
                    Place::Open => {}
                    Place::Unknown => {
                        self.queries += 1;
                        ask(driver, dependency, &mut self.answer, &mut journal);
                        match self.append_answer(dependency, slot) {
                            None => self.push(dependency, slot),
                            index => self.fetched[position].index = index,
                        }
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

    /// Appends a node with the dependencies just asked for, if they are mirrored and its edges full;
    /// as nearly always.
    #[inline]
    fn append_answer(&mut self, node: NodeHandle, slot: Slot) -> Option<NodeIndex> {
        for dependency in &self.answer {
            let place = self.places.slot(dependency.node);
            match self.places.get(place) {
                Place::Mirrored(target) if dependency.edge == EdgeData::FULL => {
                    self.rows.add(target.0, Order::Full);
                }
                _ => {
                    self.rows.undo();
                    return None;
                }
            }
        }
        Some(self.append(node, slot))
    }

    /// Puts a node on the stack with the dependencies just asked for.
    fn push(&mut self, node: NodeHandle, slot: Slot) {
        self.places.set(slot, Place::Open);
        let start = self.fetched.len();
        self.fetched
            .extend(self.answer.iter().map(|&dependency| Fetched { dependency, index: None }));
        self.pending.push(Pending { node, slot, start, next: start, end: self.fetched.len() });
    }

    /// Appends the node on top of the stack, whose dependencies are all mirrored.
    fn close(&mut self) -> NodeIndex {
        let done = self.pending.pop().expect("called with a node on the stack");
        for &Fetched { dependency, index } in &self.fetched[done.start..done.end] {
            let order = Order::of(dependency.edge, self.programmatic);
            self.all_full &= order == Order::Full;
            self.starts |= order == Order::Start;
            if let Some(target) = index {
                self.rows.add(target.0, order);
            }
        }
        self.fetched.truncate(done.start);
        self.append(done.node, done.slot)
    }

    /// Appends a node whose edges have been entered.
    #[inline]
    fn append(&mut self, node: NodeHandle, slot: Slot) -> NodeIndex {
        let index = NodeIndex::new(self.handles.len());
        if self.all_full {
            self.windows.push(self.rows.open());
        }
        self.rows.end();
        self.handles.push(node);
        self.places.set(slot, Place::Mirrored(index));
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
        journal.push(Fact::Node { node, dependencies: (&*answer).into() });
    }
}
