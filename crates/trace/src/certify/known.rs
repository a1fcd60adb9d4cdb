//! What is completed before the next node of a stream starts.

use fixedbitset::FixedBitSet;

use super::sighted::{Edge, Sighted};
use crate::NodeIndex;
use regraph::settings::Programmatic;

/// The nodes that are completed before any next node behind `terminals` starts, by full edges and what
/// programmatic ones prove. Under `lag` that edge may be programmatic too, under `auto` it may where one
/// that leads on from the terminal is.
pub(super) fn known(
    capture: &Sighted,
    policy: Programmatic,
    terminals: &[NodeIndex],
) -> FixedBitSet {
    let full = |node: NodeIndex| match policy {
        Programmatic::Auto => !capture.early.contains(node as usize),
        Programmatic::Lag => false,
        Programmatic::Deny | Programmatic::Trust => true,
    };
    let count = capture.edges.len();
    let mut completed = FixedBitSet::with_capacity(count);
    let mut started = FixedBitSet::with_capacity(count);
    let mut stack: Vec<(NodeIndex, bool)> =
        terminals.iter().map(|&node| (node, full(node))).collect();
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
                (true, Programmatic::Auto | Programmatic::Lag) => stack.push((from, done)),
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
    if matches!(policy, Programmatic::Deny | Programmatic::Trust) {
        // A block that knows a node knows all that is known with it.
        return terminals.iter().all(|&node| all.contains(node as usize));
    }
    known(capture, policy, terminals).is_subset(all)
}
