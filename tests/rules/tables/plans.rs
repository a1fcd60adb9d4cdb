//! Captures whose memory comes at their end.

use regraph::engine::Config;
use regraph::settings::Settings;
use regraph_testing::rows::{row, Row};

pub const ROWS: &[Row] = &[
    // A block that takes over the pages of an earlier one has the rest of the last page too.
    row(
        "after a set-back before the earlier block's last use no other block begins on the rest of a page",
        "plans A; s: begin; s: launch; s: keep x; s: c = 5M; s: use c; free c; s: a = 6M at c; s: use a; s: last a;
         s: keep y; s: set x; s: observe; s: b = 1M not a; s: use b; s: keep z; s: set y z; s: observe; s: n = use a b;
         free b; free a; s: end late n/a",
    ),
    // What the block was given must be proven for the next one there all the same.
    row(
        "an unused block leaves its pages as it found them",
        "plans A; s: begin; s: launch; s: keep x; s: a = 2M; s: use a; free a; s: b = 2M at a; s: keep y; free b;
         s: set x; s: observe; s: c = 2M not a; s: use c; s: keep z; s: set y z; s: observe; free c; s: end",
    ),
    row(
        "an unused block leaves its part of a page and what lies beside it as it found them",
        "plans A; s: begin; s: launch; s: keep x; s: a = 1M; s: use a; free a; s: b = 1020K at a; s: keep y; free b;
         s: set x; s: observe; s: c = 1M not a; s: use c; s: keep z; s: set y z; s: observe; free c; s: end",
    ),
    // What has happened in the pool's memory before would be missing in the record.
    row(
        "no record begins behind an input that was freed",
        "s: a = 4K; s: expect; s: begin; s: use a; free a; s: plan !CannotPlan; s: launch; s: b = 4K at a; s: use b;
         s: end",
    )
    .with(unchecked),
    // It asks for no plan of other blocks, and for no check of them.
    row(
        "fixed memory is there without a check",
        "s: begin; s: a = 2M; s: use a; s: b = 2M fixed; s: use a b; free a; free b; s: end; s: replay s; complete;
         s: release; destroy A",
    )
    .with(unchecked),
    // The host fills it while the capture is under way, from outside. No graph writes there.
    row(
        "fixed memory is there at once and stays alone",
        "plans A; s: begin; s: a b = 4M; s: use a; s: use a b; free a; free b; s: f = 3M fixed; o: use f; o: complete;
         s: use f; free f; s: c d = 4M; s: use c; s: use c d; free c; s: e = 2M; s: use d e; free d; free e; s: end;
         reserved 12M; s: replay s; s: use f; t: begin; t: g = 20M; t: use g; t: h = 4M; t: use g h; free g; free h; t: end;
         s: replay t; s: replay s; s: use f",
    ),
    // One of them might be the body of a conditional node of the other.
    row(
        "planned captures beside each other share nothing",
        "plans A 2M; s: begin; s: a b = 6M; s: use a; s: use a b; free a; free b; s: end; reserved 12M; t,u: begin;
         t: c d = 4M; t: use c; t: use c d; free c; free d; u: e f = 2M; u: use e; u: use e f; free e; free f; u: end;
         t: end; reserved 24M; s: replay s; s: replay t; s: replay u",
    ),
    // It is followed behind every statement.
    row(
        "the history of planned captures leads to the blocks that are there",
        "plans A; s: begin; s: launch; t <- s; s: a = 5M; s: use a; t: record a; t: launch; free a; s: b = 3M; s: use b;
         s: c = 1K; s: use c; s: d = 2M fixed; s: use d; o: record b; free b; s <- t; s: end; complete; t: begin;
         t: e = 5M; t: use e; free e; t: f = 2M; t: use f; t: abandon; free f; free c; complete; suspend; resume; free d; complete;
         s: release",
    )
    .with(|| Config::default().settings(Settings::default().history(64))),
    row(
        "planned blocks of several pools share what there is",
        "with memory_limit_mb:256; plans A; plans B; s: begin; s: a = 160M; s: b = 160M in B !OutOfMemory; free a;
         s: b = 160M in B; s: use b; free b; s: end",
    ),
    // Small blocks and the ends of large ones do, and a block may begin in the gap at the end of one.
    row(
        "blocks of a stream share pages",
        "plans A; s: begin; s: a = 5M; s: b c d = 4K; s: e = 3133440; s: use a e b c d; s: end; reserved 8M",
    ),
    row(
        "what the pool holds already needs no room below the limit",
        "plans A; s: a = 16M; free a; s: mark; complete; limit 8M; s: begin; s: b = 16M at a; s: use b; free b; s: end",
    ),
    // Outside captures, and then for a plan.
    row(
        "memory of graphs that are gone is there for others",
        "with memory_limit_mb:16; plans A; s: begin; s: a = 12M; s: use a; s: end; s: release; free a; complete;
         t: b = 14M; free b; complete; s: begin; s: c = 16M; s: use c; free c; s: end; s: replay s; complete;
         s: release",
    ),
    row(
        "a record that begins behind launches misses nothing",
        "s: capture; s: launch; s: begin; s: plan; s: a = 2M; s: use a; free a; s: end",
    )
    .with(unchecked),
    row(
        "a record of a second pool misses nothing",
        "plans B; s: begin; s: launch; s: begin B; s: a = 2M in B; s: use a; free a; s: end",
    )
    .with(unchecked),
];

fn unchecked() -> Config {
    Config::default().check(false)
}
