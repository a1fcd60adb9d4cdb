//! Work outside captures, and beside them.

use regraph::engine::Config;
use regraph::settings::Settings;
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
    row(
        "holes are filled again",
        "s: a = 4M; s: b = 4M; s: c = 4M; s: d = 4M; s: e = 4M; free b; free d; complete; empty; reserved 12M;
         s: f = 4M at b; s: g = 4M at d; reserved 20M",
    ),
    row(
        "trimming keeps so much",
        "s: a = 2M; s: b = 2M; s: c = 2M; s: d = 2M; s: e = 2M; s: f = 2M; free a; free b; free c; free d; free e;
         free f; complete; reserved 12M; trim 6M; reserved 6M; trim 6M; reserved 6M",
    ),
    // Not for a smaller block, nor for one that leaves too much of it.
    row(
        "large ranges are not split",
        "s: a = 40M; s: launch; free a; complete; s: b = 12M not a; s: c = 30M not a; s: d = 37M at a;
         requested 79M; allocated 82M",
    )
    .with(|| {
        let large = Settings::default().expandable_segments(false).max_split_bytes(Some(20 << 20));
        Config::default().settings(large.max_non_split_rounding_bytes(4 << 20))
    }),
    row(
        "a range that is not split is not called free for any block",
        "with max_split_size_mb:20,expandable_segments:False; s: a = 40M; s: launch; free a; complete;
         s: explain a NotSplit; s: mark; complete; s: begin; s: explain a None; s: b = 12M at a; s: end",
    ),
    row(
        "a range that is not split is called suspended while its pool is",
        "with max_split_size_mb:20,expandable_segments:False; s: a = 40M; s: launch; free a; complete; s: mark; complete;
         suspend; s: explain a Suspended; resume; s: explain a NotSplit",
    ),
    row(
        "a large block takes a range of any size that is large enough where the bound is as high as it can be",
        "with max_split_size_mb:20,max_non_split_rounding_mb:17592186044415; s: a = 40M; s: launch; free a; complete;
         s: b = 21M at a; allocated 40M",
    ),
    row(
        "a capture that is abandoned leaves nothing to its graph",
        "s: a = 4M; s: begin; free a; s: give up; s: stop; complete; empty; empty; reserved 0",
    ),
    // The freed block still has to ask the stream for its work.
    row(
        "a stream is not retired while a freed block waits for it",
        "s: begin; s: a = 4M; s: launch; o: capture; o: record a; free a; o: stop; o: retire !Stream \"InUse\";
         s: end; complete; s: release; o: retire; o: destroy; complete; destroy A",
    ),
    row(
        "a capture without nodes is fine",
        "s: begin; s: a = 4M; free a; s: end; reserved 4M",
    ),
    // A thread looks at what waits just when another has begun its next capture and not said so yet.
    row(
        "what was freed before a capture goes back though another thread sees the next one first",
        "s: a = 4M; s: begin; free a; s: abandon; s: capture; empty elsewhere; s: stop; complete; empty; empty;
         reserved 0",
    ),
    row(
        "a stream can retire once what waits for it has its event",
        "s: a = 4M; s: launch; s: begin; free a; s: end; s: retire; s: destroy; complete; empty; active 0",
    ),
    row(
        "a stream that was recorded can retire once what waits for it has its event",
        "s: a = 4M; s: launch; t: record a; t: begin; free a; t: end; t: retire; t: destroy; complete; empty; active 0",
    ),
    // At once, with its own work running.
    row(
        "work outside captures has its blocks back beside a capture",
        "s: a = 4M; s: launch; free a; c: begin B; c: x = 4M in B; c: launch; s: complete; s: b = 4M at a; s: launch;
         free b; s: d = 4M at a; s: launch; free d; s: e = 4M at a; reserved 4M",
    ),
    row(
        "work outside captures has its blocks back beside a capture in its pool",
        "s: a = 4M; s: launch; free a; c: begin; c: x = 4M; c: launch; s: complete; s: b = 4M; s: launch; free b;
         s: d = 4M at b; s: launch; free d; s: e = 4M at b; reserved 8M",
    ),
    // At any multiple of 512, in the order of its stream, and not beyond what there is.
    row(
        "a block comes at an address that is free for its stream",
        "s: w = 12M; s: x = 4M from w !\"nothing is free\"; s: launch; free w; s: a = 4193792 from w+4M+512;
         s: x = 2M from w+4M+1K !\"nothing is free\"; s: x = 2M from w+100 !\"nothing is free\";
         s: x = 4M from w+2M !\"nothing is free\"; s: x = 64M from w+8M !\"nothing is free\"; reserved 12M;
         t: x = 4M from w !\"nothing is free\"; s: complete; t: b = 4M+512 from w; t: c = 4M from w+8M; free a; free b;
         free c; complete; empty; empty; reserved 0",
    ),
    row(
        "what other streams use is not free at its address, not even for its own stream",
        "s: a = 4M; t <- s; t: record a; t: launch; free a; s: x = 4M from a !\"nothing is free\"; complete;
         s: b = 4M from a",
    ),
    row(
        "no memory of a graph or in a capture comes by its address",
        "s: a = 4M; s: launch; free a; s: begin; s: x = 4M from a !\"nothing is free\"; s: b = 4M; s: launch; free b;
         s: end; s: x = 4M from b !\"nothing is free\"",
    ),
    row(
        "what is never split has no address within it",
        "with max_split_size_mb:20; s: w = 32M; s: launch; free w; s: x = 4M from w !\"nothing is free\";
         s: x = 4M from w+4M !\"nothing is free\"; s: x = 32M from w !\"nothing is free\"; s: y = 32M at w",
    ),
    row(
        "a stream has its own blocks back as one of another size",
        "s: a b c = 4M; s: launch; free a; free b; free c; s: d = 12M at a; reserved 12M",
    ),
    row("nothing is no block", "s: a = 0 !\"allocate: zero bytes\""),
    row(
        "all goes on after a request that failed",
        "with memory_limit_mb:32; s: a = 8M; t: b = 8M; t: launch; free b; allocated 8M; s: x = 64M !OutOfMemory;
         allocated 8M; free a; t: c = 8M; free c; complete; empty; reserved 0",
    ),
];
