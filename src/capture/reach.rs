//! The reachability cache: what is proven to precede a stream's next work.
//!
//! Per stream two bit sets over the mirrored nodes. `reached` holds every node from which a path
//! of [`Order::Full`] and [`Order::Start`] edges leads to a terminal or ends at one. `proven`
//! holds those that are completed before *any* next node of the stream starts:
//!
//! * under `deny` and `trust` the next edge is taken for full (the checker has the last word), so
//!   a terminal is proven, and with it everything behind it; the two sets are the same;
//! * under `lag` the next edge may be programmatic, so a node is proven once its path to a
//!   terminal has a full edge.
//!
//! Both only grow while the stream's terminals move forward, so a traversal resumes from the
//! newest terminals and stops at nodes that it has seen: each node is expanded once per stream
//! (twice at most under `lag`). Terminals *moved forward* when each old one is met again; if one
//! is not, the sets are rebuilt from the new terminals, and if it is not in the rebuilt sets
//! either, the stream was set back.

use fixedbitset::{Block, FixedBitSet};
use smallvec::SmallVec;

use super::dag::{Dag, NodeIndex};
use super::order::Order;
use crate::driver::Dependency;
use crate::policy::Programmatic;

/// Bits in a word of a set.
const WORD: usize = Block::BITS as usize;

/// A stream's terminals by index, with what the edge to the next node would prove.
pub(crate) type Terminals = SmallVec<[(NodeIndex, Order); 4]>;

/// What a look at a stream found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Everything the stream had done before precedes its next work still.
    Forward,
    /// Some of it no longer does, or an edge that proves nothing lies in between: users of blocks
    /// in use on the stream may escape their free markers.
    Broken,
}

/// How a traversal reads the graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) programmatic: Programmatic,
    /// Always, outside tests.
    pub(crate) heed_set_back: bool,
}

/// One stream's cache.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    proven: FixedBitSet,
    /// Only under `lag`; else `proven` stands for both.
    reached: FixedBitSet,
    /// As the driver gave them last.
    raw: SmallVec<[Dependency; 4]>,
    terminals: Terminals,
    /// Nodes to expand; empty between calls.
    stack: Vec<NodeIndex>,
}

/// What a traversal comes upon besides new nodes.
#[derive(Debug)]
struct Found<'a> {
    old: &'a [(NodeIndex, Order)],
    /// Which of the old terminals were met again.
    met: SmallVec<[bool; 16]>,
    /// The lowest of them: what lies below need not be compared.
    lowest: NodeIndex,
    /// Sources of edges that prove nothing.
    loose: SmallVec<[NodeIndex; 4]>,
}

impl<'a> Found<'a> {
    fn new(old: &'a [(NodeIndex, Order)]) -> Self {
        Self {
            old,
            met: SmallVec::from_elem(false, old.len()),
            lowest: old.iter().map(|&(node, _)| node).min().unwrap_or(NodeIndex::new(0)),
            loose: SmallVec::new(),
        }
    }

    #[inline]
    fn meet(&mut self, node: NodeIndex) {
        if node >= self.lowest {
            for (&(terminal, _), met) in self.old.iter().zip(&mut self.met) {
                *met |= terminal == node;
            }
        }
    }
}

impl Reach {
    /// The terminals, as the driver gave them last.
    #[inline]
    pub(crate) fn raw_terminals(&self) -> &[Dependency] {
        &self.raw
    }

    /// The terminals by index.
    pub(crate) fn terminals(&self) -> &[(NodeIndex, Order)] {
        &self.terminals
    }

    /// Whether the node is completed before any next node of this stream starts.
    #[inline]
    pub(crate) fn proves(&self, node: NodeIndex) -> bool {
        self.proven.contains(node.index())
    }

    /// Takes over new terminals and calls `wake` for each node that is now proven and was not.
    /// After a rebuild it is called for every proven node again.
    ///
    /// Amortised over a capture each node and edge is visited once (under `lag` twice), as long as
    /// terminals move forward; a rebuild costs the nodes behind the terminals.
    pub(crate) fn advance(
        &mut self,
        dag: &Dag,
        rules: Rules,
        raw: &[Dependency],
        terminals: Terminals,
        mut wake: impl FnMut(NodeIndex),
    ) -> Step {
        let old = std::mem::replace(&mut self.terminals, terminals);
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        let lag = rules.programmatic == Programmatic::Lag;
        self.grow(dag.len(), lag);

        let mut found = Found::new(&old);
        self.traverse(dag, lag, &mut found, &mut wake);
        if !rules.heed_set_back {
            return Step::Forward;
        }
        let mut step = Step::Forward;
        if found.met.contains(&false) {
            self.proven.clear();
            self.reached.clear();
            found = Found::new(&[]);
            self.traverse(dag, lag, &mut found, &mut wake);
            if old.iter().any(|&(node, _)| !self.is_reached(node, lag)) {
                step = Step::Broken;
            }
        }
        if found.loose.iter().any(|&node| !self.is_reached(node, lag)) {
            step = Step::Broken;
        }
        step
    }

    fn grow(&mut self, nodes: usize, lag: bool) {
        if self.proven.len() < nodes {
            // Doubling keeps the cost of growing constant per node.
            let bits = nodes.next_power_of_two().max(256);
            self.proven.grow(bits);
            if lag {
                self.reached.grow(bits);
            }
        }
    }

    #[inline]
    fn is_reached(&self, node: NodeIndex, lag: bool) -> bool {
        if lag {
            self.reached.contains(node.index())
        } else {
            self.proven.contains(node.index())
        }
    }

    /// Walks back from the terminals to what has been seen.
    fn traverse(
        &mut self,
        dag: &Dag,
        lag: bool,
        found: &mut Found<'_>,
        wake: &mut impl FnMut(NodeIndex),
    ) {
        for position in 0..self.terminals.len() {
            let (node, order) = self.terminals[position];
            match order {
                Order::Nothing => found.loose.push(node),
                Order::Start => self.arrive(node, false, lag, found, wake),
                Order::Full => self.arrive(node, !lag, lag, found, wake),
            }
        }
        if !lag && dag.all_full() {
            self.traverse_full(dag, found, wake);
            return;
        }
        while let Some(node) = self.stack.pop() {
            // Without `lag` whatever is reached is proven.
            let behind = !lag || self.proven.contains(node.index());
            for (dependency, order) in dag.dependencies(node) {
                match order {
                    Order::Full => self.arrive(dependency, true, lag, found, wake),
                    Order::Start => self.arrive(dependency, behind, lag, found, wake),
                    Order::Nothing => found.loose.push(dependency),
                }
            }
        }
    }

    /// The same where every edge is full, as in nearly all captures: the bulk of the work, so it
    /// follows chains without the stack.
    fn traverse_full(
        &mut self,
        dag: &Dag,
        found: &mut Found<'_>,
        wake: &mut impl FnMut(NodeIndex),
    ) {
        let words = self.proven.as_mut_slice();
        while let Some(node) = self.stack.pop() {
            let mut at = Some(node);
            while let Some(node) = at.take() {
                for &dependency in dag.predecessors(node) {
                    let dependency = NodeIndex::from_raw(dependency);
                    let word = &mut words[dependency.index() / WORD];
                    let bit = 1 << (dependency.index() % WORD);
                    if *word & bit != 0 {
                        found.meet(dependency);
                        continue;
                    }
                    *word |= bit;
                    wake(dependency);
                    match at {
                        None => at = Some(dependency),
                        Some(_) => self.stack.push(dependency),
                    }
                }
            }
        }
    }

    #[inline]
    fn arrive(
        &mut self,
        node: NodeIndex,
        proven: bool,
        lag: bool,
        found: &mut Found<'_>,
        wake: &mut impl FnMut(NodeIndex),
    ) {
        let bit = node.index();
        if proven {
            if self.proven.put(bit) {
                found.meet(node);
                return;
            }
            if lag && self.reached.put(bit) {
                found.meet(node);
            }
            wake(node);
        } else if self.reached.put(bit) {
            found.meet(node);
            return;
        }
        self.stack.push(node);
    }
}
