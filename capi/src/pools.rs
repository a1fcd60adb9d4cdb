//! Pools.

use std::ffi::c_char;
use std::ptr::null;

use regraph::driver::Functions;
use regraph::engine::PoolConfig;
use regraph::graphs::{ExecutableFigures, ExecutableOptions};

use crate::arguments::text_if_any;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::Failure;
use crate::handles::{
    regraph_block, regraph_pool, regraph_stream, stream as named, REGRAPH_NO_LIMIT,
};

/// Creates an empty pool that may hold `max_bytes`, or REGRAPH_NO_LIMIT. Memory comes with the first allocation. Graphs
/// of one pool share memory and never run at once: give graphs that are to run at the same time pools of their own.
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
    // SAFETY: the contract of all calls.
    unsafe { regraph_pool_create_named(engine, null(), max_bytes, pool) }
}

/// Creates a pool with a name, which stands in messages instead of the pool's number. `name` is
/// UTF-8 and is copied; NULL means none.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_INVALID_TEXT.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_create_named(
    engine: *const regraph_engine,
    name: *const c_char,
    max_bytes: u64,
    pool: *mut regraph_pool,
) -> regraph_error {
    // SAFETY: the contract of all calls.
    unsafe { regraph_pool_create_in_region(engine, null(), name, max_bytes, pool) }
}

/// Gives a pool a name in place of the one that it has. `name` is UTF-8 and is copied; NULL takes the name
/// away, so that the pool's number stands in messages.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_INVALID_TEXT, REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_set_name(
    engine: *const regraph_engine,
    pool: regraph_pool,
    name: *const c_char,
) -> regraph_error {
    call!(engine, engine.set_pool_name(pool.into(), text_if_any(name, "name")?)?)
}

/// Creates a pool that belongs to the region `tag`, whose memory sleeps and wakes as one
/// (regraph_regions_sleep()). `tag` and `name` are UTF-8 and are copied; NULL means none.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_INVALID_TEXT.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_create_in_region(
    engine: *const regraph_engine,
    tag: *const c_char,
    name: *const c_char,
    max_bytes: u64,
    pool: *mut regraph_pool,
) -> regraph_error {
    call!(
        engine,
        pool = {
            let mut config = PoolConfig::default();
            if let Some(tag) = text_if_any(tag, "tag")? {
                config = config.tag(tag);
            }
            if max_bytes != REGRAPH_NO_LIMIT {
                config = config.max_bytes(max_bytes);
            }
            if let Some(name) = text_if_any(name, "name")? {
                config = config.name(name);
            }
            engine.create_pool(config).into()
        }
    )
}

/// Gives all memory of a pool back to the driver and destroys the pool.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POOL_IN_USE while a block of it is live, a capture into it is under way, a
/// graph of it exists or work may still use a freed block; REGRAPH_ERROR_UNKNOWN_POOL;
/// REGRAPH_ERROR_DRIVER: the pool is destroyed, but the driver may not have taken all its memory.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_destroy(
    engine: *const regraph_engine,
    pool: regraph_pool,
) -> regraph_error {
    call!(engine, engine.destroy_pool(pool.into())?)
}

/// Gives a pool up: it is destroyed now, or after its last block is freed, its last graph is
/// released and their work has completed; its blocks and graphs can be used as before. The id is not for use from now
/// on: most calls reject it, and a block that regraph_allocate() still gives for it keeps the pool, as a capture does
/// that is under way. Waits for launches of graphs that were released while they ran.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_release(
    engine: *const regraph_engine,
    pool: regraph_pool,
) -> regraph_error {
    call!(engine, engine.release_pool(pool.into())?)
}

/// Each graph of the pool has an executable of its own.
pub const REGRAPH_SHARE_NONE: i32 = 0;
/// Graphs share an executable whose nodes are the same, edges, attributes and kernels included.
pub const REGRAPH_SHARE_SAME_FUNCTIONS: i32 = 1;
/// As REGRAPH_SHARE_SAME_FUNCTIONS, but a node may run another kernel in each of them.
pub const REGRAPH_SHARE_ANY_FUNCTIONS: i32 = 2;

/// What the executables of a pool's graphs come to. All bytes are the driver's memory and none of the pool's.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_executable_figures {
    /// Graphs that have not been released.
    pub graphs: u64,
    /// Nodes of them.
    pub graph_nodes: u64,
    /// What their executables would take if each had its own, as foreseen; 0 where
    /// regraph_pool_keep_executables() was never called.
    pub graph_bytes: u64,
    /// Executables that there are.
    pub executables: u64,
    /// Nodes of them.
    pub nodes: u64,
    /// What they take, as foreseen; 0 as for graph_bytes.
    pub bytes: u64,
    /// By how much the device's free memory shrank when they were made.
    pub measured: u64,
    /// What counts against the budget.
    pub counted: u64,
    /// Executables that were made.
    pub made: u64,
    /// Updates of executables.
    pub updates: u64,
    /// Executables that were destroyed while their graphs lived.
    pub evicted: u64,
    /// Updates that the driver refused.
    pub refused: u64,
    /// Zero. Later versions may give these names.
    pub unused: [u64; 4],
}

impl From<ExecutableFigures> for regraph_executable_figures {
    fn from(from: ExecutableFigures) -> Self {
        Self {
            graphs: from.graphs as u64,
            graph_nodes: from.graph_nodes as u64,
            graph_bytes: from.graph_bytes,
            executables: from.executables as u64,
            nodes: from.nodes as u64,
            bytes: from.bytes,
            measured: from.measured,
            counted: from.counted,
            made: from.made,
            updates: from.updates,
            evicted: from.evicted,
            refused: from.refused,
            unused: [0; 4],
        }
    }
}

/// From now on the library makes an executable when its graph is launched first, or prepared
/// (regraph_graph_prepare()), graphs share executables as `sharing` says (one of the REGRAPH_SHARE constants), and
/// all of them together take at most `budget` bytes, or REGRAPH_NO_LIMIT: where that is short, the executable goes
/// that was asked for longest ago and is not pinned (regraph_graph_pin()). One that graphs share is updated
/// (cuGraphExecUpdate()) when another of them is launched. Launches that were made before run as they were made.
///
/// Without this call each graph has an executable of its own from the end of its capture on. The library counts
/// what it foresees for an executable, and more where they were measured to take more. Where one has to go that may
/// run, the launch that needs the room waits for the pool's launches so far. An executable that took more than the budget
/// by itself, beyond 10 MiB, is destroyed again, and its launch refused (REGRAPH_ERROR_NO_EXECUTABLE); the driver keeps
/// the memory and uses it for the next ones.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_INVALID_ARGUMENT; REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_keep_executables(
    engine: *const regraph_engine,
    pool: regraph_pool,
    budget: u64,
    sharing: i32,
) -> regraph_error {
    call!(engine, {
        let mut options = ExecutableOptions::default();
        if budget != REGRAPH_NO_LIMIT {
            options = options.budget(budget);
        }
        options = match sharing {
            REGRAPH_SHARE_NONE => options,
            REGRAPH_SHARE_SAME_FUNCTIONS => options.sharing(Functions::Same),
            REGRAPH_SHARE_ANY_FUNCTIONS => options.sharing(Functions::Any),
            other => {
                return Err(Failure::argument(
                    "sharing",
                    other,
                    "a REGRAPH_SHARE constant, from 0 to 2",
                ))
            }
        };
        engine.pool(pool.into(), "keep_executables")?.keep_executables(options)?;
    })
}

/// Destroys the executables of a pool's graphs that are not pinned, after a wait for the pool's launches; `bytes`
/// gets what was foreseen for them, and may be NULL. Each comes back when its graph is launched: while this pool
/// sleeps, others can have the memory, which the driver does not give back to the device.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_release_executables(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    call!(
        engine,
        Some(bytes) = engine.pool(pool.into(), "release_executables")?.release_executables()?
    )
}

/// What the executables of a pool's graphs come to.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_get_executables(
    engine: *const regraph_engine,
    pool: regraph_pool,
    figures: *mut regraph_executable_figures,
) -> regraph_error {
    call!(engine, figures = engine.pool(pool.into(), "get_executables")?.executables().into())
}

/// Gives all physical memory of a pool back to the driver and keeps its addresses, blocks and graphs, until
/// regraph_pool_resume(). All contents are lost. Waits for the launches that regraph_launch_graph() and
/// regraph_launch_executable() made of the pool's graphs; such launches are refused until the pool is resumed. `bytes`
/// gets the bytes that were given back; it may be NULL.
///
/// Other work on the pool's memory must have completed, and none may be submitted before the pool is resumed: launches
/// of its graphs by other calls, and work on its live blocks. The engine sees neither.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POOL_HAS_BLOCKS, if live blocks of the pool belong to no graph; REGRAPH_ERROR_POOL_BUSY;
/// REGRAPH_ERROR_POOL_ASLEEP for the pool of a region that sleeps; REGRAPH_ERROR_CANNOT_SUSPEND;
/// REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_UNKNOWN_POOL. After REGRAPH_ERROR_DRIVER a part of the memory may have been
/// given back, and another call continues with the rest.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_suspend(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    call!(
        engine,
        Some(bytes) =
            engine.pool(pool.into(), "suspend_discarding_outputs")?.suspend_discarding_outputs()?
    )
}

/// Like regraph_pool_suspend(), but accepts live blocks that belong to no graph, those of
/// regraph_pool_borrow() included. They stay live at their addresses, and their contents are lost too.
///
/// Threads: any.
///
/// Errors: those of regraph_pool_suspend() except REGRAPH_ERROR_POOL_HAS_BLOCKS.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_suspend_discarding(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    const CALL: &str = "suspend_discarding_all";
    call!(engine, Some(bytes) = engine.pool(pool.into(), CALL)?.suspend_discarding_all()?)
}

/// Maps memory again at the addresses of a suspended pool. Its contents are undefined. `bytes` gets
/// the bytes that were mapped, 0 for a pool that is not suspended; it may be NULL. Where memory is
/// short the call waits for streams, as regraph_allocate() does outside captures.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_RESUME_OUT_OF_MEMORY, REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_DRIVER, and
/// REGRAPH_ERROR_POOL_ASLEEP for the pool of a region that sleeps. The pool stays suspended, or short of a part (see
/// regraph_pool_is_short()).
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_resume(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, Some(bytes) = engine.pool(pool.into(), "resume_pool")?.resume()?)
}

/// Has the graphs of a pool whose captures had a plan share as much memory as they can by now, and gives the rest back.
/// Addresses and what live blocks hold stay; all other contents are lost, those of outputs that were freed included.
/// Waits for the launches that regraph_launch_graph() and regraph_launch_executable() made of the pool's graphs.
/// `bytes` gets the bytes that were given back; it may be NULL. See regraph_pool_get_excess_bytes().
///
/// No launch of the pool's graphs by other calls may be running, or be submitted before the call
/// returns: the engine does not see those. Work on live blocks may continue. Graphs whose captures were
/// under way beside others keep their memory as it is.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POOL_BUSY while a capture or work on freed blocks uses the pool; REGRAPH_ERROR_POOL_SUSPENDED;
/// REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_UNKNOWN_POOL; REGRAPH_ERROR_COMPACTION_REFUSED. After REGRAPH_ERROR_DRIVER
/// the pool may be short of a part of its memory (see regraph_pool_is_short()).
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_compact(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, Some(bytes) = engine.pool(pool.into(), "compact_pool")?.compact()?)
}

/// How many bytes regraph_pool_compact() would give back: what the pool holds beyond what its graphs
/// and live blocks need now, because some of its graphs and outputs are gone. Freed blocks that work may
/// still use count as live. Costs what finding the new pieces does.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_get_excess_bytes(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, bytes = engine.host().excess_bytes(pool.into())?)
}

/// Allocates a block of at least `bytes` for `stream`, which does not capture, in memory that the pool's
/// graphs do not keep between launches: all that they use but outputs, inputs and live blocks. Where there is no
/// such place, or none is lent because a capture uses the pool or has a plan, the block is as
/// regraph_allocate() gives it. Later work on `stream` waits for the launches so far that
/// regraph_launch_graph() and regraph_launch_executable() made of the pool's graphs.
///
/// What a capture both allocated and freed is lent: each launch is taken to write it anew, so what only the run of the
/// capture wrote there, by work that was not captured, is lost.
///
/// Until such a block is freed these calls refuse to launch the pool's graphs. The next launch then waits for
/// all work that has used it, on the streams that were recorded for it too. Launches by other calls are the
/// caller's to order: none may run or be submitted while such a block lives.
///
/// Threads: the one that uses `stream`; launches may come from any. The stream's work on a block that
/// another thread frees is ordered by the next call with this stream on the borrowing thread; a launch
/// before that fails with REGRAPH_ERROR_LENT_WORK.
///
/// Errors: those of regraph_allocate(); REGRAPH_ERROR_CAPTURING; REGRAPH_ERROR_ORDER_LOST.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_borrow(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: u64,
    stream: regraph_stream,
    block: *mut regraph_block,
) -> regraph_error {
    call!(
        engine,
        block = {
            let lending = engine.pool(pool.into(), "borrow")?.lend(named(stream))?;
            lending.allocate(bytes)?.into_block().into()
        }
    )
}

/// The bytes of live blocks in memory that the pool's graphs have lent: `bytes` gets them. A part of the
/// allocated bytes. See regraph_pool_borrow().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_get_lent_bytes(
    engine: *const regraph_engine,
    pool: regraph_pool,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, bytes = engine.pool_statistics(pool.into())?.lent)
}

/// Whether a pool is short of a part of its memory, because the driver refused to give back what
/// regraph_pool_compact() or a capture's end had exchanged. Until regraph_pool_resume() it is refused what
/// a suspended pool is, but the contents of its live blocks are kept.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_is_short(
    engine: *const regraph_engine,
    pool: regraph_pool,
    is_short: *mut bool,
) -> regraph_error {
    call!(engine, is_short = engine.host().is_short(pool.into())?)
}

/// Whether a pool is suspended, or short of a part of its memory (see regraph_pool_is_short()).
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
    call!(engine, suspended = engine.host().is_suspended(pool.into())?)
}

/// Makes later work on `stream` wait for every launch that regraph_launch_graph() and
/// regraph_launch_executable() have made of the pool's graphs: before a graph's inputs are written
/// again, for instance. Costs nothing on the stream of the last launch.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_CAPTURING,
/// REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_follow(
    engine: *const regraph_engine,
    pool: regraph_pool,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.pool(pool.into(), "pool_follow")?.follow(named(stream))?)
}

/// Waits until every launch that regraph_launch_graph() and regraph_launch_executable() made of the
/// pool's graphs has completed, and destroys the graphs that were released while they ran.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_ORDER_LOST, REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_pool_synchronize(
    engine: *const regraph_engine,
    pool: regraph_pool,
) -> regraph_error {
    call!(engine, engine.pool(pool.into(), "pool_synchronize")?.synchronize()?)
}
