//! The most that can flow: Dinic's algorithm (1970), from wherever it starts.
//!
//! In each phase the levels are found, and along them memory is passed on until nothing more can be: an item with spare
//! memory gives to a position, whose own giver gives to another, and so on to a position that wants more. What turns
//! out to lead nowhere is not looked at again in the phase. After a phase the shortest way is longer, as in Hopcroft
//! and Karp's matching (1973): an edge from an item to a position counts 0 and its reverse 1, so a way that uses an
//! edge that the phase made is longer by one at least. It stands on a stack of its own; ways may be long.

use super::levels::Levels;
use super::network::Network;

const NOWHERE: u32 = u32::MAX;

/// Makes the flow as large as it can be. The levels that come back are those of what can still be
/// reached from spare memory.
pub(super) fn maximise(network: &mut Network<'_>) -> Levels {
    let mut levels = Levels::default();
    let mut phase = Phase::default();
    while levels.find(network) {
        phase.run(network, &levels);
        network.tidy();
    }
    levels
}

/// What a phase has looked at already.
#[derive(Debug, Default)]
struct Phase {
    /// By item: the span that it gives to now.
    spans: Vec<u32>,
    /// By item: where in that span, or [`NOWHERE`].
    positions: Vec<u32>,
    /// By position: itself, or one further on with all between being of no use.
    useful: Vec<u32>,
    /// By position: the flow that is to be replaced now.
    flows: Vec<u32>,
    /// Items and the positions they would give to, from spare memory on. Each position's flow that is
    /// to be replaced is one from the next item.
    way: Vec<(u32, u32)>,
}

impl Phase {
    fn run(&mut self, network: &mut Network<'_>, levels: &Levels) {
        let count = network.left.len();
        self.spans.clear();
        self.spans.resize(count, NOWHERE);
        self.positions.clear();
        self.positions.resize(count, NOWHERE);
        self.useful.clear();
        self.useful.extend(0..=count as u32);
        self.flows.clear();
        self.flows.resize(count, 0);
        for item in 0..count {
            while network.left[item] > 0 && self.pass_on(network, levels, item) {}
        }
    }

    /// Passes some memory on from an item of level 0. Says whether there was a way.
    fn pass_on(&mut self, network: &mut Network<'_>, levels: &Levels, first: usize) -> bool {
        let last = levels.last();
        self.way.clear();
        let mut item = first;
        loop {
            let level = self.way.len() as u32;
            let Some(position) = self.position(network, levels, item, level) else {
                let Some((before, position)) = self.way.pop() else { return false };
                self.flows[position as usize] += 1;
                item = before as usize;
                continue;
            };
            let at = position as usize;
            if level == last {
                if network.wanted[at] > 0 {
                    self.way.push((item as u32, position));
                    self.shift(network, first);
                    return true;
                }
            } else if let Some(from) = self.flow(network, levels, position, level + 1) {
                self.way.push((item as u32, position));
                item = from;
                continue;
            }
            self.useful[at] = position + 1;
        }
    }

    /// The next position of a level that the item may give to and that may be of use.
    fn position(
        &mut self,
        network: &Network<'_>,
        levels: &Levels,
        item: usize,
        level: u32,
    ) -> Option<u32> {
        let spans = levels.spans_of(level);
        if self.spans[item] == NOWHERE {
            self.spans[item] = spans.start;
        }
        while self.spans[item] < spans.end {
            let span = levels.spans[self.spans[item] as usize];
            let mut position = self.positions[item];
            if position == NOWHERE && network.precedes(item, span.end - 1) {
                position = network.entry(item, span.start..span.end - 1);
            }
            if position != NOWHERE {
                position = self.useful_from(position);
                if position < span.end {
                    self.positions[item] = position;
                    return Some(position);
                }
            }
            self.positions[item] = NOWHERE;
            self.spans[item] += 1;
        }
        None
    }

    /// Who gives to the position and is of that level, if any is left.
    fn flow(
        &mut self,
        network: &mut Network<'_>,
        levels: &Levels,
        position: u32,
        level: u32,
    ) -> Option<usize> {
        let taken = &network.taken[position as usize];
        let next = &mut self.flows[position as usize];
        while let Some(flow) = taken.get(*next as usize) {
            if flow.amount > 0 && levels.of[flow.from as usize] == level {
                return Some(flow.from as usize);
            }
            *next += 1;
        }
        None
    }

    /// Passes on along the way as much as can be.
    fn shift(&mut self, network: &mut Network<'_>, first: usize) {
        let (&(giver, end), between) = self.way.split_last().expect("a way has an end");
        let mut amount = network.left[first].min(network.wanted[end as usize]);
        for &(_, position) in between {
            let flow = self.flows[position as usize] as usize;
            amount = amount.min(network.taken[position as usize][flow].amount);
        }
        network.left[first] -= amount;
        network.wanted[end as usize] -= amount;
        network.add(giver as usize, end, amount);
        for &(giver, position) in between {
            let flow = self.flows[position as usize] as usize;
            network.taken[position as usize][flow].amount -= amount;
            network.add(giver as usize, position, amount);
        }
    }

    /// The first position from this one on that may be of use.
    fn useful_from(&mut self, mut position: u32) -> u32 {
        loop {
            let next = self.useful[position as usize];
            if next == position {
                return position;
            }
            // Halves the way for the next time.
            self.useful[position as usize] = self.useful[next as usize];
            position = next;
        }
    }
}
