//! What the command and the project's own `regraph-lab` share: drivers, failures with their exit statuses, progress.

pub mod drivers;
pub mod failure;
pub mod progress;
