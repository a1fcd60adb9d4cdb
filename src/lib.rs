//! regraph: a CUDA memory allocator for programs that capture CUDA graphs on several streams.
#![deny(missing_docs)]

mod capture;
mod heap;
mod index;

pub mod check;
pub mod driver;
pub mod engine;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod journal;
pub mod policy;
pub mod replay;
pub mod sweep;
pub mod trace;
