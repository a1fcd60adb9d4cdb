//! What became of a stream's terminals from one look to the next.
//!
//! A step is *broken* if something that the stream launched in it need not come after all that the
//! stream waited for before: a former terminal does not lie behind the new ones, or the stream
//! gained nodes by no launch that depends on all former terminals and yet lost one of them.

use std::cell::OnceCell;

use super::graph::{Edge, Graph};
use super::history::{History, StreamHistory};
use super::marks::Marks;
use super::sights::{first_looks, Sights};
use regraph_record::effort::spend;

/// The steps of one stream, each numbered by the look that ends it. The last of them, behind the last
/// look, is never broken.
#[derive(Default)]
pub(super) struct Steps {
    /// By look: how many steps up to it were broken; empty where none was.
    broken: Vec<u32>,
    /// By look: when a node was first seen that the step gained behind all before it; zero where none is known.
    launched: Vec<u32>,
    /// The first look at the stream that had each node behind it, once that is asked for.
    seen_here: OnceCell<Vec<u32>>,
}

/// The nodes that a walk has met, and those that it has still to look at.
struct Walk {
    marks: Marks,
    open: Vec<u32>,
}

/// So many nodes are looked for one by one.
const FEW: usize = 4;

/// More nodes than [`FEW`] that are looked for among others.
struct Wanted {
    nodes: Marks,
    met: Marks,
    /// How many nodes there are, each once.
    count: usize,
}

impl Wanted {
    fn set(&mut self, nodes: &[u32]) {
        if nodes.len() > FEW {
            self.nodes.clear();
            self.count = nodes.iter().filter(|&&node| self.nodes.insert(node)).count();
        }
    }

    /// Whether all of the nodes, which were set, are among others. Takes time for each of those, however many are wanted.
    #[inline]
    fn are_among(&mut self, nodes: &[u32], others: impl Iterator<Item = u32> + Clone) -> bool {
        let others = others.inspect(|_| spend(1));
        if nodes.len() <= FEW {
            return nodes.iter().all(|&node| others.clone().any(|other| other == node));
        }
        let Self { nodes: wanted, met, count } = self;
        met.clear();
        let found = others.filter(|&node| wanted.contains(node) && met.insert(node));
        found.take(*count).count() == *count
    }
}

/// What judging a step needs.
struct Source<'a> {
    graph: &'a Graph<'a>,
    stream: &'a StreamHistory,
    first_seen: &'a [u32],
    seen_here: &'a OnceCell<Vec<u32>>,
    /// The look that ends it.
    look: usize,
    /// The terminals at the look before, and its entry.
    before: &'a [u32],
    began: u32,
    /// The terminals at the look.
    now: &'a [u32],
}

impl Steps {
    /// The first look at any stream that had each node behind it, by its entry, and the steps of each stream: in one
    /// pass over the looks, since what is asked of a step was seen when it ended.
    pub fn read(graph: &Graph<'_>, history: &History) -> (Vec<u32>, Vec<Self>) {
        let mut sights = Sights::new(graph);
        let marks = || Marks::new(graph.len());
        let mut walk = Walk { marks: marks(), open: Vec::new() };
        let mut wanted = Wanted { nodes: marks(), met: marks(), count: 0 };
        let mut all: Vec<Self> = history.streams.iter().map(|_| Self::default()).collect();
        for (number, look) in history.looks() {
            let stream = &history.streams[number as usize];
            let steps = &mut all[number as usize];
            let (now, entry) = (stream.terminals(look), stream.entry(look));
            sights.look(graph, now, entry);
            let launched = look.checked_sub(1).map_or(0, |before| {
                let first_seen = &sights.first;
                let seen_here = &steps.seen_here;
                let began = stream.entry(before);
                let before = stream.terminals(before);
                let source =
                    Source { graph, stream, first_seen, seen_here, look, before, began, now };
                let (whole, launch) = source.step(&mut walk, &mut wanted);
                if !whole || !steps.broken.is_empty() {
                    let broken = steps.broken.last().copied().unwrap_or(0);
                    steps.broken.resize(look, 0);
                    steps.broken.push(broken + u32::from(!whole));
                }
                // A node that a look at another stream showed before the step began was not launched in it.
                let seen = launch.map_or(0, |node| first_seen[node as usize]);
                seen * u32::from(seen > began)
            });
            steps.launched.push(launched);
        }
        (sights.first, all)
    }

    /// How many steps were broken, up to one that may be the last.
    #[inline]
    pub fn broken_until(&self, step: u32) -> u32 {
        match self.broken.last() {
            None => 0,
            Some(&all) => self.broken.get(step as usize).copied().unwrap_or(all),
        }
    }

    /// The last broken step up to one.
    pub fn last_broken(&self, until: u32) -> Option<u32> {
        match self.broken_until(until) {
            0 => None,
            count => Some(self.broken.partition_point(|&broken| broken < count) as u32),
        }
    }

    /// Whether one of the next steps, up to one, gained behind all before it what was first seen after an entry. A quick
    /// look: false says nothing.
    pub fn launches(&self, after: u32, until: u32, entry: u32) -> bool {
        let end = self.launched.len().min(until as usize + 1).min(after as usize + 9);
        let steps = self.launched.get(after as usize + 1..end);
        steps.is_some_and(|steps| steps.iter().any(|&seen| seen > entry))
    }
}

impl Source<'_> {
    /// Whether a step is whole, and a launch of it.
    fn step(&self, walk: &mut Walk, wanted: &mut Wanted) -> (bool, Option<u32>) {
        let Self { graph, before, now, look, began, .. } = *self;
        if before == now {
            return (true, None);
        }
        wanted.set(before);
        let mut depends = |node: u32| wanted.are_among(before, sources(graph.seen().of(node)));
        // What no look saw before the step began is new to the stream.
        let is_fresh = |node: u32| self.first_seen[node as usize] > began;
        let launch = now.iter().copied().find(|&node| is_fresh(node) && depends(node));
        let launch = launch.or_else(|| self.find(now, walk, is_fresh, depends));
        if launch.is_some() || wanted.are_among(before, now.iter().copied()) {
            return (true, launch);
        }
        let seen_here = self.seen_here.get_or_init(|| first_looks(graph, self.stream));
        let is_new = |node: u32| seen_here[node as usize] == look as u32;
        let gains = now.iter().any(|&node| is_new(node));
        let depends = |node: u32| wanted.are_among(before, sources(graph.any().of(node)));
        let launch = self.find(now, walk, is_new, depends);
        ((!gains || launch.is_some()) && self.lies_behind(before, now, walk), launch)
    }

    /// Looks for a node behind `now`, by a walk over those that are `open`.
    fn find(
        &self,
        now: &[u32],
        walk: &mut Walk,
        open: impl Fn(u32) -> bool,
        mut is: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        walk.marks.clear();
        // The first of what a node depends on most likely is its own stream's: that is looked at first.
        walk.open.clear();
        walk.open.extend(now.iter().rev());
        while let Some(node) = walk.open.pop() {
            if open(node) && walk.marks.insert(node) {
                if is(node) {
                    return Some(node);
                }
                walk.open.extend(self.graph.seen().of(node).iter().rev().map(|edge| edge.from()));
            }
        }
        None
    }

    /// Whether all of `before` lies behind `now`, by a walk. Nodes that lie before all of them are left out.
    fn lies_behind(&self, before: &[u32], now: &[u32], walk: &mut Walk) -> bool {
        let least = match self.graph.any_ordered {
            true => before.iter().copied().min().unwrap_or(0),
            false => 0,
        };
        self.find(now, walk, |node| node >= least, |_| false);
        before.iter().all(|&node| walk.marks.contains(node))
    }
}

fn sources(edges: &[Edge]) -> impl Iterator<Item = u32> + Clone + '_ {
    edges.iter().map(|edge| edge.from())
}
