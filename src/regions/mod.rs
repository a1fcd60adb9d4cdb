//! Memory by tag that sleeps and wakes.
//!
//! A *region* is all pools that were made with one tag ([`PoolConfig::tag`](crate::PoolConfig::tag)): weights, key-value blocks,
//! the graphs of one model. [`Regions::sleep`] gives the device memory of regions back to the driver and
//! [`Regions::wake`] brings it again, at the same addresses: blocks, views and pointers stay valid, and graphs
//! replay without a recapture. What live blocks hold meanwhile,
//! and outputs of graphs that were freed, is the region's choice ([`Backup`]).
//!
//! ```
//! use std::sync::Arc;
//! use regraph::driver::HostApi;
//! use regraph::regions::{Backup, Regions};
//! use regraph::{Config, Engine, Error, Pool, PoolConfig};
//! use regraph_sim::{SimConfig, SimDriver};
//!
//! # fn main() -> Result<(), Error> {
//! let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
//! let regions = Regions::new(&engine);
//! regions.set_backup("cache", Backup::None); // "weights" are kept on the host
//! let weights = Pool::new(&engine, PoolConfig::default().tag("weights"));
//! let cache = Pool::new(&engine, PoolConfig::default().tag("cache"));
//! let stream = engine.driver().create_stream()?;
//! let (layer, keys) = (weights.allocate(64 << 20, stream)?, cache.allocate(256 << 20, stream)?);
//! assert_eq!(regions.sleep(None)?, 320 << 20);
//! // another model has the device
//! regions.wake(Some(&["weights"]))?; // the layer is as it was
//! regions.wake(Some(&["cache"]))?; // what the keys hold is anything
//! # drop((layer, keys));
//! # Ok(())
//! # }
//! ```
//!
//! Contents are read to page-locked memory of the host by one stream, in pieces, while the memory of
//! pieces that have been read goes; waking writes each piece as soon as it is mapped. That memory stays
//! page-locked for the next sleep ([`Regions::free_host`] gives it back), since locking pages takes longer than
//! copying them.

mod host;
mod kept;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::driver::{HostPlace, Transfer};
use crate::engine::{Engine, PoolId};
use crate::error::{Error, PoolRefusal, Unknown};
use crate::graphs::{hold_launches, owned, resume_launches};
use crate::logging::tell_later;
use crate::sync::{Mutex, Rank};
use host::{give_back, HostMemory};
use kept::{HostCopies, Moving, PoolContents};

/// What becomes of what a region's live blocks hold while it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backup {
    /// It is kept in memory of the host.
    #[default]
    Host,
    /// It is lost: blocks hold anything when the region wakes. Graphs write their own blocks anew.
    None,
    /// It stays on the device: the region does not sleep.
    Device,
}

/// The regions of an engine. One object for an engine: what one has put to sleep no other can wake.
///
/// Dropping it while regions sleep loses what they hold; their pools can only be destroyed then.
pub struct Regions<D: Transfer> {
    engine: Arc<Engine<D>>,
    /// Tells those of a process apart.
    number: u64,
    state: Mutex<RegionsState<D>>,
}

struct RegionsState<D: Transfer> {
    /// Of the regions for which something was said.
    backups: BTreeMap<String, Backup>,
    /// Whether what woke stays on the host as it was, to be shown.
    retains: bool,
    copies: HostCopies<D>,
}

/// A region's figures.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Region {
    /// Its tag.
    pub tag: Arc<str>,
    /// What becomes of its contents while it sleeps.
    pub backup: Backup,
    /// Its pools.
    pub pools: Vec<PoolId>,
    /// Device memory that it holds, in bytes.
    pub awake_bytes: u64,
    /// Device memory that it had and gave back, in bytes; it asks for this again when it wakes.
    pub asleep_bytes: u64,
    /// What the host keeps of it, in bytes.
    pub host_bytes: u64,
}

impl<D: Transfer> Regions<D> {
    /// The regions of an engine: of all its pools that have a tag, whenever they were made.
    pub fn new(engine: &Arc<Engine<D>>) -> Self {
        let backups = BTreeMap::new();
        let state = RegionsState { backups, retains: false, copies: HostCopies::new() };
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self { engine: engine.clone(), number, state: Mutex::new(Rank::Regions, state) }
    }

    /// The engine whose regions these are.
    pub fn engine(&self) -> &Arc<Engine<D>> {
        &self.engine
    }

    /// Sets what becomes of what a region's live blocks hold from its next sleep on. Regions for which
    /// nothing was said have [`Backup::Host`]. It stays said while the region has no pools, until
    /// [`Regions::forget`].
    pub fn set_backup(&self, tag: &str, backup: Backup) {
        self.state.lock().backups.insert(tag.into(), backup);
    }

    /// Forgets what was said of a region; does nothing where nothing was. One that has pools has [`Backup::Host`] from now
    /// on. One that has none is unknown from now on and does not sleep: pools that are made of its tag later
    /// are awake.
    ///
    /// A region that has no pools and of which nothing was said is forgotten by itself.
    pub fn forget(&self, tag: &str) {
        let mut state = self.state.lock();
        state.backups.remove(tag);
        self.tidy(&mut state);
    }

    /// Sets whether what is kept of a pool stays on the host when the pool wakes, until a call is to put it to sleep again
    /// or it is destroyed: [`Regions::show_kept`] shows it meanwhile. Not set, as at first, the host's memory serves the next
    /// sleep.
    pub fn retain(&self, retains: bool) {
        let mut state = self.state.lock();
        state.retains = retains;
        self.tidy(&mut state);
    }

    /// Gives the device memory of regions back to the driver, of all of them with `None`, and returns
    /// how many bytes went. An empty list names none. Waits for the device first: work that was submitted before is
    /// done then. From the call until the regions are awake no work may be submitted that uses their memory;
    /// allocations from them, captures into them and launches of graphs of their
    /// [`Pool`](crate::graphs::Pool)s are refused, also where a pool had no memory or is made while its region sleeps.
    /// Blocks can be freed, and graphs released.
    ///
    /// Work of other devices that uses the regions' memory is the host's to wait for, and other processes may
    /// not have it mapped.
    ///
    /// Kept are what live blocks hold, outputs of graphs that were freed after their captures, and inputs that
    /// captures freed. What a capture both allocated and freed is not: each launch is taken to write that anew. So
    /// what only the run of the capture wrote there, as a library does that initialises its workspace by eager work
    /// meanwhile, is lost, and launches read anything.
    ///
    /// Regions that sleep stay as they are.
    ///
    /// Costs two calls of the driver for each piece of memory, one for each run of live blocks (each 32
    /// MiB of it), and a copy of what they hold, which goes on meanwhile, at some 18 us a MiB: until it is done other
    /// calls of the engine wait. Before that, pages of the host are locked where there are too few
    /// ([`Regions::reserve_host`]), at some 40 us a MiB by 16 threads and 230 by one; calls of the engine go on then,
    /// those of these regions wait.
    ///
    /// # Errors
    /// Nothing has changed, but that locked pages may stay for the next sleep, after [`Error::Unknown`],
    /// [`Error::DeviceCaptures`], [`PoolRefusal::Busy`], [`PoolRefusal::Asleep`] (by another `Regions`),
    /// [`PoolRefusal::CannotSuspend`] (memory from a source, or without virtual memory), [`PoolRefusal::Exported`]
    /// (memory that must stay), [`PoolRefusal::HasBlocks`] (which other pools have borrowed),
    /// [`Error::HostOutOfMemory`] and [`Error::HostTooSmall`], which give back what was locked, and
    /// [`Error::OrderLost`]. After one of the driver's
    /// the regions may sleep in part: sleeping goes on, waking brings all back with its contents.
    pub fn sleep(&self, tags: Option<&[&str]>) -> Result<u64, Error> {
        self.sleep_if(tags, true)
    }

    /// Like [`Regions::sleep`], but does not wait for work that was submitted. What uses live blocks of the regions
    /// must have completed; launches of graphs of their [`Pool`](crate::graphs::Pool)s, and work on freed blocks,
    /// are looked at. The host waits for the copies, for pages to be locked and for other calls of the engine and the
    /// regions, as there.
    ///
    /// # Errors
    /// As [`Regions::sleep`], and [`PoolRefusal::Runs`].
    pub fn try_sleep(&self, tags: Option<&[&str]>) -> Result<u64, Error> {
        self.sleep_if(tags, false)
    }

    fn sleep_if(&self, tags: Option<&[&str]>, wait: bool) -> Result<u64, Error> {
        let call = if wait { "sleep" } else { "try_sleep" };
        let _told = tell_later();
        let mut state = self.state.lock();
        self.tidy(&mut state);
        let mut pools = self.pools(tags, call, &state)?;
        pools.retain(|&id, _| self.engine.pool_memory(id).is_some_and(|(awake, _)| awake > 0));
        pools.retain(|_, backup| *backup != Backup::Device);
        let mut tags = state.tags(&self.engine, tags);
        tags.retain(|tag| state.backup(tag) != Backup::Device);
        if pools.is_empty() {
            self.engine.set_asleep(&tags, self.number, true)?;
            return Ok(0);
        }
        let slabs = state.copies.host().slabs();
        let went = self.sleep_pools(&mut state, (pools, tags), wait, call);
        if matches!(went, Err(Error::HostOutOfMemory { .. } | Error::HostTooSmall { .. })) {
            // What the driver refuses to take back is idle, and used by the next sleep.
            let _ = state.copies.host().free_since(self.engine.driver(), slabs);
        }
        went
    }

    fn sleep_pools(
        &self,
        state: &mut RegionsState<D>,
        (pools, tags): (BTreeMap<PoolId, Backup>, Vec<Arc<str>>),
        wait: bool,
        call: &'static str,
    ) -> Result<u64, Error> {
        let ids: Vec<PoolId> = pools.keys().copied().collect();
        state.copies.give_up(|_| false, |pool| ids.contains(&pool));
        // Before anything else is held back: locking pages takes long.
        let (mut bytes, mut last) = (0, None);
        for (&pool, &backup) in &pools {
            // What one holds that sleeps in part is on the host.
            if backup == Backup::Host && self.engine.keeper_of(pool).is_none() {
                bytes += HostMemory::needed(self.engine.held_bytes(pool));
                last = Some(pool);
            }
        }
        let locked = state.copies.host().reserve(self.engine.driver(), bytes);
        locked.map_err(|short| short.told(call, last.map(|pool| self.engine.label(pool))))?;
        let stream = state.copies.stream(self.engine.driver())?;
        let (owned, going) = owned(&self.engine, &ids);
        if let (Some(going), false) = (going, wait) {
            return Err(self.engine.refuse(going, call, PoolRefusal::Runs));
        }
        hold_launches(&owned, wait, || {
            if wait && !self.engine.wait_for_device()? {
                return Err(Error::DeviceCaptures { call });
            }
            let mut moving = Moving::new(self, (&mut state.copies, stream), pools, call);
            let went = self.engine.sleep_pools(&ids, &tags, &mut moving, call);
            self.tidy(state);
            went
        })?
    }

    /// Brings the device memory of sleeping regions back at the same addresses, of all of them with
    /// `None`, and what their live blocks held; returns how many bytes came. The host waits for
    /// the copies: any stream may use the memory then.
    ///
    /// Where memory is short what is free in other pools goes for it, as in [`Engine::allocate`].
    ///
    /// Costs three calls of the driver for each piece of memory, and the copies, which go on meanwhile, at some 18
    /// us a MiB: until they are done other calls of the engine, and of these regions, wait.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`PoolRefusal::Asleep`] (by another `Regions`), [`Error::ResumeOutOfMemory`], or
    /// the driver's. All that was asked for sleeps then, and what the host keeps is untouched: waking again, or
    /// fewer regions, goes on.
    pub fn wake(&self, tags: Option<&[&str]>) -> Result<u64, Error> {
        // When no lock is held any more: an observer may call the regions and their pools.
        let _told = tell_later();
        let mut state = self.state.lock();
        self.tidy(&mut state);
        let mut pools = self.pools(tags, "wake", &state)?;
        pools.retain(|&id, _| self.engine.keeper_of(id).is_some());
        let tags = state.tags(&self.engine, tags);
        if pools.is_empty() {
            self.engine.set_asleep(&tags, self.number, false)?;
            return Ok(0);
        }
        let ids: Vec<PoolId> = pools.keys().copied().collect();
        let stream = state.copies.stream(self.engine.driver())?;
        resume_launches(&owned(&self.engine, &ids).0, || {
            let mut moving = Moving::new(self, (&mut state.copies, stream), pools, "wake");
            let came = self.engine.wake_pools(&ids, &tags, &mut moving);
            if came.is_ok() && state.retains {
                state.copies.retain(&ids);
            }
            self.tidy(&mut state);
            came
        })?
    }

    /// Whether a region sleeps, or a part of it.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn is_asleep(&self, tag: &str) -> Result<bool, Error> {
        let pools = self.pools(Some(&[tag]), "is_asleep", &self.state.lock())?;
        Ok(self.engine.is_region_asleep(tag)
            || pools.into_keys().any(|pool| self.engine.keeper_of(pool).is_some()))
    }

    /// The figures of all regions, in the order of their tags.
    pub fn report(&self) -> Vec<Region> {
        let state = self.state.lock();
        let mut regions: BTreeMap<Arc<str>, Region> = BTreeMap::new();
        for (tag, pool) in self.engine.tagged_pools() {
            let region = regions.entry(tag.clone()).or_insert_with(|| Region {
                backup: state.backup(&tag),
                tag,
                pools: Vec::new(),
                awake_bytes: 0,
                asleep_bytes: 0,
                host_bytes: 0,
            });
            let (awake, asleep) = self.engine.pool_memory(pool).unwrap_or_default();
            region.pools.push(pool);
            region.awake_bytes += awake;
            region.asleep_bytes += asleep;
            let kept = [state.copies.kept(pool), state.copies.retained(pool)];
            region.host_bytes += kept.into_iter().flatten().map(PoolContents::bytes).sum::<u64>();
        }
        regions.into_values().collect()
    }

    /// Shows what the host keeps of `bytes` bytes at an address of a sleeping pool, part by part and in order:
    /// where a part is, and its size in bytes. It stays there until `show` returns, which may not call these
    /// regions: other threads' calls of them wait meanwhile, and its own would wait for ever. False, and nothing
    /// is shown, where not all of it is kept, or the pool is awake and nothing is retained ([`Regions::retain`]); what is
    /// retained is what lay there at the pool's latest sleep.
    ///
    /// # Errors
    /// The driver's.
    pub fn show_kept(
        &self,
        pool: PoolId,
        (address, bytes): (u64, u64),
        mut show: impl FnMut(HostPlace, u64),
    ) -> Result<bool, Error> {
        let mut state = self.state.lock();
        // One that could not go may have copies under way.
        state.copies.wait(&self.engine)?;
        let asleep = self.engine.keeper_of(pool) == Some(self.number);
        let kept = if asleep { state.copies.kept(pool) } else { state.copies.retained(pool) };
        let Some(kept) = kept else { return Ok(false) };
        let parts = kept.places(address, bytes);
        parts.iter().flatten().for_each(|&(place, bytes)| show(place, bytes));
        Ok(parts.is_some())
    }

    /// Page-locked memory of the host that is held, in bytes: what sleeping regions keep there, and what
    /// earlier sleeps needed.
    pub fn host_bytes(&self) -> u64 {
        self.state.lock().copies.host().held()
    }

    /// Locks pages of the host ahead, until `bytes` bytes keep nothing at present, and returns how many bytes that
    /// took: the next sleep that keeps as much locks none. Costs some 40 us a MiB where the process has 16
    /// processors, as many of which lock pages as the driver says ([`Transfer::host_threads`]), and 230 by one thread;
    /// other calls of these regions wait meanwhile, those of the engine do not.
    ///
    /// # Errors
    /// [`Error::HostOutOfMemory`], which gives back what it had locked; [`Error::HostTooSmall`] before any is locked,
    /// where these regions would hold more than the host has for this process
    /// ([`Transfer::host_memory`]); the driver's.
    pub fn reserve_host(&self, bytes: u64) -> Result<u64, Error> {
        let mut state = self.state.lock();
        self.tidy(&mut state);
        let (before, slabs) = (state.copies.host().held(), state.copies.host().slabs());
        let driver = self.engine.driver();
        if let Err(short) = state.copies.host().reserve(driver, bytes) {
            // What the driver refuses to take back is idle, and used by the next sleep.
            let _ = state.copies.host().free_since(driver, slabs);
            return Err(short.told("reserve_host", None));
        }
        Ok(state.copies.host().held() - before)
    }

    /// Gives page-locked memory that keeps nothing at present back to the host, and returns how many
    /// bytes that was. The next sleep has to lock pages anew. No other call waits while that memory goes.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_host(&self) -> Result<u64, Error> {
        let mut state = self.state.lock();
        state.copies.wait(&self.engine)?;
        self.tidy(&mut state);
        let slabs = state.copies.host().take_idle(0);
        drop(state);
        let freed = give_back(self.engine.driver(), &slabs);
        Ok(self.state.lock().copies.host().end_leaving(freed)?)
    }

    /// The pools of regions, with what becomes of their contents.
    fn pools(
        &self,
        tags: Option<&[&str]>,
        call: &'static str,
        state: &RegionsState<D>,
    ) -> Result<BTreeMap<PoolId, Backup>, Error> {
        let all = self.engine.tagged_pools();
        for &wanted in tags.into_iter().flatten() {
            let known = state.backups.contains_key(wanted);
            if !known && !all.iter().any(|(tag, _)| **tag == *wanted) {
                return Err(Error::Unknown { call, what: Unknown::Region(wanted.into()) });
            }
        }
        let wanted = |tag: &str| tags.is_none_or(|tags| tags.contains(&tag));
        let pools = all.into_iter().filter(|(tag, _)| wanted(tag));
        Ok(pools.map(|(tag, pool)| (pool, state.backup(&tag))).collect())
    }

    /// Forgets that regions sleep which have no pools and of which nothing was said; and, if all copies are
    /// done, what is kept of pools that do not sleep.
    fn tidy(&self, state: &mut RegionsState<D>) {
        self.engine.keep_asleep(self.number, |tag| state.backups.contains_key(tag));
        if state.copies.wait(&self.engine).is_err() {
            return;
        }
        state.copies.give_up(
            |pool| self.engine.keeper_of(pool) != Some(self.number),
            |pool| !state.retains || self.engine.pool_memory(pool).is_none(),
        );
    }
}

impl<D: Transfer> RegionsState<D> {
    fn backup(&self, tag: &str) -> Backup {
        self.backups.get(tag).copied().unwrap_or_default()
    }

    /// The tags of regions, those included for which something was said and that have no pool.
    fn tags(&self, engine: &Engine<D>, wanted: Option<&[&str]>) -> Vec<Arc<str>> {
        let said = self.backups.keys().map(|tag| Arc::from(&**tag));
        let all: BTreeSet<Arc<str>> =
            engine.tagged_pools().into_iter().map(|(tag, _)| tag).chain(said).collect();
        let wanted = |tag: &Arc<str>| wanted.is_none_or(|wanted| wanted.contains(&&**tag));
        all.into_iter().filter(wanted).collect()
    }
}

impl<D: Transfer> Drop for Regions<D> {
    fn drop(&mut self) {
        let engine = &self.engine;
        let state = self.state.get_mut();
        // What had no memory lost nothing.
        let _ = engine.set_asleep(&state.tags(engine, None), self.number, false);
        engine.keep_asleep(self.number, |_| false);
        if state.copies.wait(engine).is_err() {
            // Copies may be under way: the host's memory stays.
            return;
        }
        state.copies.give_up(|_| true, |_| true);
        // There is no caller for the driver's errors.
        let _ = state.copies.host().free_since(engine.driver(), 0);
        if let Some(stream) = state.copies.take_stream() {
            let _ = engine.driver().destroy_stream(stream);
        }
    }
}

impl<D: Transfer> fmt::Debug for Regions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regions").field("regions", &self.report()).finish_non_exhaustive()
    }
}
