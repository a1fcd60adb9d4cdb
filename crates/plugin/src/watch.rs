//! Telling a host of memory as it comes and goes, call by call.
//!
//! Communication libraries register the memory that comes to lie at addresses, and must let go of it
//! before it leaves them. So what the driver is asked for is told where it is asked: memory when it can
//! be used, and again before it goes, under the address and size that it came with.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use regraph::driver::{Driver, HostApi, Result, StreamHandle, Transfer};
use regraph::snapshot::Action;
use regraph::sync::{AtomicBool, Mutex, Ordering, Rank};

use super::oversize::Oversize;
use super::pools::{PoolKey, UNNAMED};

/// Something that happens to memory. What is told of segments and blocks is what PyTorch calls so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Happening {
    /// What happens: memory that was mapped to fill a reservation, or allocated, is a segment.
    pub action: Action,
    /// The device's number.
    pub device: u32,
    /// Where.
    pub address: u64,
    /// A segment's own bytes; of a block what was asked for.
    pub bytes: u64,
    /// The stream that asked for it; the default stream where none did.
    pub stream: StreamHandle,
    /// The pool's name, for which it was asked.
    pub key: PoolKey,
}

/// Told of what happens, some of it with an engine's locks held: it must not call the plug-in.
pub type Watcher = Arc<dyn Fn(&Happening) + Send + Sync>;

thread_local! {
    /// Who asks for memory in this thread.
    static ASKING: Cell<(PoolKey, StreamHandle)> =
        const { Cell::new((UNNAMED, StreamHandle::from_bits(0))) };
}

/// Who watches.
pub(super) struct Watch {
    any: AtomicBool,
    watchers: Mutex<Vec<Watcher>>,
    arrivals: Mutex<Arrivals>,
}

/// In which order memory came to devices.
#[derive(Default)]
struct Arrivals {
    /// How many pieces have come, by device.
    counts: BTreeMap<u32, u64>,
    /// By device and address: the size, and how many came before.
    at: BTreeMap<(u32, u64), (u64, u64)>,
    /// Counts of oversize pieces, by device.
    oversize: BTreeMap<u32, Oversize>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("any", &self.any).finish_non_exhaustive()
    }
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            watchers: Mutex::new(Rank::Watchers, Vec::new()),
            arrivals: Mutex::new(Rank::Arrivals, Arrivals::default()),
        }
    }

    pub(super) fn add(&self, watcher: Watcher) {
        self.watchers.lock().push(watcher);
        self.any.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// From now on pieces of at least `least` bytes on a device count as oversize.
    pub(super) fn count_oversize(&self, device: u32, least: Option<u64>) {
        // Of two threads that make a device the first may have got memory there.
        self.arrivals.lock().oversize.entry(device).or_insert_with(|| Oversize::new(least));
    }

    /// What is counted of oversize pieces on a device.
    pub(super) fn oversize(&self, device: u32, look: impl FnMut(&Oversize)) {
        self.arrivals.lock().oversize.get(&device).into_iter().for_each(look);
    }

    /// Notes that memory has come to an address.
    pub(super) fn note_arrival(&self, device: u32, address: u64, bytes: u64) {
        let mut arrivals = self.arrivals.lock();
        let count = arrivals.counts.entry(device).or_default();
        let before = *count;
        *count += 1;
        arrivals.at.insert((device, address), (bytes, before));
        let oversize = arrivals.oversize.get(&device).filter(|oversize| oversize.has(bytes));
        oversize.into_iter().for_each(Oversize::rise);
    }

    pub(super) fn forget_arrival(&self, device: u32, address: u64) {
        let mut arrivals = self.arrivals.lock();
        let Some((bytes, _)) = arrivals.at.remove(&(device, address)) else { return };
        let oversize = arrivals.oversize.get(&device).filter(|oversize| oversize.has(bytes));
        oversize.into_iter().for_each(Oversize::fall);
    }

    /// How many pieces of memory came to a device before the one at an address.
    pub(super) fn arrival(&self, device: u32, address: u64) -> Option<u64> {
        let arrivals = self.arrivals.lock();
        let (&(of, start), &(bytes, before)) =
            arrivals.at.range(..=(device, address)).next_back()?;
        (of == device && address - start < bytes).then_some(before)
    }

    pub(super) fn tell(&self, happening: &Happening) {
        // Not under the lock: two engines may tell at once.
        let watchers = self.watchers.lock().clone();
        watchers.iter().for_each(|watcher| watcher(happening));
    }

    /// Runs a request, and notes for what comes from the driver meanwhile who asks.
    pub(super) fn asking<R>(
        &self,
        key: PoolKey,
        stream: StreamHandle,
        request: impl FnOnce() -> R,
    ) -> R {
        /// Puts back who asked before, even if the request panics.
        struct Restore((PoolKey, StreamHandle));
        impl Drop for Restore {
            fn drop(&mut self) {
                // A thread that ends has no variables any more.
                let _ = ASKING.try_with(|asking| asking.set(self.0));
            }
        }
        let before = ASKING.try_with(|asking| asking.replace((key, stream)));
        let _restore = before.ok().map(Restore);
        request()
    }
}

/// A driver whose mappings and allocations are told to those who watch.
pub struct Watched<D> {
    driver: D,
    device: u32,
    watch: Arc<Watch>,
    /// Reservations, and what is mapped in them, or allocated.
    ranges: Mutex<Ranges>,
}

#[derive(Default)]
struct Ranges {
    /// Sizes by address.
    reserved: BTreeMap<u64, u64>,
    got: BTreeMap<u64, Got>,
}

/// Memory at an address.
#[derive(Clone, Copy)]
struct Got {
    bytes: u64,
    whole: bool,
    /// Whether it can be used, which has been told where someone watched.
    usable: bool,
    by: (PoolKey, StreamHandle),
}

impl<D> Watched<D> {
    pub(super) fn new(driver: D, device: u32, watch: Arc<Watch>) -> Self {
        Self { driver, device, watch, ranges: Mutex::new(Rank::Ranges, Ranges::default()) }
    }

    fn enter(&self, address: u64, bytes: u64, allocated: bool) {
        let mut ranges = self.ranges.lock();
        let whole = allocated || ranges.reserved.get(&address) == Some(&bytes);
        let by = ASKING.try_with(Cell::get).unwrap_or((UNNAMED, StreamHandle::from_bits(0)));
        ranges.got.insert(address, Got { bytes, whole, usable: false, by });
        self.watch.note_arrival(self.device, address, bytes);
    }

    /// Tells of what can be used from now on, or else of what is about to go.
    fn set_usable(&self, address: u64, bytes: u64, usable: bool) {
        let mut turned = Vec::new();
        for (&at, got) in self.ranges.lock().got.range_mut(address..address + bytes) {
            if std::mem::replace(&mut got.usable, usable) != usable {
                turned.push((at, *got));
            }
        }
        for (address, got) in turned.into_iter().filter(|_| self.watch.is_on()) {
            let action = match (usable, got.whole) {
                (true, true) => Action::SegmentAlloc,
                (true, false) => Action::SegmentMap,
                (false, true) => Action::SegmentFree,
                (false, false) => Action::SegmentUnmap,
            };
            let Got { bytes, by: (key, stream), .. } = got;
            let device = self.device;
            self.watch.tell(&Happening { action, device, address, bytes, stream, key });
        }
    }

    /// Has the driver take memory back. What it refuses to take is told to come again, but for what
    /// could not be used before.
    fn take(&self, address: u64, bytes: u64, take: impl FnOnce(&D) -> Result<()>) -> Result<()> {
        let usable = self.ranges.lock().got.get(&address).is_some_and(|got| got.usable);
        self.set_usable(address, bytes, false);
        let taken = take(&self.driver);
        if taken.is_ok() {
            let mut ranges = self.ranges.lock();
            while let Some((&gone, _)) = ranges.got.range(address..address + bytes).next() {
                ranges.got.remove(&gone);
                self.watch.forget_arrival(self.device, gone);
            }
        } else if usable {
            self.set_usable(address, bytes, true);
        }
        taken
    }
}

impl<D> Deref for Watched<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.driver
    }
}

impl<D: Driver> Driver for Watched<D> {
    regraph::forward_driver!(all but mappings);

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let address = self.driver.reserve(bytes)?;
        self.ranges.lock().reserved.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        let reserved = self.ranges.lock().reserved.remove(&address);
        let result = self.driver.unreserve(address, bytes);
        if let (Err(_), Some(bytes)) = (&result, reserved) {
            self.ranges.lock().reserved.insert(address, bytes);
        }
        result
    }

    fn map(&self, address: u64, bytes: u64, memory: regraph::driver::MemoryHandle) -> Result<()> {
        self.driver.map(address, bytes, memory)?;
        self.enter(address, bytes, false);
        Ok(())
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.driver.set_access(address, bytes)?;
        self.set_usable(address, bytes, true);
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.take(address, bytes, |driver| driver.unmap(address, bytes))
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        let address = self.driver.allocate(bytes)?;
        self.enter(address, bytes, true);
        self.set_usable(address, bytes, true);
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        // One allocation.
        self.take(address, 1, |driver| driver.free(address))
    }
}

impl<D: HostApi> HostApi for Watched<D> {
    regraph::forward_host_api!();
}

impl<D: Transfer> Transfer for Watched<D> {
    regraph::forward_transfer!();
}
