//! Pools.

use regraph::engine::PoolConfig;

use crate::arguments::{put_if_wanted, Out};
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::guard;
use crate::handles::{regraph_pool, regraph_stream, stream as named, REGRAPH_NO_LIMIT};

/// Creates an empty pool that may hold `max_bytes`, or REGRAPH_NO_LIMIT. Memory comes with the first
/// allocation. Graphs of one pool share memory and never run at once: give graphs that are to run at
/// the same time pools of their own.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_create(
    engine: *const regraph_engine,
    max_bytes: u64,
    pool: *mut regraph_pool,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) = unsafe { (regraph_engine::read(engine)?, Out::needed(pool, "pool")?) };
        let mut config = PoolConfig::default();
        if max_bytes != REGRAPH_NO_LIMIT {
            config = config.max_bytes(max_bytes);
        }
        out.put(on!(engine, engine => engine.create_pool(config)).into());
        Ok(())
    })
}

/// Gives all memory of a pool back to the driver and forgets the pool.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POOL_IN_USE while a block of it is live, a capture into it is under way, a
/// graph of it exists or work may still use a freed block; REGRAPH_ERROR_UNKNOWN_POOL;
/// REGRAPH_ERROR_DRIVER, when the pool is gone but some of its memory may not have been given back.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_destroy(
    engine: *const regraph_engine,
    pool: regraph_pool,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.destroy_pool(pool.into()))?)
    })
}

/// Gives a pool up: it is destroyed now, or when its last block is freed, its last graph is released
/// and their work has completed. Nothing may be asked of the pool any more; its blocks and graphs may
/// be used as before. Waits for launches of graphs that were released while they ran.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_release(
    engine: *const regraph_engine,
    pool: regraph_pool,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        on!(engine, engine => engine.release_pool(pool.into()))
    })
}

/// Gives all physical memory of a pool back to the driver and keeps its addresses, blocks and graphs,
/// until regraph_pool_resume(). Everything that the memory held is lost. Waits for the launches that
/// regraph_launch_graph() and regraph_launch_executable() made of the pool's graphs; such launches are
/// refused until the pool is resumed. `bytes` gets how many bytes went; it may be NULL.
///
/// No other work that uses memory of the pool may be running, or be submitted before the pool is
/// resumed: launches of its graphs by other calls, and work on blocks of it that are live. The engine
/// sees neither.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POOL_HAS_BLOCKS, where blocks are live that belong to no graph;
/// REGRAPH_ERROR_POOL_BUSY; REGRAPH_ERROR_CANNOT_SUSPEND; REGRAPH_ERROR_ORDER_LOST;
/// REGRAPH_ERROR_UNKNOWN_POOL. After REGRAPH_ERROR_DRIVER what had gone by then is gone, and suspending
/// it again goes on with the rest.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_suspend(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let gone = on!(engine, engine => engine.pool(pool.into(), "suspend_pool")?.suspend())?;
        // SAFETY: the contract of all calls.
        unsafe { put_if_wanted(bytes, gone) };
        Ok(())
    })
}

/// Like regraph_pool_suspend(), but what live blocks hold is lost too, and they stay live: at the same
/// addresses, and with any contents once the pool is resumed.
///
/// Threads: any.
///
/// Errors: as regraph_pool_suspend(), but for REGRAPH_ERROR_POOL_HAS_BLOCKS.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_suspend_discarding(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    const CALL: &str = "suspend_pool_discarding";
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let gone = on!(engine, engine => engine.pool(pool.into(), CALL)?.suspend_discarding())?;
        // SAFETY: the contract of all calls.
        unsafe { put_if_wanted(bytes, gone) };
        Ok(())
    })
}

/// Maps memory again wherever a suspended pool had some. What it holds is anything. `bytes` gets how
/// many bytes came back, 0 for a pool that is not suspended; it may be NULL. Where memory is short it
/// waits for streams, as regraph_allocate() does outside captures.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_RESUME_OUT_OF_MEMORY, REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_DRIVER. The
/// pool stays suspended.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_resume(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let came = on!(engine, engine => engine.pool(pool.into(), "resume_pool")?.resume())?;
        // SAFETY: the contract of all calls.
        unsafe { put_if_wanted(bytes, came) };
        Ok(())
    })
}

/// Whether a pool is suspended.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_is_suspended(
    engine: *const regraph_engine,
    pool: regraph_pool,
    suspended: *mut bool,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) =
            unsafe { (regraph_engine::read(engine)?, Out::needed(suspended, "suspended")?) };
        out.put(on!(engine, engine => engine.is_suspended(pool.into()))?);
        Ok(())
    })
}

/// Makes what `stream` is given from now on come after every launch that regraph_launch_graph() and
/// regraph_launch_executable() made of the pool's graphs so far: before a graph's inputs are filled
/// anew, for instance. Costs nothing on the stream of the last launch.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_CAPTURING,
/// REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_follow(
    engine: *const regraph_engine,
    pool: regraph_pool,
    stream: regraph_stream,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let stream = named(stream);
        Ok(on!(engine, engine => engine.pool(pool.into(), "pool_follow")?.follow(&stream))?)
    })
}

/// Waits until every launch that regraph_launch_graph() and regraph_launch_executable() made of the
/// pool's graphs has completed, and gives back the memory of graphs that were released meanwhile.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_synchronize(
    engine: *const regraph_engine,
    pool: regraph_pool,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.pool(pool.into(), "pool_synchronize")?.synchronize())?)
    })
}
