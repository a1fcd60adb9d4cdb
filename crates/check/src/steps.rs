//! What became of a stream's terminals from one look to the next.
//!
//! A step is *broken* if something that the stream launched in it need not come after all that the
//! stream waited for before: a former terminal does not lie behind the new ones, or the stream
//! gained nodes by no launch that depends on all former terminals and yet lost one of them.

use std::cell::OnceCell;

use super::graph::{Edge, Graph};
use super::history::StreamHistory;
use super::marks::Marks;
use super::sights::first_looks;

/// The steps of one stream, each numbered by the look that ends it. The last of them, behind the last
/// look, is never broken.
pub(super) struct Steps {
    /// By look: how many steps up to it were broken; empty where none was.
    broken: Vec<u32>,
    /// By look: when a node was first seen that is sure to be a launch of the step; zero where none
    /// is known.
    launched: Vec<u32>,
}

/// What judging the steps of one stream needs.
pub(super) struct Source<'a> {
    pub graph: &'a Graph<'a>,
    pub stream: &'a StreamHistory,
    pub first_seen: &'a [u32],
    /// The first look at the stream that had each node behind it, once that is asked for.
    pub seen_here: OnceCell<Vec<u32>>,
}

impl Steps {
    pub fn read(source: &Source<'_>, marks: &mut Marks) -> Self {
        let stream = source.stream;
        let looks = stream.looks();
        let mut steps = Self { broken: Vec::new(), launched: vec![0; looks] };
        let mut broken = 0;
        for look in 1..looks {
            let (whole, launch) = source.step(look, marks);
            broken += u32::from(!whole);
            if broken > 0 {
                steps.broken.resize(look, 0);
                steps.broken.push(broken);
            }
            let seen = launch.map_or(0, |node| source.first_seen[node as usize]);
            if seen > stream.entry(look - 1) {
                steps.launched[look] = seen;
            }
        }
        steps
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

    /// Whether one of the next steps, up to one, has a launch that was first seen after an entry. A
    /// quick look: false says nothing.
    pub fn launches(&self, after: u32, until: u32, entry: u32) -> bool {
        let end = self.launched.len().min(until as usize + 1).min(after as usize + 9);
        let steps = self.launched.get(after as usize + 1..end);
        steps.is_some_and(|steps| steps.iter().any(|&seen| seen > entry))
    }
}

impl Source<'_> {
    /// Whether a step is whole, and a launch of it.
    fn step(&self, look: usize, marks: &mut Marks) -> (bool, Option<u32>) {
        let (before, now) = (self.stream.terminals(look - 1), self.stream.terminals(look));
        if before == now {
            return (true, None);
        }
        let depends = |node: u32| depends_on_all(self.graph.any().of(node), before);
        // What no look saw before the step began is new to the stream.
        let began = self.stream.entry(look - 1);
        let is_fresh = |node: u32| self.first_seen[node as usize] > began;
        let kept = || before.iter().all(|node| now.contains(node));
        if self.graph.is_whole() {
            let launch = now.iter().copied().find(|&node| is_fresh(node) && depends(node));
            let launch = launch.or_else(|| self.find(now, marks, is_fresh, depends));
            if launch.is_some() || kept() {
                return (true, launch);
            }
        }
        let seen_here = self.seen_here.get_or_init(|| first_looks(self.graph, self.stream));
        let is_new = |node: u32| seen_here[node as usize] == look as u32;
        let gains = now.iter().any(|&node| is_new(node));
        let launch = self.find(now, marks, is_new, depends);
        // The launch lies behind the new terminals, and what it depended on when it was seen does, too.
        let seen = |node: u32| depends_on_all(self.graph.seen().of(node), before);
        let goes_on = !gains || launch.is_some();
        let whole =
            kept() || launch.is_some_and(seen) || goes_on && self.lies_behind(before, now, marks);
        (whole, launch)
    }

    /// Looks for a node behind `now`, by a walk over those that are `open`.
    fn find(
        &self,
        now: &[u32],
        marks: &mut Marks,
        open: impl Fn(u32) -> bool,
        is: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        marks.clear();
        // The first of what a node depends on most likely is its own stream's: that is looked at first.
        let mut stack: Vec<u32> = now.iter().rev().copied().collect();
        while let Some(node) = stack.pop() {
            if open(node) && marks.insert(node) {
                if is(node) {
                    return Some(node);
                }
                stack.extend(self.graph.seen().of(node).iter().rev().map(|edge| edge.from()));
            }
        }
        None
    }

    /// Whether all of `before` lies behind `now`, by a walk. Nodes that lie before all of them are
    /// left out.
    fn lies_behind(&self, before: &[u32], now: &[u32], marks: &mut Marks) -> bool {
        let least = match self.graph.any_ordered {
            true => before.iter().copied().min().unwrap_or(0),
            false => 0,
        };
        self.find(now, marks, |node| node >= least, |_| false);
        before.iter().all(|&node| marks.contains(node))
    }
}

fn depends_on_all(edges: &[Edge], before: &[u32]) -> bool {
    // Mostly they come in the same order.
    let mut same = before.iter().zip(edges);
    edges.len() >= before.len() && same.all(|(&node, edge)| edge.from() == node)
        || before.iter().all(|&node| edges.iter().any(|edge| edge.from() == node))
}
