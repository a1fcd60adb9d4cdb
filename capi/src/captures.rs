//! Captures, graphs and streams.

use std::ffi::c_char;

use regraph::engine::CaptureReport;
use regraph::plan::Options;

use crate::arguments::{put_if_wanted, text, Out};
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{guard, Failure};
use crate::handles::{
    capture as numbered, graph as handle, regraph_capture_id, regraph_graph, regraph_graph_id,
    regraph_pool, regraph_stream, stream as named,
};
use crate::snapshot::write_file;

/// What a capture came to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_capture_report {
    /// The capture.
    pub capture: regraph_capture_id,
    /// The graph's claim on its pools: release it when the graph is destroyed.
    pub graph: regraph_graph_id,
    /// Nodes that the engine saw.
    pub nodes: u64,
    /// Blocks allocated in the capture.
    pub blocks: u64,
    /// How often the driver was asked for a node's dependencies while the capture was recorded.
    pub dependency_queries: u64,
    /// Nodes that use a block later than was recorded, as far as their parameters show it; at most
    /// 100. Zero unless regraph_config_set_find_late_uses() is set and a journal is kept.
    pub late_uses: u64,
    /// Whether the checker judged the capture.
    pub verified: bool,
    /// The memory that came at the capture's end, in bytes; zero where none did
    /// (regraph_plan_capture()).
    pub planned_bytes: u64,
    /// Of that, what is new: the rest is shared with other graphs of the pool.
    pub planned_new_bytes: u64,
    /// The least that these blocks need in whole units of the device's granularity, alone, in bytes.
    pub planned_minimum_bytes: u64,
    /// How often pieces of that memory are mapped.
    pub mappings: u64,
    /// Blocks that regraph_repeat_stream_capture() planned a place for; zero without it.
    pub layout_blocks: u64,
    /// Of them those that lie there.
    pub layout_followed: u64,
}

/// Bounds of the memory that comes at a capture's end. All zero for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct regraph_plan_options {
    /// The most mappings; zero for as many as the least memory needs.
    pub max_mappings: u64,
    /// The most bytes of a piece of memory; zero for any. Pools of many graphs need no more than their
    /// largest with pieces of the device's granularity.
    pub max_piece_bytes: u64,
    /// The most time for mapping, as a share of the capture's own, in percent; zero for any.
    pub max_share_percent: u64,
    /// Zero. Later versions may give these names.
    pub unused: [u64; 5],
}

impl From<CaptureReport> for regraph_capture_report {
    fn from(report: CaptureReport) -> Self {
        let plan = report.plan.unwrap_or_default();
        Self {
            capture: report.capture.0,
            graph: report.graph.into(),
            nodes: report.nodes as u64,
            blocks: report.blocks as u64,
            dependency_queries: report.dependency_queries,
            late_uses: report.late_uses.len() as u64,
            verified: report.verified,
            planned_bytes: plan.bytes,
            planned_new_bytes: plan.new_bytes,
            planned_minimum_bytes: plan.minimum_bytes,
            mappings: plan.mappings as u64,
            layout_blocks: report.layout.as_ref().map_or(0, |layout| layout.planned as u64),
            layout_followed: report.layout.as_ref().map_or(0, |layout| layout.followed as u64),
        }
    }
}

/// Tells the engine that `stream` has begun to capture and that the capture uses `pool`. Call it
/// after cuStreamBeginCapture(). `capture` gets the capture's number.
///
/// The first allocation on a stream that captures does the same. A capture whose graph has
/// conditional nodes must be announced, by either, before one of their bodies is captured into the
/// same pool, and ended after. A capture that uses blocks of a pool it does not allocate from should
/// be announced for that pool too.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_NOT_CAPTURING, REGRAPH_ERROR_CAPTURE_INVALIDATED,
/// REGRAPH_ERROR_CAPTURE_ENDED, REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED,
/// REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_begin_capture(
    engine: *const regraph_engine,
    pool: regraph_pool,
    stream: regraph_stream,
    capture: *mut regraph_capture_id,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) =
            unsafe { (regraph_engine::read(engine)?, Out::needed(capture, "capture")?) };
        let begun = on!(engine, engine => engine.begin_capture(pool.into(), named(stream)))?;
        out.put(begun.0);
        Ok(())
    })
}

/// Gives a capture under way its memory at its end, as little as it can run on; with `options` NULL its
/// memory comes with its blocks, whatever the settings say. Call it before anything is allocated in the
/// capture.
///
/// Blocks of at least half the device's granularity then have addresses and no memory of their own until
/// regraph_end_capture() has returned: the graph is not launched before, nothing outside the capture
/// touches them, and nothing of them is registered or exported. Memory for such uses comes from
/// regraph_allocate_fixed().
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; REGRAPH_ERROR_CANNOT_PLAN where the device has no virtual
/// memory management. regraph_end_capture() may then fail with REGRAPH_ERROR_PLAN_OUT_OF_MEMORY.
#[no_mangle]
pub unsafe extern "C" fn regraph_plan_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    options: *const regraph_plan_options,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, options) = unsafe { (regraph_engine::read(engine)?, options.as_ref()) };
        let options = options.map(|told| {
            let some = |value: u64| (value > 0).then_some(value);
            let mappings = some(told.max_mappings);
            Options::default()
                .max_mappings(mappings.map(|most| usize::try_from(most).unwrap_or(usize::MAX)))
                .max_piece_bytes(some(told.max_piece_bytes))
                .max_share_percent(some(told.max_share_percent))
        });
        Ok(on!(engine, engine => engine.plan_capture(numbered(capture), options))?)
    })
}

/// Ends a capture. `graph` is the handle under capture, just before cuStreamEndCapture(), or the one
/// that this gave. The first is better: the engine can then look at the streams once more. Every use
/// of the capture's blocks is recorded before. `report` may be NULL, but its graph id is what
/// regraph_release_graph() takes.
///
/// With the setting "check" the checker judges the capture on the finished graph. If it accepts, what
/// the capture freed is there for later captures into the same pools, blocks not freed stay allocated
/// as the graph's outputs, and the pools belong to one more graph. Graphs of one pool must never run
/// at once: regraph_launch_executable() sees to that.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_REFUSED, REGRAPH_ERROR_SET_BACK, REGRAPH_ERROR_LATE_USE: the graph must not
/// be launched, and the capture is rolled back as by regraph_abandon_capture().
/// REGRAPH_ERROR_PLAN_OUT_OF_MEMORY, likewise, where memory was to come at the end
/// (regraph_plan_capture()). REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_UNKNOWN_CAPTURE.
/// REGRAPH_ERROR_INVALID_ARGUMENT for a capture of regraph_begin_stream_capture().
#[no_mangle]
pub unsafe extern "C" fn regraph_end_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    graph: regraph_graph,
    report: *mut regraph_capture_report,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let (capture, graph) = (numbered(capture), handle(graph));
        let told = on!(engine, engine => engine.end_capture(capture, graph))?;
        // SAFETY: the contract of all calls.
        unsafe { put_if_wanted(report, told.into()) };
        Ok(())
    })
}

/// Rolls back every decision taken in a capture whose graph will never run. Blocks that it allocated
/// and did not free stay live until freed; nothing else may be done with them. A capture of
/// regraph_begin_stream_capture() ends on its stream too.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE.
#[no_mangle]
pub unsafe extern "C" fn regraph_abandon_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.abandon_capture(numbered(capture)))?)
    })
}

/// The least memory that the blocks of a capture under way need so far, in bytes, in any placement that
/// adds no edges to the graph: regraph_graph_minimum_bytes() when the capture has ended. Takes some
/// milliseconds, or about a second for 100,000 blocks.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE; REGRAPH_ERROR_NO_JOURNAL where captures keep no journal.
#[no_mangle]
pub unsafe extern "C" fn regraph_capture_minimum_bytes(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    bytes: *mut u64,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) =
            unsafe { (regraph_engine::read(engine)?, Out::needed(bytes, "bytes")?) };
        out.put(on!(engine, engine => engine.minimum_of(numbered(capture)))?);
        Ok(())
    })
}

/// Looks at a stream, so that the engine knows its terminals as they are now. A host that sets a
/// capturing stream's terminals back by hand (cuStreamUpdateCaptureDependencies()) calls this before
/// and after.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_observe_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.observe(named(stream)))?)
    })
}

/// Marks where a stream stands outside captures, so that what it gave back up to now can be told to
/// be free for others once it has completed that; worth a call before it captures. The stream then
/// belongs to the calling thread.
///
/// Threads: any; not while another one captures on the stream.
///
/// Errors: REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_mark_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.mark_stream(named(stream)))?)
    })
}

/// Tells the engine that a stream is about to be destroyed. What it gave back becomes free for others
/// when its work has completed; blocks of it that are live can be freed later.
///
/// Threads: any; not while another one captures on the stream.
///
/// Errors: REGRAPH_ERROR_STREAM_IN_USE: the stream must live on. REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_retire_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        Ok(on!(engine, engine => engine.retire_stream(named(stream)))?)
    })
}

/// Writes what has been recorded of a capture that is under way to a file, as a trace that
/// `regraph replay` runs. Call it before regraph_end_capture(). `origin` is the stream that the
/// capture began on, `path` a file name in UTF-8; a file that is there is replaced.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NO_JOURNAL, REGRAPH_ERROR_NO_TRACE,
/// REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT.
#[no_mangle]
pub unsafe extern "C" fn regraph_write_trace(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    origin: regraph_stream,
    path: *const c_char,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, path) = unsafe { (regraph_engine::read(engine)?, text(path, "path")?) };
        let journal = on!(engine, engine => engine.journal(numbered(capture)))?;
        let journal = journal.ok_or(Failure::NoJournal)?;
        let trace = regraph_trace::from_journal(&journal, named(origin), 0)?;
        write_file(path, |output| regraph_trace::write(&trace, output))
    })
}
