//! Captures, and the blocks that live in them.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "use-after-last-use",
        rule: "A use that is recorded after a stream's last use takes back that it was the last.",
        file: "src/engine/free.rs",
        edits: &[
            (
                "block.set_use(stream, None);",
                "if stream != block.asked.stream && block.users().all(|user| user != stream) {
            block.set_use(stream, None);
        }",
            ),
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
        rule: "A capture that is closed and judged then is accepted only where its verdict says so.",
        file: "src/engine/end.rs",
        edits: &[(
            "let Some((verdict, record, took)) = judged else {",
            "let Some((verdict, record, took)) = judged.map(|it| (it.0.or(Ok(())), it.1, it.2)) else {",
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
        name: "counted-ends",
        rule: "What is left over in a heap is counted when a capture ends that gave something back there.",
        file: "src/engine/end.rs",
        edits: &[("if self.state.pools.heap(heap).free_pieces().0 > 0 {", "if false {")],
        test: "random::graphs::compaction_takes_nothing_that_is_needed",
    },
    Mutant {
        name: "freed-elsewhere",
        rule: "What a capture that another thread has begun may use is not asked about from here.",
        file: "src/engine/free.rs",
        edits: &[("capture_state.proof.stream(stream).is_some() && !timelines.is_mine(stream)", "capture_state.proof.stream(stream).is_some()")],
        test: "checker::late_uses::a_use_behind_the_last_use_is_found",
    },
    Mutant {
        name: "pool-joins",
        rule: "A capture belongs to a pool once it may use a block that is freed into it.",
        file: "src/engine/free.rs",
        edits: &[("self.join_pool(slot, self.state.pools.pool_of(heap));", "")],
        test: "captures::hard_cases::a_capture_that_a_free_brings_into_a_pool_is_told_of_the_freed_block",
    },
    Mutant {
        name: "ruined-free",
        rule: "A block whose free finds the capture ruined goes back outside captures.",
        file: "src/engine/free.rs",
        edits: &[("self.free_outside(block);
        self.forget_graphs(pool);", "
        self.forget_graphs(pool);")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "ruined-refuses",
        rule: "A capture takes no block over that others may use.",
        file: "src/engine/free.rs",
        edits: &[("is_inside
            || block.tenure.asked_of().is_some()
            || block.gone.is_some()
            || block.has_users()", "false")],
        test: "checker::early_reads::blocks_that_something_else_may_have_filled_come_first",
    },
    Mutant {
        name: "graph-counted",
        rule: "A capture that is accepted is a graph of each of its pools.",
        file: "src/engine/pools.rs",
        edits: &[("if let Some(pool) = self.get_mut(pool) {
                pool.graphs += 1;
            }", "")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "end-concurrent",
        rule: "A capture's live blocks are its graph's from its end on, also those from before another capture's begin.",
        file: "src/engine/end.rs",
        edits: &[("match over.concurrent {", "match false {")],
        test: "random::graphs::captures_beside_each_other_share_nothing",
    },
    Mutant {
        name: "end-settles",
        rule: "What a capture freed is settled when it ends.",
        file: "src/heap/mod.rs",
        edits: &[("self.settle(id, users);
            }", "
            }")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "seen-streams",
        rule: "Who asks for memory in a capture may look at all its streams.",
        file: "src/engine/captures.rs",
        edits: &[("!self.state.captures_here(self.state.captures.get(slot))", "false")],
        test: "captures::handed_over::who_asks_for_memory_in_a_capture_may_look_at_all_its_streams",
    },
    Mutant {
        name: "waits-captures",
        rule: "A block in use by a capture under way waits for its end.",
        file: "src/engine/waits.rs",
        edits: &[("None => self.captures.push((capture, used)),", "None => {}")],
        test: "rules::each_call_of_short_programs_may_fail",
    },
    Mutant {
        name: "waits-joins",
        rule: "A pool whose block a capture uses belongs to that capture.",
        file: "src/engine/waits.rs",
        edits: &[("if let Some(slot) = self.state.captures.slot(capture) {
                self.join_pool(slot, pool);
            }", "")],
        test: "rules::each_call_of_short_programs_may_fail",
    },
    Mutant {
        name: "waits-unannounced",
        rule: "A block that a capture uses which was not announced is no one else's afterwards.",
        file: "src/engine/waits.rs",
        edits: &[("self.unannounced = Unannounced::Yes;", "")],
        test: "rules::of_eager_work",
    },
    Mutant {
        name: "held-ordered",
        rule: "What a stream gave back waits for it when a capture begins in the pool.",
        file: "src/engine/waits.rs",
        edits: &[("for (range, mark, users) in held {
                self.state.timelines.fence(self.driver, mark.timeline);
                let number = self.state.blocks.number();
                let waiting = Wait::new(BlockSite { number, heap, range }, users);
                let positions = std::iter::once(mark).collect();
                self.state.waiting.add(Wait { positions, ..waiting });
            }", "")],
        test: "rules::of_plans",
    },
    Mutant {
        name: "held-while-captured",
        rule: "What a stream gave back is no one's while a capture begins.",
        file: "src/heap/place.rs",
        edits: &[("self.hold(id);", "")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "query-error",
        rule: "An error of the driver's says nothing of whether work has completed.",
        file: "src/graphs/order.rs",
        edits: &[("matches!(self.engine.driver().query_event(self.handle), Ok(true))", "true")],
        test: "graphs::lives::what_moved_into_the_parts_of_a_callable_outlives_its_launches",
    },
    Mutant {
        name: "fence-owed",
        rule: "A stream owes an event only where one is wanted that could not be recorded.",
        file: "src/engine/streams.rs",
        edits: &[("due && !self.record(driver, timeline)", "true")],
        test: "blocks::eager::an_event_that_a_capture_overtook_is_not_asked_about",
    },
    Mutant {
        name: "other-context",
        rule: "No event tells of what a default stream's handle meant in another context.",
        file: "src/engine/streams.rs",
        edits: &[("owes == Owed::Wait || !self.is_mine(stream) || captures(driver)", "!self.is_mine(stream) || captures(driver)")],
        test: "blocks::eager::what_is_freed_beside_another_context_waits_for_the_device",
    },
    Mutant {
        name: "parked-once",
        rule: "What waits no more is not looked at when its mark is reached.",
        file: "src/engine/streams.rs",
        edits: &[("parked.retain(|&it| it != number);", "")],
        test: "random::graphs::hosts_wait_for_what_pools_do_not_know_of",
    },
    Mutant {
        name: "owed-elsewhere",
        rule: "A wait for the device covers its own streams, and not those of another.",
        file: "src/engine/streams.rs",
        edits: &[("owing.retain(|&timeline| self.device(driver, timeline) == Some(driver.device()));", "")],
        test: "blocks::eager::a_wait_for_the_device_covers_its_own_streams",
    },
    Mutant {
        name: "retired-row",
        rule: "A row of streams is used again only for a stream that is retired.",
        file: "src/engine/streams.rs",
        edits: &[("row.life == Life::Retired && row.fences.is_empty() && !owes", "!owes")],
        test: "blocks::basics::a_full_pool_says_so_and_the_capture_goes_on",
    },
    Mutant {
        name: "mine-alone",
        rule: "Memory that is mapped ahead stays while another thread captures into the pool.",
        file: "src/engine/planned.rs",
        edits: &[("self.is_mine_alone(pool, but)", "true")],
        test: "blocks::growth::another_thread_s_capture_is_not_pulled_from_under_it",
    },
    Mutant {
        name: "may-exchange",
        rule: "Memory that is mapped ahead stays behind the blocks of a capture that may run.",
        file: "src/engine/planned.rs",
        edits: &[("self.may_exchange(pool)", "true")],
        test: "blocks::growth::a_capture_that_may_run_keeps_what_is_behind_its_blocks",
    },
    Mutant {
        name: "waits-concurrent",
        rule: "What a capture uses that was not announced waits for the captures of the pool.",
        file: "src/engine/waits.rs",
        edits: &[("}
                        self.wait_for(&concurrent, false);
                    }", "}
                        
                    }")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "use-after-foreign-last-use",
        rule: "A use that is recorded after another stream's last use takes back that it was the last.",
        file: "src/engine/free.rs",
        edits: &[(
            "block.set_use(stream, None);",
            "if block.users().all(|user| user != stream) {
            block.set_use(stream, None);
        }",
        )],
        test: "rules::of_captures",
    },
    Mutant {
        name: "waits-graphs",
        rule: "What waits and is used in a capture is its graph's.",
        file: "src/engine/end.rs",
        edits: &[("for waiting in self.state.waiting.iter_mut() {
            if waiting.end_use(id) && accepted {
                waiting.users = Users::Graphs;
            }
        }", "")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "waits-beside",
        rule: "What waits beside a capture is not its graph's.",
        file: "src/engine/end.rs",
        edits: &[("waiting.end_use(id) && accepted", "waiting.end_use(id) | true && accepted")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "waits-given-up",
        rule: "What waits and is used in a capture that is given up is no graph's.",
        file: "src/engine/end.rs",
        edits: &[("waiting.end_use(id) && accepted", "waiting.end_use(id)")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "given-up-last",
        rule: "Memory of graphs is work outside captures' once a capture is given up that outlived the last of them.",
        file: "src/engine/end.rs",
        edits: &[("for &pool in &pools {
                self.forget_graphs(pool);
            }", "")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "held-at-end",
        rule: "What a capture gave back waits for the captures beside it.",
        file: "src/heap/mod.rs",
        edits: &[("if hold {", "if false {")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "wait-later-capture",
        rule: "A capture that begins after a block was freed does not use it.",
        file: "src/engine/waits.rs",
        edits: &[("CapturePhase::UnderWay if !may_use => {}", "CapturePhase::UnderWay if false => {}")],
        test: "captures::beside::a_capture_that_begins_after_a_free_does_not_use_the_block",
    },
];
