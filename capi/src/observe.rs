//! Who is told of requests that failed for want of memory.

use std::ffi::{c_char, c_void};

use regraph::engine::OutOfMemory;

use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{c_text, guard, Failure};
use crate::handles::{raw_stream, regraph_pool, regraph_stream, REGRAPH_NO_LIMIT};

/// Why a request could not be met. All in bytes. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_out_of_memory {
    /// What was asked for.
    pub requested: u64,
    /// The most the pool may hold, or REGRAPH_NO_LIMIT.
    pub limit: u64,
    /// Held by the pool.
    pub reserved: u64,
    /// In the pool's blocks that have not been freed.
    pub allocated: u64,
    /// Free, and the stream could take it if it were in one piece large enough.
    pub takeable: u64,
    /// Free, but not for this stream now.
    pub waiting: u64,
    /// The most that all pools may hold, or REGRAPH_NO_LIMIT.
    pub engine_limit: u64,
    /// Held by all pools of the engine.
    pub engine_reserved: u64,
    /// In blocks of all pools that have not been freed, but for suspended pools.
    pub engine_allocated: u64,
    /// Given back by suspended pools, which ask for it again when they are resumed.
    pub engine_suspended: u64,
    /// Held by pools that belong to graphs, or to captures under way.
    pub in_graphs: u64,
    /// Free on the device; REGRAPH_NO_LIMIT where the driver did not tell.
    pub device_free: u64,
    /// Of the device; REGRAPH_NO_LIMIT where the driver did not tell.
    pub device_total: u64,
    /// The stream that asked.
    pub stream: regraph_stream,
    /// All of this in words, with advice.
    pub text: *const c_char,
    /// The pool.
    pub pool: regraph_pool,
    /// Whether the stream captures, so that nothing could be waited for.
    pub capturing: bool,
    /// Whether segments can grow (the setting "expandable_segments").
    pub growable: bool,
}

/// Told of every request that fails for want of memory, on the thread that made it, before the
/// request returns and with none of the engine's locks held. The report lives as long as the call.
///
/// It may call the engine, but neither destroy it nor begin, end or abandon a capture of the stream
/// that asked. It must return: no longjmp out of it, no C++ exception (the program is ended by one).
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
        let text = c_text(report.to_string());
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
        };
        // SAFETY: the report and its text live until it returns; the rest the caller promised.
        unsafe { (self.callback)(&told, self.user_data) }
    }
}

/// Registers somebody who is told of every request of regraph_allocate() that fails for want of
/// memory. `user_data` is handed to it and may be NULL; what it points to lives as long as the
/// engine, since there is no way to take an observer back. It may be called by several threads at
/// once.
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
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let callback = callback.ok_or(Failure::Null("callback"))?;
        let observer = Observer { callback, user_data };
        on!(engine, engine => engine.observe_out_of_memory(move |report| observer.tell(report)));
        Ok(())
    })
}
