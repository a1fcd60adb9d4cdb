//! Memory by tag that sleeps and wakes: what threads ask for in a region, and pools that they make there.
//!
//! A thread that has entered a region gets what it asks for outside captures from a pool of the region's on
//! each device, and pools that it makes meanwhile, by name or for a capture, belong to the region too. That is
//! known to the thread itself, as its routes are, so a region costs other threads nothing. Of a region and a
//! route of the thread's own the later one counts; a capture has its memory from its own pool.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use regraph::driver::{HostPlace, Transfer};
use regraph::engine::{self, PoolConfig, PoolId};
use regraph::regions::{Backup, Region};
use regraph::sync::{AtomicBool, Mutex, Ordering};
use regraph::tell_later;

use super::device::Device;
use super::launches::Held;
use super::routes::next;
use super::{Error, Plugin};

/// The regions that threads have entered and not left, by number: any thread may leave them.
pub(super) type Stays = Mutex<BTreeMap<u64, Arc<Stay>>>;

/// That a thread is in a region.
pub(super) struct Stay {
    number: u64,
    /// None where the thread has gone out of all.
    tag: Option<Arc<str>>,
    /// Whether it has not been left.
    stands: AtomicBool,
}

thread_local! {
    /// How many the thread is in.
    static COUNT: Cell<usize> = const { Cell::new(0) };
    /// The latest last.
    static ENTERED: RefCell<Vec<Arc<Stay>>> = const { RefCell::new(Vec::new()) };
    /// Whether the thread begins a capture.
    static BEGINS: Cell<bool> = const { Cell::new(false) };
}

/// Notes whether the calling thread begins a capture. What it asks for then lies in no region: a host that
/// prepares captures keeps what it needs for later ones too, whose regions are awake when this one sleeps. PyTorch
/// has the state of its generators made then, and writes to it before each capture and replay.
pub(super) fn set_beginning(begins: bool) {
    // A thread that ends begins none.
    let _ = BEGINS.try_with(|it| it.set(begins));
}

/// Changes what the calling thread is in, and forgets what was left.
fn change_entered(change: impl FnOnce(&mut Vec<Arc<Stay>>)) {
    // A thread that ends is in none.
    let _ = ENTERED.try_with(|all| {
        let mut all = all.borrow_mut();
        change(&mut all);
        all.retain(|it| it.stands.load(Ordering::Acquire));
        COUNT.set(all.len());
    });
}

/// Looks at the region that the calling thread has entered last, if it is in any.
#[inline]
fn current<R>(look: impl FnOnce(&Stay) -> R) -> Option<R> {
    // A thread that ends is in none.
    match COUNT.try_with(Cell::get) {
        Ok(0) | Err(_) => None,
        Ok(_) => {
            let stands = |it: &&Arc<Stay>| it.stands.load(Ordering::Acquire);
            ENTERED
                .try_with(|all| all.borrow().iter().rev().find(stands).map(|it| look(it)))
                .ok()?
        }
    }
}

/// When the calling thread has entered its region, as routes are numbered.
pub(super) fn entered_at() -> Option<u64> {
    current(|entered| entered.number)
}

/// Puts a pool's configuration into the region that the calling thread is in, or into none where the thread has left
/// all regions.
pub(super) fn put_into_region(config: &mut PoolConfig) {
    if let Some(tag) = current(|entered| entered.tag.clone()) {
        config.tag = tag;
    }
}

/// The region of graphs' pools that are made in none.
pub(super) type GraphRegion = Arc<Mutex<Option<Arc<str>>>>;

/// What was said of regions, by their tags: those that were named and not forgotten.
pub(super) type Named = Mutex<BTreeMap<Arc<str>, Said>>;

/// What was said of a region.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// What becomes of its contents.
    pub(super) backup: Backup,
    /// Whether it was put to sleep: devices that are made have it so too.
    pub(super) asleep: bool,
}

/// A device's pools of eager work in regions, by tag.
pub(super) type EagerPools = Mutex<BTreeMap<Arc<str>, PoolId>>;

impl<D: Transfer> Plugin<D> {
    /// The calling thread is in the region `tag` from now on, until [`Plugin::leave_region`] with the number
    /// that is returned: what it asks for outside captures, on any device, lies in memory of the region, and
    /// pools that it makes belong to the region. What lies elsewhere stays there, such as pools that were made
    /// before. What other threads ask for, those of backward passes among them, does not count.
    ///
    /// Regions can be entered in a region: the one that was entered last counts. With `None` the thread is in
    /// none meanwhile.
    pub fn enter_region(&self, tag: Option<&str>) -> u64 {
        let (number, stands) = (next(), AtomicBool::new(true));
        // Held until the stay is noted: no other thread forgets the region in between.
        let mut named = self.named.lock();
        let tag = tag.map(|tag| self.name(&mut named, tag));
        let stay = Arc::new(Stay { number, tag, stands });
        self.stays.lock().insert(number, stay.clone());
        drop(named);
        change_entered(|all| all.push(stay));
        number
    }

    /// Puts the pools of captures that threads begin while they are in no region into the region `tag` from now
    /// on, on every device; into none with `None`. Pools that exist stay where they are.
    pub fn put_graphs_into(&self, tag: Option<&str>) {
        // Held until captures are put there: no other thread forgets the region in between.
        let mut named = self.named.lock();
        let tag = tag.map(|tag| self.name(&mut named, tag));
        *self.graph_region.lock() = tag;
    }

    /// Ends what [`Plugin::enter_region`] began under a number, in any order and on any thread.
    ///
    /// # Errors
    /// [`Error::NotEntered`]: it has ended.
    pub fn leave_region(&self, number: u64) -> Result<(), Error> {
        let mut stays = self.stays.lock();
        let stay = stays.remove(&number).ok_or(Error::NotEntered)?;
        // Another thread drops its own part when it next enters or leaves one.
        stay.stands.store(false, Ordering::Release);
        drop(stays);
        change_entered(|_| ());
        Ok(())
    }

    /// Sets what becomes of what a region's live blocks hold from its next sleep on, on every device. Without
    /// this call it is [`Backup::Host`].
    pub fn set_region_backup(&self, tag: &str, backup: Backup) {
        // Held until all devices have it: one that is made meanwhile has it too.
        let mut named = self.named.lock();
        let tag = self.name(&mut named, tag);
        if let Some(said) = named.get_mut(&tag).filter(|said| said.backup != backup) {
            said.backup = backup;
            self.devices().for_each(|device| device.regions.set_backup(&tag, said.backup.clone()));
        }
    }

    /// The tag of a region, which is named from now on.
    fn name(&self, named: &mut BTreeMap<Arc<str>, Said>, tag: &str) -> Arc<str> {
        if let Some((tag, _)) = named.get_key_value(tag) {
            return tag.clone();
        }
        let (tag, said) = (Arc::<str>::from(tag), Said::default());
        self.devices().for_each(|device| device.regions.set_backup(&tag, said.backup.clone()));
        named.insert(tag.clone(), said);
        tag
    }

    /// Forgets a region in which nothing is: its tag, what [`Plugin::set_region_backup`] said of it, whether it sleeps,
    /// and, on every device, its pool of what threads asked for outside captures, whose memory goes back to the
    /// driver. Does nothing where there is no such region. A region that is named so later is a new one, and awake.
    ///
    /// Waits for the devices where only work that they were given keeps the region, unless something captures there.
    ///
    /// # Errors
    /// [`Error::RegionInUse`], which says what still lives; then the region is as it was, but that memory which was
    /// free in it may have gone. The driver's: some memory may not have been given back.
    pub fn forget_region(&self, tag: &str) -> Result<(), Error> {
        match self.forget_unused(tag) {
            Err(Error::RegionInUse { threads: 0, graphs: false, blocks: 0, .. }) => {}
            done => return done,
        }
        for device in self.devices() {
            let _returned = device.returned.at_end();
            device.let_go_of_pools();
            device.wait_while_none_captures();
        }
        self.forget_unused(tag)
    }

    fn forget_unused(&self, tag: &str) -> Result<(), Error> {
        // Pools whose graphs were dropped may be the region's.
        for device in self.devices() {
            let _returned = device.returned.at_end();
            device.drop_unused(&mut device.pools());
        }
        // No thread enters it meanwhile.
        let _told = tell_later();
        let mut named = self.named.lock();
        if !named.contains_key(tag) {
            return Ok(());
        }
        let is_it = |other: &Option<Arc<str>>| other.as_deref() == Some(tag);
        let graphs = is_it(&self.graph_region.lock());
        let threads = self.stays.lock().values().filter(|stay| is_it(&stay.tag)).count();
        let [mut pools, mut blocks, mut waiting] = [0; 3];
        for device in self.devices() {
            let mut eager = device.eager_in_regions.lock();
            if let (Some(&pool), 0) = (eager.get(tag), threads) {
                match device.engine.destroy_pool(pool) {
                    Err(engine::Error::Pool {
                        why: engine::PoolRefusal::InUse { blocks: live, waiting: waits, .. },
                        ..
                    }) => {
                        blocks += live;
                        waiting += waits;
                    }
                    // After the driver's errors the pool is the engine's, which gives the rest back later.
                    gone => {
                        eager.remove(tag);
                        gone?;
                    }
                }
            }
            let of_region = |(other, pool): &(Arc<str>, PoolId)| {
                **other == *tag && eager.get(tag) != Some(pool)
            };
            pools +=
                device.engine.host().tagged_pools().iter().filter(|row| of_region(row)).count();
        }
        if graphs || threads + pools + blocks + waiting > 0 {
            let tag = tag.to_owned();
            return Err(Error::RegionInUse { tag, threads, graphs, pools, blocks, waiting });
        }
        named.remove(tag);
        self.devices().for_each(|device| device.regions.forget(tag));
        Ok(())
    }

    /// Notes which of the regions sleep now, and returns those for which that is new.
    fn set_asleep(&self, tags: Option<&[&str]>, asleep: bool) -> Vec<Arc<str>> {
        let mut changed = Vec::new();
        for (tag, said) in self.named.lock().iter_mut() {
            let wanted = tags.is_none_or(|tags| tags.contains(&&**tag));
            let stays = asleep && said.backup == Backup::Device;
            if wanted && said.asleep != asleep && !stays {
                said.asleep = asleep;
                changed.push(tag.clone());
            }
        }
        changed
    }

    /// Gives the device memory of regions back to the driver, on all devices, of all regions with `None`, and
    /// returns how many bytes went. See [`Regions::sleep`](regraph::regions::Regions::sleep), which also says
    /// what the host promises. Addresses stay; what is asked for in a region that sleeps, and captures into
    /// pools of it, are refused. Graphs are launched by the host, which may not launch any whose pool sleeps
    /// ([`Plugin::begin_launch`]), nor any that uses other memory of the region.
    ///
    /// Waits for each device, one after the other, with the begin of other threads' captures, and their launches, waiting
    /// meanwhile. Launches that have begun are waited for first. While contents are copied no other calls wait but
    /// those that move regions or show what is kept of them.
    ///
    /// # Errors
    /// [`Error::UnknownRegion`]; [`Error::Launching`] where the calling thread is about to launch a graph;
    /// [`engine::Error::DeviceCaptures`], also where a capture may begin any time; those
    /// of [`Regions::sleep`](regraph::regions::Regions::sleep). All regions are awake then that were, on every device;
    /// or else [`Error::SleepsInPart`] says which are not.
    pub fn sleep(&self, tags: Option<&[&str]>) -> Result<u64, Error> {
        self.put_to_sleep(tags, true)
    }

    /// Like [`Plugin::sleep`], but waits for no work: where a device has anything to do, in any memory,
    /// or a graph is being launched, nothing sleeps. Waits while another call moves regions.
    ///
    /// # Errors
    /// As [`Plugin::sleep`], and [`Error::DeviceRuns`].
    pub fn try_sleep(&self, tags: Option<&[&str]>) -> Result<u64, Error> {
        self.put_to_sleep(tags, false)
    }

    fn put_to_sleep(&self, tags: Option<&[&str]>, wait: bool) -> Result<u64, Error> {
        let call = if wait { "sleep" } else { "try_sleep" };
        let _told = tell_later();
        self.known_regions(tags, call)?;
        let _turn = self.under_way.turn(wait).ok_or(Error::Launching { call })?;
        let none_is_launched = self.under_way.hold(wait).ok_or(Error::Launching { call })?;
        // First: a device that is made meanwhile has them asleep.
        let turned = self.set_asleep(tags, true);
        let went = self.put_devices_to_sleep(tags, (call, wait), none_is_launched);
        went.map_err(|error| self.wake_again(turned, error))
    }

    fn put_devices_to_sleep(
        &self,
        tags: Option<&[&str]>,
        (call, wait): (&'static str, bool),
        none_is_launched: Held<'_>,
    ) -> Result<u64, Error> {
        let devices: Vec<_> = self.devices().collect();
        let _returned: Vec<_> = devices.iter().map(|device| device.returned.at_end()).collect();
        // While a device is waited for.
        let none_begins = devices.iter().map(|device| match wait {
            true => Ok(device.begins_captures.lock()),
            // Another thread's wait for the device ends with what runs there.
            false => {
                let begins = device.begins_captures.try_lock();
                begins.ok_or(Error::DeviceRuns { device: device.number })
            }
        });
        let none_begins: Vec<_> = none_begins.collect::<Result<_, Error>>()?;
        devices.iter().try_for_each(|device| device.may_sleep(call, wait))?;
        // Where a device is idle there is nothing to wait for, but its engine takes note of that.
        let shut = devices.iter().map(|device| Ok(device.regions.shut(tags, true)?));
        let going: Vec<_> = shut.collect::<Result<_, Error>>()?;
        // The regions are captured into and launched no more, and what is not theirs may be.
        drop((none_begins, none_is_launched));
        going.into_iter().map(|regions| Ok(regions.sleep()?)).sum()
    }

    /// Wakes regions that were awake before a call that failed, and says which of them cannot be woken.
    fn wake_again(&self, turned: Vec<Arc<str>>, error: Error) -> Error {
        let turned: Vec<&str> = turned.iter().map(|tag| &**tag).collect();
        self.set_asleep(Some(&turned), false);
        let mut asleep = Vec::new();
        for device in self.devices() {
            for tag in &turned {
                // Of one that fails the device's own regions keep what it held.
                if device.regions.wake(&[*tag]).is_err() {
                    asleep.push((device.number, Arc::from(*tag)));
                }
            }
        }
        if asleep.is_empty() {
            return error;
        }
        Error::SleepsInPart { asleep, error: Box::new(error) }
    }

    /// Brings the device memory of sleeping regions back at the same addresses, and what their live blocks
    /// held; returns how many bytes came. See [`Regions::wake`](regraph::regions::Regions::wake). Where memory is
    /// short, pools that graphs have let go of are given back for it too.
    ///
    /// # Errors
    /// [`Error::UnknownRegion`]; [`Error::Launching`] where another call moves regions, which may wait for the calling
    /// thread's launch; those of that call. Regions of devices that were done before are awake then.
    pub fn wake(&self, tags: Option<&[&str]>) -> Result<u64, Error> {
        self.known_regions(tags, "wake")?;
        let _turn = self.under_way.turn(true).ok_or(Error::Launching { call: "wake" })?;
        // First: a device that is made meanwhile has them awake, and none that is awake is called asleep.
        let turned = self.set_asleep(tags, false);
        let came = self.devices().map(|device| device.wake(tags)).sum::<Result<u64, Error>>();
        came.inspect_err(|_| {
            let turned: Vec<&str> = turned.iter().map(|tag| &**tag).collect();
            self.set_asleep(Some(&turned), true);
        })
    }

    /// The figures of a device's regions, in the order of their tags; none of one that nothing was asked of.
    pub fn regions(&self, device: u32) -> Vec<Region> {
        self.made(device).map_or_else(Vec::new, |device| device.regions.report())
    }

    /// The regions that were named and not forgotten, in order.
    pub fn region_tags(&self) -> Vec<Arc<str>> {
        self.named.lock().keys().cloned().collect()
    }

    /// Whether a region sleeps, or a part of it, on any device.
    ///
    /// # Errors
    /// [`Error::UnknownRegion`].
    pub fn is_asleep(&self, tag: &str) -> Result<bool, Error> {
        self.known_regions(Some(&[tag]), "is_asleep")?;
        let mut asleep = self.named.lock().get(tag).is_some_and(|said| said.asleep);
        for device in self.devices() {
            asleep |= device.regions.is_asleep(tag)?;
        }
        Ok(asleep)
    }

    /// Shows what the host keeps of a part of the block that begins at an address: `bytes` bytes, `offset` bytes
    /// behind its beginning. See [`Regions::show_kept`](regraph::regions::Regions::show_kept).
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] where no live block begins there; [`Error::Launching`] as [`Plugin::wake`]; those of that
    /// call.
    pub fn show_kept(
        &self,
        address: u64,
        (offset, bytes): (u64, u64),
        show: impl FnMut(HostPlace, u64),
    ) -> Result<bool, Error> {
        let (device, block) = self.find(address, "show_kept")?;
        let report = device.engine.host().block_report(block)?;
        if offset.checked_add(bytes).is_none_or(|end| end > report.bytes) {
            return Ok(false);
        }
        let turn = self.under_way.turn(true);
        let _turn = turn.ok_or(Error::Launching { call: "show_kept" })?;
        Ok(device.regions.show_kept(report.pool, (address + offset, bytes), show)?)
    }

    /// Sets whether what is kept of regions stays on the host when they wake, on every device:
    /// [`Regions::retain`](regraph::regions::Regions::retain).
    pub fn retain_backups(&self, retains: bool) {
        // Held until all devices have it: one that is made meanwhile has it too.
        let _named = self.named.lock();
        self.retains.store(retains, Ordering::Relaxed);
        self.devices().for_each(|device| device.regions.retain(retains));
    }

    /// Page-locked memory of the host that regions of all devices hold, in bytes.
    pub fn region_host_bytes(&self) -> u64 {
        self.devices().map(|device| device.regions.host_bytes()).sum()
    }

    /// Gives page-locked memory that keeps nothing at present back to the host, and returns how many bytes that
    /// was. The next sleep has to lock pages anew.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_region_host(&self) -> Result<u64, Error> {
        self.devices().map(|device| Ok(device.regions.free_host()?)).sum()
    }

    fn known_regions(&self, tags: Option<&[&str]>, call: &'static str) -> Result<(), Error> {
        let known = self.named.lock();
        let unknown = tags.into_iter().flatten().find(|tag| !known.contains_key(**tag));
        unknown.map_or(Ok(()), |tag| Err(Error::UnknownRegion { call, tag: (*tag).to_owned() }))
    }
}

impl<D: Transfer> Device<D> {
    /// How a pool of captures is made.
    pub(super) fn graph_config(&self) -> PoolConfig {
        let mut config = PoolConfig::default();
        config.tag = self.graph_region.lock().clone();
        put_into_region(&mut config);
        config
    }

    /// The pool of eager work of the region that the calling thread is in.
    #[inline]
    pub(super) fn eager_pool_of_region(&self) -> Option<PoolId> {
        // Told behind the locks, and when the thread's regions may change again.
        let mut _told = None;
        current(|entered| {
            let tag = entered.tag.as_ref().filter(|_| !BEGINS.get())?;
            let mut pools = self.eager_in_regions.lock();
            if !entered.stands.load(Ordering::Acquire) {
                // Another thread has ended the stay, and the region may be forgotten.
                return None;
            }
            if let Some(&pool) = pools.get(tag) {
                return Some(pool);
            }
            _told = Some(tell_later());
            // What it borrowed from others would not sleep.
            let pool = self.engine.create_pool(PoolConfig::default().tag(tag.clone()));
            pools.insert(tag.clone(), pool);
            Some(pool)
        })
        .flatten()
    }

    /// Refuses a device on which something captures, or, unless work is waited for, runs.
    fn may_sleep(&self, call: &'static str, wait: bool) -> Result<(), Error> {
        self.end_late(&mut self.pools());
        if self.captures() {
            return Err(engine::Error::DeviceCaptures { call }.into());
        }
        if wait {
            return Ok(());
        }
        // The host does not say which streams use a live block.
        match self.engine.host().is_device_idle()? {
            Some(true) => Ok(()),
            Some(false) => Err(Error::DeviceRuns { device: self.number }),
            None => Err(engine::Error::DeviceCaptures { call }.into()),
        }
    }

    fn wake(&self, tags: Option<&[&str]>) -> Result<u64, Error> {
        let _returned = self.returned.at_end();
        match self.regions.wake(tags) {
            Err(engine::Error::OutOfMemory(_)) if self.last_resort() => {}
            woken => return Ok(woken?),
        }
        Ok(self.regions.wake(tags)?)
    }
}
