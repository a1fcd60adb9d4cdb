//! The project's own tasks.
#![forbid(unsafe_code)]

mod install;
pub mod mutants;

pub use install::{install, so_version, version_of, Layout};
