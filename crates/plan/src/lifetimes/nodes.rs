//! The nodes of a journal, each behind those that it depends on.

use super::clocks::{Clocks, Proof};
use regraph_driver::{Dependency, EdgeData, NodeHandle};
use regraph_record::index::{define_index, Map};
use regraph_record::journal;
use regraph_record::policy::Programmatic;

define_index! {
    /// A node that has its clocks.
    pub(super) NodeRow
}

/// What is known of a node.
#[derive(Clone, Copy, Debug)]
enum Known<'a> {
    /// What it depends on.
    Said(journal::Nodes<'a>),
    /// Its dependencies are being entered.
    Open,
    Entered(NodeRow),
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes<'a> {
    pub(super) clocks: Clocks,
    policy: Programmatic,
    /// The nodes that programmatic edges lead on from, or would.
    early: Map<NodeHandle, ()>,
    known: Map<NodeHandle, Known<'a>>,
    count: usize,
    /// Nodes being entered, with the next dependency to look up and where theirs begin in `edges`.
    stack: Vec<(NodeHandle, journal::Nodes<'a>, usize, usize)>,
    edges: Vec<(NodeRow, Proof)>,
}

impl<'a> Nodes<'a> {
    /// For so many nodes and blocks, and the nodes that programmatic edges lead on from, or would.
    pub(super) fn new(
        policy: Programmatic,
        nodes: usize,
        blocks: usize,
        early: Map<NodeHandle, ()>,
    ) -> Self {
        let lag = match policy {
            Programmatic::Auto => !early.is_empty(),
            Programmatic::Lag => true,
            Programmatic::Deny | Programmatic::Trust => false,
        };
        let mut known = Map::default();
        known.reserve(nodes);
        Self {
            clocks: Clocks::new(lag, nodes, blocks),
            policy,
            early,
            known,
            count: 0,
            stack: Vec::new(),
            edges: Vec::new(),
        }
    }

    /// What an edge proves.
    pub(super) fn proof(&self, edge: EdgeData) -> Proof {
        match (edge, self.policy) {
            (EdgeData::FULL, _) | (EdgeData::PROGRAMMATIC, Programmatic::Trust) => {
                Proof::Completion
            }
            (EdgeData::PROGRAMMATIC, Programmatic::Auto | Programmatic::Lag) => Proof::Start,
            _ => Proof::Nothing,
        }
    }

    /// Whether what comes next behind a terminal may start early.
    pub(super) fn starts_early(&self, terminal: &Dependency) -> bool {
        match self.policy {
            Programmatic::Auto => self.early.contains_key(&terminal.node),
            Programmatic::Lag => true,
            Programmatic::Deny | Programmatic::Trust => false,
        }
    }

    /// Takes in what a node depends on, as it was first said.
    pub(super) fn say(&mut self, node: NodeHandle, dependencies: journal::Nodes<'a>) {
        self.known.entry(node).or_insert(Known::Said(dependencies));
    }

    /// The row of a node that a stream has come upon. It, and what lies behind it, is entered first
    /// where it is new. One of which nothing was said depends on nothing.
    pub(super) fn enter(&mut self, node: NodeHandle, stream: usize) -> NodeRow {
        if let Some(&Known::Entered(row)) = self.known.get(&node) {
            return row;
        }
        self.open(node);
        let mut last = NodeRow::new(0);
        // With a stack of its own: captures are deeper than the call stack.
        while let Some(&mut (top, dependencies, ref mut next, start)) = self.stack.last_mut() {
            let Some(dependency) = dependencies.get(*next) else {
                self.clocks.add(&self.edges[start..], stream);
                last = NodeRow::new(self.count);
                self.count += 1;
                self.known.insert(top, Known::Entered(last));
                self.edges.truncate(start);
                self.stack.pop();
                continue;
            };
            match self.known.get(&dependency.node) {
                Some(&Known::Entered(row)) => {
                    *next += 1;
                    let proof = self.proof(dependency.edge);
                    self.edges.push((row, proof));
                }
                // It would close a circle: left out, less is proven.
                Some(Known::Open) => *next += 1,
                _ => self.open(dependency.node),
            }
        }
        last
    }

    fn open(&mut self, node: NodeHandle) {
        let said = match self.known.insert(node, Known::Open) {
            Some(Known::Said(dependencies)) => dependencies,
            _ => journal::Nodes::default(),
        };
        self.stack.push((node, said, 0, self.edges.len()));
    }
}
