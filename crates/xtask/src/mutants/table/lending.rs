//! Memory of graphs that is lent.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "loan-waits",
        rule: "What was launched before a loan to another process has completed.",
        file: "crates/plugin/src/sharing.rs",
        edits: &[("let waited = device.wait_for_all(\"lend_to_process\");", "let waited = Ok(());")],
        test: "sharing::loans::what_was_launched_before_has_completed_when_a_loan_is_made",
    },
    Mutant {
        name: "loan-waits-pool",
        rule: "What was launched before a loan to another process has completed, where a pool orders its launches.",
        file: "src/graphs/lending.rs",
        edits: &[("match engine.wait_for_device() {", "match Ok::<_, Error>(true) {")],
        test: "sharing::loans::a_pool_lends_to_a_process_without_a_plug_in",
    },
    Mutant {
        name: "loan-done",
        rule: "A process gives a loan back after a wait for its work.",
        file: "src/engine/sharing.rs",
        edits: &[("self.borrowed(loan, CALL)?;\n        wait()?;", "self.borrowed(loan, CALL)?;")],
        test: "sharing::loans::what_a_borrower_was_given_has_completed_when_it_gives_back",
    },
    Mutant {
        name: "loan-closed",
        rule: "A connection that closes does not end a loan.",
        file: "src/processes/connection.rs",
        edits: &[("self.silent.store(true, Ordering::Relaxed);
                false", "true")],
        test: "sharing::loans::a_connection_that_closes_gives_nothing_back",
    },
    Mutant {
        name: "loan-unseen",
        rule: "A pool that lends no more holds launches back for what it has lent.",
        file: "crates/plugin/src/launches.rs",
        edits: &[("private.launches.are_told() || private.launches.have_lent()", "private.launches.are_told()")],
        test: "sharing::loans::launches_are_held_back_where_graphs_may_be_launched_unseen_since",
    },
    Mutant {
        name: "loan-checkpoint",
        rule: "No checkpoint is taken or restored of a pool of which a loan is not over.",
        file: "src/engine/checkpoints.rs",
        edits: &[("if self.has_loan(pool) {", "if false {")],
        test: "sharing::loans::checkpoints_and_loans_of_a_pool_exclude_each_other",
    },
    Mutant {
        name: "loan-graphless",
        rule: "A loan is one still where its pool has no graph left.",
        file: "src/engine/lending.rs",
        edits: &[("block.is_some_and(|it| it.site.is_in(pool))", "block.is_some_and(|it| it.site.is_in(pool) && matches!(it.tenure, Tenure::Lent(_)))")],
        test: "random::graphs::what_a_process_borrows_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "loan-held",
        rule: "A block is a loan's until the process that has it has given it back or ended.",
        file: "src/processes/loans.rs",
        edits: &[("row.is_back().then_some(*number)", "(!matches!(row.place, LoanPlace::Offered)).then_some(*number)")],
        test: "random::graphs::what_a_process_borrows_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "loan-block",
        rule: "A loan that is back frees its own block alone.",
        file: "src/processes/loans.rs",
        edits: &[("row.is_back().then_some(*number)", "(row.is_back() || *number > 0).then_some(*number)")],
        test: "sharing::loans::a_loan_that_is_back_frees_its_own_block_alone",
    },
    Mutant {
        name: "loan-twice",
        rule: "A loan is taken once, and not after it was called back.",
        file: "src/processes/loans.rs",
        edits: &[("row.filter(|row| matches!(row.place, LoanPlace::Offered))", "row")],
        test: "sharing::loans::a_loan_is_taken_once_and_not_after_it_was_called_back",
    },
    Mutant {
        name: "loan-ended",
        rule: "That a process has ended is noticed.",
        file: "src/processes/loans.rs",
        edits: &[("if end || word && borrower.is_done() {", "if word && borrower.is_done() {")],
        test: "sharing::loans::another_process_borrows_and_gives_back_or_is_killed",
    },
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
        test: "random::graphs::what_is_lent_is_no_one_elses_in_longer_programs",
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
        file: "src/engine/end.rs",
        edits: &[("waiting.users = Users::Graphs;", "waiting.users = waiting.users.or_graphs(true);")],
        test: "random::graphs::what_is_lent_is_no_one_elses_in_longer_programs",
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
            "row.launch_behind(gone.unwrap_or_else(|| timelines.open_mark(block.asked.stream)));",
            "gone.into_iter().for_each(|gone| row.launch_behind(gone));",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-foreign-work",
        rule: "A launch comes after work on other streams that were recorded for the lent block.",
        file: "src/engine/lending.rs",
        edits: &[(
            "row.launch_behind(timelines.open_mark(stream));",
            "let _ = stream;",
        )],
        test: "random::graphs::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-retired-work",
        rule: "A launch comes after work on a stream that was retired before the lent block was freed.",
        file: "src/engine/lending.rs",
        edits: &[(
            "row.launch_behind(gone.unwrap_or_else(|| timelines.open_mark(block.asked.stream)));",
            "if gone.is_none() {
            row.launch_behind(timelines.open_mark(block.asked.stream));
        }",
        )],
        test: "random::graphs::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-adoption",
        rule: "A launch comes after work on a block that a capture has taken over, before it did.",
        file: "src/engine/lending.rs",
        edits: &[(
            "self.note_lent_gone(&block);",
            "self.pools.get_mut(pool).into_iter().for_each(|row| row.remove_lent(block.bytes));",
        )],
        test: "rules::of_lending",
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
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-forgotten",
        rule: "A launch that is refused has not come after the work that it asked for.",
        file: "src/engine/lending.rs",
        edits: &[(
            "let own = self.state.timelines.known(stream);",
            "let own = self.state.timelines.known(stream);
        self.state.pool(pool, \"launch\")?.set_followed();
        self.state.pools.forget_borrowers(pool);",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-meanwhile",
        rule: "A launch has not come after work that was marked after it asked.",
        file: "src/engine/lending.rs",
        edits: &[(
            "state.pools.forget_borrowers(pool);",
            "state.pool(pool, \"launch\")?.set_followed();
        state.pools.forget_borrowers(pool);",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-closed",
        rule: "A capture takes lent blocks over once it is accepted, not when it is closed.",
        file: "src/engine/end.rs",
        edits: &[(
            "Ok((report, evidence))",
            "let end = self.state.blocks.next_number();
        self.state.adopt_lent(report.graph, end);
        Ok((report, evidence))",
        )],
        test: "lending::launches::a_capture_that_is_closed_in_vain_leaves_what_was_lent",
    },
    Mutant {
        name: "lent-taken-over",
        rule: "A capture takes over what was lent of all that is free, not what was lent until the next launch.",
        file: "src/engine/lending.rs",
        edits: &[(
            "block.site.is_in(pool) && block.tenure == Tenure::Lent(Lent::AllFree)",
            "block.site.is_in(pool) && matches!(block.tenure, Tenure::Lent(_))",
        )],
        test: "rules::of_lending",
    },
    Mutant {
        name: "lent-since",
        rule: "A capture takes over nothing that was lent between its end and its verdict.",
        file: "src/engine/lending.rs",
        edits: &[("all_free && block.site.number < end", "all_free")],
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
        test: "random::graphs::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-early-again",
        rule: "Work on lent memory comes after launches since its stream first borrowed, too.",
        file: "src/graphs/lending.rs",
        edits: &[("if self.followed.get() != now {", "if self.followed.get().is_none() {")],
        test: "random::graphs::what_is_lent_is_no_one_elses_in_longer_programs",
    },
    Mutant {
        name: "lent-order",
        rule: "Lent memory that one stream gives back is not free for others.",
        file: "src/engine/lending.rs",
        edits: &[(
            "            found = self.place(requester, homes, bytes);",
            "            self.state.pools.heap_mut(homes[0]).free_completed(|_| true);
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
            "let leased = caches && matches!(tenure, Tenure::Own(_));",
            "let leased = caches && !matches!(tenure, Tenure::Offered(_));",
        )],
        test: "lending::trees::a_loan_ends_on_any_thread",
    },
    Mutant {
        name: "lent-place",
        rule: "What lies where graphs work is known to be theirs while it is lent.",
        file: "src/engine/live_blocks.rs",
        edits: &[("Self::Lent(_) => Users::Lent,", "Self::Lent(_) => Users::Eager,")],
        test: "random::graphs::what_is_lent_is_no_one_elses_in_longer_programs",
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
        edits: &[("self.state.pools.end_lending(pool);", "return;")],
        test: "rules::of_lending",
    },
    Mutant {
        name: "poisoned",
        rule: "What graphs do not keep is filled before their first launch, where that is asked for.",
        file: "src/engine/lending.rs",
        edits: &[("for (address, bytes) in locked.state.pools.heap(heap).temporary_places() {
                    self.driver.fill(address, bytes, BYTE, stream)?;
                }", "")],
        test: "graphs::state::poison_before_the_first_launch",
    },
    Mutant {
        name: "passed-once",
        rule: "What a stream gave back of a loan is for others only behind a launch.",
        file: "src/engine/lending.rs",
        edits: &[("self.state.pool(pool, CALL)?.take_passed()", "true")],
        test: "lending::trees::threads_launch_while_others_begin_to_borrow",
    },
    Mutant {
        name: "lent-told",
        rule: "A pool lends once all launches before are over.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("self.known = Known::All;", "")],
        test: "lending::trees::a_loan_ends_on_any_thread",
    },
    Mutant {
        name: "lent-handle",
        rule: "A pool lends nothing once a graph of it may be launched unseen.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("private.launches.lose_sight(key, Unseen::GivenAway);", "")],
        test: "lending::trees::nothing_is_lent_where_graphs_may_be_launched_without_a_word",
    },
    Mutant {
        name: "lent-handle-waits",
        rule: "A graph that may be launched unseen comes after all work on what was lent.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("device.engine.host().follow_lent(private.pool, device.idle_stream()?)?;", "")],
        test: "lending::trees::nothing_is_lent_where_graphs_may_be_launched_without_a_word",
    },
    Mutant {
        name: "lent-after",
        rule: "A borrower comes after the latest launch, though its stream has the handle of that launch's.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("driver.wait_for_event(stream, event)?;", "")],
        test: "lending::trees::a_stream_with_the_handle_of_another_comes_after_its_launch",
    },
    Mutant {
        name: "lent-missed",
        rule: "A launch that was not marked ends lending until the device has been waited for.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("private.launches.miss();", "")],
        test: "lending::trees::nothing_is_lent_while_a_graph_is_launched",
    },
    Mutant {
        name: "lent-event",
        rule: "An event that cannot be recorded behind a launch stands behind none.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("if let Err(error) = driver.record_event(event, stream) {
            let _ = driver.destroy_event(event);
            return Err(error.into());
        }", "")],
        test: "lending::trees::a_stream_with_the_handle_of_another_comes_after_its_launch",
    },
    Mutant {
        name: "lent-marked-early",
        rule: "What a thread has marked as it ends a loan a launch on another comes after.",
        file: "src/engine/lending.rs",
        edits: &[("locked.state.timelines.fence(locked.driver, timeline);", "")],
        test: "lending::launches::a_launch_comes_after_what_another_thread_has_marked",
    },
    Mutant {
        name: "lent-borrowers",
        rule: "A launch comes after what another thread has borrowed and given back, once that marked it.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("for stream in private.launches.borrowers.drain(..) {
            // What cannot be marked now, the next launch marks or waits for.
            let _ = self.engine.host().mark_borrower(private.pool, stream);
        }", "")],
        test: "lending::trees::a_launch_comes_after_what_another_thread_has_borrowed",
    },
    Mutant {
        name: "lent-borrower",
        rule: "A stream that borrows is known as one until it is marked.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("launches.borrowers.push(stream);", "")],
        test: "lending::trees::a_launch_comes_after_what_another_thread_has_borrowed",
    },
    Mutant {
        name: "lent-unmarked-launch",
        rule: "A launch behind which no event can be recorded ends lending until the device has been waited for.",
        file: "crates/plugin/src/lending.rs",
        edits: &[("Err(_) => private.launches.miss(),", "Err(_) => {}")],
        test: "lending::trees::nothing_is_lent_after_a_launch_that_could_not_be_marked",
    },
    Mutant {
        name: "lent-passed-on",
        rule: "What streams gave back is free for all that borrow once a launch has come after it.",
        file: "src/engine/lending.rs",
        edits: &[("for heap in self.state.pools.heaps_of(Some(pool)) {
                self.state.pools.heap_mut(heap).free_lent();
            }", "")],
        test: "rules::of_lending",
    },
];
