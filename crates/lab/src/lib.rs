//! What the project's figures and tests are made with, and no user needs: random captures, training-like workloads, a
//! model of PyTorch's allocator, problems of other planners as traces, and captures as problems for other planners.
#![forbid(unsafe_code)]

mod random;

pub mod import;
pub mod peer;
pub mod problem;
pub mod sweep;
pub mod training;
