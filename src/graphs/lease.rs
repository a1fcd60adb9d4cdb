//! A graph's claim on its memory, and the order of its launches.

use std::sync::Arc;

use smallvec::SmallVec;

use super::executables::{Captured, Member};
use super::order::{retire, Kept, Launched, Order, Retired};
use super::pool::{owned, Pool};
use super::{Error, PoolRefusal, StreamRefusal, Unknown};
use crate::driver::{AsStream, DriverError, GraphHandle, HostApi, StreamHandle};
use crate::engine::{Engine, GraphId};
use crate::logging::tell_later;
use crate::shown::shown;
use crate::sync::{AtomicBool, MutexGuard, Ordering};

/// A graph's claim on the memory of its pools. While the lease lives, and until the last launch through it has
/// finished, that memory goes to no work but the graphs of the same pools. Where graphs of other pools read what this
/// graph leaves in its memory, the host waits for their launches before it drops the lease.
///
/// For hosts that instantiate and launch a graph themselves; [`Graph`](super::Graph) has one inside.
pub struct Lease<D: HostApi> {
    /// The graph's pools with its name in each, by address, which is the order of their locks.
    pools: Accepted<D>,
    /// Which of them its capture joined first.
    home: usize,
    owned: Option<Owned>,
    kept: Kept,
    /// Whether memory is to be filled before the next launch ([`Settings::poison`](crate::Settings::poison)).
    poison: AtomicBool,
}

impl<D: HostApi> Lease<D> {
    /// Of pools in the order in which the capture joined them.
    pub(super) fn new(mut pools: Accepted<D>, kept: Kept) -> Self {
        let first = pools.first().map(|(pool, _)| pool.place());
        pools.sort_by_key(|(pool, _)| pool.place());
        let home = pools.iter().position(|(pool, _)| Some(pool.place()) == first).unwrap_or(0);
        let poison = pools.iter().any(|(pool, _)| pool.engine().poisons());
        Self { pools, home, owned: None, kept, poison: AtomicBool::new(poison) }
    }

    /// Takes over a graph that [`Engine::end_capture`] reported: its launches are ordered among those of its pools, and
    /// the graph is released when the lease is dropped.
    ///
    /// Pools that were made by [`Engine::create_pool`] alone have no order and are left out.
    ///
    /// # Errors
    /// [`PoolRefusal::Going`]; [`Error::Unknown`] for a graph that none of these pools belongs to. The graph is not released
    /// then.
    pub fn of(engine: &Arc<Engine<D>>, graph: GraphId) -> Result<Self, Error> {
        let pools = owned_pools(engine, graph)?;
        if pools.is_empty() {
            return Err(Error::Unknown { call: "of", what: Unknown::Graph(graph) });
        }
        Ok(Self::new(pools, Vec::new()))
    }

    /// Ends the lease without releasing the graph: the host calls [`Engine::release_graph`] later. What the graph keeps
    /// ([`Capture::keep`](super::Capture::keep)) stays for good: no lease tells any more when the graph has finished.
    pub fn give_up(mut self) {
        self.pools.clear();
        std::mem::forget(std::mem::take(&mut self.kept));
    }

    /// The pool that its capture joined first.
    pub(super) fn home(&self) -> &Pool<D> {
        &self.pools[self.home].0
    }

    /// Makes the lease destroy the graph with itself. Its executable is one of the first pool's.
    pub(super) fn own(&mut self, captured: Captured) {
        let home = self.home();
        let graph = captured.graph();
        let member = home.executable_table().add(home.engine().driver(), captured);
        self.owned = Some((graph, member));
    }

    pub(super) fn owned(&self) -> Option<Owned> {
        self.owned
    }

    pub(super) fn launch_owned(&self, member: Member, stream: impl AsStream) -> Result<(), Error> {
        self.launch_among(stream, |orders, stream| {
            let mut table = self.home().executable_table();
            orders[self.home].change_executables(&mut table, "launch", |executables, means| {
                let (executable, _) = executables.ready(member, means)?;
                Ok(means.driver().replay(executable, stream)?)
            })
        })
    }

    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool<D>> {
        self.pools.iter().map(|(pool, _)| pool)
    }

    /// Launches the graph by `launch`, which gets the stream: after every earlier launch of the graph's pools, and
    /// before every later launch.
    ///
    /// Until `launch` returns nothing else is launched in these pools. `launch` must not launch, suspend, wait for or
    /// drop graphs of these pools, nor keep or release their executables, nor borrow from them: such a call would wait
    /// for itself.
    ///
    /// Costs one event record, and one wait where the stream is another than the last launch's.
    ///
    /// # Errors
    /// [`PoolRefusal::Suspended`], [`StreamRefusal::LaunchWhileCapturing`], [`Error::OrderLost`],
    /// [`StreamRefusal::PerDevice`]; [`PoolRefusal::BlocksLent`] and [`PoolRefusal::LentWork`] of a pool that lends
    /// ([`Pool::lend`](super::Pool::lend)): then nothing was launched. The errors of `launch`. The driver's, where no
    /// event could be recorded behind the launch: the host has then waited for the launch.
    pub fn launch<E: From<Error>>(
        &self,
        stream: impl AsStream,
        launch: impl FnOnce(StreamHandle) -> Result<(), E>,
    ) -> Result<(), E> {
        self.launch_among(stream, |_, stream| launch(stream))
    }

    /// Launches as [`Lease::launch`]; `launch` gets the orders of the pools too.
    fn launch_among<E: From<Error>>(
        &self,
        stream: impl AsStream,
        launch: impl FnOnce(&mut [MutexGuard<'_, Order<D>>], StreamHandle) -> Result<(), E>,
    ) -> Result<(), E> {
        const CALL: &str = "launch";
        // The first by address.
        let (first, _) = &self.pools[0];
        let (driver, why) = (first.engine().driver(), StreamRefusal::LaunchWhileCapturing);
        let launched = Launched::known(driver, stream, CALL, why)?;
        let stream = launched.stream();
        let one_engine = self.pools().all(|pool| Arc::ptr_eq(pool.engine(), first.engine()));
        if stream.is_default() && !one_engine {
            let why = StreamRefusal::PerDevice;
            return Err(Error::Stream { call: CALL, stream, why }.into());
        }
        // Loans may be found to be back, or memory goes for an executable: told once the orders are released.
        let _told = tell_later();
        let orders: SmallVec<[_; 1]> = self.pools().map(|pool| pool.order()).collect();
        for order in &orders {
            order.follow(launched, CALL)?;
            if order.asks() {
                order.follow_lent(launched)?;
            }
        }
        let mut marks = Marks { orders, launched, pending: true };
        let filled = match self.poison.load(Ordering::Relaxed) {
            true => self.poison(stream).map_err(E::from),
            false => Ok(false),
        };
        let result = filled.and_then(|filled| {
            launch(&mut marks.orders, stream)?;
            if filled {
                self.poison.store(false, Ordering::Relaxed);
            }
            Ok(())
        });
        let marked = marks.set();
        let finished: SmallVec<[_; 1]> =
            marks.orders.iter_mut().flat_map(|order| order.finished()).collect();
        // Releasing takes no order's lock, but what a graph kept may, when it is dropped.
        drop(marks);
        finished.into_iter().for_each(Retired::release);
        result?;
        Ok(marked.map_err(Error::from)?)
    }

    /// Fills what the graphs do not keep, with the locks of the pools' orders held and the stream behind all launches.
    /// Says whether all of it.
    fn poison(&self, stream: StreamHandle) -> Result<bool, Error> {
        let mut filled = true;
        for pool in self.pools().filter(|pool| pool.engine().poisons()) {
            filled &= pool.engine().poison(pool.id(), stream)?;
        }
        Ok(filled)
    }
}

/// A graph that is destroyed with its lease, and its name among those that the lease's first pool has executables of.
pub(super) type Owned = (GraphHandle, Member);

/// Pools with a graph's name in their engines.
pub(super) type Accepted<D> = SmallVec<[(Pool<D>, GraphId); 1]>;

/// The pools that a graph uses, as its engine knows, and that have an owner.
pub(super) fn owned_pools<D: HostApi>(
    engine: &Arc<Engine<D>>,
    graph: GraphId,
) -> Result<Accepted<D>, Error> {
    match owned(engine, &engine.pools_of(graph)) {
        (_, Some(going)) => Err(engine.refuse(going, "finish", PoolRefusal::Going)),
        (pools, None) => Ok(pools.into_iter().map(|pool| (pool, graph)).collect()),
    }
}

/// Marks the end of a launch in each of its pools, also if it fails or panics: it may have been submitted.
struct Marks<'a, D: HostApi> {
    orders: SmallVec<[MutexGuard<'a, Order<D>>; 1]>,
    launched: Launched,
    pending: bool,
}

impl<D: HostApi> Marks<'_, D> {
    fn set(&mut self) -> Result<(), DriverError> {
        self.pending = false;
        let mut marked = Ok(());
        for order in &mut self.orders {
            let done = order.mark(self.launched);
            if done.is_ok() {
                order.forget_lent();
            }
            marked = marked.and(done);
        }
        marked
    }
}

impl<D: HostApi> Drop for Marks<'_, D> {
    fn drop(&mut self) {
        if self.pending {
            // What cannot be marked is remembered by the order itself.
            let _ = self.set();
        }
    }
}

impl<D: HostApi> Drop for Lease<D> {
    fn drop(&mut self) {
        // With the executable where no other graph uses it.
        let handles = self
            .owned
            .take()
            .map(|(graph, member)| (graph, self.home().executable_table().remove(member)));
        retire(&self.pools, handles, std::mem::take(&mut self.kept));
    }
}

shown!([D: HostApi] Lease<D>: |it|
    pools = it.pools.iter().map(|(pool, graph)| (pool.id(), *graph)).collect::<Vec<_>>());
