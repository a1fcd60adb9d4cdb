//! What is completed before the next node of a stream starts.

use fixedbitset::FixedBitSet;

use super::sighted::{Edge, Sighted};
use crate::NodeIndex;
use regraph::settings::Programmatic;

/// The nodes that are completed before any next node behind `terminals` starts, by full edges and what
/// programmatic ones prove. Under `lag` that edge may be programmatic too.
pub(super) fn known(
    capture: &Sighted,
    policy: Programmatic,
    terminals: &[NodeIndex],
) -> FixedBitSet {
    let lag = policy == Programmatic::Lag;
    let count = capture.edges.len();
    let mut completed = FixedBitSet::with_capacity(count);
    let mut started = FixedBitSet::with_capacity(count);
    let mut stack: Vec<(NodeIndex, bool)> = terminals.iter().map(|&node| (node, !lag)).collect();
    while let Some((node, done)) = stack.pop() {
        let place = node as usize;
        if completed.contains(place) || (!done && started.contains(place)) {
            continue;
        }
        if done {
            completed.insert(place);
        } else {
            started.insert(place);
        }
        for &Edge { from, programmatic } in &capture.edges[place] {
            match (programmatic, policy) {
                (false, _) | (true, Programmatic::Trust) => stack.push((from, true)),
                (true, Programmatic::Lag) => stack.push((from, done)),
                (true, Programmatic::Deny) => {}
            }
        }
    }
    completed
}

/// Whether `all`, which is known at some point, holds all that is known behind `terminals`.
pub(super) fn is_known(
    capture: &Sighted,
    policy: Programmatic,
    terminals: &[NodeIndex],
    all: &FixedBitSet,
) -> bool {
    if policy != Programmatic::Lag {
        // A block that knows a node knows all that is known with it.
        return terminals.iter().all(|&node| all.contains(node as usize));
    }
    known(capture, policy, terminals).is_subset(all)
}
