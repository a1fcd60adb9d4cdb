//! What a pool's graphs do not keep is lent between their launches: what else may happen meanwhile.

use regraph_testing::rows::{row, Row};

pub const ROWS: &[Row] = &[
    row(
        "a capture begins while a block is lent, and what was lent is the graphs' again after it",
        "s: graph 8M; t: a = 4M lent; lent 4M; t: use a; u: graph 8M; v: begin; t: b = 1M lent !\"nothing\"; lent 4M;
         v: abandon; lent 4M; l: replay s !Pool \"BlocksLent\" \"4 MiB at 0x\"; l: replay u !Pool \"BlocksLent\"; t: use a; free a;
         l: replay u; l: replay s; complete; l: c = 8M lent; lent 8M",
    ),
    // A later graph has no part in the block.
    row(
        "a block stays when the last graph that could lend it goes",
        "s: graph 8M; s: f = 2M lent; s: a = 2M lent; s: use f; free f; s: release; lent 0; s: use a; s: b = 2M;
         s: use b; s: use a; u: graph 8M; s: replay u; s: use a; free a; free b; complete; u: release; complete;
         empty; reserved 0",
    ),
    row(
        "a pool is not suspended while blocks are lent",
        "s: graph 8M; s: a = 2M lent; s: use a; complete; live a; suspend !Pool \"HasBlocks\"; suspend discarding;
         s: b = 1M lent !Pool \"Suspended\"; resume; s: replay s !Pool \"BlocksLent\"; free a; complete; suspend;
         resume; s: replay s",
    ),
    row(
        "the launch after a refused one waits for all that the refused one was to wait for",
        "s: graph 8M; t: a = 8M lent; t: use a; t: use a; t: begin B; free a; l: replay s !Pool \"LentWork\";
         t: abandon; l: replay s",
    ),
    row(
        "a stream that borrowed is retired",
        "s: graph 8M; t: a = 4M lent; t: b = 4M lent; t: use a b; free a; t: retire;
         l: replay s !Pool \"BlocksLent\"; free b; l: replay s",
    ),
    row(
        "what a stream gave back of lent memory is no capture's before the stream has completed",
        "s: graph 8M; t: a = 8M lent; t: use a; t: launch; free a; s: begin; s: b = 8M not a; free b; s: end; complete;
         s: begin; s: c = 8M at a; s: end",
    ),
    row(
        "what a stream gave back of lent memory is the graphs' to all eager work",
        "s: graph 8M; s: a = 8M lent; s: use a; free a; s: explain a UsedByGraph; t: explain a UsedByGraph; complete;
         s: explain a UsedByGraph",
    ),
    // Another graph may read the output that was freed. A checkpoint knows a block that is lent, and going back ends
    // the loan: the host answers for the order. What was kept before it was lent is kept.
    row(
        "a host may lend all that is free",
        "s: begin; s: o = 8M; s: use o; s: end; free o; complete; s: w = 512; free w; s: a = 8M lent !\"nothing\";
         s: w = 512; free w; s: a = 8M lent all; s: follow !Pool \"BlocksLent\"; checkpoint x; restore x; lent 0;
         live a; s: follow; free a; complete; s: w = 512; free w; s: b = 8M lent !\"nothing\"",
    ),
    // The stream may have it again before all that uses it has completed, but not as memory that graphs do not keep.
    row(
        "what graphs keep is kept from the stream that borrowed it",
        "s: begin; s: o = 8M; s: end; free o; complete; empty; s: a = 8M lent all; s: launch; free a;
         s: b = 8M lent !\"nothing\"; s: c = 8M lent all at a",
    ),
    // Graphs that were captured since may read it, once the graph that writes it has been launched again.
    row(
        "an output that a restoration freed is not lent",
        "checkpoint x; s: begin; s: o = 8M; s: end; complete; restore x; live; complete; empty;
         s: a = 8M lent !\"nothing\"; s: b = 8M lent all at o",
    ),
    row(
        "what lives of all that is free is an output once a capture begins",
        "s: graph 8M; t: a = 2M lent all; t: b = 2M lent; lent 4M; u: graph 8M; lent 2M;
         l: follow !Pool \"BlocksLent\"; free b; l: replay u; l: replay s; free a; complete; l: c = 8M lent not a;
         free c; l: replay s",
    ),
    row(
        "a capture that comes to nothing takes no block over",
        "s: graph 8M; l: replay s; t <- l; t: a = 8M lent all; t: use a; u: begin; u: abandon; lent 8M;
         l: replay s !Pool \"BlocksLent\"; t: use a; free a; l: replay s",
    ),
    row(
        "a verdict takes over nothing that was lent since the capture was over",
        "s: begin; s: x = 8M; s: use x; free x; s: close; complete; t: a = 8M lent all at x; t: use a; s: verdict; lent 8M;
         l: replay s !Pool \"BlocksLent\"; t: use a; free a; l: replay s",
    ),
    // Graphs from before the capture may overwrite the block.
    row(
        "a launch waits for the user of a block that a capture took over",
        "s: graph 8M; l: replay s; t <- l; t: a = 8M lent all; u: graph 8M; lent 0; l: replay u; t <- l; t: use a;
         t: use a; free a; l: replay s",
    ),
    row(
        "a launch waits for work on a block from before a capture took it over",
        "s: graph 8M; l: replay s; t <- l; t: a = 8M lent all; t: use a; t: use a; t: use a; t: use a; u: graph 8M; lent 0;
         l: replay s",
    ),
    row(
        "what is freed between the two calls of a launch is waited for by the launch after",
        "s: graph 8M; l: replay s; t <- l; t: a = 8M lent all; u: graph 8M; l: replay u; t <- l; l: follow; t: use a;
         t: use a; free a; passed; l: replay s",
    ),
    row(
        "what one stream gave back is lent to all once a launch has come after it",
        "s: graph 8M; s: a = 8M lent; s: launch; free a; u: replay s; t: b = 8M lent at a; t: launch; free b",
    ),
    row(
        "what was lent goes neither to other pools nor to the driver",
        "s: graph 8M; s: a = 8M lent; free a; takes E; offer; s,t: b = 2M in E not a; s,t: c = 2M not a; reserved 12M;
         complete; empty; reserved 12M; t: replay s",
    ),
];
