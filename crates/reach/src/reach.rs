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
//! Both only grow while the stream's terminals move forward, so a traversal resumes from the newest terminals and stops
//! at nodes that it has seen: each node is expanded once per stream (twice at most with two sets). Terminals *moved
//! forward* when each old one is met again; if one is not, the sets are rebuilt from the new terminals, and if it is
//! not in the rebuilt sets either, the stream was set back.

use fixedbitset::{Block, FixedBitSet};
use smallvec::SmallVec;

use super::dag::{Dag, NodeIndex};
use super::order::Order;
use super::windows::{Window, WORD};
use regraph_driver::Dependency;
use regraph_record::effort::spend;

/// A stream's terminals by index, with what the edge to the next node would prove.
pub(crate) type Terminals = Vec<(NodeIndex, Order)>;

/// So many terminals at most are looked at one by one.
const STEPPED: usize = 4;

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
}

/// What a traversal comes upon besides new nodes; empty between looks, and kept for its capacity.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The old terminals that were not met again yet.
    missing: FixedBitSet,
    /// How many those are.
    count: usize,
    /// Sources of edges that prove nothing.
    loose: SmallVec<[NodeIndex; 4]>,
}

impl Found {
    /// Begins to look for terminals, of so many nodes.
    #[inline]
    fn begin(&mut self, old: &[(NodeIndex, Order)], nodes: usize) {
        if self.missing.len() < nodes {
            self.missing.grow(roomy(nodes));
        }
        for &(node, _) in old {
            self.count += usize::from(!put(self.missing.as_mut_slice(), node));
        }
    }

    /// Looks for them no longer.
    fn end(&mut self, old: &[(NodeIndex, Order)]) {
        if self.count > 0 {
            old.iter().for_each(|&(node, _)| self.meet(node));
        }
        self.loose.clear();
    }

    #[inline]
    fn meet(&mut self, node: NodeIndex) {
        spend(1);
        self.meet_word(node.index() / WORD, 1 << (node.index() % WORD));
    }

    /// Meets the nodes of a word of a set.
    #[inline]
    fn meet_word(&mut self, word: usize, nodes: Block) {
        let missing = &mut self.missing.as_mut_slice()[word];
        let met = *missing & nodes;
        if met != 0 {
            *missing ^= met;
            self.count -= met.count_ones() as usize;
        }
    }
}

/// How large a set is made for so many nodes: doubling keeps the cost of growing constant per node.
fn roomy(nodes: usize) -> usize {
    nodes.next_power_of_two().max(256)
}

/// Enters a node into a set that is large enough. Whether it was there.
#[inline]
fn put(words: &mut [Block], node: NodeIndex) -> bool {
    let (word, bit) = (&mut words[node.index() / WORD], 1 << (node.index() % WORD));
    let had = *word & bit != 0;
    *word |= bit;
    had
}

impl Reach {
    /// Forgets all nodes; what is allocated stays.
    pub(crate) fn clear(&mut self) {
        self.forget();
        self.two_sets = false;
        self.replace_terminals(&[], &[]);
    }

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

    /// Takes over new terminals.
    ///
    /// Amortised over a capture each node and edge is visited once (with two sets twice), as long as
    /// terminals move forward; a rebuild costs the nodes behind the terminals.
    pub(crate) fn advance(
        &mut self,
        dag: &Dag,
        found: &mut Found,
        rules: Rules,
        raw: &[Dependency],
        terminals: &[(NodeIndex, Order)],
    ) -> Step {
        std::mem::swap(&mut self.old, &mut self.terminals);
        self.terminals.clear();
        self.raw.clear();
        self.enter(raw, terminals);
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

        found.begin(&self.old, dag.len());
        self.traverse(dag, rules.next, found);
        let mut step = Step::Forward;
        if rules.heed_set_back {
            if found.count > 0 {
                self.forget();
                found.end(&self.old);
                self.traverse(dag, rules.next, found);
                if self.old.iter().any(|&(node, _)| !self.is_reached(node)) {
                    step = Step::Broken;
                }
            }
            if found.loose.iter().any(|&node| !self.is_reached(node)) {
                step = Step::Broken;
            }
        }
        found.end(&self.old);
        step
    }

    /// [`Reach::advance`] where every edge is full, the old terminals are met, and all that is new lies in the windows
    /// of the new ones: as nearly always. `None` where that is not so, or not seen at once; then nothing has changed.
    #[inline]
    pub(crate) fn step(
        &mut self,
        dag: &Dag,
        rules: Rules,
        raw: &[Dependency],
        terminals: &[(NodeIndex, Order)],
    ) -> Option<Step> {
        let full = dag.all_full() && !self.two_sets && rules.next == Order::Full;
        if !full || rules.foreseen || rules.anew {
            return None;
        }
        self.grow(dag.len());
        self.skip_complete();
        match *terminals {
            [(terminal, Order::Full)] => {
                let window = self.new_window(dag, terminal)?;
                if !self.terminals.iter().all(|&(old, _)| window.contains(old)) {
                    return None;
                }
                self.take_near(window);
            }
            _ => self.step_to_several(dag, terminals)?,
        }
        match (&mut self.terminals[..], &mut self.raw[..], terminals, raw) {
            ([old], [old_raw], &[terminal], &[raw]) => (*old, *old_raw) = (terminal, raw),
            _ => self.replace_terminals(raw, terminals),
        }
        Some(Step::Forward)
    }

    /// [`Reach::step`] for a few terminals.
    fn step_to_several(&mut self, dag: &Dag, terminals: &[(NodeIndex, Order)]) -> Option<()> {
        let mut windows: [Option<Window<'_>>; STEPPED] = [None; STEPPED];
        let windows = windows.get_mut(..terminals.len())?;
        for (at, &(terminal, order)) in terminals.iter().enumerate() {
            if order != Order::Full {
                return None;
            }
            if self.proves(terminal) {
                continue;
            }
            // A terminal that lies behind another is left to the traversal.
            if windows[..at].iter().flatten().any(|it| it.contains(terminal)) {
                return None;
            }
            windows[at] = Some(self.new_window(dag, terminal)?);
        }
        for &(old, _) in &self.terminals {
            let met = terminals.iter().any(|&(terminal, _)| terminal == old);
            if !met && !windows.iter().flatten().any(|it| it.contains(old)) {
                return None;
            }
        }
        windows.iter().flatten().for_each(|window| self.take_near(*window));
        Some(())
    }

    /// The window of a terminal that is not proven, if it begins among the full words of the set:
    /// nothing behind it is new then.
    #[inline]
    fn new_window<'a>(&self, dag: &'a Dag, terminal: NodeIndex) -> Option<Window<'a>> {
        let window = dag.window(terminal)?;
        (window.first() <= self.complete && !self.proves(terminal)).then_some(window)
    }

    /// Takes over a window behind which nothing is new.
    #[inline]
    fn take_near(&mut self, window: Window<'_>) {
        let from = self.complete;
        let words = &mut self.proven.as_mut_slice()[from..];
        for (had, &word) in words.iter_mut().zip(window.since(from)) {
            *had |= word;
        }
    }

    fn replace_terminals(&mut self, raw: &[Dependency], terminals: &[(NodeIndex, Order)]) {
        self.terminals.clear();
        self.raw.clear();
        self.enter(raw, terminals);
    }

    /// Notes the terminals, of which there are none.
    #[inline]
    fn enter(&mut self, raw: &[Dependency], terminals: &[(NodeIndex, Order)]) {
        // They are one or two: a copy of memory would cost more than it copies.
        terminals.iter().for_each(|&terminal| self.terminals.push(terminal));
        raw.iter().for_each(|&terminal| self.raw.push(terminal));
    }

    /// Goes on to the first word of the set that is not full.
    #[inline]
    fn skip_complete(&mut self) {
        let words = self.proven.as_slice();
        while words.get(self.complete).is_some_and(|&word| word == Block::MAX) {
            self.complete += 1;
        }
    }

    fn forget(&mut self) {
        self.proven.clear();
        self.reached.clear();
        self.complete = 0;
    }

    #[inline]
    fn grow(&mut self, nodes: usize) {
        if self.proven.len() < nodes {
            self.double(nodes);
        }
    }

    #[cold]
    fn double(&mut self, nodes: usize) {
        let bits = roomy(nodes);
        self.proven.grow(bits);
        if self.two_sets {
            self.reached.grow(bits);
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
    fn traverse(&mut self, dag: &Dag, next: Order, found: &mut Found) {
        let near = !self.two_sets && dag.all_full();
        for position in 0..self.terminals.len() {
            let (node, order) = self.terminals[position];
            if near && order == Order::Full && !self.proves(node) {
                if let Some(window) = dag.window(node) {
                    self.take_window(dag, window, found);
                    continue;
                }
            }
            match order {
                Order::Nothing => found.loose.push(node),
                Order::Start => self.arrive(node, false, found),
                Order::Full => self.arrive(node, next == Order::Full, found),
            }
        }
        if near {
            self.traverse_full(dag, found);
            return;
        }
        while let Some(node) = self.stack.pop() {
            // With one set it is.
            let behind = self.proven.contains(node.index());
            for (dependency, order) in dag.dependencies(node) {
                match order {
                    Order::Full => self.arrive(dependency, true, found),
                    Order::Start => self.arrive(dependency, behind, found),
                    Order::Nothing => found.loose.push(dependency),
                }
            }
        }
    }

    /// Takes over what lies close behind a terminal, where every edge is full. What lies further
    /// behind is left to the traversal that follows.
    #[inline]
    fn take_window(&mut self, dag: &Dag, window: Window<'_>, found: &mut Found) {
        let first = window.first();
        if found.count > 0 && self.old.len() <= STEPPED {
            let met = self.old.iter().filter(|&&(node, _)| window.contains(node));
            met.for_each(|&(node, _)| found.meet(node));
        } else if found.count > 0 {
            let words = (first..).zip(window.since(first));
            words.for_each(|(word, &near)| found.meet_word(word, near));
        }
        self.skip_complete();
        let words = self.proven.as_mut_slice();
        // Nothing further behind is new, nor has to be met.
        let ends = self.complete >= first && found.count == 0;
        for (word, &near) in (first..).zip(window.since(first)) {
            let new = near & !words[word];
            words[word] |= new;
            let mut left = if ends { 0 } else { new & dag.rows().far(word, first) };
            while left != 0 {
                let node = word * WORD + left.trailing_zeros() as usize;
                left &= left - 1;
                for &target in dag.rows().targets(node) {
                    if target as usize >= first * WORD {
                        break;
                    }
                    let target = NodeIndex::from_raw(target);
                    if put(words, target) {
                        found.meet(target);
                    } else {
                        self.stack.push(target);
                    }
                }
            }
        }
    }

    /// The traversal where every edge is full, as in nearly all captures: it follows chains without the stack.
    fn traverse_full(&mut self, dag: &Dag, found: &mut Found) {
        let rows = dag.rows();
        let words = self.proven.as_mut_slice();
        let stack = &mut self.stack;
        while let Some(mut node) = stack.pop() {
            loop {
                let mut onward = None;
                for &dependency in rows.targets(node.index()) {
                    let dependency = NodeIndex::from_raw(dependency);
                    if put(words, dependency) {
                        found.meet(dependency);
                    } else if onward.is_none() {
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
    fn arrive(&mut self, node: NodeIndex, proven: bool, found: &mut Found) {
        let bit = node.index();
        if proven {
            if self.proven.put(bit) {
                found.meet(node);
                return;
            }
            if self.two_sets && self.reached.put(bit) {
                found.meet(node);
            }
        } else if self.reached.put(bit) {
            found.meet(node);
            return;
        }
        self.stack.push(node);
    }
}
