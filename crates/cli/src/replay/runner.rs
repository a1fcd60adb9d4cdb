//! One run of a trace, operation by operation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clock::{nanoseconds, Clock};
use super::sample::Sampler;
use super::tags::{self, Touches};
use super::{Finding, Options, Output, Placement, Plan, ReplayError, Replayed};
use regraph::driver::{
    CaptureId, CaptureMode, CaptureStatus, DriverError, ExecutableHandle, GraphHandle, HostApi,
    NodeHandle, StreamHandle,
};
use regraph::engine::{
    self, Attempt, Block, BlockId, Engine, Followed, GraphId, PlanReport, PoolConfig, PoolId,
};
use regraph::settings::PlanChoice;
use regraph_tagged::{Program, Tagged, Work};
use regraph_trace::{dependencies, Members};
use regraph_trace::{BlockIndex, NodeIndex, Operation, PoolIndex, StreamIndex, Trace};

/// Tags stand in granules of this size, and blocks are rounded up to it.
const GRANULE: u64 = 512;

type Result<T> = std::result::Result<T, ReplayError>;

/// The state of a run.
pub(super) struct Runner<'a, P: Program> {
    pub(super) driver: &'a Arc<P>,
    pub(super) engine: Engine<Arc<P>>,
    trace: &'a Trace,
    options: &'a Options,
    pub(super) streams: BTreeMap<StreamIndex, StreamHandle>,
    pub(super) pools: BTreeMap<PoolIndex, PoolId>,
    /// The pool of allocations outside captures.
    pub(super) pool: PoolIndex,
    pub(super) blocks: BTreeMap<BlockIndex, Block>,
    tagged: BTreeSet<BlockIndex>,
    /// Every block that there was.
    pub(super) placed: BTreeMap<BlockIndex, Block>,
    findings: Vec<Finding>,
    pub(super) capture: Option<Capture>,
    pub(super) graphs: Vec<Graph>,
    verified: bool,
    pub(super) again: usize,
    plans: Vec<PlanReport>,
    instantiation: Option<Duration>,
    layouts: Vec<Followed>,
    pub(super) placements: Vec<Placement>,
    pub(super) operation: usize,
    name: &'static str,
    pub(super) alloc: Clock,
    pub(super) free: Clock,
    captures: Duration,
    work: WorkBuffer,
    pub(super) sampler: Option<Sampler<'a>>,
}

/// A capture under way.
pub(super) struct Capture {
    pub(super) origin: StreamIndex,
    /// `None` once the engine has ended it.
    pub(super) id: Option<CaptureId>,
    pub(super) graph: GraphHandle,
    members: Members,
    /// By number; empty unless the raw form needs them.
    nodes: Vec<NodeHandle>,
    node_count: NodeIndex,
    raw: bool,
    touches: Vec<Touches>,
}

/// The latest capture that began, for another attempt.
#[derive(Default)]
pub(super) struct Begun {
    /// The operation, counted from 1.
    operation: usize,
    pub(super) attempt: Attempt,
    /// How many blocks had been placed.
    pub(super) placements: usize,
}

/// A captured graph.
pub(super) struct Graph {
    pub(super) graph: GraphHandle,
    /// `None` once it is released.
    pub(super) id: Option<GraphId>,
    pub(super) executable: Option<ExecutableHandle>,
}

/// The inputs and outputs of one node.
#[derive(Default)]
struct WorkBuffer {
    inputs: Vec<Tagged>,
    outputs: Vec<Tagged>,
    delay: u32,
}

impl WorkBuffer {
    fn get(&self) -> Work<'_> {
        Work {
            inputs: &self.inputs,
            outputs: &self.outputs,
            delay: self.delay,
            trigger_early: false,
        }
    }
}

/// How many captures a trace has into one pool, at most.
fn most_captures(trace: &Trace) -> u64 {
    let mut captures: BTreeMap<PoolIndex, u64> = BTreeMap::new();
    for operation in trace.operations() {
        if let Operation::Begin { pool, .. } = operation {
            *captures.entry(*pool).or_default() += 1;
        }
    }
    captures.into_values().max().unwrap_or(0).max(1)
}

impl<'a, P: Program> Runner<'a, P> {
    pub(super) fn new(
        driver: &'a Arc<P>,
        trace: &'a Trace,
        options: &'a Options,
        sampler: Option<Sampler<'a>>,
    ) -> Self {
        let first_pool = trace.operations().iter().find_map(|operation| match operation {
            Operation::Begin { pool, .. } => Some(*pool),
            _ => None,
        });
        let mut config = options.config.clone();
        if options.lint {
            config = config.find_late_uses(true);
            config.settings.early_reads = true;
        }
        config.settings.plan = match options.plan {
            Plan::Exact | Plan::Twice => PlanChoice::Exact,
            Plan::None if options.warm_ups > 0 => PlanChoice::Auto,
            _ => config.settings.plan,
        };
        if config.settings.plan == PlanChoice::Exact {
            config.settings.plan_pool_graphs.get_or_insert_with(|| most_captures(trace));
        }
        Self {
            driver,
            engine: Engine::new(Arc::clone(driver), config),
            trace,
            options,
            streams: BTreeMap::new(),
            pools: BTreeMap::new(),
            pool: first_pool.unwrap_or(0),
            blocks: BTreeMap::new(),
            tagged: BTreeSet::new(),
            placed: BTreeMap::new(),
            findings: Vec::new(),
            capture: None,
            graphs: Vec::new(),
            verified: true,
            again: 0,
            plans: Vec::new(),
            instantiation: None,
            layouts: Vec::new(),
            placements: Vec::with_capacity(trace.blocks()),
            operation: 0,
            name: "",
            alloc: Clock::new(),
            free: Clock::new(),
            captures: Duration::ZERO,
            work: WorkBuffer::default(),
            sampler,
        }
    }

    pub(super) fn run(&mut self) -> Result<Replayed> {
        let trace = self.trace;
        let mut started = Instant::now();
        for (index, operation) in trace.operations().iter().enumerate() {
            self.operation = index + 1;
            self.name = operation.name();
            for stream in operation.streams() {
                if !self.streams.contains_key(&stream) {
                    let handle = self.driver.create_stream().map_err(|e| self.driver_failed(e))?;
                    self.streams.insert(stream, handle);
                }
            }
        }
        let mut index = 0;
        let mut begun = Begun::default();
        while let Some(operation) = trace.operations().get(index) {
            self.operation = index + 1;
            self.name = operation.name();
            index += 1;
            match operation {
                Operation::Begin { stream, pool } => {
                    if begun.operation != index {
                        let (attempt, placements) = (Attempt::First, self.placements.len());
                        begun = Begun { operation: index, attempt, placements };
                    }
                    let rest = &trace.operations()[index..];
                    let layout = match self.options.plan {
                        Plan::None | Plan::Exact => {
                            (0..self.options.warm_ups).try_for_each(|_| self.warm_up(rest))?;
                            None
                        }
                        Plan::Twice => Some(self.rehearse(*stream, *pool, rest)?),
                        Plan::Learned => {
                            self.engine.plans().learn().map_err(|e| self.engine_failed(e))?;
                            self.warm_up(rest)?;
                            self.engine.plans().learned().map_err(|e| self.engine_failed(e))?;
                            None
                        }
                    };
                    started = self.begin(*stream, *pool, rest)?;
                    self.attempt(begun.attempt)?;
                    if let Some(layout) = layout {
                        self.follow(layout)?;
                    }
                }
                Operation::End {} => {
                    let ended = self.end();
                    self.captures += started.elapsed();
                    if let Err(ReplayError::Engine { source, .. }) = ended {
                        let attempt = begun.attempt.after(source);
                        begun.attempt = attempt.map_err(|e| self.engine_failed(e))?;
                        self.take_back(&begun)?;
                        index = begun.operation - 1;
                        continue;
                    }
                    ended?;
                }
                _ => self.step(operation)?,
            }
            self.sample(operation)?;
        }
        let (reserved, peak) = self.pool_figures()?;
        let replay_ns = self.launch()?;
        Ok(Replayed {
            captures: self.graphs.len(),
            nodes: trace.nodes(),
            blocks: self.placements.len(),
            total_bytes: trace.total_bytes(),
            peak_allocated_bytes: peak,
            reserved_bytes: reserved,
            alloc_ns: self.alloc.mean(),
            free_ns: self.free.mean(),
            capture_ns: nanoseconds(self.captures),
            replay_ns,
            verified: self.verified,
            again: self.again,
            plans: std::mem::take(&mut self.plans),
            instantiate_ns: self.instantiation.map(nanoseconds),
            layouts: std::mem::take(&mut self.layouts),
            placements: std::mem::take(&mut self.placements),
            findings: std::mem::take(&mut self.findings),
            outputs: self.outputs()?,
        })
    }

    pub(super) fn driver_failed(&self, source: DriverError) -> ReplayError {
        ReplayError::Driver { operation: self.operation, name: self.name, source }
    }

    pub(super) fn engine_failed(&self, source: engine::Error) -> ReplayError {
        ReplayError::Engine { operation: self.operation, name: self.name, source }
    }

    pub(super) fn begin(
        &mut self,
        origin: StreamIndex,
        pool: PoolIndex,
        rest: &[Operation],
    ) -> Result<Instant> {
        self.pool = pool;
        let pool = self.pool(pool)?;
        let end = rest
            .iter()
            .position(|operation| matches!(operation, Operation::End {}))
            .unwrap_or(rest.len());
        let operations = &rest[..end];
        let members = Members::new(origin, operations);
        let raw = operations.iter().any(|operation| {
            matches!(operation, Operation::Node { .. } | Operation::Terminals { .. })
        });
        let touches = if self.options.tags {
            tags::plan(origin, operations, self.options.seed)
        } else {
            Vec::new()
        };
        let stream = self.streams[&origin];

        let started = Instant::now();
        self.driver
            .begin_capture(stream, CaptureMode::Relaxed)
            .map_err(|e| self.driver_failed(e))?;
        let capture = self.capture.insert(Capture {
            origin,
            id: None,
            graph: GraphHandle::from_bits(0),
            members,
            nodes: Vec::new(),
            node_count: 0,
            raw,
            touches,
        });
        let status = self.driver.capture_status(stream, &mut Vec::new());
        match status {
            Ok(CaptureStatus::Active { graph, .. }) => capture.graph = graph,
            Ok(_) => return Err(self.not_capturing(origin)),
            Err(error) => return Err(self.driver_failed(error)),
        }
        let id = self.engine.begin_capture(pool, stream).map_err(|e| self.engine_failed(e))?;
        if let Some(capture) = &mut self.capture {
            capture.id = Some(id);
        }
        Ok(started)
    }

    fn not_capturing(&self, stream: StreamIndex) -> ReplayError {
        ReplayError::NotCapturing { operation: self.operation, name: self.name, stream }
    }

    fn pool(&mut self, pool: PoolIndex) -> Result<PoolId> {
        if let Some(id) = self.pools.get(&pool) {
            return Ok(*id);
        }
        let id = self.engine.create_pool(PoolConfig::default());
        self.pools.insert(pool, id);
        Ok(id)
    }

    /// Lets the origin wait for every stream of the capture.
    pub(super) fn join(&self) -> Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
        let origin = self.streams[&capture.origin];
        let others = capture.members.inside().filter(|&stream| stream != capture.origin);
        for stream in others {
            let joined = self.driver.wait(origin, self.streams[&stream]);
            joined.map_err(|source| self.driver_failed(source))?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.join()?;
        let Some(capture) = &mut self.capture else {
            return Ok(());
        };
        let origin = self.streams[&capture.origin];
        let graph = capture.graph;
        // With any answer the engine is done with the capture.
        let report = capture.id.take().map(|id| self.engine.end_capture(id, graph));
        let report = match report {
            Some(Err(error)) => return Err(self.engine_failed(error)),
            Some(Ok(report)) => Some(report),
            None => None,
        };
        self.capture = None;
        let ended = self.driver.end_capture(origin);
        self.verified &= report.as_ref().is_some_and(|report| report.verified);
        if let Some(report) = report.as_ref().filter(|_| self.options.lint) {
            self.find(report);
        }
        self.plans.extend(report.as_ref().and_then(|report| report.plan));
        self.layouts.extend(report.as_ref().and_then(|report| report.layout.clone()));
        let id = report.map(|report| report.graph);
        match ended {
            Ok(graph) => {
                self.graphs.push(Graph { graph, id, executable: None });
                Ok(())
            }
            Err(error) => {
                if let Some(id) = id {
                    // The graph is gone already; the first error is the one to tell.
                    let _ = self.engine.release_graph(id);
                }
                Err(self.driver_failed(error))
            }
        }
    }

    /// Notes what was found in a capture's graph.
    fn find(&mut self, report: &engine::CaptureReport) {
        let capture = self.graphs.len() + 1;
        let numbers: BTreeMap<_, _> =
            self.placed.iter().map(|(&id, block)| (block.id.number(), id)).collect();
        let finding = |block, guess, text| Finding {
            capture,
            block: numbers.get(&block).copied(),
            guess,
            text,
        };
        let late = report.late_uses.iter();
        let late = late.map(|it| finding(it.block.block, false, it.to_string()));
        let early = report.early_reads.iter();
        let early = early.map(|it| finding(it.block.block, !it.is_likely(), it.to_string()));
        self.findings.extend(late.chain(early));
    }

    pub(super) fn step(&mut self, operation: &Operation) -> Result<()> {
        for stream in operation.streams() {
            self.enter(stream)?;
        }
        match *operation {
            Operation::Kernel { stream, programmatic, ref uses } => {
                self.prepare(uses);
                self.kernel(stream, programmatic)
            }
            Operation::Wait { stream, on } => {
                let waits =
                    self.capture.as_mut().is_some_and(|capture| capture.members.waits(stream, on));
                if !waits {
                    return Ok(());
                }
                self.driver
                    .wait(self.streams[&stream], self.streams[&on])
                    .map_err(|e| self.driver_failed(e))
            }
            Operation::Node { ref after, ref programmatic, ref uses, .. } => {
                self.prepare(uses);
                self.node(after, programmatic)
            }
            Operation::Terminals { stream, ref nodes } => {
                let Some(capture) = &self.capture else {
                    return Ok(());
                };
                let terminals = dependencies(&capture.nodes, nodes, &[]);
                let handle = self.streams[&stream];
                // What a set-back leaves behind cannot be told from other streams' work later.
                self.engine.observe(handle).map_err(|e| self.engine_failed(e))?;
                self.driver.set_terminals(handle, &terminals).map_err(|e| self.driver_failed(e))?;
                self.engine.observe(handle).map_err(|e| self.engine_failed(e))
            }
            Operation::Alloc { id, bytes, stream } => self.allocate(id, bytes, stream),
            Operation::Use { id, stream } => self.used(id, stream, Engine::record_stream),
            Operation::LastUse { id, stream } => self.used(id, stream, Engine::record_use),
            Operation::Free { id } => {
                let Some(block) = self.blocks.remove(&id) else {
                    return Ok(());
                };
                let freed = self.free.time(|| self.engine.free(block.id));
                freed.map_err(|e| self.engine_failed(e))
            }
            Operation::Begin { .. } | Operation::End {} => Ok(()),
        }
    }

    /// Lets a stream into the capture, with no terminals, if it belongs there and is not in it.
    fn enter(&mut self, stream: StreamIndex) -> Result<()> {
        let Some(capture) = &mut self.capture else {
            return Ok(());
        };
        if !capture.members.enters_at_once(stream) {
            return Ok(());
        }
        let origin = self.streams[&capture.origin];
        let stream = self.streams[&stream];
        self.driver
            .wait(stream, origin)
            .and_then(|()| self.driver.set_terminals(stream, &[]))
            .map_err(|e| self.driver_failed(e))
    }

    fn kernel(&mut self, stream: StreamIndex, programmatic: bool) -> Result<()> {
        let handle = self.streams[&stream];
        self.driver
            .launch(handle, self.work.get(), programmatic)
            .map_err(|e| self.driver_failed(e))?;
        let Some(capture) = &mut self.capture else {
            return Ok(());
        };
        capture.node_count += 1;
        if capture.raw {
            let mut terminals = Vec::new();
            let status = self.driver.capture_status(handle, &mut terminals);
            match (status, terminals.as_slice()) {
                (Ok(CaptureStatus::Active { .. }), [terminal]) => capture.nodes.push(terminal.node),
                (Ok(_), _) => return Err(self.not_capturing(stream)),
                (Err(error), _) => return Err(self.driver_failed(error)),
            }
        }
        Ok(())
    }

    fn node(&mut self, after: &[NodeIndex], programmatic: &[NodeIndex]) -> Result<()> {
        let Some(capture) = &mut self.capture else {
            return Ok(());
        };
        let after = dependencies(&capture.nodes, after, programmatic);
        let added = self.driver.add_node(capture.graph, &after, self.work.get());
        capture.node_count += 1;
        match added {
            Ok(node) => {
                capture.nodes.push(node);
                Ok(())
            }
            Err(error) => Err(self.driver_failed(error)),
        }
    }

    /// Fills the work of the next node, which is known to touch some blocks.
    fn prepare(&mut self, uses: &[BlockIndex]) {
        self.work.inputs.clear();
        self.work.outputs.clear();
        if self.options.lint && !self.options.tags {
            let seed = self.options.seed;
            let placed = uses.iter().filter_map(|id| Some((*id, self.placed.get(id)?)));
            self.work.outputs.extend(placed.map(|(id, block)| tagged(id, block, seed)));
            return;
        }
        let Some(capture) = &self.capture else {
            return;
        };
        let Some(touches) = capture.touches.get(capture.node_count as usize) else {
            return;
        };
        let seed = self.options.seed;
        let tagged = |id: &BlockIndex| self.blocks.get(id).map(|block| tagged(*id, block, seed));
        self.work.inputs.extend(touches.checks.iter().filter_map(tagged));
        self.work.outputs.extend(touches.writes.iter().filter_map(tagged));
        self.work.delay = super::tags::delay(capture.node_count, seed, self.options.delay);
        self.tagged.extend(touches.writes.iter().copied());
    }

    fn allocate(&mut self, id: BlockIndex, bytes: u64, stream: StreamIndex) -> Result<()> {
        let pool = self.pool(self.pool)?;
        let stream = self.streams[&stream];
        let block = self.alloc.time(|| self.engine.allocate(pool, bytes, stream));
        let block = block.map_err(|e| self.engine_failed(e))?;
        self.blocks.insert(id, block);
        self.placed.insert(id, block);
        self.placements.push(Placement { id, address: block.address, bytes });
        Ok(())
    }

    /// Records a use of a block, but of one from before the capture that an earlier attempt freed.
    fn used(
        &mut self,
        id: BlockIndex,
        stream: StreamIndex,
        record: impl Fn(
            &Engine<Arc<P>>,
            BlockId,
            StreamHandle,
        ) -> std::result::Result<(), engine::Error>,
    ) -> Result<()> {
        let Some(block) = self.blocks.get(&id) else { return Ok(()) };
        record(&self.engine, block.id, self.streams[&stream]).map_err(|e| self.engine_failed(e))
    }

    fn pool_figures(&self) -> Result<(u64, u64)> {
        let mut sums = (0, 0);
        for pool in self.pools.values() {
            let statistics =
                self.engine.pool_statistics(*pool).map_err(|e| self.engine_failed(e))?;
            sums.0 += statistics.reserved;
            sums.1 += statistics.peak_allocated;
        }
        Ok(sums)
    }

    /// Launches all graphs in turn, and times it. The first of several rounds is not timed.
    fn launch(&mut self) -> Result<Option<u64>> {
        let rounds = self.options.launches.max(u32::from(self.options.tags));
        let Some(stream) = self.streams.values().next().copied() else {
            return Ok(None);
        };
        if rounds == 0 || self.graphs.is_empty() {
            return Ok(None);
        }
        let mean = self.launch_rounds(stream, rounds).map_err(ReplayError::Launch)?;
        match self.driver.take_wrong_tags().map_err(ReplayError::Launch)? {
            0 => Ok(Some(mean)),
            wrong => Err(ReplayError::WrongTags(wrong)),
        }
    }

    fn launch_rounds(
        &mut self,
        stream: StreamHandle,
        rounds: u32,
    ) -> std::result::Result<u64, DriverError> {
        let started = Instant::now();
        for graph in &mut self.graphs {
            graph.executable = Some(self.driver.instantiate(graph.graph)?);
        }
        self.instantiation = Some(started.elapsed());
        self.driver.synchronize()?;
        self.driver.take_wrong_tags()?;
        let mut total = Duration::ZERO;
        let mut timed = 0;
        for round in 0..rounds {
            let started = Instant::now();
            for executable in self.graphs.iter().filter_map(|graph| graph.executable) {
                self.driver.replay(executable, stream)?;
                self.driver.synchronize()?;
            }
            if round > 0 || rounds == 1 {
                total += started.elapsed();
                timed += 1;
            }
        }
        Ok(nanoseconds(total) / timed.max(1))
    }

    /// Reads the tagged blocks that were never freed.
    fn outputs(&self) -> Result<Vec<Output>> {
        let mut outputs = Vec::new();
        for (id, block) in self.blocks.iter().filter(|(id, _)| self.tagged.contains(id)) {
            let expected = tagged(*id, block, self.options.seed);
            let tags = self
                .driver
                .read_tags(expected.address, expected.bytes)
                .map_err(ReplayError::Launch)?;
            if tags.iter().any(|tag| *tag != expected.tag) {
                return Err(ReplayError::WrongOutput(*id));
            }
            outputs.push(Output { id: *id, tags });
        }
        Ok(outputs)
    }
}

fn tagged(id: BlockIndex, block: &Block, seed: u64) -> Tagged {
    Tagged {
        address: block.address,
        bytes: block.bytes.next_multiple_of(GRANULE),
        tag: tags::tag(id, seed),
    }
}
