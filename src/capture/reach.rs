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
use super::windows::{Window, WORD};
use crate::driver::Dependency;
use crate::policy::Programmatic;

/// A stream's terminals by index, with what the edge to the next node would prove.
pub(crate) type Terminals = Vec<(NodeIndex, Order)>;

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
    raw: Vec<Dependency>,
    terminals: Terminals,
    /// Those before; kept for their capacity.
    old: Terminals,
    /// How many words of `proven` have been seen full, from the first on.
    complete: usize,
    /// Nodes to expand; empty between calls.
    stack: Vec<NodeIndex>,
    /// Old terminals to be met; kept for its capacity.
    missing: Vec<NodeIndex>,
    /// Nodes behind a window; empty between calls.
    beyond: Vec<NodeIndex>,
}

/// What a traversal comes upon besides new nodes.
#[derive(Debug)]
struct Found {
    /// The old terminals that were not met again yet.
    missing: Vec<NodeIndex>,
    /// What lies below need not be compared with them.
    lowest: NodeIndex,
    /// Sources of edges that prove nothing.
    loose: SmallVec<[NodeIndex; 4]>,
}

impl Found {
    #[inline]
    fn new(old: &[(NodeIndex, Order)], mut missing: Vec<NodeIndex>) -> Self {
        missing.clear();
        let mut lowest = NodeIndex::from_raw(u32::MAX);
        for &(node, _) in old {
            missing.push(node);
            lowest = lowest.min(node);
        }
        Self { missing, lowest, loose: SmallVec::new() }
    }

    #[inline]
    fn meet(&mut self, node: NodeIndex) {
        if node >= self.lowest {
            self.missing.retain(|missing| *missing != node);
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
    #[inline]
    pub(crate) fn terminals(&self) -> &[(NodeIndex, Order)] {
        &self.terminals
    }

    /// Whether the node is completed before any next node of this stream starts.
    #[inline]
    pub(crate) fn proves(&self, node: NodeIndex) -> bool {
        self.proven.contains(node.index())
    }

    /// Takes over new terminals and calls `wake` for each node that is now proven and was not, some
    /// of one word of the set at a time. After a rebuild it is called for every proven node again.
    ///
    /// Amortised over a capture each node and edge is visited once (under `lag` twice), as long as
    /// terminals move forward; a rebuild costs the nodes behind the terminals.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        dag: &Dag,
        rules: Rules,
        raw: &[Dependency],
        terminals: &[(NodeIndex, Order)],
        mut wake: impl FnMut(usize, Block),
    ) -> Step {
        std::mem::swap(&mut self.old, &mut self.terminals);
        self.terminals.clear();
        self.raw.clear();
        // They are one or two: a copy of memory would cost more than it copies.
        terminals.iter().for_each(|&terminal| self.terminals.push(terminal));
        raw.iter().for_each(|&terminal| self.raw.push(terminal));
        let lag = rules.programmatic == Programmatic::Lag;
        self.grow(dag.len(), lag);

        let mut found = Found::new(&self.old, std::mem::take(&mut self.missing));
        self.traverse(dag, lag, &mut found, &mut wake);
        if !rules.heed_set_back {
            self.missing = found.missing;
            return Step::Forward;
        }
        let mut step = Step::Forward;
        if !found.missing.is_empty() {
            self.proven.clear();
            self.reached.clear();
            self.complete = 0;
            found = Found::new(&[], found.missing);
            self.traverse(dag, lag, &mut found, &mut wake);
            if self.old.iter().any(|&(node, _)| !self.is_reached(node, lag)) {
                step = Step::Broken;
            }
        }
        if found.loose.iter().any(|&node| !self.is_reached(node, lag)) {
            step = Step::Broken;
        }
        self.missing = found.missing;
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
        found: &mut Found,
        wake: &mut impl FnMut(usize, Block),
    ) {
        let near = !lag && dag.all_full();
        for position in 0..self.terminals.len() {
            let (node, order) = self.terminals[position];
            if near && order == Order::Full && !self.proves(node) {
                if let Some(window) = dag.window(node) {
                    self.take_window(dag, window, found, wake);
                    continue;
                }
            }
            match order {
                Order::Nothing => found.loose.push(node),
                Order::Start => self.arrive(node, false, lag, found, wake),
                Order::Full => self.arrive(node, !lag, lag, found, wake),
            }
        }
        if near {
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

    /// Takes over what lies close behind a terminal, where every edge is full. What lies further
    /// behind is left to the traversal that follows.
    #[inline]
    fn take_window(
        &mut self,
        dag: &Dag,
        window: Window<'_>,
        found: &mut Found,
        wake: &mut impl FnMut(usize, Block),
    ) {
        match found.missing[..] {
            [missing] if window.contains(missing) => found.missing.clear(),
            [] | [_] => {}
            _ => found.missing.retain(|&missing| !window.contains(missing)),
        }
        let first = window.first();
        let words = self.proven.as_mut_slice();
        while words.get(self.complete).is_some_and(|&word| word == Block::MAX) {
            self.complete += 1;
        }
        // Nothing further behind is new, nor has to be met.
        let ends = self.complete >= first && found.missing.is_empty();
        for (word, new) in window.lacking(words) {
            words[word] |= new;
            wake(word, new);
            if ends || dag.rows().lowest(word) >= first * WORD {
                continue;
            }
            let mut left = new;
            while left != 0 {
                let node = word * WORD + left.trailing_zeros() as usize;
                left &= left - 1;
                let targets = dag.rows().targets(node).iter().copied();
                let beyond = targets.take_while(|&target| (target as usize) < first * WORD);
                self.beyond.extend(beyond.map(NodeIndex::from_raw));
            }
        }
        while let Some(node) = self.beyond.pop() {
            self.arrive(node, true, false, found, wake);
        }
    }

    /// The traversal where every edge is full, as in nearly all captures: it follows chains without
    /// the stack.
    fn traverse_full(&mut self, dag: &Dag, found: &mut Found, wake: &mut impl FnMut(usize, Block)) {
        let rows = dag.rows();
        let words = self.proven.as_mut_slice();
        let stack = &mut self.stack;
        while let Some(mut node) = stack.pop() {
            loop {
                let mut onward = None;
                for &dependency in rows.targets(node.index()) {
                    let dependency = NodeIndex::from_raw(dependency);
                    let word = &mut words[dependency.index() / WORD];
                    let bit = 1 << (dependency.index() % WORD);
                    if *word & bit != 0 {
                        found.meet(dependency);
                        continue;
                    }
                    *word |= bit;
                    wake(dependency.index() / WORD, bit);
                    if onward.is_none() {
                        onward = Some(dependency);
                    } else {
                        stack.push(dependency);
                    }
                }
                match onward {
                    Some(next) => node = next,
                    None => break,
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
        found: &mut Found,
        wake: &mut impl FnMut(usize, Block),
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
            wake(bit / WORD, 1 << (bit % WORD));
        } else if self.reached.put(bit) {
            found.meet(node);
            return;
        }
        self.stack.push(node);
    }
}
