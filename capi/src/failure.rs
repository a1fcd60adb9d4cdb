//! How a call ends: no panic leaves it, and its failure is kept for its thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, CString};
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};

use regraph::driver::{CaptureId, DriverError, ErrorKind};
use regraph::engine::Error;
use regraph::settings::SettingsError;
use regraph_trace::JournalError;
use thiserror::Error;

use crate::error::regraph_error;

/// Why a call failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("the argument `{0}` is null")]
    Null(&'static str),
    #[error("the argument `{argument}` is not UTF-8: {source}")]
    Text { argument: &'static str, source: std::str::Utf8Error },
    #[error("the argument `{argument}` is {found}; expected {expected}")]
    Argument { argument: &'static str, found: String, expected: &'static str },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    #[error(
        "this engine keeps no journal; it does with check:True, or if the config asks for one"
    )]
    NoJournal,
    #[error("the journal has no trace: {0}")]
    NoTrace(#[from] JournalError),
    #[error(
        "capture {} was begun by regraph_begin_stream_capture(): end it with \
         regraph_finish_stream_capture()", .0.0
    )]
    Begun(CaptureId),
    #[error(
        "the library has not instantiated this graph, whose capture regraph_end_capture() ended: \
         launch the caller's executable with regraph_launch_executable()"
    )]
    NotInstantiated,
    #[error("the library has instantiated this graph: launch it with regraph_launch_graph()")]
    Instantiated,
    #[cfg(feature = "cuda")]
    #[error("this engine is not simulated; calls whose name begins with regraph_sim need one")]
    NotSimulated,
    #[cfg(not(feature = "cuda"))]
    #[error("this library was built without CUDA (feature `cuda`)")]
    NoCuda,
}

/// What C calls what messages of the library name by Rust's calls. What contains another comes before it.
const NAMES: &[(&str, &str)] = &[
    ("Backup::None", "REGRAPH_BACKUP_NONE"),
    (
        "Config::journal, or call Engine::keep_journals before the capture begins",
        "regraph_config_set_journal() before the engine is made",
    ),
    ("Engine::abandon_capture", "regraph_abandon_capture()"),
    ("Engine::empty_cache", "regraph_empty_cache()"),
    ("Engine::explain", "regraph_explain()"),
    ("Engine::plan_capture", "regraph_plan_capture()"),
    ("Engine::resume_pool", "regraph_pool_resume()"),
    ("Engine::suspend_pool_discarding", "regraph_pool_suspend_discarding()"),
    (
        "launch when that has marked it, or wait for the device first (Engine::wait_for_device)",
        "launch when that thread has called regraph_pool_borrow() with the stream again",
    ),
    ("Pool::compact", "regraph_pool_compact()"),
    ("Pool::resume", "regraph_pool_resume()"),
    ("Pool::suspend_discarding", "regraph_pool_suspend_discarding()"),
    ("Pool::suspend", "regraph_pool_suspend()"),
    ("PoolConfig::max_bytes", "regraph_pool_create()"),
    ("PoolConfig::tag", "regraph_pool_create_in_region()"),
    ("Regions::free_host", "regraph_regions_free_host()"),
    ("Regions::wake", "regraph_regions_wake()"),
];

/// A message in the words of C's callers.
fn in_c(message: String) -> String {
    NAMES.iter().fold(message, |message, (rust, c)| message.replace(rust, c))
}

pub(crate) type Fallible<T> = Result<T, Failure>;

impl Failure {
    fn code(&self) -> regraph_error {
        use regraph_error as code;
        match self {
            Self::Null(_) => code::REGRAPH_ERROR_NULL,
            Self::Text { .. } => code::REGRAPH_ERROR_INVALID_TEXT,
            Self::Argument { .. } => code::REGRAPH_ERROR_INVALID_ARGUMENT,
            Self::Settings(_) => code::REGRAPH_ERROR_SETTINGS,
            Self::Engine(error) => of_engine(error),
            Self::Driver(error) => of_driver(error),
            Self::File { .. } => code::REGRAPH_ERROR_IO,
            Self::NoJournal => code::REGRAPH_ERROR_NO_JOURNAL,
            Self::Begun(_) | Self::Instantiated => code::REGRAPH_ERROR_INVALID_ARGUMENT,
            Self::NotInstantiated => code::REGRAPH_ERROR_NOT_INSTANTIATED,
            Self::NoTrace(_) => code::REGRAPH_ERROR_NO_TRACE,
            #[cfg(feature = "cuda")]
            Self::NotSimulated => code::REGRAPH_ERROR_NOT_SIMULATED,
            #[cfg(not(feature = "cuda"))]
            Self::NoCuda => code::REGRAPH_ERROR_NOT_SUPPORTED,
        }
    }

    fn driver_code(&self) -> u32 {
        match self {
            Self::Driver(error) | Self::Engine(Error::Driver(error)) => error.code,
            _ => 0,
        }
    }
}

fn of_driver(error: &DriverError) -> regraph_error {
    match error.kind {
        ErrorKind::NoDriver(_) => regraph_error::REGRAPH_ERROR_NO_DRIVER,
        ErrorKind::MissingFunction(_) => regraph_error::REGRAPH_ERROR_DRIVER_TOO_OLD,
        _ => regraph_error::REGRAPH_ERROR_DRIVER,
    }
}

fn of_engine(error: &Error) -> regraph_error {
    use regraph_error as code;
    match error {
        Error::ZeroBytes { .. } => code::REGRAPH_ERROR_ZERO_BYTES,
        Error::OutOfMemory(_) => code::REGRAPH_ERROR_OUT_OF_MEMORY,
        Error::Driver(error) => of_driver(error),
        Error::UnknownBlock { .. } => code::REGRAPH_ERROR_UNKNOWN_BLOCK,
        Error::UnknownPool { .. } => code::REGRAPH_ERROR_UNKNOWN_POOL,
        Error::UnknownCapture { .. } => code::REGRAPH_ERROR_UNKNOWN_CAPTURE,
        Error::CaptureEnded { .. } => code::REGRAPH_ERROR_CAPTURE_ENDED,
        Error::UnknownGraph { .. } => code::REGRAPH_ERROR_UNKNOWN_GRAPH,
        Error::NotCapturing { .. } => code::REGRAPH_ERROR_NOT_CAPTURING,
        Error::CaptureInvalidated { .. } => code::REGRAPH_ERROR_CAPTURE_INVALIDATED,
        Error::PoolInUse { .. } => code::REGRAPH_ERROR_POOL_IN_USE,
        Error::PoolBusy { .. } => code::REGRAPH_ERROR_POOL_BUSY,
        Error::PoolHasBlocks { .. } => code::REGRAPH_ERROR_POOL_HAS_BLOCKS,
        Error::CannotSuspend { .. } | Error::PoolExported { .. } => {
            code::REGRAPH_ERROR_CANNOT_SUSPEND
        }
        Error::CompactionRefused { .. } => code::REGRAPH_ERROR_COMPACTION_REFUSED,
        Error::PoolSuspended { .. } => code::REGRAPH_ERROR_POOL_SUSPENDED,
        Error::ResumeOutOfMemory(_) => code::REGRAPH_ERROR_RESUME_OUT_OF_MEMORY,
        Error::SetBack { .. } => code::REGRAPH_ERROR_SET_BACK,
        Error::NoJournal { .. } => code::REGRAPH_ERROR_NO_JOURNAL,
        Error::PerThreadStream { .. } => code::REGRAPH_ERROR_PER_THREAD_STREAM,
        Error::StreamInUse { .. } => code::REGRAPH_ERROR_STREAM_IN_USE,
        Error::Poisoned => code::REGRAPH_ERROR_POISONED,
        Error::Refused(_) => code::REGRAPH_ERROR_REFUSED,
        Error::CaptureAgain(_) => code::REGRAPH_ERROR_CAPTURE_AGAIN,
        Error::LateUse(_) => code::REGRAPH_ERROR_LATE_USE,
        Error::CannotPlan { .. } => code::REGRAPH_ERROR_CANNOT_PLAN,
        Error::PlanOutOfMemory { .. } => code::REGRAPH_ERROR_PLAN_OUT_OF_MEMORY,
        Error::Unplanned { .. } => code::REGRAPH_ERROR_UNPLANNED,
        Error::LaunchWhileCapturing { .. } => code::REGRAPH_ERROR_CAPTURING,
        Error::NotInCapture { .. } => code::REGRAPH_ERROR_NOT_CAPTURING,
        Error::PoolGoing { .. } => code::REGRAPH_ERROR_UNKNOWN_POOL,
        Error::PoolAsleep { .. } => code::REGRAPH_ERROR_POOL_ASLEEP,
        Error::UnknownRegion { .. } => code::REGRAPH_ERROR_UNKNOWN_REGION,
        Error::DeviceCaptures { .. } => code::REGRAPH_ERROR_DEVICE_CAPTURES,
        Error::PoolRuns { .. } => code::REGRAPH_ERROR_POOL_RUNS,
        Error::HostOutOfMemory { .. } | Error::HostTooSmall { .. } => {
            code::REGRAPH_ERROR_HOST_OUT_OF_MEMORY
        }
        Error::OrderLost { .. } => code::REGRAPH_ERROR_ORDER_LOST,
        Error::BlocksLent { .. } => code::REGRAPH_ERROR_BLOCKS_LENT,
        Error::LentWork { .. } => code::REGRAPH_ERROR_LENT_WORK,
        _ => code::REGRAPH_ERROR_OTHER,
    }
}

/// The latest failure of a thread.
#[derive(Default)]
struct Last {
    message: RefCell<CString>,
    driver_code: Cell<u32>,
}

thread_local! {
    static LAST: Last = Last::default();
}

/// Runs a call. Success leaves the kept failure as it is.
#[inline(always)]
pub(crate) fn guard(call: impl FnOnce() -> Fallible<()>) -> regraph_error {
    // The closure returns a code alone, so that the fast path carries no failure.
    let coded = || match call() {
        Ok(()) => regraph_error::REGRAPH_OK,
        Err(failure) => failed(failure),
    };
    // A panic leaves no state of this crate half changed, and engines poison themselves.
    catch_unwind(AssertUnwindSafe(coded)).unwrap_or_else(panicked)
}

/// Runs a call that has no way to fail but a panic, and then returns the default.
pub(crate) fn or_default<T: Default>(call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        panicked(panic);
        T::default()
    })
}

#[cold]
#[inline(never)]
fn failed(failure: Failure) -> regraph_error {
    keep(in_c(failure.to_string()), failure.driver_code());
    failure.code()
}

#[cold]
#[inline(never)]
fn panicked(panic: Box<dyn Any + Send>) -> regraph_error {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "no message",
    };
    keep(format!("the library panicked, which is a bug in the library: {text}"), 0);
    regraph_error::REGRAPH_ERROR_PANIC
}

fn keep(message: String, driver_code: u32) {
    // A thread that is ending may have no place for it any more.
    let _ = LAST.try_with(|last| {
        last.message.replace(c_text(message));
        last.driver_code.set(driver_code);
    });
}

/// Text for C. A nul in it would end it early, so it is shown instead.
pub(crate) fn c_text(text: String) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let shown = String::from_utf8_lossy(&error.into_vec()).replace('\0', "\\0");
        CString::new(shown).unwrap_or_default()
    })
}

pub(crate) fn last_message() -> *const c_char {
    // The text stays where it is until the next failure replaces it.
    LAST.try_with(|last| last.message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

pub(crate) fn last_driver_code() -> u32 {
    LAST.try_with(|last| last.driver_code.get()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn message() -> String {
        // SAFETY: the text lives until the next failure of this thread.
        unsafe { CStr::from_ptr(last_message()) }.to_string_lossy().into_owned()
    }

    /// Of what only Rust has: several engines behind one object.
    const RUST_ALONE: [&str; 2] = ["Devices::of_device", "Config::device"];

    /// What code says outside comments, with texts over several lines on one.
    fn texts(file: &str) -> String {
        let path = format!("{}/../src/{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(path).unwrap();
        let lines = source.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        lines
            .map(|line| line.strip_suffix('\\').map_or(format!("{line}\n"), str::to_owned))
            .collect()
    }

    #[test]
    fn messages_name_calls_of_c() {
        for file in ["error.rs", "engine/oom.rs", "engine/sharing.rs"] {
            let texts = texts(file);
            assert!(texts.contains("Engine::"), "{file} has none to put in place");
            let told = in_c(texts);
            for line in told.lines().filter(|line| line.contains('"')) {
                for name in line.split(|c: char| !c.is_alphanumeric() && !":_".contains(c)) {
                    let kinds =
                        ["Engine", "Regions", "Pool", "PoolConfig", "Config", "Backup", "Devices"];
                    let rusts = kinds.iter().any(|kind| name.starts_with(&format!("{kind}::")));
                    assert!(!rusts || RUST_ALONE.contains(&name), "{file}: {line}");
                }
            }
        }
    }

    #[test]
    fn no_panic_leaves_a_call() {
        assert_eq!(message(), "");
        let error = guard(|| panic!("of {} parts", 2));
        assert_eq!(error, regraph_error::REGRAPH_ERROR_PANIC);
        assert!(message().ends_with("of 2 parts"), "{}", message());
        assert_eq!(guard(|| Ok(())), regraph_error::REGRAPH_OK);
        assert!(message().ends_with("of 2 parts"), "success keeps the message");
        let panicked: usize = or_default(|| panic!("plain"));
        assert_eq!((panicked, message().ends_with("plain")), (0, true));
    }

    #[test]
    fn the_drivers_code_is_kept_until_the_next_failure() {
        let refused = DriverError::new("cuMemMap", 1, ErrorKind::InvalidValue);
        let error = guard(|| Err(Error::from(refused).into()));
        assert_eq!((error, last_driver_code()), (regraph_error::REGRAPH_ERROR_DRIVER, 1));
        assert_eq!(guard(|| Err(Failure::Null("x"))), regraph_error::REGRAPH_ERROR_NULL);
        assert_eq!((last_driver_code(), message().as_str()), (0, "the argument `x` is null"));
    }

    #[test]
    fn other_threads_have_other_messages() {
        guard(|| Err(Failure::Null("mine")));
        let other = std::thread::spawn(message).join();
        assert_eq!(other.ok().as_deref(), Some(""));
        assert!(message().contains("mine"));
    }

    #[test]
    fn a_nul_ends_no_message() {
        assert_eq!(c_text("a\0b".to_owned()).to_str(), Ok("a\\0b"));
    }
}
