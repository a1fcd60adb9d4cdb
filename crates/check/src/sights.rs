//! When each node was first seen: by any stream, or by one.

use super::graph::Graph;
use super::history::{History, StreamHistory, NEVER};

/// The first look of some that had each node behind it, so far.
pub(super) struct Sights {
    /// By node: the look's number, or [`NEVER`].
    pub first: Vec<u32>,
    open: Vec<u32>,
}

impl Sights {
    pub fn new(graph: &Graph<'_>) -> Self {
        Self { first: vec![NEVER; graph.len()], open: Vec::new() }
    }

    /// The next look, by its terminals and its number.
    #[inline]
    pub fn look(&mut self, graph: &Graph<'_>, terminals: &[u32], number: u32) {
        let Self { first, open } = self;
        let mut enter = |node: u32, open: &mut Vec<u32>| {
            let known = &mut first[node as usize];
            if *known == NEVER {
                *known = number;
                open.push(node);
            }
        };
        terminals.iter().for_each(|&node| enter(node, open));
        while let Some(node) = open.pop() {
            graph.seen().of(node).iter().for_each(|edge| enter(edge.from(), open));
        }
    }
}

/// The entry of the first look at any stream that had each node behind it, or [`NEVER`]. Takes time for each
/// node and edge once, and for each terminal of a look.
pub(crate) fn first_sights(graph: &Graph<'_>, history: &History) -> Vec<u32> {
    let mut sights = Sights::new(graph);
    for (stream, look) in history.looks() {
        let stream = &history.streams[stream as usize];
        sights.look(graph, stream.terminals(look), stream.entry(look));
    }
    sights.first
}

/// The first look at one stream that had each node behind it, or [`NEVER`].
pub(super) fn first_looks(graph: &Graph<'_>, stream: &StreamHistory) -> Vec<u32> {
    let mut sights = Sights::new(graph);
    for look in 0..stream.looks() {
        sights.look(graph, stream.terminals(look), look as u32);
    }
    sights.first
}
