//! What the project's figures and tests are made with, and no user needs: random captures, problems of
//! other planners as traces, and captures as problems for other planners.
#![forbid(unsafe_code)]

mod random;

pub mod import;
pub mod problem;
pub mod sweep;
