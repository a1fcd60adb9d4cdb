//! When each node was first seen: by any stream, or by one.

use super::graph::Graph;
use super::history::{History, StreamHistory, NEVER};

/// The entry of the first look at any stream that had each node behind it, or [`NEVER`]. Takes time for each
/// node and edge once, and for each terminal of a look.
pub(crate) fn first_sights(graph: &Graph<'_>, history: &History) -> Vec<u32> {
    let mut first = vec![NEVER; graph.len()];
    let mut open = Vec::new();
    for (stream, look) in history.looks() {
        let stream = &history.streams[stream as usize];
        see(graph, stream.terminals(look), stream.entry(look), &mut first, &mut open);
    }
    first
}

/// The first look at one stream that had each node behind it, or [`NEVER`].
pub(super) fn first_looks(graph: &Graph<'_>, stream: &StreamHistory) -> Vec<u32> {
    let mut first = vec![NEVER; graph.len()];
    let mut open = Vec::new();
    for look in 0..stream.looks() {
        see(graph, stream.terminals(look), look as u32, &mut first, &mut open);
    }
    first
}

/// Notes a look at all that lies behind its terminals and that none saw before.
#[inline]
fn see(graph: &Graph<'_>, terminals: &[u32], look: u32, first: &mut [u32], open: &mut Vec<u32>) {
    let mut enter = |node: u32, open: &mut Vec<u32>| {
        if first[node as usize] == NEVER {
            first[node as usize] = look;
            open.push(node);
        }
    };
    terminals.iter().for_each(|&node| enter(node, open));
    while let Some(node) = open.pop() {
        graph.seen().of(node).iter().for_each(|edge| enter(edge.from(), open));
    }
}
