//! Graphs, blocks and captures with owners, so that memory cannot be reused while a graph may use it.
//!
//! [`Engine`](crate::engine::Engine) knows blocks and captures by name; the types here own them:
//!
//! * [`Pool`]: memory that graphs share. Graphs of one pool never run at once, whichever streams they
//!   are launched on: each launch waits for the one before (`order`).
//! * [`Memory`]: a block that is freed when it is dropped.
//! * [`Capture`]: a capture under way. Dropped before its end, it leaves nothing behind.
//! * [`Judging`]: a capture that is over and whose verdict is still to come.
//! * [`Lending`]: work outside captures borrows what a pool's graphs do not keep between launches.
//! * [`Pool::capture_twice`]: two captures, the second one close to the least memory.
//! * [`Graph`]: an executable graph with the [`Lease`] on its memory, which goes to no other work while the graph lives
//!   or runs.
//! * [`Pool::keep_executables`]: graphs of one shape share an executable, within a budget.
//!
//! The page of the [crate] has a program. Every call may fail with the errors of the engine's call behind it and of the
//! driver, and a call that waits for a pool's graphs, or orders work behind them, with [`Error::OrderLost`]. Sections
//! about errors name the others.

mod capture;
mod executables;
mod graph;
mod lease;
mod lending;
mod memory;
mod order;
mod pool;
mod submit;

pub use crate::{Error, PoolRefusal, StreamRefusal, Unknown};
pub use capture::{Capture, Judging};
pub use executables::{ExecutableFigures, ExecutableOptions, Executables, Means, Member};
pub use graph::Graph;
pub use lease::Lease;
pub use lending::Lending;
pub use memory::Memory;
pub(crate) use order::{hold_launches, Event};
pub(crate) use pool::owned;
pub use pool::Pool;
pub use submit::Submit;
