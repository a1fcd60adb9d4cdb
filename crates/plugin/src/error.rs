//! Errors of the plug-in.

use thiserror::Error;

use super::PoolKey;
use regraph::driver::DriverError;
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
    /// A pool has its memory from elsewhere already.
    #[error(
        "create_or_incref_pool: pool {key:?} exists; where its memory comes from cannot be changed"
    )]
    PoolExists {
        /// Its name.
        key: PoolKey,
    },
    /// Requests are sent to a pool that is to be changed.
    #[error("set_no_split: requests are sent to pool {key:?}; end that first")]
    PoolBegun {
        /// Its name.
        key: PoolKey,
    },
}

impl Error {
    /// What was asked for and what there was, where memory is short.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Self::Engine(engine::Error::OutOfMemory(report)) => Some(report),
            _ => None,
        }
    }
}
