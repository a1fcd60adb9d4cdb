//! Errors of the engine.

use thiserror::Error;

use crate::driver::DriverError;

/// What an engine call failed with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A request for nothing.
    #[error("{call}: zero bytes requested; a block has at least one byte")]
    ZeroBytes {
        /// The engine's call.
        call: &'static str,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The checker refuses the capture.
    #[error("the capture is refused: {0}")]
    Refused(Box<dyn std::error::Error + Send + Sync>),
}
