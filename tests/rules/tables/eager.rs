//! Work outside captures, and beside them.

use regraph_testing::rows::{row, Row};

pub const ROWS: &[Row] = &[
    row(
        "a block goes where it leaves the least over",
        "s: a = 8M; s: b = 2M; s: c = 4M at a+10M; s: d = 2M; free a; free c; s: e = 3M at c; s: f = 7M at a",
    ),
    row(
        "another stream has a block once its work has completed",
        "s: a = 4M; s: launch; free a; t: b = 4M not a; t: explain a Ordered s; s: complete; t: c = 4M at a",
    ),
    // Not even its own stream has it before.
    row(
        "a recorded stream holds a block until it has completed",
        "s: a = 4M; s: launch; t <- s; t: record a; t: launch; free a; s: b = 4M not a; s: complete;
         s: c = 4M not a; t: complete; s: d = 4M at a",
    ),
    row(
        "a stream has its block back while its own work runs once others are done",
        "s: a = 4M; t <- s; t: launch; t: record a; free a; s: launch; t: complete; s: b = 4M at a",
    ),
    row(
        "freeing from another stream is a use of it",
        "s: a = 4M; t <- s; t: launch; t: free a; s: b = 4M not a; t: complete; s: c = 4M at a",
    ),
    row(
        "a graph's memory is never given to work outside captures",
        "s: begin; s: a = 4M; s: launch; free a; s: end; complete; s: b = 4M not a; s: launch; free b;
         t: c = 4M not a; t: launch; free c; complete; empty; reserved 4M; s: release; s: d = 4M at a",
    ),
    // By then its place has a block of another name.
    row(
        "a block is freed once",
        "s: a = 4M; free a; free a !Unknown \"Block(\"; s: b = 4M at a; free a !Unknown \"Block(\";
         t: record a !Unknown \"Block(\"; free b",
    ),
    row(
        "eager memory is no graph's where a capture is announced",
        "s: a = 4M; s: launch; free a; s: begin B; s: launch; t: b = 4M not a; s: end; complete; t: c = 4M at a;
         reserved 8M",
    ),
    row(
        "eager memory is no graph's where a capture is not announced",
        "s: a = 4M; s: launch; free a; s: capture; s: launch; t: b = 4M not a; s: stop; complete; t: c = 4M at a;
         reserved 8M",
    ),
    row(
        "what was freed before a capture goes back to the driver after it",
        "s: a = 4M; s: launch; free a; s: begin B; t: b = 4M; s: end; complete; empty; empty; reserved 4M",
    ),
    row(
        "what was freed before a capture that is not announced goes back to the driver after it",
        "s: a = 4M; free a; s: capture; t: b = 4M; s: stop; complete; empty; empty; reserved 4M",
    ),
    row(
        "what a stream gave back before its capture waits for the capture's end",
        "s: a = 4M; s: launch; free a; s: capture; complete; t: b = 4M not a; s: stop; t: c = 4M at a",
    ),
    row(
        "marking a stream before its capture frees its memory for others",
        "s: a = 4M; s: launch; free a; s: mark; s: capture; complete; t: b = 4M at a; s: stop; t: c = 4M not a",
    ),
    row(
        "a stream that captures cannot retire",
        "s: a = 4M; s: launch; free a; s: capture; s: retire !Stream \"InUse\"",
    ),
    row(
        "a stream that a live block names cannot retire",
        "s: a = 4M; t: record a; t: launch; t: retire !Stream \"InUse\"; free a; t: retire",
    ),
    row(
        "what a stream gave back outside waits while a capture uses the pool",
        "e: a = 64M; e: launch; free a; trim; s: begin; e: b = 64M not a; s: launch; s: end",
    ),
    // The graph of a capture that the engine never heard of keeps what it was seen to use.
    row(
        "what an unannounced capture used is no work's outside",
        "e: a = 4M; o: capture; o: record a; o: launch; free a; o: stop; complete; e: b = 4M not a;
         e: c = 4M not a; e: d = 4M not a",
    ),
    row(
        "what an unannounced capture used outlives a graph that was known",
        "s: begin; s: launch; s: end; e: a = 4M; o: capture; o: record a; o: launch; free a; s: release; o: stop;
         complete; e: b = 4M not a; e: c = 4M not a; e: d = 4M not a",
    ),
];
