//! The one error of the library.

use std::io;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

use crate::check::Violation;
use crate::driver::{CaptureId, DriverError, StreamHandle};
use crate::engine::{
    GraphId, HandleError, Leak, LoanId, OutOfMemory, PoolId, PoolLabel, WhyNotShared,
};
use crate::journal::BlockNumber;
use crate::logging::first_of;
use crate::uses::LateUse;

/// Why a call failed. Unless a variant says otherwise, nothing has changed. A call that names what does not exist fails
/// with [`Error::Unknown`], and every call of an engine in which a thread has panicked with [`Error::Poisoned`];
/// "Errors" sections name the others.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the names of most fields say what they are")]
#[non_exhaustive]
pub enum Error {
    /// A request for zero bytes.
    #[error("{call}: zero bytes requested; a block has at least one byte")]
    ZeroBytes { call: &'static str },
    /// The share of the device's memory is not a number from 0 to 1.
    #[error("set_memory_fraction: expected a share of the memory from 0 to 1, found {fraction}")]
    MemoryFraction { fraction: f64 },
    /// No memory is proven free for the request, and no more can be got. The capture, if one is under way, is unharmed.
    /// A suspended pool that it was to resume ([`Purpose::Resume`]) stays suspended, and memory that had come was given
    /// back; a pool that is only short of a part keeps it.
    ///
    /// [`Purpose::Resume`]: crate::engine::Purpose::Resume
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// The driver refused a call.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// What the call names is not there.
    #[error("{call}: {what}")]
    Unknown { call: &'static str, what: Unknown },
    /// The capture was ended or abandoned here, and its streams still capture: nothing more can be proven in it.
    #[error(
        "{call}: capture {} was ended or abandoned in this engine; end it on the stream before the \
         stream is used again",
        .capture.0
    )]
    CaptureEnded { call: &'static str, capture: CaptureId },
    /// An invalid operation has invalidated the capture. If the engine had seen the stream in it, all that the engine
    /// decided in the capture was rolled back.
    #[error(
        "{call}: the capture of {stream} was invalidated by an invalid operation{}; what was handed out in it is \
         rolled back",
        if *.ended { " and has ended without a graph" } else { "; end it, its graph will never run" }
    )]
    CaptureInvalidated {
        call: &'static str,
        stream: StreamHandle,
        /// Whether the library has ended it on the stream.
        ended: bool,
    },
    /// A stream is not as the call needs it.
    #[error("{call}: {stream} {why}")]
    Stream { call: &'static str, stream: StreamHandle, why: StreamRefusal },
    /// A pool is not as the call needs it.
    #[error("{call}: {pool} {why}")]
    Pool { call: &'static str, pool: Box<PoolLabel>, why: PoolRefusal },
    /// A checkpoint of a pool cannot be taken, or cannot be restored.
    #[error("{call}: {pool} {why}")]
    Checkpoint { call: &'static str, pool: Box<PoolLabel>, why: CheckpointRefusal },
    /// Memory cannot be kept behind its addresses for others that have mapped it.
    #[error(
        "keep_exported: others that have mapped the memory at {address:#x} would not see what is written there later: \
         {why}"
    )]
    NotKept { address: u64, why: WhyNotShared },
    /// The device cannot be waited for, since one of its streams captures.
    #[error(
        "{call}: a stream of the device captures, which a wait for the device would invalidate; end \
         its capture first"
    )]
    DeviceCaptures { call: &'static str },
    /// The contents of a region's live blocks cannot be kept while it sleeps, or cannot be brought back now.
    #[error("{call}: {why}")]
    Backup { call: &'static str, why: BackupRefusal },
    /// Memory cannot be shared with other processes, or that of another process cannot be obtained.
    #[error("{call}: {why}")]
    Sharing { call: &'static str, why: SharingRefusal },
    /// A stream was set back behind the users of a block, after another block had got the same place by the old order.
    /// The capture was rolled back; its graph must not be launched.
    #[error(
        "the capture is refused: {stream} was set back behind work that block {} relied on to take \
         over its place; let the stream wait for an event behind that work before it goes on, or \
         allocate the block after the set-back",
        .block.0
    )]
    SetBack {
        stream: StreamHandle,
        /// The block that took the place over.
        block: BlockNumber,
    },
    /// The capture keeps no journal.
    #[error(
        "{call}: capture {} keeps no journal; turn the checker on, or Config::journal, or call \
         HostCalls::keep_journals before the capture begins",
        .capture.0
    )]
    NoJournal { call: &'static str, capture: CaptureId },
    /// A thread panicked inside the engine. The engine's tables may be wrong, so it hands out nothing any more.
    #[error("a thread panicked inside the engine; nothing is handed out any more")]
    Poisoned,
    /// The checker refuses the capture: its graph must not be launched. The capture was rolled back.
    #[error("the capture is refused: {0}")]
    Refused(Box<Violation>),
    /// The checker refused the capture, and would have accepted it if each programmatic launch had waited for its
    /// predecessor. The capture was rolled back. The engine has noted where the capture launched programmatically, and
    /// holds memory back there when the same work is captured again
    /// ([`Engine::set_attempt`](crate::engine::Engine::set_attempt)).
    #[error(
        "the capture is refused because of a programmatic launch; capture again: the engine has noted \
         the launch and will allow for it (or set `programmatic` to lag, or to trust if every kernel \
         waits for its predecessor before it touches memory): {0}"
    )]
    CaptureAgain(Box<Violation>),
    /// The host ended a capture whose blocks get their memory at its end without naming its graph. The checker could
    /// not judge the plan, so nothing was mapped: the graph must not be launched.
    #[error(
        "the blocks of capture {} never got memory of their own, because it was ended without its \
         graph; its graph must not be launched",
        .capture.0
    )]
    Unplanned { capture: CaptureId },
    /// A capture cannot get its memory at its end.
    #[error(
        "the memory of capture {} cannot come at its end: the device has no virtual memory management, \
         memory is not cached, or blocks were allocated in it while no record was kept; capture it \
         twice instead, or decide before its first allocation",
        .capture.0
    )]
    CannotPlan { capture: CaptureId },
    /// A capture needs more memory at its end than there is. It was rolled back; its graph must not be launched.
    #[error("{report}; the capture runs on {bytes} bytes in all; its graph must not be launched")]
    PlanOutOfMemory {
        /// What the capture runs on, in bytes.
        bytes: u64,
        /// How much of that is new memory.
        new_bytes: u64,
        /// How much more the pool may hold, where there is a limit.
        room: Option<u64>,
        /// The figures of pool, engine and device.
        report: Box<OutOfMemory>,
    },
    /// A node has an address in a block that it comes too late for, and
    /// [`Config::refuse_late_uses`](crate::engine::Config::refuse_late_uses) is set. The capture was rolled
    /// back; its graph must not be launched.
    #[error("the capture is refused: {}", told(.0))]
    LateUse(Vec<LateUse>),
    /// No event could be recorded behind a launch and the device could not be waited for, so it is unknown when the
    /// pool's graphs have finished. The pool launches nothing any more: make another. Graphs of this pool that are
    /// dropped from now on keep their memory for good.
    #[error(
        "the end of an earlier launch in {pool} could not be marked, so none can be ordered after \
         it, now or later; make another pool and capture there; graphs of this one that are dropped from now \
         on are never released, nor is their memory"
    )]
    OrderLost { pool: PoolId },
    /// There is already an engine of this device.
    #[error("device {device} has an engine already; one device has one engine here")]
    DeviceTaken { device: u32 },
    /// There is no engine in the table.
    #[error("there are no engines here; add one for each device first")]
    NoEngine,
    /// The engine of one of several devices refused.
    #[error("device {device}: {error}")]
    OnDevice {
        device: u32,
        #[source]
        error: Box<Error>,
    },
    /// cudarc's own call failed.
    #[cfg(feature = "cudarc")]
    #[error(transparent)]
    Cudarc(#[from] ::cudarc::driver::DriverError),
    /// The buffer's size in bytes exceeds what an address can hold.
    #[error("{call}: {len} elements of {size} bytes are more than there are addresses")]
    TooLong {
        call: &'static str,
        len: usize,
        /// The size of one element, in bytes.
        size: usize,
    },
    /// Memory is borrowed for one stream.
    #[error("{call}: memory is borrowed for {borrows} here, not for {stream}; give that stream, or lend to this one")]
    OtherStream {
        call: &'static str,
        /// The stream that it was asked for.
        stream: StreamHandle,
        /// The stream that borrows.
        borrows: StreamHandle,
    },
    /// cudarc tracks events of its own slices now, which would invalidate the capture.
    #[error(
        "capture: cudarc tracks the events of its slices, and one that was recorded before the \
         capture ruins it when a slice is used inside; hold the guard of `untracked` meanwhile"
    )]
    Tracking,
}

impl Error {
    /// The report, where the call failed for want of memory.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Self::OutOfMemory(report) | Self::PlanOutOfMemory { report, .. } => Some(report),
            _ => None,
        }
    }
}

/// What a call names that is not there ([`Error::Unknown`]).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unknown {
    /// The block is not live: it was freed, or belongs to another engine.
    #[error("block {} is not live in this engine; was it freed before?", .0.0)]
    Block(BlockNumber),
    /// There is no such pool.
    #[error("{0} is not one of this engine; it was destroyed, or belongs to another engine")]
    Pool(PoolId),
    /// There is no such capture under way.
    #[error(
        "capture {} is not under way in this engine; it has ended, was abandoned, or never allocated",
        .0.0
    )]
    Capture(CaptureId),
    /// There is no such graph.
    #[error(
        "{0} holds no memory of this engine; it was released before, or belongs to another engine"
    )]
    Graph(GraphId),
    /// There is no such loan between processes.
    #[error("there is no such loan here; was it given back before?")]
    Loan(LoanId),
    /// No pool has this tag.
    #[error("no region {0:?}; a pool belongs to one by its configuration (PoolConfig::tag)")]
    Region(String),
    /// There is no engine of this device.
    #[error("device {0} has no engine here; make one on a driver of that device and add it")]
    Device(u32),
    /// The address belongs to no engine.
    #[error(
        "{0:#x} lies in the memory of no engine here; it was given back to the driver, or came from elsewhere"
    )]
    Address(u64),
}

/// Why a call refuses a stream; the message goes on from the stream's name ([`Error::Stream`]).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StreamRefusal {
    /// The stream does not capture.
    #[error("is not capturing; begin the capture on the stream first")]
    NotCapturing,
    /// The stream is not in the capture.
    #[error(
        "is not in this capture; make it wait for an event that was recorded on a stream of the capture first"
    )]
    NotInCapture,
    /// A graph cannot be launched on a stream that captures.
    #[error(
        "is capturing; launch the graph on a stream that is not, since as a part of another graph nothing would keep \
         it from running beside the graphs of its pool"
    )]
    LaunchWhileCapturing,
    /// The order behind a pool's launches cannot be captured.
    #[error(
        "is capturing, and a capture cannot be ordered behind launches of the pool's graphs; give a stream that does \
         not capture, or call when the capture has ended"
    )]
    OrderWhileCapturing,
    /// A copy from the host's memory would be captured as a pointer to that memory.
    #[error(
        "is capturing, and every launch of the graph would read the host's memory again, which may be gone by then; \
         copy before the capture begins"
    )]
    CopyWhileCapturing,
    /// `CU_STREAM_PER_THREAD` names a different stream in every thread, so the engine cannot know its order.
    #[error(
        "is a different stream in every thread; give the engine a stream that was created, or the legacy stream"
    )]
    PerThread,
    /// The handle of a default stream means another stream on each device.
    #[error(
        "is a default stream, and every device has one of this handle; use a stream that was created, or say which \
         device is meant (Devices::of_device)"
    )]
    PerDevice,
    /// The stream cannot be retired: the engine will ask about it again.
    #[error(
        "is in a capture, or was recorded for a block that is live or waits, or could not be asked where it stands; end \
         captures, free the blocks, wait for the device, and keep the stream until this call succeeds"
    )]
    InUse,
    /// The stream cannot be retired: it has other owners.
    #[error("has other owners, such as buffers that were allocated on it; drop them first")]
    Held,
    /// The stream belongs to another context than the engine.
    #[error(
        "belongs to another context than the engine; give a stream of the context that the engine was made with"
    )]
    Foreign,
}

/// Why a call refuses a pool; the message goes on from the pool's name ([`Error::Pool`]).
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the names of most fields say what they are")]
#[non_exhaustive]
pub enum PoolRefusal {
    /// The pool cannot be destroyed yet.
    #[error("{}", in_use([*.blocks, *.captures, *.graphs, *.waiting]))]
    InUse { blocks: usize, captures: usize, graphs: usize, waiting: usize },
    /// The pool cannot be suspended or compacted now: work that the engine knows of may use its memory.
    #[error(
        "is busy: {captures} captures under way use it, {waiting} freed blocks wait for work that may still use \
         them; end the captures, let the work complete and try again"
    )]
    Busy {
        captures: usize,
        /// Freed blocks that wait, or are free for one stream only until its work has completed.
        waiting: usize,
    },
    /// The pool's memory cannot come back at the same addresses once it is given back.
    #[error(
        "has memory that is allocated, not mapped, and would not come back at the same addresses; this needs a \
         device with virtual memory management, caching, segments that grow or are not exportable, and memory that \
         comes from the driver"
    )]
    CannotSuspend,
    /// Other processes or devices have mapped memory of the pool
    /// ([`Sharing::keep_exported`](crate::engine::Sharing::keep_exported)), which must stay behind its addresses.
    #[error(
        "cannot give its memory away: others have memory of it by handles that they exported, and would be left with \
         the old memory; it can go when its blocks are freed and its graphs are destroyed"
    )]
    Exported,
    /// The pool is suspended, or short of a part of its memory that the driver has refused to give back:
    /// there is none behind some of its addresses.
    #[error("is suspended, or short of memory; resume it first ({remedy})")]
    Suspended {
        /// The call that brings it back: `HostCalls::resume_pool`, `Pool::resume` of the pool's owner, or
        /// `Regions::wake` where its region sleeps.
        remedy: &'static str,
    },
    /// The pool belongs to a [`graphs::Pool`](crate::graphs::Pool), which would go on to launch graphs while their
    /// memory is away.
    #[error(
        "belongs to a graphs::Pool, which holds launches of its graphs back while their memory is away; make that \
         one's call (Pool::suspend_discarding_outputs, Pool::resume, Pool::compact)"
    )]
    Owned,
    /// The pool's region is asleep, and what its live blocks held is kept by the region.
    #[error(
        "is asleep; wake its region by what put it to sleep (Regions::wake), or what its blocks hold is lost"
    )]
    Asleep,
    /// A graph of the pool runs, and the call does not wait for it.
    #[error("may be running a graph; call sleep, which waits for it")]
    Runs,
    /// Live blocks lie in the pool, and suspending it would lose what they hold: blocks that belong to no graph, or,
    /// for a call that discards those, blocks of other pools, which this pool has offered the memory. Nothing was given
    /// back.
    #[error("{}", in_the_way(.blocks, *.remedy))]
    HasBlocks {
        /// The blocks, in order of addresses.
        blocks: Vec<Leak>,
        /// The call that discards what the pool's own blocks hold; `None` where the blocks are other pools'.
        remedy: Option<&'static str>,
    },
    /// The checker refuses what compacting the pool would change: a flaw of the engine. All graphs and blocks
    /// have the memory that they had.
    #[error("is not compacted, for it would lose something: {0}")]
    CompactionRefused(Box<Violation>),
    /// A graph cannot be launched while blocks live in memory of its pool that is lent: it would overwrite
    /// them. Nothing was launched.
    #[error(
        "has lent memory that its graphs use to blocks that live, and would be overwritten; free them first: {}",
        listed(.blocks)
    )]
    BlocksLent {
        /// The blocks, in order of addresses.
        blocks: Vec<Leak>,
    },
    /// The pool has nothing to lend to another process ([`Pool::lend_to_process`](crate::Pool::lend_to_process)).
    #[error(
        "lends no {bytes} bytes now: its graphs leave none in one place between their launches (with memory that comes \
         at a capture's end none at all), or a capture uses the pool"
    )]
    NothingLent { bytes: u64 },
    /// A graph cannot be launched, since no event could be recorded behind work on memory that its pool has
    /// lent. Nothing was launched.
    #[error(
        "has lent memory to {stream}, and what that has done with it cannot be marked now (it captures, or belongs to \
         another thread); launch when that has marked it, or wait for the device first (Engine::wait_for_device)"
    )]
    LentWork { stream: StreamHandle },
    /// The pool, which a capture uses, was dropped by its last holder when the capture was ended, so nothing could
    /// order the graph among those of the pool. The capture is over, and nothing of it is left.
    #[error(
        "was dropped while the capture that uses it was ended; keep the pool until the graph is there"
    )]
    Going,
    /// The graph's executable does not fit into the pool's budget for executables beside the pinned ones. Nothing was
    /// launched.
    #[error(
        "has a budget of {budget} bytes for executables, of which {pinned} are pinned, and this graph's takes {bytes}; \
         raise the budget, or pin fewer"
    )]
    NoExecutable {
        /// What the executable takes, in bytes, as the driver foresees it.
        bytes: u64,
        /// What the pinned executables take, in bytes.
        pinned: u64,
        budget: u64,
    },
    /// The pool is an estimate's, and captures into it are under way or have become graphs, in place of being shown: what
    /// they need is not known.
    #[error(
        "is an estimate's, and not all captures into it were shown; end each with Estimate::show"
    )]
    NotShown,
    /// The pool belongs to another engine than the call.
    #[error("belongs to another engine; give a pool that was made with this one")]
    Foreign,
}

/// Why the contents of a region's live blocks cannot be kept while it sleeps, or cannot be brought back now
/// ([`Error::Backup`]).
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the names of most fields say what they are")]
#[non_exhaustive]
pub enum BackupRefusal {
    /// The host has no page-locked memory left. Contents of live blocks stay as they are.
    #[error(
        "out of host memory: {bytes} bytes of page-locked memory are missing to keep what {} holds; free host memory \
         (Regions::free_host of other engines gives back what keeps nothing there), have a file keep it \
         (Backup::File), or let the region drop its contents (Backup::None)",
        held_by(.pool)
    )]
    HostOutOfMemory {
        /// The pool; `None` where memory was reserved for no pool in particular.
        pool: Option<PoolLabel>,
        /// The size that is missing, in bytes.
        bytes: u64,
        source: Box<DriverError>,
    },
    /// More page-locked memory would be held than the host has for this process. None was locked for it.
    #[error(
        "{bytes} bytes of page-locked memory would be held, for what {} holds too, and the host has {host_bytes} for \
         this process (its memory, or the least limit of its memory cgroups); keep less: let the region drop its \
         contents (Backup::None), have a file keep them (Backup::File), or free host memory (Regions::free_host)",
        held_by(.pool)
    )]
    HostTooSmall {
        /// The pool; `None` where memory was reserved for no pool in particular.
        pool: Option<PoolLabel>,
        /// What the regions would hold in all, in bytes.
        bytes: u64,
        /// What the host has for this process, in bytes.
        host_bytes: u64,
    },
    /// The system has refused a file. A region that was to sleep is awake, one that was to wake sleeps, and can be woken
    /// again.
    #[error("a file for what region {region:?} holds ({path:?}) cannot be {act}: {source}")]
    File {
        region: Arc<str>,
        /// The folder that the host has named, or the file that processes share.
        path: Arc<Path>,
        /// What was to be done with it: "made", "written", "named" or "read".
        act: &'static str,
        /// What the system has answered.
        source: io::Error,
    },
}

/// A pool in a message, or that there is none.
fn held_by(pool: &Option<PoolLabel>) -> String {
    pool.as_ref().map_or("a region".to_owned(), ToString::to_string)
}

/// Why memory cannot be shared with other processes, or obtained from one of them ([`Error::Sharing`]).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SharingRefusal {
    /// The memory of a block cannot be shared.
    #[error("block {} cannot be shared: {why}", .block.0)]
    NotShared {
        /// The block.
        block: BlockNumber,
        /// Why.
        why: WhyNotShared,
    },
    /// Memory cannot be offered to other processes.
    #[error("{why}")]
    NotOffered {
        /// Why.
        why: String,
    },
    /// A handle names no memory that could be opened.
    #[error(transparent)]
    Handle(#[from] HandleError),
    /// The memory that a handle names could not be obtained from its process.
    #[error(
        "the memory of process {process} cannot be had: {by_number} (pidfd_getfd); {by_socket} (its socket). The \
         sending process must be alive and keep the memory until it is opened, run as the same user, and share a process \
         namespace (with ptrace allowed) or a network namespace with this one"
    )]
    Unreachable {
        /// The sender.
        process: u32,
        /// Why its descriptors cannot be copied.
        by_number: String,
        /// Why it does not send them.
        by_socket: String,
    },
    /// A loan of another process cannot be taken.
    #[error("{why}")]
    NotTaken {
        /// Why.
        why: String,
    },
}

/// Why a checkpoint of a pool cannot be taken, or cannot be restored; the message goes on from the pool's name
/// ([`Error::Checkpoint`]).
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the names of most fields say what they are")]
#[non_exhaustive]
pub enum CheckpointRefusal {
    /// A capture into the pool is under way, which changes the pool's live blocks.
    #[error(
        "has {captures} captures under way; end them first, or abandon them (Engine::abandon_capture)"
    )]
    Captures { captures: usize },
    /// Another process has a loan of the pool, whose block a restoration would end.
    #[error("has lent memory to another process; call the loan back first (Sharing::recall_loan)")]
    OnLoan,
    /// Live blocks of the pool may be in use in captures under way, into other pools.
    #[error(
        "has live blocks that are used on {streams} streams which are in captures under way, or may be; end those \
         first"
    )]
    BlocksInCapture { streams: usize },
    /// The pool's blocks cannot come back to their addresses with what they held: its memory is not
    /// cached, or came at the end of a capture.
    #[error(
        "has blocks that cannot be brought back to their addresses: its memory comes at the end of its captures, or is \
         not cached; use a pool whose captures have no plan (Plans::plan_capture), with caching"
    )]
    NoWayBack,
    /// The checkpoint was taken of another pool.
    #[error("is not the pool of this checkpoint, which is one of {of}; restore it there")]
    OtherPool {
        /// The checkpoint's pool.
        of: PoolId,
    },
    /// Memory of a block that the checkpoint names went back to the driver.
    #[error(
        "does not hold the {bytes} bytes at {address:#x} any more, where a block of the checkpoint lay; they went back \
         to the driver when nothing used them (Engine::empty_cache, or where memory was short); run what made the block \
         again, and take another checkpoint"
    )]
    Gone { address: u64, bytes: u64 },
}

/// By how many of each a pool is used, and what helps: blocks, captures, graphs and freed blocks that wait.
fn in_use(counts: [usize; 4]) -> String {
    const USERS: [(&str, &str, &str); 4] = [
        ("live block", "live blocks", "free its blocks"),
        ("capture under way", "captures under way", "end or abandon its captures"),
        ("graph", "graphs", "release its graphs"),
        (
            "freed block that work may still use",
            "freed blocks that work may still use",
            "let the work complete",
        ),
    ];
    let used = || counts.into_iter().zip(USERS).filter(|(count, _)| *count > 0);
    let users = used().map(|(count, (one, several, _))| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    });
    let remedies: Vec<_> = used().map(|(_, (.., remedy))| remedy).collect();
    let users: Vec<_> = users.collect();
    format!("is in use: {}; {}, and try again", users.join(", "), remedies.join(", "))
}

/// What blocks that lie in a pool mean for a call that would suspend it, and what helps.
fn in_the_way(blocks: &[Leak], remedy: Option<&str>) -> String {
    let listed = listed(blocks);
    match remedy {
        Some(remedy) => format!(
            "has live blocks that belong to no graph, and would lose what they hold; free them first, or let their \
             contents go with {remedy}: {listed}"
        ),
        None => format!(
            "has lent memory to blocks of other pools, which would lose what they hold; free them first: {listed}"
        ),
    }
}

/// The first blocks, and how many more there are.
fn listed(blocks: &[Leak]) -> String {
    first_of(blocks, 3).collect::<Vec<_>>().join(", ")
}

/// The first of several, and how many more there are.
fn told(uses: &[LateUse]) -> String {
    let first = uses.first().map(ToString::to_string).unwrap_or_default();
    match uses.len() {
        0 | 1 => first,
        all => format!("{first} (and {} more)", all - 1),
    }
}
