//! Threads on one engine.

mod locks;
mod many;
mod stalls;
