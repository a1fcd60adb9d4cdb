//! Threads on one engine.

mod locks;
mod stalls;
