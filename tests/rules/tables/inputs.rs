//! Blocks from before a capture that the capture frees: it may have their places itself.

use regraph::engine::Config;
use regraph::settings::Settings;
use regraph_testing::rows::{row, Row};

pub const ROWS: &[Row] = &[
    row(
        "a capture has the place of an input that it frees",
        "s: a = 4M; s: launch; s: expect; complete; s: begin; s: launch; t <- s; s: launch; free a; t: b = 4M not a;
         s: c = 4M at a; s: launch; t: launch; s <- t; free c; s: end; complete; s: d = 4M not a",
    ),
    row(
        "an input that a stream's cache had leased is the graph's",
        "s: a = 512K; s: launch; s: expect; complete; s: begin; s: launch; t <- s; s: launch; free a;
         t: b = 512K not a; s: c = 512K; s: launch; t: launch; s <- t; free c; s: end; complete; s: d = 512K not a",
    ),
    row(
        "an input without work is free for every stream",
        "s: a = 4M; s: launch; s: expect; complete; s: begin; t <- s; free a; s: launch; t: b = 4M at a; t: launch;
         s <- t; s: end",
    ),
    // The markers of the capture that placed it say nothing.
    row(
        "an output of an earlier graph is an input",
        "s: begin; s: x = 4M; s: launch; free x; s: a = 4M at x; s: launch; s: end; s: expect; complete;
         s: begin; s: launch; free a; s: b = 4M at a; s: launch; s: end; reserved 4M",
    ),
    row(
        "a capture that is rolled back gives its inputs to eager work",
        "s: a = 4M; s: launch; s: expect; complete; s: begin; s: launch; free a; s: b = 4M; free b; s: abandon;
         complete; t: c = 4M at a",
    ),
    row(
        "an input waits in a capture that was not told of",
        "s: a = 4M; s: launch; s: b = 4M; s: begin; s: launch; free a; s: c = 4M not a; s: launch; complete;
         s: launch; free b; s: d = 4M not b; s: launch; s: end",
    ),
    row(
        "an input of a capture that was told of waits for its work",
        "s: a = 4M; s: launch; s: expect; s: b = 4M; s: begin; s: launch; free a; s: c = 4M not a; s: launch;
         complete; s: launch; free b; s: d = 4M at b; s: launch; s: end",
    ),
    row(
        "an input waits where an earlier capture was told of",
        "s: expect; complete; s: begin; s: end; s: a = 4M; s: launch; s: begin; complete; s: launch; free a;
         s: b = 4M not a; s: launch; s: end",
    ),
    row(
        "an input waits that another stream uses eagerly",
        "s: a = 4M; s: launch; t: record a; s: expect; complete; s: begin; s: launch; free a; s: b = 4M not a;
         s: launch; s: end",
    ),
    row(
        "an input waits that another stream of the capture used eagerly",
        "s: a = 4M; s: launch; t: record a; s: expect; complete; s: begin; s: launch; t <- s; s: launch; free a;
         s: b = 4M not a; s: launch; s <- t; s: end",
    ),
    row(
        "an input waits that is another stream's",
        "t: a = 4M; s: launch; s: expect; complete; s: begin; s: launch; t <- s; s: launch; free a;
         s: b = 4M not a; s: launch; s <- t; s: end",
    ),
    row(
        "an input waits that another capture knows",
        "s: a = 4M; s: launch; t: begin; s: expect; complete; s: begin; s: launch; free a; s: b = 4M not a;
         s: launch; s: end; t: end",
    ),
    // The record does not name the pool from the first.
    row(
        "an input waits whose pool is not the first that the capture uses",
        "s: a = 4M in B; s: expect; complete; s: begin; s: launch; s: begin B; free a; s: b = 4M in B not a; s: end",
    ),
    row(
        "an input waits that goes back to the driver as soon as it is free",
        "s: a = 4M; s: expect; complete; s: begin; s: launch; free a; s: b = 4M not a; s: launch; s: end",
    )
    .with(|| Config::default().settings(Settings::default().caching(false))),
    // The capture that was told of came to nothing, and others are begun by hand.
    row(
        "a capture that is not announced has no inputs",
        "s: expect; complete; s: a = 4M; s: b = 4M; s: launch; s: capture; s: c = 4M; s: launch; free a;
         s: d = 4M not a; s: launch; free c; s: end; s: begin; s: e = 4M; s: launch; free b; s: f = 4M not b;
         s: launch; free e; s: end",
    ),
    // What a stream launched before the engine heard of its capture may be set back by then.
    row(
        "a capture that was set back before its first sight takes no inputs",
        "s: a = 4M; s: expect; s: capture; s: launch; s: observe; s: set; s: observe; s: begin; s: launch; free a;
         s: b = 4M not a; s: launch; s: end",
    )
    .with(|| Config::default().foreign_nodes(true)),
    // A block that a stream's cache had leased, and one that it had not.
    row(
        "figures and history hold when inputs are freed",
        "with history:1000; s: a = 512K; s: b = 1M; s: c = 1M+512K; s: d = 2M; s: e = 2M+512K; s: expect; complete;
         s: begin; s: launch; free a; s: launch; free b; s: launch; free c; s: launch; free d; s: launch; free e;
         active 0; s: end",
    ),
    // The stream that the pool's memory waits for goes from a capture unknown here into the other one.
    row(
        "a capture that the free itself finds in the pool is one beside",
        "s: a = 4M; t: w = 4M; s,t: launch; t: capture; t: launch; free w; u: begin B; u: launch; s: expect; s: begin;
         t: stop; t <- u; t: launch; complete; s: launch; free a; s: b = 4M not a; s: launch; s: end; u <- t; u: end",
    ),
];
