//! Layouts that are learned from work outside captures.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
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
        edits: &[("asked.sort_by_key(|asked| asked.0);", "asked.sort_by_key(|_| 0);")],
        test: "plans::heard::requests_of_streams_are_heard_in_the_order_of_the_calls",
    },
    Mutant {
        name: "heard-guesses",
        rule: "No capture follows a run whose blocks do not show of each stream that has more than one turn that it waits.",
        file: "src/engine/layout.rs",
        edits: &[("run.shows_waits().then(", "true.then(")],
        test: "plans::heard::captures_follow_runs_on_several_streams_whose_blocks_show_that_they_wait",
    },
    Mutant {
        name: "heard-forgotten",
        rule: "What was asked for outside captures is forgotten with what was learned.",
        file: "src/engine/layout.rs",
        edits: &[("drop(self.0.caches.take_heard());", "")],
        test: "plans::heard::what_was_heard_can_be_forgotten",
    },
    Mutant {
        name: "heard-alike",
        rule: "Runs that differ in a few requests are runs.",
        file: "crates/plan/src/layout/period.rs",
        edits: &[("if lacks <= missing && unlike(lacks, more) < least {", "if false {")],
        test: "plans::heard::runs_that_differ_in_a_few_requests_are_runs",
    },
    Mutant {
        name: "heard-many",
        rule: "Many runs in a row are taken for one, not for one run that is too long to be followed.",
        file: "crates/plan/src/layout/period.rs",
        edits: &[("(ENOUGH_BLOCKS / blocks.max(1))", "usize::MAX")],
        test: "plans::heard::many_runs_in_a_row_are_one",
    },
    Mutant {
        name: "heard-weights",
        rule: "What mostly stays in use is no run.",
        file: "crates/plan/src/layout/period.rs",
        edits: &[("2 * freed > self.sizes", "u64::MAX > self.sizes")],
        test: "plans::heard::what_mostly_stays_in_use_is_no_run",
    },
    Mutant {
        name: "heard-wrong",
        rule: "A layout learned from work outside captures is given up once a part of the requests is not as foreseen.",
        file: "src/engine/layout.rs",
        edits: &[("elsewhere > GUESSED_WRONG + self.blocks / OF_REQUESTS", "false")],
        test: "plans::heard::another_work_that_begins_as_a_lesson_takes_little_more",
    },
    Mutant {
        name: "heard-nothing",
        rule: "A block lies where a layout has a place for it.",
        file: "src/engine/allocate.rs",
        edits: &[("laid.is_some()", "false")],
        test: "captures::attempts::a_closure_that_is_captured_twice_is_planned_by_its_launches",
    },
];
