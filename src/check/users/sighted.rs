//! Who saw what when, kept for questions of order.

use super::super::graph::Graph;
use super::launches::Mask;
use super::log::Log;
use super::sights::{Sights, UNSEEN};

/// So many numbers are kept at most.
const MOST: usize = 1 << 25;

/// Which look at each stream was the first to have a node behind it, and whether the stream's log
/// has the node; empty where edges that were edited or prove less make that another question than
/// what comes before the node.
pub(super) struct Sighted {
    keeps: bool,
    /// The binary logarithm of how many streams a batch has.
    width: u32,
    batches: Vec<(Vec<i32>, Vec<Mask>)>,
}

impl Sighted {
    pub fn new(graph: &Graph, streams: usize) -> Self {
        let keeps = graph.is_plain() && graph.len().saturating_mul(streams) <= MOST;
        Self { keeps, width: 0, batches: Vec::new() }
    }

    pub fn keep<const WIDTH: usize>(&mut self, sights: Sights<WIDTH>, launched: Vec<Mask>) {
        if self.keeps {
            self.width = WIDTH.ilog2();
            self.batches.push((sights.into_flattened(), launched));
        }
    }

    #[inline]
    fn place(&self, stream: u32) -> (usize, usize) {
        ((stream >> self.width) as usize, (stream & ((1 << self.width) - 1)) as usize)
    }

    /// `None` where that is not known.
    #[inline]
    pub fn first(&self, node: u32, stream: u32) -> Option<i32> {
        let (batch, column) = self.place(stream);
        self.batches.get(batch).map(|(rows, _)| rows[(node as usize) << self.width | column])
    }

    /// The look at a stream that ended before the clean step in which the stream may have launched
    /// the node: then the node comes after all that the stream waited for at that look.
    #[inline]
    pub fn look_before_launch(&self, node: u32, stream: u32, log: &Log) -> Option<u32> {
        let (batch, column) = self.place(stream);
        let (rows, launched) = self.batches.get(batch)?;
        let step = rows[(node as usize) << self.width | column];
        if launched[node as usize] >> column & 1 == 0 || step == UNSEEN || step == 0 {
            return None;
        }
        let step = step as u32;
        (log.unclean_until(step - 1) == log.unclean_until(step)).then_some(step - 1)
    }
}
