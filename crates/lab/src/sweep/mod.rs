//! Random multi-stream captures, and what each reuse policy makes of them.

mod planned;
mod row;
mod shape;
mod workload;

pub use planned::Planned;
pub use row::{run, Row};
pub use shape::Shape;
pub use workload::{Sizes, Workload};
