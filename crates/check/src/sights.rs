//! When each node was first seen: by any stream, and by each stream.

use super::graph::Graph;
use super::history::{History, StreamHistory, NEVER};

/// Stands for a look that never came.
pub(super) const UNSEEN: u32 = i32::MAX as u32;

/// The entry of the first look at any stream that had each node behind it.
pub(crate) fn first_sights(graph: &Graph, history: &History) -> Vec<u32> {
    let mut first = vec![NEVER; graph.len()];
    for &(stream, look) in history.looks.iter().rev() {
        let stream = &history.streams[stream as usize];
        for &terminal in stream.terminals(look as usize) {
            first[terminal as usize] = stream.entry(look as usize);
        }
    }
    loop {
        let mut changed = false;
        for node in (0..graph.len() as u32).rev() {
            let entry = first[node as usize];
            for edge in graph.seen().of(node) {
                let before = &mut first[edge.from as usize];
                changed |= entry < *before;
                *before = entry.min(*before);
            }
        }
        // Where edits left no order of the nodes, one sweep need not do.
        if graph.any_ordered || !changed {
            return first;
        }
    }
}

/// What a batch of streams saw, by node and stream.
pub(super) struct Sights {
    width: usize,
    /// The first look at the stream that had the node behind it.
    behind: Vec<i32>,
    /// The first look at which the node was sure to be completed before anything that the stream would
    /// launch next, even behind an edge that proves an order of starts only. Empty where no such
    /// edges are: then it is the same.
    done: Vec<i32>,
}

impl Sights {
    /// How many streams a batch has where there are so many.
    pub fn width(streams: usize) -> usize {
        match streams {
            0 | 1 => 1,
            2..=4 => 4,
            _ => 16,
        }
    }

    /// Of at most `width` streams.
    pub fn read(graph: &Graph, streams: &[StreamHistory], width: usize) -> Self {
        match width {
            1 => Self::sweep::<1>(graph, streams),
            4 => Self::sweep::<4>(graph, streams),
            _ => Self::sweep::<16>(graph, streams),
        }
    }

    fn sweep<const WIDTH: usize>(graph: &Graph, streams: &[StreamHistory]) -> Self {
        const NONE: i32 = UNSEEN as i32;
        let mut behind = vec![[NONE; WIDTH]; graph.len()];
        for (column, stream) in streams.iter().enumerate() {
            for look in (0..stream.looks()).rev() {
                for &terminal in stream.terminals(look) {
                    behind[terminal as usize][column] = look as i32;
                }
            }
        }
        // What lies behind a node lies behind all that it lies behind, and has a smaller number.
        loop {
            let before = (!graph.any_ordered).then(|| behind.clone());
            for node in (0..graph.len() as u32).rev() {
                let row = behind[node as usize];
                for edge in graph.seen().of(node) {
                    lower(&mut behind[edge.from as usize], &row);
                }
            }
            if before.is_none_or(|before| before == behind) {
                break;
            }
        }
        let mut done = Vec::new();
        if graph.has_starts() {
            done.resize(graph.len(), [NONE; WIDTH]);
            for node in (0..graph.len() as u32).rev() {
                let (reached, row) = (behind[node as usize], done[node as usize]);
                for edge in graph.proofs().of(node) {
                    lower(&mut done[edge.from as usize], if edge.full { &reached } else { &row });
                }
            }
        }
        let (behind, done) = (behind.into_flattened(), done.into_flattened());
        Self { width: WIDTH, behind, done }
    }

    /// The first look at a stream of the batch that had the node behind it, or [`UNSEEN`].
    #[inline]
    pub fn of(&self, node: u32, column: usize) -> u32 {
        self.behind[node as usize * self.width + column] as u32
    }

    /// The first look from which on the node is completed before what the stream launches next.
    #[inline]
    pub fn done(&self, node: u32, column: usize) -> u32 {
        let rows = if self.done.is_empty() { &self.behind } else { &self.done };
        rows[node as usize * self.width + column] as u32
    }
}

#[inline]
fn lower<const WIDTH: usize>(row: &mut [i32; WIDTH], to: &[i32; WIDTH]) {
    for (mine, &other) in row.iter_mut().zip(to) {
        *mine = other.min(*mine);
    }
}
