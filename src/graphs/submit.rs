//! Work that a program launches where there is a device, and a simulated driver stands in for.

use std::sync::Arc;

use super::Error;
use crate::driver::{AsStream, HostApi};

/// A driver that takes work from programs which run the same with and without a device.
pub trait Submit: HostApi {
    /// Does `work`, which launches something on `stream`. A simulated driver does not call it: in a
    /// capture it records an empty node instead.
    ///
    /// # Errors
    /// What `work` answers; on a simulated driver the driver's.
    fn submit<E: From<Error>>(
        &self,
        stream: &(impl AsStream + ?Sized),
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E>;
}

#[cfg(feature = "cuda")]
impl Submit for crate::driver::cuda::CudaDriver {
    fn submit<E: From<Error>>(
        &self,
        _: &(impl AsStream + ?Sized),
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        work()
    }
}

impl<S: Submit> Submit for Arc<S> {
    fn submit<E: From<Error>>(
        &self,
        stream: &(impl AsStream + ?Sized),
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        (**self).submit(stream, work)
    }
}
