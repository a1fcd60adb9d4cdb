//! regraph: a CUDA memory allocator for programs that capture CUDA graphs on several streams.
#![deny(missing_docs)]

mod capture;
pub mod check;
pub mod driver;
pub mod engine;
mod heap;
mod index;
pub mod journal;
pub mod policy;
pub mod trace;
