//! The log of one stream.

use super::super::graph::Graph;
use super::least::Least;

pub(super) const NONE: u32 = u32::MAX;

/// A range of steps of a log: either clean ones only, or a single unclean one.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// The look that the first of the steps begins at; `None` for step 0.
    pub start: Option<u32>,
    /// The last of the steps; may be the tail.
    pub end: u32,
    pub clean: bool,
}

/// The possible launches of one stream, in steps; topological within a step, each node once.
#[derive(Default)]
pub(super) struct Log {
    pub nodes: Vec<u32>,
    /// Where each look's step ends.
    pub ends: Vec<u32>,
    /// How many steps up to each look were unclean.
    pub unclean: Vec<u32>,
    /// Where the nodes of the tail end that other streams' looks saw; no look saw the rest.
    pub seen_tail: u32,
    /// By position, one more than the last earlier position whose node an edge orders before it;
    /// zero where there is none.
    previous: Least,
    /// By position, the first later position whose node an edge orders after it, counted down from
    /// the greatest number so that "none" is least.
    next: Least,
}

impl Log {
    /// The step after the last look.
    pub fn tail(&self) -> u32 {
        self.ends.len() as u32
    }

    pub fn step_end(&self, step: u32) -> u32 {
        let end = self.ends.get(step as usize).copied();
        end.unwrap_or(self.nodes.len() as u32)
    }

    pub fn step_start(&self, step: u32) -> u32 {
        step.checked_sub(1).map_or(0, |before| self.step_end(before))
    }

    pub fn step(&self, step: u32) -> &[u32] {
        &self.nodes[self.step_start(step) as usize..self.step_end(step) as usize]
    }

    /// How many steps after the first look were unclean, up to one that may be the tail.
    pub fn unclean_until(&self, step: u32) -> u32 {
        match step {
            0 => 0,
            step => self.unclean[step.min(self.tail() - 1) as usize],
        }
    }

    /// Cuts the steps after the look `start` until `end` into runs.
    pub fn runs(&self, start: Option<u32>, end: u32) -> impl Iterator<Item = Run> + '_ {
        let mut next = Some(Run { start, end, clean: true });
        std::iter::from_fn(move || {
            let Run { start, .. } = next.take()?;
            let from = start.unwrap_or(0);
            let before = self.unclean_until(from);
            if self.unclean_until(end) == before {
                return Some(Run { start, end, clean: true });
            }
            let unclean = self.unclean.partition_point(|&count| count <= before) as u32;
            if start == Some(unclean - 1) {
                let rest =
                    (unclean < end).then_some(Run { start: Some(unclean), end, clean: true });
                next = rest;
                return Some(Run { start, end: unclean, clean: false });
            }
            next = Some(Run { start: Some(unclean - 1), end, clean: true });
            Some(Run { start, end: unclean - 1, clean: true })
        })
    }

    /// Finds out which nodes follow which. `places` has [`NONE`] for every node, before and after.
    pub fn link(&mut self, graph: &Graph, places: &mut [u32]) {
        let count = self.nodes.len();
        let mut previous = vec![0_u32; count];
        let mut next = vec![0_u32; count];
        for (place, &node) in self.nodes.iter().enumerate() {
            // Edits may order a node before one that was launched earlier; positions decide.
            for edge in graph.proofs().of(node) {
                let from = places[edge.from as usize];
                if from != NONE {
                    previous[place] = previous[place].max(from + 1);
                    let next = &mut next[from as usize];
                    *next = (*next).max(u32::MAX - place as u32);
                }
            }
            places[node as usize] = place as u32;
        }
        for &node in &self.nodes {
            places[node as usize] = NONE;
        }
        let follows = |&(place, &from): &(usize, &u32)| from != place as u32;
        self.previous = Least::of(previous.iter().enumerate().filter(follows));
        let precedes = |&(place, &next): &(usize, &u32)| next != u32::MAX - 1 - place as u32;
        self.next = Least::of(next.iter().enumerate().filter(precedes));
    }

    /// The nodes of a part of the log that follow no other node in it.
    pub fn firsts(&self, start: u32, end: u32, mut found: impl FnMut(u32)) {
        found(self.nodes[start as usize]);
        self.previous.at_most(start + 1, end, start, |place| found(self.nodes[place as usize]));
    }

    /// The nodes of a part of the log that no other node in it follows.
    pub fn lasts(&self, start: u32, end: u32, mut found: impl FnMut(u32)) {
        self.next.at_most(start, end - 1, u32::MAX - end, |place| {
            found(self.nodes[place as usize]);
        });
        found(self.nodes[end as usize - 1]);
    }
}
