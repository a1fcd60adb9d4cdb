//! Submits work and records which blocks it uses; on a simulated driver it records a kernel instead.

use std::sync::Arc;

use super::{Capture, Error, Memory, Pool};
use crate::driver::{AsStream, HostApi};

/// A driver to which a program submits the same work with and without a device.
pub trait Submit: HostApi {
    /// Does `work`, which launches something on `stream` that uses the device memory in `ranges`,
    /// each an address and a length in bytes. A simulated driver does not call it: in a capture it
    /// records a kernel with these ranges instead.
    ///
    /// # Errors
    /// Those of `work`; on a simulated driver the driver's.
    fn submit<E: From<Error>>(
        &self,
        stream: impl AsStream,
        ranges: &[(u64, u64)],
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E>;
}

#[cfg(feature = "cuda")]
impl Submit for crate::driver::cuda::CudaDriver {
    fn submit<E: From<Error>>(
        &self,
        _: impl AsStream,
        _: &[(u64, u64)],
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        work()
    }
}

impl<S: Submit> Submit for Arc<S> {
    fn submit<E: From<Error>>(
        &self,
        stream: impl AsStream,
        ranges: &[(u64, u64)],
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        (**self).submit(stream, ranges, work)
    }
}

impl<D: Submit> Pool<D> {
    /// Does `work`, which launches something on `stream` that uses `blocks`, and records these uses. A block all of
    /// whose uses are submitted this way needs no [`Memory::record_stream`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use regraph::driver::HostApi;
    /// # use regraph::{Config, Engine, Error, Pool, PoolConfig};
    /// # use regraph_sim::{SimConfig, SimDriver};
    /// # fn main() -> Result<(), Error> {
    /// # let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    /// # let pool = Pool::new(&engine, PoolConfig::default());
    /// let (a, b) = (engine.driver().create_stream()?, engine.driver().create_stream()?);
    /// let block = pool.allocate(1 << 20, a)?;
    /// pool.submit(a, [&block], || Ok::<_, Error>(()))?; // launches a kernel that writes the block
    /// engine.driver().wait(b, a)?;
    /// pool.submit(b, [&block], || Ok::<_, Error>(()))?; // and one that reads it: `b` is recorded
    /// drop(block);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Memory::record_stream`], before `work` is called; those of `work`.
    pub fn submit<'a, E: From<Error>>(
        &self,
        stream: impl AsStream,
        blocks: impl IntoIterator<Item = &'a Memory<D>>,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        submit(self.engine().driver(), stream, blocks, work)
    }
}

impl<D: Submit> Capture<D> {
    /// Does `work`, which launches something that uses `blocks` on `stream`, a stream of the capture, and records these
    /// uses as [`Pool::submit`] does.
    ///
    /// # Errors
    /// Those of [`Pool::submit`].
    pub fn submit<'a, E: From<Error>>(
        &self,
        stream: impl AsStream,
        blocks: impl IntoIterator<Item = &'a Memory<D>>,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        submit(self.engine().driver(), stream, blocks, work)
    }
}

fn submit<'a, D: Submit, E: From<Error>>(
    driver: &D,
    stream: impl AsStream,
    blocks: impl IntoIterator<Item = &'a Memory<D>>,
    work: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let stream = stream.as_stream();
    let mut ranges = Vec::new();
    for block in blocks {
        block.record_stream(stream)?;
        ranges.push((block.address(), block.bytes()));
    }
    driver.submit(stream, &ranges, work)
}
