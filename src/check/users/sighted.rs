//! Who saw what when, kept for questions of order.

use super::super::graph::Graph;
use super::sights::Sights;

/// So many numbers are kept at most.
const MOST: usize = 1 << 25;

/// Which look at each stream was the first to have a node behind it; empty where edges that were
/// edited or prove less make that another question than whether the node comes before.
pub(super) struct Sighted {
    keeps: bool,
    width: usize,
    batches: Vec<Vec<i32>>,
}

impl Sighted {
    pub fn new(graph: &Graph, streams: usize) -> Self {
        let keeps = graph.is_plain() && graph.len().saturating_mul(streams) <= MOST;
        Self { keeps, width: 1, batches: Vec::new() }
    }

    pub fn keep<const WIDTH: usize>(&mut self, sights: Sights<WIDTH>) {
        if self.keeps {
            self.width = WIDTH;
            self.batches.push(sights.into_flattened());
        }
    }

    /// `None` where that is not known.
    #[inline]
    pub fn first(&self, node: u32, stream: u32) -> Option<i32> {
        let (batch, column) = (stream as usize / self.width, stream as usize % self.width);
        self.batches.get(batch).map(|rows| rows[node as usize * self.width + column])
    }
}
