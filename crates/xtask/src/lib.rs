//! The project's own tasks.
#![forbid(unsafe_code)]

mod install;
#[cfg(feature = "source")]
pub mod mutants;

pub use install::{install, so_version, version_of, Layout};
