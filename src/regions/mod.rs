//! Memory by tag that sleeps and wakes.
//!
//! A *region* is all pools that were made with one tag ([`PoolConfig::tag`](crate::PoolConfig::tag)): weights,
//! key-value blocks, the graphs of one model. [`Regions::sleep`] gives the device memory of regions back to the driver
//! and [`Regions::wake`] brings it again, at the same addresses: blocks, views and pointers stay valid, and graphs
//! replay without a recapture. [`Backup`] says, region by region, what becomes of the contents of live blocks and of
//! freed outputs of graphs.
//!
//! ```
//! use std::sync::Arc;
//! use regraph::driver::HostApi;
//! use regraph::regions::{Backup, Regions, Tags};
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
//! assert_eq!(regions.sleep(Tags::All)?, 320 << 20);
//! // another model has the device
//! regions.wake(&["weights"])?; // the layer is as it was
//! regions.wake(&["cache"])?; // what the keys hold is anything
//! # drop((layer, keys));
//! # Ok(())
//! # }
//! ```
//!
//! One stream copies contents, piece by piece, to page-locked memory of the host, or through a little of it to files;
//! pieces that have been copied are unmapped meanwhile. Waking copies each piece back as soon as it is mapped. Host
//! memory stays page-locked for the next sleep, since locking pages takes longer than copying them
//! ([`Regions::free_host`] gives it back).

mod files;
mod host;
mod kept;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::driver::{HostPlace, StreamHandle, Transfer};
use crate::engine::{Engine, Held, Movement, PoolId};
use crate::error::{Error, PoolRefusal, Unknown};
use crate::graphs::{hold_launches, owned};
use crate::logging::{tell_later, Later};
use crate::shown::shown;
use crate::sync::{Mutex, MutexGuard, Rank};
use host::give_back;
use kept::{HostCopies, Moving};

/// What becomes of the contents of a region's live blocks while it sleeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backup {
    /// The contents are kept in page-locked memory of the host.
    #[default]
    Host,
    /// The contents are kept in a file in this folder. A sleep and a wake take at most 4 MiB of host memory for each
    /// thread ([`Transfer::host_threads`]). Each sleep of a region makes a file without a name, so that other processes
    /// cannot find it. The system deletes it when all that it keeps is awake or the process ends. A relative path
    /// counts from the process's working folder at the sleep. Needs Unix.
    File(Arc<Path>),
    /// The contents are kept in this file, which other processes may name too: workers with the same weights keep them
    /// once. A process that goes to sleep compares what its blocks hold with the file, byte by byte. If all is the
    /// same, the process writes nothing and keeps the file open until the region is awake. Else it writes a file and
    /// puts that in the other's place. While another process writes, this one waits, for up to a minute and a second
    /// for each 128 MiB, and compares with the new file. Where that differs too, the contents go to a file without a
    /// name, as with [`Backup::File`]; so they do, with a warning, where the name is that of a link, a pipe or a file
    /// that is no backup of this user's (a mark at its end shows that): it stays as it is.
    ///
    /// Each region of a process needs a file of its own, and all processes run as one user. In a folder of a tmpfs,
    /// such as `/dev/shm`, the file is memory that processes share. The file stays until the host removes it; processes
    /// that keep it open may go on. **The host promises** that nothing else writes to it. An empty file `.NAME.lock`,
    /// by which processes take turns, stays beside it. A process that is killed while it writes may leave a file
    /// `regraph-PROCESS-NUMBER` in the folder. Needs Unix.
    Shared(Arc<Path>),
    /// The contents are lost: blocks hold anything when the region wakes. Graphs write their own blocks anew.
    None,
    /// The contents stay on the device: the region does not sleep.
    Device,
}

/// The regions that a call is for.
#[derive(Clone, Copy, Debug)]
pub enum Tags<'a> {
    /// All regions of the engine.
    All,
    /// The regions of these tags; an empty list names none.
    Of(&'a [&'a str]),
}

impl<'a> Tags<'a> {
    fn names(self) -> Option<&'a [&'a str]> {
        match self {
            Self::All => None,
            Self::Of(names) => Some(names),
        }
    }
}

impl<'a> From<&'a [&'a str]> for Tags<'a> {
    fn from(names: &'a [&'a str]) -> Self {
        Self::Of(names)
    }
}

impl<'a, const N: usize> From<&'a [&'a str; N]> for Tags<'a> {
    fn from(names: &'a [&'a str; N]) -> Self {
        Self::Of(names)
    }
}

/// For callers whose own callers may name no list: all regions then.
impl<'a> From<Option<&'a [&'a str]>> for Tags<'a> {
    fn from(names: Option<&'a [&'a str]>) -> Self {
        names.map_or(Self::All, Self::Of)
    }
}

/// The regions of an engine. An engine needs one such value: no other can wake what this one has put to sleep.
///
/// Dropping it while regions sleep loses their contents; their pools can only be destroyed then.
pub struct Regions<D: Transfer> {
    engine: Arc<Engine<D>>,
    /// Tells those of a process apart.
    number: u64,
    /// Held by the call that moves pools or changes the host's memory, to its end: such calls take turns.
    copies: Mutex<HostCopies<D>>,
    told: Mutex<Known>,
}

/// What any call asks and says at any time, also while pools move.
#[derive(Default)]
struct Known {
    /// Of the regions for which something was said.
    backups: BTreeMap<String, Backup>,
    /// Whether what woke stays on the host as it was, to be shown.
    retains: bool,
    /// What is kept of each pool in memory of the host, and in files, in bytes.
    kept: BTreeMap<PoolId, (u64, u64)>,
    /// What is locked, in bytes.
    host_bytes: u64,
    /// How regions last went to sleep, and woke.
    moved: BTreeMap<Arc<str>, (Option<Moved>, Option<Moved>)>,
}

/// How a region went to sleep or woke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Device memory that went or came, in bytes.
    pub bytes: u64,
    /// Bytes that were copied to or from the host or a file: contents of live blocks and outputs of graphs.
    pub copied_bytes: u64,
    /// Bytes that went or came without contents: free memory, temporary memory of graphs, and all of a region whose
    /// contents are not kept.
    pub dropped_bytes: u64,
    /// How long the call took for all its regions, with its waits for the device and for other calls of the regions.
    pub time: Duration,
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
    /// Contents that are kept in memory of the host, in bytes.
    pub host_bytes: u64,
    /// Contents that are kept in files, in bytes.
    pub file_bytes: u64,
    /// The region's latest sleep; `None` if it has not slept yet, or slept without memory.
    pub slept: Option<Moved>,
    /// The region's latest wake; `None` if it has not woken yet, or woke without memory.
    pub woke: Option<Moved>,
}

impl<D: Transfer> Regions<D> {
    /// The regions of an engine: of all its pools that have a tag, whenever they were made.
    pub fn new(engine: &Arc<Engine<D>>) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let device = engine.driver().device();
        Self {
            engine: engine.clone(),
            number: MADE.fetch_add(1, Ordering::Relaxed),
            copies: Mutex::numbered(Rank::Regions, device.into(), HostCopies::new()),
            told: Mutex::new(Rank::RegionsTold, Known::default()),
        }
    }

    /// The engine whose regions these are.
    pub fn engine(&self) -> &Arc<Engine<D>> {
        &self.engine
    }

    /// Sets what becomes of the contents of a region's live blocks, from its next sleep on. A region without this call
    /// has [`Backup::Host`]. The choice is remembered while the region has no pools, until [`Regions::forget`].
    pub fn set_backup(&self, tag: &str, backup: Backup) {
        self.told.lock().backups.insert(tag.into(), backup);
    }

    /// Forgets what [`Regions::set_backup`] has set for a region; does nothing where nothing was set. A region with
    /// pools has [`Backup::Host`] from now on. A region without pools is unknown from now on and does not sleep: pools
    /// that are made with its tag later are awake.
    ///
    /// A region without pools for which nothing was set is forgotten by itself.
    pub fn forget(&self, tag: &str) {
        let mut told = self.told.lock();
        told.backups.remove(tag);
        told.moved.remove(tag);
        self.forget_gone(&mut told);
    }

    /// Sets whether the kept contents of a pool stay on the host when the pool wakes, until a call puts it to sleep
    /// again or it is destroyed; [`Regions::show_kept`] shows them meanwhile. At first they do not stay, and the host
    /// memory serves the next sleep.
    pub fn retain(&self, retains: bool) {
        self.told.lock().retains = retains;
        // Where another call is at it, the next sleep, wake or `free_host` tidies.
        if let Some(mut copies) = self.copies.try_lock() {
            self.tidy(&mut copies);
        }
    }

    /// Waits for the device, gives the device memory of regions back to the driver, and returns how many bytes went.
    /// From the call until the regions are awake no work may be submitted that uses their memory; allocations from
    /// them, captures into them and launches of graphs of their pools are refused, also where a pool had no memory or
    /// is made while its region sleeps. Blocks can be freed, and graphs released. Before the call, the program waits
    /// for work of other devices that uses the memory. Other processes must not have it mapped.
    ///
    /// Kept are the contents of live blocks, of outputs of graphs that were freed after their captures, and of inputs
    /// that captures freed; not of blocks that a capture both allocated and freed: the library assumes that each launch
    /// writes them before reading. What eager work wrote to such a block during the capture, as a library may that
    /// initialises its workspace, is lost, and launches read undefined data.
    ///
    /// Regions that sleep stay as they are, and so do pools that the host has suspended by itself: they wake by
    /// [`HostCalls::resume_pool`](crate::engine::HostCalls::resume_pool) alone, and may be used then.
    ///
    /// Costs two driver calls for each piece of memory, and one for each run of live blocks, or each 32 MiB of a longer
    /// run. Copies take some 18 us a MiB, and locking pages, where too few are locked ([`Regions::reserve_host`]), some
    /// 45 us a MiB by 16 threads and 330 by one. A file ([`Backup::File`], [`Backup::Shared`]) takes as long as the
    /// disk takes to write it, or to read the one that is there; no memory goes before. Calls of the engine go on all
    /// the while; calls that have these regions sleep or wake, or change their memory of the host, take turns.
    ///
    /// # Errors
    /// Nothing has changed, but that locked pages may stay for the next sleep, after [`Error::Unknown`],
    /// [`Error::DeviceCaptures`], [`PoolRefusal::Busy`], [`PoolRefusal::Asleep`] (by another `Regions`),
    /// [`PoolRefusal::CannotSuspend`] (memory that is not mapped, or from a source), [`PoolRefusal::Exported`] (memory
    /// that must stay), [`PoolRefusal::HasBlocks`] (blocks of other pools lie in the memory), [`Error::Backup`] (a file
    /// cannot be written, or the host has no memory), which gives back what was locked, and [`Error::OrderLost`]. After
    /// an error of the driver the regions may sleep in part: another sleep goes on from there, and waking brings all
    /// back with its contents.
    pub fn sleep<'a>(&self, tags: impl Into<Tags<'a>>) -> Result<u64, Error> {
        self.shut(tags, true)?.sleep()
    }

    /// Puts regions to sleep as [`Regions::sleep`] does, without a wait for submitted work. Work on live blocks of the
    /// regions must have completed, which the engine cannot check; it checks launches of graphs of their pools and work
    /// on freed blocks. The host still waits for the copies, for pages to be locked and for other calls of the engine
    /// and the regions.
    ///
    /// # Errors
    /// Those of [`Regions::sleep`], and [`PoolRefusal::Runs`].
    pub fn try_sleep<'a>(&self, tags: impl Into<Tags<'a>>) -> Result<u64, Error> {
        self.shut(tags, false)?.sleep()
    }

    /// The first part of [`Regions::sleep`], or of [`Regions::try_sleep`] without `wait`: nothing is handed out,
    /// captured into or launched of the regions from now on. [`Shut::sleep`] is the rest. For hosts that keep captures
    /// and launches away by locks of their own: they may release these locks before [`Shut::sleep`]. Until the value is
    /// used or dropped, other calls that move these regions wait.
    ///
    /// # Errors
    /// Those of [`Regions::sleep`] or [`Regions::try_sleep`]; then nothing has changed.
    #[doc(hidden)]
    pub fn shut<'a>(&self, tags: impl Into<Tags<'a>>, wait: bool) -> Result<Shut<'_, D>, Error> {
        let tags = tags.into().names();
        let call = if wait { "sleep" } else { "try_sleep" };
        let told = tell_later();
        let begun = Instant::now();
        let mut copies = self.copies.lock();
        self.tidy(&mut copies);
        if !wait {
            // What a call that failed still copies may lie where memory goes.
            copies.wait(&self.engine)?;
        }
        // Again where a pool of the regions got its first memory while the device was waited for.
        loop {
            let (mut tags, mut pools) = self.regions(tags, call)?;
            pools.retain(|&id, _| self.engine.pool_memory(id).is_some_and(|(awake, _)| awake > 0));
            pools.retain(|_, backup| *backup != Backup::Device);
            tags.retain(|tag| self.told.lock().backup(tag) != Backup::Device);
            let ids: Vec<PoolId> = pools.keys().copied().collect();
            if ids.is_empty() {
                if self.engine.shut_pools(&[], &tags, (self.number, call))?.is_none() {
                    continue;
                }
                return Ok(Shut { regions: self, call, movement: None, copies, _told: told });
            }
            let (owned, going) = owned(&self.engine, &ids);
            if let (Some(going), false) = (going, wait) {
                return Err(self.engine.refuse(going, call, PoolRefusal::Runs));
            }
            // Before anything is shut: it may fail.
            let stream = copies.stream(self.engine.driver())?;
            let shut = hold_launches(&owned, wait, || {
                if wait && !self.engine.wait_for_device()? {
                    return Err(Error::DeviceCaptures { call });
                }
                self.engine.shut_pools(&ids, &tags, (self.number, call))
            })??;
            let Some((movement, all)) = shut else { continue };
            copies.give_up(|_| false, |pool| ids.contains(&pool));
            let before = (begun, self.tally(&ids, &copies));
            // What a pool holds that sleeps in part is kept already.
            let (mut held, mut filed) = (Vec::new(), Vec::new());
            for pool in all {
                match pools.remove(&pool.pool().id) {
                    Some(Backup::None) => {}
                    Some(backup @ (Backup::File(_) | Backup::Shared(_))) => {
                        filed.push((pool, backup))
                    }
                    _ => held.push(pool),
                }
            }
            let movement = Some(Sleep { movement, stream, held, filed, ids, before });
            return Ok(Shut { regions: self, call, movement, copies, _told: told });
        }
    }

    /// Notes how pools have moved.
    fn end(
        &self,
        copies: &mut HostCopies<D>,
        pools: &[PoolId],
        before: (Instant, Tally),
        moved: Result<u64, Error>,
    ) -> Result<u64, Error> {
        if moved.is_ok() {
            let after = self.tally(pools, copies);
            self.told.lock().note(before, &after);
        }
        self.tidy(copies);
        moved
    }

    /// What is away of each region's pools, and what the host keeps of them.
    fn tally(&self, pools: &[PoolId], copies: &HostCopies<D>) -> Tally {
        let kept = copies.bytes();
        let mut regions = Tally::new();
        let tagged = self.engine.host().tagged_pools().into_iter();
        for (tag, pool) in tagged.filter(|(_, pool)| pools.contains(pool)) {
            let region = regions.entry(tag).or_default();
            region.0 += self.engine.pool_memory(pool).map_or(0, |(_, asleep)| asleep);
            region.1 += kept.get(&pool).map_or(0, |(host, file)| host + file);
        }
        regions
    }

    /// Brings the device memory of sleeping regions back at the same addresses, with the contents of their live blocks,
    /// and returns how many bytes came. The host waits for the copies: afterwards any stream may use the memory. Where
    /// memory is short, free memory of other pools goes back to the driver first, as in [`Engine::allocate`].
    ///
    /// Costs three driver calls for each piece of memory, and copies at some 18 us a MiB, which go on meanwhile. Calls
    /// of the engine go on all the while; calls that have these regions sleep or wake take turns.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`PoolRefusal::Asleep`] (by another `Regions`), [`Error::OutOfMemory`], [`Error::Backup`]
    /// where a file cannot be read or the host has no memory for that, or the driver's. Then all regions of the call
    /// sleep, with their contents untouched: the call may be made again, or for fewer regions.
    pub fn wake<'a>(&self, tags: impl Into<Tags<'a>>) -> Result<u64, Error> {
        let tags = tags.into().names();
        // When no lock is held any more: an observer may call the regions and their pools.
        let _told = tell_later();
        let begun = Instant::now();
        let mut copies = self.copies.lock();
        self.tidy(&mut copies);
        let (tags, mut pools) = self.regions(tags, "wake")?;
        pools.retain(|&id, _| self.engine.keeper_of(id).is_some());
        if pools.is_empty() {
            self.engine.set_asleep(&tags, self.number, false)?;
            return Ok(0);
        }
        // What a call that failed still copies may go where files are read to.
        copies.wait(&self.engine)?;
        let ids: Vec<PoolId> = pools.keys().copied().collect();
        let before = (begun, self.tally(&ids, &copies));
        let stream = copies.stream(self.engine.driver())?;
        let movement = self.engine.wake_pools(&ids, tags, (self.number, "wake"))?;
        let came = movement.come(&mut Moving::new(&self.engine, &mut copies, stream, "wake"));
        if came.is_ok() && self.told.lock().retains {
            copies.retain(&ids);
        }
        self.end(&mut copies, &ids, before, came)
    }

    /// Whether a region, or a part of it, sleeps.
    pub fn is_asleep(&self, tag: &str) -> Result<bool, Error> {
        let (_, pools) = self.regions(Some(&[tag]), "is_asleep")?;
        Ok(self.engine.is_region_asleep(tag)
            || pools.into_keys().any(|pool| self.engine.keeper_of(pool).is_some()))
    }

    /// The figures of all regions, in the order of their tags. For a region that goes to sleep or wakes right now they
    /// show how far it is.
    pub fn report(&self) -> Vec<Region> {
        let told = self.told.lock();
        let mut regions: BTreeMap<Arc<str>, Region> = BTreeMap::new();
        for (tag, pool) in self.engine.host().tagged_pools() {
            let region = regions.entry(tag.clone()).or_insert_with(|| Region {
                backup: told.backup(&tag),
                slept: told.moved.get(&tag).and_then(|moved| moved.0),
                woke: told.moved.get(&tag).and_then(|moved| moved.1),
                tag,
                pools: Vec::new(),
                awake_bytes: 0,
                asleep_bytes: 0,
                host_bytes: 0,
                file_bytes: 0,
            });
            let (awake, asleep) = self.engine.pool_memory(pool).unwrap_or_default();
            region.pools.push(pool);
            region.awake_bytes += awake;
            region.asleep_bytes += asleep;
            let (host, file) = told.kept.get(&pool).copied().unwrap_or_default();
            region.host_bytes += host;
            region.file_bytes += file;
        }
        regions.into_values().collect()
    }

    /// Shows the kept contents of a range of a sleeping pool, given by address and size in bytes. `show` gets the parts
    /// in order: the place of each in host memory, and its size in bytes. Contents that a file keeps are read into host
    /// memory part by part. A part stays there until `show` returns. `show` must not call these regions: other threads'
    /// calls wait meanwhile, and its own would wait for ever. Returns false, and shows nothing, where not all of the
    /// range is kept, or the pool is awake and its contents were not retained ([`Regions::retain`]). Retained contents
    /// are those of the pool's latest sleep.
    ///
    /// # Errors
    /// The driver's, and [`Error::Backup`] where a file cannot be read or the host has no memory for that: some
    /// parts may have been shown.
    pub fn show_kept(
        &self,
        pool: PoolId,
        range: (u64, u64),
        show: impl FnMut(HostPlace, u64),
    ) -> Result<bool, Error> {
        let mut copies = self.copies.lock();
        // One that could not go may have copies under way.
        copies.wait(&self.engine)?;
        let asleep = self.engine.keeper_of(pool) == Some(self.number);
        copies.show(self.engine.driver(), (pool, asleep), range, show)
    }

    /// Page-locked host memory that the regions hold, in bytes: for contents of sleeping regions, and left over from
    /// earlier sleeps. Files are not counted ([`Region::file_bytes`]).
    pub fn host_bytes(&self) -> u64 {
        self.told.lock().host_bytes
    }

    /// Locks host pages ahead until `bytes` bytes of locked memory are unused, and returns how many bytes were locked
    /// for that: the next sleep that keeps so much locks none. Costs some 45 us a MiB with 16 threads and 330 with one;
    /// the driver says how many threads lock pages ([`Transfer::host_threads`]). Other calls of these regions wait
    /// meanwhile, calls of the engine do not.
    ///
    /// # Errors
    /// [`Error::Backup`]: pages that were locked by the call are given back. Where the regions would hold more than the
    /// host has for this process ([`Transfer::host_memory`]), it is returned before any page is locked. The driver's.
    pub fn reserve_host(&self, bytes: u64) -> Result<u64, Error> {
        let mut copies = self.copies.lock();
        self.tidy(&mut copies);
        let (before, slabs) = (copies.host().held(), copies.host().slabs());
        let driver = self.engine.driver();
        let reserved = copies.host().reserve(driver, bytes);
        if reserved.is_err() {
            // What the driver refuses to take back is idle, and used by the next sleep.
            let _ = copies.host().free_since(driver, slabs);
        }
        self.told.lock().copy(&mut copies);
        reserved.map_err(|short| short.told("reserve_host", None))?;
        Ok(copies.host().held() - before)
    }

    /// Gives unused page-locked memory back to the host, and returns how many bytes that was. The next sleep has to
    /// lock pages anew. No other call waits meanwhile.
    pub fn free_host(&self) -> Result<u64, Error> {
        let mut copies = self.copies.lock();
        copies.wait(&self.engine)?;
        self.tidy(&mut copies);
        let slabs = copies.host().take_idle(0);
        self.told.lock().copy(&mut copies);
        drop(copies);
        let freed = give_back(self.engine.driver(), &slabs);
        let mut copies = self.copies.lock();
        let gone = copies.host().end_leaving(freed);
        self.told.lock().copy(&mut copies);
        Ok(gone?)
    }

    /// The regions that a call is for, those included for which something was said and that have no pool.
    fn regions(&self, tags: Option<&[&str]>, call: &'static str) -> Result<TagsAndPools, Error> {
        let told = self.told.lock();
        let tagged = self.engine.host().tagged_pools();
        let said = told.backups.keys().map(|tag| Arc::from(&**tag));
        let all: BTreeSet<Arc<str>> =
            tagged.iter().map(|(tag, _)| tag.clone()).chain(said).collect();
        if let Some(&wanted) = tags.into_iter().flatten().find(|tag| !all.contains(**tag)) {
            return Err(Error::Unknown { call, what: Unknown::Region(wanted.into()) });
        }
        let wanted = |tag: &str| tags.is_none_or(|tags| tags.contains(&tag));
        let pools = tagged.into_iter().filter(|(tag, _)| wanted(tag));
        let pools = pools.map(|(tag, pool)| (pool, told.backup(&tag))).collect();
        Ok((all.into_iter().filter(|tag| wanted(tag)).collect(), pools))
    }

    /// Forgets of regions that have no pools and of which nothing was said that they sleep, and how they moved.
    fn forget_gone(&self, told: &mut Known) {
        let Known { backups, moved, .. } = told;
        self.engine.keep_asleep(self.number, |tag| backups.contains_key(tag));
        let tagged = self.engine.host().tagged_pools();
        let tags: BTreeSet<&str> = tagged.iter().map(|(tag, _)| &**tag).collect();
        moved.retain(|tag, _| backups.contains_key(&**tag) || tags.contains(&**tag));
    }

    /// Forgets regions that are no more, and, if all copies are done, what is kept of pools that do not sleep.
    fn tidy(&self, copies: &mut HostCopies<D>) {
        let retains = {
            let mut told = self.told.lock();
            self.forget_gone(&mut told);
            told.retains
        };
        if copies.wait(&self.engine).is_ok() {
            copies.give_up(
                |pool| self.engine.keeper_of(pool) != Some(self.number),
                |pool| !retains || self.engine.pool_memory(pool).is_none(),
            );
        }
        self.told.lock().copy(copies);
    }
}

/// The tags of regions, and their pools with what becomes of their contents.
type TagsAndPools = (Vec<Arc<str>>, BTreeMap<PoolId, Backup>);

/// Regions that are shut to sleep. Dropping this value opens them again.
#[doc(hidden)]
#[must_use = "the regions do not sleep"]
pub struct Shut<'a, D: Transfer> {
    regions: &'a Regions<D>,
    call: &'static str,
    /// None where there is nothing to put to sleep.
    movement: Option<Sleep<'a, D>>,
    copies: MutexGuard<'a, HostCopies<D>>,
    /// Told when no lock is held any more: an observer may call the regions and their pools.
    _told: Later,
}

/// What a sleep still has to do when its pools are shut.
struct Sleep<'a, D: Transfer> {
    movement: Movement<'a, D>,
    stream: StreamHandle,
    /// What is to be copied to memory of the host.
    held: Vec<Held>,
    /// And to files.
    filed: Vec<(Held, Backup)>,
    ids: Vec<PoolId>,
    before: (Instant, Tally),
}

impl<D: Transfer> Shut<'_, D> {
    /// Copies the contents that are kept, unmaps the memory, and returns how many bytes went.
    ///
    /// # Errors
    /// Those of [`Regions::sleep`].
    pub fn sleep(mut self) -> Result<u64, Error> {
        let Some(sleep) = self.movement.take() else { return Ok(0) };
        let Self { regions, call, ref mut copies, .. } = self;
        let Sleep { movement, stream, held, filed, ids, before } = sleep;
        let slabs = copies.host().slabs();
        let mut moving = Moving::new(&regions.engine, copies, stream, call);
        // Files first: what they go through keeps something of the others then.
        let went = match moving.file(&filed).and_then(|()| moving.copy(&held)) {
            Ok(()) => movement.leave(&mut moving),
            Err(error) => {
                movement.cancel(&mut moving);
                Err(error)
            }
        };
        // Unless copies may still go there. What the driver refuses to take back is idle, and used by the next sleep.
        if matches!(went, Err(Error::Backup { .. })) && copies.wait(&regions.engine).is_ok() {
            regions.tidy(copies);
            let _ = copies.host().free_since(regions.engine.driver(), slabs);
        }
        regions.end(copies, &ids, before, went)
    }
}

impl<D: Transfer> Drop for Shut<'_, D> {
    fn drop(&mut self) {
        let Self { regions, call, movement, copies, .. } = self;
        let Some(Sleep { movement, stream, .. }) = movement.take() else { return };
        movement.cancel(&mut Moving::new(&regions.engine, copies, stream, call));
    }
}

impl Known {
    fn backup(&self, tag: &str) -> Backup {
        self.backups.get(tag).cloned().unwrap_or_default()
    }

    /// Has any call see what the host holds now.
    fn copy<D: Transfer>(&mut self, copies: &mut HostCopies<D>) {
        self.host_bytes = copies.host().held();
        self.kept = copies.bytes();
    }

    /// Notes how regions have moved, since a moment of the call.
    fn note(&mut self, (begun, before): (Instant, Tally), after: &Tally) {
        let time = begun.elapsed();
        for (tag, (away, kept)) in before {
            let Some(&(away_then, kept_then)) = after.get(&tag) else { continue };
            let bytes = away.abs_diff(away_then);
            // What came stays on the host until this is noted.
            let went = away_then > away;
            let copied_bytes = if went { kept_then.saturating_sub(kept) } else { kept };
            let dropped_bytes = bytes.saturating_sub(copied_bytes);
            let moved = Moved { bytes, copied_bytes, dropped_bytes, time };
            let (slept, woke) = self.moved.entry(tag).or_default();
            *(if went { slept } else { woke }) = Some(moved);
        }
    }
}

/// What is away of regions and what the host keeps of them, in bytes.
type Tally = BTreeMap<Arc<str>, (u64, u64)>;

impl<D: Transfer> Drop for Regions<D> {
    fn drop(&mut self) {
        // What had no memory lost nothing.
        let tags = self.regions(None, "drop").map(|(tags, _)| tags).unwrap_or_default();
        let _ = self.engine.set_asleep(&tags, self.number, false);
        self.engine.keep_asleep(self.number, |_| false);
        let (engine, copies) = (&self.engine, self.copies.get_mut());
        if copies.wait(engine).is_err() {
            // Copies may be under way: the host's memory stays.
            return;
        }
        engine.end_movements(self.number);
        copies.give_up(|_| true, |_| true);
        // There is no caller for the driver's errors.
        let _ = copies.host().free_since(engine.driver(), 0);
        if let Some(stream) = copies.take_stream() {
            let _ = engine.driver().destroy_stream(stream);
        }
    }
}

shown!([D: Transfer] Regions<D>: |it| regions = it.report());
