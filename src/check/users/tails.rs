//! What streams may have launched after the last look at them, and nodes that no look explains.

use fixedbitset::FixedBitSet;

use super::super::history::{History, NEVER};
use super::launches::{depends_on_all, Source};
use super::log::Log;
use super::marks::Marks;
use super::Need;

/// A node that lies behind no look, and follows from no stream's last terminals.
pub(super) fn stray(source: &Source<'_>, history: &History) -> Option<u32> {
    if source.first_seen.iter().all(|&entry| entry != NEVER) {
        return None;
    }
    let mut stack = Vec::new();
    for stream in &history.streams {
        let Some(last) = stream.looks().checked_sub(1) else {
            continue;
        };
        if stream.terminals(last).is_empty() {
            return None;
        }
        stack.extend_from_slice(stream.terminals(last));
    }
    let mut later = FixedBitSet::with_capacity(source.first_seen.len());
    while let Some(node) = stack.pop() {
        if !later.put(node as usize) {
            stack.extend_from_slice(source.successors.of(node));
        }
    }
    let known = |node: usize| source.first_seen[node] != NEVER || later.contains(node);
    (0..source.first_seen.len()).find(|&node| !known(node)).map(|node| node as u32)
}

/// Adds to the logs what the streams may have launched after the last look at them.
pub(super) fn add(
    source: &Source<'_>,
    history: &History,
    needs: &[Need],
    marks: &mut Marks,
    logs: &mut [Log],
) {
    let mut launched = None;
    for (number, (stream, need)) in history.streams.iter().zip(needs).enumerate() {
        if !need.tail {
            continue;
        }
        let last = stream.looks().checked_sub(1);
        let looked = last.map_or(0, |look| stream.entry(look));
        let last = last.map_or(&[][..], |look| stream.terminals(look));
        // What lay behind a look at the stream was seen by then.
        let later = |node: u32| source.first_seen[node as usize] > looked;
        let mut firsts: Vec<u32> = Vec::new();
        if let Some(&one) = last.first() {
            let all = source.successors.of(one).iter().copied();
            firsts.extend(
                all.filter(|&node| later(node) && depends_on_all(source.graph, node, last, marks)),
            );
            if firsts.is_empty() {
                continue;
            }
        }
        // No log has a tail before this is needed.
        let launched = launched.get_or_insert_with(|| {
            let mut launched = FixedBitSet::with_capacity(source.graph.len());
            for log in logs.iter() {
                for &node in &log.nodes[log.step_end(0) as usize..] {
                    launched.insert(node as usize);
                }
            }
            launched
        });
        let mut found = Vec::new();
        if last.is_empty() {
            let all = 0..source.graph.len() as u32;
            found.extend(all.filter(|&node| !launched.contains(node as usize) && later(node)));
        } else {
            marks.clear();
            let mut stack = Vec::new();
            for node in firsts {
                if marks.insert(node) {
                    found.push(node);
                    stack.push(node);
                }
            }
            while let Some(node) = stack.pop() {
                for &to in source.successors.of(node) {
                    if marks.insert(to) {
                        stack.push(to);
                        if !launched.contains(to as usize) && later(to) {
                            found.push(to);
                        }
                    }
                }
            }
        }
        found.sort_unstable_by_key(|&node| (source.first_seen[node as usize] == NEVER, node));
        let seen = found.partition_point(|&node| source.first_seen[node as usize] != NEVER);
        let log = &mut logs[number];
        log.seen_tail = (log.nodes.len() + seen) as u32;
        log.nodes.extend_from_slice(&found);
    }
}
