//! Which stream most likely launched each node. A guess: only how long the checker takes depends
//! on it.

use super::super::graph::Graph;
use super::super::history::History;
use super::super::order::NO_HINT;
use super::log::Log;

/// More than one log has the node.
const SHARED: u32 = NO_HINT - 1;

/// A stream for each node, or [`NO_HINT`].
pub(super) fn hints(graph: &Graph, history: &History, logs: &[Log]) -> Vec<u32> {
    let mut hints = vec![NO_HINT; graph.len()];
    for (stream, log) in logs.iter().enumerate() {
        for &node in &log.nodes {
            let hint = &mut hints[node as usize];
            *hint = if *hint == NO_HINT { stream as u32 } else { SHARED };
        }
    }
    // What a stream waits for alone it has launched, most of the time.
    for &(stream, look) in &history.looks {
        if let &[node] = history.streams[stream as usize].terminals(look as usize) {
            let hint = &mut hints[node as usize];
            if *hint == SHARED {
                *hint = stream;
            }
        }
    }
    for hint in hints.iter_mut().filter(|hint| **hint == SHARED) {
        *hint = NO_HINT;
    }
    hints
}
