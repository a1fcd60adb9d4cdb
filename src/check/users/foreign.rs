//! Users on streams that are not the block's own: what those launched behind the allocation point.

use super::super::history::History;
use super::super::order::Order;
use super::block::{User, Users};
use super::launches::Source;
use super::log::{Log, Run, NONE};
use super::near::Near;
use super::sighted::Sighted;
use super::sights::UNSEEN;

/// A use by a stream that is not the block's own, whose nodes are to be told apart.
pub(super) struct Foreign {
    pub block: u32,
    pub stream: u32,
    pub run: Run,
}

/// Where a stream gets behind a block's allocation point.
struct Turn {
    of: Foreign,
    /// The first step that ends behind all of the point.
    step: u32,
}

impl Turn {
    /// The look that the run begins at, or the first.
    fn start(&self) -> u32 {
        self.of.run.start.unwrap_or(0)
    }

    /// Finds the step by first sights. Terminals that only moved on since have the node behind them
    /// still. False where they may not have.
    fn find(&mut self, point: &[u32], log: &Log, sighted: &Sighted) -> bool {
        let (start, end) = (self.start(), self.of.run.end);
        if !self.of.run.clean {
            // A stream that was set back is behind nothing for certain: each node is asked.
            self.step = end;
            return true;
        }
        for &node in point {
            let Some(first) = sighted.first(node, self.of.stream) else { return false };
            if first == UNSEEN {
                self.step = self.step.max(log.tail().min(end + 1));
            } else if first as u32 > start {
                self.step = self.step.max((first as u32).min(end + 1));
            } else if log.unclean_until(first as u32) != log.unclean_until(start) {
                return false;
            }
        }
        true
    }
}

/// Keeps of each foreign use what follows from the block's allocation point. Terminals that only
/// move on are behind that point from some look on, and so is every launch after that look; before
/// the step that ends there, nothing is. In a step that set the stream back, and in the one that
/// gets behind the point, each node is asked by itself. `order` is by edges of any kind.
pub(super) fn tell_apart(
    source: &Source<'_>,
    history: &History,
    logs: &[Log],
    sighted: &Sighted,
    order: &Order<'_>,
    foreign: Vec<Foreign>,
    all: &mut [Users],
) {
    let first = |of: Foreign| Turn { step: of.run.start.unwrap_or(0), of };
    let mut turns: Vec<Turn> = foreign.into_iter().map(first).collect();
    let mut open: Vec<u32> = Vec::new();
    for (index, turn) in turns.iter_mut().enumerate() {
        let point = history.allocation_point(turn.of.block);
        if !turn.find(point, &logs[turn.of.stream as usize], sighted) {
            open.push(index as u32);
        }
    }
    find_by_clocks(history, order, &mut turns, open);

    let near = Near { graph: source.graph, order, sighted, logs };
    let mut doubtful: Vec<(u32, User)> = Vec::new();
    let mut questions = Vec::new();
    for turn in &turns {
        let Foreign { block: number, stream, run } = turn.of;
        if turn.step > run.end {
            continue;
        }
        let log = &logs[stream as usize];
        let users = &mut all[number as usize];
        let block = &history.blocks[number as usize];
        let new = |node: &u32| source.first_seen[*node as usize] > block.allocated;
        users.add_steps(log, stream, turn.step, run.end, new);
        if run.start == Some(turn.step) {
            continue;
        }
        let point = history.allocation_point(number);
        // What an unclean step gained may have been launched, and seen elsewhere, before the block was.
        let unbounded = turn.step == 0 || turn.step == log.tail() || !run.clean;
        for &node in log.step(turn.step) {
            if unbounded && !new(&node) {
                continue;
            }
            if point.iter().any(|&from| from >= node) {
                continue;
            }
            // It comes after the allocation point if it is a user at all.
            let own = &block.uses[0];
            let look = own.start().unwrap_or(NONE);
            doubtful.push((number, User { node, stream: own.stream, look }));
            let asked = questions.len();
            for &from in point {
                match near.comes_before(from, node) {
                    Some(true) => {}
                    Some(false) => {
                        questions.truncate(asked);
                        doubtful.pop();
                        break;
                    }
                    None => questions.push((doubtful.len() as u32 - 1, from, node)),
                }
            }
        }
    }
    let mut uses = vec![true; doubtful.len()];
    order.ask(
        &questions,
        |&(_, from, node)| (from, node),
        |_, &(index, from, node), clocks| {
            uses[index as usize] &= clocks.completed_before(from, node);
        },
    );
    for (&(block, user), uses) in doubtful.iter().zip(uses) {
        if uses {
            all[block as usize].others.push(user);
        }
    }
}

/// Finds some of the steps by clocks.
fn find_by_clocks(history: &History, order: &Order<'_>, turns: &mut [Turn], mut open: Vec<u32>) {
    // Most streams turn within a few looks; only the others are asked about far-off nodes.
    for reach in [8, u32::MAX] {
        let horizon = |turn: &Turn| turn.of.run.end.min(turn.start().saturating_add(reach));
        let mut questions = Vec::new();
        for &index in &open {
            let turn = &mut turns[index as usize];
            turn.step = turn.start();
            let stream = &history.streams[turn.of.stream as usize];
            // Terminals that move on have all former ones behind them.
            let last = (horizon(turn) as usize + 1).min(stream.looks());
            let last = last.checked_sub(1).map_or(&[][..], |look| stream.terminals(look));
            let greatest = last.iter().copied().max().unwrap_or(0);
            for &point in history.allocation_point(turn.of.block) {
                questions.push((index, point, greatest));
            }
        }
        order.ask(
            &questions,
            |&(_, point, greatest)| (point, greatest),
            |_, &(index, point, _), clocks| {
                let turn = &mut turns[index as usize];
                let stream = &history.streams[turn.of.stream as usize];
                let behind = |step: u32| {
                    step as usize >= stream.looks()
                        || stream
                            .terminals(step as usize)
                            .iter()
                            .any(|&node| node == point || clocks.completed_before(point, node))
                };
                let (mut low, mut high) = (turn.step, horizon(turn) + 1);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if behind(middle) {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                turn.step = low;
            },
        );
        open.retain(|&index| {
            let turn = &turns[index as usize];
            turn.step > horizon(turn) && horizon(turn) < turn.of.run.end
        });
    }
}
