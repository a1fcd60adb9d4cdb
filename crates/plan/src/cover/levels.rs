//! How many exchanges away from spare memory everything is: the levels of Dinic's algorithm.
//!
//! An item that still has something to give is on level 0, and so are the positions that it may give
//! to. An item that gives to a position of level l could give elsewhere, and is on level l + 1 unless
//! it is on a lower one. Only exchanges count; so there are few levels, where a network that passes
//! memory from position to position along a row has some as long as rows are.
//!
//! In a row, what can be reached is all from one position on, so each level adds a *span* just before
//! what was reached, and to find all spans costs a comparison for each item and row.

use super::network::Network;

/// Not reached.
pub(super) const NEVER: u32 = u32::MAX;

/// Positions of one row and level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Levels, of what can be reached up to the first with a position that wants more.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// By item.
    pub(super) of: Vec<u32>,
    /// By row: from where on it was reached.
    pub(super) reached: Vec<u32>,
    /// All spans, by level.
    pub(super) spans: Vec<Span>,
    /// By level its first span; and the end.
    pub(super) starts: Vec<u32>,
    frontier: Vec<u32>,
    next: Vec<u32>,
    open: Vec<u32>,
}

impl Levels {
    /// Finds all levels. Says whether a position that wants more can be reached; if not, all that can be reached was.
    pub(super) fn find(&mut self, network: &Network<'_>) -> bool {
        let rows = &network.rows;
        self.of.clear();
        self.of.resize(network.left.len(), NEVER);
        self.reached.clear();
        self.reached.extend((0..rows.count()).map(|row| rows.positions(row).end));
        self.open.clear();
        self.open.extend(0..rows.count() as u32);
        self.spans.clear();
        self.starts.clear();
        self.starts.push(0);
        self.frontier.clear();
        for (item, &left) in network.left.iter().enumerate() {
            if left > 0 {
                self.of[item] = 0;
                self.frontier.push(item as u32);
            }
        }
        for level in 1.. {
            self.widen(network);
            let mut wanted = false;
            self.next.clear();
            for span in &self.spans[self.starts[level as usize - 1] as usize..] {
                for position in span.start as usize..span.end as usize {
                    wanted |= network.wanted[position] > 0;
                    for flow in &network.taken[position] {
                        let of = &mut self.of[flow.from as usize];
                        if *of == NEVER && flow.amount > 0 {
                            *of = level;
                            self.next.push(flow.from);
                        }
                    }
                }
            }
            self.starts.push(self.spans.len() as u32);
            if wanted || self.next.is_empty() {
                return wanted;
            }
            std::mem::swap(&mut self.frontier, &mut self.next);
        }
        unreachable!("each level has an item that no other has")
    }

    /// Finds what the frontier reaches.
    fn widen(&mut self, network: &Network<'_>) {
        let (rows, reached) = (&network.rows, &mut self.reached);
        let before = self.open.iter().map(|&row| Span { start: row, end: reached[row as usize] });
        let before: Vec<Span> = before.collect();
        for &item in &self.frontier {
            let item = item as usize;
            self.open.retain(|&row| {
                let reached = &mut reached[row as usize];
                let first = rows.positions(row as usize).start;
                while *reached > first && network.precedes(item, *reached - 1) {
                    *reached -= 1;
                }
                *reached > first
            });
        }
        for Span { start: row, end } in before {
            let start = self.reached[row as usize];
            if start < end {
                self.spans.push(Span { start, end });
            }
        }
    }

    /// The spans of a level, as a range of [`spans`](Self::spans).
    #[inline]
    pub(super) fn spans_of(&self, level: u32) -> std::ops::Range<u32> {
        self.starts[level as usize]..self.starts[level as usize + 1]
    }

    /// The last level.
    pub(super) fn last(&self) -> u32 {
        self.starts.len() as u32 - 2
    }
}
