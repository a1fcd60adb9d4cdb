//! The executables of graphs: which graphs use which, whose parameters each holds, and which goes where the budget is
//! short.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;
use std::sync::Arc;

use super::{Error, PoolRefusal};
use crate::driver::{
    DriverError, ErrorKind, ExecutableHandle, Functions, GraphHandle, GraphShape, HostApi,
    StreamHandle,
};
use crate::engine::{setters, Engine, PoolId};
use crate::heap::enter_row;

/// How a pool keeps the executables of its graphs ([`Pool::keep_executables`](super::Pool::keep_executables)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutableOptions {
    /// The most memory that the executables may take together, in bytes; `None` sets no limit. Default: `None`.
    pub budget: Option<u64>,
    /// Which graphs share an executable: graphs of one shape ([`GraphShape::is_like`]) with the same kernel functions,
    /// or with any; with `None` each graph has its own. Default: `None`. Libraries choose kernels by the sizes of their
    /// inputs, so graphs of one model for many sizes have few shapes with [`Functions::Any`], and about as many as
    /// graphs with [`Functions::Same`].
    pub sharing: Option<Functions>,
}

impl ExecutableOptions {
    setters! { [budget: u64 = Some(budget), sharing: Functions = Some(sharing)] }
}

/// What the executables of a pool's graphs come to ([`Pool::executables`](super::Pool::executables)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutableFigures {
    /// Graphs that live.
    pub graphs: usize,
    /// Nodes of them.
    pub graph_nodes: usize,
    /// What their executables would take if each had its own, in bytes, as the driver foresees it. 0 for graphs of
    /// pools without [`Pool::keep_executables`](super::Pool::keep_executables).
    pub graph_bytes: u64,
    /// Executables that there are.
    pub executables: usize,
    /// Nodes of them.
    pub nodes: usize,
    /// What they take, in bytes, as the driver foresees it for each. 0 for those of pools without
    /// [`Pool::keep_executables`](super::Pool::keep_executables).
    pub bytes: u64,
    /// What they took when they were made, in bytes: by how much the device's free memory shrank meanwhile, but for what
    /// the engine's pools took.
    pub measured: u64,
    /// What counts against the budget, in bytes: what the driver foresees, and more where the pool's executables were
    /// measured to take more.
    pub counted: u64,
    /// Executables that were made so far.
    pub made: u64,
    /// Updates of executables, by which one graph's became another's.
    pub updates: u64,
    /// Executables that were destroyed while graphs lived that they could launch.
    pub evicted: u64,
    /// Updates that the driver refused.
    pub refused: u64,
}

/// Adds what other graphs' executables come to.
impl AddAssign for ExecutableFigures {
    fn add_assign(&mut self, other: Self) {
        self.graphs += other.graphs;
        self.graph_nodes += other.graph_nodes;
        self.graph_bytes += other.graph_bytes;
        self.executables += other.executables;
        self.nodes += other.nodes;
        self.bytes += other.bytes;
        self.measured += other.measured;
        self.counted += other.counted;
        self.made += other.made;
        self.updates += other.updates;
        self.evicted += other.evicted;
        self.refused += other.refused;
    }
}

/// The name of a graph in the [`Executables`] that took the graph in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member(u64);

/// A graph that was captured, and what there is of it so far.
pub(super) struct Captured {
    graph: GraphHandle,
    form: Form,
    executable: Option<ExecutableHandle>,
    /// What others had left of the device before the executable was made, in bytes.
    before: Option<u64>,
}

impl Captured {
    /// Makes the executable, unless it comes with the first launch.
    pub(super) fn new<D: HostApi>(
        engine: &Engine<D>,
        graph: GraphHandle,
        lazily: bool,
    ) -> Result<Self, DriverError> {
        if lazily {
            return Self::lazy(engine.driver(), graph);
        }
        let before = engine.left_by_others();
        let executable = Some(instantiate(engine, graph)?);
        Ok(Self { graph, form: Form::default(), executable, before })
    }

    /// One whose executable comes with the first launch: its shape is read.
    fn lazy(driver: &impl HostApi, graph: GraphHandle) -> Result<Self, DriverError> {
        let mut form = Form::default();
        form.read_shape(driver, graph)?;
        Ok(Self { graph, form, executable: None, before: None })
    }

    /// Puts on the device what the executable needs there.
    pub(super) fn upload<D: HostApi>(
        &mut self,
        engine: &Engine<D>,
        stream: StreamHandle,
        nodes: usize,
    ) -> Result<(), DriverError> {
        let Some(executable) = self.executable else { return Ok(()) };
        engine.driver().upload(executable, stream)?;
        (self.form.nodes, self.form.measured) = (nodes, taken(engine, self.before));
        Ok(())
    }

    pub(super) fn discard(&self, driver: &impl HostApi) {
        self.discard_executable(driver);
        let _ = driver.destroy_graph(self.graph);
    }

    pub(super) fn discard_executable(&self, driver: &impl HostApi) {
        if let Some(executable) = self.executable {
            let _ = driver.destroy_executable(executable);
        }
    }

    pub(super) fn graph(&self) -> GraphHandle {
        self.graph
    }
}

/// Makes an executable. Where the device has no room, what is free in pools goes for it.
fn instantiate<D: HostApi>(
    engine: &Engine<D>,
    graph: GraphHandle,
) -> Result<ExecutableHandle, DriverError> {
    engine.driver().instantiate(graph).or_else(|error| {
        let short = error.is_out_of_memory();
        match short && engine.empty_cache().is_ok_and(|it| it.released > 0) {
            true => engine.driver().instantiate(graph),
            false => Err(error),
        }
    })
}

/// How much less others leave of the device than `before`, in bytes; 0 where the device does not tell.
fn taken<D: HostApi>(engine: &Engine<D>, before: Option<u64>) -> u64 {
    let after = engine.left_by_others();
    before.zip(after).map_or(0, |(before, after)| before.saturating_sub(after))
}

/// What graphs and executables are known by.
#[derive(Clone, Default)]
struct Form {
    shape: Option<Arc<GraphShape>>,
    nodes: usize,
    /// What an executable of it is foreseen to take, in bytes; that, or more where more was measured; and what was
    /// measured when it was made.
    foreseen: u64,
    bytes: u64,
    measured: u64,
}

impl Form {
    /// Reads the shape of its graph, when that is first needed.
    fn read_shape(&mut self, driver: &impl HostApi, graph: GraphHandle) -> Result<(), DriverError> {
        if self.shape.is_none() {
            let shape = GraphShape::of(driver, graph)?;
            (self.nodes, self.foreseen) = (shape.nodes(), driver.executable_bytes(&shape));
            self.measure(self.measured);
            self.shape = Some(Arc::new(shape));
        }
        Ok(())
    }

    /// Notes what an executable took when it was made. What is beyond what the driver may take at once counts, up to
    /// eight times what was foreseen: the rest others have taken meanwhile.
    fn measure(&mut self, measured: u64) {
        self.measured = measured;
        let more = measured.saturating_sub(Executables::DRIVER_PIECE).min(8 * self.foreseen);
        self.bytes = self.bytes.max(self.foreseen).max(more);
    }
}

/// A graph that lives.
struct Sharer {
    graph: GraphHandle,
    form: Form,
    pinned: bool,
    /// The one that it was launched by last, if that is there still.
    executable: Option<usize>,
}

struct Executable {
    handle: ExecutableHandle,
    /// That of the graph that it was made of, whose nodes it has for good.
    form: Form,
    /// The graph whose parameters it holds; `None` where that is not known.
    holds: Option<Member>,
    /// When it was last asked for.
    asked: u64,
}

/// The executables of graphs, within one budget.
///
/// A [`Pool`](super::Pool) has one of these for its graphs. A host that orders the launches of its graphs by itself can
/// have its own: it takes graphs in, and before each launch it asks which executable is [ready](Executables::ready).
#[derive(Default)]
pub struct Executables {
    options: Option<ExecutableOptions>,
    graphs: BTreeMap<Member, Sharer>,
    places: Vec<Option<Executable>>,
    /// Counts graphs, and requests for executables.
    clock: u64,
    /// What the driver was measured to take for executables in all, in bytes: it gives nothing back, and uses again
    /// what one that went has left.
    taken: u64,
    /// The most that was foreseen for executables that were there at one time, in bytes.
    peak: u64,
    counts: ExecutableFigures,
}

/// What changes of [`Executables`] need of the host.
pub struct Means<'a, D: HostApi> {
    engine: &'a Engine<D>,
    /// The graph's, and the host's call: for errors.
    pool: PoolId,
    call: &'static str,
    idle: &'a dyn Fn() -> Result<(), Error>,
}

impl<'a, D: HostApi> Means<'a, D> {
    /// `idle` waits until none of the graphs runs; it is called before an executable is destroyed whose memory is
    /// needed. Errors name `pool` and `call`.
    pub fn new(
        engine: &'a Engine<D>,
        pool: PoolId,
        call: &'static str,
        idle: &'a dyn Fn() -> Result<(), Error>,
    ) -> Self {
        Self { engine, pool, call, idle }
    }

    pub(super) fn driver(&self) -> &'a D {
        self.engine.driver()
    }
}

impl Executables {
    /// The most that a driver was seen to take of the device for executables at once, in bytes.
    pub const DRIVER_PIECE: u64 = 10 << 20;

    /// An empty table for graphs whose executables are kept as `options` says.
    pub fn new(options: ExecutableOptions) -> Self {
        Self { options: Some(options), ..Self::default() }
    }

    /// Takes a graph in, which stays the host's. Its executable is made when the graph is first to be launched.
    ///
    /// Reads the graph's shape, in some microseconds a node.
    pub fn take<D: HostApi>(
        &mut self,
        driver: &D,
        graph: GraphHandle,
    ) -> Result<Member, DriverError> {
        Ok(self.add(driver, Captured::lazy(driver, graph)?))
    }

    pub(super) fn are_lazy(&self) -> bool {
        self.options.is_some()
    }

    /// Sets how executables are kept, and destroys those that exceed the new budget.
    ///
    /// # Errors
    /// What the driver answers, or the wait of `means`: then some executables may still exceed the budget.
    pub fn keep<D: HostApi>(
        &mut self,
        options: ExecutableOptions,
        means: &Means<'_, D>,
    ) -> Result<(), Error> {
        for (&member, used) in &mut self.graphs {
            used.form.read_shape(means.driver(), used.graph)?;
            let mut own = self.places.iter_mut().flatten().filter(|it| it.holds == Some(member));
            if let Some(it) = own.find(|it| it.form.shape.is_none()) {
                it.form = used.form.clone();
            }
        }
        self.options = Some(options);
        self.peak = self.peak.max(self.bytes());
        if let Some(budget) = options.budget {
            self.destroy(self.unpinned(), means, |it, _| it.counted(it.bytes()) > budget)?;
        }
        Ok(())
    }

    /// Takes a graph in.
    pub(super) fn add(&mut self, driver: &impl HostApi, captured: Captured) -> Member {
        self.clock += 1;
        let member = Member(self.clock);
        let Captured { graph, mut form, executable, before: _ } = captured;
        if self.options.is_some() {
            // The pool began to keep executables while the graph was made. Without a shape it shares none.
            let _ = form.read_shape(driver, graph);
        }
        form.shape = form.shape.map(|shape| self.known(shape));
        let executable = executable.map(|handle| self.place(handle, &form, member));
        self.graphs.insert(member, Sharer { graph, form, pinned: false, executable });
        member
    }

    /// The shape as graphs have it that were taken in before, so that it is kept once.
    fn known(&self, shape: Arc<GraphShape>) -> Arc<GraphShape> {
        let mut known = self.graphs.values().filter_map(|it| it.form.shape.as_ref());
        known.find(|it| **it == shape).cloned().unwrap_or(shape)
    }

    /// Lets a graph go, and returns its executable if no other graph uses that: it is the host's to destroy.
    pub fn remove(&mut self, member: Member) -> Option<ExecutableHandle> {
        let place = self.graphs.remove(&member)?.executable?;
        let used = self.graphs.values().any(|it| it.executable == Some(place));
        let unused = self.places[place].take_if(|_| !used)?;
        Some(unused.handle)
    }

    /// The executable that holds a graph's parameters, and whether it was made by this call. It is the graph's
    /// executable of the last call, or one that is updated or made now. It holds these parameters until the next call
    /// for another graph: the host launches it before that.
    ///
    /// # Errors
    /// [`PoolRefusal::NoExecutable`]; what the driver answers, or the wait of `means`.
    ///
    /// # Panics
    /// For a graph that was not taken, or was removed.
    pub fn ready<D: HostApi>(
        &mut self,
        member: Member,
        means: &Means<'_, D>,
    ) -> Result<(ExecutableHandle, bool), Error> {
        self.clock += 1;
        let place = self.graphs[&member].executable;
        if let Some(it) = place.and_then(|place| self.places[place].as_mut()) {
            it.asked = self.clock;
            if it.holds == Some(member) {
                return Ok((it.handle, false));
            }
        }
        if let Some(place) = place {
            if let Some(handle) = self.update(place, member, means)? {
                return Ok((handle, false));
            }
        }
        for other in self.alike(member).into_iter().filter(|&it| Some(it) != place) {
            if let Some(handle) = self.update(other, member, means)? {
                return Ok((handle, false));
            }
        }
        Ok((self.make(member, means)?, true))
    }

    /// A graph's executable, where none is shared and none goes for a budget.
    pub(super) fn own(&self, member: Member) -> Option<ExecutableHandle> {
        let place = self.graphs.get(&member)?.executable.filter(|_| self.options.is_none())?;
        self.places[place].as_ref().map(|it| it.handle)
    }

    /// Executables that a graph may update, the one first that was asked for longest ago.
    fn alike(&self, member: Member) -> Vec<usize> {
        let functions = self.options.and_then(|options| options.sharing);
        let (Some(functions), Some(shape)) = (functions, &self.graphs[&member].form.shape) else {
            return Vec::new();
        };
        let like = |it: &Executable| {
            it.form.shape.as_ref().is_some_and(|other| shape.is_like(other, functions))
        };
        self.by_age(|_, it| like(it))
    }

    /// Gives an executable a graph's parameters; `None` where the driver refuses that.
    fn update<D: HostApi>(
        &mut self,
        place: usize,
        member: Member,
        means: &Means<'_, D>,
    ) -> Result<Option<ExecutableHandle>, Error> {
        let Some(it) = self.places[place].as_mut() else { return Ok(None) };
        let used = self.graphs.get_mut(&member).expect("the graph lives");
        let (handle, before) = (it.handle, used.executable);
        // A call that fails may have got half way.
        it.holds = None;
        match means.driver().update(handle, used.graph) {
            Ok(()) => {
                (it.holds, it.asked) = (Some(member), self.clock);
                used.executable = Some(place);
                self.counts.updates += 1;
                Ok(Some(handle))
            }
            Err(error) if error.kind == ErrorKind::UpdateRefused => {
                self.counts.refused += 1;
                if before == Some(place) {
                    let users = self.graphs.values().filter(|it| it.executable == before);
                    if users.count() == 1 {
                        self.destroy(vec![place], means, |_, _| true)?;
                    } else if let Some(used) = self.graphs.get_mut(&member) {
                        used.executable = None;
                    }
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes an executable of a graph. Where the budget or the device has no room, others go for it.
    fn make<D: HostApi>(
        &mut self,
        member: Member,
        means: &Means<'_, D>,
    ) -> Result<ExecutableHandle, Error> {
        let used = self.graphs.get_mut(&member).expect("the graph lives");
        if self.options.is_some() {
            used.form.read_shape(means.driver(), used.graph)?;
        }
        let (graph, bytes) = (used.graph, used.form.bytes);
        if let Some(budget) = self.options.and_then(|options| options.budget) {
            let pinned = self.pinned_bytes();
            if bytes.saturating_add(pinned) > budget {
                let why = PoolRefusal::NoExecutable { bytes, pinned, budget };
                return Err(means.engine.refuse(means.pool, means.call, why));
            }
            self.destroy(self.unpinned(), means, |it, _| it.counted(it.bytes() + bytes) > budget)?;
        }
        let before = means.engine.left_by_others();
        let handle = loop {
            match instantiate(means.engine, graph) {
                Ok(handle) => break handle,
                Err(error) => match self.unpinned().first() {
                    Some(&oldest) if error.is_out_of_memory() && self.are_lazy() => {
                        self.destroy(vec![oldest], means, |_, _| true)?;
                    }
                    _ => return Err(error.into()),
                },
            }
        };
        let mut used = self.graphs.remove(&member).expect("the graph lives");
        used.form.measure(taken(means.engine, before));
        let (place, bytes) = (self.place(handle, &used.form, member), used.form.bytes);
        used.executable = Some(place);
        self.graphs.insert(member, used);
        if let Some(budget) = self.options.and_then(|options| options.budget) {
            self.settle((place, bytes), budget, means)?;
        }
        Ok(handle)
    }

    /// An executable was made, which may have taken more than was foreseen: others go for it now. One that took more by
    /// itself than the budget goes again, and is not made another time: what it had is the driver's for the next ones.
    fn settle<D: HostApi>(
        &mut self,
        (place, bytes): (usize, u64),
        budget: u64,
        means: &Means<'_, D>,
    ) -> Result<(), Error> {
        self.destroy(self.unpinned(), means, |it, oldest| {
            oldest != place && it.counted(it.bytes()) > budget
        })?;
        if bytes <= budget {
            return Ok(());
        }
        self.destroy(vec![place], means, |_, _| true)?;
        let why = PoolRefusal::NoExecutable { bytes, pinned: self.pinned_bytes(), budget };
        Err(means.engine.refuse(means.pool, means.call, why))
    }

    /// What is foreseen for those that are pinned, in bytes.
    fn pinned_bytes(&self) -> u64 {
        let pinned = self.pinned().into_iter().filter_map(|place| self.places[place].as_ref());
        pinned.map(|it| it.form.bytes).sum()
    }

    /// Takes an executable in that was made of a graph.
    fn place(&mut self, handle: ExecutableHandle, form: &Form, member: Member) -> usize {
        let holds = Some(member);
        let made = Executable { handle, form: form.clone(), holds, asked: self.clock };
        let place = enter_row(&mut self.places, made);
        self.counts.made += 1;
        self.peak = self.peak.max(self.bytes());
        // What is more than that others have taken meanwhile.
        self.taken = (self.taken + form.measured).min(8 * self.peak + Self::DRIVER_PIECE);
        place
    }

    /// The places of those that are pinned.
    fn pinned(&self) -> BTreeSet<usize> {
        self.graphs.values().filter(|it| it.pinned).filter_map(|it| it.executable).collect()
    }

    /// Those that are not pinned, the one first that was asked for longest ago.
    fn unpinned(&self) -> Vec<usize> {
        let pinned = self.pinned();
        self.by_age(|place, _| !pinned.contains(&place))
    }

    /// Those that are wanted, the one first that was asked for longest ago.
    fn by_age(&self, wanted: impl Fn(usize, &Executable) -> bool) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        let present = places.filter_map(|(place, it)| Some((place, it.as_ref()?)));
        let found = present.filter(|&(place, it)| wanted(place, it));
        let mut found: Vec<_> = found.map(|(place, it)| (it.asked, place)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, place)| place).collect()
    }

    /// Destroys executables, which may run, as long as `goes` says that the next one does. Costs one look at each graph.
    fn destroy<D: HostApi>(
        &mut self,
        places: Vec<usize>,
        means: &Means<'_, D>,
        goes: impl Fn(&Self, usize) -> bool,
    ) -> Result<(), Error> {
        let mut done = Ok(());
        for place in places {
            if done.is_err() || !goes(self, place) {
                break;
            }
            done = (means.idle)();
            if let Some(it) = self.places[place].take_if(|_| done.is_ok()) {
                let _ = means.driver().destroy_executable(it.handle);
                self.counts.evicted += 1;
            }
        }
        for used in self.graphs.values_mut() {
            used.executable.take_if(|place| self.places[*place].is_none());
        }
        done
    }

    /// Destroys all executables that are not pinned, and returns the bytes that were foreseen for them.
    pub fn evict_all<D: HostApi>(&mut self, means: &Means<'_, D>) -> Result<u64, Error> {
        let before = self.bytes();
        self.destroy(self.unpinned(), means, |_, _| true)?;
        Ok(before - self.bytes())
    }

    /// Sets whether a graph's executable stays where the budget is short; at first it does not. A shared executable
    /// stays if one of the graphs that were launched by it is pinned.
    pub fn pin(&mut self, member: Member, pinned: bool) {
        if let Some(used) = self.graphs.get_mut(&member) {
            used.pinned = pinned;
        }
    }

    /// What the driver is foreseen to take for an executable of a graph, in bytes; 0 where it cannot tell.
    ///
    /// # Panics
    /// For a graph that was not taken, or was removed.
    pub fn bytes_of<D: HostApi>(&mut self, member: Member, driver: &D) -> Result<u64, Error> {
        let used = self.graphs.get_mut(&member).expect("the graph lives");
        used.form.read_shape(driver, used.graph)?;
        Ok(used.form.bytes)
    }

    /// What was measured when an executable was made of a graph, in bytes.
    pub(super) fn measured_of(&self, member: Member) -> u64 {
        self.graphs.get(&member).map_or(0, |it| it.form.measured)
    }

    /// What is foreseen for those that there are, in bytes.
    fn bytes(&self) -> u64 {
        self.places.iter().flatten().map(|it| it.form.bytes).sum()
    }

    /// What counts against the budget where so much is foreseen, in bytes. At the peak of what was foreseen the driver
    /// had taken what was measured.
    fn counted(&self, bytes: u64) -> u64 {
        let measured = u128::from(bytes) * u128::from(self.taken) / u128::from(self.peak.max(1));
        bytes.max(u64::try_from(measured).unwrap_or(u64::MAX))
    }

    /// The figures of the executables and their graphs.
    pub fn figures(&self) -> ExecutableFigures {
        let present = || self.places.iter().flatten();
        let bytes = self.bytes();
        ExecutableFigures {
            graphs: self.graphs.len(),
            graph_nodes: self.graphs.values().map(|it| it.form.nodes).sum(),
            graph_bytes: self.graphs.values().map(|it| it.form.bytes).sum(),
            executables: present().count(),
            nodes: present().map(|it| it.form.nodes).sum(),
            bytes,
            measured: present().map(|it| it.form.measured).sum(),
            counted: self.counted(bytes),
            ..self.counts
        }
    }
}
