//! Which stream most likely launched each node. A guess: only how long the checker takes depends
//! on it.

use super::graph::Graph;
use super::history::History;

/// A stream for each node, or the number of streams where there is nothing to go by.
pub(super) fn hints(graph: &Graph, history: &History) -> Vec<u32> {
    let none = history.streams.len() as u32;
    let mut hints = vec![none; graph.len()];
    // What a stream waits for alone it has launched, most of the time.
    for alone in [true, false] {
        for &(stream, look) in &history.looks {
            let terminals = history.streams[stream as usize].terminals(look as usize);
            if alone != (terminals.len() == 1) {
                continue;
            }
            for &node in terminals {
                let hint = &mut hints[node as usize];
                if *hint == none {
                    *hint = stream;
                }
            }
        }
    }
    // What was launched between two looks follows in a line.
    for node in (0..graph.len() as u32).rev() {
        let hint = hints[node as usize];
        for edge in graph.proofs().of(node) {
            let before = &mut hints[edge.from as usize];
            if *before == none {
                *before = hint;
            }
        }
    }
    hints
}
