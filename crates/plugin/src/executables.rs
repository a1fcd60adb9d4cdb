//! Graphs that the plug-in launches for its host, by executables that are kept within a budget.
//!
//! Executables are kept together of a pool's graphs, where the host says so, and else of all other graphs of a
//! device. A launch is one of [`launches`](super::launches): counted, refused while its pool sleeps, and behind what the
//! pool has lent. The plug-in adds no order among graphs, which is the host's, but that launches of one executable come
//! one after another, as the driver has it.

use std::sync::Arc;

use regraph::driver::{Driver, EventHandle, GraphHandle, HostApi, StreamHandle, Transfer};
use regraph::engine::{self, PoolId};
use regraph::graphs::{ExecutableFigures, ExecutableOptions, Executables, Means, Member};
use regraph::sync::{Mutex, Rank};
use regraph::tell_later;

use super::device::Device;
use super::pools::PoolKey;
use super::watch::Watched;
use super::{Error, Plugin};

/// Executables that are kept together.
pub(super) struct KeptExecutables {
    executables: Executables,
    /// Behind the last launch on each stream, by the driver's number of it.
    marks: Vec<(u64, EventHandle)>,
}

impl KeptExecutables {
    fn new(options: ExecutableOptions) -> Arc<Mutex<Self>> {
        let kept = Self { executables: Executables::new(options), marks: Vec::new() };
        Arc::new(Mutex::new(Rank::Executables, kept))
    }
}

/// A graph that the plug-in launches for its host ([`Plugin::take_graph`]). It is destroyed when this is dropped, with
/// the executable that no other graph uses. Its host keeps the graph's pool until then.
pub struct Graph<'a, D: Transfer> {
    plugin: &'a Plugin<D>,
    device: &'a Device<D>,
    key: PoolKey,
    pool: PoolId,
    kept: Arc<Mutex<KeptExecutables>>,
    graph: GraphHandle,
    member: Member,
}

impl<D: Transfer> Plugin<D> {
    /// Takes over all nodes of a graph that was captured into a pool; `graph` has none from then on, and stays the
    /// host's. Its executable is made with the first launch, or shared ([`Plugin::keep_executables`]).
    ///
    /// # Errors
    /// [`Error::UnknownPool`]; [`Error::Driver`], for nodes that the driver cannot copy for instance
    /// ([`HostApi::move_nodes`]), or where the device cannot be had: `graph` must not be launched then.
    pub fn take_graph(
        &self,
        device: u32,
        key: PoolKey,
        graph: GraphHandle,
    ) -> Result<Graph<'_, D>, Error> {
        let device = self.device(device)?;
        let (pool, kept) = {
            let mut pools = device.pools();
            let unknown = Error::UnknownPool { call: "take_graph", key };
            let private = pools.private.get_mut(&key).ok_or(unknown)?;
            // From here on its graphs are kept as they are said to be now.
            private.taken += 1;
            let pool = private.pool;
            let own = pools.executables.get(&Some(key)).cloned();
            let others = || {
                let made = || KeptExecutables::new(ExecutableOptions::default());
                pools.executables.entry(None).or_insert_with(made).clone()
            };
            (pool, own.unwrap_or_else(others))
        };
        let driver = device.engine.driver();
        let moved = driver.move_nodes(graph).inspect_err(|_| device.let_graph_go(key));
        let graph = moved?;
        let taken = kept.lock().executables.take(driver, graph);
        let member = taken.inspect_err(|_| {
            let _ = driver.destroy_graph(graph);
            device.let_graph_go(key);
        })?;
        Ok(Graph { plugin: self, device, key, pool, kept, graph, member })
    }

    /// Sets how executables of graphs that the plug-in launches are kept: of a pool's by themselves, or of all graphs of
    /// the device together whose pools were not named so. See
    /// [`Pool::keep_executables`](regraph::graphs::Pool::keep_executables).
    ///
    /// Graphs that share an executable never run at once.
    ///
    /// # Errors
    /// [`Error::KeptWithOthers`]; what the driver answers: some executables may be too many still. [`Error::Driver`]
    /// where the device cannot be had.
    pub fn keep_executables(
        &self,
        device: u32,
        pool: Option<PoolKey>,
        options: ExecutableOptions,
    ) -> Result<(), Error> {
        let device = self.device(device)?;
        let kept = {
            let mut pools = device.pools();
            let private = pool.and_then(|key| pools.private.get(&key));
            let taken = private.map_or(0, |private| private.taken);
            match (pools.executables.get(&pool), pool) {
                (Some(kept), _) => kept.clone(),
                (None, Some(key)) if taken > 0 => {
                    return Err(Error::KeptWithOthers { key, graphs: taken });
                }
                (None, _) => {
                    let made = KeptExecutables::new(options);
                    pools.executables.insert(pool, made.clone());
                    made
                }
            }
        };
        let of = (device.pool_of(pool), "keep_executables");
        let mut kept = kept.lock();
        Ok(device.change(&mut kept, of, |executables, means| executables.keep(options, means))?)
    }

    /// Destroys the executables that are not pinned, after a wait for their launches, of a pool's graphs that are kept by
    /// themselves or of all, and returns how many bytes were foreseen for them. Each comes back when its graph is
    /// launched; until then other executables can have the memory, which the driver gives nothing else.
    ///
    /// # Errors
    /// [`Error::NotKept`]; what the driver answers; [`Error::Driver`] where the device cannot be had.
    pub fn release_executables(&self, device: u32, pool: Option<PoolKey>) -> Result<u64, Error> {
        let device = self.device(device)?;
        let mut bytes = 0;
        for (pool, kept) in device.kept(pool, "release_executables")? {
            let of = (device.pool_of(pool), "release_executables");
            bytes += device.change(&mut kept.lock(), of, Executables::evict_all)?;
        }
        Ok(bytes)
    }

    /// What the executables of graphs come to that the plug-in launches: of a pool's that are kept by themselves, or of
    /// all.
    ///
    /// # Errors
    /// [`Error::NotKept`]; [`Error::Driver`] where the device cannot be had.
    pub fn executables(
        &self,
        device: u32,
        pool: Option<PoolKey>,
    ) -> Result<ExecutableFigures, Error> {
        let mut figures = ExecutableFigures::default();
        for (_, kept) in self.device(device)?.kept(pool, "executables")? {
            figures += kept.lock().executables.figures();
        }
        Ok(figures)
    }
}

/// What is kept together, by the pool whose graphs' executables it is.
type ByPool = Vec<(Option<PoolKey>, Arc<Mutex<KeptExecutables>>)>;

impl<D: Transfer> Device<D> {
    /// Changes executables, for a pool and a call that errors name.
    fn change<R>(
        &self,
        kept: &mut KeptExecutables,
        (pool, call): (PoolId, &'static str),
        change: impl FnOnce(&mut Executables, &Means<'_, Watched<D>>) -> R,
    ) -> R {
        let KeptExecutables { executables, marks } = kept;
        let idle = || {
            let driver = self.engine.driver();
            Ok(marks.iter().try_for_each(|&(_, event)| driver.synchronize_event(event))?)
        };
        change(executables, &Means::new(&self.engine, pool, call, &idle))
    }

    /// Marks a launch on a stream.
    fn mark(&self, kept: &mut KeptExecutables, stream: StreamHandle) -> Result<(), Error> {
        let driver = self.engine.driver();
        let number = driver.stream_id(stream)?;
        if let Some((_, event)) = kept.marks.iter().find(|(of, _)| *of == number) {
            return Ok(driver.record_event(*event, stream)?);
        }
        // Streams that launch no more may be gone: no marks of theirs are kept but of what runs.
        kept.marks.retain(|&(_, event)| {
            let runs = !matches!(driver.query_event(event), Ok(true));
            if !runs {
                let _ = driver.destroy_event(event);
            }
            runs
        });
        kept.marks.push(self.event_behind(None, stream)?);
        Ok(())
    }

    /// Lets go of what was known of the launches of executables whose pool is gone. How they are kept stays with its name.
    pub(super) fn forget_marks(&self, kept: Option<&Arc<Mutex<KeptExecutables>>>) {
        let marks = kept.map(|kept| std::mem::take(&mut kept.lock().marks));
        for (_, event) in marks.into_iter().flatten() {
            let _ = self.engine.driver().destroy_event(event);
        }
    }

    /// What is kept of a pool, or all.
    fn kept(&self, pool: Option<PoolKey>, call: &'static str) -> Result<ByPool, Error> {
        let pools = self.pools();
        let asked = |&(of, _): &(&Option<PoolKey>, _)| pool.is_none() || *of == pool;
        let found = pools.executables.iter().filter(asked);
        let found: Vec<_> = found.map(|(&of, kept)| (of, kept.clone())).collect();
        match pool {
            Some(key) if found.is_empty() => Err(Error::NotKept { call, key }),
            _ => Ok(found),
        }
    }

    /// Counts out a graph of a pool that the plug-in launches no more.
    fn let_graph_go(&self, key: PoolKey) {
        if let Some(private) = self.pools().private.get_mut(&key) {
            private.taken = private.taken.saturating_sub(1);
        }
    }

    /// The pool that errors of executables name.
    fn pool_of(&self, pool: Option<PoolKey>) -> PoolId {
        let named = pool.and_then(|key| Some(self.pools().private.get(&key)?.pool));
        named.unwrap_or(self.eager)
    }
}

impl<D: Transfer> Graph<'_, D> {
    /// Launches the graph on a stream. See [`Plugin::begin_launch`] and [`Launch::follow`](super::Launch::follow).
    ///
    /// Costs one event record. An executable that holds another graph's parameters is updated first, or made.
    ///
    /// # Errors
    /// Theirs; [`Error::UnknownPool`] where the pool is gone; [`engine::StreamRefusal::LaunchWhileCapturing`]; [`engine::PoolRefusal::NoExecutable`]: nothing was
    /// launched. What the driver answers.
    pub fn launch(&self, stream: StreamHandle) -> Result<(), Error> {
        let _told = tell_later();
        let mut launch = self.plugin.begin_launch(self.key, "replay")?;
        let pool = self.device.pools().private.get(&self.key).map(|private| private.pool);
        if pool != Some(self.pool) {
            // Its memory was given back with its pool, against the host's promise.
            return Err(Error::UnknownPool { call: "replay", key: self.key });
        }
        launch.follow(stream)?;
        self.must_not_capture(stream)?;
        let mut kept = self.kept.lock();
        let driver = self.device.engine.driver();
        let launched =
            self.device.change(&mut kept, (self.pool, "replay"), |executables, means| {
                let (executable, _) = executables.ready(self.member, means)?;
                Ok::<_, Error>(driver.replay(executable, stream)?)
            });
        // One that cannot be marked is not waited for where its executable has to go, which the driver keeps until it is
        // done: that takes more memory for so long.
        let _ = self.device.mark(&mut kept, stream);
        launched
    }

    /// Does what the next launch would have to do first: makes the graph's executable and puts it on the device by
    /// `stream`, or updates the one that it shares. Launches of graphs that are kept with it wait meanwhile.
    ///
    /// # Errors
    /// As [`Graph::launch`].
    pub fn prepare(&self, stream: StreamHandle) -> Result<(), Error> {
        let _told = tell_later();
        let _launch = self.plugin.begin_launch(self.key, "prepare")?;
        self.must_not_capture(stream)?;
        let mut kept = self.kept.lock();
        let driver = self.device.engine.driver();
        let made = self.device.change(&mut kept, (self.pool, "prepare"), |executables, means| {
            executables.ready(self.member, means)
        });
        match made? {
            (executable, true) => Ok(driver.upload(executable, stream)?),
            (_, false) => Ok(()),
        }
    }

    /// Says whether the graph's executable stays where the budget is short. At first it does not.
    pub fn pin(&self, pinned: bool) {
        self.kept.lock().executables.pin(self.member, pinned);
    }

    /// The device memory that the driver is foreseen to take for an executable of the graph, in bytes; 0 where it cannot
    /// tell.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn foreseen_bytes(&self) -> Result<u64, Error> {
        let driver = self.device.engine.driver();
        Ok(self.kept.lock().executables.bytes_of(self.member, driver)?)
    }

    /// The graph, for reading.
    pub fn handle(&self) -> GraphHandle {
        self.graph
    }

    fn must_not_capture(&self, stream: StreamHandle) -> Result<(), Error> {
        if self.device.engine.driver().is_capturing(stream)? {
            let why = engine::StreamRefusal::LaunchWhileCapturing;
            return Err(engine::Error::Stream { call: "launch", stream, why }.into());
        }
        Ok(())
    }
}

impl<D: Transfer> Drop for Graph<'_, D> {
    fn drop(&mut self) {
        let driver = self.device.engine.driver();
        let unused = self.kept.lock().executables.remove(self.member);
        // One that runs goes when it is done. A handle that the driver refuses to destroy is lost.
        if let Some(executable) = unused {
            let _ = driver.destroy_executable(executable);
        }
        let _ = driver.destroy_graph(self.graph);
        self.device.let_graph_go(self.key);
    }
}
