//! Errors of the plug-in.

use std::sync::Arc;

use thiserror::Error;

use super::PoolKey;
use regraph::driver::{CaptureId, DriverError};
use regraph::engine::{self, OutOfMemory};

/// What a call of a host failed with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// A device cannot be had, or its driver refused a call.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A device's number is out of range.
    #[error("device {device} is out of range")]
    UnknownDevice {
        /// The number.
        device: u32,
    },
    /// The host has begun no pool of this name, or has let go of it.
    #[error(
        "{call}: there is no pool named ({}, {}); begin to use it first, and keep it until the last of \
         its graphs is gone",
        .key.0, .key.1
    )]
    UnknownPool {
        /// The plug-in's call.
        call: &'static str,
        /// The pool's name.
        key: PoolKey,
    },
    /// Executables of a pool's graphs are to be kept by themselves, and are kept with those of other pools' graphs.
    #[error(
        "keep_executables: {graphs} graphs of pool {key:?} were captured before, and their executables are kept with those \
         of other pools; name the pool before its first capture"
    )]
    KeptWithOthers {
        /// The pool's name.
        key: PoolKey,
        /// How many graphs.
        graphs: usize,
    },
    /// The executables of a pool's graphs are not kept by themselves.
    #[error(
        "{call}: executables of pool {key:?} are not kept by themselves; call keep_executables with the pool before its \
         first capture, or ask for all pools"
    )]
    NotKept {
        /// The plug-in's call.
        call: &'static str,
        /// The pool's name.
        key: PoolKey,
    },
    /// Memory is asked for in a capture that the checker has judged.
    #[error(
        "allocate: capture {} was judged already; have it judged behind the last request in it, just before it \
         ends",
        .capture.0
    )]
    CaptureJudged {
        /// The capture.
        capture: CaptureId,
    },
    /// The graphs of a pool have nothing to lend another process.
    #[error(
        "lend_to_process: pool ({}, {}) lends no {bytes} bytes now: its graphs leave none in one place between their \
         launches (with plan:exact none at all); or a graph of it is being launched or captured, it sleeps, a checkpoint \
         was taken of it, or graphs of it may be launched unseen, which a message says",
        .key.0, .key.1
    )]
    NothingLent {
        /// The pool's name.
        key: PoolKey,
        /// What was asked for.
        bytes: u64,
    },
    /// Nothing that was opened has this name.
    #[error("close_shared: nothing is open under this name; was it closed before?")]
    NotOpen,
    /// No live block begins at an address.
    #[error(
        "{call}: no live block begins at {address:#x}; was it freed before, or never handed out?"
    )]
    UnknownAddress {
        /// The plug-in's call.
        call: &'static str,
        /// The address.
        address: u64,
    },
    /// There is a pool of this name already.
    #[error(
        "{call}: pool {key:?} exists; where its memory comes from, and how much, is said before its first use"
    )]
    PoolExists {
        /// The plug-in's call.
        call: &'static str,
        /// Its name.
        key: PoolKey,
    },
    /// No region is named so.
    #[error("{call}: there is no region {tag:?}; nothing was put into one of that name")]
    UnknownRegion {
        /// The plug-in's call.
        call: &'static str,
        /// The tag.
        tag: String,
    },
    /// A region that is to be forgotten is in use.
    #[error(
        "forget_region: region {tag:?} is in use: {threads} threads are in it, {pools} pools of graphs or of the \
         host's, {blocks} live blocks outside of them, {waiting} freed blocks that work may still use{}; end \
         these first",
        if *.graphs { ", and captures are put into it" } else { "" }
    )]
    RegionInUse {
        /// The region.
        tag: String,
        /// Stays of threads in it that were not ended.
        threads: usize,
        /// Whether pools of captures that threads begin in no region are put into it.
        graphs: bool,
        /// Pools of graphs, and pools that the host has named, on all devices.
        pools: usize,
        /// Live blocks outside these pools.
        blocks: usize,
        /// Freed blocks outside these pools that wait for work.
        waiting: usize,
    },
    /// No thread has entered the region under this number, or it was left.
    #[error("leave_region: no thread is in the region under this number; was it left before?")]
    NotEntered,
    /// A graph is being launched, whose memory must not go.
    #[error("{call}: a graph is being launched; let the launch return first")]
    Launching {
        /// The plug-in's call.
        call: &'static str,
    },
    /// Regions went to sleep before a call failed, and could not be woken again.
    #[error("{error}; regions that sleep now: {}; wake them before they are used", listed(.asleep))]
    SleepsInPart {
        /// The regions, each with its device.
        asleep: Vec<(u32, Arc<str>)>,
        /// What the call failed with.
        #[source]
        error: Box<Error>,
    },
    /// A device has work.
    #[error("try_sleep: device {device} is not idle; call sleep, which waits for it")]
    DeviceRuns {
        /// Its number.
        device: u32,
    },
    /// Requests are sent to a pool that is to be changed.
    #[error("{call}: requests are sent to pool {key:?}; end that first")]
    PoolBegun {
        /// The plug-in's call.
        call: &'static str,
        /// Its name.
        key: PoolKey,
    },
}

impl Error {
    /// What was asked for and what there was, where memory is short.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Self::Engine(error) => error.out_of_memory(),
            _ => None,
        }
    }
}

fn listed(regions: &[(u32, Arc<str>)]) -> String {
    let told = regions.iter().map(|(device, tag)| format!("{tag:?} (device {device})"));
    told.collect::<Vec<_>>().join(", ")
}
