//! The `regraph` command, and the formats that it reads.
#![allow(clippy::unwrap_used)]

mod advice;
mod browser;
mod command;
mod graph;
mod plot;
mod readme;
mod trace_format;
