//! The history: what happened to memory lately, for snapshots.
//!
//! Every place that hands out memory keeps a ring of its own, so that keeping it costs no lock; a
//! snapshot takes what they have kept and merges it by time when the locks are released.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::config::setters;
use super::names::PoolId;
use super::planned::nanoseconds;
use super::pools::Pools;
use super::snapshot::Stacks;
use super::stream_cache::{StreamCache, StreamCaches};
use super::State;
use crate::driver::StreamHandle;
use crate::heap::MemoryMove;
pub use crate::snapshot::Frame as HostFrame;
use crate::snapshot::{Action as Shown, Annotation, AnnotationStage, HostContext, TraceEntry};

/// Where the host's calls came from, innermost first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// Return addresses.
    #[cfg(feature = "stacks")]
    Called(Vec<usize>),
    /// Frames that the host gave ([`with_frames`]), and what only the host can read ([`with_context`]): either, or both.
    Given(Vec<HostFrame>, Option<HostContext>),
}

/// Whether any host has ever given frames: looked at before anything of the thread's own.
static GIVING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static GIVEN: RefCell<Option<Arc<Frames>>> = const { RefCell::new(None) };
}

/// Runs engine calls that remember `frames`, innermost first, as where they came from: for hosts whose own stacks are
/// not the processor's, such as interpreters. Blocks, the history and snapshots then show these, whether `stacks` is
/// set or not, beside the context that was given around this call ([`with_context`], [`set_host_context`]).
pub fn with_frames<R>(frames: Vec<HostFrame>, calls: impl FnOnce() -> R) -> R {
    let context = Frames::given().and_then(|around| around.context().cloned());
    with_given(Frames::Given(frames, context), calls)
}

/// Runs engine calls that remember `context`, a value that only the host can read, as their origin. Blocks, the history
/// and snapshots give it back ([`TraceEntry::context`]), whether `stacks` is set or not.
pub fn with_context<R>(context: HostContext, calls: impl FnOnce() -> R) -> R {
    with_given(Frames::Given(Vec::new(), Some(context)), calls)
}

/// Has the calling thread's engine calls remember `context` from now on, as those in [`with_context`] do; `None` ends
/// that. For hosts that cannot hand over their calls as a function.
pub fn set_host_context(context: Option<HostContext>) {
    replace_given(context.map(|context| Arc::new(Frames::Given(Vec::new(), Some(context)))));
}

fn with_given<R>(frames: Frames, calls: impl FnOnce() -> R) -> R {
    /// Puts back what was there, even if the calls panic.
    struct Restore(Option<Arc<Frames>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            replace_given(self.0.take());
        }
    }
    let _restore = Restore(replace_given(Some(Arc::new(frames))));
    calls()
}

fn replace_given(frames: Option<Arc<Frames>>) -> Option<Arc<Frames>> {
    if frames.is_some() {
        GIVING.store(true, Ordering::Relaxed);
    }
    // A thread that ends may still free blocks when its own variables are gone.
    GIVEN.try_with(|given| given.replace(frames)).ok().flatten()
}

impl Frames {
    /// The frames that the host gave for this call.
    #[inline]
    pub(super) fn given() -> Option<Arc<Self>> {
        GIVING.load(Ordering::Relaxed).then(Self::of_thread).flatten()
    }

    #[cold]
    fn of_thread() -> Option<Arc<Self>> {
        GIVEN.try_with(|given| given.borrow().clone()).ok().flatten()
    }

    /// The frames that the host gave for this call, else those of the block that it is about.
    #[inline]
    pub(super) fn given_or(of_block: Option<Arc<Self>>) -> Option<Arc<Self>> {
        Self::given().or(of_block)
    }

    /// What only the host can read.
    pub(super) fn context(&self) -> Option<&HostContext> {
        match self {
            Self::Given(_, context) => context.as_ref(),
            #[cfg(feature = "stacks")]
            Self::Called(_) => None,
        }
    }

    /// The frames of the engine's caller; none without the feature `stacks`.
    #[cfg(not(feature = "stacks"))]
    pub(super) fn capture() -> Arc<Self> {
        Arc::new(Self::Given(Vec::new(), None))
    }

    /// The frames of the engine's caller.
    #[cfg(feature = "stacks")]
    pub(super) fn capture() -> Arc<Self> {
        /// How many frames are recorded.
        const DEPTH: usize = 64;
        let mut addresses = Vec::with_capacity(16);
        backtrace::trace(|frame| {
            addresses.push(frame.ip() as usize);
            addresses.len() < DEPTH
        });
        Arc::new(Self::Called(addresses))
    }

    /// The frames by name.
    pub(super) fn resolve(&self) -> Vec<HostFrame> {
        match self {
            #[cfg(feature = "stacks")]
            Self::Called(addresses) => resolve(addresses),
            Self::Given(frames, _) => frames.clone(),
        }
    }
}

/// Looks return addresses up in debug information. The innermost frames are left out, up to the host's.
#[cfg(feature = "stacks")]
fn resolve(addresses: &[usize]) -> Vec<HostFrame> {
    let mut frames = Vec::new();
    for &address in addresses {
        backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
            let name = symbol.name().map(|name| name.to_string()).unwrap_or_default();
            let file = symbol.filename().map(|file| file.display().to_string());
            let line = symbol.lineno().unwrap_or(0);
            frames.push(HostFrame { filename: file.unwrap_or_default(), line, name });
        });
    }
    // This file is among the first, where there is debug information: it says where the library's sources lie.
    let sources = frames.iter().find_map(|it| it.filename.strip_suffix("engine/history.rs"));
    let sources = sources.unwrap_or("<none>").to_owned();
    let own = frames.iter().take_while(|frame| is_inner(frame, &sources)).count();
    frames.split_off(own)
}

/// Whether a function may lie between the host's and the one that records the stack: by its name, and where it was
/// inlined, for it has no crate in its name then, by its file. `sources` is where this library's lie.
#[cfg(feature = "stacks")]
fn is_inner(HostFrame { filename, name, .. }: &HostFrame, sources: &str) -> bool {
    const CRATES: [&str; 7] = [
        "alloc::",
        "backtrace::",
        "core::",
        "regraph::",
        "regraph_c::",
        "regraph_plugin::",
        "std::",
    ];
    // An implementation of a trait begins with `<`; functions of the C library have no crate.
    let path = name.trim_start_matches(['<', '&']);
    let of_c = name.starts_with("regraph_") && !name.contains("::");
    let inlined = filename.starts_with(sources)
        || ["/rustc/", "/backtrace-"].iter().any(|folder| filename.contains(folder));
    name.is_empty() || of_c || inlined || CRATES.iter().any(|it| path.starts_with(it))
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Allocate,
    /// The host let go of a block that no stream may take yet.
    Free,
    /// The host let go of a block, and it could be handed out again at once.
    FreeCompleted,
    /// A block that had waited can be handed out again.
    Completed,
    /// Memory came from the driver, or went back.
    Memory(MemoryMove),
    /// A request failed; the address is what the device had free, in bytes.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
    /// A capture began; the address is its number.
    CaptureBegin,
    /// A capture ended; the address is its number.
    CaptureEnd,
}

/// Where memory was asked for, by address, with its size in bytes.
pub(super) type SegmentOrigins = BTreeMap<u64, (u64, Arc<Frames>)>;

/// What was asked for: a block's bytes and stream, and by which frames of the host, where that is recorded.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// In bytes.
    pub(super) requested: u64,
    pub(super) stream: StreamHandle,
    pub(super) frames: Option<Arc<Frames>>,
}

impl Asked {
    /// A copy, with the frames taken out of `self`.
    pub(super) fn take(&mut self) -> Self {
        Self { frames: self.frames.take(), ..*self }
    }
}

/// An event as it is kept, in three quarters of a cache line.
#[derive(Clone, Debug)]
struct PastEvent {
    /// Nanoseconds since the rings began.
    stamp: u64,
    address: u64,
    bytes: u64,
    stream: StreamHandle,
    frames: Option<Arc<Frames>>,
    /// Its pool's number.
    pool: u32,
    action: EventKind,
}

impl EventKind {
    /// What viewers are shown.
    fn shown(self) -> &'static [Shown] {
        match self {
            Self::Allocate => &[Shown::Alloc],
            Self::Free => &[Shown::FreeRequested],
            Self::FreeCompleted => &[Shown::FreeRequested, Shown::FreeCompleted],
            Self::Completed => &[Shown::FreeCompleted],
            Self::Memory(MemoryMove::Segment) => &[Shown::SegmentAlloc],
            Self::Memory(MemoryMove::Map) => &[Shown::SegmentMap],
            Self::Memory(MemoryMove::SegmentBack) => &[Shown::SegmentFree],
            Self::Memory(MemoryMove::Unmap) => &[Shown::SegmentUnmap],
            Self::OutOfMemory => &[Shown::Oom],
            Self::Snapshot => &[Shown::Snapshot],
            Self::CaptureBegin | Self::CaptureEnd => &[],
        }
    }

    /// What is left of it where some of what it shows is not kept.
    fn without(self, skipped: u16) -> Option<Self> {
        let is_kept = |action: Shown| skipped & bit(action) == 0;
        match (self, is_kept(Shown::FreeRequested), is_kept(Shown::FreeCompleted)) {
            (Self::FreeCompleted, true, false) => Some(Self::Free),
            (Self::FreeCompleted, false, true) => Some(Self::Completed),
            _ => self.shown().iter().all(|&action| is_kept(action)).then_some(self),
        }
    }
}

fn bit(action: Shown) -> u16 {
    1 << action as u16
}

/// What a history keeps ([`Engine::keep_history`](super::Engine::keep_history)).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HistoryOptions {
    /// How many of the latest events are kept; zero keeps none and forgets what was kept.
    pub entries: usize,
    /// Whether what was kept before is forgotten.
    pub clear: bool,
    /// Whether events say where calls came from; without it only live blocks and segments do.
    pub origins: bool,
    /// Whether snapshots are events too.
    pub snapshots: bool,
    /// Events that are not kept. Without those that hand blocks out and take them back a history says
    /// nothing of when its blocks lived.
    pub skipped: Vec<Shown>,
}

impl HistoryOptions {
    /// Keeps the latest `entries` events of all kinds, and forgets what was kept before.
    pub fn latest(entries: usize) -> Self {
        Self { entries, clear: true, origins: true, snapshots: false, skipped: Vec::new() }
    }

    setters! { [clear: bool, origins: bool, snapshots: bool, skipped: Vec<Shown>] }
}

/// The number of events in a full chunk.
const CHUNK: usize = 256;

/// Events one after the other.
type Chunk = Vec<PastEvent>;

/// The latest events of one place.
///
/// Full chunks are never changed, so snapshots share them: to copy a ring takes a step for each chunk.
#[derive(Debug)]
pub(super) struct Ring {
    /// Events count their nanoseconds from here, in all rings.
    begun: Instant,
    /// The oldest first.
    full: VecDeque<Arc<Chunk>>,
    /// What comes after those.
    open: Chunk,
    /// The number of events of the oldest chunk that are no longer kept.
    dropped: usize,
    /// Whether events were dropped to make room.
    lost: bool,
    /// How many are kept at most.
    most: usize,
    /// Whether events say where calls came from.
    origins: bool,
    /// A bit for each kind of event that is not kept.
    skipped: u16,
}

/// What a ring kept at one moment.
#[derive(Debug)]
pub(super) struct Past {
    /// The oldest first.
    chunks: Vec<Arc<Chunk>>,
    /// The number of events of the first chunk that a snapshot leaves out.
    dropped: usize,
    /// Whether events may have been dropped to make room.
    full: bool,
}

impl Past {
    /// What was kept, in order.
    fn events(&self) -> impl Iterator<Item = &PastEvent> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).skip(self.dropped)
    }
}

impl Ring {
    fn new(begun: Instant) -> Self {
        let (full, open) = (VecDeque::new(), Chunk::new());
        Self { begun, full, open, dropped: 0, lost: false, most: 0, origins: false, skipped: 0 }
    }

    /// Keeps events as `options` say from now on. Of those that are there as many stay as may.
    fn keep(&mut self, options: &HistoryOptions) {
        let asked = if options.snapshots { 0 } else { bit(Shown::Snapshot) };
        (self.most, self.origins) = (options.entries, options.origins);
        self.skipped = options.skipped.iter().fold(asked, |all, &action| all | bit(action));
        while self.count() > self.most {
            self.drop_oldest();
        }
    }

    #[inline]
    pub(super) fn push(
        &mut self,
        action: EventKind,
        (address, bytes): (u64, u64),
        stream: StreamHandle,
        pool: PoolId,
        frames: Option<Arc<Frames>>,
    ) {
        let Some(action) = action.without(self.skipped) else { return };
        let frames = frames.filter(|_| self.origins);
        let stamp = nanoseconds(self.begun.elapsed());
        let pool = pool.number();
        self.open.push(PastEvent { stamp, address, bytes, stream, frames, pool, action });
        if self.count() > self.most {
            self.drop_oldest();
        }
        if self.open.len() == CHUNK {
            self.close();
        }
    }

    /// The number of events that are kept.
    #[inline]
    fn count(&self) -> usize {
        self.full.len() * CHUNK + self.open.len() - self.dropped
    }

    /// The open chunk is full.
    #[cold]
    fn close(&mut self) {
        let full = std::mem::replace(&mut self.open, Chunk::with_capacity(CHUNK));
        self.full.push_back(Arc::new(full));
    }

    fn drop_oldest(&mut self) {
        self.lost = true;
        let oldest = match self.full.front_mut() {
            // A snapshot may still have it, and what its events have with them.
            Some(oldest) if oldest[self.dropped].frames.is_some() => Arc::get_mut(oldest),
            Some(_) => None,
            None => Some(&mut self.open),
        };
        if let Some(event) = oldest.and_then(|oldest| oldest.get_mut(self.dropped)) {
            event.frames = None;
        }
        self.dropped += 1;
        if self.dropped == CHUNK {
            self.full.pop_front();
            self.dropped = 0;
        }
    }

    /// What is kept now. Takes a step for each chunk.
    pub(super) fn past(&self) -> Past {
        let open = Arc::new(self.open.clone());
        Past {
            chunks: self.full.iter().cloned().chain([open]).collect(),
            dropped: self.dropped,
            full: self.lost || self.count() == self.most,
        }
    }
}

/// What rings kept at one moment.
#[derive(Debug)]
pub(super) struct Pasts {
    all: Vec<Past>,
    /// As events count it, and the time.
    now: (u64, SystemTime),
    /// The most events that are told.
    most: usize,
}

impl State {
    /// Keeps events from now on; none, and forgets them, where there is no room for any.
    pub(super) fn keep_history(&mut self, caches: &StreamCaches, options: &HistoryOptions) {
        let keeps = options.entries > 0;
        let stays = self.history.as_ref().filter(|_| keeps && !options.clear);
        let stays = stays.map(|history| history.begun);
        let begun = stays.or_else(|| keeps.then(Instant::now));
        let change = |ring: &mut Option<Box<Ring>>| {
            // All have one, or none has.
            if stays.is_none() {
                *ring = begun.map(|begun| Box::new(Ring::new(begun)));
            }
            ring.iter_mut().for_each(|ring| ring.keep(options));
        };
        for mut cache in caches.all() {
            change(&mut cache.history);
        }
        change(&mut self.history);
    }

    /// Notes where memory that came from the driver was asked for, or that memory went back.
    pub(super) fn note_segment(&mut self, mapped: bool, (address, bytes): (u64, u64)) {
        let origins = &mut self.segment_origins;
        while let Some((&gone, _)) = origins.range(address..address + bytes).next() {
            origins.remove(&gone);
        }
        if let Some(frames) = Frames::given().filter(|_| mapped) {
            origins.insert(address, (bytes, frames));
        }
    }

    /// Enters an event.
    pub(super) fn record_event(
        &mut self,
        action: EventKind,
        place: (u64, u64),
        stream: Option<StreamHandle>,
        pool: PoolId,
    ) {
        if let Some(history) = &mut self.history {
            let stream = stream.unwrap_or(StreamHandle::from_bits(0));
            history.push(action, place, stream, pool, Frames::given());
        }
    }

    /// Enters what becomes of a block of a heap, at an address and of so many bytes there, with its stream, and with the
    /// frames of the request for it or of the host's call now.
    pub(super) fn record_block(
        &mut self,
        action: EventKind,
        (heap, place): (u32, (u64, u64)),
        Asked { requested, stream, frames }: Asked,
    ) {
        // To the history a suspended pool has no blocks: they left with its memory.
        let Self { history: Some(history), pools, .. } = self else { return };
        let pool = pools.pool_of(heap);
        if pools.is_shut(pool) {
            return;
        }
        // A planned block's memory comes later, and is other graphs' too: as snapshots show it, it comes and goes with it.
        let is_planned = Pools::is_planned(heap);
        if is_planned && matches!(action, EventKind::Allocate) {
            history.push(EventKind::Memory(MemoryMove::Map), place, stream, pool, None);
        }
        history.push(action, (place.0, requested), stream, pool, frames);
        if is_planned && matches!(action, EventKind::FreeCompleted | EventKind::Completed) {
            history.push(EventKind::Memory(MemoryMove::Unmap), place, stream, pool, None);
        }
    }

    /// What the rings have kept, those of the stream caches included; `None` where nothing is kept.
    pub(super) fn pasts<'a>(
        &self,
        caches: impl IntoIterator<Item = &'a StreamCache>,
    ) -> Option<Pasts> {
        let history = self.history.as_deref()?;
        let rings = caches.into_iter().filter_map(|cache| cache.history.as_deref());
        Some(Pasts {
            all: std::iter::once(history).chain(rings).map(Ring::past).collect(),
            now: (nanoseconds(history.begun.elapsed()), SystemTime::now()),
            most: history.most,
        })
    }
}

impl Pasts {
    /// The history as viewers know it, captures, and whether it may be incomplete.
    pub(super) fn tell(
        &self,
        device: u32,
        stacks: &mut Stacks,
    ) -> (Vec<TraceEntry>, Vec<Annotation>, bool) {
        let Self { all, now: (now, at), most } = self;
        // Before what a full ring still has, the others know a part of the story only.
        let full = all.iter().filter(|past| past.full);
        let first = full.map(|past| past.events().next().map_or(0, |event| event.stamp));
        let begin = first.max();
        let mut events: Vec<_> = all.iter().flat_map(Past::events).collect();
        events.retain(|event| event.stamp >= begin.unwrap_or(0));
        events.sort_by_key(|event| event.stamp);
        let unix = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        let mut trace = Vec::new();
        let mut annotations = Vec::new();
        for &PastEvent { stamp, address, bytes, stream, ref frames, pool, action } in events {
            let time_us = unix.saturating_sub(now.saturating_sub(stamp) / 1_000);
            if let EventKind::CaptureBegin | EventKind::CaptureEnd = action {
                let begins = action == EventKind::CaptureBegin;
                let stage = if begins { AnnotationStage::Start } else { AnnotationStage::End };
                annotations.push(Annotation::capture(address, stage, device, time_us));
                continue;
            }
            let stream = stream.bits() as u64;
            let (frames, context) = stacks.of(frames.as_ref());
            for &action in action.shown() {
                let entry = match action {
                    Shown::Oom => TraceEntry::oom(bytes, address, stream, time_us),
                    _ => TraceEntry::new(action, address, bytes, stream, time_us),
                };
                let pool_id = (u64::from(pool), 0);
                let (frames, context) = (frames.clone(), context.clone());
                trace.push(TraceEntry { pool_id, frames, context, ..entry });
            }
        }
        // Each ring keeps as many, and some events are shown as two.
        let surplus = trace.len().saturating_sub(*most);
        trace.drain(..surplus);
        (trace, annotations, begin.is_some() || surplus > 0)
    }
}
