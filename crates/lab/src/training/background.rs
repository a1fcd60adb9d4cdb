//! A device that works while its host submits, some operations behind.

use regraph::driver::{HostApi, Result, StreamHandle};
use regraph_sim::SimDriver;

/// How often work completes, in operations.
const EVERY: usize = 64;

/// Whether older work completes after this operation, counted from 0. Then all completes that was
/// submitted before the last such operation, so the device is one to two such stretches behind.
pub(super) fn is_due(operation: usize) -> bool {
    operation % EVERY == EVERY - 1
}

/// The simulated device's streams, each with one that stands where it stood when work last
/// completed.
pub(super) struct Background {
    pub(super) streams: Vec<StreamHandle>,
    marks: Vec<StreamHandle>,
}

impl Background {
    pub(super) fn new(driver: &SimDriver, streams: usize) -> Result<Self> {
        let create = || (0..streams).map(|_| driver.create_stream()).collect::<Result<_>>();
        Ok(Self { streams: create()?, marks: create()? })
    }

    /// Completes what was submitted before the last call.
    pub(super) fn complete_older(&self, driver: &SimDriver) -> Result<()> {
        for (stream, mark) in self.streams.iter().zip(&self.marks) {
            driver.complete(*mark)?;
            driver.wait(*mark, *stream)?;
        }
        Ok(())
    }
}
