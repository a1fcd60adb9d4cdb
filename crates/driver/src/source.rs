//! Memory of the host's own.

use std::fmt;

use super::{Result, StreamHandle};

/// Where a pool's memory comes from instead of the driver (`regraph::PoolConfig::source`).
///
/// Both calls come with the engine's lock held: they may not call the engine, and wait for no thread that
/// may be in a call of it. Where something captures, they run while it does, and must not invalidate it.
pub trait Source: fmt::Debug + Send + Sync {
    /// Gets memory that all streams of the device may use from now on. It is the pool's alone until it is
    /// freed. Its address must be a multiple of 512; what has another one is given back and refused.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](super::ErrorKind::OutOfMemory) where there is none: the engine gives back
    /// what it can and asks again.
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<u64>;

    /// Takes memory back that no work uses any more.
    ///
    /// # Errors
    /// The pool keeps the memory then and gives it back later.
    fn free(&self, address: u64, bytes: u64) -> Result<()>;
}
