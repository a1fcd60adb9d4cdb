//! The public face: pools, blocks, captures.

mod config;
mod error;
mod report;

pub use config::{Config, PoolConfig};
pub use error::Error;
pub use report::{Block, BlockId, CaptureReport, GraphId, PoolId, PoolStatistics};

use crate::driver::{CaptureId, Driver, GraphHandle, StreamHandle};
use crate::journal::Journal;

/// An allocator on one device. Thread-safe.
pub struct Engine<D: Driver> {
    driver: D,
}

impl<D: Driver> Engine<D> {
    /// An engine on a driver.
    pub fn new(driver: D, _config: Config) -> Self {
        Self { driver }
    }

    /// The driver that the engine was made on.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Creates an empty pool.
    pub fn create_pool(&self, _config: PoolConfig) -> Result<PoolId, Error> {
        todo!()
    }

    /// Gives all memory of a pool back to the driver. Refused while a block of it is live, a
    /// capture into it is under way or a graph of it exists.
    pub fn destroy_pool(&self, _pool: PoolId) -> Result<(), Error> {
        todo!()
    }

    /// Tells the engine that `stream` has begun to capture and that the capture uses `pool`.
    /// Optional: the first allocation on a stream that captures does the same.
    pub fn begin_capture(&self, _pool: PoolId, _stream: StreamHandle) -> Result<CaptureId, Error> {
        todo!()
    }

    /// Ends a capture: the checker judges it on `graph`, the handle under capture or the one that
    /// ending it gave. On success its pending memory returns to the pool and the pool belongs to
    /// one more graph. On refusal the capture is rolled back and the graph must not be launched.
    pub fn end_capture(
        &self,
        _capture: CaptureId,
        _graph: GraphHandle,
    ) -> Result<CaptureReport, Error> {
        todo!()
    }

    /// Rolls back every decision taken in a capture whose graph will never run.
    pub fn abandon_capture(&self, _capture: CaptureId) -> Result<(), Error> {
        todo!()
    }

    /// Tells the engine that a graph is destroyed and no launch of it is running.
    pub fn release_graph(&self, _graph: GraphId) -> Result<(), Error> {
        todo!()
    }

    /// Hands out a block of at least `bytes` to `stream`.
    pub fn allocate(
        &self,
        _pool: PoolId,
        _bytes: u64,
        _stream: StreamHandle,
    ) -> Result<Block, Error> {
        todo!()
    }

    /// Says that `stream` uses the block at some time before its free.
    pub fn record_stream(&self, _block: BlockId, _stream: StreamHandle) -> Result<(), Error> {
        todo!()
    }

    /// Says that what `stream` holds so far includes its last use of the block.
    pub fn record_use(&self, _block: BlockId, _stream: StreamHandle) -> Result<(), Error> {
        todo!()
    }

    /// Frees a block.
    pub fn free(&self, _block: BlockId) -> Result<(), Error> {
        todo!()
    }

    /// Figures of a pool.
    pub fn pool_statistics(&self, _pool: PoolId) -> Result<PoolStatistics, Error> {
        todo!()
    }

    /// A copy of the record of a capture that is under way.
    pub fn journal(&self, _capture: CaptureId) -> Result<Journal, Error> {
        todo!()
    }
}
