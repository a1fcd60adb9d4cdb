//! The history: what happened to memory lately, for snapshots.
//!
//! Every place that hands out memory keeps a ring of its own, so that keeping it costs no lock; a
//! snapshot merges them by time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::names::PoolId;
use super::snapshot::Stacks;
use super::state::{Locked, State};
use crate::driver::{CaptureId, Driver, StreamHandle};
use crate::index::{new_map, Map};
use crate::snapshot::{Action as Shown, Annotation, HostContext, Stage, TraceEntry};

/// Where the host's calls came from, innermost first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// Return addresses.
    #[cfg(feature = "stacks")]
    Called(Vec<usize>),
    /// As the host gave them ([`with_frames`]).
    Given(Vec<HostFrame>),
    /// What only the host can read ([`with_context`]).
    Context(HostContext),
}

/// Whether any host has ever given frames: looked at before anything of the thread's own.
static GIVING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static GIVEN: RefCell<Option<Arc<Frames>>> = const { RefCell::new(None) };
}

/// Runs engine calls that remember `frames`, innermost first, as where they came from: for hosts whose
/// own stacks are not the processor's, such as interpreters. Blocks, the history and snapshots then
/// show these, whether `stacks` is set or not.
pub fn with_frames<R>(frames: Vec<HostFrame>, calls: impl FnOnce() -> R) -> R {
    with_given(Frames::Given(frames), calls)
}

/// The same with something that only the host can read: blocks, the history and snapshots give it back
/// ([`TraceEntry::context`]).
pub fn with_context<R>(context: HostContext, calls: impl FnOnce() -> R) -> R {
    with_given(Frames::Context(context), calls)
}

/// The same for the calling thread's engine calls from now on; `None` ends that. For hosts that cannot
/// hand over their calls as a function.
pub fn set_host_context(context: Option<HostContext>) {
    replace_given(context.map(|context| Arc::new(Frames::Context(context))));
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

/// One frame of the host's, with what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostFrame {
    /// The source file, or empty.
    pub file: String,
    /// Its line, or zero.
    pub line: u32,
    /// The function, or empty.
    pub function: String,
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
            Self::Context(context) => Some(context),
            _ => None,
        }
    }

    /// The frames of the engine's caller; none without the feature `stacks`.
    #[cfg(not(feature = "stacks"))]
    pub(super) fn capture() -> Arc<Self> {
        Arc::new(Self::Given(Vec::new()))
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
            Self::Given(frames) => frames.clone(),
            Self::Context(_) => Vec::new(),
        }
    }
}

/// Looks return addresses up in debug information; frames of this crate's engine are left out.
#[cfg(feature = "stacks")]
fn resolve(addresses: &[usize]) -> Vec<HostFrame> {
    let mut frames = Vec::new();
    for &address in addresses {
        backtrace::resolve(address as *mut std::ffi::c_void, |symbol| {
            let function = symbol.name().map(|name| name.to_string()).unwrap_or_default();
            let file = symbol.filename().map(|file| file.display().to_string());
            let line = symbol.lineno().unwrap_or(0);
            frames.push(HostFrame { file: file.unwrap_or_default(), line, function });
        });
    }
    let inner = |frame: &HostFrame| {
        frame.function.starts_with("backtrace::")
            || frame.function.contains("regraph::engine::")
            || frame.function.is_empty()
    };
    let own = frames.iter().take_while(|frame| inner(frame)).count();
    frames.split_off(own)
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allocate,
    /// The host let go of a block that no stream may take yet.
    Free,
    /// The host let go of a block, and it could be handed out again at once.
    FreeCompleted,
    /// A block that had waited can be handed out again.
    Completed,
    /// A whole segment came from the driver.
    Segment,
    /// Memory was mapped into one.
    Map,
    /// A whole segment went back.
    SegmentBack,
    /// Memory was unmapped.
    Unmap,
    /// A request failed; the address is what the device had free, in bytes.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
    /// A capture began; the address is its number.
    CaptureBegin,
    /// A capture ended; likewise.
    CaptureEnd,
}

/// What is still to be told of a block that was freed and waits.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// In bytes.
    pub(super) requested: u64,
    pub(super) stream: StreamHandle,
    pub(super) frames: Option<Arc<Frames>>,
}

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// The clock's reading.
    pub(super) stamp: u64,
    pub(super) action: Action,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: StreamHandle,
    pub(super) pool: PoolId,
    pub(super) frames: Option<Arc<Frames>>,
}

/// An event as it is kept: half a cache line.
#[derive(Clone, Copy, Debug)]
struct Kept {
    stamp: u64,
    address: u64,
    bytes: u64,
    /// The row of its stream and pool.
    origin: u32,
    action: Action,
}

impl Action {
    /// What viewers are shown.
    fn shown(self) -> &'static [Shown] {
        match self {
            Self::Allocate => &[Shown::Alloc],
            Self::Free => &[Shown::FreeRequested],
            Self::FreeCompleted => &[Shown::FreeRequested, Shown::FreeCompleted],
            Self::Completed => &[Shown::FreeCompleted],
            Self::Segment => &[Shown::SegmentAlloc],
            Self::Map => &[Shown::SegmentMap],
            Self::SegmentBack => &[Shown::SegmentFree],
            Self::Unmap => &[Shown::SegmentUnmap],
            Self::OutOfMemory => &[Shown::Oom],
            Self::Snapshot => &[Shown::Snapshot],
            Self::CaptureBegin | Self::CaptureEnd => &[],
        }
    }

    /// What is left of it where some of what it shows is not kept.
    fn without(self, skipped: u16) -> Option<Self> {
        let is_kept = |action: Shown| skipped & bit(action) == 0;
        if let Self::FreeCompleted = self {
            return match (is_kept(Shown::FreeRequested), is_kept(Shown::FreeCompleted)) {
                (true, true) => Some(self),
                (true, false) => Some(Self::Free),
                (false, true) => Some(Self::Completed),
                (false, false) => None,
            };
        }
        self.shown().iter().all(|&action| is_kept(action)).then_some(self)
    }
}

fn bit(action: Shown) -> u16 {
    1 << action as u16
}

/// What a history keeps ([`Engine::keep_history`](super::Engine::keep_history)).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HistoryOptions {
    /// The latest so many events; zero keeps none and forgets what was kept.
    pub entries: usize,
    /// Whether what was kept before is forgotten.
    pub clear: bool,
    /// Whether events say where calls came from; else live blocks and segments alone do.
    pub origins: bool,
    /// Whether snapshots are events too.
    pub snapshots: bool,
    /// Events that are not kept. Without those that hand blocks out and take them back a history says
    /// nothing of when its blocks lived.
    pub skipped: Vec<Shown>,
}

impl HistoryOptions {
    /// All of the latest `entries` events, and nothing of what was kept before.
    pub fn latest(entries: usize) -> Self {
        Self { entries, clear: true, origins: true, snapshots: false, skipped: Vec::new() }
    }

    /// Sets whether what was kept before is forgotten.
    pub fn clear(self, clear: bool) -> Self {
        Self { clear, ..self }
    }

    /// Sets whether events say where calls came from.
    pub fn origins(self, origins: bool) -> Self {
        Self { origins, ..self }
    }

    /// Sets whether snapshots are events too.
    pub fn snapshots(self, snapshots: bool) -> Self {
        Self { snapshots, ..self }
    }

    /// Sets which events are not kept.
    pub fn skipped(self, skipped: Vec<Shown>) -> Self {
        Self { skipped, ..self }
    }

    fn keeps(&self) -> Keeps {
        let Self { entries, origins, snapshots, ref skipped, .. } = *self;
        let asked = if snapshots { 0 } else { bit(Shown::Snapshot) };
        let skipped = skipped.iter().fold(asked, |skipped, &action| skipped | bit(action));
        Keeps { most: entries, origins, skipped }
    }
}

/// What a ring keeps.
#[derive(Clone, Copy, Debug)]
struct Keeps {
    most: usize,
    origins: bool,
    /// A bit for each kind of event that is not kept.
    skipped: u16,
}

/// The latest events of one place.
#[derive(Debug)]
pub(super) struct Ring {
    clock: quanta::Clock,
    entries: Vec<Kept>,
    /// By entry; empty as long as there are none.
    frames: Vec<Option<Arc<Frames>>>,
    /// Streams and pools that events were of, and their rows.
    origins: Vec<(StreamHandle, PoolId)>,
    by_origin: Map<(StreamHandle, PoolId), u32>,
    latest: u32,
    /// The oldest entry, once the ring is full.
    oldest: usize,
    /// Whether events were dropped to make room.
    lost: bool,
    keeps: Keeps,
}

impl Ring {
    fn new(clock: quanta::Clock, keeps: Keeps) -> Self {
        Self {
            clock,
            entries: Vec::new(),
            frames: Vec::new(),
            origins: Vec::new(),
            by_origin: new_map(),
            latest: 0,
            oldest: 0,
            lost: false,
            keeps,
        }
    }

    /// Keeps other events from now on, and of those that are there as many as may stay.
    fn set_keeps(&mut self, keeps: Keeps) {
        if !self.frames.is_empty() {
            self.frames.resize(self.entries.len(), None);
            self.frames.rotate_left(self.oldest);
        }
        self.entries.rotate_left(self.oldest);
        self.oldest = 0;
        let surplus = self.entries.len().saturating_sub(keeps.most);
        self.entries.drain(..surplus);
        self.frames.drain(..surplus.min(self.frames.len()));
        self.lost |= surplus > 0;
        self.keeps = keeps;
    }

    #[inline]
    pub(super) fn push(
        &mut self,
        action: Action,
        (address, bytes): (u64, u64),
        stream: StreamHandle,
        pool: PoolId,
        frames: Option<Arc<Frames>>,
    ) {
        let Some(action) = action.without(self.keeps.skipped) else { return };
        let frames = frames.filter(|_| self.keeps.origins);
        if self.origins.get(self.latest as usize) != Some(&(stream, pool)) {
            self.latest = self.origin(stream, pool);
        }
        let kept = Kept { stamp: self.clock.raw(), address, bytes, origin: self.latest, action };
        let mut row = self.entries.len();
        if row < self.keeps.most {
            self.entries.push(kept);
        } else {
            row = self.oldest;
            self.entries[row] = kept;
            self.oldest = if row + 1 == self.keeps.most { 0 } else { row + 1 };
            self.lost = true;
        }
        if frames.is_some() || !self.frames.is_empty() {
            self.keep_frames(row, frames);
        }
    }

    #[cold]
    fn origin(&mut self, stream: StreamHandle, pool: PoolId) -> u32 {
        /// So many rows are kept besides those that events are of.
        const IDLE: usize = 64;
        if let Some(&row) = self.by_origin.get(&(stream, pool)) {
            return row;
        }
        if self.origins.len() > 2 * self.entries.len() + IDLE {
            self.forget_idle_origins();
        }
        let row = self.origins.len() as u32;
        self.origins.push((stream, pool));
        self.by_origin.insert((stream, pool), row);
        row
    }

    /// Forgets streams and pools that no event is of any more.
    fn forget_idle_origins(&mut self) {
        let before = std::mem::take(&mut self.origins);
        self.by_origin.clear();
        for entry in &mut self.entries {
            let origin = before[entry.origin as usize];
            let next = self.origins.len() as u32;
            entry.origin = *self.by_origin.entry(origin).or_insert(next);
            if entry.origin == next {
                self.origins.push(origin);
            }
        }
    }

    #[cold]
    fn keep_frames(&mut self, row: usize, frames: Option<Arc<Frames>>) {
        if self.frames.len() <= row {
            self.frames.resize(row + 1, None);
        }
        self.frames[row] = frames;
    }

    /// Whether events may have been dropped to make room.
    pub(super) fn is_full(&self) -> bool {
        self.lost || self.entries.len() == self.keeps.most
    }

    pub(super) fn clock(&self) -> &quanta::Clock {
        &self.clock
    }

    /// What is kept, in order.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let rows = (self.oldest..self.entries.len()).chain(0..self.oldest);
        rows.map(|row| {
            let Kept { stamp, address, bytes, origin, action } = self.entries[row];
            let (stream, pool) = self.origins[origin as usize];
            let frames = self.frames.get(row).cloned().flatten();
            Event { stamp, action, address, bytes, stream, pool, frames }
        })
    }
}

impl State {
    /// Keeps events from now on; none, and forgets them, where there is no room for any.
    pub(super) fn keep_history(&mut self, options: &HistoryOptions) {
        let keeps = options.keeps();
        let stays = self.history.as_ref().filter(|_| keeps.most > 0 && !options.clear);
        // A clock takes its time to begin with; all rings read the same one.
        let clock = match stays {
            Some(history) => Some(history.clock.clone()),
            None => (keeps.most > 0).then(quanta::Clock::new),
        };
        let stays = stays.is_some();
        let change = |ring: &mut Option<Box<Ring>>| match ring {
            Some(ring) if stays => ring.set_keeps(keeps),
            _ => *ring = clock.clone().map(|clock| Box::new(Ring::new(clock, keeps))),
        };
        for mut cache in self.caches.all() {
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

    /// Where the memory at an address was asked for.
    pub(super) fn segment_origin(&self, address: u64) -> Option<&Arc<Frames>> {
        let (start, (bytes, frames)) = self.segment_origins.range(..=address).next_back()?;
        (address - start < *bytes).then_some(frames)
    }

    /// Enters an event.
    pub(super) fn record_event(
        &mut self,
        action: Action,
        place: (u64, u64),
        stream: Option<StreamHandle>,
        pool: PoolId,
    ) {
        self.record_event_from(action, place, stream, pool, Frames::given());
    }

    /// The same, with the host's frames.
    pub(super) fn record_event_from(
        &mut self,
        action: Action,
        place: (u64, u64),
        stream: Option<StreamHandle>,
        pool: PoolId,
        frames: Option<Arc<Frames>>,
    ) {
        // To the history a suspended pool has no blocks: they left with its memory.
        let of_block = matches!(
            action,
            Action::Allocate | Action::Free | Action::FreeCompleted | Action::Completed
        );
        if of_block && self.history.is_some() && self.pools.is_shut(pool) {
            return;
        }
        if let Some(history) = &mut self.history {
            let stream = stream.unwrap_or(StreamHandle::from_bits(0));
            history.push(action, place, stream, pool, frames);
        }
    }

    /// Enters that a block which waited is free.
    pub(super) fn record_completed(&mut self, address: u64, asked: Asked, pool: PoolId) {
        let Asked { requested, stream, frames } = asked;
        let place = (address, requested);
        self.record_event_from(Action::Completed, place, Some(stream), pool, frames);
    }

    /// Enters the begin or the end of a capture.
    pub(super) fn record_capture(&mut self, capture: CaptureId, pool: PoolId, begins: bool) {
        let action = if begins { Action::CaptureBegin } else { Action::CaptureEnd };
        self.record_event_from(action, (capture.0, 0), None, pool, None);
    }
}

impl<D: Driver> Locked<'_, D> {
    /// The history as viewers know it, captures, and whether it may be incomplete.
    pub(super) fn events(&self, stacks: &mut Stacks) -> (Vec<TraceEntry>, Vec<Annotation>, bool) {
        let Some(history) = &self.state.history else { return (Vec::new(), Vec::new(), false) };
        let mut events: Vec<Event> = Vec::new();
        // Before what a full ring still has, the others know a part of the story only.
        let mut begin = 0;
        let mut full = false;
        let mut add = |history: &Ring| {
            if history.is_full() {
                full = true;
                begin = begin.max(history.events().next().map_or(0, |event| event.stamp));
            }
            events.extend(history.events());
        };
        add(history);
        for cache in self.state.caches.used() {
            cache.history.as_deref().into_iter().for_each(&mut add);
        }
        events.retain(|event| event.stamp >= begin);
        events.sort_by_key(|event| event.stamp);
        let clock = history.clock();
        let now = clock.raw();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = |stamp: u64| {
            let ago = clock.delta_as_nanos(stamp, now) / 1_000;
            (unix.as_micros() as u64).saturating_sub(ago)
        };
        let mut trace = Vec::new();
        let mut annotations = Vec::new();
        for event in events {
            let time_us = time(event.stamp);
            if let Action::CaptureBegin | Action::CaptureEnd = event.action {
                let begins = event.action == Action::CaptureBegin;
                let stage = if begins { Stage::Start } else { Stage::End };
                let device = self.driver.device();
                annotations.push(Annotation::capture(event.address, stage, device, time_us));
                continue;
            }
            let frames = stacks.of(event.frames.as_ref());
            let context = event.frames.as_ref().and_then(|frames| frames.context());
            for &action in event.action.shown() {
                let (address, bytes) = (event.address, event.bytes);
                let stream = event.stream.bits() as u64;
                let mut entry = if action == Shown::Oom {
                    TraceEntry::oom(bytes, address, stream, time_us)
                } else {
                    TraceEntry::new(action, address, bytes, stream, time_us)
                };
                entry.pool_id = (u64::from(event.pool.number()), 0);
                entry.frames.clone_from(&frames);
                entry.context = context.cloned();
                trace.push(entry);
            }
        }
        // Each ring keeps as many, and some events are shown as two.
        let surplus = trace.len().saturating_sub(history.keeps.most);
        trace.drain(..surplus);
        (trace, annotations, full || surplus > 0)
    }
}
