//! The allocator: pools, blocks, captures. `design/architecture.md` follows one block through these files.
//!
//! The state behind the lock (`State`) is in parts, each with private fields in a file of its own; `Locked` has the
//! order of calls. What takes long is left until the lock is released (`oom::Errands`). `allocate`, `free` and `end`
//! follow these calls; `pools`, `live_blocks`, `captures`, `waits`, `streams`, `stream_cache` and `figures` the tables;
//! `planned`, `layout` and `heard` say where blocks of captures are to lie. `sharing` is about memory that other
//! processes and devices map, `suspend` and `checkpoints` about whole pools, `memory` about all memory and the end of
//! pools, `lending` about who may have what is free; `report`, `snapshot` and `history` tell.

mod allocate;
mod captures;
mod checkpoints;
mod config;
mod end;
mod figures;
mod free;
mod heard;
mod history;
mod layout;
mod lending;
mod live_blocks;
mod memory;
mod names;
mod oom;
mod planned;
mod pools;
mod report;
mod sharing;
mod snapshot;
mod stream_cache;
mod streams;
mod suspend;
#[cfg(debug_assertions)]
mod verify;
mod waits;

use std::sync::Arc;

pub use checkpoints::{Checkpoint, Restored};
pub(crate) use config::setters;
#[cfg(feature = "flaws")]
#[doc(hidden)]
pub use config::Flaw;
pub use config::{Config, PoolConfig};
pub use end::Attempt;
pub use figures::{Counts, Figure, Figures, Statistics};
pub use history::{set_host_context, with_context, with_frames, HistoryOptions, HostFrame};
pub use layout::{FellBack, Followed, Why};
pub use lending::Spare;
pub use memory::Leak;
pub use names::{BlockId, GraphId, LoanId, PoolId, PoolLabel};
pub use oom::{Holder, OutOfMemory, Purpose};
pub use planned::PlanReport;
pub use report::{Block, BlockReport, CaptureReport, Emptied, PoolStatistics};
pub use report::{FreeRange, Refusal, WaitReason};
pub use sharing::{Handle, HandleError, ImportId, SentPieces, SharingRefusal, WhyNotShared};
pub use sharing::{Loan, LoanState, TakenLoan};
pub(crate) use suspend::{Contents, Held, Movement};

pub use crate::error::{CheckpointRefusal, Error, PoolRefusal, StreamRefusal, Unknown};
pub use crate::heap::{Export, Lent, Shared, SharedPiece};

use crate::capture::Foresight;
use crate::driver::{Dependency, Driver, StreamHandle};
use crate::logging::{Level, Messages, Range, Teller};
use crate::processes::{LoanTable, OtherProcesses};
use crate::shown::shown;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Rank};
use captures::Captures;
use config::{SharedRounding, Tuning};
use end::Verdicts;
use figures::Accounts;
use history::{Ring, SegmentOrigins};
use layout::Lessons;
use live_blocks::Blocks;
use oom::{Errands, Observer};
use pools::Pools;
use sharing::Imports;
use stream_cache::StreamCaches;
use streams::Timelines;
use waits::WaitTable;

/// Everything behind the engine's lock. All files of the engine may borrow its fields apart from each other, so that a
/// capture proves while a heap searches; each field's own fields are private to the file of its type.
#[derive(Debug)]
struct State {
    pools: Pools,
    captures: Captures,
    blocks: Blocks,
    waiting: WaitTable,
    timelines: Timelines,
    accounts: Accounts,
    history: Option<Box<Ring>>,
    /// Where memory was asked for that came from the driver.
    segment_origins: SegmentOrigins,
    tuning: Tuning,
    imports: Imports,
    /// Whether captures that begin from now on keep a journal, even if the configuration does not say so.
    journals: bool,
    /// What is foreseen from captures that were refused for a programmatic edge.
    foresight: Option<Arc<Foresight>>,
    lessons: Lessons,
    /// The latest answer of the driver; kept for its capacity.
    terminals: Vec<Dependency>,
    /// What is told once the lock is released.
    messages: Messages,
}

/// The engine with its lock held: what its calls do.
struct Locked<'a, D: Driver> {
    state: &'a mut State,
    driver: &'a D,
    config: &'a Config,
    /// Its locks are its own, and come after the engine's; so do the loans'.
    caches: &'a StreamCaches,
    loans: &'a LoanTable,
    /// What is done once the lock is released.
    errands: Errands,
}

/// An allocator on one device.
///
/// All calls may come from any thread, by these rules:
///
/// * Calls that concern streams of a capture read its graph and must not run while another thread captures into the
///   same graph: CUDA's graph objects are not thread-safe.
/// * A stream belongs to the thread that named it last (in [`Engine::allocate`], [`Engine::begin_capture`] or
///   [`Engine::mark_stream`]). Of another thread's stream the engine asks only whether it captures, and it records no
///   event there. A thread that is to capture on a stream which another thread has used names the stream first. On a
///   work-stealing runtime give each stream to one thread, or call [`Engine::mark_stream`] when it moves.
/// * The thread that asks for memory in a capture takes over all streams that the capture was seen on. A block of a
///   capture that another thread frees becomes free with the capturing thread's next request.
/// * A capture that uses blocks from before, which other threads may free, is announced ([`Engine::begin_capture`])
///   before it uses them.
///
/// A stream that any call has named lives until [`Engine::retire_stream`] has been told of its end, or until the engine is
/// dropped: the engine may ask the driver about it, and a driver may give a new stream the old one's handle. A stream
/// that captures when a block that it has used is freed lives until its capture has ended both here and in the driver. A
/// capture is ended or abandoned here before its streams begin another.
///
/// Dropping the engine gives back the memory of every pool that no live block, capture, graph or running work uses; the
/// rest is left to the driver. Blocks that were never freed are reported ([`Engine::leaks`]).
///
/// Every call of `Engine`, [`HostCalls`], [`Plans`] and [`Sharing`] that can fail may return [`Error::Poisoned`], and
/// [`Error::Unknown`] for a name of nothing; sections about errors name the others.
pub struct Engine<D: Driver> {
    driver: D,
    config: Config,
    /// Tells the engines of a process apart.
    number: u32,
    teller: Teller,
    caches: StreamCaches,
    rounding: SharedRounding,
    state: Mutex<State>,
    /// Held while the device is waited for or a capture begins.
    device_waits: Mutex<()>,
    verdicts: Verdicts,
    /// What goes to other processes and comes from them.
    processes: OtherProcesses,
    observers: Mutex<Vec<Observer>>,
    /// Whether what memory holds was written when a request failed.
    dumped: AtomicBool,
}

shown!([D: Driver] Engine<D>: |it| config = it.config);

/// The calls for hosts that launch graphs by themselves, or that know memory by its address as plug-ins do, and for
/// tools and tests: [`Engine::host`].
///
/// [`Pool`](crate::Pool), [`Graph`](crate::Graph), [`Memory`](crate::Memory) and [`Regions`](crate::regions::Regions)
/// make these calls for a program and keep the promises that go with them; a program that calls `HostCalls` keeps these
/// promises by itself.
pub struct HostCalls<'a, D: Driver>(&'a Engine<D>);

/// Where a capture's blocks are to lie, and when their memory comes: [`Engine::plans`].
pub struct Plans<'a, D: Driver>(&'a Engine<D>);

/// Memory that other processes and devices use: [`Engine::sharing`].
pub struct Sharing<'a, D: Driver>(&'a Engine<D>);

impl<D: Driver> Engine<D> {
    /// An engine on a driver. Asks the driver for the device's size and nothing else.
    pub fn new(driver: D, config: Config) -> Self {
        let total = driver.memory_info().ok().map(|info| info.total);
        let number = names::new_engine();
        let teller = Teller::new(driver.device(), config.settings.nvtx);
        let caches = StreamCaches::new(number, heard::kept_by(&config.settings));
        let mut state = State {
            pools: Pools::new(number),
            captures: Captures::default(),
            blocks: Blocks::new(number),
            waiting: WaitTable::default(),
            timelines: Timelines::default(),
            accounts: Accounts::default(),
            history: None,
            segment_origins: SegmentOrigins::new(),
            tuning: Tuning::new(config.settings.clone(), total),
            imports: Imports::default(),
            journals: false,
            foresight: None,
            lessons: Lessons::default(),
            terminals: Vec::new(),
            messages: Messages::new(teller),
        };
        state.keep_history(&caches, &HistoryOptions::latest(config.settings.history));
        let engine = Self {
            driver,
            rounding: SharedRounding::new(config.settings.rounding),
            config,
            number,
            teller,
            caches,
            state: Mutex::new(Rank::Engine, state),
            device_waits: Mutex::new(Rank::DeviceWaits, ()),
            verdicts: Verdicts::new(),
            processes: OtherProcesses::new(),
            observers: Mutex::new(Rank::Observers, Vec::new()),
            dumped: AtomicBool::new(false),
        };
        engine.tell(Level::Info, || {
            let settings = engine.config.settings.to_string();
            let settings = if settings.is_empty() { "the default settings" } else { &settings };
            format!("engine {number} begins with {settings}")
        });
        engine
    }

    /// Tells of something that has happened; no lock of the engine is held.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn tell(&self, level: Level, text: impl FnOnce() -> String) {
        self.teller.tell(level, text);
    }

    /// Shows a profiler how long something takes, until what is returned is dropped. Locks may be held.
    pub(crate) fn range(&self, text: impl FnOnce() -> String) -> Option<Range> {
        self.teller.range(text)
    }

    /// The calls for hosts that launch by themselves, plug-ins, tools and tests.
    pub fn host(&self) -> HostCalls<'_, D> {
        HostCalls(self)
    }

    /// The calls about layouts, learning and memory that comes at a capture's end.
    pub fn plans(&self) -> Plans<'_, D> {
        Plans(self)
    }

    /// The calls about memory that other processes and devices use.
    pub fn sharing(&self) -> Sharing<'_, D> {
        Sharing(self)
    }

    /// The driver that the engine was made on.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    fn with<'a>(&'a self, state: &'a mut State) -> Locked<'a, D> {
        let Self { driver, config, caches, processes, .. } = self;
        let (loans, errands) = (processes.loans(), Errands::default());
        Locked { state, driver, config, caches, loans, errands }
    }

    /// A thread that panicked inside the engine has broken an invariant of ours, which is a bug; its
    /// books may be wrong, and memory is not handed out by them any more.
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        // An error that is made and not needed would be dropped at each call.
        match self.state.lock_whole() {
            Some(state) => Ok(state),
            None => Err(Error::Poisoned),
        }
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// Tells, as the engine's messages are told, of something that has happened to it; no lock of the library is held.
    #[doc(hidden)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn tell(&self, level: Level, text: impl FnOnce() -> String) {
        self.0.tell(level, text);
    }

    /// Checks the invariants of the engine's tables, in builds with debug assertions; does nothing in others.
    ///
    /// # Errors
    /// The first invariant that does not hold, which is a bug of the engine.
    #[doc(hidden)]
    pub fn verify(&self) -> Result<(), String> {
        #[cfg(debug_assertions)]
        verify::verify(self.0)?;
        Ok(())
    }
}

/// The stream that a handle names in every thread.
#[inline]
pub(crate) fn one_stream(stream: StreamHandle, call: &'static str) -> Result<StreamHandle, Error> {
    /// `CU_STREAM_LEGACY`, another name of the stream with the handle zero.
    const LEGACY: usize = 1;
    /// `CU_STREAM_PER_THREAD`: a different stream in every thread.
    const PER_THREAD: usize = 2;
    match stream.bits() {
        LEGACY => Ok(StreamHandle::from_bits(0)),
        PER_THREAD => Err(Error::Stream { call, stream, why: StreamRefusal::PerThread }),
        _ => Ok(stream),
    }
}

impl<D: Driver> Drop for Engine<D> {
    fn drop(&mut self) {
        self.report_leaks();
        if let Ok(mut state) = self.lock() {
            self.with(&mut state).close();
        }
    }
}
