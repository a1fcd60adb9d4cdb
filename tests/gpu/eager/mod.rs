//! The engine outside captures, and beside them, on a real GPU.
//!
//! ```text
//! cargo test --release --test gpu eager:: -- --ignored
//! ```
//!
//! Every test has a twin on the simulated driver, where work is run in a random order that is free
//! in every way in which streams leave it free; that one runs without `--ignored`.
//!
//! * [`random`]: random programs of eager work, loans, sleep, graphs, plans and executables;
//! * [`threads`]: threads that share an engine, one of which captures;
//! * [`giving_back`]: memory that goes back to the device under a running kernel;
//! * [`limits`]: limits as the device sees them;
//! * [`captures`]: calls of the engine beside captures of other threads and of its own.

mod captures;
mod giving_back;
mod limits;
mod random;
mod threads;

use crate::device::{launch, tagged, Device};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
