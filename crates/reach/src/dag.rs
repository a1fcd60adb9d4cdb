//! The mirrored DAG: each node's dependencies are asked of the driver once per capture.
//!
//! Nodes are stored in topological order: a node goes in after everything it depends on, so an
//! edge always leads from a higher index to a lower one, and rows are only ever appended.

use super::order::Order;
use super::places::{Place, Places};
use super::rows::Rows;
use super::windows::{Window, Windows};
use regraph_driver::{Dependency, Driver, EdgeData, NodeHandle};
use regraph_record::index::define_index;
use regraph_record::journal::{Entry as Fact, Journal};
use regraph_record::policy::Programmatic;

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
    /// `None` where there is one, by a full edge: the node above it on the stack.
    dependencies: Option<List>,
}

/// Dependencies in `fetched`.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    start: usize,
    /// The next one to look up.
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

    /// Forgets all nodes; what is allocated stays.
    pub fn clear(&mut self) {
        let Self { rows, handles, windows, places, programmatic: _, .. } = self;
        rows.clear();
        handles.clear();
        windows.clear();
        places.clear();
        (self.all_full, self.starts, self.queries) = (true, false, 0);
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

    /// Which nodes lie close behind a node, if it is one of the latest. Only where every edge is [`Order::Full`].
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
        journal: Option<&mut Journal>,
    ) -> NodeIndex {
        match self.places.get(node) {
            Place::Mirrored(index) => index,
            _ => self.mirror(driver, node, journal),
        }
    }

    /// Mirrors a node and everything behind it: a depth-first walk with a stack of its own, since
    /// captures are deeper than the call stack.
    fn mirror<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        mut node: NodeHandle,
        mut journal: Option<&mut Journal>,
    ) -> NodeIndex {
        'walk: loop {
            self.queries += 1;
            ask(driver, node, &mut self.answer, &mut journal);
            let mut index = match self.answer[..] {
                // As nearly always.
                [Dependency { node: before, edge: EdgeData::FULL }]
                    if self.handles.last() == Some(&before) =>
                {
                    self.append_behind(node, NodeIndex::new(self.handles.len() - 1))
                }
                [Dependency { node: before, edge: EdgeData::FULL }] => {
                    self.places.open(node);
                    match self.places.get(before) {
                        Place::Mirrored(before) => self.append_behind(node, before),
                        // It would close a cycle: no driver has one, and the edge is left out, so
                        // that less is proven.
                        Place::Open => self.append(node),
                        Place::Unknown => {
                            self.pending.push(Pending { node, dependencies: None });
                            node = before;
                            continue;
                        }
                    }
                }
                _ => match self.append_answer(node) {
                    Some(index) => index,
                    None => {
                        self.push(node);
                        match self.next_unknown() {
                            Some(unknown) => {
                                node = unknown;
                                continue;
                            }
                            None => self.close(),
                        }
                    }
                },
            };
            // What waits for it.
            while let Some(&top) = self.pending.last() {
                let Some(list) = top.dependencies else {
                    self.pending.pop();
                    index = self.append_behind(top.node, index);
                    continue;
                };
                self.fetched[list.next - 1].index = Some(index);
                if let Some(unknown) = self.next_unknown() {
                    node = unknown;
                    continue 'walk;
                }
                index = self.close();
            }
            return index;
        }
    }

    /// Appends a node with the dependencies just asked for, if they are mirrored and its edges full.
    fn append_answer(&mut self, node: NodeHandle) -> Option<NodeIndex> {
        for dependency in &self.answer {
            match self.places.get(dependency.node) {
                Place::Mirrored(target) if dependency.edge == EdgeData::FULL => {
                    self.rows.add_full(target.0);
                }
                _ => {
                    self.rows.undo();
                    return None;
                }
            }
        }
        Some(self.append(node))
    }

    /// Puts a node on the stack with the dependencies just asked for.
    fn push(&mut self, node: NodeHandle) {
        self.places.open(node);
        let start = self.fetched.len();
        self.fetched
            .extend(self.answer.iter().map(|&dependency| Fetched { dependency, index: None }));
        let list = List { start, next: start, end: self.fetched.len() };
        self.pending.push(Pending { node, dependencies: Some(list) });
    }

    /// Looks up dependencies of the node on top of the stack until one is not mirrored, nor about to
    /// be; which is looked up then.
    fn next_unknown(&mut self) -> Option<NodeHandle> {
        let list = self.pending.last_mut()?.dependencies.as_mut()?;
        while list.next < list.end {
            let fetched = &mut self.fetched[list.next];
            list.next += 1;
            let dependency = fetched.dependency.node;
            match self.places.get(dependency) {
                Place::Mirrored(index) => fetched.index = Some(index),
                // A cycle again.
                Place::Open => {}
                Place::Unknown => return Some(dependency),
            }
        }
        None
    }

    /// Appends the node on top of the stack, whose dependencies are all mirrored.
    fn close(&mut self) -> NodeIndex {
        let done = self.pending.pop().expect("called with a node on the stack");
        let list = done.dependencies.unwrap_or_default();
        for &Fetched { dependency, index } in &self.fetched[list.start..list.end] {
            let order = Order::of(dependency.edge, self.programmatic);
            self.all_full &= order == Order::Full;
            self.starts |= order == Order::Start;
            if let Some(target) = index {
                self.rows.add(target.0, order);
            }
        }
        self.fetched.truncate(list.start);
        self.append(done.node)
    }

    /// Appends a node whose edges have been entered.
    fn append(&mut self, node: NodeHandle) -> NodeIndex {
        if self.all_full {
            self.windows.push(self.rows.open());
        }
        self.rows.end();
        self.name(node)
    }

    /// Appends a node with one full edge.
    #[inline(always)]
    fn append_behind(&mut self, node: NodeHandle, before: NodeIndex) -> NodeIndex {
        if self.all_full {
            self.windows.push_behind(before.0);
        }
        self.rows.push(before.0);
        self.name(node)
    }

    /// Enters the handle of the node just appended.
    #[inline]
    fn name(&mut self, node: NodeHandle) -> NodeIndex {
        let index = NodeIndex::new(self.handles.len());
        self.handles.push(node);
        self.places.name(node, index);
        index
    }
}

/// Asks for a node's dependencies: none where the driver refuses.
#[inline]
pub(super) fn ask<D: Driver + ?Sized>(
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
