//! Everything that runs on a GPU:
//!
//! ```text
//! cargo test --release --test gpu -- --ignored
//! ```
//!
//! Most of these tests have a twin on the simulated driver, which runs without `--ignored`.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_types, reason = "locks of one test")]

#[macro_use]
#[path = "../common/device.rs"]
mod device;

#[path = "../common/driven.rs"]
mod driven;

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[path = "../common/owned.rs"]
mod bench;
#[cfg(feature = "cudarc")]
mod buf;
mod devices;
mod driver;
mod eager;
mod graphs;
#[cfg(feature = "cuda")]
mod late_uses;
mod plans;
mod regions;
#[cfg(feature = "cuda")]
mod rules;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod sharing;
mod tagged_replay;
