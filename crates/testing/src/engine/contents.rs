//! What content at each address of a pool, and for freed memory what a stream must wait for to take it.

use regraph::driver::NodeHandle;

/// What content at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A block.
    Live,
    /// Freed in a capture that is under way.
    Freed(Freed),
    /// Nothing that this model has an opinion on.
    Other,
}

/// Memory freed in a capture that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Freed {
    pub capture: usize,
    pub owner: usize,
    pub markers: Vec<NodeHandle>,
    /// Whether no stream may take it.
    pub held: bool,
    /// Whether the engine may ask for more than is needed: it cannot tell a stream that it looks
    /// at for the first time from one that has moved.
    pub vague: bool,
}

/// The memory of one pool.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Disjoint, in no order.
    ranges: Vec<(u64, u64, Content)>,
}

impl Contents {
    /// Everything that content in `start..end`, cut to it.
    pub(super) fn within(&self, start: u64, end: u64) -> Vec<(u64, u64, Content)> {
        let overlapping = self.ranges.iter().filter(|range| range.0 < end && start < range.1);
        overlapping.map(|(a, b, content)| (*a.max(&start), *b.min(&end), content.clone())).collect()
    }

    /// Puts something there and returns what lay there before.
    pub(super) fn put(
        &mut self,
        start: u64,
        end: u64,
        content: Content,
    ) -> Vec<(u64, u64, Content)> {
        let before = self.within(start, end);
        let mut rest = Vec::new();
        for (a, b, here) in std::mem::take(&mut self.ranges) {
            if b <= start || end <= a {
                rest.push((a, b, here));
                continue;
            }
            if a < start {
                rest.push((a, start, here.clone()));
            }
            if end < b {
                rest.push((end, b, here));
            }
        }
        rest.push((start, end, content));
        self.ranges = rest;
        before
    }

    /// Forgets what a capture freed.
    pub(super) fn forget(&mut self, capture: usize) {
        for (_, _, content) in &mut self.ranges {
            if matches!(content, Content::Freed(freed) if freed.capture == capture) {
                *content = Content::Other;
            }
        }
    }
}
