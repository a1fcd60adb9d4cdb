//! Planned captures, their memory, and compaction.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
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
        edits: &[("block.freed().max(*page)", "block.freed().map(|_| 0).max(*page)")],
        test: "plans::compact::a_graph_overwrites_no_freed_output_before_its_reader_runs",
    },
    Mutant {
        name: "fixed-shared",
        rule: "Memory that is fixed is shared with no later graph.",
        file: "src/heap/planned/bind.rs",
        edits: &[("it.fixed.is_none() && !lasts[row]", "!lasts[row]")],
        test: "graphs::state::plan_exact",
    },
    Mutant {
        name: "lasting-shared",
        rule: "Memory with a live block is shared with no later graph.",
        file: "src/heap/planned/bind.rs",
        edits: &[("for bound in &planned.bound {
                lasts[bound.piece] |= planned.is_live((bound.address, bound.bytes));
            }", "")],
        test: "graphs::state::plan_exact",
    },
    Mutant {
        name: "unused-shared",
        rule: "Memory that only captures have which are over is not shared.",
        file: "src/heap/planned/bind.rs",
        edits: &[("it.fixed.is_none() && !lasts[row] && stays[row]", "it.fixed.is_none() && !lasts[row]")],
        test: "plans::plan_safety::what_could_not_be_unmapped_is_not_shared",
    },
    Mutant {
        name: "compacted-fixed",
        rule: "A compaction moves memory that is fixed nowhere.",
        file: "src/heap/planned/bind.rs",
        edits: &[("every.clone().map(|row| there(row).is_some_and(|it| it.fixed.is_none())).collect();", "every.clone().map(|row| there(row).is_some_and(|it| false)).collect();")],
        test: "graphs::state::compaction",
    },
    Mutant {
        name: "compacted-beside",
        rule: "A compaction leaves a graph alone that was captured beside others.",
        file: "src/heap/planned/bind.rs",
        edits: &[("planned.owner == Owner::Graph && !planned.beside", "planned.owner == Owner::Graph")],
        test: "plans::compact::graphs_of_captures_beside_each_other_share_nothing",
    },
    Mutant {
        name: "beside-noted",
        rule: "A graph that was captured beside others is known as such.",
        file: "src/heap/planned/bind.rs",
        edits: &[("planned.beside = beside;", "")],
        test: "plans::compact::graphs_of_captures_beside_each_other_share_nothing",
    },
    Mutant {
        name: "compacted-told",
        rule: "The checker is told what is fixed, and so what may move.",
        file: "src/heap/planned/bind.rs",
        edits: &[("self.pieces[bound.piece].as_ref().is_some_and(|piece| piece.fixed.is_some())", "self.pieces[bound.piece].as_ref().is_some_and(|piece| true)")],
        test: "graphs::state::compaction",
    },
    Mutant {
        name: "room",
        rule: "A fixed block has its memory at once where limits and device have room for it.",
        file: "src/engine/planned.rs",
        edits: &[("if !self.can_bind(slot, pool, bytes) {
            return Ok(None);", "if false {
            return Ok(None);")],
        test: "plans::plan_safety::a_block_beyond_the_capacity_is_refused_without_a_call_for_memory",
    },
    Mutant {
        name: "unmapped-kept",
        rule: "A plan leaves fixed blocks mapped.",
        file: "src/heap/planned/bind.rs",
        edits: &[("kept || (access != Access::Unmapped && ", "(access != Access::Unmapped && ")],
        test: "rules::each_call_of_short_programs_may_fail",
    },
    Mutant {
        name: "beneath",
        rule: "A block over several free parts knows the markers of all of them.",
        file: "src/heap/planned/space.rs",
        edits: &[("within.for_each(|idle| add(&mut beneath, idle.pages.given()));", "")],
        test: "rules::of_plans",
    },
    Mutant {
        name: "planned-edges",
        rule: "A plan passes no memory to a block whose users may start before what its stream knew is completed.",
        file: "crates/plan/src/plan/pages.rs",
        edits: &[("if it.covered { lifetimes.known(block) }", "if true { lifetimes.known(block) }")],
        test: "plans::plan_safety::a_block_of_programmatic_launches_gets_no_memory_of_others",
    },
    Mutant {
        name: "unshared",
        rule: "Planned memory is not kept for other processes.",
        file: "src/engine/sharing.rs",
        edits: &[("there && with_heap!", "there && !planned && with_heap!")],
        test: "sharing::blocks::planned_memory_is_not_kept_for_others",
    },
    Mutant {
        name: "compacted-fixed-kept",
        rule: "What is fixed stays where it is in a compaction.",
        file: "src/heap/planned/bind.rs",
        edits: &[("every.clone().map(|row| there(row).is_some_and(|it| it.fixed.is_none())).collect();", "every.clone().map(|row| there(row).is_some_and(|it| true)).collect();")],
        test: "graphs::state::compaction_beside_fixed_memory",
    },
    Mutant {
        name: "planned-history",
        rule: "To the history a planned block's memory goes with it.",
        file: "src/engine/history.rs",
        edits: &[("matches!(action, EventKind::FreeCompleted | EventKind::Completed)", "false")],
        test: "rules::of_plans",
    },
];
