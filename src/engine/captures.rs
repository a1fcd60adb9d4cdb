//! Captures under way, as the engine keeps them, and the calls about captures and graphs.

use std::collections::BTreeSet;
use std::time::Instant;

use smallvec::SmallVec;

use super::layout::Following;
use super::names::{BlockId, GraphId, PoolId};
use super::report::CaptureReport;
use super::streams::{Position, Timelines};
use super::{one_stream, Engine, Error, Locked, StreamRefusal};
use crate::capture::{Capture, Moment};
use crate::driver::{AsStream, CaptureId, Driver, DriverError, GraphHandle, StreamHandle};
use crate::heap::CaptureSlot;
use crate::journal::{BlockNumber, Entry, Journal};
use crate::plan::Options;

impl<D: Driver> Engine<D> {
    /// Tells the engine that `stream` has begun to capture and that the capture uses `pool`.
    ///
    /// The first allocation on a stream that captures does the same. A capture whose graph has
    /// conditional nodes *must* be announced, by either, before one of their bodies is captured into
    /// the same pool, and ended after: nothing else tells that the bodies run inside it.
    ///
    /// A capture that uses blocks of a pool it does not allocate from should be announced for that
    /// pool too, so that the pool knows of the graph.
    ///
    /// # Errors
    /// [`StreamRefusal::NotCapturing`], [`Error::CaptureInvalidated`], [`Error::Unknown`],
    /// [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended), or the driver's.
    pub fn begin_capture(&self, pool: PoolId, stream: impl AsStream) -> Result<CaptureId, Error> {
        let stream = stream.as_stream();
        const CALL: &str = "begin_capture";
        self.change(|locked| {
            let expected = locked.state.timelines.take_expected(stream);
            locked.state.must_be_awake(pool, CALL)?;
            let found = locked.capture_of(stream, CALL)?;
            let capture = found.ok_or(Error::Stream {
                call: "begin_capture",
                stream,
                why: StreamRefusal::NotCapturing,
            })?;
            let new = locked.state.captures.slot(capture).is_none();
            let (slot, _) = locked.look_into(stream, capture, pool, None, CALL)?;
            if new {
                locked.state.capture(slot).expected = expected;
            }
            Ok(capture)
        })
    }

    /// Has [`Engine::allocate_by_capture`] serve the streams of a capture from a pool from now on, or with `None`
    /// leave them to its caller. Nothing happens where the capture is not under way here.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn serve_capture(&self, capture: CaptureId, from: Option<PoolId>) -> Result<(), Error> {
        self.change(|locked| {
            if let Some(slot) = locked.state.captures.slot(capture) {
                locked.state.capture(slot).served_from = from;
            }
            Ok(())
        })
    }

    /// Tells the engine that the calling thread is about to begin a capture on `stream`, so that the capture
    /// may have the place of a block from before it that it frees itself: one of the first pool that it
    /// uses, and of this stream alone. Such a block is one of the capture from then on, if what the stream
    /// has been given by now is completed when the block is freed; else it waits as any other.
    ///
    /// **The host promises** that the stream is given no work outside captures that uses a block of that pool
    /// until the next [`Engine::begin_capture`] that names the stream: that of this capture, directly after
    /// it has begun, and that the capture is no body of a loop: the next turn would find in an input's place
    /// what this one has written there. A capture of the stream that is first heard of by a request has no
    /// inputs, nor has the next one. Costs an event, which is recorded on the stream.
    ///
    /// # Errors
    /// [`StreamRefusal::PerThread`].
    pub fn expect_capture(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "expect_capture")?;
        self.change(|locked| {
            locked.state.assign_stream(stream);
            locked.state.timelines.expect(locked.driver, stream);
            Ok(())
        })
    }

    /// Ends a capture. `graph` is the handle under capture, just before the host ends it, or the one
    /// that ending it gave. The first is better: the engine can then look at the streams once more
    /// and knows whose the last nodes are; a capture whose streams it never looked at may be refused
    /// otherwise. Every use of the capture's blocks is recorded before, and the graph is not launched
    /// before this has returned: what its blocks hold until then may be lost
    /// ([`Settings::growth_step_bytes`](crate::settings::Settings::growth_step_bytes)).
    ///
    /// With [`Config::check`](super::Config::check) the checker judges the capture on the finished graph.
    /// Without it no capture is judged: no dependency may be edited by hand, with the setting
    /// `programmatic` `deny` no launch may be programmatic, and `auto` is `lag`. If the capture is
    /// accepted, what it freed is there for later captures into the same pools, blocks not freed stay
    /// allocated as the graph's outputs, and the pools belong to one more graph.
    ///
    /// # Errors
    /// After each of these the graph must not be launched, and the capture is rolled back as by
    /// [`Engine::abandon_capture`]:
    /// - [`Error::Refused`] by the checker;
    /// - [`Error::CaptureAgain`] by the checker; the same work, captured again, is accepted
    ///   ([`Engine::set_attempt`]);
    /// - [`Error::SetBack`] where there is no checker;
    /// - [`Error::LateUse`] with [`Config::refuse_late_uses`](super::Config::refuse_late_uses);
    /// - the driver's, where memory of a pool of the capture is lost: the pool is suspended then
    ///   ([`Engine::resume_pool`]).
    ///
    /// [`Error::CaptureInvalidated`], [`Error::Unknown`].
    pub fn end_capture(
        &self,
        capture: CaptureId,
        graph: GraphHandle,
    ) -> Result<CaptureReport, Error> {
        let end = |locked: &mut Locked<'_, D>| locked.end_capture(capture, Some(graph)).map(Some);
        // The capture is over, so there is no second try.
        self.request(end, || false)
    }

    /// Lets a capture under way map up to `bytes` of memory at once ahead of what it asks for, or none
    /// with zero, instead of what [`Settings::growth_step_bytes`](crate::settings::Settings::growth_step_bytes)
    /// says; what that says of such captures holds. It is to be ended before its graph is launched.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn grow_ahead(&self, capture: CaptureId, bytes: u64) -> Result<(), Error> {
        self.change(|locked| {
            let slot = locked.state.slot_of(capture, "grow_ahead")?;
            locked.state.capture(slot).step = bytes;
            Ok(())
        })
    }

    /// Ends a capture whose graph the host cannot name any more, or that may be gone already: it
    /// found out about its end too late. What [`Engine::end_capture`] says holds, but the graph is
    /// not judged ([`CaptureReport::verified`] is false): `deny` is safe then only where no launch was
    /// programmatic, and `auto` where none was behind the last look at its stream, for with the checker
    /// launches that were seen are judged. No dependency may have been edited by hand.
    ///
    /// # Errors
    /// [`Error::SetBack`] and [`Error::Refused`]: the graph must not run. As it may have run already, its
    /// memory stays a graph's for good. [`Error::Unknown`].
    pub fn end_unjudged(&self, capture: CaptureId) -> Result<CaptureReport, Error> {
        self.change(|locked| {
            if let Some(slot) = locked.state.captures.slot(capture) {
                // Its graph may have run: no memory of it is exchanged any more.
                locked.state.capture(slot).step = 0;
            }
            locked.end_capture(capture, None)
        })
    }

    /// The captures into a pool that are under way here and over in the driver: none of the streams
    /// that they were seen on captures for them any more. A stream that another thread named last, and
    /// that captures, counts for every capture that it was seen in.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn captures_over(&self, pool: PoolId) -> Result<Vec<CaptureId>, Error> {
        self.change(|locked| {
            locked.state.pool(pool, "captures_over")?;
            let captures = locked.state.captures.ids_of(pool);
            Ok(captures.into_iter().filter(|&id| locked.is_over(id)).collect())
        })
    }

    /// The captures under way that a stream was seen in.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn captures_of(&self, stream: impl AsStream) -> Result<Vec<CaptureId>, Error> {
        let stream = stream.as_stream();
        let state = self.lock()?;
        let captures = state.captures.iter();
        let seen = captures.filter(|capture_state| capture_state.proof.stream(stream).is_some());
        Ok(seen.map(|capture_state| capture_state.id).collect())
    }

    /// Whether any capture is under way.
    pub fn is_recording(&self) -> bool {
        // A poisoned engine hands nothing out, but what it had it still has.
        let state = self.state.lock();
        let capture_state = state.captures.iter().next().is_some();
        capture_state
    }

    /// Whether any capture into a pool is under way.
    pub fn is_recording_into(&self, pool: PoolId) -> bool {
        !self.state.lock().captures.ids_of(pool).is_empty()
    }

    /// Whether the checker judges captures ([`Config::check`](super::Config::check)).
    pub fn judges(&self) -> bool {
        self.config.settings.check
    }

    /// Sets whether captures that begin from now on keep a journal ([`Engine::journal`]), even where
    /// the configuration does not ask for one.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn keep_journals(&self, keep: bool) -> Result<(), Error> {
        self.change(|locked| {
            locked.state.journals = keep;
            Ok(())
        })
    }

    /// Rolls back every decision taken in a capture whose graph will never run. A capture that is closed
    /// ([`Engine::close_capture`]) and whose verdict was not asked for is released as if it had been
    /// refused. Blocks it allocated and did not free stay live until freed; nothing else may be done with
    /// them, since they may lie on memory of a graph of the pool that lives.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn abandon_capture(&self, capture: CaptureId) -> Result<(), Error> {
        self.change(|locked| {
            if let Some(graph) = locked.state.verdicts.give_up(capture) {
                return locked.release_graph(graph);
            }
            let slot = locked.state.slot_of(capture, "abandon_capture")?;
            // What it lost it needs no more; the pool says that it is suspended.
            let _ = locked.end(slot, false);
            Ok(())
        })
    }

    /// Tells the engine that a graph is destroyed and no launch of it is running.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn release_graph(&self, graph: GraphId) -> Result<(), Error> {
        self.change(|locked| locked.release_graph(graph))
    }

    /// The pools that a graph uses; none of a graph that is unknown.
    pub(crate) fn pools_of(&self, graph: GraphId) -> SmallVec<[PoolId; 1]> {
        // A poisoned engine hands nothing out, but what its graphs use they still use.
        let state = self.state.lock();
        state.graphs.pools_of(graph)
    }

    /// Looks at a stream, so that the engine knows its terminals as they are now.
    ///
    /// A host that sets a capturing stream's terminals back by hand
    /// (`cuStreamUpdateCaptureDependencies`) calls this before and after, unless a call that
    /// concerns the stream comes in between anyway: the engine knows only what it has seen. Of a stream that
    /// is in no capture, or in one that the engine has not heard of, it expects no capture from then on
    /// ([`Engine::expect_capture`]).
    ///
    /// # Errors
    /// [`Error::CaptureInvalidated`], or the driver's.
    pub fn observe(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = stream.as_stream();
        self.change(|locked| {
            let capture = locked.capture_of(stream, "observe")?;
            match capture.and_then(|capture| locked.state.captures.slot(capture)) {
                Some(slot) => locked.look_and_confirm(slot, stream),
                // What it has gained by now may be set back before the capture's first look.
                None => drop(locked.state.timelines.take_expected(stream)),
            }
            Ok(())
        })
    }

    /// A copy of the record of a capture that is under way; `None` where no journal is kept. Looks
    /// at the capture's streams first, so that nothing is missing.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn journal(&self, capture: CaptureId) -> Result<Option<Journal>, Error> {
        let mut state = self.lock()?;
        let slot = state.slot_of(capture, "journal")?;
        self.with(&mut state).last_looks(slot);
        Ok(state.capture(slot).journal.clone())
    }
}

/// The thread that all streams of a capture belong to, as long as no stream has gone to another thread
/// since and none has joined the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CapturingThread {
    pub(super) thread: usize,
    pub(super) changes: u64,
    pub(super) streams: usize,
}

/// When the memory of a capture's large blocks comes.
#[derive(Clone, Debug, Default)]
pub(super) enum Planning {
    /// As pool and settings have it.
    #[default]
    Default,
    /// With the block.
    Off,
    /// At the end.
    On(Options),
}

/// A capture under way.
#[derive(Debug)]
pub(super) struct CaptureState {
    pub(super) id: CaptureId,
    /// Captures in order of their first sight: a body is younger than its parent.
    pub(super) age: u64,
    pub(super) proof: Capture,
    pub(super) journal: Option<Journal>,
    told: Told,
    /// In the order in which it came to use them.
    pub(super) pools: SmallVec<[PoolId; 1]>,
    /// Behind all that the stream was given outside captures on which the host announced this one, where it
    /// had said so before.
    pub(super) expected: Option<Position>,
    /// The pool that [`Engine::allocate_by_capture`] serves its streams from.
    served_from: Option<PoolId>,
    /// The rows that they have had among the live ones ([`Blocks::note`](super::live_blocks::Blocks::note)).
    rows: Vec<u32>,
    /// Blocks freed in it that cannot be proven free within it, by their numbers among what waits.
    pub(super) held: Vec<u32>,
    /// Blocks freed by a thread that may not look at their streams: the one that captures on them
    /// frees them with its next request.
    pub(super) left: Vec<BlockId>,
    /// Who took the capture over last, and when.
    pub(super) capturing_thread: CapturingThread,
    /// How much it may map at once ahead of what it asks for, in bytes. Zero too where its graph may
    /// run before it is ended here.
    pub(super) step: u64,
    /// How far set-backs have been followed up.
    pub(super) set_backs_seen: Moment,
    /// A block whose place rests on an order that a set-back has undone.
    pub(super) undone: Option<(BlockNumber, StreamHandle)>,
    /// The layout that its blocks are to lie by.
    pub(super) following: Option<Box<Following>>,
    pub(super) planning: Planning,
    /// When it was first seen.
    pub(super) since: Instant,
    /// Whether another capture of one of its pools has been under way beside it: one may contain the
    /// other.
    pub(super) concurrent: bool,
    /// Why memory that it may use is not there.
    pub(super) lost: Option<DriverError>,
}

/// What the engine knows of a capture by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapturePhase {
    /// Under way, as far as the engine knows.
    UnderWay,
    /// Ended or abandoned here; the driver may not have been told yet.
    Ended,
    /// Never heard of.
    Unknown,
}

/// What a capture's record tells of the blocks that stand in its pools.
#[derive(Debug, Default)]
struct Told {
    /// For each pool the number that no block had when the record began to tell of the pool: those with this one or a
    /// higher one were told of when they came.
    pools: SmallVec<[(PoolId, BlockNumber); 1]>,
    /// Those that were there before, and that it has told of since.
    since: BTreeSet<BlockNumber>,
}

/// The captures under way.
#[derive(Debug, Default)]
pub(super) struct Captures {
    rows: Vec<Option<Box<CaptureState>>>,
    /// Of captures that are over; cleared, and kept for what they have allocated.
    spare: [Option<Box<CaptureState>>; KEPT],
    /// How many there were so far.
    made: u64,
}

const UNDER_WAY: &str = "the slot of a capture under way";

/// Of so many captures at most what is allocated is kept for later ones.
const KEPT: usize = 4;

/// Of so many blocks at most what a capture has allocated for them is kept for the next one.
const KEPT_BLOCKS: usize = 1 << 12;

impl Captures {
    /// Adds a capture in which nothing has happened; `proof` makes an empty one.
    pub(super) fn add(&mut self, id: CaptureId, proof: impl FnOnce() -> Capture) -> CaptureSlot {
        self.made += 1;
        let kept = self.spare.iter_mut().find_map(Option::take);
        let mut made = kept.unwrap_or_else(|| Box::new(CaptureState::new(proof())));
        (made.id, made.age, made.since) = (id, self.made, Instant::now());
        let vacant = self.rows.iter().position(Option::is_none);
        let row = vacant.unwrap_or(self.rows.len());
        if row == self.rows.len() {
            self.rows.push(None);
        }
        self.rows[row] = Some(made);
        CaptureSlot::new(row)
    }

    /// Takes a capture out of those under way, for good.
    pub(super) fn take(&mut self, slot: CaptureSlot) -> Option<Box<CaptureState>> {
        self.rows[slot.index()].take()
    }

    /// Keeps what a capture has allocated that was taken out, for later ones.
    pub(super) fn keep(&mut self, mut over: Box<CaptureState>) {
        let room = self.spare.iter_mut().find(|it| it.is_none());
        if let Some(room) = room.filter(|_| over.clear()) {
            *room = Some(over);
        }
    }

    #[inline]
    pub(super) fn get(&self, slot: CaptureSlot) -> &CaptureState {
        self.rows[slot.index()].as_ref().expect(UNDER_WAY)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: CaptureSlot) -> &mut CaptureState {
        self.rows[slot.index()].as_mut().expect(UNDER_WAY)
    }

    pub(super) fn find(&self, slot: CaptureSlot) -> Option<&CaptureState> {
        self.rows.get(slot.index())?.as_deref()
    }

    #[inline]
    pub(super) fn slot(&self, id: CaptureId) -> Option<CaptureSlot> {
        let row = self.rows.iter().position(|row| row.as_ref().is_some_and(|it| it.id == id));
        row.map(CaptureSlot::new)
    }

    pub(super) fn slots(&self) -> Vec<CaptureSlot> {
        self.with_slots().map(|(slot, _)| slot).collect()
    }

    pub(super) fn with_slots(&self) -> impl Iterator<Item = (CaptureSlot, &CaptureState)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(row, it)| Some((CaptureSlot::new(row), it.as_deref()?)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CaptureState> + Clone {
        self.rows.iter().flatten().map(Box::as_ref)
    }

    /// Those that use a pool.
    pub(super) fn of(&mut self, pool: PoolId) -> impl Iterator<Item = &mut CaptureState> {
        let all = self.rows.iter_mut().flatten().map(Box::as_mut);
        all.filter(move |it| it.pools.contains(&pool))
    }

    /// The numbers of those that use a pool.
    pub(super) fn ids_of(&self, pool: PoolId) -> SmallVec<[CaptureId; 2]> {
        self.iter().filter(|it| it.pools.contains(&pool)).map(|it| it.id).collect()
    }

    pub(super) fn ids(&self) -> Vec<CaptureId> {
        self.iter().map(|it| it.id).collect()
    }

    /// What is known of a capture.
    pub(super) fn phase(&self, id: CaptureId, timelines: &Timelines) -> CapturePhase {
        if self.slot(id).is_some() {
            CapturePhase::UnderWay
        } else if timelines.has_ended(id) {
            CapturePhase::Ended
        } else {
            CapturePhase::Unknown
        }
    }

    /// The youngest that a stream was seen in.
    pub(super) fn last_of(&self, stream: StreamHandle) -> Option<CaptureSlot> {
        let seen = self.with_slots().filter(|(_, it)| it.proof.stream(stream).is_some());
        seen.max_by_key(|(_, it)| it.age).map(|(slot, _)| slot)
    }

    /// Tells of a block in the journal of every capture that uses a pool, but for one.
    pub(super) fn tell_all(
        &mut self,
        pool: PoolId,
        but: Option<CaptureSlot>,
        block: (BlockNumber, u64, u64),
    ) {
        for (row, it) in self.rows.iter_mut().enumerate() {
            let Some(it) = it.as_mut().filter(|it| it.pools.contains(&pool)) else { continue };
            if but != Some(CaptureSlot::new(row)) {
                it.tell(pool, block);
            }
        }
    }

    /// The pool that serves a capture's streams, if the capture is under way and one does.
    #[inline]
    pub(super) fn serves(&self, capture: CaptureId) -> Option<PoolId> {
        self.get(self.slot(capture)?).served_from
    }

    /// Writes a fact into the journal of every capture that uses a pool, but for one.
    pub(super) fn write_journals(
        &mut self,
        pool: PoolId,
        but: Option<CaptureSlot>,
        entry: Entry<'_>,
    ) {
        for (row, it) in self.rows.iter_mut().enumerate() {
            let Some(it) = it.as_mut().filter(|it| it.pools.contains(&pool)) else { continue };
            if but != Some(CaptureSlot::new(row)) {
                it.write_journal(entry);
            }
        }
    }
}

impl CaptureState {
    /// One in which nothing has happened.
    fn new(proof: Capture) -> Self {
        Self {
            id: CaptureId(0),
            age: 0,
            proof,
            journal: None,
            told: Told::default(),
            pools: SmallVec::new(),
            expected: None,
            served_from: None,
            rows: Vec::new(),
            held: Vec::new(),
            left: Vec::new(),
            capturing_thread: CapturingThread::default(),
            step: 0,
            set_backs_seen: Moment::default(),
            undone: None,
            following: None,
            planning: Planning::default(),
            since: Instant::now(),
            concurrent: false,
            lost: None,
        }
    }

    /// Makes it one in which nothing has happened. False where what it has allocated is too much to be kept.
    fn clear(&mut self) -> bool {
        let Self {
            // Set when it is added again.
            id: _,
            age: _,
            since: _,
            proof,
            journal,
            told,
            pools,
            expected,
            served_from,
            rows,
            held,
            left,
            capturing_thread,
            step,
            set_backs_seen,
            undone,
            following,
            planning,
            concurrent,
            lost,
        } = self;
        let most = rows.capacity().max(held.capacity()).max(left.capacity());
        if most > KEPT_BLOCKS || !proof.clear() {
            return false;
        }
        told.pools.clear();
        told.since.clear();
        rows.clear();
        held.clear();
        left.clear();
        pools.clear();
        (*journal, *expected, *undone, *following, *lost) = (None, None, None, None, None);
        *served_from = None;
        (*capturing_thread, *planning) = (CapturingThread::default(), Planning::default());
        (*step, *set_backs_seen, *concurrent) = (0, Moment::default(), false);
        true
    }

    /// Notes a row that a block of the capture has among the live ones, and that is not noted yet.
    #[inline]
    pub(super) fn note_row(&mut self, row: u32) {
        self.rows.push(row);
    }

    /// The rows that its live blocks have, and others.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Notes that the record, where there is one, tells of a pool's blocks from now on, and no block has this
    /// number yet.
    pub(super) fn tell_from(&mut self, pool: PoolId, next: BlockNumber) {
        self.told.pools.retain(|it| it.0 != pool);
        self.told.pools.push((pool, next));
    }

    /// Tells of a block of a pool that is not the capture's own, unless that was done.
    pub(super) fn tell(&mut self, pool: PoolId, (block, address, bytes): (BlockNumber, u64, u64)) {
        let Some(journal) = &mut self.journal else { return };
        let Told { pools, since } = &mut self.told;
        let came = pools.iter().any(|&(of, next)| of == pool && block >= next);
        if !came && since.insert(block) {
            journal.push(Entry::Standing { block, address, bytes });
        }
    }

    /// Writes a fact into the capture's journal, where it keeps one.
    // Each caller writes one kind of fact: inlined, nothing is left of the match over them.
    #[inline(always)]
    pub(super) fn write_journal(&mut self, entry: Entry<'_>) {
        if let Some(journal) = &mut self.journal {
            journal.push(entry);
        }
    }

    /// The streams that it was seen on.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamHandle> + '_ {
        self.proof.streams().map(|stream| self.proof.stream_handle(stream))
    }
}
