//! Captures whose memory comes at their end (design/plans.md, "In the engine"), and memory that captures map ahead.
//!
//! Premapped memory goes, or is kept (design/safety.md, "Exchanged pieces"), before a capture of its pool ends, work
//! outside captures is handed a place in its pool, or a use of such a block outside its capture is recorded.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::Serialize;
use smallvec::SmallVec;

use super::allocate::Request;
use super::captures::CaptureState;
use super::config::{Config, Flaw};
use super::layout::{Following, Why};
use super::live_blocks::Origin;
use super::names::PoolId;
use super::oom::{Purpose, Remedy};
use super::pools::{Homes, PoolRow};
use super::{Engine, Error, Level, Locked, Plans, State};
use crate::capture::Proof;
use crate::driver::{AsStream, CaptureId, Driver, DriverError, StreamHandle};
use crate::heap::{Asker, CaptureSlot, Placed, Prepared, RangeId, Requester};
use crate::journal::{Entry, Journal};
use crate::lifetimes::Lifetimes;
use crate::plan::{Held, Mapping, Options, Plan};
use crate::policy::Programmatic;
use crate::size::Size;

/// The plan for one heap.
pub(super) struct Ready {
    heap: u32,
    prepared: Prepared,
    /// How long planning took, with all of the capture's.
    planning: Duration,
}

/// Whether memory can come at the end of a capture at all.
fn can_plan(driver: &impl Driver, config: &Config) -> bool {
    driver.memory_support().granularity().is_some() && config.settings.caching
}

impl State {
    /// The heaps in which a capture has blocks without memory.
    pub(super) fn unbound(&self, slot: CaptureSlot) -> impl Iterator<Item = u32> + '_ {
        let capture_state = self.captures.get(slot);
        let heaps =
            capture_state.pools().iter().filter_map(|&pool| self.pools.get(pool)?.planned());
        heaps.filter(|&heap| self.pools.planned(heap).is_unbound(capture_state.id()))
    }

    /// A capture has a graph from now on, with memory or scratch memory behind its blocks; says whether it has any.
    pub(super) fn keep_planned(&mut self, pools: &[PoolId], capture: CaptureId) -> bool {
        pools.iter().fold(false, |any, &pool| {
            let heap = self.pools.get(pool).and_then(PoolRow::planned);
            heap.is_some_and(|heap| self.pools.planned_mut(heap).keep_graph(capture)) | any
        })
    }

    /// The heaps of a pool that hold premapped memory.
    fn premapped_heaps(&self, pool: PoolId) -> SmallVec<[u32; 2]> {
        // Captures alone map ahead, and leave nothing of it.
        let row = self.pools.get(pool).filter(|row| row.captures() > 0);
        let heaps = row.map(PoolRow::heaps).into_iter().flatten();
        heaps.filter(|&heap| self.pools.heap(heap).premapped() > 0).collect()
    }

    /// Whether premapped memory of a pool may be exchanged, as far as its captures are concerned: every one may map ahead,
    /// or a graph with blocks in it may run already; and no thread but this one can be at work in them, but for one.
    fn may_exchange(&self, pool: PoolId, but: Option<CaptureSlot>) -> bool {
        let mut captures = self.captures.with_slots().filter(|(_, it)| it.pools().contains(&pool));
        captures.all(|(slot, it)| {
            let mine = || it.streams().all(|stream| self.timelines.is_mine(stream));
            it.step() > 0 && (but == Some(slot) || mine())
        })
    }

    fn keep_premapped(&mut self, pool: PoolId) {
        for heap in self.premapped_heaps(pool) {
            self.pools.heap_mut(heap).keep_premapped(None);
        }
    }

    /// Makes the premapped memory of the piece that a range lies in idle.
    pub(super) fn keep_piece(&mut self, heap: u32, range: RangeId) {
        if self.pools.find_heap(heap).is_some_and(|heap| heap.premapped() > 0) {
            let heap = self.pools.heap_mut(heap);
            heap.keep_premapped(Some(heap.extent(range)));
        }
    }
}

/// What the plan for one heap is made from, with the record of the capture: nothing of the engine's state.
struct Unplanned {
    heap: u32,
    pool: PoolId,
    /// Where the blocks lie that have no memory.
    unbound: HashSet<u64>,
    options: Options,
    /// Rows of pieces that it may use, and what it is told of them.
    sharable: (Vec<usize>, Vec<Held>),
}

/// A plan for each heap, and how it stands to the pieces there.
fn plans(
    unplanned: Vec<Unplanned>,
    journal: Option<&Journal>,
    programmatic: Programmatic,
    driver: &impl Driver,
    config: &Config,
) -> Vec<(Unplanned, Plan)> {
    let journal = journal.filter(|_| !unplanned.is_empty());
    let Some((granularity, journal)) = driver.memory_support().granularity().zip(journal) else {
        return Vec::new();
    };
    let lifetimes = Lifetimes::read(journal, programmatic);
    let plan = |it: Unplanned| {
        let mine = lifetimes.only(|block| it.unbound.contains(&block.address));
        let mine = mine.held_to(journal, config.settings.reuse);
        let mut plan = Plan::new(&mine, granularity, &it.sharable.1, &it.options);
        spoil(&mut plan, config);
        (it, plan)
    };
    unplanned.into_iter().map(plan).collect()
}

/// Has a plan wrong where the configuration asks for that: never, outside tests.
fn spoil(plan: &mut Plan, config: &Config) {
    let (shared, swapped) = (Flaw::SharedPieces, Flaw::SwappedPieces);
    if !config.lacks(shared) && !config.lacks(swapped) {
        return;
    }
    let uses = |piece: u32| plan.mappings.iter().filter(|it| it.piece == piece).count();
    let bytes = |piece: u32| plan.pieces[piece as usize].bytes;
    let found = plan.mappings.iter().rposition(|it| uses(it.piece) > 1).and_then(|shared| {
        let piece = plan.mappings[shared].piece;
        let alike = |it: &Mapping| it.piece != piece && bytes(it.piece) == bytes(piece);
        Some((plan.mappings.iter().position(alike)?, shared))
    });
    let Some((one, shared)) = found else { return };
    let pieces = [one, shared].map(|it| plan.mappings[it].piece);
    plan.mappings[one].piece = pieces[1];
    if config.lacks(swapped) {
        plan.mappings[shared].piece = pieces[0];
    }
}

impl<D: Driver> Locked<'_, D> {
    /// A place whose memory comes at the end of the capture; where there is none, one that the pool has or gets.
    pub(super) fn find_planned(
        &mut self,
        request: &Request,
        homes: Homes,
        requester: Requester,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let Requester::Capture { capture: slot, stream, share } = requester else {
            return self.find(request, homes, requester);
        };
        let &Request { pool, bytes, .. } = request;
        let foreseen = self.foresee_place(slot, request);
        if !self.can_bind(slot, pool, bytes) {
            if foreseen.is_some() {
                self.note_place(slot, Err(Why::NoMemory));
            }
            // Nothing is added, but what the pool holds already may do.
            return match bytes > self.capacity(pool) {
                true => self.find(request, homes, requester),
                false => Ok(self.place(requester, homes, bytes, false)),
            };
        }
        let capture = self.state.capture(slot).id();
        let heap = self.state.pools.planned_heap(pool, self.config.settings.exportable);
        let limit = self.state.room(pool);
        let (driver, lacks_proof) = (self.driver, self.config.lacks(Flaw::Proof));
        let State { pools, captures, .. } = &mut *self.state;
        let order = &captures.get(slot).proof;
        let proof = if lacks_proof { Proof::FLAWED } else { order.proof(stream) };
        let asker = Asker::new(stream, share, proof, order);
        let row = pools.planned_mut(heap);
        let mut placed = match foreseen {
            Some(Ok((offset, span))) => {
                row.place_laid(driver, capture, asker, ((offset, span), bytes), limit)
            }
            _ => Ok(None),
        };
        let there = matches!(placed, Ok(Some(_)));
        let found = foreseen.map(|it| it.and(there.then_some(()).ok_or(Why::Taken)));
        if matches!(placed, Ok(None)) {
            placed = row.place_fresh(driver, capture, asker, bytes, limit);
        }
        if let Some(found) = found {
            self.note_place(slot, found);
        }
        match placed {
            Ok(Some(placed)) => Ok(Some((heap, placed))),
            Err(error) if !error.is_out_of_memory() => Err(error),
            // What is free otherwise may still do.
            Ok(None) | Err(_) => self.find(request, homes, requester),
        }
    }

    /// A place with memory of its own for good, in a capture.
    pub(super) fn find_fixed(
        &mut self,
        request: &Request,
        slot: CaptureSlot,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let &Request { pool, bytes, .. } = request;
        if !self.can_bind(slot, pool, bytes) {
            return Ok(None);
        }
        let capture = self.state.capture(slot).id();
        let heap = self.state.pools.planned_heap(pool, self.config.settings.exportable);
        let placed = self.oom_ladder((bytes, pool, false), |locked, attempt| {
            if attempt != Remedy::Grow {
                return Ok(None);
            }
            let limit = locked.state.room(pool);
            let row = locked.state.pools.planned_mut(heap);
            Ok(row.place_fixed(locked.driver, capture, bytes, limit)?.map(|placed| (heap, placed)))
        });
        match placed {
            Err(error) if error.is_out_of_memory() => Ok(None),
            placed => placed,
        }
    }

    /// Whether captures can get memory of a pool at their end.
    pub(super) fn can_plan_in(&self, pool: PoolId) -> bool {
        let mapped = self.state.pools.get(pool).is_some_and(|pool| pool.config().is_mapped());
        mapped && can_plan(self.driver, self.config)
    }

    /// Whether there is room for `bytes` more than a capture has live without memory: blocks live at once share none.
    fn can_bind(&mut self, slot: CaptureSlot, pool: PoolId, bytes: u64) -> bool {
        let capture_state = self.state.capture(slot);
        let capture = capture_state.id();
        let pools = SmallVec::<[_; 1]>::from_slice(capture_state.pools());
        let live =
            |pool: &PoolId| Some(self.state.pools.get(*pool)?.planned_heap()?.live_bytes(capture));
        let own = live(&pool).unwrap_or(0);
        let all: u64 = pools.iter().filter_map(live).sum();
        own + bytes <= self.capacity(pool) && all + bytes <= self.capacity_of_all()
    }

    /// Whether a capture gets its memory in a pool at its end.
    pub(super) fn is_planned(&self, slot: CaptureSlot, pool: PoolId) -> bool {
        self.options(slot, pool).is_some()
    }

    /// The bounds of a capture's plan for a pool, if there is to be one.
    #[inline(always)]
    fn options(&self, slot: CaptureSlot, pool: PoolId) -> Option<&Options> {
        let capture_state = self.state.captures.get(slot);
        capture_state.journal.as_ref()?;
        let paged = |it: &Following| it.is_paged() && capture_state.pools().first() == Some(&pool);
        if capture_state.following.as_deref().is_some_and(|following| !paged(following)) {
            return None;
        }
        self.asked_plan(slot, pool)
    }

    /// The bounds of the plan that the host asks for, of a capture or of all into a pool.
    pub(super) fn asked_plan(&self, slot: CaptureSlot, pool: PoolId) -> Option<&Options> {
        match self.state.captures.get(slot).planning() {
            Some(options) => options.as_ref(),
            None => self.asked_of_all(pool),
        }
    }

    /// The bounds of the plan that the host asks for, of all captures into a pool.
    pub(super) fn asked_of_all(&self, pool: PoolId) -> Option<&Options> {
        self.state.pools.get(pool)?.config().plan.as_ref()
    }

    /// What is planned at the end of a capture, for each heap that it has such blocks in.
    fn unplanned(&self, slot: CaptureSlot) -> Vec<Unplanned> {
        let capture_state = self.state.captures.get(slot);
        let (id, concurrent) = (capture_state.id(), capture_state.concurrent());
        let Some(journal) = &capture_state.journal else { return Vec::new() };
        let unplanned = |heap: u32| {
            let pool = self.state.pools.pool_of(heap);
            let options = self.options(slot, pool).cloned().unwrap_or_default();
            let row = self.state.pools.planned(heap);
            let options = options.after(capture_state.since().elapsed(), row.graphs());
            let unbound = journal.iter().filter_map(|entry| match entry {
                Entry::Allocate { address, .. } if row.is_to_be_bound(id, address) => Some(address),
                _ => None,
            });
            // One of the captures beside it may contain this one, so nothing is known to be theirs in turn.
            let sharable = if concurrent { Default::default() } else { row.sharable() };
            Unplanned { heap, pool, unbound: unbound.collect(), options, sharable }
        };
        self.state.unbound(slot).map(unplanned).collect()
    }

    /// Makes the plans of a capture that ends, and writes what they put where into its record, for the checker.
    pub(super) fn prepare_plans(&mut self, slot: CaptureSlot) -> Vec<Ready> {
        let id = self.state.capture(slot).id();
        let mut ready = Vec::new();
        let started = Instant::now();
        let unplanned = self.unplanned(slot);
        let _shown = self.state.messages.teller().range(|| format!("plan of capture {}", id.0));
        let journal = self.state.captures.get(slot).journal.as_ref();
        let is_looked = journal.is_some_and(|it| it.iter().any(|it| it == Entry::Looked));
        let programmatic = match self.config.settings.programmatic {
            // What no look saw may have started early.
            Programmatic::Auto if !is_looked => Programmatic::Lag,
            told => told,
        };
        let plans = plans(unplanned, journal, programmatic, self.driver, self.config);
        let planning = started.elapsed() / u32::try_from(plans.len()).unwrap_or(1).max(1);
        for (Unplanned { heap, sharable, .. }, plan) in plans {
            // Into its record come all live blocks there: the plan may bring its own to where they are.
            let State { pools, captures, blocks, .. } = &mut *self.state;
            let pool = pools.pool_of(heap);
            let own = |origin| matches!(origin, Origin::Capture(home) if home.slot == slot);
            for block in blocks.of(pool).filter(|it| it.site.heap == heap && !own(it.origin)) {
                let (address, bytes) = pools.place(block.site);
                captures.get_mut(slot).tell(pool, (block.site.number, address, bytes));
            }
            let prepared = pools.planned_mut(heap).prepare(plan, &sharable.0);
            for entry in pools.planned(heap).entries(id, &prepared, heap) {
                captures.get_mut(slot).write_journal(entry);
            }
            ready.push(Ready { heap, prepared, planning });
        }
        ready
    }

    /// Carries the plans of a capture out that the checker has accepted. After an error the capture cannot stand.
    pub(super) fn bind_plans(
        &mut self,
        slot: CaptureSlot,
        ready: Vec<Ready>,
    ) -> Result<Option<PlanReport>, Error> {
        let capture_state = self.state.capture(slot);
        let (capture, beside) = (capture_state.id(), capture_state.concurrent());
        let capturing = capture_state.since().elapsed();
        // Of all pools before any plan is carried out: what one holds may be what another lacks.
        let (started, mut scratch_mappings) = (Instant::now(), 0);
        for &Ready { heap, .. } in &ready {
            let row = self.state.pools.planned_mut(heap);
            scratch_mappings += row.clear_scratch_of(self.driver, capture)?;
        }
        let binding_ns = nanoseconds(started.elapsed());
        let mut all: Option<PlanReport> = None;
        for Ready { heap, prepared, planning } in ready {
            let plan = prepared.plan();
            let pool = self.state.pools.pool_of(heap);
            let new_bytes = plan.new_bytes();
            let started = Instant::now();
            let need = (new_bytes, pool, false);
            let _shown = self.state.range_of(pool, |pool| {
                format!("memory of capture {} in {pool}, by its plan", capture.0)
            });
            let bound = self.oom_ladder(need, |locked, attempt| {
                if attempt != Remedy::Grow || new_bytes > locked.state.room(pool) {
                    return Ok(None);
                }
                // What is free elsewhere is of no use there.
                let row = locked.state.pools.planned_mut(heap);
                row.bind(self.driver, capture, &prepared, beside).map(Some)
            });
            match bound {
                Ok(Some(())) => {}
                Err(error) if !error.is_out_of_memory() => return Err(error.into()),
                Ok(None) | Err(_) => {
                    let room = Some(self.state.room(pool)).filter(|&room| room < u64::MAX);
                    let report = self.report_oom(Purpose::Plan, need, None);
                    let bytes = plan.bytes();
                    return Err(Error::PlanOutOfMemory { bytes, new_bytes, room, report });
                }
            }
            let binding = started.elapsed();
            self.state.say_of(pool, Level::Info, |pool| {
                let (bytes, new) = (Size(plan.bytes()), Size(new_bytes));
                let (least, mappings) = (Size(plan.minimum_bytes), plan.mappings.len());
                let (capture, spent) = (capture.0, (planning + binding).as_micros());
                format!(
                    "capture {capture} is planned: it runs on {bytes} of {pool} in {mappings} mappings, {new} of \
                     it new, and needs {least} alone; that took {spent} us"
                )
            });
            let sum = all.get_or_insert_with(|| PlanReport {
                scratch_mappings,
                binding_ns,
                ..PlanReport::default()
            });
            sum.bytes += plan.bytes();
            sum.new_bytes += new_bytes;
            sum.minimum_bytes += plan.minimum_bytes;
            sum.excess_bytes += plan.excess_bytes;
            sum.pieces += plan.pieces.len();
            sum.mappings += plan.mappings.len();
            let until = nanoseconds(capturing.saturating_sub(planning));
            sum.capturing_ns = sum.capturing_ns.max(until);
            sum.planning_ns += nanoseconds(planning);
            sum.binding_ns += nanoseconds(binding);
        }
        Ok(all)
    }

    /// A graph, or a capture that has become none, is over: its blocks in planned heaps go.
    pub(super) fn leave_planned(&mut self, pools: &[PoolId], capture: CaptureId) {
        for &pool in pools {
            for heap in self.state.pools.planned_heaps(Some(pool)) {
                self.state.pools.planned_mut(heap).end_graph(capture);
            }
            self.release_planned(Some(pool));
        }
    }

    /// Gives memory back that live blocks of one pool, or of all, kept and that none keeps any more, but for pools that
    /// move, whose memory is copied. Returns how much.
    pub(super) fn release_planned(&mut self, pool: Option<PoolId>) -> u64 {
        let mut gone = 0;
        for heap in self.state.pools.planned_heaps(pool) {
            if self.state.pools.is_moving(self.state.pools.pool_of(heap)) {
                continue;
            }
            // Records of captures under way tell of blocks there: the driver could give them the addresses again.
            let addresses = self.state.pools.find_pool(heap).is_some_and(|it| it.captures() == 0);
            let before = self.state.pools.planned(heap).reserved();
            self.state.pools.planned_mut(heap).release_unused(self.driver, addresses);
            gone += before - self.state.pools.planned(heap).reserved();
        }
        gone
    }

    /// How much growth for a requester may map at once ahead of what is asked for, and what the heap of small or of
    /// large blocks is to hold in the end, where that is known, in bytes.
    pub(super) fn ahead(&self, pool: PoolId, small: bool, requester: Requester) -> (u64, u64) {
        match requester {
            // Else it could not be released.
            Requester::Capture { capture, .. }
                if self.state.may_exchange(pool, Some(capture))
                    // Above the threshold it would be given back before the next growth.
                    && self.garbage_threshold().is_none_or(|it| it >= self.state.pools.reserved_by_all()) =>
            {
                let captures = &self.state.captures;
                (captures.get(capture).step(), captures.usual(small))
            }
            _ => (0, 0),
        }
    }

    /// Gives the premapped memory of a pool back before a capture ends, if one is named, or before work outside
    /// captures is handed a place in the pool; what cannot go is kept as idle memory. After the driver's error memory
    /// of the pool is lost: it is suspended now.
    pub(super) fn end_premapped(
        &mut self,
        pool: PoolId,
        capture: Option<CaptureSlot>,
    ) -> Result<(), DriverError> {
        if self.state.premapped_heaps(pool).is_empty() {
            return Ok(());
        }
        if self.state.may_exchange(pool, capture) {
            self.drop_premapped(pool)?;
        }
        self.state.keep_premapped(pool);
        Ok(())
    }

    /// Gives back what premapped memory may be exchanged now, of all pools. Returns whether there was
    /// any; the driver's error, where memory of the pool that is named is lost: it is suspended now.
    pub(super) fn drop_premapped_of_all(
        &mut self,
        of: Option<PoolId>,
    ) -> Result<bool, DriverError> {
        let mut released = false;
        let mut result = Ok(());
        for pool in self.state.pools.ids() {
            let premapped = !self.state.premapped_heaps(pool).is_empty();
            if premapped && self.state.may_exchange(pool, None) {
                released = true;
                let done = self.drop_premapped(pool);
                if of == Some(pool) {
                    result = done;
                }
            }
        }
        result.map(|()| released)
    }

    fn drop_premapped(&mut self, pool: PoolId) -> Result<(), DriverError> {
        let mut result = Ok(());
        for heap in self.state.premapped_heaps(pool) {
            let limit = self.state.room(pool);
            let row = self.state.pools.heap_mut(heap);
            let replacements = row.create_replacements(self.driver, limit);
            // Both pieces are held for a moment: peaks are to show it.
            self.account_heap(heap);
            self.note_peaks();
            let row = self.state.pools.heap_mut(heap);
            result = result.and(row.release_premapped(self.driver, replacements));
        }
        if let Err(error) = &result {
            self.lose(pool, error);
        }
        result
    }

    /// A pool has lost memory: nothing more of it is handed out, and no capture under way that uses it can stand.
    fn lose(&mut self, pool: PoolId, error: &DriverError) {
        self.state.keep_premapped(pool);
        self.shut(pool);
        for CaptureState { lost, .. } in self.state.captures.others(pool, None) {
            lost.get_or_insert_with(|| error.clone());
        }
    }

    /// Notes that a stream is about to be recorded for a block of a capture: if the stream is not
    /// known to be in the capture, the piece that the block lies in stays as it is.
    pub(super) fn keep_piece_in_use(
        &mut self,
        capture: CaptureSlot,
        (heap, range): (u32, RangeId),
        stream: StreamHandle,
    ) {
        if self.state.pools.find_heap(heap).is_none_or(|heap| heap.premapped() == 0) {
            return;
        }
        if !matches!(self.look_in(capture, stream), Ok(Some(_))) {
            self.state.keep_piece(heap, range);
        }
    }
}

/// For the report of a capture: how long carrying a plan out took.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<D: Driver> Engine<D> {
    /// Hands out a block as [`Engine::allocate`] does. While `stream` captures, the block gets memory of its own at
    /// once, which is never shared and never moved as long as a graph of the capture lives, whether the block is freed
    /// or not. For memory that is registered with a communication library, exported to other processes, or used by a
    /// kernel that goes on running. Takes whole units of the device's granularity. Outside captures, and where the
    /// device has no virtual memory management, this does what `allocate` does: memory is never moved, and the block is
    /// kept for as long as its memory must not be shared.
    ///
    /// # Errors
    /// Those of [`Engine::allocate`].
    pub fn allocate_fixed(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: impl AsStream,
    ) -> Result<super::Block, Error> {
        self.allocate_as(("allocate_fixed", true), pool, bytes, stream.as_stream(), || false)
    }
}

impl<D: Driver> Plans<'_, D> {
    /// Has a capture under way get its memory at its end, the least that its graph can run on, or with `None` as its
    /// blocks are asked for, whatever [`Settings::plan`](crate::settings::Settings::plan) says. Blocks that the capture
    /// has allocated before stay where they are, so this is best called before its first allocation.
    ///
    /// Blocks then have addresses and no memory of their own until [`Engine::end_capture`] has returned. Before that
    /// the graph must not be launched, nothing outside the capture may touch the blocks, and they must not be
    /// registered or exported; [`Engine::allocate_fixed`] gives memory for such uses. What work outside the capture
    /// writes to the blocks until then is lost.
    ///
    /// # Errors
    /// [`Error::Unknown`]; [`Error::CannotPlan`] where the device has no virtual memory
    /// management, and where no journal is kept and the capture has allocated or freed blocks already.
    pub fn plan_capture(&self, capture: CaptureId, options: Option<Options>) -> Result<(), Error> {
        self.0.in_capture(capture, "plan_capture", |locked, slot| {
            // Without a record of all that was allocated nothing can be planned.
            let mut possible =
                || can_plan(&self.0.driver, &self.0.config) && locked.begin_journal(slot);
            if options.is_some() && !possible() {
                return Err(Error::CannotPlan { capture });
            }
            locked.state.capture(slot).set_planning(options);
            Ok(())
        })
    }

    /// The plans by which a capture under way would get its memory if it ended now, one for each of its pools with
    /// planned blocks. Nothing is mapped. [`Plan::mappings`] says what a plan would cost, in time to call
    /// [`Plans::plan_capture`] again with other bounds.
    ///
    /// Looks at the capture's streams first. Costs what the plan at the end does; the engine is not locked meanwhile.
    pub fn preview_plan(&self, capture: CaptureId) -> Result<Vec<(PoolId, Plan)>, Error> {
        let (unplanned, journal) = self.0.in_capture(capture, "preview_plan", |locked, slot| {
            let _ = locked.last_looks(slot);
            let unplanned = locked.unplanned(slot);
            let journal = &locked.state.capture(slot).journal;
            Ok((unplanned, journal.clone()))
        })?;
        let Engine { driver, config, .. } = self.0;
        let programmatic = config.settings.programmatic;
        let plans = plans(unplanned, journal.as_ref(), programmatic, driver, config);
        Ok(plans.into_iter().map(|(of, plan)| (of.pool, plan)).collect())
    }
}

/// What a plan gave a capture at its end, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// The pieces that the capture's graph uses, in bytes.
    pub bytes: u64,
    /// Bytes of new pieces among them; the other pieces are shared with other graphs of the pool.
    pub new_bytes: u64,
    /// The least memory that these blocks need by themselves, in bytes, as whole units of the device's granularity.
    pub minimum_bytes: u64,
    /// New memory beyond what the least memory needs, in bytes, because existing pieces did not fit.
    pub excess_bytes: u64,
    /// Pieces of memory.
    pub pieces: usize,
    /// How many mappings these pieces have.
    pub mappings: usize,
    /// How many mappings of scratch memory the capture's addresses had before its end.
    pub scratch_mappings: usize,
    /// How long the capture took until it was planned, with its check, in nanoseconds.
    pub capturing_ns: u64,
    /// How long planning took, in nanoseconds.
    pub planning_ns: u64,
    /// How long it took to unmap scratch memory and to map the pieces, in nanoseconds.
    pub binding_ns: u64,
}

impl PlanReport {
    /// The share of a capture's time, in percent, beyond which a host should be told what a plan takes.
    pub const SHARE_PERCENT: u64 = 15;

    /// How much longer than without a plan the capture took, in percent of what it took before: by planning
    /// and by carrying the plan out. What it takes to instantiate the graph is not known here.
    pub fn share_percent(&self) -> u64 {
        let spent = u128::from(self.planning_ns) + u128::from(self.binding_ns);
        let share = spent * 100 / u128::from(self.capturing_ns.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// How many mappings take `percent` of the capture's time, at the time that each has taken: a bound for
    /// [`Options::max_mappings`] and the setting `plan_max_mappings`, with which the next capture of the same work
    /// stays within that share, and may need more memory. `None` where all mappings of this plan stay within it; 0
    /// where planning, or unmapping scratch memory, exceeds it alone.
    pub fn mappings_within(&self, percent: u64) -> Option<usize> {
        if self.share_percent() <= percent {
            return None;
        }
        // Each scratch mapping that goes costs about half of what a mapping does that comes.
        let halves = 2 * self.mappings as u128 + self.scratch_mappings as u128;
        let allowed = u128::from(self.capturing_ns) * u128::from(percent) / 100;
        let for_binding = allowed.saturating_sub(u128::from(self.planning_ns));
        let within = for_binding * halves / u128::from(self.binding_ns.max(1));
        let for_plan = within.saturating_sub(self.scratch_mappings as u128) / 2;
        Some(usize::try_from(for_plan).unwrap_or(usize::MAX).min(self.mappings))
    }
}
