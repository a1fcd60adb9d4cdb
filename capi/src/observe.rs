//! Observers of requests that fail for lack of memory.

use std::ffi::{c_char, c_void};

use regraph::engine::OutOfMemory;

use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{c_text, in_c, Failure};
use crate::handles::{raw_stream, regraph_pool, regraph_stream, REGRAPH_NO_LIMIT};

/// Why a request failed. All in bytes. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_out_of_memory {
    /// The size that was requested.
    pub requested: u64,
    /// The most the pool may hold, or REGRAPH_NO_LIMIT.
    pub limit: u64,
    /// Held by the pool.
    pub reserved: u64,
    /// In the pool's blocks that have not been freed.
    pub allocated: u64,
    /// Free and proven for the stream, but fragmented.
    pub takeable: u64,
    /// Free, but not yet usable by this stream: work or captures are to complete first.
    pub waiting: u64,
    /// The most that all pools may hold, or REGRAPH_NO_LIMIT.
    pub engine_limit: u64,
    /// Held by all pools of the engine.
    pub engine_reserved: u64,
    /// In blocks of all pools that have not been freed, but for suspended pools.
    pub engine_allocated: u64,
    /// Given back by suspended pools, which need it again when they are resumed.
    pub engine_suspended: u64,
    /// Held by pools that belong to graphs, or to captures under way.
    pub in_graphs: u64,
    /// Free on the device; REGRAPH_NO_LIMIT if the driver does not know.
    pub device_free: u64,
    /// The device's memory; REGRAPH_NO_LIMIT if the driver does not know.
    pub device_total: u64,
    /// The stream of the request.
    pub stream: regraph_stream,
    /// All of this in words, with advice.
    pub text: *const c_char,
    /// The pool.
    pub pool: regraph_pool,
    /// Whether the stream captures, so that the call could not wait for work.
    pub capturing: bool,
    /// Whether segments can grow (the setting "expandable_segments").
    pub growable: bool,
    /// Free, but used by graphs of the pool as long as they live.
    pub kept_by_graphs: u64,
}

/// Called for every request that fails for lack of memory, on the thread of the request, before the
/// request returns and without any lock of the engine. The report lives as long as the call.
///
/// The callback may call the engine, but must not destroy it, nor begin, end or abandon a capture
/// of the request's stream. It must return: no longjmp, no C++ exception (which ends the program).
pub type regraph_out_of_memory_callback =
    Option<unsafe extern "C" fn(report: *const regraph_out_of_memory, user_data: *mut c_void)>;

struct Observer {
    callback: unsafe extern "C" fn(*const regraph_out_of_memory, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the caller promised that the callback may be called on any thread, with the data.
unsafe impl Send for Observer {}
// SAFETY: and on several at once.
unsafe impl Sync for Observer {}

impl Observer {
    fn tell(&self, report: &OutOfMemory) {
        let text = c_text(in_c(report.to_string()));
        let known = |bytes: Option<u64>| bytes.unwrap_or(REGRAPH_NO_LIMIT);
        let told = regraph_out_of_memory {
            requested: report.requested,
            limit: known(report.limit),
            reserved: report.reserved,
            allocated: report.allocated,
            takeable: report.takeable,
            waiting: report.waiting,
            engine_limit: known(report.engine_limit),
            engine_reserved: report.engine_reserved,
            engine_allocated: report.engine_allocated,
            engine_suspended: report.engine_suspended,
            in_graphs: report.in_graphs,
            device_free: known(report.device_free),
            device_total: known(report.device_total),
            stream: raw_stream(report.stream),
            text: text.as_ptr(),
            pool: report.pool.id.into(),
            capturing: report.capturing,
            growable: report.growable,
            kept_by_graphs: report.kept_by_graphs,
        };
        // SAFETY: the report and its text live until the callback returns; the caller promised the rest.
        unsafe { (self.callback)(&told, self.user_data) }
    }
}

/// Registers a callback for every request that fails for lack of memory: for blocks
/// (regraph_allocate(), regraph_allocate_fixed() and their like), for pools and regions that cannot come back
/// (regraph_pool_resume(), regraph_regions_wake()), and for captures with a plan that cannot have their memory at
/// their end. It gets `user_data`, which may be NULL and must point to something that lives as long as the
/// engine: a callback cannot be removed. Several threads may call it at once.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL.
#[no_mangle]
pub unsafe extern "C" fn regraph_observe_out_of_memory(
    engine: *const regraph_engine,
    callback: regraph_out_of_memory_callback,
    user_data: *mut c_void,
) -> regraph_error {
    call!(engine, {
        let callback = callback.ok_or(Failure::Null("callback"))?;
        let observer = Observer { callback, user_data };
        engine.observe_out_of_memory(move |report| observer.tell(report))
    })
}
