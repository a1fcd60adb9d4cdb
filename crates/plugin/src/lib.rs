//! An allocator for hosts that know memory by its address, as PyTorch's pluggable allocator does.
//!
//! Such a host asks for bytes on a device's stream and gives an address back. It says when requests of
//! some streams belong to a pool of graphs, and when that is over, but neither which stream begins a
//! capture nor which graph comes of it. So the plug-in
//!
//! * keeps an engine for each device and finds a block by its address;
//! * sends each request to its pool: to that of the last route whose filter takes the stream, to a pool
//!   of its own where the stream captures and no route claims that, else to the pool of eager work;
//! * announces captures late, with their first request, unless the host announces them ([`Plugin::capture_begun`]), and
//!   ends them when their route ends, unless the host lets the checker judge them before ([`Plugin::capture_ending`]).
//!
//! Other hosts say which stream begins a capture ([`Plugin::capture_started`]), and some name no stream with
//! their requests at all ([`Plugin::allocate_unordered`]).
//!
//! A pool that its graphs have let go of keeps its memory until the cache is emptied or memory is
//! short, and goes then, after a wait for the device: a graph may still run when its owner drops it.
#![forbid(unsafe_code)]

mod addresses;
mod captures;
mod checkpoints;
mod compact;
mod device;
mod error;
mod executables;
mod figures;
mod history;
mod hosts;
mod launches;
mod lending;
mod named;
mod oversize;
mod pools;
mod regions;
mod reports;
mod routes;
mod settings;
mod sharing;
mod sources;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub use checkpoints::Restored;
pub use error::Error;
pub use executables::Graph;
pub use history::{LiveBlock, FIGURES};
pub use hosts::HostLock;
pub use launches::Launch;
pub use pools::{PoolKey, PoolReport};
pub use regraph::engine::{HandleError, Loan, LoanId, LoanState, TakenLoan};
pub use reports::EndedCapture;
pub use routes::{EndedGraph, Filter};
pub use settings::{of_hosts, Overlay};
pub use sharing::{Opened, OpenedId, Shared};
pub use watch::{Happening, Watched, Watcher};

use device::Device;
use hosts::in_every_thread;
use regraph::driver::{DriverError, StreamHandle, Transfer};
use regraph::engine::{Config, Engine, HistoryOptions, OutOfMemory};
use regraph::plan;
use regraph::settings::{PlanChoice, Settings};
use regraph::sync::{AtomicBool, Mutex, Ordering, Rank};
use regraph::tell_later;
use watch::Watch;

/// Told of each request that fails for want of memory, with the device's number.
pub type Observer = Arc<dyn Fn(u32, &OutOfMemory) + Send + Sync>;

/// Gives memory back that the host keeps until memory is short; false where that freed nothing.
pub type LastResort = Box<dyn Fn() -> bool + Send + Sync>;

/// Makes the driver of a device.
type Connect<D> = Box<dyn Fn(u32) -> Result<D, DriverError> + Send + Sync>;

/// The settings by now of a device, whose share of memory may have been set by itself.
fn settings_of(device: u32, (settings, shares): &(Settings, BTreeMap<u32, f64>)) -> Settings {
    let share = shares.get(&device).copied().or(settings.memory_fraction);
    settings.clone().memory_fraction(share)
}

/// The allocator of a process. All calls may come from any thread.
pub struct Plugin<D: Transfer> {
    connect: Connect<D>,
    /// Without growth ahead and `plan:exact`: these are for captures whose end is told in time. Its settings are
    /// those that it began with.
    config: Config,
    /// The settings by now, and the shares of devices' memory that were set by themselves.
    settings: Mutex<(Settings, BTreeMap<u32, f64>)>,
    /// How much those may map at once ahead of what they ask for, in bytes.
    ahead: u64,
    /// The bounds of their plans, where they get their memory at their end (`plan:exact`).
    plan: Option<plan::Options>,
    devices: Vec<OnceLock<Box<Device<D>>>>,
    observers: Arc<Mutex<Vec<Observer>>>,
    journals: AtomicBool,
    /// Whether blocks of eager work are cached.
    caches: Arc<AtomicBool>,
    last_resort: Arc<OnceLock<LastResort>>,
    /// What the engines' histories keep, where that is not as the configuration says.
    history: Mutex<Option<HistoryOptions>>,
    named: regions::Named,
    /// Whether what is kept of regions stays when they wake.
    retains: AtomicBool,
    graph_region: regions::GraphRegion,
    stays: regions::Stays,
    under_way: Arc<launches::UnderWay>,
    watch: Arc<Watch>,
    opened: Mutex<sharing::Table>,
}

impl<D: Transfer> Plugin<D> {
    /// The most devices that a process may have.
    pub const DEVICES: u32 = 64;

    /// A plug-in whose engines are made with `config`, each at the first request for its device.
    /// `connect` makes a device's driver.
    pub fn new(
        config: Config,
        connect: impl Fn(u32) -> Result<D, DriverError> + Send + Sync + 'static,
    ) -> Self {
        let ahead = config.settings.growth_step_bytes.unwrap_or(settings::AHEAD);
        let plan = config.settings.plan_options();
        let mut config = config.late_ends(true).foreign_nodes(true).keeps_inputs(true);
        config.settings.growth_step_bytes = None;
        config.settings.plan = match config.settings.plan {
            PlanChoice::Exact => PlanChoice::None,
            plan => plan,
        };
        let devices = (0..Self::DEVICES).map(|_| OnceLock::new()).collect();
        Self {
            connect: Box::new(connect),
            settings: Mutex::new(Rank::Settings, (config.settings.clone(), BTreeMap::new())),
            config,
            ahead,
            plan,
            devices,
            observers: Arc::new(Mutex::new(Rank::Observers, Vec::new())),
            journals: AtomicBool::new(false),
            caches: Arc::new(AtomicBool::new(true)),
            last_resort: Arc::new(OnceLock::new()),
            history: Mutex::new(Rank::HistoryOptions, None),
            named: Mutex::new(Rank::Named, BTreeMap::new()),
            retains: AtomicBool::new(false),
            graph_region: Arc::new(Mutex::new(Rank::GraphRegion, None)),
            stays: Mutex::new(Rank::Stays, BTreeMap::new()),
            under_way: Arc::new(launches::UnderWay::new()),
            watch: Arc::new(Watch::new()),
            opened: Mutex::new(Rank::Opened, sharing::Table::default()),
        }
    }

    /// Hands out at least `bytes` of a device's memory to what `stream` submits next, and returns the
    /// address; 0 for no bytes. See [`Engine::allocate`]. The per-thread default stream is another stream in each
    /// thread, so its requests get what [`Plugin::allocate_unordered`] gives.
    ///
    /// # Errors
    /// [`Error::Engine`], with [`engine::Error::OutOfMemory`](regraph::engine::Error::OutOfMemory) after pools without
    /// graphs were given back, and [`PerThread`](regraph::engine::StreamRefusal::PerThread) while the calling thread's
    /// default stream captures, whose graph would not own the memory; [`Error::Driver`] where a device cannot be had.
    pub fn allocate(&self, bytes: u64, device: u32, stream: StreamHandle) -> Result<u64, Error> {
        if bytes == 0 {
            return Ok(0);
        }
        match self.device(device)?.allocate(bytes, stream) {
            Err(refused) => self.allocate_without_order(bytes, device, refused),
            allocated => allocated,
        }
    }

    /// As [`Plugin::allocate`], outside captures and for an address of the host's choice; false where what lies there
    /// is not free for the stream. See [`HostCalls::allocate_at`](regraph::engine::HostCalls::allocate_at).
    ///
    /// # Errors
    /// Those of [`HostCalls::allocate_at`](regraph::engine::HostCalls::allocate_at); [`Error::Driver`] where a device
    /// cannot be had.
    pub fn allocate_at(
        &self,
        bytes: u64,
        device: u32,
        stream: StreamHandle,
        address: u64,
    ) -> Result<bool, Error> {
        self.device(device)?.allocate_at(bytes, stream, address)
    }

    /// Takes memory back. See [`Engine::free`].
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] where no live block begins there.
    pub fn free(&self, address: u64, device: u32) -> Result<(), Error> {
        if address == 0 {
            return Ok(());
        }
        match self.made(device) {
            Some(device) => device.free(address),
            None => Err(Error::UnknownAddress { call: "free", address }),
        }
    }

    /// Says that a stream uses the block at an address. See [`Engine::record_stream`].
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] where no live block of any device begins there.
    pub fn record_stream(&self, address: u64, stream: StreamHandle) -> Result<(), Error> {
        let (device, block) = self.find(address, "record_stream")?;
        Ok(device.engine.record_stream(block, in_every_thread(stream))?)
    }

    /// Says that a stream's work so far includes its last use of the block at an address. See [`Engine::record_use`].
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] where no live block of any device begins there.
    pub fn record_use(&self, address: u64, stream: StreamHandle) -> Result<(), Error> {
        let (device, block) = self.find(address, "record_use")?;
        Ok(device.engine.record_use(block, in_every_thread(stream))?)
    }

    /// Gives free memory back to the driver: pools that no graph uses any more first, then what streams have freed. Waits
    /// for the device before, unless something captures on it, as PyTorch's own allocator does in effect: a program may
    /// have work under way that reads what it freed and never said so. Then it waits for the work that held the memory.
    ///
    /// # Errors
    /// Those of [`HostCalls::empty_cache_waiting`](regraph::engine::HostCalls::empty_cache_waiting).
    pub fn empty_cache(&self) -> Result<(), Error> {
        self.unmap_closed();
        for device in self.devices() {
            let _returned = device.returned.at_end();
            device.let_go();
            device.wait_while_none_captures();
            device.engine.host().empty_cache_waiting()?;
            // What only frees behind running work had kept.
            device.drop_unused(&mut device.pools());
        }
        Ok(())
    }

    /// The engine of a device; made now, if it was not asked for before. What a call of the engine's own gives back of
    /// memory that a pool's source gave, the source gets when the plug-in's next call ends.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`]; [`Error::Driver`] where the device cannot be had.
    pub fn engine(&self, device: u32) -> Result<&Engine<Watched<D>>, Error> {
        Ok(&self.device(device)?.engine)
    }

    /// The engines that there are by now, in the order of their devices.
    pub fn engines(&self) -> impl Iterator<Item = &Engine<Watched<D>>> {
        self.devices().map(|device| &*device.engine)
    }

    /// Adds one that is told of requests that fail for want of memory. It must not ask for any.
    pub fn observe_out_of_memory(&self, observer: Observer) {
        self.observers.lock().push(observer);
    }

    /// Sets what a request calls that would fail for want of memory, with no lock held, before it is made again; the
    /// first one set stays. It must move no regions: it may be called where one wakes.
    pub fn set_last_resort(&self, last_resort: LastResort) {
        let _ = self.last_resort.set(last_resort);
    }

    /// Whether captures that are announced as alone ([`Plugin::capture_begun`]) get their memory at
    /// their end: [`PlanChoice::Exact`].
    pub fn plans_captures(&self) -> bool {
        self.plan.is_some()
    }

    /// Sets whether captures that the calling thread announces as alone from now on have addresses without memory of
    /// their own, as with [`PlanChoice::Exact`]. Their host ends them by [`Plugin::capture_shown`] and
    /// [`Plugin::capture_failed`]: they get no memory then. Captures of other threads are as ever.
    pub fn estimate(&self, on: bool) {
        captures::set_shown(on);
    }

    /// Sets whether captures that begin from now on keep a journal, on every device: what
    /// [`Plugin::capture_ending`] shows.
    ///
    /// # Errors
    /// Those of [`HostCalls::keep_journals`](regraph::engine::HostCalls::keep_journals).
    pub fn keep_journals(&self, keep: bool) -> Result<(), Error> {
        self.journals.store(keep, Ordering::Relaxed);
        self.engines().try_for_each(|engine| Ok(engine.host().keep_journals(keep)?))
    }

    /// The settings by now.
    pub fn settings(&self) -> Settings {
        self.settings.lock().0.clone()
    }

    /// Changes the settings that can change ([`Engine::tune`]), on all devices; one that nothing has asked
    /// for memory of yet begins with them. Another share of memory counts for all of them
    /// ([`Plugin::set_memory_fraction`]). Says whether there are others, where pools keep what they were made with.
    ///
    /// # Errors
    /// Those of [`Engine::tune`].
    pub fn change_settings(&self, settings: Settings) -> Result<bool, Error> {
        // Held until all devices have them: one that is made meanwhile has them too.
        let mut now = self.settings.lock();
        if settings.memory_fraction != now.0.memory_fraction {
            now.1.clear();
        }
        now.0 = settings;
        let mut devices = self.devices().peekable();
        let any = devices.peek().is_some();
        devices.try_for_each(|device| device.engine.tune(&settings_of(device.number, &now)))?;
        Ok(any)
    }

    /// Sets the share of a device's memory that may be held; one that nothing has asked for memory of yet begins with
    /// it. Where the settings limit what may be held in bytes too, the smaller one counts.
    ///
    /// # Errors
    /// Those of [`Engine::set_memory_fraction`].
    pub fn set_memory_fraction(&self, device: u32, fraction: f64) -> Result<(), Error> {
        let mut now = self.settings.lock();
        if !(0.0..=1.0).contains(&fraction) {
            return Err(regraph::engine::Error::MemoryFraction { fraction }.into());
        }
        let made = self.made(device).map(|made| &made.engine);
        // A device that does not tell its size has no share.
        made.map_or(Ok(()), |engine| engine.driver().memory_info().map(drop))?;
        now.1.insert(device, fraction);
        Ok(made.map_or(Ok(()), |engine| engine.tune(&settings_of(device, &now)))?)
    }

    /// The share of a device's memory that may be held: as it was set, or as the settings have it, or all.
    pub fn memory_fraction(&self, device: u32) -> f64 {
        let now = self.settings.lock();
        now.1.get(&device).copied().or(now.0.memory_fraction).unwrap_or(1.0)
    }

    fn devices(&self) -> impl Iterator<Item = &Device<D>> {
        self.devices.iter().filter_map(|device| device.get().map(Box::as_ref))
    }

    /// A device that something was asked of before: what only looks makes no engine, and no context of the driver's.
    #[inline]
    fn made(&self, number: u32) -> Option<&Device<D>> {
        self.devices.get(number as usize)?.get().map(Box::as_ref)
    }

    #[inline]
    fn device(&self, number: u32) -> Result<&Device<D>, Error> {
        let slot = self.devices.get(number as usize);
        let Some(slot) = slot else { return Err(Error::UnknownDevice { device: number }) };
        match slot.get() {
            Some(device) => Ok(device),
            None => self.new_device(number, slot),
        }
    }

    #[cold]
    fn new_device<'a>(
        &self,
        number: u32,
        slot: &'a OnceLock<Box<Device<D>>>,
    ) -> Result<&'a Device<D>, Error> {
        let _told = tell_later();
        let driver = Watched::new((self.connect)(number)?, number, Arc::clone(&self.watch));
        // Held until the device is there for all to see: it misses no change.
        let now = self.settings.lock();
        let config = self.config.clone().settings(settings_of(number, &now));
        let least = now.0.max_split_bytes;
        self.watch.count_oversize(number, least);
        let engine = Engine::new(driver, config);
        let observers = Arc::clone(&self.observers);
        engine.observe_out_of_memory(move |report| {
            // Not under the lock: an observer may add another one.
            let observers = observers.lock().clone();
            for observer in observers {
                observer(number, report);
            }
        });
        if self.journals.load(Ordering::Relaxed) {
            engine.host().keep_journals(true)?;
        }
        let history = self.history.lock();
        if let Some(options) = &*history {
            engine.keep_history(options)?;
        }
        let named = self.named.lock();
        let device = Device::new(number, engine, self, least);
        for (tag, said) in &*named {
            device.regions.set_backup(tag, said.backup.clone());
        }
        device.regions.retain(self.retains.load(Ordering::Relaxed));
        let asleep: Vec<&str> =
            named.iter().filter(|(_, said)| said.asleep).map(|(tag, _)| &**tag).collect();
        device.regions.sleep(&*asleep)?;
        // Another thread may have been faster; then its own is the one.
        Ok(slot.get_or_init(|| Box::new(device)))
    }

    fn find(
        &self,
        address: u64,
        call: &'static str,
    ) -> Result<(&Device<D>, regraph::engine::BlockId), Error> {
        let found = self.devices().find_map(|device| Some((device, device.blocks.get(address)?)));
        match found {
            Some(found) => Ok(found),
            None => Err(Error::UnknownAddress { call, address }),
        }
    }
}
