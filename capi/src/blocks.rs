//! Blocks. These are the calls that must be fast: nothing here allocates or formats where it succeeds.

use crate::arguments::Out;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::guard;
use crate::handles::{
    regraph_block, regraph_block_id, regraph_pool, regraph_stream, stream as named,
};

/// Hands out a block of at least `bytes` to `stream`.
///
/// While `stream` captures, the block is new memory, or memory of which every earlier user is proven
/// to be completed before the stream's next node starts. Outside captures it is memory that no graph
/// of the pool will ever use, and that nobody uses any more or that `stream` itself used last. Only
/// where memory is short, and outside captures, does the call wait for work; it then holds the
/// engine's lock, so host callbacks on a stream must not call the engine.
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_ZERO_BYTES; REGRAPH_ERROR_OUT_OF_MEMORY, after which everything goes on as
/// before; REGRAPH_ERROR_CAPTURE_INVALIDATED; REGRAPH_ERROR_CAPTURE_ENDED;
/// REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_POOL_SUSPENDED; REGRAPH_ERROR_PER_THREAD_STREAM;
/// REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_allocate(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: u64,
    stream: regraph_stream,
    block: *mut regraph_block,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) =
            unsafe { (regraph_engine::read(engine)?, Out::needed(block, "block")?) };
        let given = on!(engine, engine => engine.allocate(pool.into(), bytes, named(stream)))?;
        out.put(given.into());
        Ok(())
    })
}

/// The same on memory of its own: while `stream` captures, memory that is there at once, and that is
/// never shared and never moved as long as a graph of the capture lives, whether the block is freed or
/// not. For memory that is registered with a communication library, exported, or used by a kernel that
/// goes on running. Outside captures it is the same as regraph_allocate(): keep the block for as long
/// as it must not be shared.
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
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) =
            unsafe { (regraph_engine::read(engine)?, Out::needed(block, "block")?) };
        let given =
            on!(engine, engine => engine.allocate_fixed(pool.into(), bytes, named(stream)))?;
        out.put(given.into());
        Ok(())
    })
}

/// Says that `stream` uses the block at some time before its free. The use must be ordered after the
/// allocation, by an event for instance. A block's own stream needs no record.
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
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.record_stream(block.into(), named(stream)))?)
    })
}

/// Says that what `stream` holds so far includes its last use of the block, so that the block's
/// marker on it is this point and not the free. A later regraph_record_stream() takes this back. For a
/// block from outside captures it is the same as that.
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, REGRAPH_ERROR_CAPTURE_INVALIDATED,
/// REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_record_use(
    engine: *const regraph_engine,
    block: regraph_block_id,
    stream: regraph_stream,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.record_use(block.into(), named(stream)))?)
    })
}

/// Frees a block. In a capture its free markers are the terminals, now, of its own stream and of
/// every stream that was recorded for it, or those of the last use where one was recorded. Outside
/// captures its own stream may have it back at once, unless other streams used it. Nothing is waited
/// for, and work that was submitted before goes on.
///
/// Threads: any; not while another thread captures into the same graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_BLOCK, where the block was freed before.
#[no_mangle]
pub unsafe extern "C" fn regraph_free(
    engine: *const regraph_engine,
    block: regraph_block_id,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.free(block.into()))?)
    })
}

/// Frees a block in the order of `stream`, which need not be its own: the same as
/// regraph_record_stream() and regraph_free().
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
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.free_from(block.into(), named(stream)))?)
    })
}
