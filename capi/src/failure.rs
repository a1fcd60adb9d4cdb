//! How a call ends: no panic leaves it, and its failure is kept for its thread.

use std::any::{type_name, Any};
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, CString};
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};

use regraph::driver::{CaptureId, DriverError, ErrorKind};
use regraph::engine::{Error, PoolRefusal, Purpose, SharingRefusal, StreamRefusal, Unknown};
use regraph::settings::SettingsError;
use regraph::BackupRefusal;
use regraph_trace::JournalError;
use thiserror::Error;

use crate::error::regraph_error;

/// Why a call failed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("the argument `{0}` is null")]
    Null(&'static str),
    #[error("`{argument}[{index}]` is null")]
    NullIn { argument: &'static str, index: usize },
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
    #[error(
        "regraph_graph_forget_journal() has freed the journal of this graph's capture, or the capture kept none; \
         captures keep one with check:True, or if the config asks for it"
    )]
    JournalGone,
    #[error("the journal has no trace: {0}")]
    NoTrace(JournalError),
    #[error(
        "capture {} was begun by regraph_begin_stream_capture(): end it with \
         regraph_finish_stream_capture()", .0.0
    )]
    Begun(CaptureId),
    #[error(
        "capture {} uses the pool of an estimate, whose captures come to nothing: end it with \
         regraph_show_stream_capture(), or abandon it with regraph_abandon_capture()", .0.0
    )]
    Estimated(CaptureId),
    #[error(
        "the library has not instantiated this graph, whose capture regraph_end_capture() ended: \
         launch the caller's executable with regraph_launch_executable()"
    )]
    NotInstantiated,
    #[error("the library has instantiated this graph: launch it with regraph_launch_graph()")]
    Instantiated,
    #[error("the engine was destroyed by regraph_engine_destroy()")]
    Destroyed,
    #[error("another thread uses this graph: take it over when its calls have returned")]
    GraphInUse,
    #[cfg(feature = "cuda")]
    #[error("this engine is not simulated; calls whose name begins with regraph_sim need one")]
    NotSimulated,
    #[cfg(not(feature = "cuda"))]
    #[error("this library was built without CUDA (feature `cuda`)")]
    NoCuda,
}

/// What C calls what messages of the library name by Rust's calls. What contains another comes before it.
const NAMES: &[(&str, &str)] = &[
    ("Backup::File", "REGRAPH_BACKUP_FILE"),
    ("Backup::None", "REGRAPH_BACKUP_NONE"),
    ("Backup::Shared", "REGRAPH_BACKUP_SHARED"),
    (
        "Config::journal, or call HostCalls::keep_journals before the capture begins",
        "regraph_config_set_journal() before the engine is made",
    ),
    ("Engine::abandon_capture", "regraph_abandon_capture()"),
    ("Engine::empty_cache", "regraph_empty_cache()"),
    ("Engine::explain", "regraph_explain()"),
    ("Plans::plan_capture", "regraph_plan_capture()"),
    ("HostCalls::resume_pool", "regraph_pool_resume()"),
    ("HostCalls::suspend_discarding_all", "regraph_pool_suspend_discarding()"),
    (
        "launch when that has marked it, or wait for the device first (Engine::wait_for_device)",
        "launch when that thread has called regraph_pool_borrow() with the stream again",
    ),
    ("Estimate::show", "regraph_show_stream_capture()"),
    ("Pool::compact", "regraph_pool_compact()"),
    ("Pool::lend_to_process", "regraph_pool_lend()"),
    ("Pool::lend", "regraph_pool_borrow()"),
    ("Pool::resume", "regraph_pool_resume()"),
    ("Pool::suspend_discarding_all", "regraph_pool_suspend_discarding()"),
    ("Pool::suspend_discarding_outputs", "regraph_pool_suspend()"),
    ("PoolConfig::max_bytes", "regraph_pool_create()"),
    ("PoolConfig::tag", "regraph_pool_create_in_region()"),
    ("Regions::free_host", "regraph_regions_free_host()"),
    ("Regions::wake", "regraph_regions_wake()"),
    ("Sharing::recall_loan", "regraph_loan_recall()"),
];

/// A message of the engine, which begins with a call in Rust, with the C function that a closure is in, by the name of
/// the closure's type.
fn named(message: String, closure: &'static str) -> String {
    let function = closure.rsplit("::").find(|part| part.starts_with("regraph_"));
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    match (message.split_once(": "), function) {
        (Some((call, rest)), Some(function)) if is_name(call) => format!("{function}(): {rest}"),
        _ => message,
    }
}

/// A message in the words of C's callers.
pub(crate) fn in_c(message: String) -> String {
    NAMES.iter().fold(message, |message, (rust, c)| message.replace(rust, c))
}

pub(crate) type Fallible<T> = Result<T, Failure>;

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Engine(error) => Self::Engine(error),
            error => Self::NoTrace(error),
        }
    }
}

impl Failure {
    pub(crate) fn unknown(call: &'static str, what: Unknown) -> Self {
        Self::Engine(Error::Unknown { call, what })
    }

    pub(crate) fn argument(
        argument: &'static str,
        found: impl ToString,
        expected: &'static str,
    ) -> Self {
        Self::Argument { argument, found: found.to_string(), expected }
    }

    fn code(&self) -> regraph_error {
        use regraph_error as code;
        match self {
            Self::Null(_) | Self::NullIn { .. } => code::REGRAPH_ERROR_NULL,
            Self::Text { .. } => code::REGRAPH_ERROR_INVALID_TEXT,
            Self::Argument { .. } => code::REGRAPH_ERROR_INVALID_ARGUMENT,
            Self::Settings(_) => code::REGRAPH_ERROR_SETTINGS,
            Self::Engine(error) => of_engine(error),
            Self::Driver(error) => of_driver(error),
            Self::File { .. } => code::REGRAPH_ERROR_IO,
            Self::NoJournal | Self::JournalGone => code::REGRAPH_ERROR_NO_JOURNAL,
            Self::Begun(_) | Self::Estimated(_) | Self::Instantiated | Self::GraphInUse => {
                code::REGRAPH_ERROR_INVALID_ARGUMENT
            }
            Self::NotInstantiated => code::REGRAPH_ERROR_NOT_INSTANTIATED,
            Self::NoTrace(_) => code::REGRAPH_ERROR_NO_TRACE,
            Self::Destroyed => code::REGRAPH_ERROR_DESTROYED,
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
        Error::OutOfMemory(report) if report.purpose == Purpose::Resume => {
            code::REGRAPH_ERROR_RESUME_OUT_OF_MEMORY
        }
        Error::OutOfMemory(_) => code::REGRAPH_ERROR_OUT_OF_MEMORY,
        Error::Driver(error) => of_driver(error),
        Error::Unknown { what, .. } => of_unknown(what),
        Error::Stream { why, .. } => of_stream(why),
        Error::Pool { why, .. } => of_pool(why),
        Error::CaptureEnded { .. } => code::REGRAPH_ERROR_CAPTURE_ENDED,
        Error::CaptureInvalidated { .. } => code::REGRAPH_ERROR_CAPTURE_INVALIDATED,
        Error::SetBack { .. } => code::REGRAPH_ERROR_SET_BACK,
        Error::NoJournal { .. } => code::REGRAPH_ERROR_NO_JOURNAL,
        Error::Poisoned => code::REGRAPH_ERROR_POISONED,
        Error::Refused(_) => code::REGRAPH_ERROR_REFUSED,
        Error::CaptureAgain(_) => code::REGRAPH_ERROR_CAPTURE_AGAIN,
        Error::LateUse(_) => code::REGRAPH_ERROR_LATE_USE,
        Error::CannotPlan { .. } => code::REGRAPH_ERROR_CANNOT_PLAN,
        Error::PlanOutOfMemory { .. } => code::REGRAPH_ERROR_PLAN_OUT_OF_MEMORY,
        Error::Unplanned { .. } => code::REGRAPH_ERROR_UNPLANNED,
        Error::DeviceCaptures { .. } => code::REGRAPH_ERROR_DEVICE_CAPTURES,
        Error::Backup { why: BackupRefusal::File { .. }, .. } => code::REGRAPH_ERROR_IO,
        Error::Backup { .. } => code::REGRAPH_ERROR_HOST_OUT_OF_MEMORY,
        Error::OrderLost { .. } => code::REGRAPH_ERROR_ORDER_LOST,
        Error::Sharing { why, .. } => of_sharing(why),
        _ => code::REGRAPH_ERROR_OTHER,
    }
}

fn of_sharing(why: &SharingRefusal) -> regraph_error {
    use regraph_error as code;
    match why {
        SharingRefusal::NotShared { .. } | SharingRefusal::NotOffered { .. } => {
            code::REGRAPH_ERROR_NOT_SHARED
        }
        SharingRefusal::Handle(_)
        | SharingRefusal::Unreachable { .. }
        | SharingRefusal::NotTaken { .. } => code::REGRAPH_ERROR_NOT_TAKEN,
        _ => code::REGRAPH_ERROR_OTHER,
    }
}

fn of_unknown(what: &Unknown) -> regraph_error {
    use regraph_error as code;
    match what {
        Unknown::Block(_) => code::REGRAPH_ERROR_UNKNOWN_BLOCK,
        Unknown::Pool(_) => code::REGRAPH_ERROR_UNKNOWN_POOL,
        Unknown::Capture(_) => code::REGRAPH_ERROR_UNKNOWN_CAPTURE,
        Unknown::Graph(_) => code::REGRAPH_ERROR_UNKNOWN_GRAPH,
        Unknown::Region(_) => code::REGRAPH_ERROR_UNKNOWN_REGION,
        Unknown::Loan(_) => code::REGRAPH_ERROR_UNKNOWN_LOAN,
        _ => code::REGRAPH_ERROR_OTHER,
    }
}

fn of_stream(why: &StreamRefusal) -> regraph_error {
    use regraph_error as code;
    match why {
        StreamRefusal::NotCapturing | StreamRefusal::NotInCapture => {
            code::REGRAPH_ERROR_NOT_CAPTURING
        }
        StreamRefusal::LaunchWhileCapturing | StreamRefusal::OrderWhileCapturing => {
            code::REGRAPH_ERROR_CAPTURING
        }
        StreamRefusal::PerThread => code::REGRAPH_ERROR_PER_THREAD_STREAM,
        StreamRefusal::InUse => code::REGRAPH_ERROR_STREAM_IN_USE,
        _ => code::REGRAPH_ERROR_OTHER,
    }
}

fn of_pool(why: &PoolRefusal) -> regraph_error {
    use regraph_error as code;
    match why {
        PoolRefusal::InUse { .. } => code::REGRAPH_ERROR_POOL_IN_USE,
        PoolRefusal::Busy { .. } => code::REGRAPH_ERROR_POOL_BUSY,
        PoolRefusal::HasBlocks { .. } => code::REGRAPH_ERROR_POOL_HAS_BLOCKS,
        PoolRefusal::CannotSuspend | PoolRefusal::Exported => code::REGRAPH_ERROR_CANNOT_SUSPEND,
        PoolRefusal::CompactionRefused(_) => code::REGRAPH_ERROR_COMPACTION_REFUSED,
        PoolRefusal::Suspended { .. } => code::REGRAPH_ERROR_POOL_SUSPENDED,
        PoolRefusal::Going => code::REGRAPH_ERROR_UNKNOWN_POOL,
        PoolRefusal::Asleep => code::REGRAPH_ERROR_POOL_ASLEEP,
        PoolRefusal::Runs => code::REGRAPH_ERROR_POOL_RUNS,
        PoolRefusal::BlocksLent { .. } => code::REGRAPH_ERROR_BLOCKS_LENT,
        PoolRefusal::LentWork { .. } => code::REGRAPH_ERROR_LENT_WORK,
        PoolRefusal::NothingLent { .. } => code::REGRAPH_ERROR_NOTHING_LENT,
        PoolRefusal::NoExecutable { .. } => code::REGRAPH_ERROR_NO_EXECUTABLE,
        PoolRefusal::NotShown => code::REGRAPH_ERROR_INVALID_ARGUMENT,
        _ => code::REGRAPH_ERROR_OTHER,
    }
}

/// The latest failure of a thread.
#[derive(Default)]
struct Last {
    /// What has not been shown yet.
    message: RefCell<Option<CString>>,
    /// What was shown last: callers may read it until they ask again.
    shown: RefCell<CString>,
    driver_code: Cell<u32>,
}

thread_local! {
    static LAST: Last = Last::default();
}

/// Runs a call. Success leaves the kept failure as it is.
#[inline(always)]
pub(crate) fn guard<F: FnOnce() -> Fallible<()>>(call: F) -> regraph_error {
    // The closure returns a code alone, so that the fast path carries no failure.
    let coded = || match call() {
        Ok(()) => regraph_error::REGRAPH_OK,
        Err(failure) => failed(failure, type_name::<F>()),
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
fn failed(failure: Failure, closure: &'static str) -> regraph_error {
    let message = match &failure {
        Failure::Engine(error) => named(error.to_string(), closure),
        failure => failure.to_string(),
    };
    keep(in_c(message), failure.driver_code());
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
        last.message.replace(Some(c_text(message)));
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
    let shown = LAST.try_with(|last| {
        if let Some(message) = last.message.take() {
            last.shown.replace(message);
        }
        last.shown.borrow().as_ptr()
    });
    shown.unwrap_or(c"".as_ptr())
}

pub(crate) fn last_driver_code() -> u32 {
    LAST.try_with(|last| last.driver_code.get()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use regraph::driver::{NodeHandle, StreamHandle};
    use regraph::engine::WhyNotShared;
    use regraph::engine::{Config, Engine, GraphId, HandleError, LoanId, PoolConfig, PoolId};
    use regraph::{BlockNumber, Violation};
    use regraph_sim::{SimConfig, SimDriver};

    use super::*;

    fn message() -> String {
        // SAFETY: the text lives until this thread asks again.
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
        for file in ["error.rs", "engine/oom.rs", "heap/sharing.rs"] {
            let texts = texts(file);
            assert!(in_c(texts.clone()) != texts, "{file} has none to put in place");
            let told = in_c(texts);
            for line in told.lines().filter(|line| line.contains('"')) {
                for name in line.split(|c: char| !c.is_alphanumeric() && !":_".contains(c)) {
                    let kinds = [
                        "Engine",
                        "HostCalls",
                        "Plans",
                        "Sharing",
                        "Regions",
                        "Pool",
                        "PoolConfig",
                        "Config",
                        "Backup",
                        "Devices",
                        "Estimate",
                    ];
                    let rusts = kinds.iter().any(|kind| name.starts_with(&format!("{kind}::")));
                    assert!(!rusts || RUST_ALONE.contains(&name), "{file}: {line}");
                }
            }
        }
    }

    /// One error of each kind and reason, with the code that it has in C.
    fn coded() -> Vec<(Error, regraph_error)> {
        use regraph::{
            BackupRefusal as Backup, CheckpointRefusal as Checkpoint, PoolRefusal as Pool,
            SharingRefusal as Sharing, StreamRefusal as Stream,
        };
        use regraph_error as code;

        let call = "call";
        let backup = |why| Error::Backup { call, why };
        let unread = Backup::File {
            region: "weights".into(),
            path: std::path::Path::new("/mnt").into(),
            act: "read",
            source: std::io::ErrorKind::UnexpectedEof.into(),
        };
        let (pool, graph) = (PoolId::from_bits([1, 0]), GraphId::from_bits([1, 0]));
        let (block, capture, stream) = (BlockNumber(1), CaptureId(1), StreamHandle::from_bits(1));
        let (bytes, address, device) = (1, 2, 0);
        let refused = || DriverError::new("cuMemMap", 1, ErrorKind::InvalidValue);
        let violation = || Box::new(Violation::Cyclic { node: NodeHandle::from_bits(1) });
        let engine = Engine::new(SimDriver::new(SimConfig::default()), Config::default());
        let made = engine.create_pool(PoolConfig::default());
        let Err(Error::OutOfMemory(report)) =
            engine.allocate(made, 1 << 60, StreamHandle::from_bits(1))
        else {
            panic!("more than the device has")
        };
        let short = || report.clone();
        let why = WhyNotShared::NotExportable;
        let unknown = |what| Error::Unknown { call, what };
        let of_stream = |why| Error::Stream { call, stream, why };
        let of_pool = |why| Error::Pool { call, pool: Box::new(pool.into()), why };
        let of_checkpoint = |why| Error::Checkpoint { call, pool: Box::new(pool.into()), why };
        let of_sharing = |why| Error::Sharing { call, why };
        let text = String::new;
        let on = Box::new(Error::Poisoned);
        let source = Box::new(refused());
        let (captures, waiting, blocks, graphs, streams) = (0, 0, 0, 0, 1);
        vec![
            (Error::ZeroBytes { call }, code::REGRAPH_ERROR_ZERO_BYTES),
            (Error::MemoryFraction { fraction: 2.0 }, code::REGRAPH_ERROR_OTHER),
            (Error::OutOfMemory(short()), code::REGRAPH_ERROR_OUT_OF_MEMORY),
            (Error::Driver(refused()), code::REGRAPH_ERROR_DRIVER),
            (unknown(Unknown::Block(block)), code::REGRAPH_ERROR_UNKNOWN_BLOCK),
            (unknown(Unknown::Pool(pool)), code::REGRAPH_ERROR_UNKNOWN_POOL),
            (unknown(Unknown::Capture(capture)), code::REGRAPH_ERROR_UNKNOWN_CAPTURE),
            (Error::CaptureEnded { call, capture }, code::REGRAPH_ERROR_CAPTURE_ENDED),
            (unknown(Unknown::Graph(graph)), code::REGRAPH_ERROR_UNKNOWN_GRAPH),
            (of_stream(Stream::NotCapturing), code::REGRAPH_ERROR_NOT_CAPTURING),
            (
                Error::CaptureInvalidated { call, stream, ended: false },
                code::REGRAPH_ERROR_CAPTURE_INVALIDATED,
            ),
            (
                of_pool(Pool::InUse { blocks, captures, graphs, waiting }),
                code::REGRAPH_ERROR_POOL_IN_USE,
            ),
            (of_pool(Pool::Busy { captures, waiting }), code::REGRAPH_ERROR_POOL_BUSY),
            (of_pool(Pool::CannotSuspend), code::REGRAPH_ERROR_CANNOT_SUSPEND),
            (of_pool(Pool::Exported), code::REGRAPH_ERROR_CANNOT_SUSPEND),
            (of_pool(Pool::Suspended { remedy: "resume" }), code::REGRAPH_ERROR_POOL_SUSPENDED),
            (of_pool(Pool::Owned), code::REGRAPH_ERROR_OTHER),
            (of_pool(Pool::Asleep), code::REGRAPH_ERROR_POOL_ASLEEP),
            (of_pool(Pool::Runs), code::REGRAPH_ERROR_POOL_RUNS),
            (
                of_pool(Pool::HasBlocks { blocks: Vec::new(), remedy: None }),
                code::REGRAPH_ERROR_POOL_HAS_BLOCKS,
            ),
            (of_pool(Pool::CompactionRefused(violation())), code::REGRAPH_ERROR_COMPACTION_REFUSED),
            (of_pool(Pool::BlocksLent { blocks: Vec::new() }), code::REGRAPH_ERROR_BLOCKS_LENT),
            (of_pool(Pool::LentWork { stream }), code::REGRAPH_ERROR_LENT_WORK),
            (
                of_pool(Pool::NoExecutable { bytes, pinned: 0, budget: 0 }),
                code::REGRAPH_ERROR_NO_EXECUTABLE,
            ),
            (of_pool(Pool::Going), code::REGRAPH_ERROR_UNKNOWN_POOL),
            (of_pool(Pool::NotShown), code::REGRAPH_ERROR_INVALID_ARGUMENT),
            (of_pool(Pool::Foreign), code::REGRAPH_ERROR_OTHER),
            (of_checkpoint(Checkpoint::Captures { captures }), code::REGRAPH_ERROR_OTHER),
            (of_checkpoint(Checkpoint::BlocksInCapture { streams }), code::REGRAPH_ERROR_OTHER),
            (of_checkpoint(Checkpoint::NoWayBack), code::REGRAPH_ERROR_OTHER),
            (of_checkpoint(Checkpoint::OtherPool { of: pool }), code::REGRAPH_ERROR_OTHER),
            (of_checkpoint(Checkpoint::Gone { address, bytes }), code::REGRAPH_ERROR_OTHER),
            (Error::NotKept { address, why }, code::REGRAPH_ERROR_OTHER),
            (unknown(Unknown::Region(String::new())), code::REGRAPH_ERROR_UNKNOWN_REGION),
            (Error::DeviceCaptures { call }, code::REGRAPH_ERROR_DEVICE_CAPTURES),
            (
                backup(Backup::HostOutOfMemory { pool: None, bytes, source }),
                code::REGRAPH_ERROR_HOST_OUT_OF_MEMORY,
            ),
            (
                backup(Backup::HostTooSmall { pool: None, bytes, host_bytes: 1 }),
                code::REGRAPH_ERROR_HOST_OUT_OF_MEMORY,
            ),
            (backup(unread), code::REGRAPH_ERROR_IO),
            (of_sharing(Sharing::NotShared { block, why }), code::REGRAPH_ERROR_NOT_SHARED),
            (of_sharing(Sharing::NotOffered { why: text() }), code::REGRAPH_ERROR_NOT_SHARED),
            (of_sharing(Sharing::Handle(HandleError::Unknown)), code::REGRAPH_ERROR_NOT_TAKEN),
            (
                of_sharing(Sharing::Unreachable {
                    process: 1,
                    by_number: text(),
                    by_socket: text(),
                }),
                code::REGRAPH_ERROR_NOT_TAKEN,
            ),
            (of_sharing(Sharing::NotTaken { why: text() }), code::REGRAPH_ERROR_NOT_TAKEN),
            (of_pool(Pool::NothingLent { bytes }), code::REGRAPH_ERROR_NOTHING_LENT),
            (of_checkpoint(Checkpoint::OnLoan), code::REGRAPH_ERROR_OTHER),
            (unknown(Unknown::Loan(LoanId::from_bits([1, 1]))), code::REGRAPH_ERROR_UNKNOWN_LOAN),
            (Error::SetBack { stream, block }, code::REGRAPH_ERROR_SET_BACK),
            (Error::NoJournal { call, capture }, code::REGRAPH_ERROR_NO_JOURNAL),
            (of_stream(Stream::PerThread), code::REGRAPH_ERROR_PER_THREAD_STREAM),
            (of_stream(Stream::InUse), code::REGRAPH_ERROR_STREAM_IN_USE),
            (Error::Poisoned, code::REGRAPH_ERROR_POISONED),
            (Error::Refused(violation()), code::REGRAPH_ERROR_REFUSED),
            (Error::CaptureAgain(violation()), code::REGRAPH_ERROR_CAPTURE_AGAIN),
            (Error::Unplanned { capture }, code::REGRAPH_ERROR_UNPLANNED),
            (Error::CannotPlan { capture }, code::REGRAPH_ERROR_CANNOT_PLAN),
            (
                Error::PlanOutOfMemory { bytes, new_bytes: 1, room: None, report: short() },
                code::REGRAPH_ERROR_PLAN_OUT_OF_MEMORY,
            ),
            (Error::LateUse(Vec::new()), code::REGRAPH_ERROR_LATE_USE),
            (of_stream(Stream::LaunchWhileCapturing), code::REGRAPH_ERROR_CAPTURING),
            (of_stream(Stream::OrderWhileCapturing), code::REGRAPH_ERROR_CAPTURING),
            (of_stream(Stream::NotInCapture), code::REGRAPH_ERROR_NOT_CAPTURING),
            (of_stream(Stream::PerDevice), code::REGRAPH_ERROR_OTHER),
            (Error::OrderLost { pool }, code::REGRAPH_ERROR_ORDER_LOST),
            (Error::DeviceTaken { device }, code::REGRAPH_ERROR_OTHER),
            (Error::NoEngine, code::REGRAPH_ERROR_OTHER),
            (unknown(Unknown::Device(device)), code::REGRAPH_ERROR_OTHER),
            (unknown(Unknown::Address(address)), code::REGRAPH_ERROR_OTHER),
            (Error::OnDevice { device, error: on }, code::REGRAPH_ERROR_OTHER),
            (Error::TooLong { call, len: 1, size: 1 }, code::REGRAPH_ERROR_OTHER),
            (of_stream(Stream::Foreign), code::REGRAPH_ERROR_OTHER),
            (Error::OtherStream { call, stream, borrows: stream }, code::REGRAPH_ERROR_OTHER),
            (of_stream(Stream::CopyWhileCapturing), code::REGRAPH_ERROR_OTHER),
            (of_stream(Stream::Held), code::REGRAPH_ERROR_OTHER),
            (Error::Tracking, code::REGRAPH_ERROR_OTHER),
        ]
    }

    /// The names of what an enumeration of the library's errors has.
    fn kinds(source: &str, of: &str) -> Vec<String> {
        let begin = source.find(&format!("pub enum {of} {{\n")).unwrap();
        let body = &source[begin..][..source[begin..].find("\n}").unwrap()];
        let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
        let names = lines.filter(|line| line.starts_with(char::is_uppercase));
        names.map(|line| line.split([' ', ',', '(']).next().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_error_has_its_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/error.rs");
        let source = std::fs::read_to_string(path).unwrap();
        let mut missing = kinds(&source, "Error");
        // This crate is built without cudarc.
        missing.retain(|kind| kind != "Cudarc");
        let sets = [
            ("Unknown", "Unknown"),
            ("Backup", "BackupRefusal"),
            ("Checkpoint", "CheckpointRefusal"),
            ("Sharing", "SharingRefusal"),
            ("Pool", "PoolRefusal"),
            ("Stream", "StreamRefusal"),
        ];
        for (set, of) in sets {
            missing.retain(|kind| kind != set);
            missing.extend(kinds(&source, of).iter().map(|reason| format!("{set}: {reason}")));
        }
        for (error, code) in coded() {
            let shown = format!("{error:?}");
            let first = |text: &str| text.split([' ', '(']).next().unwrap().to_owned();
            let reason = [" why: ", " what: "].iter().find_map(|field| shown.split_once(field));
            let name = match reason {
                Some((kind, reason)) if !shown.starts_with("Not") => {
                    format!("{}: {}", first(kind), first(reason))
                }
                _ => first(&shown),
            };
            assert_eq!(of_engine(&error), code, "{shown}");
            let at = missing.iter().position(|kind| *kind == name);
            missing.remove(at.unwrap_or_else(|| panic!("{name} is there twice, or not at all")));
            if let Error::OutOfMemory(mut report) = error {
                report.purpose = Purpose::Resume;
                let unresumed = of_engine(&Error::OutOfMemory(report));
                assert_eq!(unresumed, regraph_error::REGRAPH_ERROR_RESUME_OUT_OF_MEMORY);
            }
        }
        assert!(missing.is_empty(), "no error of {missing:?} was tried");
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
