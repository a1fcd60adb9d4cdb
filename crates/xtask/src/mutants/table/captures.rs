//! Captures, and the blocks that live in them.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
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
        name: "counted-ends",
        rule: "What is left over in a heap is counted when a capture ends that gave something back there.",
        file: "src/engine/end.rs",
        edits: &[("if self.state.pools.heap(heap).free_pieces().0 > 0 {", "if false {")],
        test: "random::many_graphs::compaction_takes_nothing_that_is_needed",
    },
];
