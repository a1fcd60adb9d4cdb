//! When each node was first seen: by any stream, and by each stream.

use super::super::graph::Graph;
use super::super::history::{History, StreamHistory, NEVER};

/// Stands for a look that never came.
pub(super) const UNSEEN: i32 = i32::MAX;

/// The entry of the first look at any stream that had each node behind it.
pub(crate) fn first_sights(graph: &Graph, history: &History) -> Vec<u32> {
    let mut first = vec![NEVER; graph.len()];
    if !graph.any_ordered {
        for &(stream, look) in &history.looks {
            let stream = &history.streams[stream as usize];
            let entry = stream.entry(look as usize);
            walk(graph, stream.terminals(look as usize), |node| {
                let new = first[node as usize] == NEVER;
                if new {
                    first[node as usize] = entry;
                }
                new
            });
        }
        return first;
    }
    for &(stream, look) in history.looks.iter().rev() {
        let stream = &history.streams[stream as usize];
        for &terminal in stream.terminals(look as usize) {
            first[terminal as usize] = stream.entry(look as usize);
        }
    }
    for node in (0..graph.len() as u32).rev() {
        let entry = first[node as usize];
        for edge in graph.seen().of(node) {
            let before = &mut first[edge.from as usize];
            *before = entry.min(*before);
        }
    }
    first
}

/// By node and stream of a batch: the first look at the stream that had the node behind it.
pub(super) struct Sights<const WIDTH: usize> {
    rows: Vec<[i32; WIDTH]>,
}

impl<const WIDTH: usize> Sights<WIDTH> {
    /// Of at most `WIDTH` streams.
    pub fn read(graph: &Graph, streams: &[StreamHistory]) -> Self {
        let mut rows = vec![[UNSEEN; WIDTH]; graph.len()];
        if !graph.any_ordered {
            for (column, stream) in streams.iter().enumerate() {
                for look in 0..stream.looks() {
                    walk(graph, stream.terminals(look), |node| {
                        let first = &mut rows[node as usize][column];
                        let new = *first == UNSEEN;
                        if new {
                            *first = look as i32;
                        }
                        new
                    });
                }
            }
            return Self { rows };
        }
        for (column, stream) in streams.iter().enumerate() {
            for look in (0..stream.looks()).rev() {
                for &terminal in stream.terminals(look) {
                    rows[terminal as usize][column] = look as i32;
                }
            }
        }
        // What lies behind a node lies behind all that it lies behind, and has a smaller number.
        for node in (0..graph.len() as u32).rev() {
            let row = rows[node as usize];
            for edge in graph.seen().of(node) {
                for (before, look) in rows[edge.from as usize].iter_mut().zip(row) {
                    *before = look.min(*before);
                }
            }
        }
        Self { rows }
    }

    #[inline]
    pub fn of(&self, node: u32, column: usize) -> i32 {
        self.rows[node as usize][column]
    }

    /// Row after row.
    pub fn into_flattened(self) -> Vec<i32> {
        self.rows.into_flattened()
    }
}

/// Visits all that lies behind some nodes, except behind nodes that `is_new` turns down.
fn walk(graph: &Graph, from: &[u32], mut is_new: impl FnMut(u32) -> bool) {
    let mut stack = from.to_vec();
    while let Some(node) = stack.pop() {
        if is_new(node) {
            stack.extend(graph.seen().of(node).iter().map(|edge| edge.from));
        }
    }
}
