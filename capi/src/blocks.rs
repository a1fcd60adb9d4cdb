//! Blocks. These are the calls that must be fast: nothing here allocates host memory or formats text on success.

use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::handles::{
    regraph_block, regraph_block_id, regraph_pool, regraph_stream, stream as named,
};

/// Allocates a block of at least `bytes` for `stream`.
///
/// While `stream` captures, the block is new memory, or memory whose earlier users are all proven
/// to complete before the stream's next node starts. Outside captures the block is memory that no
/// graph of the pool uses, and whose earlier users have completed or come before on `stream`
/// itself. The call waits for work only outside captures and when memory is short; calls of other
/// threads go on meanwhile. Host callbacks on a stream must not call the engine, which calls CUDA.
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_ZERO_BYTES; REGRAPH_ERROR_OUT_OF_MEMORY, after which the capture can go on;
/// REGRAPH_ERROR_CAPTURE_INVALIDATED; REGRAPH_ERROR_CAPTURE_ENDED; REGRAPH_ERROR_UNKNOWN_POOL;
/// REGRAPH_ERROR_POOL_SUSPENDED; REGRAPH_ERROR_PER_THREAD_STREAM; REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_allocate(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: u64,
    stream: regraph_stream,
    block: *mut regraph_block,
) -> regraph_error {
    call!(engine, block = engine.allocate(pool.into(), bytes, named(stream))?.into())
}

/// Allocates a block whose memory is its own: while `stream` captures, the memory is mapped at once, and it is not
/// shared or moved while the capture's graph lives, even after the block is freed. For memory that is registered with a
/// communication library, exported, or used by a kernel that keeps running. Outside captures it is the same as
/// regraph_allocate(): keep the block for as long as its memory must not be shared.
///
/// Threads and errors: as regraph_allocate().
#[no_mangle]
pub unsafe extern "C" fn regraph_allocate_fixed(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: u64,
    stream: regraph_stream,
    block: *mut regraph_block,
) -> regraph_error {
    call!(engine, block = engine.allocate_fixed(pool.into(), bytes, named(stream))?.into())
}

/// Records that `stream` uses the block at some time before its free. The use must be ordered after the allocation, by
/// an event for instance. The stream that a block was allocated for needs no record.
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_record_stream(
    engine: *const regraph_engine,
    block: regraph_block_id,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.record_stream(block.into(), named(stream))?)
}

/// Marks the stream's current position as its last use of the block: the block's free marker on the
/// stream is then this position instead of the free. A later regraph_record_stream() cancels this.
/// For a block from outside captures it is the same as regraph_record_stream().
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_record_use(
    engine: *const regraph_engine,
    block: regraph_block_id,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.record_use(block.into(), named(stream))?)
}

/// Frees a block. In a capture its free markers are the current terminals of its own stream and of
/// every stream that was recorded for it, or the terminals at the last use if that was recorded
/// (regraph_record_use()). Outside captures its own stream can get the memory at once, unless other
/// streams used the block. Does not wait: work that was submitted before may still use the block.
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, for a block that was freed before for instance.
#[no_mangle]
pub unsafe extern "C" fn regraph_free(
    engine: *const regraph_engine,
    block: regraph_block_id,
) -> regraph_error {
    call!(engine, engine.free(block.into())?)
}

/// Frees a block after what `stream` holds, which need not be its own stream:
/// regraph_record_stream() and regraph_free() in one call.
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_free_from(
    engine: *const regraph_engine,
    block: regraph_block_id,
    stream: regraph_stream,
) -> regraph_error {
    let block = block.into();
    call!(engine, engine.record_stream(block, named(stream)).and_then(|()| engine.free(block))?)
}
