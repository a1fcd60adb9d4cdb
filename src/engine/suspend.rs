//! Suspending pools: their memory goes back to the driver while blocks and graphs keep their addresses.
//!
//! A suspended pool is shut: no door hands anything of it out. Blocks of it can be freed; that changes tables and no
//! memory. A pool can be *short* of a part of its memory where the driver has refused to give it back after it was
//! exchanged: it is shut likewise, but what its live blocks hold is kept, even if more calls of the driver fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::history::EventKind;
use super::live_blocks::Origin;
use super::names::{PoolId, PoolLabel};
use super::oom::{Purpose, Remedy};
use super::pools::{with_heap, PoolRow};
use super::{Engine, Error, HostCalls, Level, Locked, PoolRefusal, State};
use crate::check;
use crate::driver::{Driver, DriverError};
use crate::heap::{unit, Keeper, NothingKept, Pieces, Presence};
use crate::logging::Range;
use crate::size::Size;
use crate::snapshot::BlockState;
use crate::sync::MutexGuard;

const EXCESS: &str = "excess_bytes";

/// By which call memory goes or comes, as messages have it, and whether a pool's owner makes it, who holds launches back.
pub(crate) type By = (&'static str, bool);

/// Keeps what live blocks of pools hold while their memory is away.
pub(crate) trait Contents: Keeper {
    /// Of which pool the pieces are that go and come from now on.
    fn turn_to(&mut self, _pool: PoolId) {}

    /// Does what the next hold of the lock needs, with no lock of the engine's held: waits for the copies that the next
    /// piece goes after, and begins those of the pieces that came. Nothing, where nothing is copied.
    fn advance(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until nothing is read or written any more, with no lock held. After an error what came is not whole.
    fn finish(&mut self) -> Result<(), DriverError> {
        Ok(())
    }
}

impl Contents for NothingKept {}

/// So many pieces of regions go or come in one hold of the engine's lock: each takes the driver some 25 to 75 us.
const PIECES: Pieces = Pieces::new(8);

/// What becomes of what live blocks of pools that go hold.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// There must be none but graphs' own.
    Refused,
    /// It is lost.
    Accepted,
    /// It is kept by whom this numbers, and the pools are asleep: only those who keep it get the memory again.
    Kept(u64),
}

/// How far memory has come.
enum Came {
    All,
    /// Another call goes on.
    Part,
    /// Some of this pool's, or of others', is missing, and nothing gives it.
    Short(PoolId),
}

impl<D: Driver> Engine<D> {
    /// Suspends a pool in its owner's name or by its own, with what blocks of no graph hold or not.
    pub(crate) fn suspend(&self, pool: PoolId, discarding: bool, by: By) -> Result<u64, Error> {
        let loss = if discarding { Loss::Accepted } else { Loss::Refused };
        // In one hold of the lock: another call may open the pool, and hand memory of it out, as soon as it is released.
        self.change(|locked| {
            locked.state.must_be_owned_by(pool, by)?;
            let held = locked.state.pools.reserved(pool);
            let movement = Movement::of_pool(self, (pool, locked.state), by, held);
            if locked.may_be_suspended(pool, loss, by.0)? {
                locked.shut(pool);
            }
            let gone = locked.give_away(pool, &mut NothingKept, Pieces::all(), by.0);
            gone.inspect_err(|_| movement.reopen(locked, &[], false))?;
            Ok(movement.end_leaving(locked))
        })
    }

    /// Resumes a pool in its owner's name or by its own.
    pub(crate) fn resume(&self, pool: PoolId, by: By) -> Result<u64, Error> {
        let movement = self.change(|locked| {
            // One that sleeps is its region's to wake, also where a pool of graphs owns it.
            locked.must_be_kept_by(pool, None, by.0)?;
            locked.state.must_be_owned_by(pool, by)?;
            let missing = locked.state.pools.missing(pool);
            Ok(Movement::of_pool(self, (pool, locked.state), by, missing))
        })?;
        movement.come(&mut NothingKept)
    }

    /// What a call that refuses a pool fails with.
    pub(crate) fn refuse(&self, pool: PoolId, call: &'static str, why: PoolRefusal) -> Error {
        Error::Pool { call, pool: Box::new(self.label(pool)), why }
    }

    /// A pool for messages.
    pub(crate) fn label(&self, pool: PoolId) -> PoolLabel {
        self.lock().map_or(pool.into(), |state| state.pools.label(pool))
    }

    /// Who keeps what a pool holds that sleeps with its region, or a part of which does, by number.
    pub(crate) fn keeper_of(&self, pool: PoolId) -> Option<u64> {
        // A poisoned engine brings nothing back.
        self.lock().ok()?.pools.keeper_of(pool)
    }

    /// What a pool holds, and what it gave back to get it again, in bytes.
    pub(crate) fn pool_memory(&self, pool: PoolId) -> Option<(u64, u64)> {
        let state = self.lock().ok()?;
        state.pools.get(pool)?;
        Some((state.pools.reserved(pool), state.pools.missing(pool)))
    }

    /// Shuts pools, all of them or none: they are asleep from now on, and so are the regions `tags`. Their memory is as
    /// it was, and nothing of it goes, until [`Movement::leave`]. Returns with that what live blocks and graphs hold of
    /// those pools all of whose memory is there. `None`, and nothing has changed, where another pool of the regions has
    /// memory that is not asleep. After an error ([`HostCalls::suspend_discarding_all`] names them) nothing has
    /// changed.
    ///
    /// All work that uses the pools must have completed.
    pub(crate) fn shut_pools<'a>(
        &'a self,
        pools: &[PoolId],
        tags: &[Arc<str>],
        (by, call): (u64, &'static str),
    ) -> Result<Option<ShutPools<'a, D>>, Error> {
        self.change(|locked| {
            let all = &locked.state.pools;
            let other = |(tag, pool): &(&Arc<str>, PoolId)| {
                tags.contains(tag) && !pools.contains(pool) && all.reserved(*pool) > 0
            };
            if all.tagged().filter(other).any(|(_, pool)| !all.is_shut(pool)) {
                return Ok(None);
            }
            let mut going = Vec::with_capacity(pools.len());
            for &pool in pools {
                // One may have gone after its region was looked up.
                let known = locked.state.pools.get(pool).is_some();
                if known && locked.may_be_suspended(pool, Loss::Kept(by), call)? {
                    going.push(pool);
                }
            }
            let mut held = Vec::with_capacity(going.len());
            for &pool in &going {
                if !locked.state.pools.is_suspended(pool) {
                    let runs = locked.state.held_runs(pool);
                    held.push(Held { pool: locked.state.pools.label(pool), runs });
                }
                locked.shut(pool);
                locked.state.pools.set_keeper(pool, Some(by));
                locked.state.pools.set_moving(pool, true);
            }
            let awake = |tag: &&Arc<str>| !locked.state.pools.is_asleep(tag);
            let turned: Vec<Arc<str>> = tags.iter().filter(awake).cloned().collect();
            locked.set_asleep(&turned, by, true);
            let bytes = going.iter().map(|&pool| locked.state.pools.reserved(pool)).sum();
            let tags = tags.to_vec();
            let (by, pools, _shown) = (Some(by), going, self.range_of_regions(call, &tags));
            let movement = Movement { engine: self, call, by, pools, tags, turned, bytes, _shown };
            Ok(Some((movement, held)))
        })
    }

    /// Has those of the pools come back that sleep: their memory comes with [`Movement::come`]. Refuses with
    /// [`PoolRefusal::Asleep`] where another keeps what they hold; then nothing has changed.
    pub(crate) fn wake_pools<'a>(
        &'a self,
        pools: &[PoolId],
        tags: Vec<Arc<str>>,
        (by, call): (u64, &'static str),
    ) -> Result<Movement<'a, D>, Error> {
        self.change(|locked| {
            let mut coming = Vec::with_capacity(pools.len());
            for &pool in pools {
                locked.must_be_kept_by(pool, Some(by), call)?;
                if locked.state.pools.is_shut(pool) {
                    coming.push(pool);
                }
            }
            for &pool in &coming {
                locked.state.pools.set_moving(pool, true);
            }
            let bytes = locked.missing_of(&coming);
            let (by, pools, turned) = (Some(by), coming, Vec::new());
            let _shown = self.range_of_regions(call, &tags);
            Ok(Movement { engine: self, call, by, pools, tags, turned, bytes, _shown })
        })
    }

    /// Shows a profiler how long a call takes to move regions.
    fn range_of_regions(&self, call: &'static str, tags: &[Arc<str>]) -> Option<Range> {
        let regions = (!tags.is_empty()).then_some(tags)?;
        self.range(|| format!("{call} of regions {}", regions.join(", ")))
    }

    /// Ends the movement of pools that were moving when what kept their contents ended: no copies are under way.
    pub(crate) fn end_movements(&self, by: u64) {
        // A poisoned engine lets nothing go.
        let _ = self.alter(|locked| {
            let mut kept = locked.state.pools.ids();
            kept.retain(|&it| locked.state.pools.keeper_of(it) == Some(by));
            locked.end_movement(&kept);
        });
    }

    /// Notes that regions sleep, or sleep no more. With that, empty pools of these regions, and pools that are
    /// created while they sleep, are marked asleep or awake too.
    pub(crate) fn set_asleep(&self, tags: &[Arc<str>], by: u64, asleep: bool) -> Result<(), Error> {
        self.lock().map(|mut state| self.with(&mut state).set_asleep(tags, by, asleep))
    }

    /// Forgets that regions without pools sleep, as far as who keeps what they held has no use for that.
    pub(crate) fn keep_asleep(&self, by: u64, wanted: impl Fn(&str) -> bool) {
        // A poisoned engine wakes none.
        let _ = self.lock().map(|mut state| state.pools.keep_asleep(by, wanted));
    }

    /// Whether a region sleeps by [`Engine::set_asleep`]; none of a poisoned engine.
    pub(crate) fn is_region_asleep(&self, tag: &str) -> bool {
        self.lock().is_ok_and(|state| state.pools.is_asleep(tag))
    }

    /// Compacts a pool in its owner's name or by its own.
    pub(crate) fn compact(&self, pool: PoolId, by: By) -> Result<u64, Error> {
        self.change(|locked| {
            locked.state.must_be_owned_by(pool, by)?;
            let _shown = locked.state.range_of(pool, |pool| format!("{} of {pool}", by.0));
            let went = locked.compact_pool(pool, by.0)?;
            locked.state.say_of(pool, Level::Info, |pool| {
                format!("{pool} is compacted: {} went back", Size(went))
            });
            Ok(went)
        })
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// Gives all physical memory of a pool back to the driver and keeps its addresses, blocks and graphs, until
    /// [`HostCalls::resume_pool`] maps memory there again. Returns how many bytes went; 0 where the pool is suspended
    /// already. **Everything that the memory held is lost.** The call waits for nothing, and costs two calls of the
    /// driver for each piece of memory.
    ///
    /// **The host answers** that no work on live blocks of the pool, and no launch of its graphs, runs or is submitted
    /// before the pool is resumed: the engine sees neither. Work on freed blocks must have completed as far as the
    /// engine can tell; for a stream that belongs to another thread, that thread calls [`Engine::mark_stream`] before.
    ///
    /// Until the pool is resumed, allocations from it and captures into it fail with [`PoolRefusal::Suspended`]. Its
    /// blocks can still be freed and recorded for streams, its graphs released, and the pool destroyed.
    ///
    /// Live blocks that belong to a graph do not matter, since a launch of the graph writes them anew. Where other
    /// blocks are live the pool is not suspended; [`HostCalls::suspend_discarding_all`] suspends it all the same.
    ///
    /// # Errors
    /// [`PoolRefusal::Owned`] for a [`graphs::Pool`](crate::graphs::Pool), whose own call waits for its graphs and then
    /// refuses launches; [`PoolRefusal::HasBlocks`]; [`PoolRefusal::Busy`]; [`PoolRefusal::CannotSuspend`];
    /// [`PoolRefusal::Exported`]; [`Error::Unknown`]. After an error of the driver's, memory that had gone by then is
    /// gone; if there was any, the pool is suspended ([`HostCalls::is_suspended`]), and a second call goes on with the
    /// rest. A pool that is short of a part ([`HostCalls::is_short`]) is refused too while it has live blocks of no
    /// graph.
    pub fn suspend_discarding_outputs(&self, pool: PoolId) -> Result<u64, Error> {
        self.0.suspend(pool, false, ("suspend_discarding_outputs", false))
    }

    /// Suspends a pool as [`HostCalls::suspend_discarding_outputs`] does, also where live blocks belong to no graph.
    /// They stay live at the same addresses, and their contents are undefined once the pool is resumed.
    ///
    /// # Errors
    /// Those of [`HostCalls::suspend_discarding_outputs`]; [`PoolRefusal::HasBlocks`] only for blocks that other pools
    /// have in this pool's memory.
    pub fn suspend_discarding_all(&self, pool: PoolId) -> Result<u64, Error> {
        self.0.suspend(pool, true, ("suspend_discarding_all", false))
    }

    /// Maps memory again wherever a suspended pool, or a pool that is short of a part, had some, at the cost of three
    /// calls of the driver for each piece. Returns how many bytes came back, 0 for any other pool. **Their contents are
    /// undefined.**
    ///
    /// Where memory is short, or a limit is reached, free memory of other pools goes back to the driver first, and at
    /// last the host waits for the streams, as [`Engine::allocate`] does outside captures.
    ///
    /// # Errors
    /// [`PoolRefusal::Owned`] for a [`graphs::Pool`](crate::graphs::Pool), which has a call of its own;
    /// [`PoolRefusal::Asleep`]; [`Error::OutOfMemory`], [`Error::Unknown`]; the driver's. Then the pool stays
    /// suspended, and memory that had come is given back. A pool that was only short of a part stays short and keeps
    /// all that it has; a second call goes on from there.
    pub fn resume_pool(&self, pool: PoolId) -> Result<u64, Error> {
        self.0.resume(pool, ("resume_pool", false))
    }

    /// The pools that belong to regions ([`PoolConfig::tag`](super::PoolConfig::tag)), each with the tag of its
    /// region; none of a poisoned engine.
    pub fn tagged_pools(&self) -> Vec<(Arc<str>, PoolId)> {
        let tagged = |state: MutexGuard<'_, State>| {
            state.pools.tagged().map(|(tag, pool)| (tag.clone(), pool)).collect()
        };
        self.0.lock().map(tagged).unwrap_or_default()
    }

    /// How many bytes of a pool [`HostCalls::compact_pool`] would give back to the driver. A pool with planned captures
    /// comes to hold more than its graphs and live blocks need, in pieces whose sizes fit graphs or outputs that are
    /// gone. 0 for a pool without planned captures. Freed blocks that work may still use count as live ones.
    ///
    /// Costs the search for new pieces, which takes time proportional to graphs × pieces × log(pieces). Asks the
    /// streams how far they are.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`PoolRefusal::Suspended`].
    pub fn excess_bytes(&self, pool: PoolId) -> Result<u64, Error> {
        self.0.change(|locked| {
            locked.state.must_be_awake(pool, EXCESS)?;
            locked.free_completed(Some(pool));
            let unit = unit(locked.driver.memory_support());
            let planned = locked.state.pool(pool, EXCESS)?.planned_heap();
            Ok(planned.map_or(0, |heap| heap.exchange(unit).excess()))
        })
    }

    /// Lets the graphs of a pool whose captures were planned share as much memory as they can by now. Returns how many
    /// bytes went back to the driver. Addresses stay, and so do contents of live blocks; all other contents are lost.
    /// The call waits for nothing.
    ///
    /// **The host answers** that no graph of the pool is running, or is launched before this has returned; work on live
    /// blocks may go on. Work on freed blocks must have completed, as for [`HostCalls::suspend_discarding_outputs`].
    /// Graphs of captures that were under way beside each other keep their memory as it is.
    ///
    /// The lost contents include outputs that were freed, and what only the run of a capture wrote to blocks that it
    /// freed. A graph that reads a freed output finds it again once the graph that writes it has been launched, if the
    /// pool's graphs are launched in the order of their captures, as before. A graph none of whose outputs were freed
    /// overwrites no output of another graph that it did not overwrite before. The checker judges what is to change
    /// before anything does.
    ///
    /// The search for new pieces is not exact: another call may find more. Where nothing would go back nothing is
    /// touched. Else the call costs one unmapping for each old mapping and two calls of the driver for each new one, of
    /// which there may be more.
    ///
    /// # Errors
    /// [`PoolRefusal::Busy`] while a capture uses the pool, or freed blocks of it may be in use; [`PoolRefusal::Owned`]
    /// for a [`graphs::Pool`](crate::graphs::Pool), whose own call waits for its graphs; [`PoolRefusal::Suspended`];
    /// [`PoolRefusal::CompactionRefused`]; [`Error::Unknown`]. After an error of the driver's either all memory is
    /// mapped, or the pool is short of a part ([`HostCalls::is_short`]): then live blocks hold what they held, no graph
    /// of the pool may be launched, and [`HostCalls::resume_pool`] goes on.
    pub fn compact_pool(&self, pool: PoolId) -> Result<u64, Error> {
        self.0.compact(pool, ("compact_pool", false))
    }

    /// Whether a pool is suspended or short of a part of its memory. In both cases none of it is handed out before
    /// [`HostCalls::resume_pool`].
    pub fn is_suspended(&self, pool: PoolId) -> Result<bool, Error> {
        let mut state = self.0.lock()?;
        state.pool(pool, "is_suspended")?;
        Ok(state.pools.is_shut(pool))
    }

    /// Fails for a pool that is suspended, asleep or short of a part of its memory, with an error that names `call`:
    /// for hosts that launch graphs by themselves.
    ///
    /// # Errors
    /// [`PoolRefusal::Suspended`], [`Error::Unknown`].
    pub fn require_awake(&self, pool: PoolId, call: &'static str) -> Result<(), Error> {
        self.0.lock()?.must_be_awake(pool, call)
    }

    /// Whether a pool is short of a part of its memory, because the driver refused to give back memory that had been
    /// exchanged. Live blocks of such a pool keep what they hold, unlike those of a suspended pool.
    pub fn is_short(&self, pool: PoolId) -> Result<bool, Error> {
        let mut state = self.0.lock()?;
        state.pool(pool, "is_short")?;
        let asleep = state.pools.keeper_of(pool).is_some();
        Ok(state.pools.is_shut(pool) && !state.pools.is_suspended(pool) && !asleep)
    }
}

impl State {
    /// Refuses a pool that is unknown or suspended.
    #[inline]
    pub(super) fn must_be_awake(&mut self, pool: PoolId, call: &'static str) -> Result<(), Error> {
        match self.pools.is_open(pool) {
            Some(true) => Ok(()),
            Some(false) => Err(self.suspended(pool, call)),
            None => self.pool(pool, call).map(drop),
        }
    }

    /// What is said of a pool that is suspended, asleep or short of a part.
    #[cold]
    fn suspended(&self, pool: PoolId, call: &'static str) -> Error {
        let owned = self.pools.get(pool).is_some_and(|row| row.is_owned());
        let remedy = match self.pools.keeper_of(pool) {
            Some(_) => "Regions::wake",
            None if owned => "Pool::resume",
            None => "HostCalls::resume_pool",
        };
        self.pools.refuse(pool, call, PoolRefusal::Suspended { remedy })
    }

    /// Refuses a pool whose owner, and no other, is to make the call: it would go on to launch graphs.
    fn must_be_owned_by(&mut self, pool: PoolId, by: By) -> Result<(), Error> {
        if self.pool(pool, by.0)?.is_owned() && !by.1 {
            return Err(self.pools.refuse(pool, by.0, PoolRefusal::Owned));
        }
        Ok(())
    }

    /// How much of what a pool was given back may still be in use: its ranges, and all that was free when it was restored.
    pub(super) fn unsettled(&self, pool: PoolId) -> usize {
        let heaps = self.pools.get(pool).map(PoolRow::all_heaps).unwrap_or_default();
        let ranges = |heap: u32| with_heap!(self.pools, heap, |heap| heap.unsettled());
        heaps.into_iter().map(ranges).sum::<usize>() + usize::from(self.is_settling(pool))
    }

    /// Where a pool's live blocks lie that have memory, and what its graphs keep between launches, such as outputs that
    /// were freed and that other graphs may read: addresses and sizes in bytes, neighbours together, ascending and apart.
    fn held_runs(&self, pool: PoolId) -> Vec<(u64, u64)> {
        let mut live = Vec::new();
        for heap in self.pools.heaps_of(Some(pool)) {
            live.extend(self.pools.heap(heap).kept_places());
        }
        for heap in self.pools.planned_heaps(Some(pool)) {
            live.extend(self.pools.planned(heap).kept_places());
        }
        let sites = self.blocks.of(pool).map(|block| block.site);
        let unplanned = sites.filter(|site| self.pools.find_heap(site.heap).is_some());
        live.extend(unplanned.map(|site| self.pools.place(site)));
        live.sort_unstable();
        live.dedup_by(|(next, more), (start, bytes)| {
            let touches = *next <= *start + *bytes;
            if touches {
                *bytes = (*bytes).max(*next + *more - *start);
            }
            touches
        });
        live
    }
}

impl<D: Driver> Locked<'_, D> {
    /// See [`Engine::set_asleep`].
    fn set_asleep(&mut self, tags: &[Arc<str>], by: u64, asleep: bool) {
        tags.iter().for_each(|tag| self.state.pools.set_asleep(tag, by, asleep));
        let of_them = |(tag, pool)| tags.contains(tag).then_some(pool);
        let pools: Vec<PoolId> = self.state.pools.tagged().filter_map(of_them).collect();
        for pool in pools {
            let captures = self.state.pools.get(pool).map_or(0, PoolRow::captures);
            let is_shut = self.state.pools.is_shut(pool);
            if asleep && !is_shut && captures == 0 && self.state.pools.reserved(pool) == 0 {
                self.state.pools.set_presence(pool, |it| *it = Presence::Suspended);
                self.state.pools.set_keeper(pool, Some(by));
            } else if !asleep
                && self.state.pools.keeper_of(pool) == Some(by)
                && !self.state.pools.is_moving(pool)
            {
                // Memory that the driver has not taken back, and that is not mapped, keeps it shut.
                self.reopen(pool, false);
            }
        }
    }

    /// Opens a pool that is shut if all of its memory is there, and has it asleep no longer then. What one with memory
    /// held that was suspended is elsewhere, even if a call that failed has left all its memory, unless it `came`.
    fn reopen(&mut self, pool: PoolId, came: bool) {
        let all = &self.state.pools;
        let there = came || !all.is_suspended(pool) || all.reserved(pool) == 0;
        let Some(row) = all.get(pool).filter(|_| there && all.is_shut(pool)) else { return };
        let heaps = row.all_heaps();
        if heaps.iter().any(|&heap| !with_heap!(self.state.pools, heap, |heap| heap.is_whole())) {
            return;
        }
        self.state.pools.set_presence(pool, |it| *it = Presence::Whole);
        self.state.pools.set_keeper(pool, None);
        // To the history the blocks are new.
        let came = [EventKind::Allocate, EventKind::Free];
        self.record_occupants(&heaps, &came[..1], &came);
    }

    /// Enters into the history what becomes of the live blocks in heaps, and of those that wait there.
    fn record_occupants(&mut self, heaps: &[u32], live: &[EventKind], waiting: &[EventKind]) {
        if self.state.history.is_none() {
            return;
        }
        let guards: Vec<_> = self.caches.used().collect();
        let caches = guards.iter().map(|cache| &**cache);
        let all = self.state.occupants(caches, |heap| heaps.contains(&heap));
        drop(guards);
        for &heap in heaps {
            let of_heap = all.iter().filter(|((of, _), _)| *of == heap);
            let occupants: BTreeMap<(u64, u64), _> = of_heap
                .map(|((_, range), occupant)| {
                    (with_heap!(self.state.pools, heap, |heap| heap.extent(*range)), occupant)
                })
                .collect();
            for (place, (state, asked)) in occupants {
                let actions = match state {
                    BlockState::ActiveAllocated => live,
                    BlockState::ActivePendingFree => waiting,
                    BlockState::Inactive => &[],
                };
                for &action in actions {
                    self.state.record_block(action, (heap, place), asked.clone());
                }
            }
        }
    }

    /// Refuses a pool that sleeps and that another keeps.
    fn must_be_kept_by(
        &self,
        pool: PoolId,
        by: Option<u64>,
        call: &'static str,
    ) -> Result<(), Error> {
        let keeper = self.state.pools.keeper_of(pool);
        if keeper.is_some() && keeper != by {
            return Err(self.state.pools.refuse(pool, call, PoolRefusal::Asleep));
        }
        Ok(())
    }

    /// Whether a pool has memory that can go; refuses one whose memory is in use.
    fn may_be_suspended(
        &mut self,
        pool: PoolId,
        loss: Loss,
        call: &'static str,
    ) -> Result<bool, Error> {
        // What is back need not be kept.
        self.settle_loans();
        let row = self.state.pool(pool, call)?;
        let (heaps, given) = (row.all_heaps(), row.config().source.is_some());
        let mapped = self.driver.memory_support().granularity().is_some();
        if !mapped || given || !self.state.pools.heap(heaps[0]).is_mapped() {
            return Err(self.state.pools.refuse(pool, call, PoolRefusal::CannotSuspend));
        }
        let exported = |&heap: &u32| with_heap!(self.state.pools, heap, |heap| heap.has_exported());
        if heaps.iter().any(exported) {
            return Err(self.state.pools.refuse(pool, call, PoolRefusal::Exported));
        }
        let by = match loss {
            Loss::Kept(by) => Some(by),
            _ => None,
        };
        self.must_be_kept_by(pool, by, call)?;
        let known = self.state.pools.is_suspended(pool);
        if known && self.state.pools.reserved(pool) == 0 {
            return Ok(false);
        }
        if by.is_some() && !known && self.state.pools.keeper_of(pool).is_none() {
            // Of one that is short of a part not all can be read. One that was shut to sleep has all of it.
            self.state.must_be_awake(pool, call)?;
        }
        self.must_be_quiet(pool, call)?;
        // After stream caches hand nothing of it out any more.
        let blocks = match loss {
            _ if known => Vec::new(),
            Loss::Refused => self.live_of(pool, |block| !matches!(block.origin, Origin::Graph)),
            // Their owners know nothing of this pool.
            Loss::Accepted | Loss::Kept(_) => {
                self.live_of(pool, |block| block.tenure.asked_of().is_some())
            }
        };
        if !blocks.is_empty() {
            let owned = self.state.pools.get(pool).is_some_and(|row| row.is_owned());
            let remedy = match loss {
                Loss::Refused if owned => Some("Pool::suspend_discarding_all"),
                Loss::Refused => Some("HostCalls::suspend_discarding_all"),
                Loss::Accepted | Loss::Kept(_) => None,
            };
            let why = PoolRefusal::HasBlocks { blocks, remedy };
            return Err(self.state.pools.refuse(pool, call, why));
        }
        Ok(true)
    }

    /// Gives a shut pool's memory back to the driver, as far as `contents` and `left` let it; says whether all has gone.
    pub(super) fn give_away(
        &mut self,
        pool: PoolId,
        contents: &mut dyn Contents,
        mut left: Pieces,
        call: &'static str,
    ) -> Result<bool, Error> {
        let heaps = self.state.pool(pool, call)?.all_heaps();
        contents.turn_to(pool);
        for &heap in &heaps {
            let gone = with_heap!(mut self.state.pools, heap, |heap| {
                heap.suspend(self.driver, contents, &mut left)
            });
            if !gone? {
                return Ok(false);
            }
        }
        self.state.pools.set_presence(pool, |it| *it = Presence::Suspended);
        Ok(true)
    }

    /// Tells of what is there already of a pool that is asleep in part: a wake that failed may have left it without its
    /// contents, and what is kept of it is whole. Of a pool that was only shut nothing else may be whole.
    fn tell_there(&mut self, pool: PoolId, contents: &mut dyn Contents) {
        let suspended = |_: &&PoolRow| self.state.pools.is_suspended(pool);
        let Some(row) = self.state.pools.get(pool).filter(suspended) else { return };
        let heaps = row.all_heaps();
        contents.turn_to(pool);
        for &heap in &heaps {
            with_heap!(self.state.pools, heap, |heap| heap.tell_there(contents));
        }
    }

    /// Ends the movement of those of the pools whose memory is copied: what is not used any more goes.
    fn end_movement(&mut self, pools: &[PoolId]) {
        for &pool in pools {
            if self.state.pools.is_moving(pool) {
                self.state.pools.set_moving(pool, false);
                self.release_planned(Some(pool));
            }
        }
        self.destroy_leaving(usize::MAX);
    }

    /// What the driver has of pools, in bytes.
    fn missing_of(&self, pools: &[PoolId]) -> u64 {
        pools.iter().map(|&pool| self.state.pools.missing(pool)).sum()
    }

    fn compact_pool(&mut self, pool: PoolId, call: &'static str) -> Result<u64, Error> {
        self.state.must_be_awake(pool, call)?;
        let Some(heap) = self.state.pool(pool, call)?.planned() else { return Ok(0) };
        self.must_be_quiet(pool, call)?;
        let unit = unit(self.driver.memory_support());
        let planned = self.state.pools.planned_mut(heap);
        let before = planned.reserved();
        planned.release_unused(self.driver, true);
        let exchange = planned.exchange(unit);
        if exchange.saves() > 0 {
            if let Err(violation) = check::check_compaction(&planned.record(&exchange, unit)) {
                let why = PoolRefusal::CompactionRefused(Box::new(violation));
                return Err(self.state.pools.refuse(pool, call, why));
            }
            let done = planned.compact(self.driver, &exchange);
            // What failed once may not fail again; the error is told in any case.
            let whole = planned.is_whole()
                || planned.resume(self.driver, &mut NothingKept, &mut Pieces::all()).is_ok();
            if !whole {
                self.shut(pool);
            }
            done?;
        }
        Ok(before - self.state.pools.planned(heap).reserved())
    }

    /// Refuses a pool that a capture uses, or that has freed memory which work may still use;
    /// first takes back what stream caches have and asks every stream how far it is.
    fn must_be_quiet(&mut self, pool: PoolId, call: &'static str) -> Result<(), Error> {
        /// How often events are asked about: one that is recorded on an idle stream takes the device a moment.
        const LOOKS: usize = 256;
        // First of all: otherwise a stream cache could hand out again what comes back to it meanwhile.
        self.bar(pool);
        let (mut captures, mut waiting) = (0, 0);
        for _ in 0..LOOKS {
            self.free_completed(Some(pool));
            captures = self.state.pool(pool, call)?.captures();
            waiting = self.state.unsettled(pool);
            if captures > 0 || waiting == 0 {
                break;
            }
        }
        if captures + waiting > 0 {
            let why = PoolRefusal::Busy { captures, waiting };
            return Err(self.state.pools.refuse(pool, call, why));
        }
        Ok(())
    }

    /// Shuts a pool that has lost a part of its memory; [`HostCalls::resume_pool`] gets it back.
    pub(super) fn shut(&mut self, pool: PoolId) {
        let Some(row) = self.state.pools.get(pool) else { return };
        let heaps = row.all_heaps();
        self.bar(pool);
        if !self.state.pools.is_shut(pool) {
            // To the history the blocks are gone, with all that they held.
            let (live, waiting) = ([EventKind::FreeCompleted], [EventKind::Completed]);
            self.record_occupants(&heaps, &live, &waiting);
        }
        self.state.pools.set_presence(pool, Presence::shut);
    }

    /// Gets memory for pools that are shut, as far as `left` lets it. `None` where the call is to be made again.
    fn get_back(
        &mut self,
        pools: &[PoolId],
        contents: &mut dyn Contents,
        mut left: Pieces,
        call: &'static str,
    ) -> Result<Option<Came>, Error> {
        let mut shut: Vec<(PoolId, _)> = Vec::with_capacity(pools.len());
        for &pool in pools {
            let heaps = self.state.pool(pool, call)?.all_heaps();
            shut.extend(self.state.pools.is_shut(pool).then_some((pool, heaps)));
        }
        let Some(&(first, _)) = shut.first() else { return Ok(Some(Came::All)) };
        let need = (self.missing_of(pools), first, true);
        let result = self.oom_ladder(need, |locked, attempt| {
            // Each pool has room for what it gave back.
            let fits = locked.missing_of(pools) <= locked.state.room_of_all();
            if attempt != Remedy::Grow || !fits {
                return Ok(None);
            }
            for (pool, heaps) in &shut {
                contents.turn_to(*pool);
                for &heap in heaps {
                    let state = &mut *locked.state;
                    let came = with_heap!(mut state.pools, heap, |heap| {
                        heap.resume(self.driver, contents, &mut left)
                    });
                    if !came? {
                        return Ok(Some(Came::Part));
                    }
                }
            }
            Ok(Some(Came::All))
        });
        match result {
            Ok(Some(came)) => Ok(Some(came)),
            Err(error) if !error.is_out_of_memory() => Err(error.into()),
            Ok(None) if self.errands.is_postponed() => Ok(None),
            _ => Ok(Some(Came::Short(first))),
        }
    }
}

/// Pools that were shut, and what they hold.
type ShutPools<'a, D> = (Movement<'a, D>, Vec<Held>);

/// What live blocks and graphs of a pool hold: each run an address and a size in bytes, ascending and apart.
#[derive(Debug)]
pub(crate) struct Held {
    pool: PoolLabel,
    runs: Vec<(u64, u64)>,
}

impl Held {
    pub(crate) fn pool(&self) -> &PoolLabel {
        &self.pool
    }

    pub(crate) fn runs(&self) -> &[(u64, u64)] {
        &self.runs
    }
}

/// Pools that are shut while their memory goes, to the host or for good, or comes back: nothing is handed out of them,
/// but blocks of them are freed, and graphs released; none is destroyed whose contents are kept. Dropped before its end,
/// as in a panic, it leaves them so.
#[must_use = "the pools stay shut"]
pub(crate) struct Movement<'a, D: Driver> {
    engine: &'a Engine<D>,
    call: &'static str,
    /// Who keeps what they hold, by number; `None` where their contents are lost.
    by: Option<u64>,
    pools: Vec<PoolId>,
    /// Of the regions that sleep or wake; of a pool by itself none does.
    tags: Vec<Arc<str>>,
    /// Of the regions, those that were awake.
    turned: Vec<Arc<str>>,
    /// What they held when they were shut, or what was away when they began to wake, in bytes.
    bytes: u64,
    /// What a profiler shows of it.
    _shown: Option<Range>,
}

impl<'a, D: Driver> Movement<'a, D> {
    /// A pool by itself, whose contents are lost.
    fn of_pool(
        engine: &'a Engine<D>,
        (pool, state): (PoolId, &State),
        (call, _): By,
        bytes: u64,
    ) -> Self {
        let _shown = state.range_of(pool, |pool| format!("{call} of {pool}"));
        let (pools, tags, turned) = (vec![pool], Vec::new(), Vec::new());
        Self { engine, call, by: None, pools, tags, turned, bytes, _shown }
    }

    /// Says that a pool by itself has moved, or that regions have.
    fn say(&self, state: &mut State, (of_pool, of_regions, how): (&str, &str, &str), bytes: u64) {
        let State { messages, pools, .. } = state;
        messages.say(Level::Info, || {
            let who = match &self.tags[..] {
                [] => format!("{} {of_pool}", pools.label(self.pools[0])),
                tags => format!("regions {} {of_regions}", tags.join(", ")),
            };
            format!("{who}: {} {how} back", Size(bytes))
        });
    }

    /// Opens the pools again whose memory is whole and holds what it held, with their regions: they do not sleep. Copies
    /// are waited for; where they cannot be, they may be under way, and the pools stay shut: they can be woken, or put to
    /// sleep again.
    pub(crate) fn cancel(self, contents: &mut dyn Contents) {
        if contents.finish().is_err() {
            return;
        }
        // A poisoned engine opens nothing.
        let _ = self.engine.alter(|locked| {
            self.reopen(locked, &self.turned, false);
        });
    }

    /// Gives the memory of the pools back to the driver, as soon as `contents` has what is to be kept, some pieces in
    /// each hold of the engine's lock. Returns how many bytes went. After the driver's error what had gone by then is
    /// gone: pools of which anything has are asleep in part, and the others are open.
    pub(crate) fn leave(self, contents: &mut dyn Contents) -> Result<u64, Error> {
        for &pool in &self.pools {
            if let Err(error) = self.give_away(pool, contents) {
                self.cancel(contents);
                return Err(error);
            }
        }
        self.engine.change(|locked| Ok(self.end_leaving(locked)))
    }

    /// Says that all has gone, and returns how many bytes went.
    fn end_leaving(&self, locked: &mut Locked<'_, D>) -> u64 {
        let reserved = |&pool: &PoolId| locked.state.pools.reserved(pool);
        let left: u64 = self.pools.iter().map(reserved).sum();
        let went = self.bytes.saturating_sub(left);
        locked.end_movement(&self.pools);
        self.say(locked.state, ("is suspended", "sleep", "went"), went);
        went
    }

    /// Brings the memory of the pools back, and what their live blocks held, some pieces in each hold of the engine's
    /// lock: of all, or of none. Returns how many bytes came; fails as [`HostCalls::resume_pool`] does.
    pub(crate) fn come(self, contents: &mut dyn Contents) -> Result<u64, Error> {
        let came = self.get_back(contents);
        let finished = contents.finish();
        let failed = match (came, finished) {
            (Ok(None), Ok(())) => {
                // In one step: a region is never called asleep whose pools may be launched.
                let open = self.engine.change(|locked| {
                    self.must_be_kept(locked)?;
                    self.reopen(locked, &self.tags, true);
                    let open = !self.pools.iter().any(|&pool| locked.state.pools.is_shut(pool));
                    if open {
                        self.say(locked.state, ("is resumed", "wake", "came"), self.bytes);
                    }
                    Ok(open)
                })?;
                // Another call for a pool by itself may have failed, and have given away what this one has got.
                return if open { Ok(self.bytes) } else { self.come(contents) };
            }
            // Copies may be under way: the pools stay as they are.
            (Ok(_), Err(error)) => return Err(error.into()),
            (Err(error), Err(_)) => return Err(error),
            (Ok(Some(first)), Ok(())) => Ok(first),
            (Err(error), Ok(())) => Err(error),
        };
        for &pool in &self.pools {
            // Each hold looks: what a pool holds of which nothing has gone is nowhere else, and another call may have
            // opened a pool by itself. What cannot go now stays as it is, and goes or is used at the next call.
            let give = |locked: &mut Locked<'_, D>| {
                self.must_be_kept(locked)?;
                match locked.state.pools.is_suspended(pool) {
                    true => locked.give_away(pool, &mut NothingKept, PIECES, self.call),
                    false => Ok(true),
                }
            };
            while self.engine.change(give).is_ok_and(|gone| !gone) {
                self.engine.state.let_others();
            }
        }
        let failed = self.engine.change(|locked| {
            self.must_be_kept(locked)?;
            locked.end_movement(&self.pools);
            failed.map(|first| {
                let need = (locked.missing_of(&self.pools), first, true);
                Error::OutOfMemory(locked.report_oom(Purpose::Resume, need, None))
            })
        });
        let error = failed.unwrap_or_else(|error| error);
        self.engine.give_up(&error);
        Err(error)
    }

    /// Opens the pools again whose memory is whole, and holds what it held or what `came`, with regions: they do not sleep.
    fn reopen(&self, locked: &mut Locked<'_, D>, tags: &[Arc<str>], came: bool) {
        self.pools.iter().for_each(|&pool| locked.reopen(pool, came));
        if let Some(by) = self.by {
            locked.set_asleep(tags, by, false);
        }
        locked.end_movement(&self.pools);
    }

    fn give_away(&self, pool: PoolId, contents: &mut dyn Contents) -> Result<(), Error> {
        while !self.engine.change(|locked| locked.give_away(pool, contents, PIECES, self.call))? {
            contents.advance()?;
            self.engine.state.let_others();
        }
        Ok(())
    }

    /// Refuses pools that have gone to sleep with their region since a call for one by itself has begun: they are not its
    /// any more.
    fn must_be_kept(&self, locked: &Locked<'_, D>) -> Result<(), Error> {
        self.pools.iter().try_for_each(|&pool| locked.must_be_kept_by(pool, self.by, self.call))
    }

    /// Gets the pools' memory; returns the first of them that lacks some where there is none.
    fn get_back(&self, contents: &mut dyn Contents) -> Result<Option<PoolId>, Error> {
        self.engine.alter(|locked| {
            self.pools.iter().for_each(|&pool| locked.tell_there(pool, contents));
        })?;
        contents.advance()?;
        loop {
            let came = self.engine.repeat(|locked| {
                self.must_be_kept(locked)?;
                // A pool by itself comes in one hold: another call could open it between two.
                let left = if self.by.is_some() { PIECES } else { Pieces::all() };
                locked.get_back(&self.pools, contents, left, self.call)
            })?;
            contents.advance()?;
            match came {
                Came::All => return Ok(None),
                Came::Short(first) => return Ok(Some(first)),
                Came::Part => self.engine.state.let_others(),
            }
        }
    }
}
