//! What the benches have in common: random captures, and a host that runs them.
//!
//! * [`script`]: what a host does in a capture, drawn ahead of time.
//! * [`host`]: an engine on the simulated driver that does it.
//! * [`meter`]: the time of single calls.
//! * [`sample`]: the time of what runs several times.

pub mod host;
pub mod meter;
pub mod sample;
pub mod script;
