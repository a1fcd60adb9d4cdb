//! The checker.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "judge-chain",
        rule: "A node goes on with a chain only if it comes after the chain's last node.",
        file: "crates/check/src/clocks.rs",
        edits: &[("ends.get(it.chain as usize) == Some(&it.position)", "ends.get(it.chain as usize) >= Some(&it.position)")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-anew",
        rule: "A checker keeps nothing of the captures that it has judged before.",
        file: "crates/check/src/history.rs",
        edits: &[("blocks.clear();", "")],
        test: "checker::check::programmatic_edges_count_by_policy",
    },
    Mutant {
        name: "judge-clock",
        rule: "A node takes over the clock of the one before it only if nothing else needs that.",
        file: "crates/check/src/clocks.rs",
        edits: &[("self.nodes[edge.from() as usize].needs == 1)", "edge.full())")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-starts",
        rule: "Behind an edge that proves an order of starts nothing more is completed than behind the earlier node.",
        file: "crates/check/src/clocks.rs",
        edits: &[("if edge.full() { from } else { from + width }", "from")],
        test: "checker::check::programmatic_edges_count_by_policy",
    },
    Mutant {
        name: "judge-taken-over",
        rule: "What is completed behind a node counts before the clock that it takes over is joined with others.",
        file: "crates/check/src/clocks.rs",
        edits: &[(
            "        if size > width {\n            // Behind",
            "        edges.iter().for_each(|edge| self.raise(row, self.row(edge.from())));
        if size > width {\n            // Behind",
        )],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-stream-order",
        rule: "What a stream waited for is completed before what it launches later if no step in between is broken.",
        file: "crates/check/src/users.rs",
        edits: &[("point.is_some_and(|point| self.is_whole(stream, look, point))", "point.is_some()")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-stream-starts",
        rule: "Edges that prove an order of starts only leave no such order of a stream.",
        file: "crates/check/src/clocks.rs",
        edits: &[("&& !graph.has_starts()", "")],
        test: "checker::check::programmatic_edges_count_by_policy",
    },
    Mutant {
        name: "judge-stream-later",
        rule: "What a stream waited for after a block was handed out need not be completed before its users.",
        file: "crates/check/src/users.rs",
        edits: &[("filter(|&point| look <= point)", "filter(|_| true)")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-launch",
        rule: "A step without a launch that depends on all that the stream waited for is no whole one.",
        file: "crates/check/src/steps.rs",
        edits: &[("find(|&node| is_fresh(node) && depends(node))", "find(|&node| is_fresh(node))")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-binding-end",
        rule: "No binding lies beyond the end of its memory.",
        file: "crates/check/src/bindings.rs",
        edits: &[("range.offset + (range.end - range.start) > bytes", "true")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-binding-empty",
        rule: "What lies behind addresses is what is bound there, and no more.",
        file: "crates/check/src/bindings.rs",
        edits: &[("range.start < end", "true")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "judge-compacted-strange",
        rule: "After a compaction memory lies behind no address that had none.",
        file: "crates/check/src/compaction.rs",
        edits: &[("Some(extent.bytes) != bytes || !it.graph.launches || it.graph.beside", "it.graph.beside")],
        test: "checker::check::compaction::no_memory_may_come_where_none_was_or_some_is",
    },
    Mutant {
        name: "judge-compacted-size",
        rule: "New memory of a compaction is mapped whole.",
        file: "crates/check/src/compaction.rs",
        edits: &[("Some(extent.bytes) != bytes || !it.graph.launches", "!it.graph.launches")],
        test: "checker::check::compaction::no_memory_may_come_where_none_was_or_some_is",
    },
    Mutant {
        name: "judge-pairs-first",
        rule: "No node comes before itself or an earlier one.",
        file: "crates/check/src/order.rs",
        edits: &[("x < y && self.holds(clocks, x, y)", "self.holds(clocks, x, y)")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-set-back",
        rule: "A step depends on all that its stream waited for before it.",
        file: "crates/check/src/steps.rs",
        edits: &[("|| before.iter().all(|&node| edges.iter().any(|edge| edge.from() == node))", "|| before.iter().all(|&node| edges.iter().any(|edge| true))")],
        test: "checker::check::scenes::are_judged",
    },
    Mutant {
        name: "judge-late-named",
        rule: "A late use is of the last block at the address whose life began before.",
        file: "crates/check/src/uses/judge.rs",
        edits: &[("if precedes {
                before.insert(row);", "if false {
                before.insert(row);")],
        test: "checker::late_uses::the_right_one_of_many_blocks_at_an_address_is_named",
    },
    Mutant {
        name: "judge-looks",
        rule: "A terminal that a stream lost is asked for at each look.",
        file: "crates/check/src/uses/judge.rs",
        edits: &[("rows.push((number as u32, stream.entry(look)));", "")],
        test: "checker::late_uses::a_use_behind_the_last_use_is_found",
    },
    Mutant {
        name: "judge-standing",
        rule: "A value that points to memory from before the capture is no use of a block.",
        file: "crates/check/src/uses/touches.rs",
        edits: &[("for &NodePointer { address, access } in pointers {
            let behind = address.saturating_add(1);
            if map.standing.overlapping(address, behind).any(|&here| here > 0) {
                continue;
            }
            let Some(&block) = map.last.overlapping(address, behind).next() else { continue };
            let known = self.all[first..].last_mut().filter(|it| it.block == block);
            let at_end = end == Some(address) && access == Access::Unknown;
            if let Some(known) = known {
                known.does.add(access);
                if known.end && !at_end {
                    (known.address, known.end) = (address, false);
                }
                continue;
            }
            if !at_end {
                end = Some(blocks[block as usize].end);
            }
            let live = map.live.overlapping(address, behind).next() == Some(&block);
            let mut does = Does::default();
            does.add(access);
            self.all.push(Touch { node, address, block, live, does, end: at_end });
        }", "")],
        test: "checker::early_reads::blocks_that_something_else_may_have_filled_come_first",
    },
];
