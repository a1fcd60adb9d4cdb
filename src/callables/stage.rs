//! Where a part of a callable runs.

use std::fmt;

use crate::driver::{HostApi, StreamHandle};
use crate::graphs::{Capture, Error, Memory, Pool};

/// What a part works in: once or more to warm up, outside captures, and once to be captured.
///
/// Its blocks come from [`Stage::pool`]: while warming up that is a pool of its own, which is gone
/// before the capture, so that graphs share theirs with nothing else. Typed buffers (`regraph::cudarc`)
/// are made by the pool too, for a stream that the program holds.
pub struct Stage<'a, D: HostApi> {
    pool: &'a Pool<D>,
    stream: StreamHandle,
    capture: Option<&'a Capture<D>>,
}

impl<'a, D: HostApi> Stage<'a, D> {
    pub(super) fn new(
        pool: &'a Pool<D>,
        stream: StreamHandle,
        capture: Option<&'a Capture<D>>,
    ) -> Self {
        Self { pool, stream, capture }
    }

    /// The stream to work on, or to fork others from and join them to.
    pub fn stream(&self) -> StreamHandle {
        self.stream
    }

    /// Where blocks come from.
    pub fn pool(&self) -> &'a Pool<D> {
        self.pool
    }

    /// The capture; `None` while warming up, and while static inputs are made.
    pub fn capture(&self) -> Option<&'a Capture<D>> {
        self.capture
    }

    /// A block for the stage's stream.
    ///
    /// # Errors
    /// The engine's.
    pub fn allocate(&self, bytes: u64) -> Result<Memory<D>, Error> {
        self.pool.allocate(bytes, self.stream)
    }
}

impl<D: HostApi> fmt::Debug for Stage<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("pool", &self.pool)
            .field("stream", &self.stream)
            .field("captures", &self.capture.is_some())
            .finish()
    }
}
