//! What captures are given, and whether they are accepted.

use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph_testing::rows::{row, Row};

pub const ROWS: &[Row] = &[
    // Streams and markers.
    row(
        "a stream has its own block back at once",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; free b; s: c = 4M at a; s: launch;
         free c; s: end; reserved 4M",
    ),
    row(
        "another stream takes a block only after a join",
        "s: begin; t <- s; s: a = 4M; s: launch; free a; t: b = 4M not a; t: explain a Marker; t <- s;
         t: c = 4M at a; t: launch; s <- t; s: end; reserved 8M",
    ),
    row(
        "a join proves what a recorded stream did",
        "s: begin; s: a = 4M; s: launch; t <- s; t: record a; t: launch; free a; s <- t; s: b = 4M at a;
         s: launch; s: end; reserved 4M",
    ),
    row(
        "a join proves what a recorded stream did to the block's own stream",
        "s: begin; s: a = 4M; s: launch; t <- s; t: record a; t: launch; free a; s <- t; s: b = 4M at a;
         s: launch; s: end; reserved 4M",
    )
    .with(|| Config::default().reuse(Reuse::OwnStream)),
    row(
        "a block that a recorded stream used is for the next capture where that is chosen",
        "s: begin; s: a = 4M; s: launch; t <- s; t: record a; t: launch; free a; s <- t; s: b = 4M not a;
         s: launch; s: end; reserved 8M; s: begin; s: c = 4M at a; s: launch; s: end",
    )
    .with(deferred),
    row(
        "a freed block is for the next capture where that is chosen, though a join came first",
        "s: begin; s: a = 4M; s: launch; t <- s; t: record a; t: launch; s <- t; free a; s: b = 4M not a;
         s: launch; s: end; s: begin; s: c = 4M at a; s: launch; s: end",
    )
    .with(deferred),
    row(
        "neighbours become one place behind all their markers",
        "s: begin; s: a = 2M; s: b = 2M; s: c = 2M; s: d = 2M; s: launch; free a; s: launch; free b; s: launch;
         free c; s: launch; free d; s: e = 8M at a; s: launch; s: end; reserved 8M",
    ),
    row(
        "a place over ranges of several streams is one for none where streams share nothing",
        "s: begin; s: launch; t <- s; t: a = 4M; s: b = 4M at a+4M; s,t: launch; free a; free b; t <- s;
         t: c = 8M not a; t: launch; s <- t; s: end",
    )
    .with(|| Config::default().reuse(Reuse::OwnStream)),
    row(
        "a place over ranges of several streams is one behind all of them",
        "s: begin; s: launch; t <- s; t: a = 4M; s: b = 4M at a+4M; s,t: launch; free a; free b; t <- s;
         t: c = 8M at a; t: launch; s <- t; s: end",
    ),
    row(
        "a block that is freed from another stream waits for both",
        "s: begin; s: a = 4M; s: launch; t <- s; t: launch; t: free a; s: b = 4M not a; t: c = 4M at a;
         t: launch; s <- t; s: end",
    ),
    row(
        "a block without work is free for every stream at once",
        "s: begin; s: launch; t <- s; s: launch; s: a = 4M; free a; t: b = 4M at a; t: launch; s <- t; s: end",
    ),
    row(
        "a block that no stream used serves the capture beside",
        "s,t: begin; t: launch; t: a = 4M; free a; s: b = 4M at a; s: launch; s: end; t: end",
    ),
    row(
        "who follows an old node has what was proven there, and no more",
        "s: begin; s: a = 4M; s: b = 8M; s: launch; free a; u <- s; s: launch; free b; t <- u; t: c = 8M not b;
         t: d = 4M at a; t: launch; t <- u; t: launch; s <- t; s: end",
    ),
    row(
        "a use after the last use takes back that it was the last",
        "s: begin; s: a = 4M; s: launch; t <- s; t: launch; t: last a; s <- t; t: record a; t: launch; free a;
         s: b = 4M; s: launch; s <- t; s: end",
    ),
    row(
        "what another thread frees is free with the capturing thread's next request",
        "s: begin; s: a = 4M; s: launch; free a elsewhere; free a !; s: b = 4M at a; s: end",
    ),
    row(
        "what another thread frees last goes to later captures",
        "s: begin; s: a = 4M; s: launch; free a elsewhere; s: end; s: begin; s: b = 4M at a; s: end",
    ),
    row(
        "a capture that is abandoned lets go of what another thread freed",
        "s: begin; s: a = 4M; s: launch; free a elsewhere; s: give up; s: stop; complete; empty; empty; reserved 0",
    ),
    // Its second half would take what the first half left as another graph's.
    row(
        "a capture that was ended in the engine is not entered again",
        "s: begin; s: launch; t <- s; s: a = 4M; s: launch; free a; s: judge; t: b = 4M !CaptureEnded; s <- t; s: stop",
    ),
    row(
        "a capture that was given up is not entered again",
        "s: begin; s: launch; t <- s; s: a = 4M; s: launch; free a; s: give up; t: b = 4M !CaptureEnded; s <- t;
         s: stop",
    ),
    // Streams that are set back.
    row(
        "a set-back is not forgotten while a block lives",
        "s: begin; s: launch; z <- s; s: a = 4M; s: launch 20; z: keep x; s: observe; s: set x; s: observe;
         s: launch 20; free a; s: b = 4M not a; s: launch; s: end",
    ),
    row(
        "a last use remembers a set-back",
        "s: begin; s: launch; z <- s; s: a = 4M; s: launch; z: keep x; s: observe; s: set x; s: observe;
         s: launch; s: last a; free a; s: b = 4M not a; s: launch; s: end",
    ),
    row(
        "what a stream gave back is asked for again after a set-back",
        "s: begin; s: launch; z <- s; s: a = 512; s: launch; free a; z: keep x; s: observe; s: set x; s: observe;
         s: b = 512 not a; s: launch; s: end",
    ),
    // The block of t is the outcome of a look at all that is free for it.
    row(
        "what others gave back is asked for again after a set-back",
        "s: begin; s: launch; z <- s; t <- s; s: a = 512; s: b = 512; s: c = 512; s: d = 512; s: e = 512;
         s: launch; free a; free c; free e; t <- s; t: f = 512 on a c e; free f; z: keep x; t: observe; t: set x;
         t: observe; t: g = 512 not a b c d e; t: launch; s <- t; s: end",
    ),
    row(
        "a set-back takes trust away",
        "s: begin; s: launch; s: keep x; s: a = 4M; s: launch; s: observe; s: set x; s: observe; s: launch; free a;
         s: b = 4M not a; s: launch; s: end",
    ),
    // It is looked at before and after. What the other stream launched before the allocation is no use.
    row(
        "a stream that was set to follow another may use its blocks",
        "s: begin; s: launch; t <- s; s: launch; t: a = 4M; t: launch; free a; t: b = 4M at a; s: observe;
         t: keep x; s: set x; s: observe; s: record b; s: launch; s <- t; free b; s: launch; s: end",
    ),
    row(
        "a stream that follows another and its own nodes may use the other's blocks",
        "s: begin; s: launch; t <- s; s: launch; t: a = 4M; t: launch; free a; t: b = 4M at a; s: observe;
         t: keep x; s: keep y; s: set x y; s: observe; s: record b; s: launch; s <- t; free b; s: launch; s: end",
    ),
    row(
        "what another stream was seen to launch before a stream is observed is not a set-back stream's work",
        "s: begin; s: launch; t <- s; s: keep x; s: a = 4M; s: launch; free a; s: b = 4M at a; s: observe; s: set x;
         s: observe; t: launch; t: observe; s: observe; s <- t; s: end",
    ),
    // It looks as if s had launched the node itself, on a block that need not come after a's users.
    row(
        "what another stream launched and no look has seen is a set-back stream's work",
        "s: begin; s: launch; t <- s; s: keep x; s: a = 4M; s: launch; free a; s: b = 4M at a; s: observe; s: set x;
         s: observe; t: launch; s <- t; s: end !Refused \"block 0 at\" \"block 1 at\"",
    ),
    // It looks as if s had launched its node between a's allocation and the record.
    row(
        "what was launched before a block's allocation and seen later is a use of the block",
        "s: begin; s: launch; s: keep x; t <- s; s: launch; t: a = 4M; s: record a; free a; s: b = 4M at a; s: observe;
         s: set x; s: observe; s: launch; s <- t; s: end !Refused \"block 0 at\" \"block 1 at\"",
    ),
    row(
        "what was seen before a block's allocation is no use of the block",
        "s: begin; s: launch; s: keep x; t <- s; s: launch; s: observe; t: a = 4M; s: record a; free a; s: b = 4M at a;
         s: observe; s: set x; s: observe; s: launch; s <- t; s: end",
    ),
    row(
        "a set-back under a place that was taken is refused without the checker",
        "s: begin; s: launch; s: keep x; s: a = 4M; s: launch; free a; s: b = 4M at a; s: set x; s: observe;
         s: launch; s: end !SetBack",
    )
    .with(|| Config::default().check(false).programmatic(Programmatic::Deny)),
    // Programmatic launches.
    row(
        "a programmatic launch on a place that was taken is refused where it proves nothing",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early;
         s: end !Refused \"block 0 at\" \"block 1 at\"",
    )
    .with(denying),
    row(
        "a programmatic launch is expected where edges prove what lies before their start",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M not a; s: early; s: end",
    )
    .with(|| Config::default().programmatic(Programmatic::Lag)),
    row(
        "a block is held until a full edge lies behind what the next node follows",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M not a; s: launch; s: c = 4M at a; s: early; s: end",
    )
    .with(|| Config::default().programmatic(Programmatic::Lag)),
    // Any launch of it may start early then, and none of another's.
    row(
        "a stream that launched early lags where other work is captured",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early; free b; s: launch; s: c = 8M; s: launch;
         free c; s: d = 8M; s: launch; free d; s: end !CaptureAgain \"capture again\";
         s: begin; s: e = 1M; s: launch; free e; s: f = 1M not e; s: launch; free f; s: end;
         t: begin; t: g = 1M; t: launch; free g; t: h = 1M at g; t: launch; free h; t: end",
    ),
    // It asks for 1 MiB in place of 8, behind which nothing launched early.
    row(
        "a stream lags from the first request on that differs from the capture that was refused",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early; free b; s: launch; s: c = 8M; s: launch;
         free c; s: d = 8M; s: launch; free d; s: end !CaptureAgain \"capture again\";
         s: begin; s: e = 4M; s: launch; free e; s: f = 4M; s: early; free f; s: launch; s: g = 1M; s: launch; free g;
         s: h = 1M not g; s: early; s: end",
    ),
    row(
        "a programmatic launch is as good as any where it is trusted",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early; s: end",
    )
    .with(|| Config::default().programmatic(Programmatic::Trust)),
    // The former node does not lie behind the new ones by an edge that proves something.
    row(
        "an edge that proves nothing leaves users behind",
        "s: begin; s: launch; t <- s; t: launch; s: a = 4M; s: launch; s: early; s <- t; free a; s: b = 4M not a;
         s: launch; s: end",
    )
    .with(denying),
    // Work and blocks outside the capture.
    row(
        "what a stream gave back outside is no one's while a capture begins, and waits for the stream",
        "s: a = 4M; s: launch; free a; trim; t: begin; s: b = 4M not a; complete; t: c = 4M at a; t: launch; t: end",
    ),
    row(
        "a user outside the capture holds the block until the end, and is no reason to refuse it",
        "s: begin; s: a = 4M; s: launch; o: record a; o: launch; free a; s: b = 4M not a; s: launch; s: end;
         s: c = 4M not a; complete; s: begin; s: d = 4M at a; s: launch; s: end",
    ),
    row(
        "a stream outside may go once the block is freed",
        "s: begin; s: a = 4M; s: launch; o: free a; complete; o: destroy; s: b = 4M not a; s: launch; s: end;
         s: begin; s: c = 4M at a; s: launch; s: end",
    ),
    // The block of the other pool is noticed to be free in the capture.
    row(
        "what waits in one pool is no concern of a capture in another",
        "t: a = 4M in B; t: launch; free a; s: begin; complete; s: b = 4M; s: launch; s: end",
    ),
    row(
        "a block from before that is freed inside is free in the next capture",
        "s: a = 4M; s: launch; s: begin; s: launch; free a; complete; s: b = 4M not a; s: launch; s: end; complete;
         s: c = 4M not a; s: begin; s: d = 4M at a; s: launch; s: end",
    ),
    row(
        "a graph keeps the memory of other pools that it uses",
        "s: a = 4M; s: begin B; s: launch; free a; s: end; complete; t: b = 4M not a;
         destroy A !Pool \"graphs: 1\"; s: release; t: c = 4M at a",
    ),
    row(
        "outputs outlive their graph",
        "s: begin; s: a = 4M; s: launch; s: end; s: release; free a; complete; s: b = 4M at a; reserved 4M",
    ),
    row(
        "outputs stay, and what waited serves the next capture",
        "s: begin; s: a = 4M; s: b = 4M; s: launch; t <- s; t: record b; t: launch; free b; s <- t; s: end;
         t: c = 4M not a b; s: begin; s: d = 4M at b; s: launch; s: end; free a; free d; free d !Unknown \"Block(\"",
    ),
    // The capture beside is told that the memory is not its own, and keeps off it.
    row(
        "what an abandoned capture gave back is not for one that was under way",
        "s,t: begin; s: a = 4M; s: launch; free a; s: abandon; t: b = 4M not a; t: launch; t: end; s: begin;
         s: c = 4M at a; s: launch; s: end",
    ),
    row(
        "what an abandoned capture gave back is not for one that began before it was abandoned",
        "s: begin; s: a = 4M; s: launch; free a; t: begin; s: abandon; t: b = 4M not a; t: launch; t: end; s: begin;
         s: c = 4M at a; s: launch; s: end",
    ),
    // Bodies of conditional nodes.
    // The parent's next kernel may run beside the body.
    row(
        "a block from outside that a body used waits for the parent",
        "i: a = 4M; complete; s: begin; s: launch; i: body s; i: launch; free a; i: end; complete; s: b = 4M not a;
         s: launch; s: end",
    ),
    row(
        "a body is kept apart from what is around it",
        "s: begin; s: a = 4M; s: launch; i: body s joined; free a; s: explain a NestedCapture i; i: b = 4M not a;
         i: launch; free b; i: end; s: c = 4M not a b; s: launch; s: end; s: begin; s: d = 4M at a; s: e = 4M at b;
         s: launch; s: end",
    ),
    // It belongs to the graph around it, whose end is yet to come.
    row(
        "a body's graph that is released leaves its memory to a capture under way",
        "s: begin; s: launch; i: body s; i: a = 4M; i: launch; free a; i: end; i: release; s: end; complete;
         e: b = 4M not a",
    ),
    // Ends in two steps.
    row(
        "memory of a capture without a verdict is there for captures, and not for work outside",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; free b; s: close; t: begin; t: c = 4M at a;
         t: launch; free c; t: d = 4M at a; t: launch; free d; reserved 4M; u: e = 4M; reserved 8M; t: close;
         t: verdict; s: verdict; s: release; t: release; free e; complete; destroy A",
    )
    .with(aside),
    row(
        "memory of a capture that will be refused is there for captures, and not for work outside",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; free b; s: cut; s: close; t: begin;
         t: c = 4M at a; t: launch; free c; t: d = 4M at a; t: launch; free d; reserved 4M; u: e = 4M; reserved 8M;
         t: close; t: verdict; s: verdict !Refused; t: release; free e; complete; destroy A",
    )
    .with(aside),
    row(
        "a refusal takes no memory from a capture under way",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; free b; s: cut; s: close; t: begin;
         t: c = 4M; t: launch; free c; t: d = 4M at c; t: launch; s: verdict !Refused; free d; u: e = 4M not d;
         t: close; t: verdict; u: f = 4M not d; t: release; u: g = 4M at d",
    )
    .with(aside),
    row(
        "a late verdict takes over what was lent before the capture, and nothing that was lent since it was over",
        "s: graph 8M; complete; t: a = 8M lent all; s: begin; s: x = 8M not a; s: use x; free x; s: close; complete;
         t: b = 8M lent all at x; lent 16M; s: verdict; lent 8M; l: replay s !Pool \"BlocksLent\"; free b; complete;
         l: replay s; free a",
    )
    .with(aside),
    row(
        "a verdict is given once",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; free b; s: verdict !Unknown \"Capture(\";
         s: close; s: verdict; s: verdict !Unknown \"Capture(\"; s: give up !Unknown \"Capture(\"",
    )
    .with(aside),
    row(
        "a closed capture can be abandoned",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; free b; s: close; s: give up;
         s: verdict !Unknown \"Capture(\"; destroy A",
    )
    .with(aside),
    row(
        "a closed capture that will be refused can be abandoned",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; free b; s: cut; s: close; s: give up;
         s: verdict !Unknown \"Capture(\"; destroy A",
    )
    .with(aside),
    row(
        "a capture that is likely to be refused is judged at once",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M; s: early; s: launch; s: close !CaptureAgain",
    )
    .with(aside),
    // Rolled back: the memory serves work outside captures.
    row(
        "a removed edge is found at the end",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: launch; s: observe; s: cut; s: end !Refused;
         free b; complete; t: c = 4M at a; reserved 4M",
    ),
    // Attempts.
    row(
        "the first attempt foresees nothing and the last one everything",
        "s: begin; s: attempt First; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early; free b; s: launch;
         s: c = 8M; s: launch; free c; s: d = 8M; s: launch; free d; s: end !CaptureAgain \"capture again\";
         s: begin; s: attempt First; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early; free b; s: launch;
         s: c = 8M; s: launch; free c; s: d = 8M; s: launch; free d; s: end !CaptureAgain \"capture again\";
         s: begin; s: attempt Last; s: a = 4M; s: launch; free a; s: b = 4M; s: early; free b; s: launch;
         s: c = 8M; s: launch; free c; s: d = 8M not c; s: launch; free d; s: end",
    ),
    row(
        "without the checker any launch may start early",
        "s: begin; s: attempt First; s: a = 4M; s: launch; free a; s: b = 4M not a; s: early; free b; s: launch;
         s: c = 8M; s: launch; free c; s: d = 8M not c; s: launch; free d; s: end",
    )
    .with(|| Config::default().check(false)),
    // Given up, the capture leaves memory to work outside captures, but not what a graph uses.
    row(
        "a block over memory of a graph and other memory is the graph's when its capture is given up",
        "s: y = 4M; t: begin; t: a = 4M; t: launch; free a; t: end; complete; free y; trim; u: begin; u: b = 8M at y;
         u: launch; u: abandon; free b; complete; trim; s: d = 4M not a; s: e = 8M not a",
    ),
    row(
        "what a capture that was not announced uses may be used in any capture of the pool until that ends",
        "t: begin; u: capture; s: a = 4M; u: record a; u: launch; free a; u: stop; t: x = 4M not a; t: launch; t: end",
    ),
    row(
        "what was proven before launches could start early is proven anew",
        "s: begin; s: a = 4M; s: launch; s: observe; free a; s: attempt Last; s: b = 4M not a; s: early; s: end",
    ),
    row(
        "a stream's use behind its last use holds the block",
        "s: begin; s: a = 4M; s: launch; t <- s; t: last a; t: launch; t: record a; free a; s: b = 4M not a; s: launch;
         t: launch; s <- t; s: end",
    ),
    row(
        "what waits and is used in a capture is its graph's",
        "s: a = 4M; t: begin; t: x = 4M; t: record a; t: launch; free a; t: end; complete; s: b = 4M not a",
    ),
    row(
        "what waits beside a capture is not its graph's",
        "s: a = 4M; u: record a; u: launch; free a; t: begin; t: x = 4M not a; t: launch; t: end; complete;
         s: b = 4M at a",
    ),
    row(
        "what waits and is used in a capture that is given up is no graph's",
        "t: graph 4M; s: a = 4M; t: begin; t: record a; t: launch; free a; t: abandon; complete; s: b = 4M at a",
    ),
    row(
        "a capture that is given up leaves no graph's memory where the last graph went meanwhile",
        "t: begin; t: x = 4M; t: launch; free x; t: end; u: begin; u: y = 1K; u: launch; free y; t: release; u: abandon;
         complete; s: b = 4M at x",
    ),
    // The free is the first call to notice. The graph of the capture before is gone.
    row(
        "a free that finds the capture ruined gives everything back",
        "s: begin; s: a = 4M; s: launch; free a; s: end; s: begin; s: b = 4M at a; s: launch; s: release; ruin; free b;
         s: stop !DriverError; complete; s: c = 4M at a",
    ),
    // Nothing of it will run, so its memory serves work outside captures again.
    row(
        "a ruined capture is rolled back",
        "s: begin; s: a = 4M; s: b = 4M; s: launch; free b; ruin; s: c = 4M !CaptureInvalidated; s: stop !DriverError;
         s: d = 4M at b; free a; free d; complete; destroy A",
    ),
    // Another handle, and the same work. No launch starts early behind the fourth block.
    row(
        "the second capture lags only where a launch started early",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early; free b; s: launch; s: c = 8M; s: launch;
         free c; s: d = 8M; s: launch; free d; s: end !CaptureAgain \"capture again\";
         t: begin; t: e = 4M; t: launch; free e; t: f = 4M not e; t: early; free f; t: launch; t: g = 8M; t: launch;
         free g; t: h = 8M at g; t: launch; free h; t: end",
    ),
    row(
        "a fault that is not the launches' is not captured again",
        "s: begin; s: a = 4M; s: launch; free a; s: b = 4M at a; s: early; free b; s: launch; s: x = 4M; s: launch; free x;
         s: y = 4M at x; s: launch; s: observe; s: cut; s: end !Refused",
    ),
    // Each of the second pair may lie on the first one's memory, the second of the first pair may not.
    row(
        "a plan knows which launches start early",
        "s: begin; s: plan; s: attempt Last; s: a = 32M; s: launch; free a; s: b = 32M; s: early; free b; s: launch;
         s: c = 32M; s: launch; free c; s: d = 32M; s: launch; free d; s: launch; s: end; reserved 64M",
    ),
];

/// Captures of any size are judged by a thread.
fn aside() -> Config {
    Config::default().find_late_uses(false).judge_aside(0)
}

fn deferred() -> Config {
    Config::default().reuse(Reuse::Deferred)
}

fn denying() -> Config {
    Config::default().programmatic(Programmatic::Deny)
}
