//! Memory of graphs that is lent.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "lent-kept",
        rule: "Memory that graphs keep between launches is not lent.",
        file: "src/heap/place.rs",
        edits: &[("let all = lent == Lent::AllFree;", "let all = true;")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-kept-again",
        rule: "What a stream borrowed of all that is free, and gave back, is lent as what graphs keep.",
        file: "src/heap/place.rs",
        edits: &[("(all || !self.is_kept((range.address, range.end())))", "true")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "kept-outputs",
        rule: "Graphs keep outputs that were freed.",
        file: "src/heap/mod.rs",
        edits: &[("if users == Users::Graphs {\n            self.keep(id);", "if false {\n            self.keep(id);")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "kept-inputs",
        rule: "Graphs keep inputs that a capture freed.",
        file: "src/engine/free.rs",
        edits: &[("heap.keep(range);", "")],
        test: "random::lending::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "kept-restored",
        rule: "Graphs keep what a restoration freed.",
        file: "src/engine/checkpoints.rs",
        edits: &[("if users.are_graphs() {\n            heap.keep(range);", "if false {\n            heap.keep(range);")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "kept-used",
        rule: "Graphs keep a lent block that a capture used until it was freed.",
        file: "src/engine/waits.rs",
        edits: &[("self.users = Users::Graphs;", "self.users = self.users.or_graphs(true);")],
        test: "random::lending::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-blocks",
        rule: "A graph is not launched while blocks live in memory of its pool that is lent.",
        file: "src/engine/lending.rs",
        edits: &[("if live > 0 {", "if live > 0 && false {")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-elsewhere",
        rule: "A launch asks all pools of its graph for what is lent.",
        file: "src/graphs/lease.rs",
        edits: &[(
            "order.follow_lent(launched)?;",
            "if std::ptr::eq(order, &orders[0]) {
                order.follow_lent(launched)?;
            }",
        )],
        test: "lending::launches::a_graph_of_two_pools_is_launched_while_one_lends",
    },
    Mutant {
        name: "lent-work",
        rule: "A launch comes after work on memory that was lent.",
        file: "src/engine/lending.rs",
        edits: &[("if own == Some(mark.timeline) {", "if own == Some(mark.timeline) || true {")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-own-work",
        rule: "A launch comes after work on the lent block's own stream.",
        file: "src/engine/lending.rs",
        edits: &[(
            "None => self.open_mark(block.stream),",
            "None => return block.uses.iter().map(|used| self.open_mark(used.stream)).collect(),",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-foreign-work",
        rule: "A launch comes after work on other streams that were recorded for the lent block.",
        file: "src/engine/lending.rs",
        edits: &[(
            "block.uses.iter().map(|used| self.open_mark(used.stream));",
            "block.uses[..0].iter().map(|used| self.open_mark(used.stream));",
        )],
        test: "random::lending::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-retired-work",
        rule: "A launch comes after work on a stream that was retired before the lent block was freed.",
        file: "src/engine/lending.rs",
        edits: &[(
            "Some(&gone) => gone,",
            "Some(_) => return block.uses.iter().map(|used| self.open_mark(used.stream)).collect(),",
        )],
        test: "random::lending::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-adoption",
        rule: "A launch comes after work on a block that a capture has taken over, before it did.",
        file: "src/engine/lending.rs",
        edits: &[(
            "self.note_lent_gone(&block);",
            "self.pools.get_mut(pool).into_iter().for_each(|row| row.remove_lent(block.bytes));",
        )],
        test: "lending::launches::a_launch_waits_for_work_on_a_block_from_before_it_was_taken_over",
    },
    Mutant {
        name: "lent-adopted-work",
        rule: "A launch comes after work on a block that a capture has taken over, up to its free.",
        file: "src/engine/free.rs",
        edits: &[(
            "if matches!(block.tenure, Tenure::Lent(_) | Tenure::Adopted) {",
            "if matches!(block.tenure, Tenure::Lent(_)) {",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-marks",
        rule: "A launch waits for an event behind the work on lent memory, not for one before it.",
        file: "src/engine/lending.rs",
        edits: &[(
            "for mark in behind {",
            "for mut mark in behind {
            mark.position -= 1;",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-unmarked",
        rule: "A launch is refused where work on lent memory has no event behind it.",
        file: "src/engine/lending.rs",
        edits: &[(
            "if !self.state.timelines.lead(self.driver, stream, mark)? {",
            "if !self.state.timelines.lead(self.driver, stream, mark)? && false {",
        )],
        test: "lending::launches::a_stream_that_borrowed_captures_when_a_graph_is_launched",
    },
    Mutant {
        name: "lent-forgotten",
        rule: "A launch that is refused has not come after the work that it asked for.",
        file: "src/engine/lending.rs",
        edits: &[(
            "let own = self.state.timelines.known(stream);",
            "let own = self.state.timelines.known(stream);
        let row = self.state.pool(pool, \"launch\")?;
        row.set_followed();
        row.forget_borrowers();",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-meanwhile",
        rule: "A launch has not come after work that was marked after it asked.",
        file: "src/engine/lending.rs",
        edits: &[(
            "row.forget_borrowers();",
            "row.set_followed();
        row.forget_borrowers();",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-closed",
        rule: "A capture takes lent blocks over once it is accepted, not when it is closed.",
        file: "src/engine/end.rs",
        edits: &[(
            "self.state.verdicts.add_accepted(report);",
            "self.state.adopt_lent(report.graph);
                self.state.verdicts.add_accepted(report);",
        )],
        test: "lending::launches::a_capture_that_is_closed_in_vain_leaves_what_was_lent",
    },
    Mutant {
        name: "lent-taken-over",
        rule: "A capture takes over what was lent of all that is free, not what was lent until the next launch.",
        file: "src/engine/lending.rs",
        edits: &[(
            "block.pool == pool && block.tenure == Tenure::Lent(Lent::AllFree)",
            "block.pool == pool && matches!(block.tenure, Tenure::Lent(_))",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-captured",
        rule: "A pool lends nothing while captures use it.",
        file: "src/engine/lending.rs",
        edits: &[("Ok(row.graphs() > 0 && row.captures() == 0)", "Ok(row.graphs() > 0)")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-early",
        rule: "Work on lent memory comes after the latest launch.",
        file: "src/graphs/lending.rs",
        edits: &[("if self.followed.get() != now {", "if false {")],
        test: "random::lending::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-early-again",
        rule: "Work on lent memory comes after launches since its stream first borrowed, too.",
        file: "src/graphs/lending.rs",
        edits: &[("if self.followed.get() != now {", "if self.followed.get().is_none() {")],
        test: "random::lending::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-order",
        rule: "Lent memory that one stream gives back is not free for others.",
        file: "src/engine/lending.rs",
        edits: &[(
            "            found = self.place(requester, homes, bytes);",
            "            self.state.pools.heap_mut(homes.first).free_completed(|_| u64::MAX);
            found = self.place(requester, homes, bytes);",
        )],
        test: "lending::trees::random_generations_of_a_tree_keep_their_tags",
    },
    Mutant {
        name: "lent-passed",
        rule: "What streams gave back is free for all that borrow once a launch has come after it.",
        file: "src/engine/lending.rs",
        edits: &[(
            "if self.state.pool(pool, CALL)?.take_passed() {",
            "if self.state.pool(pool, CALL)?.take_passed() || true {",
        )],
        test: "lending::trees::random_generations_of_a_tree_keep_their_tags",
    },
    Mutant {
        name: "lent-shared",
        rule: "A lent block's stream gets it again once other streams that used it have completed.",
        file: "src/engine/free.rs",
        edits: &[(
            "let eager = matches!(origin, Origin::Outside)",
            "if users == Users::Lent {
            streams.clear();
        }
        let eager = matches!(origin, Origin::Outside)",
        )],
        test: "lending::trees::random_generations_of_a_tree_keep_their_tags",
    },
    Mutant {
        name: "lent-held",
        rule: "What streams gave back of lent memory stays theirs when a capture begins.",
        file: "src/engine/waits.rs",
        edits: &[(
            "std::iter::once(mark).collect()",
            "std::iter::once(mark).take(usize::from(users != Users::Lent)).collect()",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-return",
        rule: "Lent memory is the graphs' again when it is given back.",
        file: "src/engine/allocate.rs",
        edits: &[(
            "Requester::Lent { lent, .. } => Tenure::Lent(lent),",
            "Requester::Lent { .. } => Tenure::Own(crate::heap::Users::Eager),",
        )],
        test: "lending::trees::a_loan_ends_on_any_thread",
    },
    Mutant {
        name: "lent-cached",
        rule: "Stream caches keep no lent memory.",
        file: "src/engine/allocate.rs",
        edits: &[(
            "let may_lease = matches!(tenure, Tenure::Own(_));",
            "let may_lease = !matches!(tenure, Tenure::Offered(_));",
        )],
        test: "lending::trees::a_loan_ends_on_any_thread",
    },
    Mutant {
        name: "lent-place",
        rule: "What lies where graphs work is known to be theirs while it is lent.",
        file: "src/engine/live_blocks.rs",
        edits: &[("Self::Lent(_) => Users::Lent,", "Self::Lent(_) => Users::Eager,")],
        test: "random::lending::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-asleep",
        rule: "A pool is not suspended while blocks live in memory that it has lent.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "Loss::Refused => self.state.ungraphed(pool),",
            "Loss::Refused => {
                let lent = self.state.lent_blocks(pool);
                let mut blocks = self.state.ungraphed(pool);
                blocks.retain(|leak| lent.iter().all(|it| it.block != leak.block));
                blocks
            }",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-end",
        rule: "Memory of graphs is free for work outside captures once the pool's last graph is gone.",
        file: "src/engine/end.rs",
        edits: &[("if !row.is_without_graphs() {", "if false {")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-on",
        rule: "Lending ends with the pool's last graph.",
        file: "src/engine/end.rs",
        edits: &[("row.end_lending();", "return;")],
        test: "rules::of_lending",
    },
];
