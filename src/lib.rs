//! regraph: a CUDA memory allocator for programs that capture CUDA graphs on several streams.
#![deny(missing_docs)]

pub mod check;
pub mod driver;
pub mod engine;
pub mod journal;
pub mod policy;
pub mod trace;
