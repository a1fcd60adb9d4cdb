//! Locks, atomics and threads: the standard library's, or shuttle's with `--cfg shuttle`.
//!
//! Every lock has a [`Rank`], and a thread takes locks in ascending order of their ranks alone. Builds with debug
//! assertions panic where a thread does otherwise, with both locks and where they are taken; other builds know no
//! ranks. `design/architecture.md` has them as a table.
//!
//! Shuttle runs a test again and again with its threads interleaved at random. It sees only what
//! goes through its own types, so everything that threads share is built from these. They work
//! inside shuttle's runs alone: an ordinary test cannot run in a build for shuttle.

#![allow(unused_imports, reason = "one set for all, of which not every part is in use")]
#![allow(clippy::disallowed_types, reason = "these are made of them")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[cfg(shuttle)]
use shuttle::sync;
#[cfg(not(shuttle))]
use std::sync;

#[cfg(shuttle)]
pub use shuttle::thread;
#[cfg(not(shuttle))]
pub use std::thread;

#[cfg(shuttle)]
pub use shuttle::thread_local;
#[cfg(not(shuttle))]
pub use std::thread_local;

pub use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The number of locks of a rank that a thread may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// One.
    Alone,
    /// Several, taken in ascending order of their numbers ([`Mutex::numbered`]), and those without one of their
    /// addresses.
    Ascending,
}

/// Whether a driver is called with a lock of a rank held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// It may be.
    Called,
    /// It never is: builds with debug assertions panic where the simulated driver is.
    NotCalled,
}

macro_rules! ranks {
    ($(#[doc = $guards:literal] $rank:ident: $held:ident, $driver:ident;)*) => {
        /// The locks in the order in which a thread takes them, by what they guard.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rank {
            $(#[doc = $guards] $rank,)*
        }

        impl Rank {
            /// All ranks, ascending: each with what its locks guard, whether a thread holds several of them at once,
            /// and whether the driver is called meanwhile.
            pub const ALL: &[(Self, &'static str, Hold, Driver)] =
                &[$((Self::$rank, $guards, Hold::$held, Driver::$driver),)*];
        }
    };
}

ranks! {
    /// The Python module's tables of launches, loans and settings, and the estimate under way.
    Python: Alone, NotCalled;
    /// The captures, graphs and pools that callers of the C library name.
    HostTable: Alone, NotCalled;
    /// A graph that callers of the C library name.
    HostGraph: Alone, Called;
    /// What a process offers to others, and its socket.
    Offers: Alone, NotCalled;
    /// The memory of other processes that this process has opened.
    Opened: Alone, Called;
    /// The plug-in's current settings, from which devices are made.
    Settings: Alone, Called;
    /// What the engines' histories are to keep.
    HistoryOptions: Alone, Called;
    /// The settings that the host gave for regions, by tag.
    Named: Alone, Called;
    /// The right to add routes of captures on a device, or to wait for the device; of several in the order of their numbers.
    BeginsCaptures: Ascending, Called;
    /// A device's named pools; of several devices in the order of their numbers.
    DevicePools: Ascending, Called;
    /// The region into which captures outside all regions put their pools.
    GraphRegion: Alone, NotCalled;
    /// The regions that threads have entered and not left.
    Stays: Alone, NotCalled;
    /// A device's pools of eager work in regions.
    EagerPools: Alone, Called;
    /// The streams that use a buffer.
    BufferUses: Alone, Called;
    /// What the regions of an engine keep on the host, and the right to move them; of several by the devices' numbers.
    Regions: Ascending, Called;
    /// What was said of the regions of an engine, and their figures.
    RegionsTold: Alone, NotCalled;
    /// The launches of a pool; of several pools in the order of their addresses.
    Order: Ascending, Called;
    /// The executables of a pool's graphs, or of all graphs whose executables are kept together.
    Executables: Alone, Called;
    /// The right to wait for the device, or to begin a capture.
    DeviceWaits: Alone, Called;
    /// The engine's tables of pools, blocks and streams.
    Engine: Alone, Called;
    /// The free blocks that a stream has cached; of several streams in the order of their numbers.
    StreamCache: Ascending, Called;
    /// The peaks of the figures of an engine and of its pools.
    Peaks: Alone, NotCalled;
    /// The captures that are closed, each with the record that it is judged by until a thread takes it.
    Verdicts: Alone, NotCalled;
    /// A device's routes; the host's filters run while it is held.
    Routes: Alone, Called;
    /// The captures that only show what they need, and whose graphs are dropped.
    Shown: Alone, NotCalled;
    /// The launches that are under way.
    Launches: Alone, NotCalled;
    /// The reports of a device's latest captures.
    Reports: Alone, NotCalled;
    /// A part of the table of live blocks by address.
    Addresses: Alone, NotCalled;
    /// The memory that the host's sources are to take back.
    Returned: Alone, NotCalled;
    /// The exports that other processes may fetch.
    Exports: Alone, NotCalled;
    /// The loans of this process to others.
    Loans: Alone, NotCalled;
    /// The memory that a device's driver has mapped and allocated.
    Ranges: Alone, NotCalled;
    /// The order in which memory was mapped and allocated.
    Arrivals: Alone, NotCalled;
    /// The functions that are told when memory comes and goes.
    Watchers: Alone, NotCalled;
    /// The functions that are told of requests that fail.
    Observers: Alone, NotCalled;
    /// The contexts in which cudarc tracks no events.
    Tracking: Alone, Called;
    /// The simulated driver's tables.
    Driver: Alone, Called;
    /// The contents of a piece of the simulated host's memory.
    HostNumbers: Alone, NotCalled;
    /// The callback of the C library's messages, while it runs.
    Messages: Alone, NotCalled;
}

/// A lock. What it guards is whole after every step that is taken with it, so it serves on after a panic; but see
/// [`Mutex::lock_whole`].
pub struct Mutex<T> {
    #[cfg(debug_assertions)]
    place: (Rank, Option<u64>),
    /// How many threads wait in [`Mutex::lock_whole`]. Not shuttle's, to which a hint is no step.
    waiting: std::sync::atomic::AtomicU32,
    inner: sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock that no thread holds.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self::placed(rank, None, value)
    }

    /// A lock of a rank of which a thread may hold several, in ascending order of their numbers.
    pub const fn numbered(rank: Rank, number: u64, value: T) -> Self {
        Self::placed(rank, Some(number), value)
    }

    const fn placed(rank: Rank, number: Option<u64>, value: T) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = (rank, number);
        Self {
            #[cfg(debug_assertions)]
            place: (rank, number),
            waiting: std::sync::atomic::AtomicU32::new(0),
            inner: sync::Mutex::new(value),
        }
    }

    /// Waits for the lock, and takes it whether a thread panicked with it held or not.
    ///
    /// # Panics
    /// With debug assertions, where the thread holds a lock that comes later.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let entry = self.enter(true);
        let inner = self.wait().unwrap_or_else(sync::PoisonError::into_inner);
        MutexGuard { inner, entry }
    }

    /// Waits for the lock, counted where another thread has it: [`Mutex::let_others`] lets those have it that wait.
    #[inline]
    fn wait(&self) -> std::sync::LockResult<sync::MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(std::sync::TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let inner = self.inner.lock();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                inner
            }
        }
    }

    /// Waits for the lock; `None` where a thread panicked with it held. For values that a panic may leave wrong, and
    /// that no call may use from then on.
    ///
    /// # Panics
    /// As [`Mutex::lock`].
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_whole(&self) -> Option<MutexGuard<'_, T>> {
        let entry = self.enter(true);
        Some(MutexGuard { inner: self.wait().ok()?, entry })
    }

    /// For a thread that has let the lock go and is to take it again at once: lets those have it that wait for it, for
    /// a while. They would not get it otherwise, since they have to be woken first.
    pub fn let_others(&self) {
        const PAUSE: std::time::Duration = std::time::Duration::from_micros(20);
        const PAUSES: u32 = 8;
        for _ in 0..PAUSES {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Takes the lock where no other thread holds it and none panicked with it held. Waits for nothing, and so may come
    /// in any order.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock().ok()?;
        Some(MutexGuard { inner, entry: self.enter(false) })
    }

    /// The value that the lock guards: no other thread has the lock.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(sync::PoisonError::into_inner)
    }

    /// The value that the lock guarded.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(sync::PoisonError::into_inner)
    }

    /// Whether a thread panicked with the lock held. Under shuttle such a panic ends the run.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        #[cfg(shuttle)]
        let poisoned = false;
        #[cfg(not(shuttle))]
        let poisoned = self.inner.is_poisoned();
        poisoned
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn enter(&self, waits: bool) -> Entry {
        #[cfg(debug_assertions)]
        let entry = Entry::new(self.place, std::ptr::from_ref(self) as usize, waits);
        #[cfg(not(debug_assertions))]
        let (_, entry) = (waits, std::marker::PhantomData);
        entry
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Holds a [`Mutex`] until it is dropped.
#[must_use = "the lock is let go at once"]
pub struct MutexGuard<'a, T> {
    inner: sync::MutexGuard<'a, T>,
    entry: Entry,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Lets threads wait for a change of what a lock guards.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// One that no thread waits for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the lock go until [`Condvar::notify_all`] is called, or for no reason: for so long at most, without an end
    /// where there is no such time.
    ///
    /// # Panics
    /// With debug assertions, where the thread holds another lock.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Option<Duration>,
    ) -> MutexGuard<'a, T> {
        #[cfg(debug_assertions)]
        guard.entry.must_be_alone();
        let inner = match patience {
            None => self.0.wait(guard.inner).unwrap_or_else(sync::PoisonError::into_inner),
            Some(patience) => {
                let waited = self.0.wait_timeout(guard.inner, patience);
                waited.unwrap_or_else(sync::PoisonError::into_inner).0
            }
        };
        MutexGuard { inner, entry: guard.entry }
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// The calling thread is about to run code of the host's, which may make any call.
///
/// # Panics
/// With debug assertions, where it holds a lock.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn must_hold_none(what: &str) {
    #[cfg(debug_assertions)]
    order::must_hold_but(what, None);
    #[cfg(not(debug_assertions))]
    let _ = what;
}

#[cfg(debug_assertions)]
use order::Entry;

/// Builds without debug assertions keep no books.
#[cfg(not(debug_assertions))]
type Entry = std::marker::PhantomData<()>;

/// The order in which each thread takes its locks.
#[cfg(debug_assertions)]
mod order {
    use std::cell::RefCell;
    use std::fmt;
    use std::panic::Location;

    use super::{thread_local, Driver, Hold, Rank};

    /// A lock that a thread holds.
    #[derive(Clone, Copy)]
    struct TakenLock {
        rank: Rank,
        /// Its place among those of its rank.
        number: u64,
        address: usize,
        at: &'static Location<'static>,
    }

    impl fmt::Display for TakenLock {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:?} ({:#x}, at {})", self.rank, self.number, self.at)
        }
    }

    impl TakenLock {
        /// Whether a thread that holds this may wait for another.
        fn comes_before(&self, other: &Self) -> bool {
            let (_, _, held, driver) = Rank::ALL[self.rank as usize];
            let ascends = self.rank < other.rank
                || self.rank == other.rank && held == Hold::Ascending && self.number < other.number;
            ascends && (other.rank != Rank::Driver || driver == Driver::Called)
        }
    }

    thread_local! {
        static TAKEN: RefCell<Vec<TakenLock>> = const { RefCell::new(Vec::new()) };
    }

    /// That a thread holds a lock.
    pub(super) struct Entry {
        address: usize,
    }

    impl Entry {
        #[track_caller]
        pub(super) fn new(
            (rank, number): (Rank, Option<u64>),
            address: usize,
            waits: bool,
        ) -> Self {
            let number = number.unwrap_or(address as u64);
            let taken = TakenLock { rank, number, address, at: Location::caller() };
            // A thread that ends keeps no books any more.
            let wrong = TAKEN.try_with(|all| {
                let wrong = all.borrow().iter().find(|held| !held.comes_before(&taken)).copied();
                all.borrow_mut().push(taken);
                wrong
            });
            let entry = Self { address };
            if let (Ok(Some(held)), true, false) = (wrong, waits, std::thread::panicking()) {
                panic!("locks out of order: {taken} is to be taken with {held} held");
            }
            entry
        }

        #[track_caller]
        pub(super) fn must_be_alone(&self) {
            must_hold_but("a change is waited for", Some(self.address));
        }
    }

    #[track_caller]
    pub(super) fn must_hold_but(what: &str, address: Option<usize>) {
        let other = |held: &&TakenLock| Some(held.address) != address;
        let held = TAKEN.try_with(|all| all.borrow().iter().find(other).copied());
        if let (Ok(Some(held)), false) = (held, std::thread::panicking()) {
            panic!("{what} with {held} held");
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            let _ = TAKEN.try_with(|all| {
                let mut all = all.borrow_mut();
                if let Some(row) = all.iter().rposition(|held| held.address == self.address) {
                    all.remove(row);
                }
            });
        }
    }
}
