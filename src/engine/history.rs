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
use crate::snapshot::{Action as Shown, Annotation, Stage, TraceEntry};

/// Where the host's calls came from, innermost first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// Return addresses.
    #[cfg(feature = "stacks")]
    Called(Vec<usize>),
    /// As the host gave them ([`with_frames`]).
    Given(Vec<HostFrame>),
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
    /// Puts back what was there, even if the calls panic.
    struct Restore(Option<Arc<Frames>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            GIVEN.replace(self.0.take());
        }
    }
    GIVING.store(true, Ordering::Relaxed);
    let _restore = Restore(GIVEN.replace(Some(Arc::new(Frames::Given(frames)))));
    calls()
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
        GIVING.load(Ordering::Relaxed).then(|| GIVEN.with_borrow(Clone::clone)).flatten()
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
    /// A capture began; the address is its number.
    CaptureBegin,
    /// A capture ended; likewise.
    CaptureEnd,
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
    most: usize,
}

impl Ring {
    pub(super) fn new(clock: quanta::Clock, most: usize) -> Self {
        Self {
            clock,
            entries: Vec::new(),
            frames: Vec::new(),
            origins: Vec::new(),
            by_origin: new_map(),
            latest: 0,
            oldest: 0,
            most,
        }
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
        if self.origins.get(self.latest as usize) != Some(&(stream, pool)) {
            self.latest = self.origin(stream, pool);
        }
        let kept = Kept { stamp: self.clock.raw(), address, bytes, origin: self.latest, action };
        let mut row = self.entries.len();
        if row < self.most {
            self.entries.push(kept);
        } else {
            row = self.oldest;
            self.entries[row] = kept;
            self.oldest = if row + 1 == self.most { 0 } else { row + 1 };
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
        self.entries.len() == self.most
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
    /// Keeps the latest `most` events from now on; zero ends that and forgets them.
    pub(super) fn record_history(&mut self, most: usize) {
        // A clock takes its time to begin with.
        let clock = (most > 0).then(quanta::Clock::new);
        let ring = || clock.clone().map(|clock| Box::new(Ring::new(clock, most)));
        for mut cache in self.caches.all() {
            cache.history = ring();
        }
        self.history = ring();
    }

    /// Enters an event.
    pub(super) fn record_event(
        &mut self,
        action: Action,
        place: (u64, u64),
        stream: Option<StreamHandle>,
        pool: PoolId,
    ) {
        self.record_event_from(action, place, stream, pool, None);
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
        if of_block && self.history.is_some() && self.pools.is_suspended(pool) {
            return;
        }
        if let Some(history) = &mut self.history {
            let stream = stream.unwrap_or(StreamHandle::from_bits(0));
            history.push(action, place, stream, pool, frames);
        }
    }

    /// Enters the begin or the end of a capture.
    pub(super) fn record_capture(&mut self, capture: CaptureId, pool: PoolId, begins: bool) {
        let action = if begins { Action::CaptureBegin } else { Action::CaptureEnd };
        self.record_event(action, (capture.0, 0), None, pool);
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
            let (first, second) = match event.action {
                Action::Allocate => (Shown::Alloc, None),
                Action::Free => (Shown::FreeRequested, None),
                Action::FreeCompleted => (Shown::FreeRequested, Some(Shown::FreeCompleted)),
                Action::Completed => (Shown::FreeCompleted, None),
                Action::Segment => (Shown::SegmentAlloc, None),
                Action::Map => (Shown::SegmentMap, None),
                Action::SegmentBack => (Shown::SegmentFree, None),
                Action::Unmap => (Shown::SegmentUnmap, None),
                Action::OutOfMemory => (Shown::Oom, None),
                Action::CaptureBegin | Action::CaptureEnd => {
                    let begins = event.action == Action::CaptureBegin;
                    let stage = if begins { Stage::Start } else { Stage::End };
                    let annotation =
                        Annotation::capture(event.address, stage, self.config.device, time_us);
                    annotations.push(annotation);
                    continue;
                }
            };
            let frames = stacks.of(event.frames.as_ref());
            for action in std::iter::once(first).chain(second) {
                let (address, bytes) = (event.address, event.bytes);
                let stream = event.stream.bits() as u64;
                let mut entry = if action == Shown::Oom {
                    TraceEntry::oom(bytes, address, stream, time_us)
                } else {
                    TraceEntry::new(action, address, bytes, stream, time_us)
                };
                entry.pool_id = (u64::from(event.pool.number()), 0);
                entry.frames.clone_from(&frames);
                trace.push(entry);
            }
        }
        (trace, annotations, full)
    }
}
