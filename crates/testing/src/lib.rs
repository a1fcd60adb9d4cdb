//! What fuzz targets, property tests and Miri share.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_types, reason = "locks of one program")]

mod eager;
mod engine;
mod given;
mod graphs;
pub mod paths;
mod readers;
pub mod rows;
mod traces;
mod weights;

pub use eager::{eager, eager_with_checkpoints, flawed_eager, named, named_with_upkeep, Renamed};
pub use engine::{engine, flawed_engine, sound_engine, Finding};
pub use graphs::{graphs, run_lending, Features};
pub use readers::{
    certificate_reader, csv_reader, edited, environment_reader, handle_reader, settings_reader,
    snapshot_reader, texts,
};
pub use traces::{trace_reader, trace_text};

use regraph::driver::Driver;
use regraph::engine::Engine;

/// All that holds of an engine's tables between calls does.
fn judge_tables<D: Driver>(engine: &Engine<D>) {
    if let Err(what) = engine.host().verify() {
        panic!("the engine's tables are wrong: {what}");
    }
}

/// A snapshot agrees with itself, and its history with what it leads to.
fn judge_snapshot<D: Driver>(engine: &Engine<D>) {
    let snapshot = engine.snapshot().expect("no thread panicked");
    regraph_trace::snapshot::validate(&snapshot).expect("the snapshot agrees with itself");
    regraph_trace::snapshot::validate_history(&snapshot)
        .expect("the history leads to the snapshot");
}

/// Of packages that are built at once each has the features that any of them asks for, and this one asks for engines
/// that can leave rules out.
#[test]
fn only_builds_with_debug_assertions_can_leave_rules_out() {
    // An engine, without which none would be linked.
    sound_engine(&[1; 64]);
    let program = std::env::current_exe().and_then(std::fs::read).expect("a program that runs");
    // In two parts, so that the test itself does not contain it.
    let text = ["this program can leave ", "safety rules out"].concat();
    let found = program.windows(text.len()).any(|part| part == text.as_bytes());
    assert_eq!(found, cfg!(debug_assertions));
}
