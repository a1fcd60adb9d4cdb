//! The parts of the `regraph` command: they run traces, make random captures, and draw what they
//! came to.
#![forbid(unsafe_code)]

mod random;

pub mod advice;
pub mod import;
pub mod peer;
pub mod pickle;
pub mod plot;
pub mod replay;
pub mod sweep;
pub mod training;
