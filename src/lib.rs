//! regraph: a CUDA memory allocator for programs that capture CUDA graphs on several streams.
//!
//! * [`engine`]: the public face: pools, blocks, captures.
//! * [`graphs`]: graphs that own their memory, pools that graphs share, blocks that free themselves.
//! * [`callables`]: functions over static inputs that run as graphs, one for each shape.
//! * [`probe`]: how much memory a capture will take, without a device.
//! * `cudarc` (feature `cudarc`): typed buffers for programs written with that crate.
//! * [`devices`]: the engines of several devices in one process.
//! * [`plan`]: physical memory for a capture at its end, shared to the minimum.
//! * [`plugin`]: an allocator for hosts that know memory by its address, as PyTorch's does.
//! * [`driver`]: what the engine asks of a GPU, for CUDA and simulated.
//! * [`policy`]: what programmatic edges prove, who may take a free block, when captures get memory.
//! * [`settings`]: the allocator's settings, as one line of text and from the environment.
//! * [`lifetimes`]: when blocks of a capture were in use; [`cover`]: the least memory for them;
//!   [`layout`]: a place for each of them.
//! * [`minimum`]: the least memory that a capture needs; [`certify`]: the check that it is so.
//! * [`journal`]: the record of one capture; [`check`] judges it.
//! * [`uses`]: finds uses of a block later than was recorded.
//! * [`snapshot`]: memory and events as files that PyTorch's viewer opens.
//! * [`trace`]: captures as files; [`replay`] runs them; [`sweep`] makes random ones; `plot` draws
//!   what they came to.
//! * [`import`]: problems of other programs as traces.
//! * [`training`]: a training-like workload outside captures; [`peer`]: what PyTorch's allocator
//!   would reserve for it.
//!
//! The folder `design` of the repository explains why it is safe and how it works.
#![deny(missing_docs)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod capture;
mod check;
mod cover;
mod error;
mod heap;
mod index;
mod journal;
mod layout;
mod lifetimes;
mod logging;
mod minimum;
mod policy;
mod recent;
mod uses;

pub mod callables;
#[cfg(feature = "cudarc")]
pub mod cudarc;
pub mod devices;
pub mod driver;
pub mod engine;
pub mod graphs;
pub mod plan;
pub mod settings;
pub mod snapshot;
#[doc(hidden)]
pub mod sync;

/// What the workspace's own tools and tests look at. No part of the interface: anything here may
/// change in any release.
#[doc(hidden)]
pub mod internals {
    pub use crate::capture::{Capture, NodeIndex, StreamIndex, Token};

    /// The record of one capture.
    pub mod journal {
        pub use crate::journal::*;
    }
    /// The checker.
    pub mod check {
        pub use crate::check::*;
    }
    /// When blocks were in use.
    pub mod lifetimes {
        pub use crate::lifetimes::*;
    }
    /// The least memory for lifetimes.
    pub mod cover {
        pub use crate::cover::*;
    }
    /// The least memory of a capture.
    pub mod minimum {
        pub use crate::minimum::*;
    }
    /// A place for each block.
    pub mod layout {
        pub use crate::layout::*;
    }
    /// Uses later than was recorded.
    pub mod uses {
        pub use crate::uses::*;
    }
}

pub use check::Violation;
pub use engine::{
    Block, BlockId, CaptureReport, Config, Engine, GraphId, OutOfMemory, PoolConfig, PoolId,
    Statistics,
};
pub use error::Error;
pub use graphs::{Capture, Graph, Memory, Pool};
pub use journal::{BlockNumber, Journal};
pub use layout::Layout;
pub use logging::log_to_stderr;
pub use minimum::Minimum;
pub use settings::Settings;
pub use uses::LateUse;
