//! What a replay fails with.

use thiserror::Error;

use regraph::driver::DriverError;
use regraph::engine;
use regraph::Violation;
use regraph_trace::BlockIndex;

/// What a replay failed with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The engine failed, or its checker refused a capture.
    #[error("operation {operation} (`{name}`): {source}")]
    Engine {
        /// The operation, counted from 1.
        operation: usize,
        /// Its name.
        name: &'static str,
        /// The failure.
        source: engine::Error,
    },
    /// The driver failed.
    #[error("operation {operation} (`{name}`): {source}")]
    Driver {
        /// The operation, counted from 1.
        operation: usize,
        /// Its name.
        name: &'static str,
        /// The failure.
        source: DriverError,
    },
    /// A stream that should capture does not.
    #[error("operation {operation} (`{name}`): stream {stream} is not in the capture")]
    NotCapturing {
        /// The operation, counted from 1.
        operation: usize,
        /// Its name.
        name: &'static str,
        /// The stream.
        stream: u16,
    },
    /// The driver failed when the graphs were launched.
    #[error("launching the graphs: {0}")]
    Launch(#[source] DriverError),
    /// Nodes found data that no node before them had written.
    #[error("{0} tags were wrong when the graphs ran: memory was used by two blocks at once")]
    WrongTags(u64),
    /// An output holds what another block's node wrote.
    #[error("block {0} is an output and does not hold its own tag")]
    WrongOutput(BlockIndex),
    /// The driver failed to give something back.
    #[error("giving back what the replay created: {0}")]
    Cleanup(#[source] DriverError),
    /// The engine failed to give something back.
    #[error("giving back what the replay allocated: {0}")]
    Release(#[source] engine::Error),
}

impl ReplayError {
    /// What the checker found wrong, where it refused a capture.
    pub fn violation(&self) -> Option<&Violation> {
        match self {
            Self::Engine {
                source: engine::Error::Refused(violation) | engine::Error::CaptureAgain(violation),
                ..
            } => Some(violation),
            _ => None,
        }
    }

    /// The engine's words, where the checker refused a capture.
    pub fn refusal(&self) -> Option<&engine::Error> {
        match self {
            Self::Engine { source, .. } => self.violation().map(|_| source),
            _ => None,
        }
    }
}
