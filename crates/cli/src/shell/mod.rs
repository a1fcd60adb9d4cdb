//! What the command and the project's own `regraph-lab` share: drivers, failures with their exit statuses, files, progress.

pub mod drivers;
pub mod failure;
pub mod load;
pub mod progress;
pub mod write;
