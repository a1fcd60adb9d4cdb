//! What fuzz targets, property tests and Miri share.

mod eager;
mod engine;
mod traces;

pub use eager::{eager, flawed_eager, Renamed};
pub use engine::{engine, flawed_engine, sound_engine, Finding};
pub use traces::{trace_reader, trace_text};
