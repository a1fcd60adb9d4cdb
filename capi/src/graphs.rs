//! Graphs: the order of their launches, and the least memory that they need.

use regraph::driver::{CaptureMode, ExecutableHandle};
use regraph::graphs::Graph;

use crate::arguments::{changed, put_if_wanted};
use crate::captures::regraph_capture_report;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{Failure, Fallible};
use crate::handles::{
    capture as numbered, executable as launchable, graph as handle_of, raw_executable, raw_graph,
    regraph_block, regraph_capture_id, regraph_executable, regraph_graph, regraph_graph_id,
    regraph_pool, regraph_stream, stream as named,
};

/// Unsafe calls are forbidden to every thread that is not relaxed (CU_STREAM_CAPTURE_MODE_GLOBAL).
pub const REGRAPH_CAPTURE_GLOBAL: i32 = 0;
/// Unsafe calls are forbidden to the capturing thread (CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).
pub const REGRAPH_CAPTURE_THREAD_LOCAL: i32 = 1;
/// Unsafe calls are allowed (CU_STREAM_CAPTURE_MODE_RELAXED).
pub const REGRAPH_CAPTURE_RELAXED: i32 = 2;

fn capture_mode(mode: i32) -> Fallible<CaptureMode> {
    match mode {
        REGRAPH_CAPTURE_GLOBAL => Ok(CaptureMode::Global),
        REGRAPH_CAPTURE_THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
        REGRAPH_CAPTURE_RELAXED => Ok(CaptureMode::Relaxed),
        other => {
            Err(Failure::argument("mode", other, "a mode of cuStreamBeginCapture(), from 0 to 2"))
        }
    }
}

/// Begins a capture on `stream` (cuStreamBeginCapture) that uses `pool`. `mode` is one of the
/// REGRAPH_CAPTURE constants, which are CUDA's. `capture` gets the capture's id.
///
/// The library owns the capture and its graph: regraph_finish_stream_capture() ends the capture,
/// regraph_launch_graph() launches the graph and regraph_release_graph() destroys it.
/// regraph_begin_capture() is for a program that makes these CUDA calls itself.
///
/// Threads: any; the capture then stays on the calling thread.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_INVALID_ARGUMENT,
/// REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER; for the pool of an estimate REGRAPH_ERROR_CANNOT_PLAN. The
/// stream does not capture then.
#[no_mangle]
pub unsafe extern "C" fn regraph_begin_stream_capture(
    engine: *const regraph_engine,
    pool: regraph_pool,
    stream: regraph_stream,
    mode: i32,
    capture: *mut regraph_capture_id,
) -> regraph_error {
    call!(
        engine,
        capture = {
            let mode = capture_mode(mode)?;
            engine.begin_stream_capture(pool.into(), named(stream), mode)?.0
        }
    )
}

/// Allocates a block of at least `bytes` from the pool of a capture of regraph_begin_stream_capture(), as
/// regraph_allocate() does, for a stream of the capture. For a stream outside the capture regraph_allocate() returns a
/// block that no graph uses; this call refuses it.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; REGRAPH_ERROR_NOT_CAPTURING for a stream that is not in
/// the capture: make it wait for an event of the capture first; those of regraph_allocate().
#[no_mangle]
pub unsafe extern "C" fn regraph_capture_allocate(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    bytes: u64,
    stream: regraph_stream,
    block: *mut regraph_block,
) -> regraph_error {
    call!(
        engine,
        block = engine.capture_allocate(numbered(capture), bytes, named(stream), false)?.into()
    )
}

/// Allocates a block of at least `bytes` in a capture of regraph_begin_stream_capture(), for a stream of
/// that capture, with memory that is its own, as regraph_allocate_fixed() does: it is mapped at once, and
/// not shared or moved while the capture's graph lives, even after the block is freed.
///
/// Threads and errors: as regraph_capture_allocate().
#[no_mangle]
pub unsafe extern "C" fn regraph_capture_allocate_fixed(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    bytes: u64,
    stream: regraph_stream,
    block: *mut regraph_block,
) -> regraph_error {
    call!(
        engine,
        block = engine.capture_allocate(numbered(capture), bytes, named(stream), true)?.into()
    )
}

/// Abandons a capture of regraph_begin_stream_capture() and begins a second one on the same stream, with the same pool
/// and mode, for the same work. From the requests of the first capture the library plans the addresses of the second
/// capture's blocks, close to the least memory. Devices without virtual memory management have no other way to that.
/// `capture` holds the first capture's id and gets the second one's.
///
/// Capture the work, free all blocks that the capture allocated, make this call, and capture the work again. A block of
/// the first capture that was not freed stays allocated, and its memory is not shared. From the first request on that
/// differs from the first capture's, the plan is not followed: the report has the numbers (layout_blocks,
/// layout_followed). Memory that the pool holds and does not use goes back to the driver.
///
/// Takes up to some seconds where the capture has many blocks, more with plan_search.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NO_JOURNAL, REGRAPH_ERROR_INVALID_ARGUMENT for a
/// capture into the pool of an estimate (regraph_estimate_begin()) and, where the second capture could only
/// repeat what is wrong, REGRAPH_ERROR_REFUSED: the first capture stays under way.
/// Those of regraph_begin_stream_capture(): the stream does not capture then.
#[no_mangle]
pub unsafe extern "C" fn regraph_repeat_stream_capture(
    engine: *const regraph_engine,
    capture: *mut regraph_capture_id,
) -> regraph_error {
    call!(engine, {
        let capture = changed(capture, "capture")?;
        *capture = engine.repeat_stream_capture(numbered(*capture))?.0;
    })
}

/// Ends a capture of regraph_begin_stream_capture(): the checker verifies it (the setting "check"),
/// and the library calls cuStreamEndCapture(), cuGraphInstantiate() and cuGraphUpload(), the latter two
/// not before the first launch where the pool keeps executables (regraph_pool_keep_executables()). `report`
/// may be NULL, but regraph_launch_graph() and regraph_release_graph() take the report's graph id.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; those of regraph_end_capture(); REGRAPH_ERROR_DRIVER, if
/// a stream was not joined again for instance. The capture has ended then, without a graph; blocks
/// that it allocated and did not free stay live. REGRAPH_ERROR_INVALID_ARGUMENT for a capture into the pool of
/// an estimate, which regraph_show_stream_capture() ends: the capture stays under way.
#[no_mangle]
pub unsafe extern "C" fn regraph_finish_stream_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    report: *mut regraph_capture_report,
) -> regraph_error {
    call!(engine, Some(report) = engine.finish_stream_capture(numbered(capture))?.into())
}

/// Launches a graph of regraph_finish_stream_capture() on a stream that does not capture. The launch waits for every
/// earlier launch of a graph of the same pools, on any stream: graphs of one pool share memory and must not run at the
/// same time. Costs one event record, and one wait if the stream is not that of the pool's last launch.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of regraph_end_capture();
/// REGRAPH_ERROR_CAPTURING; REGRAPH_ERROR_POOL_SUSPENDED; REGRAPH_ERROR_ORDER_LOST; REGRAPH_ERROR_PER_THREAD_STREAM;
/// REGRAPH_ERROR_BLOCKS_LENT and REGRAPH_ERROR_LENT_WORK (see regraph_pool_borrow()), REGRAPH_ERROR_NO_EXECUTABLE (see
/// regraph_pool_keep_executables()): nothing was launched then. REGRAPH_ERROR_DRIVER: the launch failed, or no event
/// could be recorded after it.
#[no_mangle]
pub unsafe extern "C" fn regraph_launch_graph(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    stream: regraph_stream,
) -> regraph_error {
    let graph = graph.into();
    call!(engine, engine.of_library(graph, "launch_graph", |it| it.launch(named(stream)))?)
}

/// Launches an executable that the caller instantiated (cuGraphInstantiate()) from a graph of regraph_end_capture(), on
/// a stream that does not capture. Like regraph_launch_graph(), the launch waits for every earlier launch of a graph of
/// the same pools, on any stream. The library does not see other launches (cuGraphLaunch()): the caller must keep those
/// from running at the same time as other graphs of the same pools.
///
/// Threads: any.
///
/// Errors: as regraph_launch_graph(); REGRAPH_ERROR_NULL; REGRAPH_ERROR_INVALID_ARGUMENT for a graph that the
/// library instantiated.
#[no_mangle]
pub unsafe extern "C" fn regraph_launch_executable(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    executable: regraph_executable,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.launch_executable(graph.into(), launchable(executable)?, named(stream))?)
}

/// The graph and the executable of regraph_finish_stream_capture(), for reading and for updates of
/// parameters between launches. They are destroyed by regraph_release_graph(). Either pointer may
/// be NULL. `executable` gets NULL where the pool keeps executables (regraph_pool_keep_executables()) or has
/// released them (regraph_pool_release_executables()): it may hold another graph's parameters then, or go. One that
/// was got before must not be used any more then.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of regraph_end_capture().
#[no_mangle]
pub unsafe extern "C" fn regraph_graph_get_handles(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    handle: *mut regraph_graph,
    executable: *mut regraph_executable,
) -> regraph_error {
    call!(engine, {
        let handles = |graph: &Graph<_>| Ok((graph.handle(), graph.executable()));
        let (found, instantiated) = engine.of_library(graph.into(), "handles", handles)?;
        put_if_wanted(handle, raw_graph(found));
        let none = ExecutableHandle(0);
        put_if_wanted(executable, raw_executable(instantiated.unwrap_or(none)));
    })
}

/// Has the library launch a graph of regraph_end_capture() that has no executable yet: from now on
/// regraph_launch_graph() launches it, and regraph_release_graph() destroys `handle`, the graph that
/// cuStreamEndCapture() gave. The library instantiates it now and puts it on the device by `stream`, or as
/// regraph_pool_keep_executables() says.
///
/// Threads: any, while no other call uses the graph.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_GRAPH, REGRAPH_ERROR_NULL; REGRAPH_ERROR_INVALID_ARGUMENT for a graph that the library
/// instantiated, or that another thread uses. After REGRAPH_ERROR_DRIVER `graph` is released, and `handle` is
/// the caller's still and must not be launched.
#[no_mangle]
pub unsafe extern "C" fn regraph_graph_take(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    handle: regraph_graph,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.take_graph(graph.into(), handle_of(handle)?, named(stream))?)
}

/// Does what the next regraph_launch_graph() of a graph would have to do first: instantiates it, or updates the
/// executable that it shares with others (cuGraphExecUpdate()). `stream` is one that does not capture. See
/// regraph_pool_keep_executables().
///
/// Threads: any. Launches of the pool by other threads wait meanwhile.
///
/// Errors: as regraph_launch_graph().
#[no_mangle]
pub unsafe extern "C" fn regraph_graph_prepare(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    stream: regraph_stream,
) -> regraph_error {
    let graph = graph.into();
    call!(engine, engine.of_library(graph, "prepare_graph", |it| it.prepare(named(stream)))?)
}

/// Says whether a graph's executable stays where the pool's budget for executables is short. At first it does
/// not. One that graphs share stays if one of those that were launched by it is pinned.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NOT_INSTANTIATED for a graph of regraph_end_capture().
#[no_mangle]
pub unsafe extern "C" fn regraph_graph_pin(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    pinned: bool,
) -> regraph_error {
    call!(engine, {
        let pin = |graph: &Graph<_>| {
            graph.pin(pinned);
            Ok(())
        };
        engine.of_library(graph.into(), "pin_graph", pin)?
    })
}

/// The device memory that the driver is foreseen to take for an executable of a graph, in bytes; 0 where it
/// cannot tell.
///
/// Threads: any.
///
/// Errors: as regraph_graph_pin(); REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_graph_foreseen_bytes(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    bytes: *mut u64,
) -> regraph_error {
    let graph = graph.into();
    call!(engine, bytes = engine.of_library(graph, "foreseen_bytes", |it| it.foreseen_bytes())?)
}

/// The least memory that the blocks of a graph's capture need, in bytes, in any placement that adds no edges to the
/// graph. The first call takes some milliseconds, or about a second for 100,000 blocks.
///
/// Until the graph is released the library keeps its capture's journal for this, some 50 to 100 bytes of host memory
/// for each node and block; regraph_graph_forget_journal() gives the journal up.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_GRAPH; REGRAPH_ERROR_NO_JOURNAL where the capture kept no journal or it was forgotten.
#[no_mangle]
pub unsafe extern "C" fn regraph_graph_minimum_bytes(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, bytes = engine.minimum_bytes(graph.into())?)
}

/// Frees the journal of a graph's capture, which regraph_graph_minimum_bytes() needs.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_GRAPH.
#[no_mangle]
pub unsafe extern "C" fn regraph_graph_forget_journal(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
) -> regraph_error {
    call!(engine, engine.forget_journal(graph.into())?)
}

/// Releases a graph. Does not wait: if launches by the library are running, the graph keeps its memory until a later
/// launch, capture, synchronization or destruction of its pools finds that they have completed. A graph of
/// regraph_finish_stream_capture() is destroyed then. The executables of a graph of regraph_end_capture() belong to the
/// caller: launches that the library did not make must have completed before this call, and none may follow.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_GRAPH.
#[no_mangle]
pub unsafe extern "C" fn regraph_release_graph(
    engine: *const regraph_engine,
    graph: regraph_graph_id,
) -> regraph_error {
    call!(engine, engine.release_graph(graph.into())?)
}
