//! Uses later than was recorded, and none where all was.

use regraph::engine::Config;
use regraph_testing::rows::{row, Row};

const fn finding(name: &'static str, program: &'static str) -> Row {
    row(name, program).with(|| Config::default().find_late_uses(true))
}

pub const ROWS: &[Row] = &[
    finding(
        "a use behind the last use that a join puts before the free is none",
        "s: begin; s: a = 4M; s: touch a; t <- s; t: touch a; t: last a; t: touch a; s <- t; free a; s: end",
    ),
    // The memory has a new block, and that one a user, by the time of the next look.
    finding(
        "a stream that was never recorded is found",
        "s: begin; s: a = 4M; s: touch a; t <- s; t: n = touch a; s: touch a; free a; s: b = 4M at a; s: touch b;
         s <- t; free b; s: end late n/a",
    ),
    finding(
        "a use behind the free is found",
        "s: begin; s: a = 4M; s: touch a; free a; s: n = touch a; s: observe; s: m = touch a; s: end late n/a m/a",
    ),
    finding(
        "blocks that are never freed have no late uses",
        "s: begin; s: a = 4M; s: touch a; t <- s; t: touch a+1M; s <- t; s: end",
    ),
    finding(
        "the end of a block is no use of the next",
        "s: begin; s: launch; s: a = 4M; s: b = 4M at a+4M; s: touch b; free b; s: touch a a+4M; s: n = touch a+4M;
         free a; s: end late n/b",
    ),
    finding(
        "who is set back is not accused",
        "s: begin; s: launch; s: keep x; s: launch; s: a = 4M; s: touch a; s: observe; s: set x; s: observe;
         s: touch a; free a; s: end",
    ),
];
