//! The tests of the engine, its plans, its checker and the plug-in on the simulated driver, and of that driver
//! itself: one program, by subject. `tests/README.md` says where a test goes.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_types, reason = "locks of one test")]

#[path = "common/cases.rs"]
mod cases;
mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/driven.rs"]
mod driven;
#[path = "common/owned.rs"]
mod owned;

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

mod blocks;
mod captures;
mod checker;
mod checkpoints;
mod faults;
mod graphs;
mod lending;
mod plans;
mod plugin;
mod protocol;
mod random;
mod reports;
mod rules;
mod settings;
mod sharing;
mod simulator;
mod sleep;
mod threads;
