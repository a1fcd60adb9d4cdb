//! The reachability cache: what is proven to precede a stream's next work.
//!
//! Per stream two bit sets over the mirrored nodes. `reached` holds every node from which a path
//! of [`Order::Full`] and [`Order::Start`] edges leads to a terminal or ends at one. `proven`
//! holds those that are completed before *any* next node of the stream starts:
//!
//! * where the next edge is taken for full (under `deny` and `trust`, and under `auto` where nothing
//!   else is foreseen; the checker has the last word) a terminal is proven, and with it everything
//!   behind it; as long as no edge proves a start alone, the two sets are the same;
//! * where the next edge may be programmatic (under `lag`, and under `auto` where that is foreseen) a
//!   node is proven once its path to a terminal has a full edge.
//!
//! Both only grow while the stream's terminals move forward, so a traversal resumes from the
//! newest terminals and stops at nodes that it has seen: each node is expanded once per stream
//! (twice at most with two sets). Terminals *moved forward* when each old one is met again; if one
//! is not, the sets are rebuilt from the new terminals, and if it is not in the rebuilt sets
//! either, the stream was set back.

use fixedbitset::{Block, FixedBitSet};
use smallvec::SmallVec;

use super::dag::{Dag, NodeIndex};
use super::order::Order;
use super::windows::{Window, WORD};
use crate::driver::Dependency;

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
    /// What the edges to the stream's next node are taken for, where the driver calls them full.
    pub(crate) next: Order,
    /// Whether that may be [`Order::Start`] at this look or a later one.
    pub(crate) foreseen: bool,
    /// Whether what was proven before is to be proven anew.
    pub(crate) anew: bool,
    /// Always, outside tests.
    pub(crate) heed_set_back: bool,
}

/// One stream's cache.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    proven: FixedBitSet,
    /// Only with two sets; else `proven` stands for both.
    reached: FixedBitSet,
    two_sets: bool,
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

    /// The nodes that are completed before any next node of this stream starts.
    #[inline]
    pub(crate) fn proven(&self) -> &FixedBitSet {
        &self.proven
    }

    /// Whether the node is completed before any next node of this stream starts.
    #[inline]
    pub(crate) fn proves(&self, node: NodeIndex) -> bool {
        self.proven.contains(node.index())
    }

    /// Takes over new terminals and calls `gained` for each node that is now proven and was not, some
    /// of one word of the set at a time. After a rebuild it is called for every proven node again.
    ///
    /// Amortised over a capture each node and edge is visited once (with two sets twice), as long as
    /// terminals move forward; a rebuild costs the nodes behind the terminals.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        dag: &Dag,
        rules: Rules,
        raw: &[Dependency],
        terminals: &[(NodeIndex, Order)],
        mut gained: impl FnMut(usize, Block),
    ) -> Step {
        std::mem::swap(&mut self.old, &mut self.terminals);
        self.terminals.clear();
        self.raw.clear();
        // They are one or two: a copy of memory would cost more than it copies.
        terminals.iter().for_each(|&terminal| self.terminals.push(terminal));
        raw.iter().for_each(|&terminal| self.raw.push(terminal));
        if !self.two_sets
            && (rules.foreseen || dag.starts() || terminals.iter().any(|it| it.1 == Order::Start))
        {
            // Until now the next edge was full for all that any path leads from.
            self.two_sets = true;
            self.reached.clone_from(&self.proven);
        }
        if rules.anew {
            self.forget();
        }
        self.grow(dag.len());

        let mut found = Found::new(&self.old, std::mem::take(&mut self.missing));
        self.traverse(dag, rules.next, &mut found, &mut gained);
        if !rules.heed_set_back {
            self.missing = found.missing;
            return Step::Forward;
        }
        let mut step = Step::Forward;
        if !found.missing.is_empty() {
            self.forget();
            found = Found::new(&[], found.missing);
            self.traverse(dag, rules.next, &mut found, &mut gained);
            if self.old.iter().any(|&(node, _)| !self.is_reached(node)) {
                step = Step::Broken;
            }
        }
        if found.loose.iter().any(|&node| !self.is_reached(node)) {
            step = Step::Broken;
        }
        self.missing = found.missing;
        step
    }

    fn forget(&mut self) {
        self.proven.clear();
        self.reached.clear();
        self.complete = 0;
    }

    fn grow(&mut self, nodes: usize) {
        if self.proven.len() < nodes {
            // Doubling keeps the cost of growing constant per node.
            let bits = nodes.next_power_of_two().max(256);
            self.proven.grow(bits);
            if self.two_sets {
                self.reached.grow(bits);
            }
        }
    }

    /// Whether the node is completed before any next node starts that starts behind a full edge.
    #[inline]
    pub(crate) fn is_reached(&self, node: NodeIndex) -> bool {
        if self.two_sets {
            self.reached.contains(node.index())
        } else {
            self.proven.contains(node.index())
        }
    }

    /// Walks back from the terminals to what has been seen.
    fn traverse(
        &mut self,
        dag: &Dag,
        next: Order,
        found: &mut Found,
        gained: &mut impl FnMut(usize, Block),
    ) {
        let near = !self.two_sets && dag.all_full();
        for position in 0..self.terminals.len() {
            let (node, order) = self.terminals[position];
            if near && order == Order::Full && !self.proves(node) {
                if let Some(window) = dag.window(node) {
                    self.take_window(dag, window, found, gained);
                    continue;
                }
            }
            match order {
                Order::Nothing => found.loose.push(node),
                Order::Start => self.arrive(node, false, found, gained),
                Order::Full => self.arrive(node, next == Order::Full, found, gained),
            }
        }
        if near {
            self.traverse_full(dag, found, gained);
            return;
        }
        while let Some(node) = self.stack.pop() {
            // With one set it is.
            let behind = self.proven.contains(node.index());
            for (dependency, order) in dag.dependencies(node) {
                match order {
                    Order::Full => self.arrive(dependency, true, found, gained),
                    Order::Start => self.arrive(dependency, behind, found, gained),
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
        gained: &mut impl FnMut(usize, Block),
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
            gained(word, new);
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
            self.arrive(node, true, found, gained);
        }
    }

    /// The traversal where every edge is full, as in nearly all captures: it follows chains without
    /// the stack.
    fn traverse_full(
        &mut self,
        dag: &Dag,
        found: &mut Found,
        gained: &mut impl FnMut(usize, Block),
    ) {
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
                    gained(dependency.index() / WORD, bit);
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
        found: &mut Found,
        gained: &mut impl FnMut(usize, Block),
    ) {
        let bit = node.index();
        if proven {
            if self.proven.put(bit) {
                found.meet(node);
                return;
            }
            if self.two_sets && self.reached.put(bit) {
                found.meet(node);
            }
            gained(bit / WORD, 1 << (bit % WORD));
        } else if self.reached.put(bit) {
            found.meet(node);
            return;
        }
        self.stack.push(node);
    }
}
