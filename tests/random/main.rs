//! Random programs against the definition of safe reuse, for seconds each.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_types, reason = "locks of one test")]

#[path = "../common/cases.rs"]
mod cases;

mod attempts;
mod eager_programs;
mod fuzz_smoke;
mod lending;
mod many_graphs;
mod named_pools;
mod property;
mod threads;
