//! Everything behind the engine's lock, and what its calls have in common.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::capture_state::{Keeper, Planning, Recording};
use super::config::{Config, Flaw};
use super::deferred::{Deferrals, Known};
use super::history::Ring;
use super::live_blocks::{Blocks, Origin};
use super::names::{GraphId, PoolId};
use super::peaks::{Gone, Tally};
use super::pools::{Pool, Pools};
use super::statistics::Counts;
use super::stream_cache::Fronts;
use super::streams::{this_thread, Lanes, Whereabouts};
use super::Error;
use crate::capture::{Capture, Moment, StreamIndex, Token};
use crate::driver::{CaptureId, CaptureStatus, Dependency, Driver, StreamHandle};
use crate::heap::{CaptureSlot, LaneIndex};
use crate::index::{new_map, Map};
use crate::journal::{BlockNumber, Entry, Journal};
use crate::policy::{PlanChoice, Programmatic};

/// The engine's state. Fields are borrowed apart from each other: a capture proves while a heap
/// searches.
#[derive(Debug)]
pub(super) struct State {
    engine: u32,
    pub(super) pools: Pools,
    pub(super) recordings: Vec<Option<Recording>>,
    pub(super) blocks: Blocks,
    pub(super) deferred: Deferrals,
    pub(super) lanes: Lanes,
    pub(super) fronts: Arc<Fronts>,
    /// What is counted here and not by a front: by pool and class.
    pub(super) tallies: Vec<Tally>,
    /// What was counted in pools that are gone.
    pub(super) gone: Gone,
    /// Heaps whose figures have changed since they were last counted.
    pub(super) touched: SmallVec<[u32; 8]>,
    /// Whether a front's figures may have exceeded their grant.
    pub(super) unsettled: bool,
    pub(super) counts: Counts,
    pub(super) history: Option<Box<Ring>>,
    /// The most that all pools may hold, in bytes.
    pub(super) limit: Option<u64>,
    /// The device's memory in bytes, once the driver has told it.
    pub(super) device_bytes: Option<u64>,
    pub(super) graphs: Map<GraphId, SmallVec<[PoolId; 1]>>,
    /// The captures of graphs that have blocks in planned heaps.
    pub(super) grounds: Map<GraphId, CaptureId>,
    /// Pools that nobody can name any more, and that go when nothing uses them.
    pub(super) leaving: Vec<PoolId>,
    next_graph: u64,
    next_age: u64,
    /// As the configuration has it.
    pub(super) late_ends: bool,
    /// Whether captures that begin from now on keep a journal, whatever the configuration says.
    pub(super) journals: bool,
    /// The latest answer of the driver; kept for its capacity.
    pub(super) terminals: Vec<Dependency>,
    woken: Vec<Token>,
}

/// The engine with its lock held: what its calls do.
pub(super) struct Locked<'a, D: Driver> {
    pub(super) state: &'a mut State,
    pub(super) driver: &'a D,
    pub(super) config: &'a Config,
}

/// How a stream stands to one capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is in the capture, and was looked at just now.
    Inside(StreamIndex),
    /// It is not, or nobody can tell.
    Outside,
    /// It is in a capture that is ruined.
    Invalidated,
}

/// How a capture stands to the engine.
pub(super) fn known(recordings: &[Option<Recording>], lanes: &Lanes, capture: CaptureId) -> Known {
    if recordings.iter().flatten().any(|recording| recording.id == capture) {
        Known::UnderWay
    } else if lanes.has_ended(capture) {
        Known::Ended
    } else {
        Known::Unknown
    }
}

impl State {
    pub(super) fn new(engine: u32, fronts: Arc<Fronts>) -> Self {
        Self {
            engine,
            pools: Pools::new(engine),
            recordings: Vec::new(),
            blocks: Blocks::new(engine),
            deferred: Deferrals::default(),
            lanes: Lanes::new(),
            fronts,
            tallies: Vec::new(),
            gone: Gone::default(),
            touched: SmallVec::new(),
            unsettled: false,
            counts: Counts::default(),
            history: None,
            limit: None,
            device_bytes: None,
            graphs: new_map(),
            grounds: new_map(),
            leaving: Vec::new(),
            next_graph: 0,
            next_age: 0,
            late_ends: false,
            journals: false,
            terminals: Vec::new(),
            woken: Vec::new(),
        }
    }

    pub(super) fn pool(&mut self, pool: PoolId, call: &'static str) -> Result<&mut Pool, Error> {
        self.pools.get_mut(pool).ok_or(Error::UnknownPool { call, pool })
    }

    /// A name that no graph has had.
    pub(super) fn new_graph(&mut self) -> GraphId {
        self.next_graph += 1;
        GraphId::new(self.engine, self.next_graph - 1)
    }

    pub(super) fn recording(&mut self, slot: CaptureSlot) -> &mut Recording {
        self.recordings[slot.index()].as_mut().expect("the slot of a capture under way")
    }

    pub(super) fn slot(&self, capture: CaptureId) -> Option<CaptureSlot> {
        let rows = self.recordings.iter();
        rows.enumerate()
            .find(|(_, row)| row.as_ref().is_some_and(|recording| recording.id == capture))
            .map(|(row, _)| CaptureSlot::new(row))
    }

    /// Takes a capture out of those under way, for good.
    pub(super) fn take_recording(&mut self, slot: CaptureSlot) -> Option<Recording> {
        let recording = self.recordings[slot.index()].take()?;
        let streams = recording.capture.streams();
        for stream in streams.map(|stream| recording.capture.stream_handle(stream)) {
            self.lanes.note_end(stream, recording.age, recording.id);
        }
        Some(recording)
    }

    /// Has a capture keep a record from now on, if it keeps none.
    pub(super) fn begin_journal(&mut self, slot: CaptureSlot) {
        let recording = self.recording(slot);
        if recording.journal.is_some() {
            return;
        }
        recording.journal = Some(Journal::new());
        for pool in recording.pools.clone() {
            self.note_strangers(slot, pool);
        }
    }

    /// Writes into a capture's record what lies in a pool and is not its own.
    fn note_strangers(&mut self, slot: CaptureSlot, pool: PoolId) {
        if self.recording(slot).journal.is_none() {
            return;
        }
        for (block, address, bytes) in self.strangers(pool) {
            self.note(slot, Entry::Standing { block, address, bytes });
        }
    }

    /// Everything in a pool that is not free for whoever asks: number, address and size.
    fn strangers(&mut self, pool: PoolId) -> Vec<(BlockNumber, u64, u64)> {
        let Self { pools, recordings, blocks, deferred, .. } = self;
        let Some(row) = pools.get(pool) else { return Vec::new() };
        let heaps_of_pool = row.all_heaps();
        let extent = |heap: u32, range| pools.heap(heap).extent(range);
        let live = blocks.iter().map(|block| (block.number, block.heap, block.range));
        let held = recordings.iter().flatten().flat_map(|recording| &recording.held);
        let held = held.map(|held| (held.block, held.heap, held.range));
        let waiting = deferred.iter().map(|waiting| (waiting.number, waiting.heap, waiting.range));
        let mut strangers: Vec<_> = live
            .chain(held)
            .chain(waiting)
            .filter(|(_, heap, _)| heaps_of_pool.contains(heap))
            .map(|(number, heap, range)| {
                let (address, bytes) = extent(heap, range);
                (number, address, bytes)
            })
            .collect();
        for heap in heaps_of_pool {
            let heap = pools.heap(heap);
            for (address, bytes) in heap.given_back() {
                strangers.push((blocks.number(), address, bytes));
            }
        }
        strangers
    }

    /// The lane of a stream that the calling thread has named, which is this thread's from now on.
    pub(super) fn claim_stream(&mut self, stream: StreamHandle) -> LaneIndex {
        let (lane, changed) = self.lanes.claim(stream);
        if changed {
            self.fronts.of(stream).claim(stream);
        }
        lane
    }

    /// What a capture's keeper is if the calling thread is it.
    fn keeper(&mut self, slot: CaptureSlot) -> Keeper {
        let (thread, changes) = (this_thread(), self.lanes.changes());
        Keeper { thread, changes, streams: self.recording(slot).capture.streams().count() }
    }

    /// Whether the calling thread may look at every stream that a capture was seen on.
    pub(super) fn is_kept_here(&mut self, slot: CaptureSlot) -> bool {
        self.keeper(slot) == self.recording(slot).keeper
    }

    /// After a set-back: a live block of the stream whose place is not proven any more has been
    /// handed out in vain, and the capture cannot stand.
    fn heed_set_back(&mut self, slot: CaptureSlot, index: StreamIndex, stream: StreamHandle) {
        let Self { recordings, blocks, .. } = self;
        let recording = recordings[slot.index()].as_mut().expect("the slot of a capture under way");
        recording.heeded = recording.capture.tick();
        let undone = blocks.iter().find(|block| {
            matches!(block.origin, Origin::Capture(home) if home.slot == slot && home.stream == index)
                && !recording.capture.proves(index, &block.before.markers)
        });
        if let Some(block) = undone {
            recording.undone.get_or_insert((block.number, stream));
        }
    }

    /// Writes a fact into the journal of every capture that uses the pool, but for one.
    pub(super) fn tell(&mut self, pool: PoolId, but: Option<CaptureSlot>, entry: Entry<'_>) {
        let Some(row) = self.pools.get(pool) else { return };
        if row.captures() == usize::from(but.is_some()) {
            return;
        }
        for (row, recording) in self.recordings.iter_mut().enumerate() {
            let Some(recording) = recording else { continue };
            if but != Some(CaptureSlot::new(row)) && recording.pools.contains(&pool) {
                if let Some(journal) = &mut recording.journal {
                    journal.push(entry);
                }
            }
        }
    }

    /// The captures under way that use a pool.
    pub(super) fn under_way(&self, pool: PoolId) -> SmallVec<[CaptureId; 2]> {
        let recordings = self.recordings.iter().flatten();
        recordings
            .filter(|recording| recording.pools.contains(&pool))
            .map(|recording| recording.id)
            .collect()
    }

    /// Writes a fact into a capture's journal, where it keeps one.
    pub(super) fn note(&mut self, slot: CaptureSlot, entry: Entry<'_>) {
        if let Some(journal) = &mut self.recording(slot).journal {
            journal.push(entry);
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    /// The row of a capture, new at its first sight, and known to use the pool from now on.
    pub(super) fn enter(
        &mut self,
        call: &'static str,
        capture: CaptureId,
        pool: PoolId,
    ) -> Result<CaptureSlot, Error> {
        if let Some(slot) = self.state.slot(capture) {
            self.join_pool(slot, pool);
            return Ok(slot);
        }
        if self.state.lanes.has_ended(capture) {
            return Err(Error::CaptureEnded { call, capture });
        }
        let terminals = std::mem::take(&mut self.state.terminals);
        let slot = self.add_recording(capture);
        self.join_pool(slot, pool);
        self.state.remember_capture(capture, pool, true);
        // Whatever waits and is used in it can be told so from now on.
        self.poll_deferred(usize::MAX);
        self.state.terminals = terminals;
        if let Some(row) = self.state.pools.get(pool) {
            if let Some(shared) = row.shared().filter(|_| row.captures() == 1) {
                self.state.pools.heap_mut(shared).close_quiet();
            }
        }
        Ok(slot)
    }

    fn add_recording(&mut self, id: CaptureId) -> CaptureSlot {
        let trusted = if self.config.lacks(Flaw::EdgeKinds) {
            Programmatic::Trust
        } else {
            self.config.settings.programmatic
        };
        self.state.next_age += 1;
        let settings = &self.config.settings;
        // What is planned is planned from the record.
        let planned = settings.plan == PlanChoice::Exact;
        let keeps = settings.check || self.config.journal || self.state.journals || planned;
        let recording = Recording {
            id,
            age: self.state.next_age,
            capture: Capture::new(trusted, !self.config.lacks(Flaw::SetBack)),
            journal: keeps.then(Journal::new),
            pools: SmallVec::new(),
            blocks: 0,
            held: Vec::new(),
            left: Vec::new(),
            keeper: Keeper::default(),
            step: self.config.settings.growth_step_bytes.unwrap_or(0),
            heeded: Moment::default(),
            undone: None,
            following: None,
            planning: Planning::default(),
            since: Instant::now(),
            beside: false,
            lost: None,
        };
        let vacant = self.state.recordings.iter().position(Option::is_none);
        let row = vacant.unwrap_or(self.state.recordings.len());
        if row == self.state.recordings.len() {
            self.state.recordings.push(None);
        }
        self.state.recordings[row] = Some(recording);
        CaptureSlot::new(row)
    }

    /// Notes that a capture uses a pool, and what lies there that is not the capture's own.
    pub(super) fn join_pool(&mut self, slot: CaptureSlot, pool: PoolId) {
        if self.state.recording(slot).pools.contains(&pool) {
            return;
        }
        self.hold_ordered(pool);
        let row = self.state.pools.get(pool);
        let planned = row.is_some_and(|row| row.config().plan.is_some());
        if planned && self.state.recording(slot).blocks == 0 {
            // What is planned is planned from the record.
            self.state.begin_journal(slot);
        }
        self.state.note_strangers(slot, pool);
        self.state.recording(slot).pools.push(pool);
        let Some(row) = self.state.pools.get_mut(pool) else { return };
        row.add_capture();
        let beside = row.captures() > 1;
        let recordings = self.state.recordings.iter_mut().flatten();
        for recording in recordings.filter(|it| beside && it.pools.contains(&pool)) {
            recording.beside = true;
        }
    }

    /// Takes over a capture from the thread that captured into it so far: whoever asks for memory in
    /// it is the only one to capture into it now. What others left to be freed is freed.
    pub(super) fn take_over(&mut self, slot: CaptureSlot) {
        if self.state.keeper(slot) != self.state.recording(slot).keeper {
            let capture = &self.state.recording(slot).capture;
            let streams: SmallVec<[_; 16]> =
                capture.streams().map(|stream| capture.stream_handle(stream)).collect();
            for stream in streams {
                self.state.claim_stream(stream);
            }
            self.state.recording(slot).keeper = self.state.keeper(slot);
        }
        if self.state.recording(slot).left.is_empty() {
            return;
        }
        let left = std::mem::take(&mut self.state.recording(slot).left);
        for block in left {
            // Live until now, and no one else knows its name.
            let _ = self.free(block);
        }
    }

    /// Takes in the terminals that the driver has just given for a stream of a capture.
    pub(super) fn look(&mut self, slot: CaptureSlot, stream: StreamHandle) -> StreamIndex {
        let State { pools, recordings, terminals, woken, .. } = &mut *self.state;
        let recording = recordings[slot.index()].as_mut().expect("the slot of a capture under way");
        let journal = recording.journal.as_mut();
        let index = recording.capture.look(self.driver, stream, terminals, journal, woken);
        for token in woken.drain(..) {
            let heap = pools.heap_mut(token.heap);
            let Some(markers) = heap.markers(token) else { continue };
            match recording.capture.unproven(index, markers) {
                Some(marker) => recording.capture.watch(index, marker, token),
                None => heap.learn(token, index),
            }
        }
        if recording.capture.broken_since(index, recording.heeded) {
            self.state.heed_set_back(slot, index, stream);
        }
        index
    }

    /// The same, entered into the record even where nothing has changed.
    pub(super) fn look_and_confirm(&mut self, slot: CaptureSlot, stream: StreamHandle) {
        let index = self.look(slot, stream);
        let Recording { capture, journal, .. } = self.state.recording(slot);
        if let Some(journal) = journal {
            capture.confirm(index, journal);
        }
    }

    /// Gives a range to a stream that proves its markers, or lets it wait for one that is missing.
    pub(super) fn wait_or_learn(&mut self, slot: CaptureSlot, token: Token, stream: StreamIndex) {
        let State { pools, recordings, .. } = &mut *self.state;
        let recording = recordings[slot.index()].as_mut().expect("the slot of a capture under way");
        let heap = pools.heap_mut(token.heap);
        let Some(markers) = heap.markers(token) else { return };
        match recording.capture.unproven(stream, markers) {
            Some(marker) if !self.config.lacks(Flaw::Proof) => {
                recording.capture.watch(stream, marker, token);
            }
            _ => heap.learn(token, stream),
        }
    }

    /// Looks at a stream and says how it stands to a capture under way.
    pub(super) fn standing(
        &mut self,
        (slot, id): (CaptureSlot, CaptureId),
        stream: StreamHandle,
    ) -> Standing {
        // Another thread's stream is not asked where it is: it may be capturing.
        if !self.state.lanes.is_mine(stream) {
            return Standing::Outside;
        }
        match self.driver.capture_status(stream, &mut self.state.terminals) {
            Ok(CaptureStatus::Active { capture, .. }) if capture == id => {
                Standing::Inside(self.look(slot, stream))
            }
            // If it was never seen in this capture, or that may be over, it is another that is ruined.
            Ok(CaptureStatus::Invalidated)
                if !self.state.late_ends
                    && self.state.recording(slot).capture.stream(stream).is_some() =>
            {
                Standing::Invalidated
            }
            Ok(_) | Err(_) => Standing::Outside,
        }
    }

    /// Rolls back the capture that a stream was last seen in: it is ruined.
    pub(super) fn abandon_invalidated(&mut self, stream: StreamHandle) {
        if self.state.late_ends {
            // That one may be over, and have a graph.
            return;
        }
        let rows = self.state.recordings.iter().enumerate();
        let seen = rows.filter_map(|(row, recording)| {
            let recording = recording.as_ref()?;
            recording.capture.stream(stream)?;
            Some((recording.age, row))
        });
        if let Some((_, row)) = seen.max() {
            // Of a capture that is ruined nobody asks what else it lost.
            let _ = self.end(CaptureSlot::new(row), false);
        }
    }

    /// Whether no stream that a capture under way was seen on captures for it any more.
    pub(super) fn is_over(&self, id: CaptureId) -> bool {
        let Some(slot) = self.state.slot(id) else { return true };
        let recording = self.state.recordings[slot.index()].as_ref();
        let capture = &recording.expect("the slot of a capture under way").capture;
        let mut streams = capture.streams().map(|stream| capture.stream_handle(stream));
        streams.all(|stream| match self.state.lanes.ask(self.driver, stream) {
            Whereabouts::Outside => true,
            Whereabouts::Inside(other) => other != id,
            Whereabouts::Barred | Whereabouts::Unclear => false,
        })
    }
}
