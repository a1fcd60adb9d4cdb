//! What became of a stream's terminals from one look to the next.
//!
//! A step is *broken* if something that the stream launched in it need not come after all that the
//! stream waited for before: a former terminal does not lie behind the new ones, or the stream
//! gained nodes by no launch that depends on all former terminals and yet lost one of them.

use super::graph::Graph;
use super::history::StreamHistory;
use super::lists::Lists;
use super::marks::Marks;
use super::sights::Sights;

/// The steps of one stream, each numbered by the look that ends it. The last of them, behind the last
/// look, is never broken.
pub(super) struct Steps {
    /// By look: how many steps up to it were broken; empty where none was.
    broken: Vec<u32>,
    /// By look: when a node was first seen that is sure to be a launch of the step; zero where none
    /// is known.
    launched: Vec<u32>,
}

/// What judging steps needs.
pub(super) struct Source<'a> {
    pub graph: &'a Graph,
    pub successors: &'a Lists<u32>,
    pub first_seen: &'a [u32],
    pub sights: &'a Sights,
}

impl Steps {
    pub fn read(
        source: &Source<'_>,
        stream: &StreamHistory,
        column: usize,
        marks: &mut Marks,
    ) -> Self {
        let looks = stream.looks();
        let mut steps = Self { broken: Vec::new(), launched: vec![0; looks] };
        let mut broken = 0;
        for look in 1..looks {
            let (whole, launch) = source.step(stream, column, look, marks);
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
    fn step(
        &self,
        stream: &StreamHistory,
        column: usize,
        look: usize,
        marks: &mut Marks,
    ) -> (bool, Option<u32>) {
        let (before, now) = (stream.terminals(look - 1), stream.terminals(look));
        if before == now {
            return (true, None);
        }
        let is_new = |node: u32| self.sights.of(node, column) == look as u32;
        let kept = || before.iter().all(|node| now.contains(node));
        let Some(&new) = now.iter().find(|&&node| is_new(node)) else {
            return (kept() || self.lies_behind(before, now, marks), None);
        };
        let Some(&one) = before.first() else {
            return (true, Some(new));
        };
        let depends =
            |node: u32| depends_on_all(self.graph.any().of(node).iter().map(|it| it.from), before);
        // The last to be seen, which most likely is the stream's own.
        let began = stream.entry(look - 1);
        let fresh = |&node: &u32| self.first_seen[node as usize] > began && depends(node);
        let first = Some(new).filter(fresh).or_else(|| {
            let successors = self.successors.of(one).iter().copied();
            let launches = successors.filter(|&node| is_new(node) && depends(node));
            launches.max_by_key(|&node| self.first_seen[node as usize])
        });
        let Some(first) = first else {
            return (kept(), None);
        };
        // The launch lies behind the new terminals, and what it depended on when it was seen does, too.
        let seen = || depends_on_all(self.graph.seen().of(first).iter().map(|it| it.from), before);
        (
            self.graph.is_whole() || seen() || kept() || self.lies_behind(before, now, marks),
            Some(first),
        )
    }

    /// Whether all of `before` lies behind `now`, by a walk. Nodes that lie before all of them are
    /// left out.
    fn lies_behind(&self, before: &[u32], now: &[u32], marks: &mut Marks) -> bool {
        let least = match self.graph.any_ordered {
            true => before.iter().copied().min().unwrap_or(0),
            false => 0,
        };
        marks.clear();
        let mut stack = now.to_vec();
        while let Some(node) = stack.pop() {
            if node >= least && marks.insert(node) {
                stack.extend(self.graph.seen().of(node).iter().map(|edge| edge.from));
            }
        }
        before.iter().all(|&node| marks.contains(node))
    }
}

fn depends_on_all(on: impl Iterator<Item = u32> + Clone, before: &[u32]) -> bool {
    // Mostly they come in the same order.
    before.iter().copied().eq(on.clone().take(before.len()))
        || before.iter().all(|&node| on.clone().any(|from| from == node))
}
