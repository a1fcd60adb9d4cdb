//! Rules that are there twice: without one of them nothing changes, and no test can tell.

use crate::mutants::Argued;

pub(super) const ARGUED: &[Argued] = &[
    Argued {
        rule: "New memory of a compaction lies behind no graph that was captured beside others.",
        file: "crates/check/src/compaction.rs",
        text: "|| it.graph.beside {",
        because: "`require_kept` has refused such a graph, as all that it has stays, and `require_whole` one that has \
                  more than it had.",
    },
    Argued {
        rule: "New memory of a compaction lies behind no graph that was released.",
        file: "crates/check/src/compaction.rs",
        text: "|| !it.graph.launches ||",
        because: "`require_whole` has refused such a graph.",
    },
    Argued {
        rule: "A launch that was not marked leaves what was lent to be followed by the next.",
        file: "src/graphs/lease.rs",
        text: "if done.is_ok() {",
        because: "What cannot be marked is waited for, with all work on what was lent; where it cannot be waited for, \
                  the pool launches nothing any more.",
    },
    Argued {
        rule: "A stream that is made to come after a mark waits for the event that is behind it already.",
        file: "src/engine/streams.rs",
        text: "return Ok(true);
        }
        // An event that was behind it may have been lost to a capture of its stream.",
        because: "Another event is recorded then, and waited for, which comes after more than was asked for.",
    },
];
