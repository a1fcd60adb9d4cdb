//! The rules that `cargo xtask mutants` takes out of the source.

use super::Mutant;

/// All of them, by what they are about.
pub const MUTANTS: &[Mutant] = &[
    // Captures.
    Mutant {
        name: "use-after-last-use",
        rule: "A use that is recorded after a stream's last use takes back that it was the last.",
        file: "src/engine/free.rs",
        edits: &[
            ("block.last = None;", ""),
            ("Some(used) => used.last = None,", "Some(_) => {}"),
            // What the record says of the stream is as ever.
            (
                "ending.worked |= last.worked;",
                "self.look_in(home.slot, stream)?;
                ending.worked |= last.worked;",
            ),
        ],
        test: "rules::of_captures",
    },
    Mutant {
        name: "verdict",
        rule: "A capture that a thread of its own judges is accepted once that thread has judged it.",
        file: "src/engine/end.rs",
        edits: &[(
            "Verification::Judging(judging) => judging.wait(),",
            "Verification::Judging(_) if true => return Ok(report),
            Verification::Judging(judging) => judging.wait(),",
        )],
        test: "captures::two_steps::the_verdict_is_that_of_one_step",
    },
    Mutant {
        name: "served-from",
        rule: "A request that names no pool is served where its capture was said to be, and in no other pool of it.",
        file: "src/engine/captures.rs",
        edits: &[(
            "self.get(self.slot(capture)?).served_from",
            "self.get(self.slot(capture)?).pools.first().copied()",
        )],
        test: "captures::lifecycle::a_request_by_its_capture_goes_to_the_pool_that_serves_it",
    },
    Mutant {
        name: "input-work",
        rule: "A capture may have a block from before it once the work on the block before it has completed.",
        file: "src/engine/free.rs",
        edits: &[("if !self.state.timelines.is_reached(mark) {", "if false {")],
        test: "rules::of_inputs",
    },
    Mutant {
        name: "whole-blocks",
        rule: "Blocks of pools that do not split have segments of their own.",
        file: "src/engine/pools.rs",
        edits: &[("whole: config.no_split,", "whole: false,")],
        test: "random::named_pools::the_plug_in_keeps_to_the_model_in_longer_programs",
    },
    Mutant {
        name: "walks-out-of-windows",
        rule: "A walk follows all edges that lead out of a node's window.",
        file: "crates/reach/src/rows.rs",
        edits: &[("word.saturating_sub(first as usize / WORD);", "word.saturating_sub(first as usize / WORD + 1);")],
        test: "captures::windows::full_edges",
    },
    Mutant {
        name: "latest-streams",
        rule: "A capture knows no stream of the one before that had its tables.",
        file: "crates/reach/src/lib.rs",
        edits: &[("recent.forget(stream_key(handle));", "let _ = handle;")],
        test: "reports::names::ended_captures_are_remembered_by_their_streams_alone",
    },
    Mutant {
        name: "latest-pages",
        rule: "A capture knows no node of the one before that had its tables.",
        file: "crates/reach/src/places.rs",
        edits: &[("pages.drain().for_each(|(page, _)| recent.forget(page));", "pages.clear();")],
        test: "reports::names::ended_captures_are_remembered_by_their_streams_alone",
    },
    Mutant {
        name: "counted-ends",
        rule: "What is left over in a heap is counted when a capture ends that gave something back there.",
        file: "src/engine/end.rs",
        edits: &[("if self.state.pools.heap(heap).free_pieces().0 > 0 {", "if false {")],
        test: "random::many_graphs::compaction_takes_nothing_that_is_needed",
    },
    // Checkpoints.
    Mutant {
        name: "restored-in-capture",
        rule: "A restoration is refused while a capture into another pool may use blocks that it ends.",
        file: "src/engine/checkpoints.rs",
        edits: &[("locked.must_be_apart(pool, \"restore\")?;", "")],
        test: "rules::of_checkpoints_and_suspensions",
    },
    Mutant {
        name: "restored-unsettled",
        rule: "Memory that a restoration frees leaves its pool once all work in the pool has completed.",
        file: "src/engine/checkpoints.rs",
        edits: &[("row.settle_behind(&marks);", "let _ = (row, &marks);")],
        test: "rules::of_checkpoints_and_suspensions",
    },
    Mutant {
        name: "restored-graphs",
        rule: "What a restoration frees in a pool with graphs is the graphs'.",
        file: "src/engine/checkpoints.rs",
        edits: &[("let users = tenure.users().of_block().or_graphs(has_graphs);", "let users = crate::heap::Users::Eager;")],
        test: "checkpoints::restorations::every_path_of_a_tree_holds_its_own",
    },
    Mutant {
        name: "restored-later",
        rule: "A restored block, once freed, is the graphs' that were captured after the restoration.",
        file: "src/engine/free.rs",
        edits: &[("block.tenure = block.tenure.or_graphs(graphs);", "let _ = graphs;")],
        test: "rules::of_checkpoints_and_suspensions",
    },
    Mutant {
        name: "restored-borrowed",
        rule: "A restoration ends no block that another pool has borrowed.",
        file: "src/engine/allocate.rs",
        edits: &[("Tenure::Offered(request.pool),", "Tenure::Own(users),")],
        test: "checkpoints::restorations::a_borrowed_block_is_not_freed_by_a_restoration",
    },
    // Compaction.
    Mutant {
        name: "compacted-blocks",
        rule: "A compaction leaves pieces alone on which blocks live.",
        file: "src/heap/planned/bind.rs",
        edits: &[("goes[bound.piece] &= !live && (", "goes[bound.piece] &= (")],
        test: "plans::compact::a_short_pool_can_be_suspended_and_released",
    },
    Mutant {
        name: "compacted-readers",
        rule: "After a compaction no graph overwrites outputs that were freed before their readers have run.",
        file: "src/heap/planned/bind.rs",
        edits: &[("output.freed.max(*page)", "output.freed.map(|_| 0).max(*page)")],
        test: "plans::compact::a_graph_overwrites_no_freed_output_before_its_reader_runs",
    },
    // What graphs keep between launches, and so do not lend.
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
    // Launches and what is lent.
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
    // Captures and what is lent.
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
    // Work on what is lent.
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
    // Pools that lend.
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
    Mutant {
        name: "laid-proof",
        rule: "A block lies where a layout says only where the stream that asks proves what lay there.",
        file: "src/heap/laid.rs",
        edits: &[(
            "if !self.may_take(at, requester, proof) {",
            "if !self.may_take(at, requester, proof) && !self.ranges[at].state.is_free() {",
        )],
        test: "plans::learned::what_waits_for_what_outside_captures_is_a_guess_that_harms_nothing",
    },
    Mutant {
        name: "laid-limit",
        rule: "The memory of an arena counts against what its pool may hold.",
        file: "src/heap/grow.rs",
        edits: &[("if end - start > limit {", "if false {")],
        test: "plans::heard::an_arena_takes_no_more_than_the_pool_may_hold",
    },
    Mutant {
        name: "heard-order",
        rule: "Requests that streams' caches note apart are heard in the order of the host's calls.",
        file: "src/engine/stream_cache.rs",
        edits: &[("turns.sort_by_key(|turn| turn.0);", "turns.sort_by_key(|_| 0);")],
        test: "plans::heard::requests_of_streams_are_heard_in_the_order_of_the_calls",
    },
    Mutant {
        name: "heard-whole",
        rule: "A run that the host marks is heard whole, however many threads ask in turns.",
        file: "src/engine/heard.rs",
        edits: &[(
            "let may_rest = self.turns.most() != Hears::All.most();",
            "let may_rest = true;",
        )],
        test: "plans::heard::a_run_that_the_host_marks_is_heard_whole_from_all_threads",
    },
    Mutant {
        name: "heard-forgotten",
        rule: "What was asked for outside captures is forgotten with what was learned.",
        file: "src/engine/layout.rs",
        edits: &[("drop(self.caches.take_heard());", "")],
        test: "plans::heard::what_was_heard_can_be_forgotten",
    },
    Mutant {
        name: "heard-alike",
        rule: "Runs that differ in a few requests are runs.",
        file: "crates/plan/src/layout/period.rs",
        edits: &[("if lacks <= missing && unlike < least {", "if false {")],
        test: "plans::heard::runs_that_differ_in_a_few_requests_are_runs",
    },
    Mutant {
        name: "heard-weights",
        rule: "What mostly stays in use is no run.",
        file: "crates/plan/src/layout/period.rs",
        edits: &[("2 * freed > sizes", "u64::MAX > sizes")],
        test: "plans::heard::what_mostly_stays_in_use_is_no_run",
    },
    Mutant {
        name: "heard-wrong",
        rule: "A layout learned from work outside captures is given up once a part of the requests is not as foreseen.",
        file: "src/engine/layout.rs",
        edits: &[("elsewhere > GUESSED_WRONG + self.blocks / OF_REQUESTS", "false")],
        test: "plans::heard::another_work_that_begins_as_a_lesson_takes_little_more",
    },
    // The checker.
    Mutant {
        name: "judge-chain",
        rule: "A node goes on with a chain only if it comes after the chain's last node.",
        file: "crates/check/src/clocks.rs",
        edits: &[("ends.get(chain as usize) == Some(&position)", "ends.get(chain as usize) >= Some(&position)")],
        test: "checker::check::cross_stream_reuse_needs_a_path",
    },
    Mutant {
        name: "judge-clock",
        rule: "A node takes over the clock of the one before it only if nothing else needs that.",
        file: "crates/check/src/clocks.rs",
        edits: &[("self.needs[edge.from() as usize] == 1)", "edge.full())")],
        test: "checker::check::cross_stream_reuse_needs_a_path",
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
            "        edges.iter().for_each(|edge| self.raise(row, self.rows[edge.from() as usize] as usize));
        if size > width {\n            // Behind",
        )],
        test: "checker::check::a_joined_clock_completes_no_more_than_its_edges",
    },
    Mutant {
        name: "judge-launch",
        rule: "A step without a launch that depends on all that the stream waited for is no whole one.",
        file: "crates/check/src/steps.rs",
        edits: &[("find(|&node| is_fresh(node) && depends(node))", "find(|&node| is_fresh(node))")],
        test: "checker::check::stream_order_is_no_proof_after_a_set_back",
    },
];
