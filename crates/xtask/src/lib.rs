//! The project's own tasks.

mod install;

pub use install::{install, so_version, version_of, Layout};
