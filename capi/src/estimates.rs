//! What graphs will need, before there is memory for them.

use regraph_sim::probe::Needs;

use crate::arguments::put_if_wanted;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::handles::{capture as numbered, regraph_capture_id, regraph_pool};

/// What graphs that share one pool will need, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_needs {
    /// What the pool will hold.
    pub pool_bytes: u64,
    /// What the driver took beside it for executables, one for each graph. Captures in this process use it,
    /// and do not take it again.
    pub executable_bytes: u64,
    /// What the pool may come to at most, where captures ask for the same memory.
    pub most_pool_bytes: u64,
    /// What executables may come to at most.
    pub most_executable_bytes: u64,
}

impl From<Needs> for regraph_needs {
    fn from(needs: Needs) -> Self {
        let most = needs.bound();
        Self {
            pool_bytes: needs.pool_bytes,
            executable_bytes: needs.executable_bytes,
            most_pool_bytes: most.pool_bytes,
            most_executable_bytes: most.executable_bytes,
        }
    }
}

/// Begins to estimate what graphs in one pool will need. `pool` becomes a pool for captures that come to
/// nothing: each is begun with regraph_begin_stream_capture(), submits what its graph is to do, with blocks
/// of this pool, and ends with regraph_show_stream_capture(). They have addresses for their blocks, and no
/// more memory behind them than 170 MiB. regraph_estimate_end() tells what was found.
///
/// The captures that follow are to ask for memory in the same order. What a library allocates outside the
/// pool, as cuBLAS its workspace for a stream, is not counted: the first run outside captures makes that.
///
/// Threads: any. One thread at a time uses an estimate and its pool.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_estimate_begin(
    engine: *const regraph_engine,
    pool: *mut regraph_pool,
) -> regraph_error {
    call!(engine, pool = engine.begin_estimate().into())
}

/// Ends a capture into the pool of an estimate, in place of regraph_finish_stream_capture(): notes what was
/// asked for in it, has the driver make its graph executable, to see what that takes, and rolls the capture
/// back. Blocks that it allocated and did not free count as kept as long as its graph lives; they stay live
/// until they are freed, which is best done now, and must not be used.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE for a capture that regraph_begin_stream_capture() did not begin in
/// the pool of an estimate; REGRAPH_ERROR_NO_TRACE for one of more than 2^32 nodes; REGRAPH_ERROR_DRIVER. The
/// capture is over then, too, unless it is unknown.
#[no_mangle]
pub unsafe extern "C" fn regraph_show_stream_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
) -> regraph_error {
    call!(engine, engine.show_stream_capture(numbered(capture))?)
}

/// Ends an estimate: `needs` becomes what the graphs of the captures that were shown will need, made in the same order
/// with the engine's settings. Takes as long as a simulated device needs for the captures. `needs` may be NULL.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL for a pool that regraph_estimate_begin() did not give;
/// REGRAPH_ERROR_INVALID_ARGUMENT while a capture into the pool is under way: show it first, or abandon it.
/// REGRAPH_ERROR_OUT_OF_MEMORY where no device like this one could serve the captures; REGRAPH_ERROR_DRIVER. Unless a
/// capture is under way the pool is gone then, too.
#[no_mangle]
pub unsafe extern "C" fn regraph_estimate_end(
    engine: *const regraph_engine,
    pool: regraph_pool,
    needs: *mut regraph_needs,
) -> regraph_error {
    call!(engine, {
        let estimate = engine.end_estimate(pool.into())?;
        if !needs.is_null() {
            put_if_wanted(needs, estimate.needs()?.into());
        }
    })
}
