//! What is mapped ahead of need in a capture, and what is exchanged at its end.

use regraph::engine::Config;
use regraph::settings::Settings;
use regraph_testing::rows::{self, Row};

/// A row of an engine that maps up to 64 MiB at once and keeps a history, which is judged with each snapshot.
const fn row(name: &'static str, program: &'static str) -> Row {
    rows::row(name, program).with(|| {
        let settings = Settings::default().growth_step_bytes(Some(64 << 20)).history(10_000);
        Config::default().settings(settings)
    })
}

pub const ROWS: &[Row] = &[
    row(
        "work outside captures grows by what is missing",
        "s: a = 4M; reserved 4M; s: b = 4M; reserved 8M; s: c d e f g = 4M; reserved 28M; s: h i j k l m n o p = 4M;
         reserved 64M; s: q = 4M; reserved 68M",
    ),
    row(
        "what is held ahead goes back where the host empties, and nothing more is held ahead of need",
        "s: begin; s: a b c d e f g h = 2M; s: use a b c d e f g h; reserved 22M; empty; reserved 16M; s: i = 2M;
         reserved 18M; s: j = 2M; reserved 20M; s: k l m n o p = 2M; s: use i j k l m n o p; reserved 32M; s: end;
         reserved 32M; s: replay s; s: use a b c d e f g h i j k l m n o p",
    ),
    row(
        "a graph runs on what was exchanged and suspended",
        "s: begin; s: a b c d e f g h i = 2M; s: use a b c d e f g h i; s: end; s: replay s; s: use a b c d e f g h i;
         complete; suspend; suspended 18M; reserved 0; resume; reserved 18M; s: replay s; s: use a b c d e f g h i;
         complete; suspend; suspended 18M; resume; s: replay s; s: use a b c d e f g h i",
    ),
    // It fits into the rest of the last piece.
    row(
        "work outside in the same pool keeps what it wrote",
        "s: begin; s: a b c d = 2M+512; s: use a b c d; reserved 14M; t: w = 1M+512; t: use w; t: complete; reserved 10M;
         s: e f g h = 2M; s: use e f g h; s: end; t: use w; t: complete; s: replay s; s: complete; t: use w",
    ),
    // What was kept is memory like any other.
    row(
        "a use outside keeps the piece, and what the stream wrote there",
        "s: begin; s: a b c d e = 2M; s: touch a e; reserved 14M; t: record e; t: use e; t: complete; s: end;
         reserved 14M; t: use e; t: w = 4M; reserved 14M",
    ),
    row(
        "a use outside that was not recorded keeps nothing",
        "s: begin; s: a b c d e = 2M; s: touch a e; reserved 14M; t: touch e; t: complete; s: end; reserved 10M",
    ),
    // The block begins before the piece that has room behind it.
    row(
        "a use outside keeps every piece of its block",
        "s: begin; s: a b c d e = 2M; reserved 14M; s: f = 6M; s: touch a f; reserved 22M; t: record f; t: use f;
         t: complete; s: end; t: use f",
    ),
    row(
        "a use inside keeps nothing",
        "s: begin; s: a b c d e = 2M; s: use a b c d e; t <- s; t: record e; t: launch; s <- t; s: end; reserved 10M",
    ),
    // Its own stream may have been at work since, outside the graph.
    row(
        "a block that is freed behind the capture's end keeps the piece",
        "s: begin; s: a b c d e = 2M; s: use a b c d e; reserved 14M; s: stop; free e; s: judge; reserved 14M",
    ),
    row(
        "captures beside each other in one pool",
        "s,t: begin; s: a = 2M; t: b = 2M; s: c = 2M; t: d = 2M; s: e = 2M; t: f = 2M; s: g = 2M; t: h = 2M;
         s: i = 2M; t: j = 2M; s: k = 2M; t: l = 2M; s: use a c e g i k; t: use b d f h j l; s: end; reserved 24M;
         s: replay s; s: use a c e g i k; t: m n o p q = 2M; t: use m n o p q; reserved 38M; t: end; reserved 34M;
         s: use a c e g i k",
    ),
    row(
        "a ruined capture that is given up leaves as much as before",
        "s: begin; s: a b c d e f g h i = 2M; s: use a b c d e f g h i; ruin; s: give up; reserved 18M;
         s: stop !DriverError; free a; free b; free c; free d; free e; free f; free g; free h; free i; complete; empty;
         reserved 0",
    ),
    row(
        "memory that is held ahead goes to the pool that needs it",
        "with growth_step_mb:64, memory_limit_mb:100; s: begin; s: a b c d e f g h = 2M; reserved 22M; t: x = 84M in B;
         reserved 16M; s: end; reserved 16M",
    ),
    row(
        "nothing is held ahead where that is set",
        "with growth_step_mb:0; s: begin; s: a = 4M; reserved 4M; s: b = 4M; reserved 8M; s: c d e f g h = 4M;
         reserved 32M; s: i j k l m n o p = 4M; reserved 64M; s: end; reserved 64M",
    ),
];
