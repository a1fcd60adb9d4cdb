//! Errors of graphs.

use thiserror::Error as ThisError;

use crate::driver::{DriverError, StreamHandle};
use crate::engine::{self, PoolId};

/// What a call about graphs failed with. Unless it says otherwise, nothing has changed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The pool's memory was given back for the time being.
    #[error("{pool:?} is suspended, its graphs have no memory; resume the pool first")]
    Suspended {
        /// The pool.
        pool: PoolId,
    },
    /// A graph cannot be launched on a stream that captures.
    #[error(
        "launch: {stream:?} is capturing; launch the graph on a stream that is not, since as a part \
         of another graph nothing would keep it from running beside the graphs of its pool"
    )]
    Capturing {
        /// The stream.
        stream: StreamHandle,
    },
    /// The pool belongs to another engine than the call.
    #[error("{call}: {pool:?} belongs to another engine; give a pool that was made with this one")]
    ForeignPool {
        /// The call.
        call: &'static str,
        /// The pool.
        pool: PoolId,
    },
    /// The stream is not in the capture that it was to join.
    #[error(
        "join: {stream:?} is not in this capture; make it wait for an event that was recorded on a \
         stream of the capture first"
    )]
    NotInCapture {
        /// The stream.
        stream: StreamHandle,
    },
    /// A pool that a capture uses was dropped by its last holder at that moment, so nothing could order
    /// the graph among those of the pool. The capture is over, and nothing of it is left.
    #[error(
        "finish: {pool:?} was dropped while the capture that uses it was ended; keep the pool until \
         the graph is there"
    )]
    PoolGoing {
        /// The pool.
        pool: PoolId,
    },
    /// The handle of a default stream means another stream on each device.
    #[error(
        "launch: {stream:?} is a default stream, and the graph's pools are of several engines, so \
         nobody can tell which device's is meant; use a stream that was created"
    )]
    DefaultStream {
        /// The stream.
        stream: StreamHandle,
    },
    /// No event could be recorded behind a launch and the device could not be waited for, so nobody
    /// knows any more when the pool's graphs have finished.
    #[error(
        "the end of an earlier launch in {pool:?} could not be marked, so none can be ordered \
         after it; release the pool's graphs and begin anew"
    )]
    OrderLost {
        /// The pool.
        pool: PoolId,
    },
}
