//! Checkpoints, and going back to them.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
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
];
