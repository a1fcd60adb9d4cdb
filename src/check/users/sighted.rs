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

    /// Whether one node comes before another, where that can be seen: whatever had the later one
    /// behind it, had the earlier one, too; and a stream that may have launched the later one in a
    /// clean step did so behind all that it waited for before.
    pub fn precedes(&self, earlier: u32, later: u32, logs: &[Log]) -> Option<bool> {
        let width = 1 << self.width;
        for (rows, _) in &self.batches {
            let row = |node: u32| &rows[(node as usize) << self.width..][..width];
            let pairs = row(earlier).iter().zip(row(later));
            // No early way out: this way several streams are compared at once.
            if pairs.fold(false, |found, (earlier, later)| found | (earlier > later)) {
                return Some(false);
            }
        }
        for (batch, (rows, launched)) in self.batches.iter().enumerate() {
            let mut streams = launched[later as usize];
            while streams != 0 {
                let column = streams.trailing_zeros() as usize;
                streams &= streams - 1;
                let stream = batch << self.width | column;
                let seen = rows[(earlier as usize) << self.width | column] as u32;
                let log = &logs[stream];
                let look = self.look_before_launch(later, stream as u32, log);
                let clean = |look| log.unclean_until(seen) == log.unclean_until(look);
                if look.is_some_and(|look| seen <= look && clean(look)) {
                    return Some(true);
                }
            }
        }
        None
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
