//! What fuzz targets, property tests and Miri share.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_types, reason = "locks of one program")]

mod engine;
mod given;
mod graphs;
mod named;
mod readers;
pub mod rows;
mod traces;
mod weights;

pub use engine::{engine, flawed_engine, sound_engine, Finding};
pub use given::Given;
pub use graphs::{flawed_graphs, graphs, graphs_on, Counts, Features};
pub use named::{named, Kept};
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
