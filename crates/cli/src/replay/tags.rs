//! Which node of a capture writes and which nodes check each block's tag.
//!
//! Only nodes that the host's contract allows to touch a block do: behind its allocation, and before its free by one of
//! its markers. So what the engine may rightly reuse stays right, and a wrong reuse can show.

use super::lifetime::{lifetimes, Lifetime};
use super::model::Model;
use regraph_plan::random::Random;
use regraph_trace::{BlockIndex, NodeIndex, Operation, StreamIndex};

/// The most tags that a node checks, and the most that it writes.
const NODE_LIMIT: usize = 16;

/// What one node does to blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Touches {
    /// Blocks whose tags it checks.
    pub(super) checks: Vec<BlockIndex>,
    /// Blocks that it writes.
    pub(super) writes: Vec<BlockIndex>,
}

/// What the nodes of a capture do, by node.
pub(super) fn plan(origin: StreamIndex, operations: &[Operation], seed: u64) -> Vec<Touches> {
    let (model, lifetimes) = lifetimes(origin, operations);
    let mut touches = vec![Touches::default(); model.len() as usize];
    for lifetime in &lifetimes {
        touch(&model, lifetime, &mut touches);
    }
    for (node, touches) in touches.iter_mut().enumerate() {
        let salt = mix(seed ^ node as u64);
        touches.checks.sort_by_cached_key(|block| mix(salt ^ u64::from(*block)));
        touches.checks.truncate(NODE_LIMIT);
    }
    touches
}

fn touch(model: &Model, lifetime: &Lifetime, touches: &mut [Touches]) {
    let first = lifetime.first;
    let end = lifetime.end.as_ref().map_or(model.len(), |end| end.node);
    let before_free = lifetime.end.as_ref().map(|end| model.up_to(&end.markers, first));
    let may_touch = |node: NodeIndex| {
        before_free.as_ref().is_none_or(|nodes| nodes.contains((node - first) as usize))
    };
    let writer = (first..end).find(|&node| {
        model.owner(node) == Some(lifetime.stream)
            && may_touch(node)
            && touches[node as usize].writes.len() < NODE_LIMIT
            && model.follows_all(node, &lifetime.terminals)
    });
    let Some(writer) = writer else {
        return;
    };
    touches[writer as usize].writes.push(lifetime.block);
    let behind = model.from(writer, end);
    for node in behind.ones().skip(1) {
        let node = writer + node as NodeIndex;
        let uses = model.owner(node).is_some_and(|stream| lifetime.users.contains_key(&stream));
        if uses && may_touch(node) {
            touches[node as usize].checks.push(lifetime.block);
        }
    }
}

/// A block's tag.
pub(super) fn tag(block: BlockIndex, seed: u64) -> u64 {
    // Never zero: that is what fresh memory may hold.
    mix(mix(seed) ^ u64::from(block)) | 1
}

/// How long a node waits, in nanoseconds: anything up to `most`, drawn from node and seed.
pub(super) fn delay(node: u32, seed: u64, most: u32) -> u32 {
    let drawn = mix(seed.wrapping_add(u64::from(node) << 32)) >> 32;
    ((drawn * (u64::from(most) + 1)) >> 32) as u32
}

/// What a number is mixed to, in which each bit depends on all of its bits.
fn mix(value: u64) -> u64 {
    Random::new(value).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(stream: StreamIndex) -> Operation {
        Operation::Kernel { stream, uses: vec![], programmatic: false }
    }

    #[test]
    fn the_writer_comes_first_and_checks_end_at_the_markers() {
        let plan = plan(
            0,
            &[
                kernel(0),
                Operation::Alloc { id: 3, bytes: 8, stream: 0 },
                kernel(1), // 1: not ordered
                kernel(0), // 2: writes
                Operation::Wait { stream: 1, on: 0 },
                kernel(1), // 3: checks
                Operation::Use { id: 3, stream: 1 },
                Operation::LastUse { id: 3, stream: 1 },
                kernel(1), // 4: behind the last use
                kernel(0), // 5: checks
                kernel(2), // 6: a stranger
                Operation::Free { id: 3 },
                kernel(0), // 7: too late
            ],
            1,
        );
        let writers: Vec<_> = (0..8).filter(|&node: &usize| plan[node].writes == [3]).collect();
        let checkers: Vec<_> = (0..8).filter(|&node: &usize| plan[node].checks == [3]).collect();
        assert_eq!((writers, checkers), (vec![2], vec![3, 5]));
    }

    #[test]
    fn nodes_have_bounded_work() {
        let mut operations = Vec::new();
        for id in 0..40 {
            operations.push(Operation::Alloc { id, bytes: 8, stream: 0 });
        }
        operations.extend((0..5).map(|_| kernel(0)));
        let plan = plan(0, &operations, 1);
        let writes: Vec<_> = plan.iter().map(|touches| touches.writes.len()).collect();
        let checks: Vec<_> = plan.iter().map(|touches| touches.checks.len()).collect();
        assert_eq!(writes, [16, 16, 8, 0, 0]);
        assert_eq!(checks, [0, 16, 16, 16, 16]);
    }
}
