//! The `regraph` command, the formats that it reads, and the workloads that it runs.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "command")]
mod command;
mod import;
mod peer;
#[cfg(feature = "command")]
mod plot;
mod trace_format;
mod training;
#[cfg(feature = "command")]
mod training_command;
