//! Captures whose memory comes at their end.
//!
//! Large blocks of such a capture get addresses of their own (`heap/planned`). At its end a plan is
//! made from its journal, the checker judges the capture with what the plan puts where, and only then
//! is memory mapped: a plan that was not judged hands nothing out.

use std::time::{Duration, Instant};

use super::allocate::Request;
use super::config::Config;
use super::names::PoolId;
use super::oom::{Attempt, Need, Purpose};
use super::plan_report::PlanReport;
use super::recording::Planning;
use super::state::State;
use super::Error;
use crate::driver::{CaptureId, Driver, DriverError, MemorySupport};
use crate::heap::{Asker, CaptureSlot, Claim, Lies, Placed, Prepared, Sharable};
use crate::journal::Entry;
use crate::lifetimes::Lifetimes;
use crate::plan::{Options, Plan};

/// The plan for one heap.
pub(super) struct Ready {
    heap: u32,
    prepared: Prepared,
    /// How long planning took, with all of the capture's.
    planning: Duration,
}

/// Whether memory can come at the end of a capture at all.
pub(super) fn can_plan<D: Driver + ?Sized>(driver: &D, config: &Config) -> bool {
    let mapped = matches!(driver.memory_support(), MemorySupport::Mapped { .. });
    mapped && config.settings.caching
}

/// What became of a request in a capture whose memory comes at its end.
pub(super) enum Found {
    /// It has this heap's addresses.
    At(u32, Placed),
    /// It is to have memory at once: it is small, or the capture is not planned.
    Unplanned,
    /// It cannot have any memory.
    Never,
}

impl State {
    /// A place whose memory comes at the end of the capture, where the request is one for that.
    pub(super) fn find_planned<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        request: &Request,
        claim: Claim,
    ) -> Result<Found, DriverError> {
        let Claim::Capture { capture: slot, stream, .. } = claim else {
            return Ok(Found::Unplanned);
        };
        let &Request { pool, bytes, fixed, .. } = request;
        let MemorySupport::Mapped { granularity } = driver.memory_support() else {
            return Ok(Found::Unplanned);
        };
        let large = bytes >= granularity / 2 && self.options(config, slot, pool).is_some();
        if !config.settings.caching || !(fixed || large) {
            return Ok(Found::Unplanned);
        }
        if !self.can_bind(driver, slot, pool, bytes) {
            return Ok(Found::Never);
        }
        let capture = self.recording(slot).id;
        let heap = self.pools.planned_heap(pool);
        let limit = self.room(pool);
        let learned = self.recording(slot).capture.learned(stream);
        let asker = Asker { capture, stream, learned, limit };
        self.touch(heap);
        let placed = self.search(config, claim, heap, |heap, prove| {
            if fixed {
                heap.place_fixed(driver, asker, bytes)
            } else {
                heap.place_fresh(driver, asker, bytes, prove)
            }
        });
        match placed {
            Err(error) if error.is_out_of_memory() && fixed => Ok(Found::Never),
            // What is free otherwise may still do.
            Err(error) if error.is_out_of_memory() => Ok(Found::Unplanned),
            placed => Ok(match placed? {
                Some(placed) => Found::At(heap, placed),
                None if fixed => Found::Never,
                None => Found::Unplanned,
            }),
        }
    }

    /// Whether limits and device have room for a block of `bytes` and all that the capture has live
    /// without memory. Blocks that are live at one time share none.
    fn can_bind<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        slot: CaptureSlot,
        pool: PoolId,
        bytes: u64,
    ) -> bool {
        let recording = self.recording(slot);
        let (capture, pools) = (recording.id, recording.pools.clone());
        let live = |pool: &PoolId| {
            let heap = self.pools.get(*pool)?.planned()?;
            Some(self.pools.heap(heap).planned_live(capture))
        };
        let own = live(&pool).unwrap_or(0);
        let all: u64 = pools.iter().filter_map(live).sum();
        own + bytes <= self.capacity(driver, pool) && all + bytes <= self.capacity_of_all(driver)
    }

    /// The bounds of a capture's plan for a pool, if there is to be one.
    fn options(&self, config: &Config, slot: CaptureSlot, pool: PoolId) -> Option<Options> {
        let recording = self.recordings[slot.index()].as_ref()?;
        recording.journal.as_ref().filter(|_| recording.following.is_none())?;
        match &recording.planning {
            Planning::Off => None,
            Planning::On(options) => Some(options.clone()),
            Planning::Default => {
                let of_pool = self.pools.get(pool)?.config().plan.clone();
                of_pool.or_else(|| Options::from_settings(&config.settings))
            }
        }
    }

    /// The heaps that a capture has such blocks in.
    fn unbound(&self, slot: CaptureSlot) -> Vec<u32> {
        let recording = self.recordings[slot.index()].as_ref();
        let recording = recording.expect("the slot of a capture under way");
        let heaps = self.planned_of(&recording.pools).into_iter();
        let unbound = |heap: &u32| self.pools.heap(*heap).is_unbound(recording.id);
        heaps.filter(unbound).collect()
    }

    /// Whether a capture has blocks without memory.
    pub(super) fn is_unbound(&self, slot: CaptureSlot) -> bool {
        !self.unbound(slot).is_empty()
    }

    /// A plan for each heap that a capture has such blocks in, and how it stands to the pieces there.
    pub(super) fn plans<D: Driver + ?Sized>(
        &self,
        driver: &D,
        config: &Config,
        slot: CaptureSlot,
    ) -> Vec<(u32, (Sharable, Plan))> {
        let heaps = self.unbound(slot);
        let recording = self.recordings[slot.index()].as_ref();
        let recording = recording.expect("the slot of a capture under way");
        let (id, beside) = (recording.id, recording.beside);
        let MemorySupport::Mapped { granularity } = driver.memory_support() else {
            return Vec::new();
        };
        let Some(journal) = recording.journal.as_ref().filter(|_| !heaps.is_empty()) else {
            return Vec::new();
        };
        let lifetimes = Lifetimes::read(journal, config.settings.programmatic);
        let plan = |heap: u32| {
            let options = self.options(config, slot, self.pools.pool_of(heap)).unwrap_or_default();
            let options = options.after(recording.since.elapsed());
            let row = self.pools.heap(heap);
            // One of the captures beside it may contain this one, so nothing is known to be theirs in
            // turn.
            let sharable = if beside { Default::default() } else { row.sharable() };
            let mine = lifetimes.only(|block| row.is_to_be_bound(id, block.address));
            let mine = mine.held_to(journal, config.settings.reuse);
            let plan = Plan::new(&mine, granularity, &sharable.bytes, &options);
            (heap, (sharable, plan))
        };
        heaps.into_iter().map(plan).collect()
    }

    /// Makes the plans of a capture that ends, and writes what they put where into its record, for the
    /// checker.
    pub(super) fn prepare_plans<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        slot: CaptureSlot,
    ) -> Vec<Ready> {
        let id = self.recording(slot).id;
        let mut ready = Vec::new();
        let started = Instant::now();
        let plans = self.plans(driver, config, slot);
        let planning = started.elapsed() / u32::try_from(plans.len()).unwrap_or(1).max(1);
        for (heap, (sharable, plan)) in plans {
            let row = self.pools.heap_mut(heap);
            let prepared = row.prepare(plan, &sharable);
            let (others, shared) = row.others(id);
            // Numbers of memory are a heap's own.
            let number = |memory: u64| u64::from(heap) << 40 | memory;
            let lies: Vec<Lies> = prepared.lies().chain(others).collect();
            for Lies { address, bytes, memory } in lies {
                let memory = number(memory);
                self.note(slot, Entry::Bound { address, bytes, memory, offset: 0 });
            }
            for (memory, bytes) in shared {
                self.note(slot, Entry::Shared { memory: number(memory), bytes });
            }
            ready.push(Ready { heap, prepared, planning });
        }
        ready
    }

    /// Carries the plans of a capture out that the checker has accepted.
    ///
    /// # Errors
    /// [`Error::PlanOutOfMemory`], or the driver's: the capture cannot stand.
    pub(super) fn bind_plans<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        slot: CaptureSlot,
        ready: Vec<Ready>,
    ) -> Result<Option<PlanReport>, Error> {
        let capture = self.recording(slot).id;
        let mut all: Option<PlanReport> = None;
        for Ready { heap, prepared, planning } in ready {
            self.touch(heap);
            let plan = prepared.plan();
            let pool = self.pools.pool_of(heap);
            let scratch = self.pools.heap_mut(heap).scratch_of(capture);
            let new_bytes = plan.new_bytes();
            let mut report = PlanReport::new(plan);
            report.planning_ns = nanoseconds(planning);
            let started = Instant::now();
            let need = Need { bytes: new_bytes, pool, waits: false };
            let bound = self.oom_ladder(driver, config, need, |state, attempt| {
                let room = state.room(pool).saturating_add(scratch);
                if attempt == Attempt::Place || new_bytes > room {
                    return Ok(None);
                }
                // What is free elsewhere is of no use there.
                state.pools.heap_mut(heap).bind(driver, capture, &prepared).map(Some)
            });
            match bound {
                Ok(Some(())) => report.binding_ns = nanoseconds(started.elapsed()),
                Err(error) if !error.is_out_of_memory() => return Err(error.into()),
                Ok(None) | Err(_) => {
                    let room = Some(self.room(pool).saturating_add(scratch));
                    let room = room.filter(|&room| room < u64::MAX);
                    let report = self.report_oom(driver, config, Purpose::Plan, need, None);
                    let bytes = plan.bytes();
                    return Err(Error::PlanOutOfMemory { bytes, new_bytes, room, report });
                }
            }
            all = Some(all.map_or(report, |sum| sum.and(report)));
        }
        Ok(all)
    }

    /// Whether a graph's blocks, or what is left of them, lie in a pool's planned heap: it is over.
    pub(super) fn leave_grounds<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        pools: &[PoolId],
        capture: CaptureId,
    ) {
        for heap in self.planned_of(pools) {
            self.pools.heap_mut(heap).leave_ground(driver, capture);
            self.touch(heap);
        }
    }

    /// A capture has a graph from now on, whether its blocks got memory or keep the scratch memory.
    /// Returns whether it has any.
    pub(super) fn keep_grounds(&mut self, pools: &[PoolId], capture: CaptureId) -> bool {
        let heaps = self.planned_of(pools);
        heaps
            .into_iter()
            .fold(false, |any, heap| self.pools.heap_mut(heap).keep_ground(capture) | any)
    }

    /// Gives memory back that live blocks of one pool, or of all, kept and that none keeps any more.
    /// Returns how much.
    pub(super) fn sweep_planned<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        pool: Option<PoolId>,
    ) -> u64 {
        let mut gone = 0;
        for heap in self.pools.planned_heaps(pool) {
            let before = self.pools.heap_mut(heap).reserved();
            self.pools.heap_mut(heap).sweep(driver);
            gone += before - self.pools.heap_mut(heap).reserved();
            self.touch(heap);
        }
        gone
    }

    fn planned_of(&self, pools: &[PoolId]) -> Vec<u32> {
        pools.iter().filter_map(|&pool| self.pools.get(pool)?.planned()).collect()
    }
}

/// For the report of a capture: how long carrying a plan out took.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
