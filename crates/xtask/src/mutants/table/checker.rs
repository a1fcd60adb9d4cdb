//! The checker.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
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
