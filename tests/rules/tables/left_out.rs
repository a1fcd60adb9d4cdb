//! For each rule that an engine can leave out, a program that it then gets wrong.

use regraph::engine::{Config, Flaw};
use regraph::settings::Programmatic;
use regraph_testing::rows::{row, Row};

pub const ROWS: &[Row] = &[
    row(
        "a stream that does not come after a block's work does not get the block",
        "s: begin; s: launch; t <- s; s: a = 4M; s: launch; free a; t: b = 4M; t: launch; s <- t; s: end",
    )
    .without(Flaw::Proof),
    // One that no list of its pool has would never be told to the checker: the sums of bytes differ.
    row(
        "a live block is listed when a capture begins",
        "t: o = 4M; s: begin; s: a = 4M; s: launch; s: end",
    )
    .without(Flaw::Unlisted),
    row(
        "a block that comes while a capture is under way is listed",
        "s: begin; t: o = 4M; s: a = 4M; s: launch; s: end",
    )
    .without(Flaw::Unlisted),
    row(
        "what an earlier capture has left is told where a later one is handed its place",
        "s: begin; s: a = 4M; s: launch; s: end; s: begin; s: b = 4M; s: launch; s: end",
    )
    .without(Flaw::Alias),
    // All that t did is proven for t.
    row(
        "a block's own stream sets a marker",
        "s: begin; s: launch; t <- s; s: a = 4M; t: record a; s,t: launch; free a; t: b = 4M; t: launch;
         s <- t; s: end",
    )
    .without(Flaw::OwnMarker),
    row(
        "another stream that used a block sets a marker",
        "s: begin; s: a = 4M; s: launch; t <- s; t: record a; t: launch; free a; s: b = 4M; s: launch;
         s <- t; s: end",
    )
    .without(Flaw::ForeignMarkers),
    row(
        "a stream that is set back proves nothing",
        "s: begin; s: launch; s: keep x; s: a = 4M; s: launch; free a; s: set x; s: observe; s: b = 4M;
         s: launch; s: end",
    )
    .without(Flaw::SetBack),
    row(
        "a programmatic edge proves nothing where that is denied",
        "s: begin; s: a = 4M; s: launch; s: early; s: last a; s: early; free a; s: early; s: b = 4M;
         s: launch; s: end",
    )
    .with(|| Config::default().programmatic(Programmatic::Deny))
    .without(Flaw::EdgeKinds),
    // The second capture foresees what was refused in the first, on either stream.
    row(
        "a launch that may start early is foreseen in the second attempt",
        "s: begin; s: launch; t <- s;
         s: a = 4M; s: launch; free a; s: b = 4M; s: early; t: c = 4M; t: launch; free c; t: d = 4M; t: early;
         s <- t; s: end !CaptureAgain;
         s: begin; s: launch; t <- s;
         s: a = 4M; s: launch; free a; s: b = 4M; s: early; t: c = 4M; t: launch; free c; t: d = 4M; t: early;
         s <- t; s: end",
    )
    .without(Flaw::EarlyLaunches),
    row(
        "a stream outside the capture holds a block",
        "s: begin; s: a = 4M; s: launch; o: record a; free a; s: b = 4M; s: launch; s: end",
    )
    .without(Flaw::OutsideUses),
    row(
        "a block that a body may use waits for its end",
        "s: begin; s: a = 4M; s: launch; i: body s; i: launch; free a; s: b = 4M; s: launch; i: end; s: end",
    )
    .without(Flaw::NestedCapture),
    row(
        "what a body leaves behind is not free beside it",
        "s: begin; s: launch; i: body s; i: a = 4M; i: launch; free a; i: end; s: b = 4M; s: launch; s: end",
    )
    .without(Flaw::Hold),
    row(
        "memory from before a capture is not free in it at once",
        "s: a = 4M; s: launch; s: begin; s: launch; free a; s: b = 4M; s: launch; s: end",
    )
    .without(Flaw::OlderBlocks),
    row(
        "an input that a capture frees is free behind its uses",
        "s: a = 4M; s: launch; s: expect; complete; s: begin; s: launch; t <- s; s: launch; free a; t: b = 4M;
         t: launch; s <- t; s: end",
    )
    .without(Flaw::InputMarkers),
    row(
        "outside captures a stream has what it gave back itself",
        "s: a = 4M; s: use a; s: use a; free a; t: b = 4M; t: use b; t: use b",
    )
    .without(Flaw::StreamOrder),
    row(
        "outside captures other streams that used a block have completed",
        "s: a = 4M; t <- s; t: record a; t: use a; t: use a; free a; s: b = 4M; s: use b; s: use b",
    )
    .without(Flaw::Events),
    // Block c's addresses are others than block a's, and one of its pages of memory is that of a.
    row("blocks that live at one time lie on memory of their own", PIECES).without(Flaw::SharedPieces),
    row("memory lies where the plan has it", PIECES).without(Flaw::SwappedPieces),
];

const PIECES: &str = "plans A 2M; s: begin; s: a = 2M; s: b = 2M; s: use a b; free a; s: c = 4M; s: use b c; free b; free c;
    s: end";
