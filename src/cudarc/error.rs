//! Errors of buffers.

use std::sync::Arc;

use ::cudarc::driver::CudaStream;
use thiserror::Error as ThisError;

use crate::driver::StreamHandle;
use crate::graphs;

/// What a call about buffers failed with. Nothing has changed then.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The engine, a graph or the driver below them refused.
    #[error(transparent)]
    Graphs(#[from] graphs::Error),
    /// cudarc's own call failed.
    #[error(transparent)]
    Cudarc(#[from] ::cudarc::driver::DriverError),
    /// The length in bytes is beyond what an address can hold.
    #[error("{call}: {len} elements of {size} bytes are more than there are addresses")]
    TooLong {
        /// The call.
        call: &'static str,
        /// Elements.
        len: usize,
        /// The size of one, in bytes.
        size: usize,
    },
    /// The stream belongs to another context than the engine.
    #[error(
        "{call}: {stream:?} belongs to another context than the engine; give a stream of the context \
         that the engine was made with"
    )]
    ForeignContext {
        /// The call.
        call: &'static str,
        /// The stream.
        stream: StreamHandle,
    },
    /// A copy from the host's memory would be captured as a pointer to that memory.
    #[error(
        "clone_htod: {stream:?} is capturing, and every launch of the graph would read the host's \
         memory again, which may be gone by then; copy before the capture begins"
    )]
    Capturing {
        /// The stream.
        stream: StreamHandle,
    },
    /// The stream is still in use by its owners.
    #[error(
        "retire_stream: {stream:?} has other owners, such as buffers that were allocated on it; drop \
         them first"
    )]
    StreamHeld {
        /// The stream.
        stream: StreamHandle,
    },
    /// cudarc orders its own slices by events at present.
    #[error(
        "capture: cudarc tracks the events of its slices, and one that was recorded before the \
         capture ruins it when a slice is used inside; hold the guard of `untracked` meanwhile"
    )]
    Tracking,
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
