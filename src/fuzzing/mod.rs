//! What fuzz targets, property tests and Miri share.

mod traces;

pub use traces::{trace_reader, trace_text};
