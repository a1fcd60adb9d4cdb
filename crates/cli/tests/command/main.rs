//! The `regraph` command, the formats that it reads, and the workloads that it runs.
#![allow(clippy::unwrap_used)]

mod advice;
mod browser;
mod command;
mod graph;
mod import;
mod peer;
mod plot;
mod readme;
mod trace_format;
mod training;
mod training_command;
