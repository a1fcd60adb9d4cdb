//! Pools and regions that sleep.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "kept-asleep",
        rule: "Sleep keeps what graphs keep between launches.",
        file: "src/engine/suspend.rs",
        edits: &[("live.extend(self.pools.heap(heap).kept_places());", "")],
        test: "graphs::state::sleep_with_contents",
    },
    Mutant {
        name: "kept-by-no-graph",
        rule: "Graphs keep nothing of an input whose capture was rolled back.",
        file: "src/heap/mod.rs",
        edits: &[("self.kept.remove(place);", "")],
        test: "graphs::state::sleep_after_inputs_that_no_graph_has",
    },
    Mutant {
        name: "kept-asleep-planned",
        rule: "Sleep keeps the freed outputs of planned graphs.",
        file: "src/engine/suspend.rs",
        edits: &[("live.extend(self.pools.planned(heap).freed_outputs());", "")],
        test: "graphs::state::sleep_with_outputs_of_planned_graphs",
    },
    Mutant {
        name: "woken-apart",
        rule: "Pieces that are no neighbours are not joined when they come back.",
        file: "src/heap/segment.rs",
        edits: &[("segment.pieces.get(&at)?", "segment.pieces.range(at..).next()?.1")],
        test: "rules::of_checkpoints_and_suspensions",
    },
    Mutant {
        name: "woken-joined",
        rule: "Pieces are joined up to a size.",
        file: "src/heap/segment.rs",
        edits: &[("filter(|more| bytes + more <= JOINED)", "filter(|_| true)")],
        test: "rules::of_checkpoints_and_suspensions",
    },
    Mutant {
        name: "asleep-history",
        rule: "To the history what a suspended pool's blocks held is gone.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "self.state.record_occupants(&heaps, |state| match state {
                BlockState::ActivePendingFree => &[EventKind::Completed],
                _ => &[EventKind::FreeCompleted],
            });",
            "",
        )],
        test: "rules::of_growth",
    },
    Mutant {
        name: "asleep-history-once",
        rule: "The history tells of a free once.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "self.state.record_occupants(&heaps, |state| match state {
                BlockState::ActivePendingFree => &[EventKind::Completed],
                _ => &[EventKind::FreeCompleted],
            });",
            "self.state.record_occupants(&heaps, |_| &[EventKind::FreeCompleted]);",
        )],
        test: "blocks::growth::a_pool_that_lost_memory_refuses_its_captures",
    },
    Mutant {
        name: "asleep-error",
        rule: "A sleep that the driver refuses says so.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "self.cancel(contents);
                return Err(error);",
            "self.cancel(contents);
                return Ok(0);",
        )],
        test: "sleep::regions::what_sleeps_in_spite_of_an_error_is_said",
    },
    Mutant {
        name: "asleep-short",
        rule: "A pool that is short of a part is no suspended one.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "state.pools.is_shut(pool) && !state.pools.is_suspended(pool)",
            "!state.pools.is_suspended(pool)",
        )],
        test: "blocks::growth::what_lives_in_a_pool_outlasts_failed_exchanges",
    },
    Mutant {
        name: "woken-planned",
        rule: "A compaction that could not map all again maps it when the error is told.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "|| planned.resume(self.driver, &mut NothingKept, &mut Pieces::all()).is_ok()",
            "",
        )],
        test: "plans::compact::a_pool_waits_for_its_graphs",
    },
    Mutant {
        name: "asleep-pieces",
        rule: "All pieces of a segment go to sleep.",
        file: "src/heap/suspend.rs",
        edits: &[(
            "segment.suspend(driver, keeper, left, gone)",
            "{
            let _ = (segment, driver, &keeper, &left, gone);
            Ok(true)
        }",
        )],
        test: "rules::of_growth",
    },
    Mutant {
        name: "woken-heaps",
        rule: "All heaps of a pool wake.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "contents.turn_to(*pool);
                for &heap in heaps {",
            "contents.turn_to(*pool);
                for &heap in &heaps[..0] {",
        )],
        test: "rules::of_growth",
    },
    Mutant {
        name: "woken-later",
        rule: "A wake that waits for errands is no shortage of memory.",
        file: "src/engine/suspend.rs",
        edits: &[("self.errands.is_postponed()", "false")],
        test: "sleep::pools::without_memory_a_pool_stays_suspended",
    },
    Mutant {
        name: "asleep-own",
        rule: "Blocks of graphs that are gone keep their pool awake.",
        file: "src/engine/end.rs",
        edits: &[("block.origin = Origin::Past;", "")],
        test: "rules::of_checkpoints_and_suspensions",
    },
    Mutant {
        name: "woken-copies",
        rule: "Copies stay on the host only where that is asked for.",
        file: "src/regions/mod.rs",
        edits: &[("came.is_ok() && self.told.lock().retains", "false")],
        test: "sleep::regions::what_is_kept_can_stay_when_it_wakes",
    },
    Mutant {
        name: "region-forgotten",
        rule: "A region with live blocks is not forgotten.",
        file: "crates/plugin/src/regions.rs",
        edits: &[("blocks += live;", "")],
        test: "sleep::regions::a_region_is_forgotten_when_nothing_is_in_it",
    },
    Mutant {
        name: "kept-asleep-within",
        rule: "A block within what graphs keep does not cut short what is kept of that.",
        file: "src/engine/suspend.rs",
        edits: &[("(*bytes).max(*next + *more - *start)", "*next + *more - *start")],
        test: "graphs::state::sleep_with_a_block_within_an_output",
    },
    Mutant {
        name: "region-copies",
        rule: "The host keeps no copies of blocks that are gone from a region.",
        file: "src/regions/kept.rs",
        edits: &[("self.retained.retain(|&pool, contents| stays(contents, retained(pool)));", "")],
        test: "sleep::regions::what_is_kept_can_stay_when_it_wakes",
    },
    Mutant {
        name: "moving-destroyed",
        rule: "A pool whose memory is copied is not destroyed.",
        file: "src/engine/memory.rs",
        edits: &[("+ usize::from(self.state.pools.is_moving(id))", "")],
        test: "sleep::beside::a_pool_is_not_destroyed_while_it_moves",
    },
    Mutant {
        name: "moving-planned",
        rule: "No memory of a planned graph goes while it is copied.",
        file: "src/engine/planned.rs",
        edits: &[("self.state.pools.is_moving(self.state.pools.pool_of(heap))", "false")],
        test: "sleep::beside::a_graph_that_is_released_while_its_pool_moves_goes_afterwards",
    },
    Mutant {
        name: "moving-refused",
        rule: "Memory goes only where every copy of what it holds was begun.",
        file: "src/regions/kept.rs",
        edits: &[("if copied.is_ok() {", "{")],
        test: "sleep::page_locks::a_copy_that_is_refused_is_told_whatever_pages_come_behind_it",
    },
    Mutant {
        name: "moving-exported",
        rule: "Memory that sleeps is not said to stay behind its addresses.",
        file: "src/engine/sharing.rs",
        edits: &[("let there = why != WhyNotShared::Suspended && ", "let there = ")],
        test: "sleep::beside::no_memory_that_moves_is_said_to_stay",
    },
    Mutant {
        name: "moving-late",
        rule: "A region is asleep only with all its pools.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "if all.tagged().filter(other).any(|(_, pool)| !all.is_shut(pool)) {",
            "if false {",
        )],
        test: "sleep::beside::a_pool_that_gets_memory_before_its_region_is_shut_sleeps_too",
    },
    Mutant {
        name: "moving-unmapped",
        rule: "A pool that stays shut when its regions end is not brought back without its contents.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "            return;
        }
        self.pools.set_presence(pool, |it| *it = Presence::Whole);",
            "            self.pools.set_keeper(pool, None);
            return;
        }
        self.pools.set_presence(pool, |it| *it = Presence::Whole);",
        )],
        test: "sleep::beside::a_pool_with_memory_that_is_not_mapped_wakes_with_its_region",
    },
    Mutant {
        name: "moving-gone",
        rule: "A pool that is destroyed before its region is shut leaves no other one shut.",
        file: "src/engine/suspend.rs",
        edits: &[("let known = locked.state.pools.get(pool).is_some();", "let known = true;")],
        test: "sleep::beside::a_pool_that_is_destroyed_before_its_region_is_shut_does_not_keep_the_others_awake",
    },
    Mutant {
        name: "moving-order",
        rule: "A piece of memory goes only when what it holds has been copied.",
        file: "src/regions/kept.rs",
        edits: &[(
            "        self.awaited == 0
",
            "        true
",
        )],
        test:
            "sleep::regions::what_a_thread_asks_for_in_a_region_sleeps_and_wakes_with_its_contents",
    },
    Mutant {
        name: "moving-launched",
        rule: "No graph is launched from when its pool is shut to sleep.",
        file: "src/engine/suspend.rs",
        edits: &[(
            "locked.shut(pool);
                locked.state.pools.set_keeper(pool, Some(by));",
            "locked.state.pools.set_keeper(pool, Some(by));",
        )],
        test: "sleep::beside::others_go_on_while_a_region_goes_to_sleep_and_wakes",
    },
    Mutant {
        name: "moving-regions",
        rule: "A pool that is made while its region goes to sleep is asleep.",
        file: "src/engine/suspend.rs",
        edits: &[("locked.state.set_asleep(&turned, by, true);", "")],
        test: "sleep::beside::others_go_on_while_a_region_goes_to_sleep_and_wakes",
    },
    Mutant {
        name: "filed-whole",
        rule: "Nothing is unmapped before all of what a file is to keep was written.",
        file: "src/regions/kept.rs",
        edits: &[(
            "self.pass(filed, draft.file(), Toward::File)?;",
            "self.pass(filed, draft.file(), Toward::File).ok();",
        )],
        test: "sleep::files::a_file_that_cannot_be_written_leaves_all_awake",
    },
    Mutant {
        name: "filed-late",
        rule: "Nor before the system has taken all of it.",
        file: "src/regions/kept.rs",
        edits: &[("draft.finish(self.engine.driver(), self.call)", "Ok(drop(draft))")],
        test: "sleep::files::a_file_that_cannot_be_written_leaves_all_awake",
    },
    Mutant {
        name: "filed-copied",
        rule: "A file gets what was copied, and a place is used again when what lay there was.",
        file: "src/regions/files.rs",
        edits: &[("Event::behind(engine, stream)?.synchronize()?;", "Event::behind(engine, stream)?;")],
        test: "sleep::files::contents_are_kept_in_files_through_a_few_locked_pages",
    },
    Mutant {
        name: "filed-apart",
        rule: "In a file each part of a pool has a place of its own.",
        file: "src/regions/kept.rs",
        edits: &[("filed.end += bytes;", "filed.end += bytes / 2;")],
        test: "sleep::files::contents_are_kept_in_files_through_a_few_locked_pages",
    },
    Mutant {
        name: "shared-compared",
        rule: "A process keeps what another has written where that is what it would write.",
        file: "src/regions/files.rs",
        edits: &[("&& driver.holds_same(place, there, self.bytes)", "")],
        test: "sleep::files::workers_that_hold_something_else_keep_it_apart",
    },
    Mutant {
        name: "shared-whole",
        rule: "What differs in any part differs.",
        file: "src/regions/files.rs",
        edits: &[("copied = done;", "copied = done.map(|_| true);")],
        test: "sleep::files::workers_that_hold_something_else_keep_it_apart",
    },
    Mutant {
        name: "shared-unread",
        rule: "What cannot be read is not what the process would write.",
        file: "src/regions/files.rs",
        edits: &[("self.read(driver, there, call).is_ok()", "(self.read(driver, there, call).is_err() || true)")],
        test: "sleep::files::a_shared_file_that_cannot_be_read_or_written_harms_nothing",
    },
    Mutant {
        name: "shared-own",
        rule: "A file that processes share is this user's, and no other user may write to it.",
        file: "src/regions/files.rs",
        edits: &[("own && it.mode() & 0o022 == 0", "true")],
        test: "sleep::files::only_a_file_that_is_ours_alone_is_shared",
    },
    Mutant {
        name: "shared-turn",
        rule: "One process at a time writes what several share.",
        file: "src/regions/files.rs",
        edits: &[("match file.try_lock() {", "match Ok::<(), std::fs::TryLockError>(()) {")],
        test: "sleep::files::workers_that_go_to_sleep_at_once_write_what_they_share_once",
    },
    Mutant {
        name: "shared-named",
        rule: "A file has its name when all is in it.",
        file: "src/regions/files.rs",
        edits: &[("            let _ = remove_file(name);", "            let _ = rename(name, &self.made.path);")],
        test: "sleep::files::a_shared_file_that_cannot_be_read_or_written_harms_nothing",
    },
    Mutant {
        name: "filed-read",
        rule: "A region whose file cannot be read sleeps on.",
        file: "src/regions/kept.rs",
        edits: &[(
            "loads.copy(self.engine, self.stream, host, self.call).map(|_| ())",
            "loads.copy(self.engine, self.stream, host, self.call).ok();
        Ok(())",
        )],
        test: "sleep::files::a_file_that_cannot_be_read_leaves_its_region_asleep",
    },
    Mutant {
        name: "filed-under-way",
        rule: "Nothing is read from a file to where an earlier call may still copy.",
        file: "src/regions/mod.rs",
        edits: &[(
            "copies.wait(&self.engine)?;
        let ids",
            "let ids",
        )],
        test: "sleep::files::what_a_failed_sleep_still_copies_harms_nothing",
    },
];
