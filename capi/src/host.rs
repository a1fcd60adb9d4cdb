//! An engine with the objects that callers name by id.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, ExecutableHandle, GraphHandle, HostApi, StreamHandle,
    Transfer,
};
use regraph::engine::{self, Block, CaptureReport, Config, Engine, GraphId, PoolConfig, PoolId};
use regraph::graphs::{Capture, Error, Graph, Lease, Pool, Unknown};
use regraph::regions::Regions;
use regraph::sync::{Mutex, Rank};
use regraph::tell_later;
use regraph_sim::probe::Estimate;

use crate::failure::{Failure, Fallible};

/// An engine, and what belongs to it until the caller destroys it.
pub(crate) struct Host<D: Transfer> {
    // Dropped in this order: captures and graphs use pools. Regions go last: pools that sleep are destroyed.
    captures: Table<CaptureId, StreamCapture<D>>,
    /// The pools of closed captures that callers have begun: their graphs are launched in the order of these.
    closed: Table<CaptureId, Vec<Pool<D>>>,
    graphs: Table<GraphId, Arc<Mutex<Held<D>>>>,
    /// By the pool that their captures allocate from. One thread at a time has one, out of the table.
    estimates: Table<PoolId, Estimate<D>>,
    pools: Table<PoolId, Pool<D>>,
    /// Pools that callers have given up while captures used them.
    leaving: Table<PoolId, Pool<D>>,
    engine: Arc<Engine<D>>,
    regions: Regions<D>,
}

/// A graph that has not been released.
enum Held<D: HostApi> {
    /// The library instantiated it.
    Graph(Graph<D>),
    /// The caller instantiates it.
    Lease(Lease<D>, CaptureReport),
}

/// A capture that the library began on a stream.
struct StreamCapture<D: HostApi> {
    capture: Capture<D>,
    pool: Pool<D>,
    mode: CaptureMode,
}

// SAFETY: captures stay on their thread because CUDA asks for it, and the header asks callers for the
// same; nothing in one is bound to a thread. One thread at a time has it: every call that uses it
// takes it out of its table first.
unsafe impl<D: HostApi> Send for StreamCapture<D> {}

type Table<I, T> = Mutex<BTreeMap<I, T>>;

fn table<I, T>() -> Table<I, T> {
    Mutex::new(Rank::HostTable, BTreeMap::new())
}

impl<D: Transfer> Host<D> {
    pub(crate) fn new(driver: D, config: Config) -> Self {
        let engine = Arc::new(Engine::new(driver, config));
        Self {
            captures: table(),
            closed: table(),
            graphs: table(),
            estimates: table(),
            pools: table(),
            leaving: table(),
            regions: Regions::new(&engine),
            engine,
        }
    }

    pub(crate) fn regions(&self) -> &Regions<D> {
        &self.regions
    }

    pub(crate) fn create_pool(&self, config: PoolConfig) -> PoolId {
        let pool = Pool::new(&self.engine, config);
        let id = pool.id();
        self.pools.lock().insert(id, pool);
        id
    }

    pub(crate) fn destroy_pool(&self, id: PoolId) -> Fallible<()> {
        if let Ok(pool) = self.pool(id, "destroy_pool") {
            pool.collect();
        }
        let destroyed = self.engine.destroy_pool(id);
        // After an error of the driver's the pool is the engine's, which gives the rest of its memory back later.
        if !matches!(
            destroyed,
            Err(Error::Pool { why: engine::PoolRefusal::InUse { .. }, .. } | Error::Poisoned)
        ) {
            let pool = self.pools.lock().remove(&id);
            drop(pool);
        }
        Ok(destroyed?)
    }

    pub(crate) fn release_pool(&self, pool: PoolId) -> Fallible<()> {
        // In one table before it leaves the other: a capture that ends meanwhile finds it.
        let found = self.pool(pool, "release_pool")?;
        self.leaving.lock().insert(pool, found);
        let given_up = self.pools.lock().remove(&pool);
        drop(given_up);
        self.let_pools_go();
        Ok(())
    }

    /// Drops the pools that were given up and that no capture under way uses.
    fn let_pools_go(&self) {
        let leaving: Vec<PoolId> = self.leaving.lock().keys().copied().collect();
        for pool in leaving.into_iter().filter(|&it| !self.engine.host().is_recording_into(it)) {
            let gone = self.leaving.lock().remove(&pool);
            drop(gone);
        }
    }

    /// The pools that a capture uses, as far as callers have made them.
    fn pools_of(&self, capture: CaptureId) -> Vec<Pool<D>> {
        let used = self.engine.host().pools_of(capture).unwrap_or_default();
        let found = |table: &Table<PoolId, Pool<D>>, pool| table.lock().get(pool).cloned();
        used.iter()
            .filter_map(|it| found(&self.pools, it).or_else(|| found(&self.leaving, it)))
            .collect()
    }

    pub(crate) fn pool(&self, pool: PoolId, call: &'static str) -> Fallible<Pool<D>> {
        let found = self.pools.lock().get(&pool).cloned();
        found.ok_or_else(|| Failure::unknown(call, Unknown::Pool(pool)))
    }

    /// Begins a capture on a stream, into a pool.
    pub(crate) fn begin_stream_capture(
        &self,
        pool: PoolId,
        stream: StreamHandle,
        mode: CaptureMode,
    ) -> Fallible<CaptureId> {
        let estimate = self.estimates.lock().remove(&pool);
        if let Some(estimate) = estimate {
            let begun = estimate.begin(stream, mode);
            let home = estimate.pool().clone();
            self.estimates.lock().insert(pool, estimate);
            return Ok(self.enter(begun?, home, mode));
        }
        self.begin(self.pool(pool, "begin_stream_capture")?, stream, mode)
    }

    fn begin(&self, pool: Pool<D>, stream: StreamHandle, mode: CaptureMode) -> Fallible<CaptureId> {
        let capture = Capture::begin(&pool, stream, mode)?;
        Ok(self.enter(capture, pool, mode))
    }

    fn enter(&self, capture: Capture<D>, pool: Pool<D>, mode: CaptureMode) -> CaptureId {
        let id = capture.id();
        self.captures.lock().insert(id, StreamCapture { capture, pool, mode });
        id
    }

    /// Tells the engine of a capture that the caller has begun.
    pub(crate) fn begin_capture(&self, pool: PoolId, stream: StreamHandle) -> Fallible<CaptureId> {
        if self.estimates.lock().contains_key(&pool) {
            let expected =
                "a pool of graphs; regraph_begin_stream_capture() begins the captures of an estimate";
            return Err(Failure::argument("pool", "an estimate's", expected));
        }
        self.pool(pool, "begin_capture")?;
        Ok(self.engine.begin_capture(pool, stream)?)
    }

    /// Begins to estimate what graphs will need, and returns the pool for their captures.
    pub(crate) fn begin_estimate(&self) -> PoolId {
        let estimate = Estimate::new(&self.engine);
        let pool = estimate.pool().id();
        self.estimates.lock().insert(pool, estimate);
        pool
    }

    /// Ends a capture into the pool of an estimate.
    pub(crate) fn show_stream_capture(&self, capture: CaptureId) -> Fallible<()> {
        const CALL: &str = "show_stream_capture";
        let taken = self.take(capture, CALL)?;
        let pool = taken.pool.id();
        let estimate = self.estimates.lock().remove(&pool);
        let Some(mut estimate) = estimate else {
            self.captures.lock().insert(capture, taken);
            return Err(Failure::unknown(CALL, Unknown::Capture(capture)));
        };
        let shown = estimate.show(taken.capture);
        self.estimates.lock().insert(pool, estimate);
        Ok(shown?)
    }

    /// Refuses a capture that uses the pool of an estimate, which comes to nothing.
    fn must_not_be_shown(&self, capture: CaptureId) -> Fallible<()> {
        // Of an unknown capture the call says so itself.
        let pools = self.engine.host().pools_of(capture).unwrap_or_default();
        let estimates = self.estimates.lock();
        match pools.iter().any(|pool| estimates.contains_key(pool)) {
            true => Err(Failure::Estimated(capture)),
            false => Ok(()),
        }
    }

    /// Ends an estimate: its pool serves no captures from here on. Refuses one with a capture under way.
    pub(crate) fn end_estimate(&self, pool: PoolId) -> Fallible<Estimate<D>> {
        if self.estimates.lock().contains_key(&pool) && self.engine.host().is_recording_into(pool) {
            let (pool, why) = (Box::new(pool.into()), engine::PoolRefusal::NotShown);
            return Err(Error::Pool { call: "end_estimate", pool, why }.into());
        }
        let found = self.estimates.lock().remove(&pool);
        found.ok_or_else(|| Failure::unknown("end_estimate", Unknown::Pool(pool)))
    }

    fn take(&self, capture: CaptureId, call: &'static str) -> Fallible<StreamCapture<D>> {
        let found = self.captures.lock().remove(&capture);
        found.ok_or_else(|| Failure::unknown(call, Unknown::Capture(capture)))
    }

    /// A block for a stream of a capture that the library began.
    pub(crate) fn capture_allocate(
        &self,
        capture: CaptureId,
        bytes: u64,
        stream: StreamHandle,
        fixed: bool,
    ) -> Fallible<Block> {
        let taken = self.take(capture, "capture_allocate")?;
        let made = match fixed {
            false => taken.capture.allocate(bytes, stream),
            true => taken.capture.allocate_fixed(bytes, stream),
        };
        self.captures.lock().insert(capture, taken);
        Ok(made?.into_block())
    }

    /// Abandons a capture and begins a second one in its place, whose blocks lie by the requests of the first.
    pub(crate) fn repeat_stream_capture(&self, capture: CaptureId) -> Fallible<CaptureId> {
        // What lies by a layout may have memory at once.
        self.must_not_be_shown(capture)?;
        let layout = self.engine.plans().layout_of(capture)?;
        let StreamCapture { capture, pool, mode } = self.take(capture, "repeat_stream_capture")?;
        let stream = capture.stream();
        drop(capture);
        let second = self.begin(pool, stream, mode).inspect_err(|_| self.let_pools_go())?;
        if let Err(error) = self.engine.plans().follow_layout(second, layout) {
            self.abandon_capture(second)?;
            return Err(error.into());
        }
        Ok(second)
    }

    /// Ends a capture that the library began, and instantiates its graph.
    pub(crate) fn finish_stream_capture(&self, capture: CaptureId) -> Fallible<CaptureReport> {
        self.must_not_be_shown(capture)?;
        let finished = self.take(capture, "finish_stream_capture")?.capture.finish();
        self.let_pools_go();
        let graph = finished?;
        let report = graph.report().clone();
        self.hold(report.graph, Held::Graph(graph));
        Ok(report)
    }

    /// Ends the engine's part of a capture that the caller began.
    pub(crate) fn end_capture(
        &self,
        capture: CaptureId,
        graph: GraphHandle,
    ) -> Fallible<CaptureReport> {
        self.must_be_callers(capture)?;
        let pools = self.pools_of(capture);
        let ended = self.engine.end_capture(capture, graph);
        self.claim(ended, pools)
    }

    /// Ends a capture of the caller with its finished graph; the checker judges it in [`Host::verdict`].
    /// Refuses a capture that the library began.
    pub(crate) fn close_capture(&self, capture: CaptureId, graph: GraphHandle) -> Fallible<()> {
        self.must_be_callers(capture)?;
        let pools = self.pools_of(capture);
        match self.engine.close_capture(capture, graph) {
            Ok(()) => drop(self.closed.lock().insert(capture, pools)),
            Err(error) => drop(self.claim(Err(error), pools)?),
        }
        Ok(())
    }

    /// Refuses a capture that the library began, or that uses the pool of an estimate.
    fn must_be_callers(&self, capture: CaptureId) -> Fallible<()> {
        self.must_not_be_shown(capture)?;
        match self.captures.lock().contains_key(&capture) {
            true => Err(Failure::Begun(capture)),
            false => Ok(()),
        }
    }

    /// Refuses a stream that a capture has not begun on, as far as that is known: of a capture that the caller began, a
    /// stream that is not in it.
    pub(crate) fn must_have_begun_on(
        &self,
        capture: CaptureId,
        origin: StreamHandle,
    ) -> Fallible<()> {
        let own = self.captures.lock().get(&capture).map(|taken| taken.capture.stream());
        let is_origin = match own {
            Some(own) => own == origin,
            None => {
                let status = self.engine.driver().capture_of(origin)?;
                matches!(status, CaptureStatus::Active { capture: of, .. } if of == capture)
            }
        };
        match is_origin {
            true => Ok(()),
            false => {
                let expected = "the stream that the capture began on";
                Err(Failure::argument("origin", origin, expected))
            }
        }
    }

    /// The verdict on a capture that was closed.
    pub(crate) fn verdict(&self, capture: CaptureId) -> Fallible<CaptureReport> {
        let verdict = self.engine.verdict(capture);
        let unknown = matches!(verdict, Err(engine::Error::Unknown { .. }));
        let pools = if unknown { None } else { self.closed.lock().remove(&capture) };
        self.claim(verdict, pools.unwrap_or_default())
    }

    /// Orders the launches of a graph that the caller instantiates among those of its pools, which go from here on if
    /// they were given up.
    fn claim(
        &self,
        ended: Result<CaptureReport, engine::Error>,
        pools: Vec<Pool<D>>,
    ) -> Fallible<CaptureReport> {
        let claimed = ended.map_err(Failure::from).and_then(|report| self.lease(report));
        drop(pools);
        self.let_pools_go();
        claimed
    }

    fn lease(&self, report: CaptureReport) -> Fallible<CaptureReport> {
        let lease = Lease::of(&self.engine, report.graph).inspect_err(|_| {
            // Without its pools nothing could order it.
            let _ = self.engine.release_graph(report.graph);
        })?;
        self.hold(report.graph, Held::Lease(lease, report.clone()));
        Ok(report)
    }

    pub(crate) fn abandon_capture(&self, capture: CaptureId) -> Fallible<()> {
        let abandoned = match self.take(capture, "abandon_capture") {
            Ok(taken) => {
                drop(taken);
                Ok(None)
            }
            Err(_) => {
                let abandoned = self.engine.abandon_capture(capture);
                abandoned.map(|()| self.closed.lock().remove(&capture))
            }
        };
        let abandoned = abandoned.map(drop);
        // The engine may have rolled it back before.
        self.let_pools_go();
        Ok(abandoned?)
    }

    fn hold(&self, id: GraphId, held: Held<D>) {
        self.graphs.lock().insert(id, Arc::new(Mutex::new(Rank::HostGraph, held)));
    }

    fn graph(&self, graph: GraphId, call: &'static str) -> Fallible<Arc<Mutex<Held<D>>>> {
        let found = self.graphs.lock().get(&graph).cloned();
        found.ok_or_else(|| Failure::unknown(call, Unknown::Graph(graph)))
    }

    fn read<R>(
        &self,
        graph: GraphId,
        call: &'static str,
        read: impl FnOnce(&Held<D>) -> Fallible<R>,
    ) -> Fallible<R> {
        // What a launch says of graphs that have finished is told behind the graph's lock.
        let _told = tell_later();
        let held = self.graph(graph, call)?;
        let held = held.lock();
        read(&held)
    }

    /// Takes over a graph that the caller captured.
    pub(crate) fn take_graph(
        &self,
        id: GraphId,
        graph: GraphHandle,
        stream: StreamHandle,
    ) -> Fallible<()> {
        const CALL: &str = "take_graph";
        let held = self.graph(id, CALL)?;
        if matches!(*held.lock(), Held::Graph(_)) {
            return Err(Failure::Instantiated);
        }
        // No call finds it from here on.
        drop(held);
        let held = self.graphs.lock().remove(&id);
        match held.map(Arc::try_unwrap) {
            Some(Ok(held)) => match held.into_inner() {
                Held::Lease(lease, report) => {
                    self.hold(id, Held::Graph(Graph::of(lease, graph, report, stream)?));
                    Ok(())
                }
                taken @ Held::Graph(_) => {
                    self.hold(id, taken);
                    Err(Failure::Instantiated)
                }
            },
            Some(Err(used)) => {
                self.graphs.lock().insert(id, used);
                Err(Failure::GraphInUse)
            }
            None => Err(Failure::unknown(CALL, Unknown::Graph(id))),
        }
    }

    /// Makes a call on a graph that the library instantiates.
    pub(crate) fn of_library<R>(
        &self,
        graph: GraphId,
        call: &'static str,
        run: impl FnOnce(&Graph<D>) -> Result<R, Error>,
    ) -> Fallible<R> {
        self.read(graph, call, |held| match held {
            Held::Graph(graph) => Ok(run(graph)?),
            Held::Lease(..) => Err(Failure::NotInstantiated),
        })
    }

    /// Launches an executable of a graph.
    pub(crate) fn launch_executable(
        &self,
        graph: GraphId,
        executable: ExecutableHandle,
        stream: StreamHandle,
    ) -> Fallible<()> {
        self.read(graph, "launch_executable", |held| match held {
            Held::Lease(lease, _) => {
                let replay = |stream| Ok(self.engine.driver().replay(executable, stream)?);
                Ok(lease.launch::<Error>(stream, replay)?)
            }
            Held::Graph(_) => Err(Failure::Instantiated),
        })
    }

    /// The least memory that a graph's blocks need, in bytes.
    pub(crate) fn minimum_bytes(&self, graph: GraphId) -> Fallible<u64> {
        let report = self.read(graph, "minimum_bytes", |held| {
            Ok(match held {
                Held::Graph(graph) => graph.report().clone(),
                Held::Lease(_, report) => report.clone(),
            })
        })?;
        // Found without the graph's lock: it may be launched meanwhile.
        report.minimum().map(|minimum| minimum.bytes).ok_or(Failure::JournalGone)
    }

    pub(crate) fn forget_journal(&self, graph: GraphId) -> Fallible<()> {
        let held = self.graph(graph, "forget_journal")?;
        match &mut *held.lock() {
            Held::Graph(graph) => graph.forget_journal(),
            Held::Lease(_, report) => report.forget_journal(),
        }
        Ok(())
    }

    pub(crate) fn release_graph(&self, graph: GraphId) -> Fallible<()> {
        let held = self.graphs.lock().remove(&graph);
        held.map(drop).ok_or_else(|| Failure::unknown("release_graph", Unknown::Graph(graph)))
    }
}

impl<D: Transfer> Deref for Host<D> {
    type Target = Engine<D>;

    #[inline]
    fn deref(&self) -> &Engine<D> {
        &self.engine
    }
}

impl<D: Transfer> Drop for Host<D> {
    fn drop(&mut self) {
        for held in std::mem::take(self.graphs.get_mut()).into_values() {
            // The caller's own graphs may be launched after the engine is gone: their memory stays.
            if let Some(Held::Lease(lease, _)) = Arc::into_inner(held).map(Mutex::into_inner) {
                lease.give_up();
            }
        }
    }
}

impl<D: Transfer> fmt::Debug for Host<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("engine", &self.engine).finish_non_exhaustive()
    }
}
