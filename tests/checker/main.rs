//! What the checker of finished captures accepts, refuses and finds.
#![allow(clippy::unwrap_used)]

#[path = "../common/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;

mod check;
mod flaws;
mod journal;
mod late_uses;
