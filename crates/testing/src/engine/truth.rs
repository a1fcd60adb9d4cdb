//! The safety theorem: for every two blocks that shared an address, every possible user of the
//! earlier one is completed before any possible user of the later one may start.

use super::world::{Block, Fate, Launch, Launched, World};

impl World {
    /// Every launch that may use a block: of its own stream while it was live, and of other
    /// streams that were named, as far as they come after its allocation.
    pub(super) fn users(&self, block: usize) -> Vec<usize> {
        let block = &self.blocks[block];
        let mut users = Vec::new();
        for (number, launch) in self.launches.iter().enumerate() {
            let Some((_, last)) = block.uses.iter().find(|it| it.0 == launch.stream) else {
                continue;
            };
            let end = last.as_ref().map(|last| last.time).or(block.freed).unwrap_or(u64::MAX);
            let in_time = block.born < launch.time && launch.time <= end;
            let own = launch.stream == block.owner();
            let answered = self.is_answered_for(block, launch);
            if in_time && answered && (own || self.comes_after_birth(block, launch)) {
                users.push(number);
            }
        }
        users
    }

    /// A graph's inputs from elsewhere are its host's to keep for as long as the graph lives; only
    /// one that is freed while the capture is under way is the allocator's.
    fn is_answered_for(&self, block: &Block, launch: &Launch) -> bool {
        if let Launched::Node { capture, .. } = launch.what {
            let ended = self.captures[capture].ended.unwrap_or(u64::MAX);
            let named_after =
                |&(stream, named): &(usize, u64)| stream == launch.stream && named >= ended;
            // Nor does it answer for a graph that it was never told of.
            let unknown = self.captures[capture].seen[block.pool].is_none();
            if unknown || block.late.iter().any(named_after) {
                return false;
            }
        }
        match launch.what {
            Launched::Node { capture, .. } if block.home != Some(capture) => {
                // A graph that uses a block of a capture that never was uses nothing.
                if block.home.is_some_and(|home| self.is_dead(home)) {
                    return false;
                }
                let ended = self.captures[capture].ended.unwrap_or(u64::MAX);
                block.freed.is_some_and(|freed| freed <= ended)
            }
            _ => true,
        }
    }

    fn comes_after_birth(&self, block: &Block, launch: &Launch) -> bool {
        let Some(home) = block.home else {
            return true;
        };
        match launch.what {
            Launched::Node { capture, node } if capture == home => {
                let point = &block.terminals[block.owner()];
                let nodes = &self.captures[home].nodes;
                point.iter().all(|&terminal| nodes.is_behind(terminal, node))
            }
            // What a stream did before it joined the capture cannot come after anything in there.
            Launched::Eager(_) => {
                let home = &self.captures[home];
                home.ended.is_some_and(|ended| ended < launch.time)
                    || !home.nodes.streams.contains(&launch.stream)
            }
            Launched::Node { .. } => true,
        }
    }

    /// Judges all pairs.
    pub(super) fn judge_all(&self) {
        let users: Vec<_> = (0..self.blocks.len()).map(|block| self.users(block)).collect();
        for (later, block) in self.blocks.iter().enumerate() {
            for (earlier, other) in self.blocks[..later].iter().enumerate() {
                if !block.meets(other) {
                    continue;
                }
                for &first in &users[earlier] {
                    for &second in &users[later] {
                        let safe = self.is_safe(other, block, first, second);
                        assert!(
                            safe,
                            "blocks {earlier} and {later} share an address: launch {first} of the \
                             one ({:?}) may run beside launch {second} of the other ({:?})",
                            self.launches[first], self.launches[second]
                        );
                    }
                }
            }
        }
    }

    /// Whether `first` is over before `second` may start, for as much as the allocator answers for.
    fn is_safe(&self, earlier: &Block, later: &Block, first: usize, second: usize) -> bool {
        // The checker of a capture can only judge what lies within it.
        let judged = match (self.launches[first].what, self.launches[second].what) {
            (Launched::Node { capture: one, .. }, Launched::Node { capture: other, .. }) => {
                one == other
            }
            _ => false,
        };
        if self.flaw.is_some() && !judged {
            return true;
        }
        match (self.launches[first].what, self.launches[second].what) {
            // Judged when the later block was handed out.
            (Launched::Eager(_), _) => true,
            (Launched::Node { capture, .. }, Launched::Eager(_)) => {
                // Blocks of a graph belong to its launches; who uses one besides must order that.
                let released = self.captures[capture].released;
                later.home.is_some()
                    || self.is_dead(capture)
                    || released.is_some_and(|released| released <= later.born)
            }
            (
                Launched::Node { capture: one, node: first },
                Launched::Node { capture: other, node: second },
            ) => {
                // A graph that was destroyed before runs no more.
                let released = self.captures[one].released;
                let gone = released.is_some_and(|released| released <= later.born);
                if gone || self.is_dead(one) || self.is_dead(other) {
                    true
                } else if one == other {
                    self.captures[one].nodes.completed_before(first, second)
                } else if later.home == Some(one) {
                    // A use elsewhere, to be legal, comes after the allocation by means that are
                    // not in this graph, and so after all that the allocation comes after.
                    true
                } else if earlier.home != Some(one) {
                    // Its users' capture may have ended before the engine met the other one.
                    self.captures[one].family != self.captures[other].family
                } else {
                    // Graphs run one at a time, but the parts of one run together.
                    let ended = |it: usize| self.captures[it].ended.unwrap_or(u64::MAX);
                    let began = |it: usize| self.captures[it].seen[later.pool].unwrap_or(u64::MAX);
                    self.captures[one].family != self.captures[other].family
                        && (ended(one) <= began(other) || ended(other) <= began(one))
                }
            }
        }
    }

    fn is_dead(&self, capture: usize) -> bool {
        let root = self.captures[capture].family;
        self.captures[capture].fate != Fate::Accepted || self.captures[root].fate == Fate::Dead
    }
}
