//! A stream that is given back with an error.

use std::sync::Arc;

use ::cudarc::driver::CudaStream;
use thiserror::Error as ThisError;

use crate::Error;

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
