//! Checkpoints of a pool, and going back to them; pools that are suspended.

use regraph::engine::Config;
use regraph::settings::Settings;
use regraph_testing::rows::{self, Row};

/// A row of an engine that keeps a history, which is judged with each snapshot.
const fn row(name: &'static str, program: &'static str) -> Row {
    rows::row(name, program)
        .with(|| Config::default().settings(Settings::default().history(10_000)))
}

pub const ROWS: &[Row] = &[
    // The outputs of the last graph may lie where those of the second did, and not where those of the first do.
    row(
        "what lived at the checkpoint lives again where it lay",
        "s: begin; s: x = 4M; s: launch; s: a = 4M; s: b = 4M; s: launch; free x; s: end; checkpoint c; live a b;
         free a; free b; complete; s: begin; s: x = 4M; s: launch; s: d = 4M; s: e = 4M on a b; s: launch; free x;
         s: end; restore c; live a b; free d !Unknown \"Block(\"; free e !Unknown \"Block(\"; s: begin; s: x = 4M;
         s: launch; s: f = 4M not a b; s: g = 4M not a b; s: launch; free x; s: end; reserved 20M; free a; free b;
         free f; free g; live",
    ),
    row(
        "a restored block, once freed, is the graphs' until the last of them goes",
        "s: e = 4M; s: begin; s: x = 4M; s: launch; s: a = 4M; s: launch; free x; s: end; checkpoint c; free e;
         restore c; live a e; free a; free e; complete; empty; reserved 12M; s: b = 4M not a e; reserved 16M;
         s: release; complete; s: d = 4M on a e",
    ),
    row(
        "a restored block is the graph's that is captured later and frees it",
        "s: a = 4M; checkpoint c; restore c; t: begin; t: x = 4M; t: launch; free a; t: end; complete;
         s: b = 4M not a; s: d = 4M not a; s: e = 4M not a; t: release; complete; s: f = 4M at a",
    ),
    row(
        "a restored block is the graph's that is captured before it is freed",
        "s: a = 4M; checkpoint c; restore c; t: begin; t: x = 4M; t: launch; t: end; free a; complete;
         s: b = 4M not a; s: d = 4M not a; s: e = 4M not a; t: release; complete; s: f = 4M at a",
    ),
    row(
        "a restored block is the graph's that frees it, though another graph is gone",
        "s: a = 4M; t: graph 4M; checkpoint c; restore c; t: release; t: begin; t: x = 4M; t: launch; free a; t: end;
         complete; s: b = 4M not a; s: d = 4M not a; s: e = 4M not a; t: release; complete; s: f = 4M at a",
    ),
    row(
        "a restored block is a later graph's, though another graph is gone",
        "s: a = 4M; t: graph 4M; checkpoint c; restore c; t: release; t: begin; t: x = 4M; t: launch; t: end; free a;
         complete; s: b = 4M not a; s: d = 4M not a; s: e = 4M not a; t: release; complete; s: f = 4M at a",
    ),
    // In the stream's cache; ordered by the stream; waiting for another; in another block.
    row(
        "a place is taken whatever is there",
        "s: a = 4M; s: b = 4M; s: c = 4M; s: d = 4M; checkpoint x; s,t: launch; s: record a; free a; s: record b;
         free b; t: record c; free c; s: record d; free d; s: mark; s: e = 3M at d; t: f = 5M; restore x;
         live a b c d; s: begin; s: g = 4M not a b c d; s: launch; s: end",
    ),
    // The driver unmaps without waiting. Nor does a pool get it whose owner has promised nothing.
    row(
        "what a restoration frees stays mapped while work uses it",
        "checkpoint x; s: a = 4M; s: b = 4M; t: record b; s,t: launch; restore x; live; reserved 8M; empty; empty A;
         reserved 8M; destroy A !Pool \"InUse\" \"waiting: 1\"; suspend !Pool \"Busy\" \"waiting: 1\"; takes E; offer;
         t: c = 4M in E not a b; complete; empty; reserved 0",
    ),
    // A block waits, and a smaller one lay in its middle at the checkpoint.
    row(
        "what is left of a waiting place goes on waiting",
        "s: a = 4M; s: b = 4M; s: c = 4M; free a; free c; checkpoint x; free b; s: w = 12M at a; t: record w;
         t: launch; free w; restore x; live b; active 12M; t: d = 4M not w; complete; s: e = 4M at a; s: f = 4M at c;
         active 16M",
    ),
    row(
        "what cannot be restored is refused and nothing changes",
        "s: begin; s: x = 4M; s: launch; s: a = 4M; s: launch; free x; s: end; checkpoint c; s: b = 3M; t: begin;
         restore c !Checkpoint \"Captures { captures: 1 }\"; checkpoint d !Checkpoint \"Captures {\"; t: abandon;
         s: begin B; restore c !Checkpoint \"BlocksInCapture { streams: 1 }\"; s: abandon; checkpoint o in B;
         restore o !Checkpoint \"OtherPool\"; suspend discarding; restore c !Pool \"Suspended\";
         checkpoint d !Pool \"Suspended\"; resume; live a b; free a; free b",
    ),
    // Another has its handle: the block is not taken for that one's.
    row(
        "a stream may be gone when a block of it is restored",
        "s: begin; s: x = 4M; s: launch; s: a = 4M; s: launch; free x; s: end; checkpoint c; free a; complete;
         s: retire; s: begin; s: y = 4M; s: launch; s: end; restore c; s: launch; free a; t: begin; t: d = 4M;
         t: e = 4M at a; t: end",
    ),
    // A live block may be in use in a capture that the engine has not heard of, beside one that it knows.
    row(
        "nothing is restored beside a capture that was not announced",
        "checkpoint c; s: a = 4M; t: begin B; s: capture; s: launch;
         restore c !Checkpoint \"BlocksInCapture { streams: 1 }\"",
    ),
    // What its own stream may have back at once, it may still be using.
    row(
        "a pool that is busy is not suspended",
        "s: begin; s: a = 4M; s: launch; suspend !Pool \"Busy { captures: 1, waiting: 0 }\"; suspended 0; s: end;
         s: release; s: b = 4M; s: launch; free b; suspend !Pool \"Busy { captures: 0, waiting: 1 }\"; s: c = 6M;
         t: record c; t: launch; t: launch; free c; suspend !Pool \"Busy { captures: 0, waiting: 1 }\"; s: complete;
         suspend !Pool \"Busy { captures: 0, waiting: 1 }\"; suspended 0; t: complete; suspend discarding; reserved 0;
         resume; s: d = 4M",
    ),
    // What a stream gives back that captures into another pool belongs to that graph.
    row(
        "a block that is freed while its pool is suspended may be in use by another graph",
        "s: a = 4M; suspend discarding; suspended 4M; t: begin B; t: launch; t: record a; free a; resume; reserved 4M;
         suspend !Pool \"Busy\"; s: b = 4M not a; t: end; complete; s: c = 4M not a",
    ),
    row(
        "an empty pool can be suspended",
        "suspend; suspended 0; s: a = 1 !Pool \"Suspended\"; resume; reserved 0; s: a = 4M",
    ),
    // What was done with the memory before the restoration may go on.
    row(
        "what is freed after a restoration waits for a stream that used the place before it",
        "s: a = 4M; checkpoint x; t: record a; t: launch; free a; restore x; free a; empty; empty A; reserved 4M;
         complete; empty; reserved 0",
    ),
    row(
        "what is freed after a restoration waits for the stream that gave the place back, which is gone",
        "s: a = 4M; checkpoint x; s: launch; free a; s: mark; s: retire; s: destroy; restore x; free a; empty; empty A;
         reserved 4M",
    ),
    row(
        "what a restoration frees waits for its stream, which is gone",
        "checkpoint x; s: a = 4M; s: launch; s: retire; s: destroy; restore x; empty; empty A; reserved 4M",
    ),
    row(
        "what a restoration frees in a pool without graphs is for work outside captures",
        "checkpoint x; s: a = 4M; restore x; s: b = 4M at a",
    ),
    row(
        "a checkpoint belongs to its pool",
        "s: b = 4M; s: a = 4M in B; checkpoint x in B; restore x !Checkpoint; live b",
    ),
    row(
        "what a capture that was never announced may have used is no work's outside captures, restored or not",
        "s: a = 4M; checkpoint x; t: capture; t: record a; t: launch; free a; \
         restore x; live a; t: stop; complete; free a; complete; s: b = 4M not a; free b",
    ),
    // A capture of the lender's gets another place.
    row(
        "what another pool has borrowed lives for as long as that has it",
        "checkpoint x; s: a = 4M; checkpoint y; free a; takes E; offer; s: b = 4M in E at a; live; checkpoint z;
         restore x; restore y !Checkpoint \"Gone\"; s: begin; s: c = 4M not b; s: launch; s: d = 4M not b; s: launch;
         free c; s: end; suspend discarding !Pool \"HasBlocks\" \"offered to pool\" \"free them first\"; free b;
         complete; restore z; live; restore y; live a",
    ),
    row(
        "memory that went back to the driver is not restored",
        "s: a b = 24M; checkpoint x; free b; complete; s: mark; complete; empty; reserved 24M;
         restore x !Checkpoint \"Gone\" \"bytes: 25165824\"; live a; free a",
    ),
    row(
        "a segment that went back to the driver is not restored",
        "with expandable_segments:False; s: a b = 24M; checkpoint x; free b; complete; s: mark; complete; empty;
         reserved 24M; restore x !Checkpoint \"Gone\" \"bytes: 25165824\"; live a; free a",
    ),
    row(
        "a pool with plans has no checkpoints",
        "checkpoint x; s: begin; s: plan; s: a = 4M; s: launch; s: end; checkpoint y !Checkpoint \"NoWayBack\";
         restore x !Checkpoint \"NoWayBack\"; live a",
    ),
    row(
        "a pool without caching has no checkpoints",
        "with caching:False; checkpoint x !Checkpoint \"NoWayBack\"",
    ),
    // Only neighbours are joined: nothing comes where a piece was given back for good.
    row(
        "pieces on both sides of a hole come back where they were",
        "s: a b c d e f = 2M; free c; complete; empty; reserved 10M; suspend discarding; suspended 10M; resume;
         reserved 10M; s: touch a b d e f; complete; suspend discarding; suspended 10M; resume; reserved 10M;
         s: touch a b d e f; complete",
    ),
    // A mapping takes as long for any size. All but the first block go: the piece that it lies in stays.
    row(
        "small pieces come back joined",
        "s: a b c d e f g h i j k l m n o p q r s t = 2M; pieces 20; suspend discarding; suspended 40M; reserved 0;
         resume; pieces 3; suspend discarding; resume; pieces 3; s: use a b c d e f g h i j k l m n o p q r s t; free b;
         free c; free d; free e; free f; free g; free h; free i; free j; free k; free l; free m; free n; free o; free p;
         free q; free r; free s; free t; complete; empty; reserved 16M; free a; complete; empty; reserved 0",
    ),
    // What a graph owns its launch writes anew; what the host filled would be lost. Without its graph an output is the
    // host's.
    row(
        "live blocks that no graph owns keep their pool",
        "s: begin; s: x = 4M; s: use x; s: o = 6M; s: use x o; free x; s: end; s: replay s; s: w = 9M; s: v = 700; s: use w;
         complete; suspend !Pool \"HasBlocks\" \"suspend_discarding_all\" \"bytes: 9437184\" \"bytes: 700\"; suspended 0;
         suspend !Pool; reserved 22M; s: use w; complete; suspend discarding; suspend; suspended 22M; resume; free w; free v;
         complete; suspend; suspended 22M; resume; s: release; suspend !Pool \"HasBlocks\"; free o; complete; suspend;
         suspended 22M",
    ),
    row(
        "a graph runs again at its addresses",
        "s: begin; s: a = 4M; s: use a; s: b = 700; s: use a b; free a; s: c = 9M; s: use b c; free b; s: o = 30M; s: use c o;
         free c; s: end; s: replay s; s: use o; complete; suspend; suspended 44M; reserved 0; suspend; suspended 44M; resume;
         resume; suspended 0; reserved 44M; s: replay s; s: use o; complete; suspend; suspended 44M; reserved 0; resume;
         reserved 44M; s: replay s; s: use o",
    ),
    row(
        "a graph runs again at its addresses in segments",
        "with expandable_segments:False; s: begin; s: a = 4M; s: use a; s: b = 700; s: use a b; free a; s: c = 9M; s: use b c; free b; s: o = 30M; s: use c o;
         free c; s: end; s: replay s; s: use o; complete; suspend; suspended 52M; reserved 0; suspend; suspended 52M; resume;
         resume; suspended 0; reserved 52M; s: replay s; s: use o; complete; suspend; suspended 52M; reserved 0; resume;
         reserved 52M; s: replay s; s: use o",
    ),
];
