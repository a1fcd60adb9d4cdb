//! The `regraph-lab` command, and the workloads that it runs.
#![allow(clippy::unwrap_used)]

mod command;
mod import;
mod problem;
