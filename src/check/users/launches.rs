//! Which nodes each stream may have launched between two looks at it.

use super::super::graph::Graph;
use super::super::history::{StreamHistory, NEVER};
use super::super::lists::Lists;
use super::log::Log;
use super::marks::Marks;
use super::sights::{Sights, UNSEEN};
use super::Need;

/// Bits of the streams of a batch.
pub(super) type Mask = u16;

/// What reading the logs needs of the capture.
pub(super) struct Source<'a> {
    pub graph: &'a Graph,
    pub successors: &'a Lists<u32>,
    pub first_seen: &'a [u32],
}

/// A batch of streams while their logs are read.
struct Batch<'a, const WIDTH: usize> {
    source: &'a Source<'a>,
    sights: &'a Sights<WIDTH>,
    streams: &'a [StreamHistory],
    marks: &'a mut Marks,
    /// By node: the streams that may have launched it in the step that gained it.
    launched: Vec<Mask>,
    /// By stream and look: whether all that the step gained may be launches.
    all: Vec<Vec<bool>>,
}

/// Adds the logs of at most `WIDTH` streams. Answers by node which of them have it.
pub(super) fn read<const WIDTH: usize>(
    source: &Source<'_>,
    sights: &Sights<WIDTH>,
    streams: &[StreamHistory],
    needs: &[Need],
    marks: &mut Marks,
    logs: &mut Vec<Log>,
) -> Vec<Mask> {
    let mut batch = Batch {
        source,
        sights,
        streams,
        marks,
        launched: vec![0; source.graph.len()],
        all: Vec::with_capacity(streams.len()),
    };
    let from = logs.len();
    for (column, need) in needs.iter().enumerate() {
        logs.push(batch.judge(column, need));
    }
    batch.sort(needs, &mut logs[from..])
}

impl<const WIDTH: usize> Batch<'_, WIDTH> {
    /// Judges every step of a stream, and marks the first launches of those that are clean.
    fn judge(&mut self, column: usize, need: &Need) -> Log {
        let looks = self.streams[column].looks();
        let mut all = vec![false; looks];
        let mut log = Log::default();
        log.unclean.reserve(looks);
        let mut unclean = 0;
        for (look, all) in all.iter_mut().enumerate() {
            if look == 0 {
                *all = need.step_0_after != NEVER;
            } else if let Some(clean) = self.step(column, look) {
                *all = true;
                unclean += u32::from(!clean);
            }
            log.unclean.push(unclean);
        }
        self.all.push(all);
        log
    }

    /// Judges one step. `None` where its launches are its first ones and what follows from them;
    /// else whether it is clean nevertheless.
    fn step(&mut self, column: usize, look: usize) -> Option<bool> {
        let Self { source, sights, streams, .. } = *self;
        let (before, now) = (streams[column].terminals(look - 1), streams[column].terminals(look));
        let grew = now.iter().any(|&node| sights.of(node, column) == look as i32);
        let kept = before.iter().all(|node| now.contains(node));
        if !grew && kept {
            return None;
        }
        if !source.graph.any_ordered {
            return Some(false);
        }
        let Some(&one) = before.first() else {
            return Some(true);
        };
        if !grew {
            return (!self.lies_behind(before, now)).then_some(false);
        }
        let mut first = None;
        for &node in source.successors.of(one) {
            if sights.of(node, column) == look as i32
                && depends_on_all(source.graph, node, before, self.marks)
            {
                self.launched[node as usize] |= 1 << column;
                first = Some(node);
            }
        }
        let Some(first) = first else {
            // Nothing looks like a launch; then nothing that was waited for may be gone.
            return (!kept).then_some(false);
        };
        // The first launch lies behind the terminals, and what it depends on does, too, unless
        // that is an edit.
        let moved_on = kept || source.graph.is_plain() || {
            let seen = source.graph.seen().of(first);
            before.iter().all(|&node| seen.iter().any(|edge| edge.from == node))
        };
        (!moved_on && !self.lies_behind(before, now)).then_some(false)
    }

    /// Whether all of `before` lies behind `now`, by a walk. Nodes that lie before all of them are
    /// left out.
    fn lies_behind(&mut self, before: &[u32], now: &[u32]) -> bool {
        let least = before.iter().copied().min().unwrap_or(0);
        self.marks.clear();
        let mut stack = now.to_vec();
        while let Some(node) = stack.pop() {
            if node >= least && self.marks.insert(node) {
                let seen = self.source.graph.seen().of(node);
                stack.extend(seen.iter().map(|edge| edge.from));
            }
        }
        before.iter().all(|&node| self.marks.contains(node))
    }

    /// What lies behind the last of the steps of a stream that are taken whole.
    fn last_of_all(&self, column: usize) -> u32 {
        let looks = self.all[column].iter().enumerate().filter(|&(_, &all)| all);
        if !self.source.graph.any_ordered {
            return if looks.count() > 0 { u32::MAX } else { 0 };
        }
        let nodes = looks.flat_map(|(look, _)| self.streams[column].terminals(look));
        nodes.max().map_or(0, |&node| node + 1)
    }

    /// Finds what follows from the first launches, each within its step, and sorts all launches
    /// into the logs.
    fn sort(self, needs: &[Need], logs: &mut [Log]) -> Vec<Mask> {
        let lasts: Vec<u32> = (0..self.streams.len()).map(|it| self.last_of_all(it)).collect();
        let Self { source, sights, streams, mut launched, all, .. } = self;
        // The streams that may have whole steps from here on, and where that changes.
        let (mut takes_all, mut until): (Mask, u32) = (0, 0);
        let mut found: Vec<Vec<(u32, u32)>> = Vec::new();
        found.resize_with(logs.len(), Vec::new);
        for node in 0..source.graph.len() as u32 {
            if node >= until {
                (takes_all, until) = (0, u32::MAX);
                for (column, &last) in lasts.iter().enumerate().filter(|&(_, &last)| last > node) {
                    takes_all |= 1 << column;
                    until = until.min(last);
                }
            }
            let mut mine = launched[node as usize];
            if source.graph.any_ordered {
                for edge in source.graph.any().of(node) {
                    let mut others = launched[edge.from as usize] & !mine;
                    while others != 0 {
                        let column = others.trailing_zeros() as usize;
                        others &= others - 1;
                        let same = sights.of(edge.from, column) == sights.of(node, column);
                        mine |= Mask::from(same) << column;
                    }
                }
            }
            let mut whole = takes_all & !mine;
            while whole != 0 {
                let column = whole.trailing_zeros() as usize;
                whole &= whole - 1;
                let look = sights.of(node, column);
                if look == UNSEEN || !all[column][look as usize] {
                    continue;
                }
                // What a look saw before the step began was not launched in it.
                let begin = match look {
                    0 => needs[column].step_0_after,
                    look => streams[column].entry(look as usize - 1),
                };
                if source.first_seen[node as usize] > begin {
                    mine |= 1 << column;
                }
            }
            launched[node as usize] = mine;
            while mine != 0 {
                let column = mine.trailing_zeros() as usize;
                mine &= mine - 1;
                found[column].push((sights.of(node, column) as u32, node));
            }
        }
        for ((log, mut found), all) in logs.iter_mut().zip(found).zip(all) {
            if !found.is_sorted_by_key(|&(step, _)| step) {
                // Stable, so that each step stays in topological order.
                found.sort_by_key(|&(step, _)| step);
            }
            log.fill(all.len(), &found);
        }
        launched
    }
}

impl Log {
    fn fill(&mut self, looks: usize, found: &[(u32, u32)]) {
        self.nodes = found.iter().map(|&(_, node)| node).collect();
        self.ends = Vec::with_capacity(looks);
        for (place, &(step, _)) in found.iter().enumerate() {
            self.ends.resize(step as usize, place as u32);
        }
        self.ends.resize(looks, found.len() as u32);
    }
}

/// Whether a node has all of `before` as direct predecessors.
pub(super) fn depends_on_all(graph: &Graph, node: u32, before: &[u32], marks: &mut Marks) -> bool {
    let edges = graph.any().of(node);
    if before.len() <= 8 {
        return before.iter().all(|&node| edges.iter().any(|edge| edge.from == node));
    }
    marks.clear();
    for edge in edges {
        marks.insert(edge.from);
    }
    before.iter().all(|&node| marks.contains(node))
}
