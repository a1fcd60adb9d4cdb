//! What fuzz targets, property tests and Miri share.

mod engine;
mod traces;

pub use engine::{engine, flawed_engine, sound_engine, Finding};
pub use traces::{trace_reader, trace_text};
