//! Pools that graphs share.

use std::slice;
use std::sync::{Arc, Weak};

use super::executables::{ExecutableFigures, ExecutableOptions, Executables, Means};
use super::memory::Memory;
use super::order::{hold_launches, Launched, Order, Retired};
use super::Error;
use crate::driver::{AsStream, HostApi, StreamHandle};
use crate::engine::{Engine, PoolConfig, PoolId, PoolStatistics};
use crate::logging::tell_later;
use crate::shown::shown;
use crate::sync::{Mutex, MutexGuard, Rank};

/// A pool of device memory, shared by all who hold it: graphs, blocks and clones.
///
/// Graphs of one pool may lie on the same memory, because they never run at once: a launch waits for the launch before
/// it. Graphs that are to run side by side need pools of their own.
///
/// When the last holder is dropped, the pool's memory goes back to the driver. Memory that work may still use goes back
/// later: when another pool is made after that work, or by [`Engine::empty_cache`].
pub struct Pool<D: HostApi>(Arc<PoolCore<D>>);

/// What all holders of a pool share.
struct PoolCore<D: HostApi> {
    engine: Arc<Engine<D>>,
    id: PoolId,
    order: Mutex<Order<D>>,
    /// The executables of its graphs. A launch holds this lock and the order's until the driver has the launch.
    executables: Mutex<Executables>,
}

impl<D: HostApi> Drop for PoolCore<D> {
    fn drop(&mut self) {
        self.order.get_mut().let_retired_go();
        // Where work may still use a freed block, the memory goes later.
        self.engine.let_pool_go(self.id);
    }
}

impl<D: HostApi> Pool<D> {
    /// A new pool. It holds no memory until its first block is allocated.
    pub fn new(engine: &Arc<Engine<D>>, config: PoolConfig) -> Self {
        let id = engine.create_pool(config);
        let shared = Arc::new(PoolCore {
            engine: engine.clone(),
            id,
            order: Mutex::new(Rank::Order, Order::new(engine, id)),
            executables: Mutex::new(Rank::Executables, Executables::default()),
        });
        // For captures that use the pool without having joined it.
        let owner: Weak<PoolCore<D>> = Arc::downgrade(&shared);
        engine.own_pool(shared.id, owner);
        Self(shared)
    }

    /// Whether both hold the same pool.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Tells it from others, and says in which order the pools of a graph are locked.
    pub(super) fn place(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn order(&self) -> MutexGuard<'_, Order<D>> {
        self.0.order.lock()
    }

    /// The table of its executables. Looks at it do not wait for launches that the host makes by itself.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn executable_table(&self) -> MutexGuard<'_, Executables> {
        self.0.executables.lock()
    }

    /// Changes executables between launches.
    fn change_executables<R>(
        &self,
        call: &'static str,
        change: impl FnOnce(&mut Executables, &Means<'_, D>) -> R,
    ) -> R {
        let order = self.order();
        order.change_executables(&mut self.executable_table(), call, change)
    }

    /// The engine that the pool was made with.
    pub fn engine(&self) -> &Arc<Engine<D>> {
        &self.0.engine
    }

    /// The engine's name of the pool.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// A block of at least `bytes`, for `stream` to use from now on, inside a capture or outside. Costs and errors are
    /// those of [`Engine::allocate`].
    pub fn allocate(&self, bytes: u64, stream: impl AsStream) -> Result<Memory<D>, Error> {
        self.allocate_or_release(bytes, stream, || false)
    }

    /// A block as from [`Pool::allocate`]. Where memory is short the library calls `last_resort`, with none of its
    /// locks held, and makes the request again if `last_resort` returns true: it has given memory back. See
    /// [`HostCalls::allocate_or_release`](crate::engine::HostCalls::allocate_or_release).
    pub fn allocate_or_release(
        &self,
        bytes: u64,
        stream: impl AsStream,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Memory<D>, Error> {
        let (engine, pool) = (&self.0.engine, self.0.id);
        let last_resort = || collect_all(engine) | last_resort();
        let block =
            engine.host().allocate_or_release(pool, bytes, stream.as_stream(), last_resort)?;
        Ok(Memory::new(block, self.clone()))
    }

    /// The device memory that the pool holds, in bytes: that of all its graphs and all its blocks.
    pub fn reserved(&self) -> Result<u64, Error> {
        Ok(self.statistics()?.reserved)
    }

    /// The device memory that the driver itself took for the executables of the pool's living graphs, in bytes.
    /// [`Pool::reserved`] does not count it. See [`Graph::driver_bytes`] for how it is measured.
    ///
    /// [`Graph::driver_bytes`]: super::Graph::driver_bytes
    pub fn driver_bytes(&self) -> u64 {
        self.executables().measured
    }

    /// The figures of the executables of the pool's graphs, whose memory [`Pool::reserved`] does not count.
    pub fn executables(&self) -> ExecutableFigures {
        self.executable_table().figures()
    }

    /// From now on an executable is made when its graph is first launched or [prepared](super::Graph::prepare), and
    /// graphs share executables as `options` says. Where the budget is short, the executable is destroyed that was used
    /// longest ago and is not [pinned](super::Graph::pin).
    ///
    /// Without this call each graph has an executable of its own, from the end of its capture on.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use regraph::driver::{CaptureMode, Functions, HostApi};
    /// # use regraph::graphs::ExecutableOptions;
    /// # use regraph::{Config, Engine, Error, Pool, PoolConfig};
    /// # use regraph_sim::{Launch, SimConfig, SimDriver};
    /// # fn main() -> Result<(), Error> {
    /// # let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    /// # let pool = Pool::new(&engine, PoolConfig::default());
    /// # let stream = engine.driver().create_stream()?;
    /// pool.keep_executables(ExecutableOptions::default().sharing(Functions::Same).budget(8 << 20))?;
    /// let mut graphs = Vec::new();
    /// for _batch in [1, 2, 4, 8] {
    ///     let (graph, ()) = engine.capture(stream, &pool, CaptureMode::Relaxed, |_| {
    ///         engine.driver().launch_kernel(stream, Launch::default())?; // over so many rows
    ///         Ok::<_, Error>(())
    ///     })?;
    ///     graphs.push(graph);
    /// }
    /// for graph in &graphs {
    ///     graph.launch(stream)?; // what was launched before runs on with its own parameters
    /// }
    /// assert_eq!((pool.executables().executables, pool.executables().updates), (1, 3));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Whether two graphs are of one shape is proven by their nodes and edges ([`GraphShape::is_like`]), which are read
    /// at the end of a capture, in some microseconds a node. The budget counts what the driver foresees for each
    /// executable, and more where it was measured to take more ([`ExecutableFigures::counted`]). An executable is made
    /// even beyond the budget if what is foreseen for it and for the pinned ones fits; others go once it has taken more
    /// than was foreseen, and it is destroyed again where it took more than the budget by itself, beyond
    /// [`DRIVER_PIECE`](super::Executables::DRIVER_PIECE). Executables of graphs that were
    /// dropped and still run do not count. The driver gives no memory back to the device for an executable that is
    /// destroyed: it uses the memory for the next one. Where an executable that may run has to be destroyed, the host
    /// waits for the pool's launches so far, in the launch that needs the room.
    ///
    /// What [`Graph::executable`](super::Graph::executable) gave before must not be used any more, and parameters that the
    /// host updated by it are those of the capture again.
    ///
    /// [`GraphShape::is_like`]: crate::driver::GraphShape::is_like
    ///
    /// # Errors
    /// [`Error::OrderLost`], the driver's: then some executables may still exceed the budget.
    pub fn keep_executables(&self, options: ExecutableOptions) -> Result<(), Error> {
        self.change_executables("keep_executables", |executables, means| {
            executables.keep(options, means)
        })
    }

    /// Destroys the executables that are not pinned, after a wait for the pool's graphs, and returns how many bytes
    /// were foreseen for them. Each is made again when its graph is launched: while this pool sleeps, executables of
    /// other graphs can have the memory. What [`Graph::executable`](super::Graph::executable) gave before must not be
    /// used any more, and parameters that the host updated by it are those of the capture again.
    pub fn release_executables(&self) -> Result<u64, Error> {
        self.change_executables("release_executables", |executables, means| {
            executables.evict_all(means)
        })
    }

    /// The pool's figures.
    pub fn statistics(&self) -> Result<PoolStatistics, Error> {
        self.0.engine.pool_statistics(self.0.id)
    }

    /// Orders work that `stream` is given from now on after every launch of the pool's graphs so far: before a graph's
    /// inputs are filled anew, for instance. Does not block the host, and costs nothing on the stream of the last
    /// launch.
    ///
    /// # Errors
    /// [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended), since there are no inputs to fill then;
    /// [`StreamRefusal::OrderWhileCapturing`](crate::StreamRefusal::OrderWhileCapturing);
    /// [`Error::OrderLost`]; the driver's.
    pub fn follow(&self, stream: impl AsStream) -> Result<(), Error> {
        const CALL: &str = "follow";
        let launched = Launched::behind(self.0.engine.driver(), stream, CALL)?;
        self.order().follow(launched, CALL)
    }

    /// Makes what `stream` was given so far count as a launch: what comes after those of the pool comes after it.
    pub(crate) fn cover(&self, stream: StreamHandle) {
        let launched = Launched::behind(self.0.engine.driver(), stream, "cover");
        let mut order = self.order();
        match launched {
            Ok(launched) => order.cover(launched),
            Err(_) => order.wait_or_lose(stream),
        }
    }

    /// Gives the pool's device memory back, after a wait for its graphs, and returns how many bytes
    /// that was. Graphs stay instantiated and blocks keep their addresses, but **all contents are
    /// lost**: of outputs, of static inputs, of all that was allocated from the pool. Until
    /// [`Pool::resume`] a launch is refused, and so are blocks, captures and [`Pool::follow`].
    ///
    /// Other work that uses the pool's blocks must have completed. See
    /// [`HostCalls::suspend_discarding_outputs`](crate::engine::HostCalls::suspend_discarding_outputs).
    ///
    /// # Errors
    /// [`Error::OrderLost`]; those of that call, such as [`PoolRefusal::HasBlocks`](crate::PoolRefusal::HasBlocks)
    /// where blocks are live that belong to no graph.
    pub fn suspend_discarding_outputs(&self) -> Result<u64, Error> {
        self.between_launches(|engine, pool| {
            engine.suspend(pool, false, ("suspend_discarding_outputs", true))
        })
    }

    /// Gives the pool's device memory back as [`Pool::suspend_discarding_outputs`] does, also where live blocks belong
    /// to no graph: what they hold is lost too.
    pub fn suspend_discarding_all(&self) -> Result<u64, Error> {
        let by = ("suspend_discarding_all", true);
        self.between_launches(|engine, pool| engine.suspend(pool, true, by))
    }

    /// How many bytes [`Pool::compact`] would give back to the driver. See
    /// [`HostCalls::excess_bytes`](crate::engine::HostCalls::excess_bytes).
    pub fn excess_bytes(&self) -> Result<u64, Error> {
        self.0.engine.host().excess_bytes(self.0.id)
    }

    /// Waits for the pool's graphs, lets them share as much memory as they can by now, and returns how many bytes went
    /// back to the driver. Addresses, and what live blocks hold, stay. See
    /// [`HostCalls::compact_pool`](crate::engine::HostCalls::compact_pool).
    ///
    /// # Errors
    /// [`Error::OrderLost`]; those of that call. After an error of the driver the pool may be short of a part of its
    /// memory ([`Pool::is_short`]), which [`Pool::resume`] maps again.
    pub fn compact(&self) -> Result<u64, Error> {
        self.between_launches(|engine, pool| engine.compact(pool, ("compact", true)))
    }

    fn between_launches(
        &self,
        change: impl FnOnce(&Engine<D>, PoolId) -> Result<u64, crate::engine::Error>,
    ) -> Result<u64, Error> {
        let _told = tell_later();
        hold_launches(slice::from_ref(self), true, || change(self.engine(), self.id()))?
    }

    /// Maps a suspended pool's memory again, at the same addresses and with undefined contents, and returns how many
    /// bytes that is.
    ///
    /// # Errors
    /// Those of [`HostCalls::resume_pool`](crate::engine::HostCalls::resume_pool), where the device has no room for
    /// instance: then the pool stays suspended.
    pub fn resume(&self) -> Result<u64, Error> {
        // When launches are held back no longer: an observer may call the pool.
        let _told = tell_later();
        let _none_launched = self.order();
        self.0.engine.resume(self.0.id, ("resume", true))
    }

    /// Whether the pool has given its memory back for the time being, or is short of a part of it.
    pub fn is_suspended(&self) -> bool {
        // Of one whose engine cannot even tell no graph is launched.
        self.0.engine.host().is_suspended(self.0.id).unwrap_or(true)
    }

    /// Whether the pool is short of a part of its memory; what its blocks hold is kept. See
    /// [`HostCalls::is_short`](crate::engine::HostCalls::is_short).
    pub fn is_short(&self) -> Result<bool, Error> {
        self.0.engine.host().is_short(self.0.id)
    }

    /// Destroys the graphs that were dropped while they ran and have finished since. Does not wait.
    pub fn collect(&self) {
        let finished = self.order().finished();
        finished.into_iter().for_each(Retired::release);
    }

    /// Waits until no graph of the pool runs, and destroys those that were dropped meanwhile.
    pub fn synchronize(&self) -> Result<(), Error> {
        let pending = self.order().pending()?;
        if let Some(event) = pending {
            event.synchronize()?;
        }
        self.collect();
        Ok(())
    }
}

impl<D: HostApi> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

shown!([D: HostApi] Pool<D>: |it| id = it.0.id);

/// [Collects](Pool::collect) in all pools of an engine but those in which a thread, perhaps this one, is launching, and
/// says whether any graph went.
pub(super) fn collect_all<D: HostApi>(engine: &Engine<D>) -> bool {
    let all: Vec<_> = engine.pools().into_iter().flatten().map(|pool| pool.id).collect();
    let (pools, _) = owned(engine, &all);
    let orders = pools.iter().filter_map(|pool| pool.0.order.try_lock());
    let finished: Vec<_> = orders.flat_map(|mut order| order.finished()).collect();
    finished.into_iter().map(Retired::release).count() > 0
}

/// The pools among some of an engine's that have an owner, and the first whose owner is going. One without an owner is
/// the host's, by its name, and so is the order in it.
pub(crate) fn owned<D: HostApi>(
    engine: &Engine<D>,
    pools: &[PoolId],
) -> (Vec<Pool<D>>, Option<PoolId>) {
    let (mut owned, mut going) = (Vec::new(), None);
    for &pool in pools {
        let Some(owner) = engine.owner_of(pool) else { continue };
        match owner.upgrade().and_then(|owner| owner.downcast().ok()) {
            Some(owner) => owned.push(Pool(owner)),
            None => going = going.or(Some(pool)),
        }
    }
    (owned, going)
}
