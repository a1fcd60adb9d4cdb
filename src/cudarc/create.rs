//! How buffers are made: by pools, by captures from their first pool, and by what borrows from a pool's graphs.

use std::sync::Arc;

use ::cudarc::driver::{CudaStream, DevicePtr, DeviceRepr, DriverError, ValidAsZeroBits};

use super::buf::Buf;
use super::owner::BlockOwner;
use super::{Error, StreamRefusal};
use crate::driver::cuda::CudaDriver;
use crate::driver::{AsStream, Driver, ErrorKind};
use crate::engine::{one_stream, Engine};
use crate::graphs::{Capture, Lending, Memory, Pool};

/// Where memory comes from.
trait Source {
    fn engine_of(&self) -> Arc<Engine<CudaDriver>>;

    fn memory(&self, bytes: u64, stream: &CudaStream) -> Result<Memory<CudaDriver>, Error>;
}

impl Source for Pool<CudaDriver> {
    fn engine_of(&self) -> Arc<Engine<CudaDriver>> {
        self.engine().clone()
    }

    fn memory(&self, bytes: u64, stream: &CudaStream) -> Result<Memory<CudaDriver>, Error> {
        self.allocate(bytes, stream)
    }
}

impl Source for Capture<CudaDriver> {
    fn engine_of(&self) -> Arc<Engine<CudaDriver>> {
        self.engine()
    }

    fn memory(&self, bytes: u64, stream: &CudaStream) -> Result<Memory<CudaDriver>, Error> {
        self.allocate(bytes, stream)
    }
}

impl Source for Lending<CudaDriver> {
    fn engine_of(&self) -> Arc<Engine<CudaDriver>> {
        self.pool().engine().clone()
    }

    fn memory(&self, bytes: u64, stream: &CudaStream) -> Result<Memory<CudaDriver>, Error> {
        // The lending's stream comes after the launches of the pool, and no other.
        let (stream, borrows) = (one_stream(stream.as_stream(), "alloc")?, self.stream());
        if stream != borrows {
            return Err(Error::OtherStream { call: "alloc", stream, borrows });
        }
        self.allocate(bytes)
    }
}

/// A buffer, filled by `fill` if it has bytes.
fn alloc<T>(
    source: &impl Source,
    stream: &Arc<CudaStream>,
    len: usize,
    call: &'static str,
    fill: impl FnOnce(&mut Buf<T>) -> Result<(), DriverError>,
) -> Result<Buf<T>, Error> {
    let size = size_of::<T>();
    let bytes = len.checked_mul(size).filter(|&bytes| isize::try_from(bytes).is_ok());
    let bytes = bytes.ok_or(Error::TooLong { call, len, size })?;
    let engine = source.engine_of();
    if stream.context() != engine.driver().context() {
        let why = StreamRefusal::Foreign;
        return Err(Error::Stream { call, stream: stream.as_stream(), why });
    }
    engine.driver().keep_stream(stream);
    let memory = if bytes == 0 { None } else { Some(source.memory(bytes as u64, stream)?) };
    let mut buf = Buf::new(BlockOwner::new(memory, stream.clone()), len);
    if bytes > 0 {
        fill(&mut buf)?;
    }
    Ok(buf)
}

/// Refuses a stream that captures: a graph would copy from the host's memory at every launch.
fn must_not_capture(source: &impl Source, stream: &CudaStream) -> Result<(), Error> {
    let stream = stream.as_stream();
    match source.engine_of().driver().is_capturing(stream) {
        Ok(false) => Ok(()),
        // The legacy stream while some blocking stream captures: it does not capture itself.
        Err(error) if error.kind == ErrorKind::CaptureImplicit => Ok(()),
        Ok(true) => {
            let why = StreamRefusal::CopyWhileCapturing;
            Err(Error::Stream { call: "clone_htod", stream, why })
        }
        Err(error) => Err(error.into()),
    }
}

macro_rules! constructors {
    ($($source:ty),*) => {$(
        impl $source {
            /// A buffer of `len` elements, uninitialised, for `stream` to use from now on.
            ///
            /// # Safety
            /// The memory may hold no valid value of `T`: it must be written before it is read.
            ///
            /// # Errors
            /// The engine's; [`Error::TooLong`], [`StreamRefusal::Foreign`]; [`Error::OtherStream`] where a `Lending`
            /// makes the buffer for another stream than its own.
            pub unsafe fn alloc<T: DeviceRepr>(
                &self,
                stream: &Arc<CudaStream>,
                len: usize,
            ) -> Result<Buf<T>, Error> {
                alloc(self, stream, len, "alloc", |_| Ok(()))
            }

            /// A buffer of `len` elements that is set to zero on `stream`. In a capture, each launch of the graph sets
            /// it to zero.
            ///
            /// # Errors
            /// The engine's, cudarc's; [`Error::TooLong`], [`StreamRefusal::Foreign`]; [`Error::OtherStream`] where a
            /// `Lending` makes the buffer for another stream than its own.
            pub fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(
                &self,
                stream: &Arc<CudaStream>,
                len: usize,
            ) -> Result<Buf<T>, Error> {
                alloc(self, stream, len, "alloc_zeros", |buf| stream.memset_zeros(buf))
            }

            /// A buffer with a copy, made on `stream`, of what a `CudaSlice`, a view or another buffer holds. In a
            /// capture, each launch of the graph copies. The slice's own memory stays cudarc's.
            ///
            /// # Errors
            /// The engine's, cudarc's; [`Error::TooLong`], [`StreamRefusal::Foreign`]; [`Error::OtherStream`] where a
            /// `Lending` makes the buffer for another stream than its own.
            pub fn clone_dtod<T: DeviceRepr>(
                &self,
                stream: &Arc<CudaStream>,
                values: &impl DevicePtr<T>,
            ) -> Result<Buf<T>, Error> {
                alloc(self, stream, values.len(), "clone_dtod", |buf| stream.memcpy_dtod(values, buf))
            }
        }
    )*};
}

constructors!(Pool<CudaDriver>, Capture<CudaDriver>, Lending<CudaDriver>);

macro_rules! copies {
    ($($source:ty),*) => {$(
        impl $source {
            /// A buffer with a copy of the host's values, made on `stream`, which must not capture: a graph would copy
            /// from the host's memory at every launch. Copy a capture's constants before it begins, and keep them as
            /// long as the graph ([`Capture::keep`]).
            ///
            /// # Errors
            /// The engine's, cudarc's; [`StreamRefusal::CopyWhileCapturing`], [`Error::TooLong`],
            /// [`StreamRefusal::Foreign`], [`Error::OtherStream`].
            pub fn clone_htod<T: DeviceRepr>(
                &self,
                stream: &Arc<CudaStream>,
                values: &[T],
            ) -> Result<Buf<T>, Error> {
                must_not_capture(self, stream)?;
                alloc(self, stream, values.len(), "clone_htod", |buf| stream.memcpy_htod(values, buf))
            }
        }
    )*};
}

copies!(Pool<CudaDriver>, Lending<CudaDriver>);
