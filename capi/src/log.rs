//! The library's messages.

use std::ffi::{c_char, c_void};

use log::{Level, LevelFilter, Log, Metadata, Record};
use regraph::sync::{Mutex, Rank};

use crate::error::regraph_error;
use crate::failure::{c_text, guard, in_c, Failure};

/// A message of something that failed.
pub const REGRAPH_LOG_ERROR: i32 = 1;
/// A message of something that a program should know.
pub const REGRAPH_LOG_WARNING: i32 = 2;
/// A message of something that happens seldom: an engine, a verdict on a capture, a plan, sleep, shortage of memory.
pub const REGRAPH_LOG_INFO: i32 = 3;
/// A message of each growth, each give back, each capture, pool and loan.
pub const REGRAPH_LOG_DEBUG: i32 = 4;

/// Called for every message of the library, one at a time, on the thread that the message comes from.
/// `level` is one of the REGRAPH_LOG constants; later versions may add some. `message` lives as long as the
/// call and may have several lines.
///
/// The callback must not call the library. It must return: no longjmp, no C++ exception (which ends the program).
pub type regraph_log_callback =
    Option<unsafe extern "C" fn(level: i32, message: *const c_char, user_data: *mut c_void)>;

struct Sink {
    callback: unsafe extern "C" fn(i32, *const c_char, *mut c_void),
    user_data: *mut c_void,
}

// SAFETY: the caller promised that the callback may be called on any thread, with the data.
unsafe impl Send for Sink {}

/// Standard error, or what the program has put in its place.
struct Messages {
    /// Held while a message is told, so that a callback that was replaced is not called any more.
    sink: Mutex<Option<Sink>>,
}

static MESSAGES: Messages = Messages { sink: Mutex::new(Rank::Messages, None) };

impl Log for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("regraph")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = in_c(record.args().to_string());
        let sink = self.sink.lock();
        let Some(sink) = &*sink else {
            let mut told = Record::builder();
            return regraph::write_to_stderr(
                &told.level(record.level()).args(format_args!("{text}")).build(),
            );
        };
        let level = match record.level() {
            Level::Error => REGRAPH_LOG_ERROR,
            Level::Warn => REGRAPH_LOG_WARNING,
            Level::Info => REGRAPH_LOG_INFO,
            _ => REGRAPH_LOG_DEBUG,
        };
        let text = c_text(text);
        // SAFETY: the text lives until the callback returns; the caller promised the rest.
        unsafe { (sink.callback)(level, text.as_ptr(), sink.user_data) }
    }

    fn flush(&self) {}
}

/// A C program has no logger of Rust's: messages go to where it says, or to standard error.
pub(crate) fn start() {
    if log::set_logger(&MESSAGES).is_ok() {
        regraph::set_level_from_environment();
    }
}

/// Sends all messages of the library, of all engines of the process, to a callback: blocks that were never freed, uses
/// later than recorded, and the like. It gets `user_data`, which may be NULL. NULL for `callback` sends them to
/// standard error again, where they go until the first call. When this returns, no callback of an earlier call runs or
/// will be called. Failures of calls are no messages: see regraph_last_error_message().
///
/// Threads: any, but not from a callback.
///
/// Errors: none but REGRAPH_ERROR_PANIC.
#[no_mangle]
pub unsafe extern "C" fn regraph_set_log_callback(
    callback: regraph_log_callback,
    user_data: *mut c_void,
) -> regraph_error {
    guard(|| {
        let sink = callback.map(|callback| Sink { callback, user_data });
        *MESSAGES.sink.lock() = sink;
        // The callback may be told what is wrong in the environment.
        start();
        Ok(())
    })
}

/// Sets up to which level messages are told, of all engines of the process: one of the REGRAPH_LOG constants, or 0 for
/// none. Until the first call it is as the environment variable REGRAPH_LOG says (off, error, warn, info or debug), or
/// REGRAPH_LOG_WARNING. What is not told costs next to nothing.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_INVALID_ARGUMENT.
#[no_mangle]
pub unsafe extern "C" fn regraph_set_log_level(level: i32) -> regraph_error {
    guard(|| {
        let level = match level {
            0 => LevelFilter::Off,
            REGRAPH_LOG_ERROR => LevelFilter::Error,
            REGRAPH_LOG_WARNING => LevelFilter::Warn,
            REGRAPH_LOG_INFO => LevelFilter::Info,
            REGRAPH_LOG_DEBUG => LevelFilter::Debug,
            other => return Err(Failure::argument("level", other, "0, or a REGRAPH_LOG constant")),
        };
        start();
        log::set_max_level(level);
        Ok(())
    })
}
