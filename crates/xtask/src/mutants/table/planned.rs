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
        edits: &[("output.freed.max(*page)", "output.freed.map(|_| 0).max(*page)")],
        test: "plans::compact::a_graph_overwrites_no_freed_output_before_its_reader_runs",
    },
];
