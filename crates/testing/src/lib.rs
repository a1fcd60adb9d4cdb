//! What fuzz targets, property tests and Miri share.
#![allow(clippy::disallowed_types, reason = "locks of one program")]

mod eager;
mod engine;
mod given;
mod lending;
mod many;
mod named;
pub mod paths;
mod readers;
mod traces;

pub use eager::{eager, flawed_eager, Renamed};
pub use engine::{engine, flawed_engine, sound_engine, Finding};
pub use lending::{lending, run_lending};
pub use many::{many_graphs, ManyGraphs, Shape, PAGE};
pub use named::named;
pub use readers::{
    certificate_reader, csv_reader, edited, settings_reader, snapshot_reader, texts,
};
pub use traces::{trace_reader, trace_text};

use regraph::driver::Driver;
use regraph::engine::Engine;

/// All that holds of an engine's tables between calls does.
fn judge_tables<D: Driver>(engine: &Engine<D>) {
    if let Err(what) = engine.verify() {
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
