//! Random multi-stream captures, and what each reuse policy makes of them.

mod compare;
mod planned;
mod row;
mod shape;
mod workload;

pub use compare::{any_capture, compare, ways};
pub use planned::Planned;
pub use row::{run, Row};
pub use shape::Shape;
pub use workload::{Sizes, Workload};
