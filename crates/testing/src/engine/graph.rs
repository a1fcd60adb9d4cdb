//! Who comes before whom, by brute force.

use regraph::driver::{Dependency, Driver, EdgeData, GraphHandle, NodeHandle};
use regraph::settings::Programmatic;

use super::world::must;

/// A set of node numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    pub(super) fn insert(&mut self, number: usize) {
        let word = number / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(super) fn unite(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }
}

/// What precedes one node, by the edges that it had when it was made.
#[derive(Clone, Debug, Default)]
struct Row {
    node: Option<NodeHandle>,
    /// By any edges.
    behind: Set,
    /// Started before it starts, on a device where programmatic successors never wait.
    started: Set,
    /// Completed before it starts, on that device.
    completed: Set,
}

/// The nodes of one capture.
#[derive(Default)]
pub(super) struct NodeTable {
    rows: Vec<Row>,
    /// Every stream that was ever in the capture.
    pub streams: Vec<usize>,
    /// By number: what is completed before it starts in the finished graph.
    finished: Vec<Set>,
}

impl NodeTable {
    pub(super) fn number(&self, node: NodeHandle) -> Option<usize> {
        self.rows.iter().position(|row| row.node == Some(node))
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeHandle> + '_ {
        self.rows.iter().filter_map(|row| row.node)
    }

    /// What precedes a node with these dependencies.
    fn row(&self, dependencies: &[Dependency]) -> Row {
        let mut row = Row::default();
        for dependency in dependencies {
            let number = self.number(dependency.node).expect("every node is entered when made");
            let earlier = &self.rows[number];
            row.behind.unite(&earlier.behind);
            row.behind.insert(number);
            match dependency.edge {
                EdgeData::FULL => {
                    row.completed.unite(&earlier.started);
                    row.completed.insert(number);
                    row.started.unite(&earlier.started);
                    row.started.insert(number);
                }
                EdgeData::PROGRAMMATIC => {
                    row.completed.unite(&earlier.completed);
                    row.started.unite(&earlier.started);
                    row.started.insert(number);
                }
                _ => {}
            }
        }
        row
    }

    pub(super) fn enter(&mut self, node: NodeHandle, dependencies: &[Dependency]) {
        let row = Row { node: Some(node), ..self.row(dependencies) };
        self.rows.push(row);
    }

    /// Whether every node of `wanted` is one of, or behind one of, `terminals`.
    pub(super) fn reaches(&self, terminals: &[NodeHandle], wanted: &[NodeHandle]) -> bool {
        wanted.iter().all(|&node| {
            terminals.iter().any(|&terminal| terminal == node || self.is_behind(node, terminal))
        })
    }

    pub(super) fn is_behind(&self, earlier: NodeHandle, later: NodeHandle) -> bool {
        match (self.number(earlier), self.number(later)) {
            (Some(earlier), Some(later)) => self.rows[later].behind.contains(earlier),
            _ => false,
        }
    }

    /// Whether `earlier` is completed before a node with these dependencies starts.
    pub(super) fn completes(&self, earlier: NodeHandle, dependencies: &[Dependency]) -> bool {
        let number = self.number(earlier);
        number.is_some_and(|number| self.row(dependencies).completed.contains(number))
    }

    /// Reads the finished graph and says who is completed before whom under a policy.
    pub(super) fn finish<D: Driver>(
        &mut self,
        driver: &D,
        graph: GraphHandle,
        policy: Programmatic,
    ) {
        let mut handles = Vec::new();
        must(driver.nodes(graph, &mut handles));
        for node in handles {
            if self.number(node).is_none() {
                self.rows.push(Row { node: Some(node), ..Row::default() });
            }
        }
        let count = self.rows.len();
        let mut edges = Vec::new();
        for (later, node) in self.nodes().enumerate() {
            let mut dependencies = Vec::new();
            must(driver.dependencies(node, &mut dependencies));
            for dependency in dependencies {
                let earlier = self.number(dependency.node).expect("an edge stays in its graph");
                let full = match (dependency.edge, policy) {
                    (EdgeData::FULL, _) | (EdgeData::PROGRAMMATIC, Programmatic::Trust) => true,
                    (EdgeData::PROGRAMMATIC, Programmatic::Auto | Programmatic::Lag) => false,
                    _ => continue,
                };
                edges.push((earlier, later, full));
            }
        }
        let mut started = vec![Set::default(); count];
        let mut completed = vec![Set::default(); count];
        loop {
            let before = (started.clone(), completed.clone());
            for &(earlier, later, full) in &edges {
                let mut behind = started[earlier].clone();
                behind.insert(earlier);
                started[later].unite(&behind);
                let done = if full { behind } else { completed[earlier].clone() };
                completed[later].unite(&done);
            }
            if before == (started.clone(), completed.clone()) {
                break;
            }
        }
        self.finished = completed;
    }

    /// Whether, in the finished graph, `earlier` is completed before `later` starts.
    pub(super) fn completed_before(&self, earlier: NodeHandle, later: NodeHandle) -> bool {
        match (self.number(earlier), self.number(later)) {
            (Some(earlier), Some(later)) => self.finished[later].contains(earlier),
            _ => false,
        }
    }
}
