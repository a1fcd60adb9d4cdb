//! Which node of a capture writes and which nodes check each block's tag.
//!
//! Only nodes that the host's contract allows to touch a block do: behind its allocation, and before its free by one of
//! its markers. So what the engine may rightly reuse stays right, and a wrong reuse can show.

use fixedbitset::FixedBitSet;
use regraph_plan::random::Random;
use regraph_trace::graph::{Block, Dag};
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

/// What the nodes of a capture do, by node. Blocks allocated while their stream is outside the capture are left alone.
pub(super) fn plan(origin: StreamIndex, operations: &[Operation], seed: u64) -> Vec<Touches> {
    let dag = Dag::of(origin, &operations.iter().map(kernel).collect::<Vec<_>>());
    let mut touches = vec![Touches::default(); dag.graph().node_count()];
    for block in dag.blocks().iter().filter(|block| block.inside) {
        touch(&dag, block, &mut touches);
    }
    for (node, touches) in touches.iter_mut().enumerate() {
        let salt = mix(seed ^ node as u64);
        touches.checks.sort_by_cached_key(|block| mix(salt ^ u64::from(*block)));
        touches.checks.truncate(NODE_LIMIT);
    }
    touches
}

/// An operation as it is run: all nodes are kernels, whose blocks are those of their streams.
fn kernel(operation: &Operation) -> Operation {
    let mut operation = operation.clone();
    match &mut operation {
        Operation::Kernel { uses, .. } => uses.clear(),
        Operation::Node { kind, uses, .. } => {
            uses.clear();
            *kind = Some(0);
        }
        _ => {}
    }
    operation
}

fn touch(dag: &Dag, block: &Block, touches: &mut [Touches]) {
    let Some(&first) = block.users.first() else { return };
    let before_free = block.markers.as_ref().map(|markers| up_to(dag, markers, first));
    let may_touch = |node: &&NodeIndex| {
        before_free.as_ref().is_none_or(|nodes| nodes.contains((**node - first) as usize))
    };
    let writer = block.users.iter().filter(may_touch).find(|&&node| {
        dag.graph().raw_nodes()[node as usize].weight.stream == Some(block.stream)
            && touches[node as usize].writes.len() < NODE_LIMIT
            && follows_all(dag, node, &block.after)
    });
    let Some(&writer) = writer else { return };
    touches[writer as usize].writes.push(block.id);
    let end = block.users.last().map_or(writer, |last| last + 1);
    let behind = from(dag, writer, end);
    for &node in block.users.iter().filter(may_touch).filter(|&&node| node > writer) {
        if behind.contains((node - writer) as usize) {
            touches[node as usize].checks.push(block.id);
        }
    }
}

/// The nodes from `first` up that are, or by full edges precede, one of `nodes`; bit 0 is `first`.
fn up_to(dag: &Dag, nodes: &[NodeIndex], first: NodeIndex) -> FixedBitSet {
    let top = nodes.iter().map(|node| node + 1).max().unwrap_or(first).max(first);
    let mut reached = FixedBitSet::with_capacity((top - first) as usize);
    for &node in nodes.iter().filter(|&&node| node >= first) {
        reached.insert((node - first) as usize);
    }
    for node in (first..top).rev() {
        if reached.contains((node - first) as usize) {
            for earlier in dag.before(node).filter(|&node| node >= first) {
                reached.insert((earlier - first) as usize);
            }
        }
    }
    reached
}

/// The nodes from `first` to below `end` that are, or by full edges follow, `first`; bit 0 is `first`.
fn from(dag: &Dag, first: NodeIndex, end: NodeIndex) -> FixedBitSet {
    let mut reached = FixedBitSet::with_capacity((end - first) as usize);
    reached.insert(0);
    for node in first + 1..end {
        let before = |earlier| earlier >= first && reached.contains((earlier - first) as usize);
        let follows = dag.before(node).any(before);
        reached.set((node - first) as usize, follows);
    }
    reached
}

/// Whether `node` follows all of `earlier` by full edges, or is one of them.
fn follows_all(dag: &Dag, node: NodeIndex, earlier: &[NodeIndex]) -> bool {
    let Some(&first) = earlier.iter().min() else { return true };
    // Nearly always its own dependencies say so.
    let direct = |wanted: &NodeIndex| *wanted == node || dag.before(node).any(|it| it == *wanted);
    if earlier.iter().all(direct) {
        return true;
    }
    let reached = up_to(dag, &[node], first);
    earlier.iter().all(|wanted| reached.contains((wanted - first) as usize))
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

    fn launch(stream: StreamIndex) -> Operation {
        Operation::Kernel { stream, uses: vec![], programmatic: false }
    }

    #[test]
    fn order_goes_by_full_edges_alone() {
        let node = |node, after: &[NodeIndex], programmatic: &[NodeIndex]| Operation::Node {
            node,
            after: after.to_vec(),
            kind: None,
            uses: vec![],
            programmatic: programmatic.to_vec(),
        };
        let nodes = [node(0, &[], &[]), node(1, &[0], &[]), node(2, &[1], &[1])];
        let nodes = nodes.into_iter().chain([node(3, &[2, 1], &[])]);
        let dag = Dag::of(0, &nodes.map(|it| super::kernel(&it)).collect::<Vec<_>>());
        assert!(follows_all(&dag, 3, &[0, 1, 2]) && !follows_all(&dag, 2, &[1]));
        assert_eq!(from(&dag, 1, 4).ones().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(up_to(&dag, &[2], 0).ones().collect::<Vec<_>>(), [2]);
        assert_eq!(up_to(&dag, &[3], 1).ones().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn the_writer_comes_first_and_checks_end_at_the_markers() {
        let plan = plan(
            0,
            &[
                launch(0),
                Operation::Alloc { id: 3, bytes: 8, stream: 0 },
                launch(1), // 1: not ordered
                launch(0), // 2: writes
                Operation::Wait { stream: 1, on: 0 },
                launch(1), // 3: checks
                Operation::Use { id: 3, stream: 1 },
                Operation::LastUse { id: 3, stream: 1 },
                launch(1), // 4: behind the last use
                launch(0), // 5: checks
                launch(2), // 6: a stranger
                Operation::Free { id: 3 },
                launch(0), // 7: too late
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
        operations.extend((0..5).map(|_| launch(0)));
        let plan = plan(0, &operations, 1);
        let writes: Vec<_> = plan.iter().map(|touches| touches.writes.len()).collect();
        let checks: Vec<_> = plan.iter().map(|touches| touches.checks.len()).collect();
        assert_eq!(writes, [16, 16, 8, 0, 0]);
        assert_eq!(checks, [0, 16, 16, 16, 16]);
    }
}
