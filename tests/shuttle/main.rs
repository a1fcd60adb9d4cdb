//! Threads interleaved at random: `RUSTFLAGS="--cfg shuttle" cargo test --test shuttle`.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used)]

mod engine;
mod gates;
mod graphs;
