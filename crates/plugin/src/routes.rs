//! Which requests belong to which pool.

use std::sync::Arc;
use std::thread::ThreadId;

use regraph::driver::StreamHandle;
use regraph::engine::PoolId;
use regraph::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};

use super::PoolKey;

/// Says whether requests of a stream belong to a route. May be asked from any thread, as long as the
/// route stands and for a moment after; it must not call the plug-in.
pub type Filter = Arc<dyn Fn(StreamHandle) -> bool + Send + Sync>;

/// Where the requests of some streams go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) key: PoolKey,
    pub(super) pool: PoolId,
    /// Counts up over all routes of the device.
    pub(super) serial: u64,
}

/// A route that stands.
struct Standing {
    route: Route,
    filter: Filter,
    thread: ThreadId,
}

/// The routes of a device, the latest last.
#[derive(Default)]
pub(super) struct Routes {
    routes: Mutex<Vec<Standing>>,
    /// How many there are, for a look without the lock.
    count: AtomicUsize,
    serial: AtomicU64,
}

impl Routes {
    pub(super) fn push(&self, key: PoolKey, pool: PoolId, filter: Filter) -> u64 {
        let thread = std::thread::current().id();
        let mut routes = self.lock();
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        routes.push(Standing { route: Route { key, pool, serial }, filter, thread });
        self.count.store(routes.len(), Ordering::Release);
        serial
    }

    /// Takes the latest route to a pool away: of those that the calling thread has begun, if there is
    /// any, else of all.
    pub(super) fn remove(&self, key: PoolKey) {
        let this = std::thread::current().id();
        let mut routes = self.lock();
        let mine = routes.iter().rposition(|it| it.route.key == key && it.thread == this);
        let row = mine.or_else(|| routes.iter().rposition(|it| it.route.key == key));
        if let Some(row) = row {
            routes.remove(row);
        }
        self.count.store(routes.len(), Ordering::Release);
    }

    /// Takes one route away, if it still stands, and says to which pool.
    pub(super) fn remove_one(&self, serial: u64) -> Option<PoolKey> {
        let mut routes = self.lock();
        let row = routes.iter().position(|it| it.route.serial == serial)?;
        let gone = routes.remove(row);
        self.count.store(routes.len(), Ordering::Release);
        Some(gone.route.key)
    }

    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The latest route that takes a stream.
    #[inline]
    pub(super) fn of(&self, stream: StreamHandle) -> Option<Route> {
        if self.are_none() {
            return None;
        }
        // The host's filters run under the lock: a route cannot go while its filter runs. They look at
        // the driver and at nothing else.
        let routes = self.lock();
        routes.iter().rev().find(|it| (it.filter)(stream)).map(|it| it.route)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Standing>> {
        // No step leaves the list half changed.
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
