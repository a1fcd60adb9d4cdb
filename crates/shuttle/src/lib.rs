//! Threads interleaved at random: `RUSTFLAGS="--cfg shuttle" cargo test -p regraph-shuttle`.
//!
//! A package of its own, so that nothing is built with this flag but what is interleaved.
#![cfg(all(test, shuttle))]
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod engine;
mod gates;
mod graphs;
