//! The project's own tasks.

mod install;
pub mod mutants;

pub use install::{install, so_version, version_of, Layout};
