//! Codes of errors.

use std::ffi::{c_char, CStr};

use crate::failure;

/// The result of a call. Every call that can fail returns one; regraph_last_error_message() says more. Unless its
/// documentation says otherwise, a call that fails has changed nothing, and has written nothing through its pointers.
///
/// The numbers are stable. Later versions may add codes: treat an unknown one as a failure.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum regraph_error {
    /// Success.
    REGRAPH_OK = 0,
    /// A pointer is null that must not be.
    REGRAPH_ERROR_NULL = 1,
    /// A text is not UTF-8.
    REGRAPH_ERROR_INVALID_TEXT = 2,
    /// A number is out of its bounds.
    REGRAPH_ERROR_INVALID_ARGUMENT = 3,
    /// Settings, in a text or an environment variable, are not valid. The message says where, and what is allowed.
    REGRAPH_ERROR_SETTINGS = 4,
    /// The call panicked inside the library, which is a bug in the library. The call may have done a part of its work;
    /// an engine whose state may be wrong then refuses all calls (REGRAPH_ERROR_POISONED).
    REGRAPH_ERROR_PANIC = 5,
    /// The library was built without this feature.
    REGRAPH_ERROR_NOT_SUPPORTED = 6,
    /// A regraph_sim call on an engine that is not simulated.
    REGRAPH_ERROR_NOT_SIMULATED = 7,
    /// A file could not be made, written or read.
    REGRAPH_ERROR_IO = 8,
    /// The engine keeps no journal: set "check:True" or regraph_config_set_journal().
    REGRAPH_ERROR_NO_JOURNAL = 9,
    /// The capture's journal exceeds the limits of the trace format.
    REGRAPH_ERROR_NO_TRACE = 10,

    /// There is no CUDA driver on this machine.
    REGRAPH_ERROR_NO_DRIVER = 20,
    /// The CUDA driver is older than 12.3.
    REGRAPH_ERROR_DRIVER_TOO_OLD = 21,
    /// The driver refused a call: regraph_last_driver_code() has its code.
    REGRAPH_ERROR_DRIVER = 22,

    /// The request is for zero bytes.
    REGRAPH_ERROR_ZERO_BYTES = 30,
    /// No memory is proven free for the request and the device, or a limit, allows no more. A
    /// capture under way can go on.
    REGRAPH_ERROR_OUT_OF_MEMORY = 31,
    /// The block is not live: it was freed before, or belongs to another engine.
    REGRAPH_ERROR_UNKNOWN_BLOCK = 32,
    /// The pool is not one of this engine: it was destroyed, or belongs to another engine.
    REGRAPH_ERROR_UNKNOWN_POOL = 33,
    /// The capture is not under way in this engine.
    REGRAPH_ERROR_UNKNOWN_CAPTURE = 34,
    /// The capture was ended or abandoned in the engine, and its stream still captures: end the stream's capture first.
    REGRAPH_ERROR_CAPTURE_ENDED = 35,
    /// The graph is not one of this engine: it was released, or belongs to another engine.
    REGRAPH_ERROR_UNKNOWN_GRAPH = 36,
    /// The stream does not capture, or is not in the capture that the call names.
    REGRAPH_ERROR_NOT_CAPTURING = 37,
    /// An invalid operation has invalidated the capture. The engine has rolled it back.
    REGRAPH_ERROR_CAPTURE_INVALIDATED = 38,
    /// The pool cannot be destroyed yet: blocks, captures, graphs or work use it.
    REGRAPH_ERROR_POOL_IN_USE = 39,
    /// The pool cannot be suspended or compacted now: captures or work use it.
    REGRAPH_ERROR_POOL_BUSY = 40,
    /// The pool's memory would not come back at the same addresses.
    REGRAPH_ERROR_CANNOT_SUSPEND = 41,
    /// The pool is suspended, or short of a part of its memory: resume it first.
    REGRAPH_ERROR_POOL_SUSPENDED = 42,
    /// There is not enough memory to resume the pool. It stays suspended.
    REGRAPH_ERROR_RESUME_OUT_OF_MEMORY = 43,
    /// A stream was set back before work that a reuse of memory relied on. The capture is rolled
    /// back; its graph must not be launched.
    REGRAPH_ERROR_SET_BACK = 44,
    /// The per-thread default stream is a different stream in every thread: create a stream.
    REGRAPH_ERROR_PER_THREAD_STREAM = 45,
    /// The stream cannot be retired yet: it captures, or was recorded for a live block.
    REGRAPH_ERROR_STREAM_IN_USE = 46,
    /// A thread panicked inside the engine, whose state may be wrong: it refuses all calls.
    REGRAPH_ERROR_POISONED = 47,
    /// The checker refuses the capture. It is rolled back; its graph must not be launched.
    REGRAPH_ERROR_REFUSED = 48,
    /// The capture uses a block later than was recorded, and regraph_config_set_refuse_late_uses() is set. It is rolled
    /// back; its graph must not be launched.
    REGRAPH_ERROR_LATE_USE = 49,
    /// The capture cannot have a plan: the device cannot map memory at its end.
    REGRAPH_ERROR_CANNOT_PLAN = 50,
    /// At its end the capture needs more memory than there is. It is rolled back; its graph must not be launched.
    REGRAPH_ERROR_PLAN_OUT_OF_MEMORY = 51,
    /// The capture was ended without its graph, so its blocks are not backed by memory. The graph must not be launched.
    REGRAPH_ERROR_UNPLANNED = 52,
    /// The stream is capturing, and the call needs one that is not.
    REGRAPH_ERROR_CAPTURING = 53,
    /// No event could be recorded after an earlier launch in the pool, so no launch can be ordered
    /// after that one, now or later: create another pool and capture there. Graphs of this one that are
    /// released from now on keep their memory.
    REGRAPH_ERROR_ORDER_LOST = 54,
    /// The caller ended the graph's capture with regraph_end_capture(), so its executables are the
    /// caller's: see regraph_launch_executable().
    REGRAPH_ERROR_NOT_INSTANTIATED = 55,
    /// Live blocks of the pool belong to no graph: free them, or see regraph_pool_suspend_discarding().
    REGRAPH_ERROR_POOL_HAS_BLOCKS = 56,
    /// As REGRAPH_ERROR_REFUSED, but only because a kernel was launched programmatically: capture the
    /// same work again (see regraph_set_attempt()).
    REGRAPH_ERROR_CAPTURE_AGAIN = 57,
    /// The checker refuses to have the pool compacted: a flaw of the engine. All graphs and blocks have
    /// the memory that they had.
    REGRAPH_ERROR_COMPACTION_REFUSED = 58,
    /// The graph was not launched: blocks live in memory that its pool has lent, and the launch would
    /// overwrite them. Free them first (see regraph_pool_borrow()).
    REGRAPH_ERROR_BLOCKS_LENT = 59,
    /// The graph was not launched: a stream has used memory that its pool has lent, and the engine cannot
    /// record an event on it now, because it captures or belongs to another thread.
    REGRAPH_ERROR_LENT_WORK = 60,
    /// The pool's region is asleep, and wakes by regraph_regions_wake() alone.
    REGRAPH_ERROR_POOL_ASLEEP = 61,
    /// No pool has this tag, and nothing was said of it.
    REGRAPH_ERROR_UNKNOWN_REGION = 62,
    /// A stream of the device captures, so the device cannot be waited for: end the capture first.
    REGRAPH_ERROR_DEVICE_CAPTURES = 63,
    /// A graph of the pool may be running: see regraph_regions_sleep().
    REGRAPH_ERROR_POOL_RUNS = 64,
    /// The host has no page-locked memory left for what a region holds: see regraph_regions_set_backup().
    REGRAPH_ERROR_HOST_OUT_OF_MEMORY = 65,
    /// The graph was not launched: its executable does not fit into the pool's budget for executables, beside
    /// what is pinned (see regraph_pool_keep_executables()).
    REGRAPH_ERROR_NO_EXECUTABLE = 66,
    /// The engine was destroyed.
    REGRAPH_ERROR_DESTROYED = 67,
    /// The pool has nothing of this size to lend to another process now: see regraph_pool_lend().
    REGRAPH_ERROR_NOTHING_LENT = 68,
    /// The memory cannot be shared with other processes: it was not made for that (the setting
    /// "exportable:True"), or the system refuses.
    REGRAPH_ERROR_NOT_SHARED = 69,
    /// The loan of another process cannot be had: the handle names none, it was taken or called back before, or
    /// its process cannot be reached.
    REGRAPH_ERROR_NOT_TAKEN = 70,
    /// There is no such loan: it was given back, or belongs to another engine.
    REGRAPH_ERROR_UNKNOWN_LOAN = 71,

    /// Anything else; the message says what.
    REGRAPH_ERROR_OTHER = 99,
}

macro_rules! names {
    ($($name:ident)*) => {
        /// Every code with its name.
        const NAMES: &[(regraph_error, &str)] =
            &[$((regraph_error::$name, concat!(stringify!($name), "\0"))),*];
    };
}

names! {
    REGRAPH_OK REGRAPH_ERROR_NULL REGRAPH_ERROR_INVALID_TEXT REGRAPH_ERROR_INVALID_ARGUMENT
    REGRAPH_ERROR_SETTINGS REGRAPH_ERROR_PANIC REGRAPH_ERROR_NOT_SUPPORTED
    REGRAPH_ERROR_NOT_SIMULATED REGRAPH_ERROR_IO REGRAPH_ERROR_NO_JOURNAL REGRAPH_ERROR_NO_TRACE
    REGRAPH_ERROR_NO_DRIVER REGRAPH_ERROR_DRIVER_TOO_OLD REGRAPH_ERROR_DRIVER
    REGRAPH_ERROR_ZERO_BYTES REGRAPH_ERROR_OUT_OF_MEMORY REGRAPH_ERROR_UNKNOWN_BLOCK
    REGRAPH_ERROR_UNKNOWN_POOL REGRAPH_ERROR_UNKNOWN_CAPTURE REGRAPH_ERROR_CAPTURE_ENDED
    REGRAPH_ERROR_UNKNOWN_GRAPH REGRAPH_ERROR_NOT_CAPTURING REGRAPH_ERROR_CAPTURE_INVALIDATED
    REGRAPH_ERROR_POOL_IN_USE REGRAPH_ERROR_POOL_BUSY REGRAPH_ERROR_CANNOT_SUSPEND
    REGRAPH_ERROR_COMPACTION_REFUSED
    REGRAPH_ERROR_POOL_SUSPENDED REGRAPH_ERROR_RESUME_OUT_OF_MEMORY REGRAPH_ERROR_SET_BACK
    REGRAPH_ERROR_PER_THREAD_STREAM REGRAPH_ERROR_STREAM_IN_USE REGRAPH_ERROR_POISONED
    REGRAPH_ERROR_REFUSED REGRAPH_ERROR_LATE_USE REGRAPH_ERROR_CANNOT_PLAN
    REGRAPH_ERROR_PLAN_OUT_OF_MEMORY REGRAPH_ERROR_UNPLANNED REGRAPH_ERROR_CAPTURING
    REGRAPH_ERROR_ORDER_LOST REGRAPH_ERROR_NOT_INSTANTIATED REGRAPH_ERROR_POOL_HAS_BLOCKS
    REGRAPH_ERROR_CAPTURE_AGAIN REGRAPH_ERROR_BLOCKS_LENT REGRAPH_ERROR_LENT_WORK
    REGRAPH_ERROR_POOL_ASLEEP REGRAPH_ERROR_UNKNOWN_REGION REGRAPH_ERROR_DEVICE_CAPTURES
    REGRAPH_ERROR_POOL_RUNS REGRAPH_ERROR_HOST_OUT_OF_MEMORY REGRAPH_ERROR_NO_EXECUTABLE
    REGRAPH_ERROR_DESTROYED REGRAPH_ERROR_NOTHING_LENT REGRAPH_ERROR_NOT_SHARED
    REGRAPH_ERROR_NOT_TAKEN REGRAPH_ERROR_UNKNOWN_LOAN
    REGRAPH_ERROR_OTHER
}

/// The name of a code, such as "REGRAPH_ERROR_OUT_OF_MEMORY"; "unknown" for any other number. The text is never freed.
///
/// Threads: any.
#[no_mangle]
pub extern "C" fn regraph_error_name(error: i32) -> *const c_char {
    let found = NAMES.iter().find(|(code, _)| *code as i32 == error);
    let name = found.map_or("unknown\0", |(_, name)| name);
    CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default().as_ptr()
}

/// The message of the latest call that failed on this thread: for people, not for parsing; empty if none has
/// failed. Valid until this thread calls this function again: calls that fail meanwhile leave it alone.
///
/// Threads: any; each has its own message.
#[no_mangle]
pub extern "C" fn regraph_last_error_message() -> *const c_char {
    failure::last_message()
}

/// The driver's code (CUresult) of the latest call that failed on this thread; 0 if that call did
/// not fail in the driver.
///
/// Threads: any; each has its own code.
#[no_mangle]
pub extern "C" fn regraph_last_driver_code() -> u32 {
    failure::last_driver_code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_name() {
        let source = include_str!("error.rs");
        let mut codes = 0;
        for line in source.lines() {
            let Some((name, number)) = line.trim().split_once(" = ") else { continue };
            let Ok(number) = number.trim_end_matches(',').parse() else { continue };
            // SAFETY: names are never freed and end with a nul.
            let told = unsafe { CStr::from_ptr(regraph_error_name(number)) };
            assert_eq!(told.to_str(), Ok(name));
            codes += 1;
        }
        assert_eq!(codes, NAMES.len());
        // SAFETY: as above.
        let told = unsafe { CStr::from_ptr(regraph_error_name(-1)) };
        assert_eq!(told.to_str(), Ok("unknown"));
    }
}
