//! When each node was first seen: by any stream, or by one.

use super::graph::Graph;
use super::history::{History, StreamHistory, NEVER};

/// The entry of the first look at any stream that had each node behind it, or [`NEVER`]. Takes time for each
/// node and edge once, and for each terminal of a look.
pub(crate) fn first_sights(graph: &Graph<'_>, history: &History) -> Vec<u32> {
    let looks = history.looks().map(|(stream, look)| (&history.streams[stream as usize], look));
    first(graph, looks.map(|(stream, look)| (stream.terminals(look), stream.entry(look))))
}

/// The first look at one stream that had each node behind it, or [`NEVER`].
pub(super) fn first_looks(graph: &Graph<'_>, stream: &StreamHistory) -> Vec<u32> {
    first(graph, (0..stream.looks()).map(|look| (stream.terminals(look), look as u32)))
}

/// The number of the first look, of these by their terminals and numbers, that had each node behind it.
fn first<'a>(graph: &Graph<'_>, looks: impl Iterator<Item = (&'a [u32], u32)>) -> Vec<u32> {
    let mut first = vec![NEVER; graph.len()];
    let mut open = Vec::new();
    for (terminals, look) in looks {
        let mut enter = |node: u32, open: &mut Vec<u32>| {
            if first[node as usize] == NEVER {
                first[node as usize] = look;
                open.push(node);
            }
        };
        terminals.iter().for_each(|&node| enter(node, &mut open));
        while let Some(node) = open.pop() {
            graph.seen().of(node).iter().for_each(|edge| enter(edge.from(), &mut open));
        }
    }
    first
}
