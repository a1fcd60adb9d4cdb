//! Captures under way: the calls about them and their graphs, what the engine keeps of each, and the looks at their
//! streams by which the proof and the record of each learn what was launched.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::config::Flaw;
use super::end::Attempt;
use super::figures::class;
use super::history::{EventKind, Frames};
use super::layout::Following;
use super::live_blocks::{BlockSite, Origin};
use super::names::{BlockId, GraphId, PoolId, PoolLabel};
use super::pools::{PoolRow, Pools};
use super::report::CaptureReport;
use super::snapshot::Stacks;
use super::streams::{this_thread, StreamStatus};
use super::waits::Wait;
use super::{one_stream, Engine, Error, HostCalls, Level, Locked, State, StreamRefusal, Unknown};
use crate::capture::{Capture, Moment, StreamIndex};
use crate::check::Checker;
use crate::driver::{
    AsStream, CaptureId, CaptureStatus, Driver, DriverError, ErrorKind, GraphHandle, StreamHandle,
};
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, Verdict};
use crate::heap::{enter_row, CaptureSlot, Mark, TimelineId};
use crate::journal::{BlockNumber, Entry, Journal};
use crate::logging::Range;
use crate::plan::Options;
use crate::policy::{PlanChoice, Programmatic};
use crate::snapshot::Frame;

impl<D: Driver> Engine<D> {
    /// Tells the engine that `stream` has begun to capture and that the capture uses `pool`.
    ///
    /// The first allocation on a stream that captures does the same. A capture whose graph has
    /// conditional nodes *must* be announced, by either, for each pool that one of their bodies is captured
    /// into, before that body, and ended after: nothing else tells that the bodies run inside it.
    ///
    /// A capture that uses blocks of a pool it does not allocate from should be announced for that
    /// pool too, so that the pool knows of the graph.
    ///
    /// # Errors
    /// [`StreamRefusal::NotCapturing`], [`StreamRefusal::PerThread`], [`Error::CaptureInvalidated`],
    /// [`Error::Unknown`], [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended), or the driver's.
    pub fn begin_capture(&self, pool: PoolId, stream: impl AsStream) -> Result<CaptureId, Error> {
        self.begin(pool, stream.as_stream(), |_| ())
    }

    fn begin(
        &self,
        pool: PoolId,
        stream: StreamHandle,
        begun: impl FnOnce(&mut CaptureState),
    ) -> Result<CaptureId, Error> {
        const CALL: &str = "begin_capture";
        let stream = one_stream(stream, CALL)?;
        self.change(|locked| {
            locked.settle_loans();
            let expected = locked.state.timelines.take_expected(stream);
            locked.state.must_be_awake(pool, CALL)?;
            let found = locked.capture_of(stream, CALL)?;
            let why = StreamRefusal::NotCapturing;
            let capture = found.ok_or(Error::Stream { call: CALL, stream, why })?;
            let new = locked.state.captures.slot(capture).is_none();
            let (slot, _) = locked.look_into(stream, capture, pool, None, CALL)?;
            let capture_state = locked.state.capture(slot);
            if new {
                capture_state.expected = expected;
            }
            begun(capture_state);
            Ok(capture)
        })
    }

    /// Ends a capture. `graph` is the handle under capture, just before the host ends it, or the one that ending it
    /// gave. The first is better: the engine can then look at the streams once more and knows whose the last nodes are;
    /// otherwise a capture whose streams it never looked at may be refused. The host records every use of the capture's
    /// blocks before this call, and launches the graph after it: what the blocks hold until then may be lost
    /// ([`Settings::growth_step_bytes`](crate::settings::Settings::growth_step_bytes)).
    ///
    /// With [`Config::check`](super::Config::check) the checker judges the capture on the finished graph. Without it no
    /// capture is judged: no dependency may be edited by hand, with the setting `programmatic` `deny` no launch may be
    /// programmatic, and `auto` is `lag`. If the capture is accepted, what it freed is there for later captures into
    /// the same pools, blocks not freed stay allocated as the graph's outputs, and the pools belong to one more graph.
    ///
    /// # Errors
    /// After each of these the graph must not be launched, and the capture is rolled back
    /// ([`Engine::abandon_capture`]):
    /// - [`Error::Refused`] by the checker;
    /// - [`Error::CaptureAgain`] by the checker; the same work, captured again, is accepted ([`Engine::set_attempt`]);
    /// - [`Error::SetBack`] where there is no checker;
    /// - [`Error::LateUse`] with [`Config::refuse_late_uses`](super::Config::refuse_late_uses);
    /// - the driver's, where memory of a pool of the capture is lost: the pool is suspended then
    ///   ([`HostCalls::resume_pool`]).
    ///
    /// [`Error::CaptureInvalidated`], [`Error::Unknown`].
    pub fn end_capture(
        &self,
        capture: CaptureId,
        graph: GraphHandle,
    ) -> Result<CaptureReport, Error> {
        let end = |locked: &mut Locked<'_, D>| locked.end_capture(capture, Some(graph)).map(Some);
        // The capture is over, so there is no second try.
        self.request(end, || false).map(|report| *report)
    }

    /// Rolls back every decision taken in a capture whose graph will never run. A capture that is closed
    /// ([`Engine::close_capture`]) and whose verdict was not asked for is released as if it had been
    /// refused. Blocks it allocated and did not free stay live until freed; nothing else may be done with
    /// them, since they may lie on memory of a graph of the pool that lives.
    pub fn abandon_capture(&self, capture: CaptureId) -> Result<(), Error> {
        self.change(|locked| {
            if let Some(graph) = self.verdicts.give_up(capture) {
                return locked.release_graph(graph);
            }
            let slot = locked.state.slot_of(capture, "abandon_capture")?;
            // What it lost it needs no more; the pool says that it is suspended.
            let _ = locked.end(slot, false);
            Ok(())
        })
    }

    /// Tells the engine that a graph is destroyed and no launch of it is running.
    pub fn release_graph(&self, graph: GraphId) -> Result<(), Error> {
        self.change(|locked| locked.release_graph(graph))
    }

    /// Runs a call about a capture under way with the engine's lock held.
    pub(super) fn in_capture<R>(
        &self,
        capture: CaptureId,
        call: &'static str,
        run: impl FnOnce(&mut Locked<'_, D>, CaptureSlot) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.change(|locked| {
            let slot = locked.state.slot_of(capture, call)?;
            run(locked, slot)
        })
    }

    /// The pools that a graph uses; none of a graph that is unknown.
    pub(crate) fn pools_of(&self, graph: GraphId) -> SmallVec<[PoolId; 1]> {
        // A poisoned engine hands nothing out, but what its graphs use they still use.
        let state = self.state.lock();
        state.pools.pools_of(graph)
    }

    /// Looks at a stream, so that the engine knows its terminals as they are now.
    ///
    /// A host that sets a capturing stream's terminals back by hand (`cuStreamUpdateCaptureDependencies`) calls this
    /// before and after, unless a call that concerns the stream comes in between anyway: the engine knows only what it
    /// has seen. Of a stream that is in no capture, or in one that the engine has not heard of, it expects no capture
    /// from then on ([`HostCalls::expect_capture`]).
    ///
    /// # Errors
    /// [`Error::CaptureInvalidated`], [`StreamRefusal::PerThread`], or the driver's.
    pub fn observe(&self, stream: impl AsStream) -> Result<(), Error> {
        const CALL: &str = "observe";
        let stream = one_stream(stream.as_stream(), CALL)?;
        self.change(|locked| {
            let capture = locked.capture_of(stream, CALL)?;
            match capture.and_then(|capture| locked.state.captures.slot(capture)) {
                // Entered into the record even where nothing has changed.
                Some(slot) => {
                    let index = locked.look(slot, stream);
                    let CaptureState { proof, journal, .. } = locked.state.capture(slot);
                    journal.iter_mut().for_each(|journal| proof.confirm(index, journal));
                }
                // What it has gained by now may be set back before the capture's first look.
                None => drop(locked.state.timelines.take_expected(stream)),
            }
            Ok(())
        })
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// As [`Engine::begin_capture`]; from now on the pool also serves the capture's streams
    /// ([`HostCalls::serve_capture`]). With `ahead` the capture may map up to so many bytes at once ahead of what it
    /// asks for (0: none), in place of [`Settings::growth_step_bytes`](crate::settings::Settings::growth_step_bytes),
    /// whose rules for such captures hold. The host ends the capture here before it launches the graph.
    ///
    /// # Errors
    /// Those of [`Engine::begin_capture`].
    pub fn begin_served(
        &self,
        pool: PoolId,
        stream: impl AsStream,
        ahead: Option<u64>,
    ) -> Result<CaptureId, Error> {
        self.0.begin(pool, stream.as_stream(), |capture_state| {
            capture_state.served_from = Some(pool);
            capture_state.step = ahead.unwrap_or(capture_state.step);
        })
    }

    /// Has [`HostCalls::allocate_by_capture`] serve the streams of a capture from a pool from now on, or with `None`
    /// leave them to its caller. Nothing happens where the capture is not under way here.
    pub fn serve_capture(&self, capture: CaptureId, from: Option<PoolId>) -> Result<(), Error> {
        let mut state = self.0.lock()?;
        if let Some(slot) = state.captures.slot(capture) {
            state.capture(slot).served_from = from;
        }
        Ok(())
    }

    /// Tells the engine that the calling thread is about to begin a capture on `stream`, and records an event there, so
    /// that the capture may have the place of a block from before it that it frees itself: one of the first pool that it
    /// uses, and of this stream alone. Such a block is one of the capture from then on, if what the stream was given by
    /// now is completed at the free; else it waits as any other.
    ///
    /// **The host promises** that the stream is given no work outside captures that uses a block of that pool until the
    /// next [`Engine::begin_capture`] that names the stream: that of this capture, directly after it has begun; and
    /// that the capture is no body of a loop, whose next turn would find in an input's place what this one has written
    /// there. A capture of the stream that is first heard of by a request has no inputs, nor has the next one.
    ///
    /// # Errors
    /// [`StreamRefusal::PerThread`].
    pub fn expect_capture(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "expect_capture")?;
        self.0.alter(|locked| {
            locked.assign_stream(stream, true);
            locked.state.timelines.expect(locked.driver, stream);
        })
    }

    /// Tells the engine that the calling thread is about to capture on `stream`, and promises nothing. From now on no
    /// thread records an event on another thread's stream, which may come into a capture meanwhile: the driver could
    /// crash.
    ///
    /// # Errors
    /// [`StreamRefusal::PerThread`].
    pub fn may_capture(&self, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), "may_capture")?;
        self.0.alter(|locked| {
            locked.assign_stream(stream, true);
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
        let report = self.0.change(|locked| {
            if let Some(slot) = locked.state.captures.slot(capture) {
                // Its graph may have run: no memory of it is exchanged any more.
                locked.state.capture(slot).step = 0;
            }
            locked.end_capture(capture, None)
        })?;
        Ok(*report)
    }

    /// The captures into a pool that are under way here and over in the driver: none of the streams
    /// that they were seen on captures for them any more. A stream that another thread named last, and
    /// that captures, counts for every capture that it was seen in.
    pub fn captures_over(&self, pool: PoolId) -> Result<Vec<CaptureId>, Error> {
        let mut state = self.0.lock()?;
        state.pool(pool, "captures_over")?;
        let State { captures, timelines, .. } = &*state;
        let has_left = |id, stream| match timelines.ask(&self.0.driver, stream) {
            StreamStatus::Outside => true,
            StreamStatus::Inside(other) => other != id,
            StreamStatus::Barred | StreamStatus::Unclear | StreamStatus::Elsewhere => false,
        };
        let into = captures.iter().filter(|it| it.pools.contains(&pool));
        let over = into.filter(|it| it.streams().all(|stream| has_left(it.id, stream)));
        Ok(over.map(|it| it.id).collect())
    }

    /// The pools that a capture under way uses.
    pub fn pools_of(&self, capture: CaptureId) -> Result<Vec<PoolId>, Error> {
        let mut state = self.0.lock()?;
        let slot = state.slot_of(capture, "pools_of")?;
        Ok(state.capture(slot).pools.to_vec())
    }

    /// Whether any capture is under way.
    pub fn is_recording(&self) -> bool {
        // A poisoned engine hands nothing out, but what it had it still has.
        self.0.state.lock().captures.iter().next().is_some()
    }

    /// Whether any capture into a pool is under way.
    pub fn is_recording_into(&self, pool: PoolId) -> bool {
        !self.0.state.lock().captures.ids_of(pool).is_empty()
    }

    /// Whether the checker judges captures ([`Config::check`](super::Config::check)).
    pub fn judges(&self) -> bool {
        self.0.config.settings.check
    }

    /// Sets whether captures that begin from now on keep a journal ([`HostCalls::journal`]), even where
    /// the configuration does not ask for one.
    pub fn keep_journals(&self, keep: bool) -> Result<(), Error> {
        self.0.alter(|locked| locked.state.journals = keep)
    }

    /// A copy of the record of a capture that is under way; `None` where no journal is kept. Looks
    /// at the capture's streams first, so that nothing is missing.
    pub fn journal(&self, capture: CaptureId) -> Result<Option<Journal>, Error> {
        let mut state = self.0.lock()?;
        let slot = state.slot_of(capture, "journal")?;
        let _ = self.0.with(&mut state).last_looks(slot);
        Ok(state.capture(slot).journal.clone())
    }

    /// Where the blocks of [`HostCalls::journal`] were allocated, innermost frame first: those whose frames the host
    /// gave ([`with_frames`](super::with_frames)), or all with the setting `stacks`. Takes some microseconds for each
    /// stack.
    pub fn origins(&self, capture: CaptureId) -> Result<Vec<(BlockNumber, Vec<Frame>)>, Error> {
        let origins = self.0.in_capture(capture, "origins", |locked, slot| {
            Ok(locked.state.capture(slot).origins.clone())
        })?;
        let mut stacks = Stacks::default();
        let named = origins.iter().map(|(block, frames)| (*block, stacks.of(Some(frames)).0));
        Ok(named.filter(|(_, frames)| !frames.is_empty()).collect())
    }
}

/// The thread that all streams of a capture belong to, as long as two counts are what they were when that was found:
/// how many streams have gone to other threads, and how many are in the capture.
type CapturingThread = (usize, u64, usize);

/// A capture under way.
#[derive(Debug)]
pub(super) struct CaptureState {
    id: CaptureId,
    /// Captures in order of their first sight: a body is younger than its parent.
    age: u64,
    pub(super) proof: Capture,
    pub(super) journal: Option<Journal>,
    /// Judges it, in what was allocated for captures before.
    checker: Checker,
    /// Where the blocks of the journal came from, as far as the host said so or stacks are recorded.
    origins: Vec<(BlockNumber, Arc<Frames>)>,
    /// Each pool that the journal tells of, with the number of the next new block when the journal began to: blocks
    /// from that number on were told of when they were allocated.
    told: SmallVec<[(PoolId, BlockNumber); 1]>,
    /// Blocks of these pools with lower numbers that the journal has told of since.
    told_since: BTreeSet<BlockNumber>,
    /// In the order in which it came to use them.
    pools: SmallVec<[PoolId; 1]>,
    /// Behind all that the stream was given outside captures, where the host had said that this one was to come.
    expected: Option<Mark>,
    /// The pool that [`HostCalls::allocate_by_capture`] serves its streams from.
    served_from: Option<PoolId>,
    /// Blocks freed by a thread that may not look at their streams, for the capturing one's next request to free.
    pub(super) left: Vec<BlockId>,
    /// Who took the capture over last, and when.
    capturing_thread: CapturingThread,
    /// How much it may map at once ahead of what it asks for, in bytes: none where its graph may run already.
    step: u64,
    /// How far set-backs have been followed up.
    set_backs_seen: Moment,
    /// A block whose place rests on an order that a set-back has undone.
    undone: Option<(BlockNumber, StreamHandle)>,
    /// The layout that its blocks are to lie by.
    pub(super) following: Option<Box<Following>>,
    /// What the host has said of this capture's plan, if anything: its bounds, or that there is to be none.
    planning: Option<Option<Options>>,
    /// When it was first seen.
    since: Instant,
    /// Whether another capture of one of its pools has been under way beside it: one may contain the other.
    concurrent: bool,
    /// Why memory that it may use is not there.
    pub(super) lost: Option<DriverError>,
    /// What a profiler shows of it while it is under way.
    shown: Option<Range>,
}

/// The captures under way.
#[derive(Debug, Default)]
pub(super) struct Captures {
    rows: Vec<Option<Box<CaptureState>>>,
    /// Of captures that are over; cleared, and kept for what they have allocated.
    spare: SmallVec<[Box<CaptureState>; KEPT]>,
    /// How many there were so far.
    made: u64,
    /// What the heaps of small and of large blocks held when the latest two had ended, in bytes.
    held: [[u64; 2]; 2],
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
        let mut made = self.spare.pop().unwrap_or_else(|| Box::new(CaptureState::new(proof())));
        (made.id, made.age, made.since) = (id, self.made, Instant::now());
        CaptureSlot::new(enter_row(&mut self.rows, made))
    }

    /// Notes what the heaps of small and of large blocks hold that a capture has used, in bytes: it has ended.
    pub(super) fn note_held(&mut self, held: [u64; 2]) {
        self.held = [self.held[1], held];
    }

    /// What the heap of small or of large blocks is to hold when a capture has ended, in bytes, if it is as the latest
    /// ones: the less of what two of them needed.
    pub(super) fn usual(&self, small: bool) -> u64 {
        let class = class(small);
        self.held[0][class].min(self.held[1][class])
    }

    /// Takes a capture out of those under way, for good.
    pub(super) fn take(&mut self, slot: CaptureSlot) -> Option<Box<CaptureState>> {
        self.rows[slot.index()].take()
    }

    /// Keeps what a capture has allocated that was taken out, for later ones.
    pub(super) fn keep(&mut self, mut over: Box<CaptureState>) {
        if self.spare.len() < KEPT && over.clear() {
            self.spare.push(over);
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

    pub(super) fn with_slots(&self) -> impl Iterator<Item = (CaptureSlot, &CaptureState)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(row, it)| Some((CaptureSlot::new(row), it.as_deref()?)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CaptureState> + Clone {
        self.rows.iter().flatten().map(Box::as_ref)
    }

    /// The numbers of those that use a pool.
    pub(super) fn ids_of(&self, pool: PoolId) -> SmallVec<[CaptureId; 2]> {
        self.iter().filter(|it| it.pools.contains(&pool)).map(|it| it.id).collect()
    }

    /// Those that use a pool, but for one.
    pub(super) fn others(
        &mut self,
        pool: PoolId,
        but: Option<CaptureSlot>,
    ) -> impl Iterator<Item = &mut CaptureState> {
        let all = self.rows.iter_mut().enumerate();
        all.filter_map(move |(row, it)| {
            let other = but != Some(CaptureSlot::new(row));
            it.as_deref_mut().filter(|it| other && it.pools.contains(&pool))
        })
    }

    /// Tells of a block in the records of all that use a pool, but for one: seldom any.
    #[inline(never)]
    fn tell_all(&mut self, pool: PoolId, but: Option<CaptureSlot>, block: (BlockNumber, u64, u64)) {
        self.others(pool, but).for_each(|it| it.tell(pool, block));
    }

    /// A younger capture into a heap's pool that is under way: it may be the body of a conditional node of this one.
    #[inline]
    pub(super) fn nested_in(
        &self,
        slot: CaptureSlot,
        pools: &Pools,
        heap: u32,
    ) -> Option<CaptureId> {
        let own = self.get(slot).age;
        let uses = |it: &CaptureState| it.pools.contains(&pools.pool_of(heap));
        self.iter().find(|it| it.age > own && uses(it)).map(|nested| nested.id)
    }

    /// The pool that serves a capture's streams, if the capture is under way and one does.
    #[inline]
    pub(super) fn serves(&self, capture: CaptureId) -> Option<PoolId> {
        self.get(self.slot(capture)?).served_from
    }
}

#[cfg(debug_assertions)]
impl Captures {
    pub(super) fn verify(&self) -> Verdict {
        let empty = self.spare.iter().all(|it| {
            let held = it.proof.nodes() + it.proof.seen() + it.pools.len() + it.told.len();
            let noted = it.left.len() + it.origins.len() + it.told_since.len();
            let begun = it.journal.is_some() || it.following.is_some() || it.served_from.is_some();
            held + noted == 0 && !begun && it.undone.is_none() && it.lost.is_none()
        });
        holds!(empty, "rows are kept with something of captures that are over");
        for (slot, CaptureState { id, age, proof, .. }) in self.with_slots() {
            let mut others = self.with_slots().filter(|(other, _)| *other != slot);
            let own = others.all(|(_, other)| other.id != *id && other.age != *age);
            let mut streams = proof.streams();
            let known = streams.all(|it| proof.stream(proof.stream_handle(it)) == Some(it));
            holds!(own && known, "capture {} is another", id.0);
        }
        Ok(())
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
            checker: Checker::default(),
            origins: Vec::new(),
            told: SmallVec::new(),
            told_since: BTreeSet::new(),
            pools: SmallVec::new(),
            expected: None,
            served_from: None,
            left: Vec::new(),
            capturing_thread: CapturingThread::default(),
            step: 0,
            set_backs_seen: Moment::default(),
            undone: None,
            following: None,
            planning: None,
            since: Instant::now(),
            concurrent: false,
            lost: None,
            shown: None,
        }
    }

    /// Forgets everything, so that the row can be another capture's with what this one has allocated. False where that is
    /// too much to be kept: then it is to be dropped.
    fn clear(&mut self) -> bool {
        let Self {
            id: _,
            age: _,
            proof,
            journal,
            checker: _,
            origins,
            told,
            told_since,
            pools,
            expected,
            served_from,
            left,
            capturing_thread,
            step,
            set_backs_seen,
            undone,
            following,
            planning,
            since: _,
            concurrent,
            lost,
            shown,
        } = self;
        *shown = None;
        if left.capacity().max(origins.capacity()) > KEPT_BLOCKS || !proof.clear() {
            return false;
        }
        (*journal, *following, *planning, *lost) = (None, None, None, None);
        (*expected, *served_from, *undone, *concurrent) = (None, None, None, false);
        (*step, *set_backs_seen) = (0, Moment::default());
        *capturing_thread = CapturingThread::default();
        origins.clear();
        told.clear();
        told_since.clear();
        pools.clear();
        left.clear();
        true
    }

    read!(id: CaptureId, step: u64, since: Instant, concurrent: bool, expected: Option<Mark>);
    read!(undone: Option<(BlockNumber, StreamHandle)>);

    /// The pools that it uses, the first one first.
    pub(super) fn pools(&self) -> &[PoolId] {
        &self.pools
    }

    pub(super) fn planning(&self) -> Option<&Option<Options>> {
        self.planning.as_ref()
    }

    pub(super) fn set_planning(&mut self, planning: Option<Options>) {
        self.planning = Some(planning);
    }

    /// Whether there were launches that its proofs had taken to wait, and that nothing else finds.
    pub(super) fn is_surprised(&self) -> bool {
        self.proof.is_surprised() && self.undone.is_none()
    }

    /// Its record, where it keeps one, and what judges that.
    pub(super) fn record(&mut self) -> (Option<&Journal>, &mut Checker) {
        (self.journal.as_ref(), &mut self.checker)
    }

    /// Tells of a block of a pool that is not the capture's own, unless that was done.
    pub(super) fn tell(&mut self, pool: PoolId, (block, address, bytes): (BlockNumber, u64, u64)) {
        let Some(journal) = &mut self.journal else { return };
        let came = self.told.iter().any(|&(of, next)| of == pool && block >= next);
        if !came && self.told_since.insert(block) {
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

    /// Notes where a block of the journal came from.
    pub(super) fn note_origin(&mut self, block: BlockNumber, frames: Option<&Arc<Frames>>) {
        if let Some(frames) = frames.filter(|_| self.journal.is_some()) {
            self.origins.push((block, Arc::clone(frames)));
        }
    }

    /// The layout that its blocks of a pool are to lie by.
    pub(super) fn following_in(&self, pool: PoolId) -> Option<&Following> {
        self.following.as_deref().filter(|_| self.pools.first() == Some(&pool))
    }

    /// The streams that it was seen on.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamHandle> + '_ {
        self.proof.streams().map(|stream| self.proof.stream_handle(stream))
    }
}

impl State {
    #[inline]
    pub(super) fn pool(&mut self, pool: PoolId, call: &'static str) -> Result<&mut PoolRow, Error> {
        // `ok_or` would make an error each time, and to drop one costs more than the look-up.
        match self.pools.get_mut(pool) {
            Some(row) => Ok(row),
            None => Err(Error::Unknown { call, what: Unknown::Pool(pool) }),
        }
    }

    /// Says something of a pool, once the lock is released.
    #[inline]
    pub(super) fn say_of(
        &mut self,
        pool: PoolId,
        level: Level,
        text: impl FnOnce(PoolLabel) -> String,
    ) {
        let Self { messages, pools, .. } = self;
        messages.say(level, || text(pools.label(pool)));
    }

    /// Shows a profiler how long something of a pool takes.
    pub(super) fn range_of(
        &self,
        pool: PoolId,
        text: impl FnOnce(PoolLabel) -> String,
    ) -> Option<Range> {
        self.messages.teller().range(|| text(self.pools.label(pool)))
    }

    /// The slot of a capture under way.
    pub(super) fn slot_of(
        &self,
        capture: CaptureId,
        call: &'static str,
    ) -> Result<CaptureSlot, Error> {
        let unknown = || Error::Unknown { call, what: Unknown::Capture(capture) };
        self.captures.slot(capture).ok_or_else(unknown)
    }

    #[inline]
    pub(super) fn capture(&mut self, slot: CaptureSlot) -> &mut CaptureState {
        self.captures.get_mut(slot)
    }

    /// Sorts a pool's live blocks, which are from before the capture, and has its record tell of the pool from now on: of what waits there at once, of live blocks where the
    /// capture meets them ([`State::tell_met`], [`State::tell_gone`]).
    fn journal_pool(&mut self, slot: CaptureSlot, pool: PoolId) {
        let Self { pools, blocks, captures, .. } = self;
        blocks.sort(pool, |block| pools.place(block.site));
        let CaptureState { journal: Some(_), told, .. } = captures.get_mut(slot) else { return };
        let next = blocks.next_number();
        told.push((pool, next));
        self.journal_count(slot, pool);
        if self.pools.get(pool).is_some_and(|row| row.graphs() > 0) {
            self.capture(slot).write_journal(Entry::Graphs);
        }
        for (block, address, bytes) in self.waiting_blocks(pool) {
            self.capture(slot).write_journal(Entry::Standing { block, address, bytes });
        }
    }

    /// Writes into a capture's record what a pool holds in live blocks, by its heaps and by their list.
    pub(super) fn journal_count(&mut self, slot: CaptureSlot, pool: PoolId) {
        let Self { pools, blocks, captures, .. } = self;
        let (held, listed) = (pools.bytes_in_blocks(pool), blocks.bytes_of(pool));
        let entry = Entry::Pool { next: blocks.next_number(), held, listed };
        captures.get_mut(slot).write_journal(entry);
    }

    /// What was given back in a pool and is not free for every stream: number, address and size.
    fn waiting_blocks(&mut self, pool: PoolId) -> Vec<(BlockNumber, u64, u64)> {
        let Self { pools, blocks, waiting, .. } = self;
        let Some(row) = pools.get(pool) else { return Vec::new() };
        let mut waiting_blocks = Vec::new();
        for site in waiting.iter().map(Wait::site).filter(|site| site.is_in(pool)) {
            let (address, bytes) = pools.place(site);
            waiting_blocks.push((site.number, address, bytes));
        }
        // What captures gave back is theirs until they end.
        let heaps = row.heaps().into_iter().filter(|_| row.captures() > 0);
        for (address, bytes) in heaps.flat_map(|heap| pools.heap(heap).given_back()) {
            waiting_blocks.push((blocks.number(), address, bytes));
        }
        waiting_blocks
    }

    /// Has a capture's record tell of live blocks in whose place one of its own is: none, if the engine is right.
    #[inline]
    pub(super) fn tell_met(
        &mut self,
        slot: CaptureSlot,
        pool: PoolId,
        (address, bytes): (u64, u64),
    ) {
        let Self { blocks, captures, .. } = self;
        blocks.over(pool, (address, address + bytes), |block, start, end| {
            // The checker knows the capture's own.
            if !matches!(block.origin, Origin::Capture(home) if home.slot == slot) {
                captures.get_mut(slot).tell(pool, (block.site.number, start, end - start));
            }
        });
    }

    /// Has the records of other captures into its pool tell of a block that is live no more and may be in use.
    #[inline]
    pub(super) fn tell_gone(&mut self, site: BlockSite, origin: Origin) {
        let own = match origin {
            Origin::Capture(home) => Some(home.slot),
            Origin::Outside | Origin::Past | Origin::Graph => None,
        };
        let captures = self.pools.find_pool(site.heap).map_or(0, PoolRow::captures);
        if captures > usize::from(own.is_some()) {
            let ((address, bytes), pool) = (self.pools.place(site), self.pools.pool_of(site.heap));
            self.captures.tell_all(pool, own, (site.number, address, bytes));
        }
    }

    /// The capturing thread's mark, as it is if that is the calling thread.
    #[inline]
    fn capturing_thread(&self, row: &CaptureState) -> CapturingThread {
        (this_thread(), self.timelines.changes(), row.proof.seen())
    }

    /// Whether the calling thread may look at every stream that a capture was seen on.
    #[inline]
    pub(super) fn captures_here(&self, row: &CaptureState) -> bool {
        self.capturing_thread(row) == row.capturing_thread
    }

    /// After a set-back: a capture cannot stand with a live block of the stream whose place is not proven any more.
    fn check_set_back(&mut self, slot: CaptureSlot, index: StreamIndex, stream: StreamHandle) {
        let Self { captures, blocks, pools, .. } = self;
        let capture_state = captures.get_mut(slot);
        capture_state.set_backs_seen = capture_state.proof.tick();
        let of_pools = capture_state.pools.iter().flat_map(|&pool| blocks.of(pool));
        let undone = of_pools.into_iter().find(|block| {
            matches!(block.origin, Origin::Capture(home) if home.slot == slot && home.stream == index)
                && pools.find_heap(block.site.heap).is_some_and(|heap| {
                    let markers = heap.markers(block.site.range);
                    !capture_state.proof.proves(index, markers)
                })
        });
        if let Some(block) = undone {
            capture_state.undone.get_or_insert((block.site.number, stream));
        }
    }

    /// Writes a fact into the journal of every capture that uses the pool, but for one.
    #[inline]
    pub(super) fn write_journals(
        &mut self,
        pool: PoolId,
        but: Option<CaptureSlot>,
        entry: Entry<'_>,
    ) {
        let captures = self.pools.get(pool).map_or(0, PoolRow::captures);
        if captures > usize::from(but.is_some()) {
            self.captures.others(pool, but).for_each(|it| it.write_journal(entry));
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Takes a capture out of those under way, for good.
    pub(super) fn take_capture(&mut self, slot: CaptureSlot) -> Option<Box<CaptureState>> {
        let capture_state = self.state.captures.take(slot)?;
        for stream in capture_state.streams() {
            self.state.timelines.set_ended(stream, capture_state.age, capture_state.id);
            self.caches.forget_capturing(stream);
        }
        Some(capture_state)
    }

    /// The timeline of a stream that the calling thread has named, which is this thread's from now on, to capture on it or
    /// not.
    pub(super) fn assign_stream(&mut self, stream: StreamHandle, captures: bool) -> TimelineId {
        let (timeline, changed) = self.state.timelines.assign(stream, captures);
        if changed {
            self.caches.of(stream).assign(stream);
            // A wait for the device covers the contexts of streams that the driver was asked this of: also of one that
            // only captures and launches.
            self.state.timelines.device(self.driver, timeline);
        }
        timeline
    }

    /// The capture that a stream is in. `None` where it does not capture, as the legacy stream does not
    /// while a blocking stream captures. [`Error::CaptureInvalidated`] comes after what was done in it was rolled back.
    pub(super) fn capture_of(
        &mut self,
        stream: StreamHandle,
        call: &'static str,
    ) -> Result<Option<CaptureId>, Error> {
        match self.driver.capture_status(stream, &mut self.state.terminals) {
            Ok(CaptureStatus::Active { capture, .. }) => Ok(Some(capture)),
            Ok(CaptureStatus::None) => Ok(None),
            Ok(CaptureStatus::Invalidated) => Err(self.invalidated(stream, call)),
            Err(error) if error.kind == ErrorKind::CaptureImplicit => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks at a stream of a capture, which is known to use the pool from now on, on the thread that
    /// captures into it from now on. `asked` is how many bytes the stream asks for, if it does.
    #[inline(always)]
    pub(super) fn look_into(
        &mut self,
        stream: StreamHandle,
        capture: CaptureId,
        pool: PoolId,
        asked: Option<u64>,
        call: &'static str,
    ) -> Result<(CaptureSlot, StreamIndex), Error> {
        if let Some(slot) = self.state.captures.slot(capture) {
            // A look at the stream is all that a request needs where the capture uses the pool, on this stream and
            // thread, and no block was left to it to be freed.
            let row = self.state.captures.get(slot);
            let known = self.state.captures_here(row) && row.left.is_empty();
            if known && row.pools.contains(&pool) && row.proof.has_seen(stream) {
                return Ok((slot, self.look_and_ask(slot, stream, asked)));
            }
        }
        self.assign_stream(stream, true);
        self.caches.set_capturing(stream);
        let slot = self.enter(call, capture, pool, stream)?;
        let index = self.look_and_ask(slot, stream, asked);
        self.take_over(slot);
        // What other threads had left to be freed may have shown that it is ruined.
        let ruined = Error::CaptureInvalidated { call, stream, ended: false };
        self.state.captures.slot(capture).map(|_| (slot, index)).ok_or(ruined)
    }

    /// The row of a capture, new at its first sight, which is on `stream`, and known to use the pool from now on.
    fn enter(
        &mut self,
        call: &'static str,
        capture: CaptureId,
        pool: PoolId,
        stream: StreamHandle,
    ) -> Result<CaptureSlot, Error> {
        if let Some(slot) = self.state.captures.slot(capture) {
            self.join_pool(slot, pool);
            return Ok(slot);
        }
        if self.state.timelines.has_ended(capture) {
            return Err(Error::CaptureEnded { call, capture });
        }
        let slot = self.add_capture(capture, stream);
        let shown = self.state.range_of(pool, |pool| format!("capture {} into {pool}", capture.0));
        self.state.capture(slot).shown = shown;
        self.join_pool(slot, pool);
        self.state.record_event(EventKind::CaptureBegin, (capture.0, 0), None, pool);
        self.state.say_of(pool, Level::Debug, |pool| {
            format!("capture {} has begun on {stream}, into {pool}", capture.0)
        });
        // What waits and is used in it can be told so from now on.
        self.poll_waits(usize::MAX);
        if let Some(row) = self.state.pools.get(pool) {
            let alone = row.captures() == 1 && row.graphs() > 0;
            if let Some(shared) = row.shared().filter(|_| alone) {
                self.state.pools.heap_mut(shared).close_idle();
            }
        }
        Ok(slot)
    }

    fn add_capture(&mut self, id: CaptureId, stream: StreamHandle) -> CaptureSlot {
        let settings = &self.config.settings;
        let trusted = match self.config.lacks(Flaw::EdgeKinds) {
            true => Programmatic::Trust,
            false => settings.programmatic,
        };
        let outlook = self.outlook(Attempt::Again);
        // What is planned is planned from the record.
        let planned = settings.plan == PlanChoice::Exact;
        let keeps = settings.check || self.config.journal || self.state.journals || planned;
        // A capture that was not announced may be another than the one that was expected.
        self.state.timelines.take_expected(stream);
        let heeds = !self.config.lacks(Flaw::SetBack);
        let slot = self.state.captures.add(id, || Capture::new(trusted, heeds));
        let added = self.state.captures.get_mut(slot);
        added.proof.set_outlook(outlook);
        added.journal = keeps.then(Journal::new);
        added.step = settings.growth_step_bytes.unwrap_or(0);
        slot
    }

    /// Has a capture keep a record from now on, if it keeps none. Says whether it keeps one: none begins once it
    /// has allocated a block, or freed one of its pools' that it may have again.
    pub(super) fn begin_journal(&mut self, slot: CaptureSlot) -> bool {
        let CaptureState { journal, proof, pools, .. } = self.state.captures.get(slot);
        if journal.is_some() {
            return true;
        }
        let pools = pools.clone();
        let mut heaps = pools.iter().flat_map(|&pool| self.state.pools.heaps_of(Some(pool)));
        if proof.has_handed_out()
            || heaps.any(|heap| self.state.pools.heap(heap).given_back().next().is_some())
        {
            return false;
        }
        self.state.capture(slot).journal = Some(Journal::new());
        for pool in pools {
            self.state.journal_pool(slot, pool);
        }
        let CaptureState { proof, journal, .. } = self.state.capture(slot);
        if let Some(journal) = journal {
            proof.tell_all(self.driver, journal);
        }
        true
    }

    /// Notes that a capture uses a pool, and what lies there that is not the capture's own.
    pub(super) fn join_pool(&mut self, slot: CaptureSlot, pool: PoolId) {
        if self.state.capture(slot).pools.contains(&pool) {
            return;
        }
        self.hold_ordered(pool);
        let row = self.state.pools.get(pool);
        let planned = row.is_some_and(|row| row.config().plan.is_some());
        if planned {
            // What is planned is planned from the record; without one it has its memory at once.
            self.begin_journal(slot);
        }
        self.state.journal_pool(slot, pool);
        self.state.capture(slot).pools.push(pool);
        let Some(row) = self.state.pools.get_mut(pool) else { return };
        row.add_capture();
        if row.captures() > 1 {
            self.state.captures.others(pool, None).for_each(|it| it.concurrent = true);
        }
    }

    /// Takes over a capture from the thread that captured into it so far: the thread that asks for memory in
    /// it is the only one to capture into it now. What others left to be freed is freed.
    pub(super) fn take_over(&mut self, slot: CaptureSlot) {
        if !self.state.captures_here(self.state.captures.get(slot)) {
            let capture_state = self.state.captures.get(slot);
            let streams: SmallVec<[StreamHandle; 8]> = capture_state.streams().collect();
            for stream in streams {
                self.assign_stream(stream, true);
            }
            let mark = self.state.capturing_thread(self.state.captures.get(slot));
            self.state.capture(slot).capturing_thread = mark;
        }
        if self.state.capture(slot).left.is_empty() {
            return;
        }
        let left = std::mem::take(&mut self.state.capture(slot).left);
        for block in left {
            // Live until now, and no one else knows its name.
            let _ = self.free(block);
        }
    }

    /// Takes in the terminals that the driver has just given for a stream of a capture.
    pub(super) fn look(&mut self, slot: CaptureSlot, stream: StreamHandle) -> StreamIndex {
        let State { captures, terminals, .. } = &mut *self.state;
        let capture_state = captures.get_mut(slot);
        let journal = capture_state.journal.as_mut();
        let index = capture_state.proof.look(self.driver, stream, terminals, journal);
        if capture_state.proof.broken_since(index, capture_state.set_backs_seen) {
            self.state.check_set_back(slot, index, stream);
        }
        index
    }

    /// Takes in the terminals of a stream that asks for a block of `asked` bytes, if it asks for one; a second time
    /// where the stream goes another way than was foreseen.
    #[inline(always)]
    fn look_and_ask(
        &mut self,
        slot: CaptureSlot,
        stream: StreamHandle,
        asked: Option<u64>,
    ) -> StreamIndex {
        let index = self.look(slot, stream);
        match asked.is_some_and(|bytes| self.state.capture(slot).proof.ask(index, bytes)) {
            true => self.look(slot, stream),
            false => index,
        }
    }

    /// Looks at a stream in a capture under way: `None` where the stream is not in it, or that is
    /// unknown; the stream itself as an error, where it is in a capture that is ruined.
    #[inline(always)]
    pub(super) fn look_in(
        &mut self,
        slot: CaptureSlot,
        stream: StreamHandle,
    ) -> Result<Option<StreamIndex>, StreamHandle> {
        let row = self.state.captures.get(slot);
        let seen = self.state.captures_here(row) && row.proof.has_seen(stream);
        // Another thread's stream is not asked where it is: it may be capturing.
        if !seen && !self.state.timelines.is_mine(stream) {
            return Ok(None);
        }
        match self.driver.capture_status(stream, &mut self.state.terminals) {
            Ok(CaptureStatus::Active { capture, .. })
                if capture == self.state.captures.get(slot).id =>
            {
                Ok(Some(self.look(slot, stream)))
            }
            // If it was never seen in this capture, or that may be over, it is another that is ruined.
            Ok(CaptureStatus::Invalidated)
                if !self.config.late_ends
                    && self.state.capture(slot).proof.stream(stream).is_some() =>
            {
                Err(stream)
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Rolls back what was done in a capture that is ruined, and returns the error that says so.
    #[cold]
    pub(super) fn invalidated(&mut self, stream: StreamHandle, call: &'static str) -> Error {
        self.abandon_invalidated(stream);
        Error::CaptureInvalidated { call, stream, ended: false }
    }

    /// Rolls back the capture that a stream was last seen in: it is ruined.
    pub(super) fn abandon_invalidated(&mut self, stream: StreamHandle) {
        let seen = self.state.captures.with_slots();
        let seen = seen.filter(|(_, it)| it.proof.stream(stream).is_some());
        let last = seen.max_by_key(|(_, it)| it.age).map(|(slot, _)| slot);
        // Where ends are told late that one may be over, and have a graph.
        if let Some(slot) = last.filter(|_| !self.config.late_ends) {
            // A capture that is ruined reports no other loss.
            let _ = self.end(slot, false);
        }
    }
}
