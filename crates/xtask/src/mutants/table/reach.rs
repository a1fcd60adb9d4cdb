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
        name: "latest-pages",
        rule: "A capture knows no node of the one before that had its tables.",
        file: "crates/reach/src/places.rs",
        edits: &[("pages.drain().for_each(|(page, _)| recent.forget(page));", "pages.clear();")],
        test: "reports::names::ended_captures_are_remembered_by_their_streams_alone",
    },
];
