//! Users on streams that are not the block's own: what those launched behind the allocation point.

use super::super::history::History;
use super::super::order::Order;
use super::block::{User, Users};
use super::launches::Source;
use super::log::{Log, NONE};
use super::near::Near;
use super::sighted::Sighted;
use super::sights::UNSEEN;

/// A use by a stream that is not the block's own, whose nodes are to be told apart.
pub(super) struct Foreign {
    pub block: u32,
    pub stream: u32,
    /// The last look before the block was allocated.
    pub start: Option<u32>,
    /// The step that its use ends with; may be the tail.
    pub end: u32,
    /// The first step that ends behind all of the allocation point.
    pub turn: u32,
}

impl Foreign {
    /// Finds the turn by first sights. Terminals that only moved on since have the node behind them
    /// still. False where they may not have.
    fn turn(&mut self, point: &[u32], log: &Log, sighted: &Sighted) -> bool {
        let start = self.start.unwrap_or(0);
        for &node in point {
            let Some(first) = sighted.first(node, self.stream) else { return false };
            if first == UNSEEN {
                self.turn = self.turn.max(log.tail().min(self.end + 1));
            } else if first as u32 > start {
                self.turn = self.turn.max((first as u32).min(self.end + 1));
            } else if log.unclean_until(first as u32) != log.unclean_until(start) {
                return false;
            }
        }
        true
    }
}

/// Keeps of each foreign use what follows from the block's allocation point. Terminals that only
/// move on are behind that point from some look on, and so is every launch after that look; before
/// the step that ends there, nothing is. `order` is by edges of any kind.
pub(super) fn tell_apart(
    source: &Source<'_>,
    history: &History,
    logs: &[Log],
    sighted: &Sighted,
    order: &Order<'_>,
    mut foreign: Vec<Foreign>,
    all: &mut [Users],
) {
    let mut open: Vec<u32> = Vec::new();
    for (index, used) in foreign.iter_mut().enumerate() {
        let point = history.allocation_point(used.block);
        if !used.turn(point, &logs[used.stream as usize], sighted) {
            open.push(index as u32);
        }
    }
    find_turns(history, order, &mut foreign, open);

    let near = Near { graph: source.graph, order, sighted, logs };
    let mut doubtful: Vec<(u32, User)> = Vec::new();
    let mut questions = Vec::new();
    for used in &foreign {
        if used.turn > used.end {
            continue;
        }
        let log = &logs[used.stream as usize];
        let users = &mut all[used.block as usize];
        let block = &history.blocks[used.block as usize];
        let new = |node: &u32| source.first_seen[*node as usize] > block.allocated;
        users.add_steps(log, used.stream, used.turn, used.end, new);
        if used.start == Some(used.turn) {
            continue;
        }
        let point = history.allocation_point(used.block);
        let unbounded = used.turn == 0 || used.turn == log.tail();
        for &node in log.step(used.turn) {
            if unbounded && !new(&node) {
                continue;
            }
            if point.iter().any(|&from| from >= node) {
                continue;
            }
            // It comes after the allocation point if it is a user at all.
            let own = &block.uses[0];
            let look = own.start().unwrap_or(NONE);
            doubtful.push((used.block, User { node, stream: own.stream, look }));
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

/// Finds the turns of some uses by clocks.
fn find_turns(history: &History, order: &Order<'_>, foreign: &mut [Foreign], mut open: Vec<u32>) {
    // Most uses turn within a few looks; only the others are asked about far-off nodes.
    for reach in [8, u32::MAX] {
        let horizon = |used: &Foreign| used.end.min(used.start.unwrap_or(0).saturating_add(reach));
        let mut questions = Vec::new();
        for &index in &open {
            let used = &mut foreign[index as usize];
            used.turn = used.start.unwrap_or(0);
            let stream = &history.streams[used.stream as usize];
            // Terminals that move on have all former ones behind them.
            let last = (horizon(used) as usize + 1).min(stream.looks());
            let last = last.checked_sub(1).map_or(&[][..], |look| stream.terminals(look));
            let greatest = last.iter().copied().max().unwrap_or(0);
            for &point in history.allocation_point(used.block) {
                questions.push((index, point, greatest));
            }
        }
        order.ask(
            &questions,
            |&(_, point, greatest)| (point, greatest),
            |_, &(index, point, _), clocks| {
                let used = &mut foreign[index as usize];
                let stream = &history.streams[used.stream as usize];
                let behind = |step: u32| {
                    step as usize >= stream.looks()
                        || stream
                            .terminals(step as usize)
                            .iter()
                            .any(|&node| node == point || clocks.completed_before(point, node))
                };
                let (mut low, mut high) = (used.turn, horizon(used) + 1);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if behind(middle) {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                used.turn = low;
            },
        );
        open.retain(|&index| {
            let used = &foreign[index as usize];
            used.turn > horizon(used) && horizon(used) < used.end
        });
    }
}
