//! Typed buffers for programs written with the crate `cudarc`.
//!
//! * [`engine`]: an engine on the device of one of cudarc's contexts.
//! * [`Buf`], [`BufView`], [`BufViewMut`]: device memory that cudarc's kernel launcher, copies and cuBLAS accept
//!   wherever they accept a `CudaSlice` or a view of one. They are made by methods of [`Pool`](crate::graphs::Pool),
//!   [`Capture`](crate::graphs::Capture) and [`Lending`](crate::graphs::Lending) that have cudarc's names: `alloc`,
//!   `alloc_zeros`, `clone_dtod`, and `clone_htod` outside captures.
//! * [`capture`] and [`untracked`]: captures beside cudarc's own event tracking. Other ways to capture
//!   ([`Engine::capture`], [`callables`](crate::callables)) do not check for the guard: hold it there too if the
//!   capture uses a `CudaSlice`.
//! * [`retire_stream`]: destroys a stream that the engine knows.
//!
//! A kernel's launcher tells its stream to cudarc's own slices alone, so this module reads the stream from the
//! launcher's `Debug` text. With a version of cudarc that has another text, buffers that are kernel arguments are never
//! freed, a warning is logged once, and [`Statistics::lost_bytes`](crate::Statistics::lost_bytes) counts them.
//! [`Buf::on`] does not need the text. The README has a whole program, [`Buf`] the calls of one.

mod buf;
mod create;
mod launched_on;
mod owner;
mod tracking;

use std::sync::Arc;

use ::cudarc::driver::{CudaContext, CudaStream};
use thiserror::Error as ThisError;

use crate::driver::cuda::CudaDriver;
use crate::driver::AsStream;
use crate::engine::{Config, Engine};

/// The crate that buffers and streams are of. A program that depends on another version of it has other types; one that
/// names it by this path always has the right one.
#[doc(no_inline)]
pub use ::cudarc;

pub use crate::{Error, PoolRefusal, StreamRefusal, Unknown};
pub use buf::{Buf, BufView, BufViewMut};
pub use tracking::{capture, untracked, Untracked};

/// An engine on the device of a context that the program already has.
///
/// # Safety
/// The promises of [`CudaDriver::new`]. The types of this module and of [`graphs`](crate::graphs) keep all but one: all
/// memory that copies and kernels of a graph use must outlive the graph's launches.
///
/// # Errors
/// The driver's: where the driver is older than CUDA 12.3, for instance.
pub unsafe fn engine(
    context: &Arc<CudaContext>,
    config: Config,
) -> Result<Arc<Engine<CudaDriver>>, Error> {
    // SAFETY: as the caller's.
    let driver = unsafe { CudaDriver::from_context(context.clone()) }?;
    Ok(Arc::new(Engine::new(driver, config)))
}

/// Retires a stream ([`Engine::retire_stream`]) and destroys it.
///
/// An engine keeps every stream on which buffers were allocated, since it knows their memory by the stream's handle. A
/// program that makes new streams all the time should retire the old ones.
///
/// # Errors
/// [`StreamRefusal::Held`] where the stream has another owner, as a context's default stream has, which is never
/// destroyed; those of [`Engine::retire_stream`]. The stream is returned with the error.
pub fn retire_stream(
    engine: &Engine<CudaDriver>,
    stream: Arc<CudaStream>,
) -> Result<(), NotRetired> {
    let handle = stream.as_stream();
    let held = |stream| {
        let why = StreamRefusal::Held;
        NotRetired { stream, error: Error::Stream { call: "retire_stream", stream: handle, why } }
    };
    if handle.is_default() {
        return Err(held(stream));
    }
    engine.driver().release_stream(handle);
    let refused = match Arc::try_unwrap(stream) {
        // This is its last owner, so nothing is launched on it after the engine has forgotten it.
        Ok(stream) => match engine.retire_stream(handle) {
            Ok(()) => return Ok(()),
            Err(error) => NotRetired { stream: Arc::new(stream), error },
        },
        Err(stream) => held(stream),
    };
    engine.driver().keep_stream(&refused.stream);
    Err(refused)
}

/// A stream that could not be retired. Nothing has changed.
#[derive(Debug, ThisError)]
#[error("{error}")]
pub struct NotRetired {
    /// The stream.
    pub stream: Arc<CudaStream>,
    /// Why.
    #[source]
    pub error: Error,
}

impl From<NotRetired> for Error {
    fn from(refused: NotRetired) -> Self {
        refused.error
    }
}
