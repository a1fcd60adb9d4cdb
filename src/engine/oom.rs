//! What is tried before a request fails for want of memory, and the report of one that failed. Nothing is
//! counted and no observer told before a request has failed in the end ([`Engine::request`]).
//!
//! *Errands* are what a call leaves to be done once the engine's lock is released: waits for the device, and plans. A
//! call that can go on only after that is made again from its beginning, at most [`ROUNDS`] times in all: captures,
//! pools and memory may have changed in between, so nothing that it had found out before counts.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use super::history::EventKind;
use super::layout::{First, Lesson};
use super::memory::Leak;
use super::names::{PoolId, PoolLabel};
use super::pools::PoolRow;
use super::report::{FreeRange, Refusal};
use super::{Engine, Error, Locked, State};
use crate::driver::{Driver, DriverError, StreamHandle};
use crate::heap::{unit, Heap, Requester};
use crate::logging::{call_host, Level};
use crate::size::Size;
use crate::sync::MutexGuard;

/// The purpose of the request for memory that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// A block ([`Engine::allocate`]).
    Block,
    /// A suspended pool ([`HostCalls::resume_pool`](crate::engine::HostCalls::resume_pool)).
    Resume,
    /// A capture that gets its memory at its end ([`Plans::plan_capture`](crate::engine::Plans::plan_capture)).
    Plan,
}

/// Why a request could not be met, with the figures that a person needs. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// What it was for.
    pub purpose: Purpose,
    /// What was asked for.
    pub requested: u64,
    /// The device's number.
    pub device: u32,
    /// The stream that asked; the default stream where none did.
    pub stream: StreamHandle,
    /// The pool.
    pub pool: PoolLabel,
    /// The most the pool may hold, where it has a limit.
    pub limit: Option<u64>,
    /// Held by the pool.
    pub reserved: u64,
    /// In the pool's blocks that have not been freed.
    pub allocated: u64,
    /// Free memory that the stream could take if a piece of it were large enough.
    pub takeable: u64,
    /// Free memory that the stream may not use yet: work or captures must complete first.
    pub waiting: u64,
    /// Free memory that graphs of the pool use as long as they live.
    pub kept_by_graphs: u64,
    /// The most that all pools may hold, where there is a limit.
    pub engine_limit: Option<u64>,
    /// Held by all pools of the engine.
    pub engine_reserved: u64,
    /// In blocks that have not been freed, of all pools but suspended ones.
    pub engine_allocated: u64,
    /// Given back by suspended pools, which ask for it again when they are resumed.
    pub engine_suspended: u64,
    /// Held by pools that belong to graphs, or to captures under way.
    pub in_graphs: u64,
    /// Whether the stream captures: a capture waits for nothing.
    pub capturing: bool,
    /// Whether segments can grow (`expandable_segments`).
    pub growable: bool,
    /// The unit in which the device gives memory, where it has one.
    pub granularity: Option<u64>,
    /// Free on the device, where the driver told.
    pub device_free: Option<u64>,
    /// Of the device, where the driver told.
    pub device_total: Option<u64>,
    /// The pools that hold the most, three at most.
    pub holders: Vec<Holder>,
    /// The largest live blocks of all pools, three at most, with where they were asked for if that was recorded.
    pub blocks: Vec<Leak>,
    /// The largest free ranges of the pool that the stream may not take, without those that graphs use: three at most.
    pub waits: Vec<FreeRange>,
}

/// How many pools, blocks and waits a report names.
const NAMED: usize = 3;

impl std::error::Error for OutOfMemory {}

/// The figures of a pool when a request failed. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The pool.
    pub pool: PoolLabel,
    /// Held from the driver.
    pub reserved: u64,
    /// In blocks that have not been freed.
    pub allocated: u64,
    /// How many graphs the pool has.
    pub graphs: usize,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, graphs, .. } = self;
        let [reserved, allocated] = [self.reserved, self.allocated].map(Size);
        write!(f, "{pool} holds {reserved}: {allocated} allocated, {graphs} graphs")
    }
}

/// What was asked for, and what to do; then a line each for the device, the engine and the pool, for the largest pools,
/// blocks and waits.
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, pool, .. } = self;
        let requested = Size(self.requested);
        match self.purpose {
            Purpose::Block => {
                write!(f, "out of memory: {requested} requested on {stream} from {pool}")?;
            }
            Purpose::Resume => {
                write!(f, "out of memory: {pool} stays suspended and needs {requested}")?;
            }
            Purpose::Plan => write!(
                f,
                "end_capture: out of memory: the capture needs {requested} more in {pool} and was \
                 rolled back"
            )?,
        }
        write!(f, "; {}", self.advice().join("; "))?;
        if let (Some(free), Some(total)) = (self.device_free, self.device_total) {
            write!(f, "\n  device {}: {} free of {}", self.device, Size(free), Size(total))?;
            if let Some(granularity) = self.granularity {
                write!(f, ", in units of {}", Size(granularity))?;
            }
        }
        write!(f, "\n  this engine holds {}", Size(self.engine_reserved))?;
        if let Some(limit) = self.engine_limit {
            write!(f, " of the {} that it may", Size(limit))?;
        }
        let unallocated = self.engine_reserved.saturating_sub(self.engine_allocated);
        write!(f, ": {} allocated, {} not", Size(self.engine_allocated), Size(unallocated))?;
        if self.in_graphs > 0 {
            write!(f, ", {} of it all in pools of graphs", Size(self.in_graphs))?;
        }
        if self.engine_suspended > 0 {
            write!(f, ", besides {} that suspended pools gave back", Size(self.engine_suspended))?;
        }
        write!(f, "\n  {pool} holds {}", Size(self.reserved))?;
        if let Some(limit) = self.limit {
            write!(f, " of at most {}", Size(limit))?;
        }
        write!(f, ": {} allocated", Size(self.allocated))?;
        for (bytes, what) in [
            (self.takeable, "free but in smaller pieces"),
            (self.waiting, "free that waits for work or captures to complete"),
            (self.kept_by_graphs, "free that its graphs use as long as they live"),
        ] {
            if bytes > 0 {
                write!(f, ", {} {what}", Size(bytes))?;
            }
        }
        list(f, "the largest pools", &self.holders)?;
        list(f, "the largest blocks", &self.blocks)?;
        list(f, "the largest that waits", &self.waits)
    }
}

fn list(f: &mut fmt::Formatter<'_>, what: &str, items: &[impl fmt::Display]) -> fmt::Result {
    for (row, item) in items.iter().enumerate() {
        let begin = if row == 0 { format!("\n  {what}: ") } else { "\n    ".to_owned() };
        write!(f, "{begin}{item}")?;
    }
    Ok(())
}

impl OutOfMemory {
    /// Whether the request would have gone beyond the engine's limit.
    pub fn is_beyond_limit(&self) -> bool {
        let more = self.engine_reserved.saturating_add(self.requested);
        self.engine_limit.is_some_and(|limit| more > limit)
    }

    /// What may help, most likely first.
    fn advice(&self) -> Vec<&'static str> {
        if self.device_total.is_some_and(|total| self.requested > total) {
            return vec!["that is more than the device has"];
        }
        let waits = self.waiting >= self.requested;
        let fragmented = self.takeable >= self.requested;
        let kept = self.kept_by_graphs >= self.requested;
        let advice = [
            (waits, "Engine::explain says what each free range waits for"),
            (
                waits && self.capturing,
                "a capture can wait for nothing: join the streams that used the blocks, or let the \
                 work before the capture complete first",
            ),
            (
                fragmented && !self.growable,
                "memory is fragmented over segments: try expandable_segments:True",
            ),
            (
                fragmented && self.growable,
                "memory is fragmented: try roundup_power2_divisions, or allocate large blocks first",
            ),
            (
                kept || self.in_graphs >= self.requested,
                "release graphs that are not launched any more, or let graphs share a pool",
            ),
            (kept, "between launches Pool::lend lets other work have what graphs do not keep"),
            (
                self.engine_limit.is_some() || self.limit.is_some(),
                "raise the limit (memory_limit_mb, per_process_memory_fraction, \
                 PoolConfig::max_bytes) if the device has more",
            ),
        ];
        let mut advice: Vec<_> =
            advice.into_iter().filter_map(|(applies, text)| applies.then_some(text)).collect();
        if advice.is_empty() {
            advice.push(
                "free blocks, destroy or suspend pools that are not needed now, or end other \
                 programs on the device",
            );
        }
        advice
    }
}

/// Memory that is missing, in bytes, of which pool, and whether the host may be made to wait for the work of streams.
pub(super) type Need = (u64, PoolId, bool);

/// What is tried to find memory for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// To get memory from the driver.
    Grow,
    /// To take what other pools lend where memory is short.
    Offer,
    /// To find a place in what streams have completed by now.
    Place,
}

/// Told of requests that failed for want of memory.
pub(super) type Observer = Arc<dyn Fn(&OutOfMemory) + Send + Sync>;

impl<D: Driver> Engine<D> {
    /// Runs a request for memory, once more where it fails for want of it and `last_resort`, which is called without
    /// the engine's lock, gave some back. What fails in the end is counted and observers are told.
    #[inline]
    pub(super) fn request<R>(
        &self,
        mut request: impl FnMut(&mut Locked<'_, D>) -> Result<Option<R>, Error>,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<R, Error> {
        match self.repeat(&mut request) {
            Ok(done) => Ok(done),
            Err(error) => self.request_again(error, request, last_resort),
        }
    }

    /// What becomes of a request that failed.
    #[cold]
    fn request_again<R>(
        &self,
        mut error: Error,
        request: impl FnMut(&mut Locked<'_, D>) -> Result<Option<R>, Error>,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<R, Error> {
        if error.out_of_memory().is_some() && last_resort() {
            match self.repeat(request) {
                Ok(done) => return Ok(done),
                Err(again) => error = again,
            }
        }
        self.give_up(&error);
        Err(error)
    }

    /// Counts a request that failed in the end, if that was for want of memory, and has observers told.
    pub(super) fn give_up(&self, error: &Error) {
        if let Some(report) = error.out_of_memory() {
            // A poisoned engine counts nothing any more.
            let _ = self.alter(|locked| {
                let &OutOfMemory { requested, stream, device_free, .. } = report;
                locked.state.accounts.counts().num_ooms += 1;
                let (place, pool) = ((device_free.unwrap_or(0), requested), report.pool.id);
                locked.state.record_event(EventKind::OutOfMemory, place, Some(stream), pool);
            });
            self.tell(Level::Info, || report.to_string());
            self.dump_first(report);
            // Not under the lock: an observer may add another one.
            let observers = self.observers.lock().clone();
            if !observers.is_empty() {
                let report = report.clone();
                call_host("an observer is told", move || {
                    observers.iter().for_each(|observer| observer(&report));
                });
            }
        }
    }

    /// Runs a call with the engine's lock held, counts what that came to, and then does what it has left.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub(super) fn change<R>(
        &self,
        change: impl FnOnce(&mut Locked<'_, D>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.run(Errands::LAST, change)
    }

    /// As [`Engine::change`], for a change that nothing refuses.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub(super) fn alter<R>(
        &self,
        change: impl FnOnce(&mut Locked<'_, D>) -> R,
    ) -> Result<R, Error> {
        self.change(|locked| Ok(change(locked)))
    }

    /// As [`Engine::change`]; what was left is done, and the call made again, as long as it returns `None`.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub(super) fn repeat<R>(
        &self,
        mut call: impl FnMut(&mut Locked<'_, D>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let mut round = 0;
        loop {
            if let Some(done) = self.run(Errands { round, ..Errands::default() }, &mut call)? {
                return Ok(done);
            }
            round += 1;
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    fn run<R>(
        &self,
        errands: Errands,
        call: impl FnOnce(&mut Locked<'_, D>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut state = self.lock()?;
        let mut locked = Locked { errands, ..self.with(&mut state) };
        let result = call(&mut locked);
        locked.account();
        let Errands { waits, work, .. } = locked.errands;
        let awaited = if waits { state.timelines.pending() } else { None };
        Self::leave(state);
        if let Some(awaited) = awaited {
            for event in &awaited {
                // Whether that did wait, the next look at the timelines tells.
                let _ = self.driver.synchronize_event(**event);
            }
            // A poisoned engine hands nothing out any more.
            if let Ok(mut state) = self.lock() {
                let mut locked = self.with(&mut state);
                locked.state.accounts.counts().num_sync_all_streams += awaited.len() as u64;
                locked.state.timelines.end_wait(locked.driver, awaited);
                locked.poll_waits(usize::MAX);
                locked.account();
                Self::leave(state);
            }
        }
        if let Some(work) = work {
            self.work_out(work);
        }
        result
    }

    /// Releases the lock, and tells what was said under it.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    fn leave(mut state: MutexGuard<'_, State>) {
        let messages = state.messages.take();
        drop(state);
        if let Some(messages) = messages {
            messages.tell();
        }
    }

    /// Works something out, and takes it in if it is still of use.
    #[cold]
    fn work_out(&self, work: Work) {
        // What is replaced is dropped here, without the lock, and may be large.
        match work {
            Work::Layout(lesson) => {
                lesson.make_layout(unit(self.driver.memory_support()), &self.config.settings);
            }
            Work::Search(first) => self.search_heard(first),
            Work::Lesson(lesson) => drop(self.lock().map(|mut it| it.lessons.keep(lesson))),
        }
    }
}

impl State {
    /// How much more a pool may hold, in bytes.
    pub(super) fn room(&self, pool: PoolId) -> u64 {
        self.pools.room(pool).min(self.room_of_all())
    }

    /// How much more all pools may hold, in bytes.
    pub(super) fn room_of_all(&self) -> u64 {
        let limit = self.tuning.limit();
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.pools.reserved_by_all()))
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Makes an attempt to get memory, and others after memory was given back for it: idle memory beyond the threshold
    /// for that before the first; what is premapped; what other pools lend then; what they have in vain, as little as
    /// will do and then all of it; at last, where the host may wait, what all streams have completed then. `None` and
    /// the driver's want of memory end an attempt, all else ends the search.
    ///
    /// Nothing is waited for here: where something is to be waited for, the whole request is made again after
    /// that ([`oom`](super::oom)), and this returns `None`.
    pub(super) fn oom_ladder<R>(
        &mut self,
        (bytes, pool, waits): Need,
        mut attempt: impl FnMut(&mut Self, Remedy) -> Result<Option<R>, DriverError>,
    ) -> Result<Option<R>, DriverError> {
        let needs = Some(pool);
        let is_short = |result: &Result<Option<R>, DriverError>| match result {
            Ok(found) => found.is_none(),
            Err(error) => error.is_out_of_memory(),
        };
        let mut attempt = |locked: &mut Self, remedy| {
            let grows = remedy == Remedy::Grow;
            let more = |pool| format!("{} more for {pool}", Size(bytes));
            let _shown = grows.then(|| locked.state.range_of(pool, more));
            attempt(locked, remedy)
        };
        if bytes > 0 {
            self.collect_garbage(bytes, Some(pool))?;
        }
        let mut result = attempt(self, Remedy::Grow);
        if is_short(&result) && self.drop_premapped_of_all(Some(pool))? {
            result = attempt(self, Remedy::Grow);
        }
        if !is_short(&result) {
            return result;
        }
        if self.errands.is_first() {
            self.state.accounts.counts().num_alloc_retries += 1;
            self.state.say_of(pool, Level::Info, |pool| {
                let bytes = Size(bytes);
                format!("memory is short: {pool} needs {bytes}, and free memory of all pools goes for it")
            });
        }
        let short = |pool| format!("memory is short for {pool}");
        let _shown = self.state.range_of(pool, short);
        self.free_completed(None);
        for remedy in [Remedy::Place, Remedy::Offer] {
            if let Some(found) = attempt(self, remedy)? {
                return Ok(Some(found));
            }
        }
        for most in [bytes, u64::MAX] {
            // Where the pool's own limit stands in the way, what others have is of no use.
            let full = self.state.pools.room(pool) < bytes && self.state.room_of_all() >= bytes;
            let gone = self.give_back(full.then_some(pool), most, needs);
            // Other programs may have given memory back as well, so one that cannot wait tries again.
            if gone > 0 || most == u64::MAX && !waits {
                result = attempt(self, Remedy::Grow);
                if !is_short(&result) {
                    return result;
                }
            }
        }
        if !waits {
            return result;
        }
        if self.errands.may_repeat() && self.state.timelines.pending().is_some() {
            self.errands.wait();
            self.errands.repeat_after(None);
            return Ok(None);
        }
        self.free_completed(None);
        result = attempt(self, Remedy::Place);
        if is_short(&result) {
            self.give_back(None, u64::MAX, needs);
            result = attempt(self, Remedy::Grow);
        }
        result
    }

    /// From how many bytes on old memory is given back before more is got, where there is a threshold.
    pub(super) fn garbage_threshold(&self) -> Option<u64> {
        let tuning = &self.state.tuning;
        let threshold = tuning.settings().garbage_collection_threshold;
        let (threshold, limit) = threshold.filter(|share| !share.is_nan()).zip(tuning.limit())?;
        Some((threshold * limit as f64) as u64)
    }

    /// Above the threshold, gives old memory back before more is got for `bytes`.
    fn collect_garbage(&mut self, bytes: u64, of: Option<PoolId>) -> Result<(), DriverError> {
        let Some(allowed) = self.garbage_threshold() else { return Ok(()) };
        // What is spare goes at the end anyway.
        let premapped: u64 = self.state.pools.heaps().map(Heap::premapped).sum();
        let held = self.state.pools.reserved_by_all() - premapped;
        let excess = (held + bytes).saturating_sub(allowed);
        if excess > 0 {
            self.drop_premapped_of_all(of)?;
            self.give_back(None, excess, of);
        }
        Ok(())
    }

    /// The most that a pool can ever hold, in bytes.
    pub(super) fn capacity(&mut self, pool: PoolId) -> u64 {
        let of_pool = self.state.pools.get(pool).and_then(|pool| pool.config().max_bytes);
        of_pool.unwrap_or(u64::MAX).min(self.capacity_of_all())
    }

    /// The most that all pools together can ever hold, in bytes: the engine's limit or the device's memory.
    pub(super) fn capacity_of_all(&mut self) -> u64 {
        let tuning = &mut self.state.tuning;
        let of_device = tuning.device_bytes(self.driver);
        tuning.limit().into_iter().chain(of_device).min().unwrap_or(u64::MAX)
    }

    /// The pools that hold the most.
    fn holders(&mut self) -> Vec<Holder> {
        let held = |pool: &PoolRow| {
            let (label, graphs) = (pool.label(), pool.graphs());
            let reserved = self.state.pools.reserved(label.id);
            Holder { pool: label, reserved, allocated: 0, graphs }
        };
        let mut holders: Vec<Holder> = self.state.pools.iter().map(held).collect();
        holders.retain(|holder| holder.reserved > 0);
        holders.sort_by_key(|holder| (Reverse(holder.reserved), holder.pool.id));
        holders.truncate(NAMED);
        for holder in &mut holders {
            holder.allocated = self.allocated_in(Some(holder.pool.id));
        }
        holders
    }

    /// In blocks that have not been freed, of a pool or of all, in bytes.
    fn allocated_in(&mut self, pool: Option<PoolId>) -> u64 {
        self.statistics(pool).all.allocated_bytes.current
    }

    /// The report of a request that failed, of a stream's where there is one.
    pub(super) fn report_oom(
        &mut self,
        purpose: Purpose,
        (requested, pool, may_wait): Need,
        asks: Option<(StreamHandle, Requester)>,
    ) -> Box<OutOfMemory> {
        let (mut takeable, mut waiting, mut kept_by_graphs, mut not_split) = (0, 0, 0, 0);
        let mut waits = self.free_ranges(pool, asks.map(|(_, requester)| requester));
        waits.retain(|range| {
            let sum = match range.refusal {
                None => &mut takeable,
                Some(Refusal::UsedByGraph) => &mut kept_by_graphs,
                Some(Refusal::NotSplit) => &mut not_split,
                Some(_) => &mut waiting,
            };
            *sum += range.bytes;
            range.refusal.as_ref().is_some_and(|why| *why != Refusal::UsedByGraph)
        });
        waits.sort_by_key(|range| (Reverse(range.bytes), range.address));
        waits.truncate(NAMED);
        let info = self.driver.memory_info().ok();
        self.account();
        let of_pool = self.statistics(Some(pool)).all;
        let of_all = self.statistics(None).all;
        let mut suspended = self.state.pools.ids();
        suspended.retain(|&pool| self.state.pools.is_suspended(pool));
        let asleep: u64 = suspended.into_iter().map(|pool| self.allocated_in(Some(pool))).sum();
        let graphs = self.state.pools.iter().filter(|pool| pool.graphs() + pool.captures() > 0);
        let in_graphs = graphs.map(|pool| self.state.pools.reserved(pool.label().id)).sum();
        Box::new(OutOfMemory {
            purpose,
            requested,
            device: self.driver.device(),
            stream: asks.map_or(StreamHandle::from_bits(0), |(stream, _)| stream),
            pool: self.state.pools.label(pool),
            limit: self.state.pools.get(pool).and_then(|pool| pool.config().max_bytes),
            reserved: of_pool.reserved_bytes.current,
            allocated: of_pool.allocated_bytes.current,
            takeable,
            waiting,
            kept_by_graphs,
            engine_limit: self.state.tuning.limit(),
            engine_reserved: of_all.reserved_bytes.current,
            engine_allocated: of_all.allocated_bytes.current - asleep,
            engine_suspended: of_all.suspended_bytes.current,
            in_graphs,
            capturing: !may_wait,
            growable: self.state.tuning.settings().expandable_segments,
            granularity: self.driver.memory_support().granularity(),
            device_free: info.map(|info| info.free),
            device_total: info.map(|info| info.total),
            holders: self.holders(),
            blocks: self.largest_blocks(NAMED),
            waits,
        })
    }
}

/// How often a call is made again at the most.
const ROUNDS: u32 = 8;

/// What is done once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Errands {
    /// How often the call was made before.
    round: u32,
    /// Whether it is to be made again.
    again: bool,
    /// Whether the host waits for what streams hold now, as far as events say when that has completed.
    waits: bool,
    work: Option<Work>,
}

/// What is worked out from copies.
#[derive(Debug)]
pub(super) enum Work {
    Layout(Arc<Lesson>),
    /// A lesson from what was asked for outside captures.
    Search(First),
    /// A lesson from a capture that has ended.
    Lesson(Arc<Lesson>),
}

impl Errands {
    /// The last round of a call, which is not made again.
    const LAST: Self = Self { round: ROUNDS, again: false, waits: false, work: None };

    /// Whether the call may be made again.
    pub(super) fn may_repeat(&self) -> bool {
        self.round < ROUNDS
    }

    pub(super) fn is_first(&self) -> bool {
        self.round == 0
    }

    pub(super) fn is_postponed(&self) -> bool {
        self.again
    }

    pub(super) fn wait(&mut self) {
        self.waits = true;
    }

    /// Has the call made again after this, and after the host has waited if it does.
    pub(super) fn repeat_after(&mut self, work: Option<Work>) {
        (self.work, self.again) = (work, true);
    }

    /// Has a lesson kept.
    pub(super) fn learn(&mut self, lesson: Arc<Lesson>) {
        self.work = Some(Work::Lesson(lesson));
    }
}
