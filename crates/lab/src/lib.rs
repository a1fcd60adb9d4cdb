//! What the project's figures and tests are made with, and no user needs: random captures, training-like workloads, a
//! model of PyTorch's allocator, and problems of other planners as traces.
#![forbid(unsafe_code)]

mod random;

pub mod import;
pub mod peer;
pub mod sweep;
pub mod training;
