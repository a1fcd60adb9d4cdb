//! What a stream proves, and the journal that says so.

use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "walks-out-of-windows",
        rule: "A walk follows all edges that lead out of a node's window.",
        file: "crates/reach/src/rows.rs",
        edits: &[(
            "word.saturating_sub(first as usize / WORD);",
            "word.saturating_sub(first as usize / WORD + 1);",
        )],
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
        name: "latest-nodes",
        rule: "A capture knows no node of the one before that had its tables.",
        file: "crates/reach/src/places.rs",
        edits: &[("if self.used == 0 {", "if true {")],
        test: "captures::windows::full_edges",
    },
    Mutant {
        name: "proven-by-start",
        rule: "One set suffices while every edge is full.",
        file: "crates/reach/src/reach.rs",
        edits: &[("self.two_sets && self.reached.put(bit)", "self.reached.put(bit)")],
        test: "captures::hard_cases::launch_order_proves_nothing_under_any_policy",
    },
    Mutant {
        name: "rows-next",
        rule: "A row of edges ends where the next one begins.",
        file: "crates/reach/src/rows.rs",
        edits: &[("row + 1", "row")],
        test: "rules::of_captures",
    },
    Mutant {
        name: "proven-anew",
        rule: "What was proven before launches could start early is proven anew.",
        file: "crates/reach/src/reach.rs",
        edits: &[(
            "self.forget();
        }",
            "
        }",
        )],
        test: "rules::of_captures",
    },
    Mutant {
        name: "stale-windows",
        rule: "A node's window is known while it is among the latest.",
        file: "crates/reach/src/windows.rs",
        edits: &[("node + KEPT < self.nodes", "false")],
        test: "captures::windows::full_edges",
    },
    Mutant {
        name: "window-ends",
        rule: "What lies behind a window is walked where not all of it is proven.",
        file: "crates/reach/src/reach.rs",
        edits: &[(
            "let mut left = if ends { 0 } else { new & dag.rows().far(word, first) };",
            "let mut left = if true { 0 } else { new & dag.rows().far(word, first) };",
        )],
        test: "captures::windows::full_edges",
    },
    Mutant {
        name: "window-missing",
        rule: "What lies behind a window is walked while an old terminal was not met.",
        file: "crates/reach/src/reach.rs",
        edits: &[(
            "self.complete >= first && found.missing.is_empty()",
            "found.missing.is_empty()",
        )],
        test: "captures::windows::full_edges",
    },
];
