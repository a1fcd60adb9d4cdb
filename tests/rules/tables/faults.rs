//! Programs that do many things, whose calls to the driver fail in turn.

use regraph::engine::Config;
use regraph::settings::Settings;
use regraph_testing::rows::{row, Row};

/// Short ones.
pub const SMALL: &[Row] = &[
    row(
        "a block that two streams of a capture use goes on to each of them",
        "s: begin; s: launch; t <- s; s: a = 4M; s: use a; free a; t: b = 4M; t: use b; s <- t; s: c = 4M; s: use c;
         s: end",
    ),
    row(
        "a pool whose block a graph uses belongs to the graph",
        "s: a = 4M; s: begin B; s: use a; s: use a; free a; s: end; complete; t: b = 4M not a; t: use b; t: complete;
         s: replay s; s: complete; t: use b",
    ),
    row(
        "a graph's memory stays its own where the driver ended its capture first",
        "s: a = 4M; s: begin; s: use a; s: use a; free a; s: stop; s: judge; complete; t: b = 4M not a; t: use b;
         t: complete; s: replay s; s: complete; t: use b",
    ),
    row(
        "fixed memory outlives a plan that is mapped twice",
        "plans A; s: begin; s: f = 2M fixed; s: use f; s: a = 6M; s: use f a; free f; free a; s: end; s: replay s; complete;
         s: release; destroy A",
    ),
];

pub const ROWS: &[Row] = &[
    row(
        "two captures on two streams, with outputs",
        "s: begin; s: launch; t <- s; s: a = 4M; s: use a; t: record a; t <- s; t: use a; t: last a; free a; s <- t;
         s: b = 4M; s: use b; t: record b; t <- s; t: use b; t: last b; free b; s <- t; s: c = 700; s: use c;
         t: record c; t <- s; t: use c; s <- t; s: d = 9M; s: use d; t: record d; t <- s; t: use d; s <- t; s: end;
         s: begin; s: launch; t <- s; s: e = 4M; s: use e; t: record e; t <- s; t: use e; free e; s <- t; s: f = 9M;
         s: use f; s: end; t: g = 3M; t: launch; free g; free c; free d; free f; s: release; s: release; complete;
         destroy A",
    ),
    row("a pool is suspended beside blocks of work outside", SUSPENDED)
        .with(|| Config::default().settings(Settings::default().history(1_000))),
    row("a pool in segments is suspended beside blocks of work outside", SUSPENDED).with(|| {
        let settings = Settings::default().expandable_segments(false).history(1_000);
        Config::default().settings(settings)
    }),
    row("work outside captures beside a capture, and short of memory", EAGER)
        .with(|| limited(Settings::default())),
    row("work outside captures in segments", EAGER)
        .with(|| limited(Settings::default().expandable_segments(false))),
    row("work outside captures with garbage collection", EAGER)
        .with(|| limited(Settings::default().garbage_collection_threshold(Some(0.3)))),
    row("work outside captures without caching", EAGER).with(|| limited(Settings::default().caching(false))),
    row(
        "planned captures, one that is abandoned, and memory that goes and comes back",
        "plans A 4M; s: begin; s: f = 2M fixed; s: use f; s: a = 10M; s: use f a; s: b = 6M; s: use f a b; free a;
         s: c = 8M; s: use f b c; free b; s: d = 2M; s: use f c d; free c; free f; s: end; s: replay s; s: use d;
         t: begin; t: g = 4M; t: use g; t: h = 12M; t: use g h; free g; t: i = 700; t: use h i; free h;
         t: j = 6M+512; t: use i j; free i; t: end; s: replay t; s: replay s; s: use d j;
         reserved 26M; u: begin; u: k = 18M; u: use k; u: l = 2M; u: use k l; free k; u: abandon; reserved 26M; free l;
         v: begin; v: m = 6M; v: use m; v: n = 6M; v: use m n; free m; free n; v: end; s: replay v; s: replay s;
         s: replay t; s: use d j; complete; t: release; s: replay s; s: replay v; s: use d j; complete; suspend; resume;
         s: replay s; s: replay v; s: use d; complete; suspend; resume; s: replay v; s: replay s; s: use d; free j;
         free d; complete; s: release; v: release; empty; destroy A",
    ),
];

const SUSPENDED: &str = "
    s: begin; s: a = 12M; s: use a; s: b = 700; s: use a b; free a; s: c = 19M; s: use b c; free b; s: d = 12M;
    s: use c d; free c; s: end; t: i = 9M; t: f = 3M; free f; complete; s: replay s; s: use d; t: use i; complete;
    suspend discarding; reserved 0; t: x = 3M !Pool; t: x = 512 !Pool; empty; resume; s: replay s; s: use d; complete;
    suspend discarding; resume; s: replay s; s: use d; complete; suspend discarding; free i; free d; s: release;
    complete; destroy A";

/// Blocks of several sizes on two streams, used by others, freed while work runs; a capture, beside which all goes on;
/// and requests for which old memory goes, then all that is free, and then the host waits.
const EAGER: &str = "
    s: a = 4M; s: use a; t: record a; t <- s; t: use a; s: x = 4M; s: use x; free x; t: b = 700; t: use b; s: record b;
    s <- t; s: use b; t: x = 700; t: use x; free x; s: c = 3M; s: use c; t: record c; t <- s; t: use c; s: x = 3M;
    s: use x; free x; t: d = 512K; t: use d; s: record d; s <- t; s: use d; t: x = 512K; t: use x; free x; free b;
    free c; free d; t: complete; t: x = 7M; t: use x; free x; u: begin B; u: e = 4M in B; u: use e; u: record a;
    u: launch; s: x = 4M in B; s: use x; free x; s: x = 4M; s: use x; free x; s: mark; empty; free e; u: end;
    s: x = 20M; s: use x; free x; t: x = 20M in B; t: use x; free x; s: x = 24M; s: use x; free x; t: x = 24M in B;
    t: use x; free x;   s: x = 64M !OutOfMemory;
    t: x = 24M in B; t: use x; trim 16M; free x; free a; complete; t: retire; u: release; complete; destroy A;
    destroy B";

fn limited(settings: Settings) -> Config {
    Config::default().settings(settings.memory_limit_bytes(Some(64 << 20)))
}
