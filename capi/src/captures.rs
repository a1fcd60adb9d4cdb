//! Captures, graphs and streams.

use std::ffi::c_char;

use regraph::engine::{Attempt, CaptureReport, PlanReport};
use regraph::plan::Options;

use crate::arguments::text;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{Failure, Fallible};
use crate::handles::{
    capture as numbered, graph as handle, regraph_capture_id, regraph_graph, regraph_graph_id,
    regraph_pool, regraph_stream, stream as named,
};
use crate::snapshot::write_file;

/// The results of a capture.
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
    /// How often the engine asked the driver for a node's dependencies during the capture.
    pub dependency_queries: u64,
    /// Nodes that use a block later than was recorded, as far as their parameters show it; at most
    /// 100. Zero unless regraph_config_set_find_late_uses() is on and the capture keeps a journal.
    pub late_uses: u64,
    /// Whether the checker verified the capture.
    pub verified: bool,
    /// The memory that was mapped at the capture's end, in bytes; zero without a plan (regraph_plan_capture()).
    pub planned_bytes: u64,
    /// The part of planned_bytes that is new: the rest is shared with other graphs of the pool.
    pub planned_new_bytes: u64,
    /// The least memory that these blocks need by themselves, in bytes: whole units of the device's granularity.
    pub planned_minimum_bytes: u64,
    /// How many mappings that memory has: a piece may be mapped at several addresses.
    pub mappings: u64,
    /// Blocks that regraph_repeat_stream_capture() planned an address for; zero without that call.
    pub layout_blocks: u64,
    /// How many of them lie at that address.
    pub layout_followed: u64,
    /// How much longer the capture took for its plan, in percent of its time until then, to plan and to
    /// map; zero without a plan.
    pub plan_share_percent: u64,
    /// With how many mappings that would be 15 percent, if it is more: a bound for max_mappings in
    /// regraph_plan_options, at which the same capture may take more
    /// memory. Else zero, and where planning alone takes longer.
    pub mappings_within_share: u64,
}

/// Bounds of a plan for the memory that is mapped at a capture's end. All zero means no bounds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct regraph_plan_options {
    /// The most mappings; zero means as many as the least memory needs.
    pub max_mappings: u64,
    /// The most bytes in a piece of memory; zero means any. With pieces of the device's granularity
    /// the graphs of a pool together need no more memory than the largest of them.
    pub max_piece_bytes: u64,
    /// The most time for mapping, in percent of the capture's own time; zero means any.
    pub max_share_percent: u64,
    /// How many graphs with plans the pool is to have at one time, this one too; zero means any number.
    /// Memory is cut into pieces for later graphs, which takes mappings: not that of the last.
    pub pool_graphs: u64,
    /// Zero. Later versions may give these names.
    pub unused: [u64; 4],
}

impl regraph_plan_options {
    fn options(&self) -> Options {
        let some = |value: u64| (value > 0).then_some(value);
        let count = |value: u64| some(value).map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        Options::default()
            .max_mappings(count(self.max_mappings))
            .max_piece_bytes(some(self.max_piece_bytes))
            .max_share_percent(some(self.max_share_percent))
            .pool_graphs(count(self.pool_graphs))
    }
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
            plan_share_percent: plan.share_percent(),
            mappings_within_share: plan.mappings_within(PlanReport::SHARE_PERCENT).unwrap_or(0)
                as u64,
        }
    }
}

/// Tells the engine that `stream` has begun to capture and that the capture uses `pool`. Call it
/// after cuStreamBeginCapture(). `capture` gets the capture's id.
///
/// The first allocation on a stream that captures does the same. If the graph has conditional nodes, the engine must
/// know its capture in each pool that the body of a conditional node is captured into, by this call or by an allocation,
/// before the body is captured, and the capture must end after that of the body. A capture that uses blocks of a pool
/// without allocating from it should name that pool here too.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_NOT_CAPTURING, REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_CAPTURE_ENDED,
/// REGRAPH_ERROR_UNKNOWN_POOL, REGRAPH_ERROR_POOL_SUSPENDED, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER.
/// REGRAPH_ERROR_INVALID_ARGUMENT for the pool of an estimate (regraph_estimate_begin()).
#[no_mangle]
pub unsafe extern "C" fn regraph_begin_capture(
    engine: *const regraph_engine,
    pool: regraph_pool,
    stream: regraph_stream,
    capture: *mut regraph_capture_id,
) -> regraph_error {
    call!(engine, capture = engine.begin_capture(pool.into(), named(stream))?.0)
}

/// Has the memory of a capture mapped at the capture's end, as little as the graph can run on. With
/// `options` NULL memory is mapped as blocks are allocated, even if the settings ask for a plan.
/// Call it before the capture's first allocation.
///
/// With a plan, blocks are not backed by memory until regraph_end_capture() or regraph_finish_stream_capture() has
/// returned: until then the graph is not launched, work outside the capture does not touch these blocks, and they are
/// not registered or exported. Blocks for such uses come from regraph_allocate_fixed(). What work that is not captured
/// writes to them until then is not in the memory that they get.
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
    call!(engine, {
        let options = options.as_ref().map(|told| told.options());
        engine.plans().plan_capture(numbered(capture), options)?
    })
}

/// The first attempt, of a program that captures again after REGRAPH_ERROR_CAPTURE_AGAIN.
pub const REGRAPH_ATTEMPT_FIRST: i32 = 0;
/// The second attempt, or the only one of a program that may be unable to capture again. The default.
pub const REGRAPH_ATTEMPT_AGAIN: i32 = 1;
/// The third attempt, which is not refused for a programmatic launch.
pub const REGRAPH_ATTEMPT_LAST: i32 = 2;

fn attempt_of(number: i32) -> Fallible<Attempt> {
    match number {
        REGRAPH_ATTEMPT_FIRST => Ok(Attempt::First),
        REGRAPH_ATTEMPT_AGAIN => Ok(Attempt::Again),
        REGRAPH_ATTEMPT_LAST => Ok(Attempt::Last),
        other => {
            Err(Failure::argument("attempt", other, "a REGRAPH_ATTEMPT constant, from 0 to 2"))
        }
    }
}

/// Sets which attempt at its work a capture is: one of the REGRAPH_ATTEMPT constants. Call it before the capture's
/// first allocation. A program that captures the same work again after REGRAPH_ERROR_CAPTURE_AGAIN, and numbers its
/// attempts from REGRAPH_ATTEMPT_FIRST on, needs the least memory. Without the checker ("check:False"), and with
/// another setting than "programmatic:auto", the call has no effect.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_INVALID_ARGUMENT.
#[no_mangle]
pub unsafe extern "C" fn regraph_set_attempt(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    attempt: i32,
) -> regraph_error {
    call!(engine, engine.set_attempt(numbered(capture), attempt_of(attempt)?)?)
}

/// Ends a capture. `graph` is the graph under capture (cuStreamGetCaptureInfo()), just before cuStreamEndCapture(), or
/// the graph which that returned. The first is better: the engine can then look at the streams once more. All uses of
/// the capture's blocks must be recorded before. `report` may be NULL, but regraph_launch_executable() and
/// regraph_release_graph() take the report's graph id.
///
/// With the setting "check" the checker verifies the capture against the finished graph. After
/// success, memory of blocks that the capture freed can be used by later captures into the same
/// pools; blocks that it did not free stay allocated, as outputs of the graph. Graphs of one pool
/// must never run at the same time: regraph_launch_executable() orders their launches.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_REFUSED, REGRAPH_ERROR_CAPTURE_AGAIN, REGRAPH_ERROR_SET_BACK, REGRAPH_ERROR_LATE_USE, and with
/// a plan REGRAPH_ERROR_PLAN_OUT_OF_MEMORY: the graph must not be launched, and the capture is rolled back as by
/// regraph_abandon_capture(). REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NULL.
/// REGRAPH_ERROR_INVALID_ARGUMENT for a capture of regraph_begin_stream_capture(), and for one that uses the pool of an
/// estimate (regraph_estimate_begin()): the capture stays under way.
#[no_mangle]
pub unsafe extern "C" fn regraph_end_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    graph: regraph_graph,
    report: *mut regraph_capture_report,
) -> regraph_error {
    call!(engine, Some(report) = engine.end_capture(numbered(capture), handle(graph)?)?.into())
}

/// The first of two steps that end a capture: as regraph_end_capture(), but without the checker's verdict, which
/// regraph_capture_verdict() waits for. The checker judges a copy of the graph on a thread of the library's; meanwhile
/// the caller may end the capture with cuStreamEndCapture(), instantiate the graph, and destroy it. The graph must not
/// be launched before regraph_capture_verdict() has accepted it. Later captures into the same pools may use the
/// capture's memory at once.
///
/// The checker judges before this returns: captures of few nodes, captures whose memory is mapped at
/// their end, captures that are searched for late uses (regraph_config_set_find_late_uses()) and, unless
/// the setting "programmatic" is "lag" or "trust", captures with a programmatic launch.
///
/// Threads: the one that captures.
///
/// Errors: those of regraph_end_capture(). There is no verdict to ask for then.
#[no_mangle]
pub unsafe extern "C" fn regraph_close_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    graph: regraph_graph,
) -> regraph_error {
    call!(engine, engine.close_capture(numbered(capture), handle(graph)?)?)
}

/// The second of two steps that end a capture: waits for the checker's verdict on a capture that
/// regraph_close_capture() has closed. May be called once for each capture. `report` may be NULL, as
/// for regraph_end_capture().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_REFUSED: the graph must not be launched, and the library has released its
/// memory as regraph_release_graph() does.
/// REGRAPH_ERROR_UNKNOWN_CAPTURE for a capture that is not closed, or whose verdict was given before.
#[no_mangle]
pub unsafe extern "C" fn regraph_capture_verdict(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    report: *mut regraph_capture_report,
) -> regraph_error {
    call!(engine, Some(report) = engine.verdict(numbered(capture))?.into())
}

/// Rolls a capture back whose graph will never run; also one that regraph_close_capture() has closed and whose verdict
/// was not asked for. Blocks that the capture allocated and did not free stay live until they are freed, and must not
/// be used. A capture of regraph_begin_stream_capture() ends on its stream too.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE.
#[no_mangle]
pub unsafe extern "C" fn regraph_abandon_capture(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
) -> regraph_error {
    call!(engine, engine.abandon_capture(numbered(capture))?)
}

/// The least memory that the blocks of a capture under way need so far, in bytes, in any placement
/// that adds no edges to the graph: regraph_graph_minimum_bytes() when the capture has ended. Takes
/// some milliseconds, or about a second for 100,000 blocks.
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
    call!(engine, bytes = engine.plans().minimum_of(numbered(capture))?)
}

/// Reads the terminals of a stream. A host that sets a capturing stream back with
/// cuStreamUpdateCaptureDependencies() calls this before and after.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_CAPTURE_INVALIDATED, REGRAPH_ERROR_PER_THREAD_STREAM, REGRAPH_ERROR_DRIVER.
#[no_mangle]
pub unsafe extern "C" fn regraph_observe_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.observe(named(stream))?)
}

/// Records the position of a stream outside captures: blocks that were freed on it so far become
/// free for other streams when the stream has completed its work up to here. Worth a call before
/// the stream captures. The stream then belongs to the calling thread.
///
/// Threads: any; not while another one captures on the stream.
///
/// Errors: REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_mark_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.mark_stream(named(stream))?)
}

/// Tells the engine that the calling thread is about to begin a capture on a stream. From then on no
/// other thread's call records an event on the stream, which the driver could crash of. A program
/// whose threads share the engine calls it before the first capture of each thread, and of each
/// other engine that has blocks which the stream has used.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_may_capture(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.host().may_capture(named(stream))?)
}

/// Tells the engine that a stream is about to be destroyed. Blocks that were freed on it become
/// free for other streams when its work has completed; its live blocks can still be freed later.
///
/// Threads: any; not while another one captures on the stream.
///
/// Errors: REGRAPH_ERROR_STREAM_IN_USE: the stream must live on. REGRAPH_ERROR_PER_THREAD_STREAM.
#[no_mangle]
pub unsafe extern "C" fn regraph_retire_stream(
    engine: *const regraph_engine,
    stream: regraph_stream,
) -> regraph_error {
    call!(engine, engine.retire_stream(named(stream))?)
}

/// Writes the journal of a capture under way to a file, as a trace that `regraph replay` runs. Call
/// it before regraph_end_capture(). `origin` is the stream that the capture began on, `path` a file
/// name in UTF-8; a file that is there is replaced.
///
/// Threads: the one that captures.
///
/// Errors: REGRAPH_ERROR_UNKNOWN_CAPTURE, REGRAPH_ERROR_NO_JOURNAL, REGRAPH_ERROR_NO_TRACE,
/// REGRAPH_ERROR_IO, REGRAPH_ERROR_INVALID_TEXT. REGRAPH_ERROR_INVALID_ARGUMENT where `origin` is not in the
/// capture, or not the stream of regraph_begin_stream_capture().
#[no_mangle]
pub unsafe extern "C" fn regraph_write_trace(
    engine: *const regraph_engine,
    capture: regraph_capture_id,
    origin: regraph_stream,
    path: *const c_char,
) -> regraph_error {
    call!(engine, {
        let path = text(path, "path")?;
        let journal = engine.host().journal(numbered(capture))?.ok_or(Failure::NoJournal)?;
        engine.must_have_begun_on(numbered(capture), named(origin))?;
        let sources = regraph_trace::Sources::of(engine, numbered(capture))?;
        let trace = regraph_trace::from_journal(&journal, named(origin), 0, &sources)?;
        write_file(path, |output| regraph_trace::write(&trace, output))?
    })
}
