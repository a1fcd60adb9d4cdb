//! A CUDA memory allocator that proves, inside multi-stream CUDA graph captures, which freed blocks may be used again.
//!
//! ```
//! use std::sync::Arc;
//! use regraph::driver::{CaptureMode, HostApi};
//! use regraph::{Config, Engine, Error, Pool, PoolConfig};
//! use regraph_sim::{Launch, SimConfig, SimDriver}; // on a GPU: regraph::cudarc::engine
//!
//! # fn main() -> Result<(), Error> {
//! let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
//! let pool = Pool::new(&engine, PoolConfig::default());
//! let stream = engine.driver().create_stream()?;
//! let (graph, output) = engine.capture(&stream, &pool, CaptureMode::ThreadLocal, |capture| {
//!     let temporary = capture.allocate(8 << 20, &stream)?;
//!     engine.driver().launch_kernel(stream, Launch::default())?; // writes it
//!     let output = capture.allocate(1 << 20, &stream)?;
//!     engine.driver().launch_kernel(stream, Launch::default())?; // reads it, writes the output
//!     drop(temporary); // free for work that is proven to come after its last use
//!     Ok::<_, Error>(output)
//! })?;
//! graph.launch(&stream)?;
//! # drop(output);
//! # Ok(())
//! # }
//! ```
//!
//! * [`Engine`] hands out blocks by name, on any driver; [`Pool`], [`Capture`], [`Graph`] and [`Memory`] own them
//!   ([`graphs`]). All calls fail with one type, [`Error`]. Calls for hosts that launch graphs by themselves are behind
//!   [`Engine::host`], layouts behind [`Engine::plans`], memory of other processes behind [`Engine::sharing`].
//! * `cudarc` (feature `cudarc`): typed buffers (`Buf`) for programs written with that crate.
//! * [`callables`]: functions over static inputs that run as graphs, one for each shape.
//! * [`devices`]: the engines of several devices in one process.
//! * [`plan`]: bounds for captures that get the least memory at their end.
//! * [`reports`]: the parts of capture reports and refusals: late uses, lifetimes, violations.
//! * [`regions`]: memory by tag that sleeps and wakes: it goes back to the driver, and comes again at the same
//!   addresses with its contents.
//! * [`settings`]: the allocator's settings, as one line of text and from the environment.
//! * [`snapshot`]: memory and events as files that PyTorch's viewer opens.
//! * [`driver`]: what the engine asks of a GPU. `CudaDriver` (feature `cuda`) is one implementation;
//!   the crate `regraph-sim` is another, for tests without a GPU.
//!
//! *Where did the memory go?* [`Engine::statistics`] and [`Engine::pools`] say how much is held, [`Engine::snapshot`]
//! what each block is and what freed memory waits for, [`Engine::explain`] why a stream cannot have a free range,
//! [`Graph::minimum_bytes`] the least that a capture needs, [`Error::out_of_memory`] what a failed request met, and
//! [`Metrics`] tells Prometheus.
//!
//! Features: `cudarc` (the default, with `cuda`), `cuda` (real GPUs), `stacks` (stack frames of Rust and C callers in
//! reports), `processes` (memory of other processes, on Linux), `pickle` (snapshots as every version of PyTorch's
//! viewer opens them).
//!
//! The folder `design` of the repository explains why the allocator is safe and how it works.
#![deny(missing_docs)]

#[cfg(all(doctest, feature = "cudarc"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// What others read of a type: fields that its file alone changes.
macro_rules! read {
    ($($field:ident: $kind:ty),*) => {$(
        #[inline]
        pub(crate) fn $field(&self) -> $kind {
            self.$field
        }
    )*};
}

mod error;
mod heap;
mod logging;
mod metrics;
mod processes;
mod shown;
mod size;

pub mod callables;
#[cfg(feature = "cudarc")]
pub mod cudarc;
pub mod devices;
pub mod engine;
pub mod graphs;
pub mod regions;
pub mod settings;
pub mod snapshot;
#[doc(hidden)]
pub mod sync;

#[doc(inline)]
pub use regraph_driver as driver;
#[doc(hidden)]
pub use regraph_driver::{forward, forward_driver, forward_host_api, forward_transfer};
#[doc(inline)]
pub use regraph_plan::plan;

/// The parts of a [`CaptureReport`] and of a refusal ([`Violation`]).
pub mod reports {
    #[doc(inline)]
    pub use regraph_check::uses::{EarlyRead, Filled, LateUse, Marker, MOST};
    #[doc(inline)]
    pub use regraph_check::{Common, Flaw, Misplaced, NamedNode, Place, Violation};
    #[doc(inline)]
    pub use regraph_plan::lifetimes::{Lifetime, Lifetimes};
    #[doc(inline)]
    pub use regraph_plan::minimum::Minimum;
}

use regraph_check::{self as check, uses};
use regraph_plan::{layout, lifetimes, minimum};
use regraph_reach as capture;
use regraph_record::{index, journal, policy, recent};

pub use check::Violation;
pub use engine::{
    Block, BlockId, CaptureReport, Config, Engine, GraphId, OutOfMemory, PoolConfig, PoolId,
    Statistics,
};
pub use error::{
    BackupRefusal, CheckpointRefusal, Error, PoolRefusal, SharingRefusal, StreamRefusal, Unknown,
};
pub use graphs::{Capture, Graph, Memory, Pool};
pub use journal::{BlockNumber, Journal};
pub use layout::Layout;
pub use logging::log_to_stderr;
#[doc(hidden)]
pub use logging::{set_level_from_environment, write_to_stderr, LOG};
#[doc(hidden)]
pub use logging::{tell, tell_later, Later, Level};
pub use metrics::{Metric, MetricKind, Metrics};
pub use minimum::Minimum;
pub use settings::Settings;
#[doc(hidden)]
pub use size::Size;
pub use uses::LateUse;
