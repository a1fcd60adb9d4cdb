//! What memory came to behind each operation.

use super::runner::Runner;
use super::ReplayError;
use regraph::engine::{FreeRange, Refusal};
use regraph_tagged::Program;
use regraph_trace::{Operation, StreamIndex};

/// The memory of all pools behind one operation, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Held from the driver.
    pub reserved: u64,
    /// In blocks that have not been freed, as placed.
    pub allocated: u64,
    /// Free, but not for the stream that asked: what the stream of the latest allocation could not
    /// take then, of the pool that it asked. Behind a capture's end, what no stream may take.
    ///
    /// Never more than `reserved - allocated`; the rest was free for that stream.
    pub waiting: u64,
}

/// Takes a sample behind each operation.
pub(super) struct Sampler<'a> {
    latest: Sample,
    /// Of the capture under way, which may have to be made again.
    held: Vec<Sample>,
    take: &'a mut dyn FnMut(Sample),
}

impl<'a> Sampler<'a> {
    pub(super) fn new(take: &'a mut dyn FnMut(Sample)) -> Self {
        Self { latest: Sample::default(), held: Vec::new(), take }
    }

    /// Drops the samples of the capture under way.
    pub(super) fn forget(&mut self) {
        self.held.clear();
    }
}

impl<P: Program> Runner<'_, P> {
    /// Hands out a sample, if samples are wanted.
    pub(super) fn sample(&mut self, operation: &Operation) -> Result<(), ReplayError> {
        let Some(sampler) = &self.sampler else {
            return Ok(());
        };
        let latest = match *operation {
            Operation::Alloc { stream, .. } => {
                Sample { waiting: self.refused(stream)?, ..self.figures()? }
            }
            Operation::Free { .. } => Sample { waiting: sampler.latest.waiting, ..self.figures()? },
            Operation::End {} => self.figures()?,
            // Nothing else moves memory.
            _ => sampler.latest,
        };
        if let Some(Sampler { latest: last, held, take }) = &mut self.sampler {
            *last = latest;
            held.push(latest);
            if self.capture.is_none() {
                held.drain(..).for_each(take);
            }
        }
        Ok(())
    }

    /// Sums over the pools. What waits is what no stream may take.
    fn figures(&self) -> Result<Sample, ReplayError> {
        let mut sums = Sample::default();
        for pool in self.pools.values() {
            let pool = self.engine.pool_statistics(*pool).map_err(|e| self.engine_failed(e))?;
            sums.reserved += pool.reserved;
            sums.allocated += pool.allocated;
            sums.waiting += pool.active - pool.allocated;
        }
        Ok(sums)
    }

    /// What `stream` may not take of the free ranges of the pool that it asked.
    ///
    /// It has just been looked at for its allocation, so that the engine learns nothing from this
    /// that it would not know without.
    fn refused(&self, stream: StreamIndex) -> Result<u64, ReplayError> {
        let Some(pool) = self.pools.get(&self.pool) else {
            return Ok(0);
        };
        let ranges =
            self.engine.explain(*pool, self.streams[&stream]).map_err(|e| self.engine_failed(e))?;
        let refused = |range: &&FreeRange| {
            // What is mapped ahead, growth takes at once.
            range.refusal.as_ref().is_some_and(|refusal| *refusal != Refusal::Ahead)
        };
        Ok(ranges.iter().filter(refused).map(|range| range.bytes).sum())
    }
}
