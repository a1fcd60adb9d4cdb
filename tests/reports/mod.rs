//! Snapshots, figures, names and errors.

mod figures;
mod names;
mod picture;
mod remedies;
mod snapshot;
mod watched;
