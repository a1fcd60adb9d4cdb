//! Random multi-stream captures, and what each reuse policy makes of them.

mod row;
mod workload;

pub use row::{run, Row};
pub use workload::{Sizes, Workload};
