//! Which requests belong to which pool.
//!
//! A route takes the streams that a filter of the host's names, those that are in one capture, or all requests
//! of one thread. Each thread keeps its own of the last kind by itself, so that they cost other threads nothing.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::thread::ThreadId;

use regraph::driver::{CaptureId, GraphHandle, StreamHandle};
use regraph::engine::{Lent, PoolId};
use regraph::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Rank};

use super::regions::entered_at;
use super::{Error, PoolKey};

/// Says whether requests of a stream belong to a route. May be asked from any thread until the host has announced the
/// capture ([`Plugin::capture_begun`](super::Plugin::capture_begun)) or ended the route; it must not call the plug-in.
pub type Filter = Arc<dyn Fn(StreamHandle) -> bool + Send + Sync>;

/// The graph that a capture has come to, where the host has it and has neither instantiated nor destroyed it; `None`
/// where that is not known. Asked while the route of a capture that was not announced is ended, and at no other time.
pub type EndedGraph = Arc<dyn Fn(CaptureId) -> Option<GraphHandle> + Send + Sync>;

/// Where the requests of some streams or of a thread go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) key: PoolKey,
    pub(super) pool: PoolId,
    /// Counts up over all routes of the process.
    pub(super) serial: u64,
    /// What the pool lends to its requests first.
    pub(super) lent: Option<Lent>,
}

/// What a route takes.
enum Takes {
    Streams(Filter),
    /// What is in the capture that the route was begun for.
    Capture,
    /// What its thread asks for, as long as this is set.
    Thread(Arc<AtomicBool>),
}

impl Takes {
    /// Whether it takes streams, whichever thread asks.
    fn streams(&self) -> bool {
        match self {
            Self::Streams(_) | Self::Capture => true,
            Self::Thread(_) => false,
        }
    }
}

/// A route that stands.
struct Standing {
    route: Route,
    takes: Takes,
    thread: ThreadId,
    ended_graph: Option<EndedGraph>,
    /// The capture that it was begun for, once the host has announced that: the route takes what is in
    /// it and nothing else.
    capture: Option<CaptureId>,
}

/// What is left of a route that was taken away.
pub(super) struct Removed {
    pub(super) key: PoolKey,
    /// What it says of the graph that came of it.
    pub(super) ended_graph: Option<EndedGraph>,
    /// The capture that it was begun for, and the pool that routes lead that to from now on.
    pub(super) capture: Option<(CaptureId, Option<PoolId>)>,
}

/// The pool of the latest route of streams that was begun for a capture.
fn pool_of(routes: &[Standing], capture: CaptureId) -> Option<PoolId> {
    let of_streams = routes.iter().rev().filter(|it| it.takes.streams());
    of_streams.filter(|it| it.capture == Some(capture)).map(|it| it.route.pool).next()
}

/// A thread's own route.
struct Own {
    /// Which device's.
    routes: u64,
    route: Route,
    stands: Arc<AtomicBool>,
}

thread_local! {
    /// How many of the thread's own routes there may be.
    static OWN_COUNT: Cell<usize> = const { Cell::new(0) };
    /// The latest last.
    static OWN: RefCell<Vec<Own>> = const { RefCell::new(Vec::new()) };
}

/// Tells routes and lists of them apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Tells what a thread has entered apart, in the order of time.
pub(super) fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The routes of a device, the latest last.
pub(super) struct Routes {
    number: u64,
    routes: Mutex<Vec<Standing>>,
    /// How many take streams, by a filter or a capture, for a look without the lock.
    of_streams: AtomicUsize,
    /// How many of these take streams by a filter of which it is not known for which capture it was begun.
    by_filter: AtomicUsize,
}

impl Routes {
    pub(super) fn new() -> Self {
        let routes = Mutex::new(Rank::Routes, Vec::new());
        let (of_streams, by_filter) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { number: next(), routes, of_streams, by_filter }
    }

    /// Adds a route of the streams that a filter takes.
    pub(super) fn push(
        &self,
        key: PoolKey,
        pool: PoolId,
        filter: Filter,
        ended_graph: Option<EndedGraph>,
    ) -> u64 {
        self.enter((key, pool, None), Takes::Streams(filter), ended_graph, None).serial
    }

    /// Adds a route of the streams that are in a capture.
    pub(super) fn push_capture(&self, key: PoolKey, pool: PoolId, capture: CaptureId) -> u64 {
        self.enter((key, pool, None), Takes::Capture, None, Some(capture)).serial
    }

    /// Adds a route of all that the calling thread asks for, to what the pool lends first where that is said.
    pub(super) fn push_thread(&self, key: PoolKey, pool: PoolId, lent: Option<Lent>) -> u64 {
        let stands = Arc::new(AtomicBool::new(true));
        let takes = Takes::Thread(Arc::clone(&stands));
        let route = self.enter((key, pool, lent), takes, None, None);
        OWN.with_borrow_mut(|own| {
            own.push(Own { routes: self.number, route, stands });
            OWN_COUNT.set(own.len());
        });
        route.serial
    }

    fn enter(
        &self,
        (key, pool, lent): (PoolKey, PoolId, Option<Lent>),
        takes: Takes,
        ended_graph: Option<EndedGraph>,
        capture: Option<CaptureId>,
    ) -> Route {
        let mut routes = self.routes.lock();
        let route = Route { key, pool, serial: next(), lent };
        let thread = std::thread::current().id();
        routes.push(Standing { route, takes, thread, ended_graph, capture });
        self.count(&routes);
        route
    }

    /// Takes the latest route to a pool away: of those that the calling thread has begun, if there is
    /// any, else of all. One to temporary memory goes by its number alone.
    pub(super) fn remove(&self, key: PoolKey) -> Option<Removed> {
        let this = std::thread::current().id();
        let mut routes = self.routes.lock();
        let leads = |it: &Standing| it.route.key == key && it.route.lent != Some(Lent::Temporary);
        let mine = routes.iter().rposition(|it| leads(it) && it.thread == this);
        let row = mine.or_else(|| routes.iter().rposition(leads));
        Some(self.take_out(&mut routes, row?))
    }

    /// Takes one route away, if it still stands.
    pub(super) fn remove_one(&self, serial: u64) -> Option<Removed> {
        let mut routes = self.routes.lock();
        let row = routes.iter().position(|it| it.route.serial == serial)?;
        Some(self.take_out(&mut routes, row))
    }

    fn take_out(&self, routes: &mut Vec<Standing>, row: usize) -> Removed {
        let Standing { route, takes, ended_graph, capture, .. } = routes.remove(row);
        if let Takes::Thread(stands) = &takes {
            // The thread forgets it when it looks next.
            stands.store(false, Ordering::Release);
        }
        self.count(routes);
        let capture = capture.map(|capture| (capture, pool_of(routes, capture)));
        Removed { key: route.key, ended_graph, capture }
    }

    fn count(&self, routes: &[Standing]) {
        let of_streams = routes.iter().filter(|it| it.takes.streams());
        let by_filter = of_streams.clone().filter(|it| it.capture.is_none());
        self.by_filter.store(by_filter.count(), Ordering::Release);
        self.of_streams.store(of_streams.count(), Ordering::Release);
    }

    /// Whether a route to a pool stands.
    pub(super) fn lead_to(&self, key: PoolKey) -> bool {
        self.routes.lock().iter().any(|it| it.route.key == key)
    }

    /// A route, if it still stands.
    pub(super) fn by_serial(&self, serial: u64) -> Option<Route> {
        self.routes.lock().iter().map(|it| it.route).find(|route| route.serial == serial)
    }

    /// Notes which capture a route was begun for. What the host gave to tell that and its graph, which may look at a graph
    /// object that is gone, is dropped. Returns the pool that the routes lead that capture to from now on.
    pub(super) fn announce(&self, serial: u64, capture: CaptureId) -> Option<PoolId> {
        // Dropped behind the lock.
        let mut told = None;
        let mut routes = self.routes.lock();
        if let Some(it) = routes.iter_mut().find(|it| it.route.serial == serial) {
            it.capture = Some(capture);
            told = Some((std::mem::replace(&mut it.takes, Takes::Capture), it.ended_graph.take()));
        }
        self.count(&routes);
        let pool = pool_of(&routes, capture);
        drop((routes, told));
        pool
    }

    /// Whether the capture that a stream is in says which route takes a request of the calling thread: the thread has no
    /// route of its own, and it is known of each filter which capture it was begun for.
    #[inline]
    pub(super) fn go_by_captures(&self) -> bool {
        (OWN_COUNT.get() == 0 || self.own().is_none())
            && self.by_filter.load(Ordering::Acquire) == 0
    }

    /// Whether no route takes anything that the calling thread asks for.
    #[inline]
    pub(super) fn take_nothing(&self) -> bool {
        OWN_COUNT.get() == 0 && self.take_no_streams()
    }

    /// Whether no route takes streams: those of captures do.
    #[inline]
    pub(super) fn take_no_streams(&self) -> bool {
        self.of_streams.load(Ordering::Acquire) == 0
    }

    /// The latest route that takes what the calling thread asks for on a stream. `capture_of` asks the driver
    /// which capture the stream is in.
    #[inline]
    pub(super) fn of(
        &self,
        stream: StreamHandle,
        capture_of: impl FnOnce() -> Result<Option<CaptureId>, Error>,
    ) -> Result<Option<Route>, Error> {
        let own = if OWN_COUNT.get() == 0 { None } else { self.own() };
        if self.take_no_streams() {
            return Ok(own);
        }
        let of_stream = self.of_stream(stream, capture_of()?);
        Ok(match (own, of_stream) {
            (Some(own), Some(of_stream)) if own.serial < of_stream.serial => Some(of_stream),
            (own, of_stream) => own.or(of_stream),
        })
    }

    /// The latest route that takes a stream, which is in `capture`.
    fn of_stream(&self, stream: StreamHandle, capture: Option<CaptureId>) -> Option<Route> {
        // The host's filters run under the lock: a route cannot go while its filter runs. They look at
        // the driver and at nothing else.
        let routes = self.routes.lock();
        let takes = |it: &&Standing| match &it.takes {
            Takes::Streams(filter) => filter(stream),
            Takes::Capture => capture.is_some() && it.capture == capture,
            Takes::Thread(_) => false,
        };
        routes.iter().rev().find(takes).map(|it| it.route)
    }

    /// The calling thread's latest route on the device, unless the thread has entered a region since.
    fn own(&self) -> Option<Route> {
        let route = OWN.with_borrow_mut(|own| {
            own.retain(|it| it.stands.load(Ordering::Acquire));
            OWN_COUNT.set(own.len());
            own.iter().rev().find(|it| it.routes == self.number).map(|it| it.route)
        });
        let entered = entered_at();
        route.filter(|route| entered.is_none_or(|entered| entered < route.serial))
    }
}
