//! The simulated driver: the capture semantics of a CUDA driver, without a GPU.
//!
//! Simulated: streams, captures with their forks, joins and ruin, capture modes, graphs and their
//! edits, virtual memory with its refusals, whole allocations, events, failures on demand, and the
//! running of work against a shadow of memory (see [`SimDriver::set_schedule_seed`]).
//!
//! Not simulated: time (a delay is ignored, work completes when [`SimDriver::complete`],
//! [`SimDriver::complete_all`] or `synchronize` says so), the bytes of memory, the order that the
//! legacy stream imposes on blocking streams outside captures, child graphs, a replay inside a
//! capture (refused), memory and host nodes, and a thread's own capture mode: calls through
//! [`Driver`] that a capture may forbid count as made in relaxed mode, see
//! [`SimDriver::relaxed_calls`], and [`SimDriver::unsafe_call`] is one that is not. A graph that was
//! handed to a capture keeps what a failed capture left in it.
//!
//! Handles of streams, graphs, nodes, events and memory are never used twice.

mod capture;
mod events;
mod execute;
mod faults;
mod graph;
mod memory;
mod refusal;
mod shadow;
mod slots;

use std::sync::{Mutex, MutexGuard, PoisonError};

use capture::{Capture, Stream};
use events::Event;
use execute::{Executable, Execution};
use faults::Faults;
use graph::{Graphs, NewNode};
use memory::Memory;
use refusal::{Fallible, Refusal};

pub use events::SimEvent;
pub use faults::Call;

use super::{
    CaptureMode, CaptureStatus, Dependency, Driver, EdgeData, ErrorKind, EventHandle,
    ExecutableHandle, GraphHandle, MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind,
    Program, Result, StreamHandle, Tagged, Work,
};

/// What the simulated device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Its memory.
    pub total_bytes: u64,
    /// How it gives out memory. A granularity is rounded up to a power of two, 512 at least.
    pub support: MemorySupport,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            total_bytes: 141 << 30,
            support: MemorySupport::Mapped {
                granularity: 2 << 20,
            },
        }
    }
}

/// A driver without a GPU.
#[derive(Debug)]
pub struct SimDriver {
    support: MemorySupport,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    faults: Faults,
    /// The first is the legacy stream.
    streams: Vec<Stream>,
    captures: Vec<Capture>,
    live_captures: Vec<usize>,
    /// How many blocking streams capture.
    blocking_captures: usize,
    graphs: Graphs,
    events: Vec<Event>,
    memory: Memory,
    execution: Execution,
    executables: Vec<Option<Executable>>,
    relaxed_calls: u64,
}

impl State {
    fn graph(&self, graph: GraphHandle) -> Fallible<usize> {
        self.graphs.alive(slots::of_graph(graph))
    }

    fn add_node(
        &mut self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        work: &Work<'_>,
    ) -> Fallible<NodeHandle> {
        let graph = self.graph(graph)?;
        self.graphs
            .check_all(graph, dependencies, NodeKind::KERNEL)?;
        let new = NewNode {
            kind: NodeKind::KERNEL,
            launched: None,
            work: self.graphs.store(work),
            body: None,
        };
        Ok(self.graphs.add(graph, dependencies, new))
    }

    fn add_conditional(
        &mut self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Fallible<(NodeHandle, GraphHandle)> {
        let graph = self.graph(graph)?;
        self.graphs
            .check_all(graph, dependencies, NodeKind::CONDITIONAL)?;
        let body = self.graphs.create(true);
        let new = NewNode {
            kind: NodeKind::CONDITIONAL,
            launched: None,
            work: None,
            body: Some(slots::short(body)),
        };
        let node = self.graphs.add(graph, dependencies, new);
        Ok((node, slots::graph(body)))
    }

    fn destroy_graph(&mut self, graph: GraphHandle) -> Fallible<()> {
        let graph = self.graph(graph)?;
        if self.graphs.is_body(graph) || self.graphs.any_capturing(graph) {
            return Err(ErrorKind::InvalidValue.into());
        }
        self.graphs.destroy(graph);
        Ok(())
    }

    fn instantiate(&mut self, graph: GraphHandle) -> Fallible<ExecutableHandle> {
        let graph = self.graph(graph)?;
        if self.graphs.any_capturing(graph) {
            return Err(ErrorKind::InvalidValue.into());
        }
        let executable = Executable::new(&self.graphs, graph);
        self.executables.push(Some(executable));
        Ok(slots::executable(self.executables.len() - 1))
    }

    fn replay(&mut self, executable: ExecutableHandle, stream: StreamHandle) -> Fallible<()> {
        let slot = self.used_stream(stream)?;
        let executable = match self.executables.get_mut(slots::of_executable(executable)) {
            Some(Some(executable)) => executable,
            _ => return Err(ErrorKind::InvalidValue.into()),
        };
        let last = self.streams[slot].last;
        if self.streams[slot].is_capturing() {
            return Err(ErrorKind::CaptureUnsupported.into());
        }
        let end = self.execution.replay(executable, last);
        self.streams[slot].follow(end);
        Ok(())
    }

    fn destroy_executable(&mut self, executable: ExecutableHandle) -> Fallible<()> {
        let slot = slots::of_executable(executable);
        match self.executables.get_mut(slot).and_then(Option::take) {
            Some(_) => Ok(()),
            None => Err(ErrorKind::InvalidValue.into()),
        }
    }

    fn complete(&mut self, stream: StreamHandle) -> Fallible<()> {
        let slot = self.stream(stream)?;
        if let Some(step) = self.streams[slot].last {
            self.execution.run_until(step, &self.graphs, &self.memory);
        }
        Ok(())
    }

    fn complete_all(&mut self) {
        self.execution.run_all(&self.graphs, &self.memory);
    }

    fn synchronize(&mut self) -> Fallible<()> {
        self.relaxed_calls += 1;
        self.complete_all();
        if self.execution.take_illegal() {
            return Err(Refusal::illegal_address());
        }
        Ok(())
    }

    fn read_tags(&self, address: u64, bytes: u64) -> Fallible<Vec<u64>> {
        let range = Tagged {
            address,
            bytes,
            tag: 0,
        };
        let tags = self.execution.read_tags(&range, &self.memory);
        tags.ok_or_else(|| ErrorKind::InvalidValue.into())
    }
}

impl SimDriver {
    /// A device with nothing on it.
    pub fn new(config: SimConfig) -> Self {
        let support = match config.support {
            MemorySupport::Mapped { granularity } => MemorySupport::Mapped {
                granularity: granularity.max(memory::GRANULE).next_power_of_two(),
            },
            MemorySupport::Allocated => MemorySupport::Allocated,
        };
        Self {
            support,
            state: Mutex::new(State {
                faults: Faults::default(),
                streams: vec![Stream::new(false)],
                captures: Vec::new(),
                live_captures: Vec::new(),
                blocking_captures: 0,
                graphs: Graphs::default(),
                events: Vec::new(),
                memory: Memory::new(config.total_bytes, support),
                execution: Execution::new(),
                executables: Vec::new(),
                relaxed_calls: 0,
            }),
        }
    }

    /// Creates a stream that synchronises with the legacy stream.
    pub fn create_blocking_stream(&self) -> StreamHandle {
        self.lock().create_stream(true)
    }

    /// Records a new event on a stream, capturing or not. What the event stands for does not
    /// change when the stream goes on.
    ///
    /// # Errors
    /// An unknown stream, or one whose capture is invalidated.
    pub fn record(&self, stream: StreamHandle) -> Result<SimEvent> {
        let recorded = self.lock().record(stream, None);
        recorded.map_err(|refusal| refusal.of("cuEventRecord"))
    }

    /// Records a new event that fires early: whoever waits for it depends by `edge` on the kernels
    /// that it stands behind, and by ordinary edges on nodes that are not kernels.
    ///
    /// # Errors
    /// As for [`SimDriver::record`].
    pub fn record_programmatic(&self, stream: StreamHandle, edge: EdgeData) -> Result<SimEvent> {
        let recorded = self.lock().record(stream, Some(edge));
        recorded.map_err(|refusal| refusal.of("cuLaunchKernelEx"))
    }

    /// Makes a stream wait for an event, however long ago it was recorded.
    ///
    /// # Errors
    /// As for [`Program::wait`].
    pub fn wait_event(&self, stream: StreamHandle, event: SimEvent) -> Result<()> {
        let waited = self.lock().wait_event(stream, event);
        waited.map_err(|refusal| refusal.of("cuStreamWaitEvent"))
    }

    /// Ruins the capture that a stream is in.
    ///
    /// # Errors
    /// A stream that does not capture.
    pub fn invalidate(&self, stream: StreamHandle) -> Result<()> {
        let invalidated = self.lock().invalidate(stream);
        invalidated.map_err(|refusal| refusal.of("cuStreamAttachMemAsync"))
    }

    /// A call of the host's that captures forbid, such as `cuMemAlloc`, made in the ordinary mode
    /// of its thread. It ruins every capture whose mode forbids it.
    ///
    /// # Errors
    /// [`ErrorKind::CaptureUnsupported`] if there was such a capture.
    pub fn unsafe_call(&self) -> Result<()> {
        let called = self.lock().unsafe_call();
        called.map_err(|refusal| refusal.of("cuMemAlloc"))
    }

    /// How many calls were made for which a real implementation has to switch its thread to the
    /// relaxed capture mode.
    pub fn relaxed_calls(&self) -> u64 {
        self.lock().relaxed_calls
    }

    /// Completes the work of a stream, and what that waits for, and no other.
    ///
    /// # Errors
    /// An unknown stream.
    pub fn complete(&self, stream: StreamHandle) -> Result<()> {
        let completed = self.lock().complete(stream);
        completed.map_err(|refusal| refusal.of("cuStreamSynchronize"))
    }

    /// Completes all work.
    pub fn complete_all(&self) {
        self.lock().complete_all();
    }

    /// Chooses the order of pending and later work among those that its edges allow. Work starts
    /// and ends when it is completed, not before.
    pub fn set_schedule_seed(&self, seed: u64) {
        self.lock().execution.set_seed(seed);
    }

    /// Makes one coming call of a kind fail without effect; zero is the very next.
    pub fn fail_nth(&self, call: Call, n: u64, kind: ErrorKind) {
        self.lock().faults.inject(Some(call), n, kind);
    }

    /// Makes one coming call of any kind in [`Call`] fail without effect; zero is the very next.
    pub fn fail_any_nth(&self, n: u64, kind: ErrorKind) {
        self.lock().faults.inject(None, n, kind);
    }

    /// How often a call was made, failures included.
    pub fn calls(&self, call: Call) -> u64 {
        self.lock().faults.count(call)
    }

    /// How many calls in [`Call`] were made, failures included.
    pub fn total_calls(&self) -> u64 {
        self.lock().faults.total()
    }

    /// The stream whose launch made a node; `None` for a node that was added raw.
    pub fn launched(&self, node: NodeHandle) -> Option<StreamHandle> {
        let stream = self.lock().graphs.launched(node)?;
        Some(slots::stream(stream as usize))
    }

    /// The nodes that a stream's next node would depend on; none for a stream that does not
    /// capture.
    ///
    /// # Errors
    /// An unknown stream.
    pub fn terminals(&self, stream: StreamHandle) -> Result<Vec<Dependency>> {
        let state = self.lock();
        let terminals = state.terminals(stream).map(<[Dependency]>::to_vec);
        terminals.map_err(|refusal| refusal.of("cuStreamGetCaptureInfo"))
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked inside left at worst a call half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call of [`Driver`]: counted, and failed where that was asked for.
    #[inline]
    fn call<T>(&self, call: Call, body: impl FnOnce(&mut State) -> Fallible<T>) -> Result<T> {
        let mut state = self.lock();
        match state.faults.enter(call).and_then(|()| body(&mut state)) {
            Ok(value) => Ok(value),
            Err(refusal) => Err(refusal.of(call.driver_name())),
        }
    }

    /// Makes a call of [`Program`].
    fn program<T>(
        &self,
        name: &'static str,
        body: impl FnOnce(&mut State) -> Fallible<T>,
    ) -> Result<T> {
        body(&mut self.lock()).map_err(|refusal| refusal.of(name))
    }
}

impl Driver for SimDriver {
    #[inline]
    fn capture_status(
        &self,
        stream: StreamHandle,
        terminals: &mut Vec<Dependency>,
    ) -> Result<CaptureStatus> {
        terminals.clear();
        self.call(Call::CaptureStatus, |state| {
            state.capture_status(stream, terminals)
        })
    }

    #[inline]
    fn dependencies(&self, node: NodeHandle, dependencies: &mut Vec<Dependency>) -> Result<()> {
        dependencies.clear();
        self.call(Call::Dependencies, |state| {
            dependencies.extend_from_slice(state.graphs.dependencies(node)?);
            Ok(())
        })
    }

    fn nodes(&self, graph: GraphHandle, nodes: &mut Vec<NodeHandle>) -> Result<()> {
        nodes.clear();
        self.call(Call::Nodes, |state| {
            let graph = state.graph(graph)?;
            nodes.extend_from_slice(state.graphs.nodes(graph));
            Ok(())
        })
    }

    #[inline]
    fn node_kind(&self, node: NodeHandle) -> Result<NodeKind> {
        self.call(Call::NodeKind, |state| state.graphs.kind(node))
    }

    fn memory_support(&self) -> MemorySupport {
        self.support
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.call(Call::MemoryInfo, |state| Ok(state.memory.info()))
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.call(Call::Reserve, |state| state.memory.reserve(bytes))
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::Unreserve, |state| {
            state.memory.unreserve(address, bytes)
        })
    }

    fn create(&self, bytes: u64) -> Result<MemoryHandle> {
        self.call(Call::Create, |state| state.memory.create(bytes))
    }

    fn release(&self, memory: MemoryHandle) -> Result<()> {
        self.call(Call::Release, |state| state.memory.release(memory))
    }

    fn map(&self, address: u64, bytes: u64, memory: MemoryHandle) -> Result<()> {
        self.call(Call::Map, |state| state.memory.map(address, bytes, memory))
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::SetAccess, |state| {
            state.memory.set_access(address, bytes)
        })
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::Unmap, |state| state.memory.unmap(address, bytes))
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        self.call(Call::Allocate, |state| {
            state.relaxed_calls += 1;
            state.memory.allocate(bytes)
        })
    }

    fn free(&self, address: u64) -> Result<()> {
        self.call(Call::Free, |state| {
            state.relaxed_calls += 1;
            state.memory.free(address)
        })
    }

    fn create_event(&self) -> Result<EventHandle> {
        self.call(Call::CreateEvent, |state| Ok(state.create_event()))
    }

    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.call(Call::RecordEvent, |state| state.record_event(event, stream))
    }

    fn query_event(&self, event: EventHandle) -> Result<bool> {
        self.call(Call::QueryEvent, |state| {
            state.relaxed_calls += 1;
            state.query_event(event)
        })
    }

    fn destroy_event(&self, event: EventHandle) -> Result<()> {
        self.call(Call::DestroyEvent, |state| state.destroy_event(event))
    }
}

impl Program for SimDriver {
    fn create_stream(&self) -> Result<StreamHandle> {
        self.program("cuStreamCreate", |state| Ok(state.create_stream(false)))
    }

    fn destroy_stream(&self, stream: StreamHandle) -> Result<()> {
        self.program("cuStreamDestroy", |state| state.destroy_stream(stream))
    }

    fn begin_capture(&self, stream: StreamHandle, mode: CaptureMode) -> Result<()> {
        self.program("cuStreamBeginCapture", |state| {
            state.begin_capture(stream, None, mode)
        })
    }

    fn begin_capture_to_graph(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        mode: CaptureMode,
    ) -> Result<()> {
        self.program("cuStreamBeginCaptureToGraph", |state| {
            state.begin_capture(stream, Some(graph), mode)
        })
    }

    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle> {
        self.program("cuStreamEndCapture", |state| state.end_capture(stream))
    }

    fn launch(&self, stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()> {
        self.program("cuLaunchKernelEx", |state| {
            state.launch(stream, &work, programmatic)
        })
    }

    fn wait(&self, stream: StreamHandle, on: StreamHandle) -> Result<()> {
        self.program("cuStreamWaitEvent", |state| state.wait(stream, on))
    }

    fn set_terminals(&self, stream: StreamHandle, terminals: &[Dependency]) -> Result<()> {
        self.program("cuStreamUpdateCaptureDependencies", |state| {
            state.set_terminals(stream, terminals)
        })
    }

    fn add_node(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        work: Work<'_>,
    ) -> Result<NodeHandle> {
        self.program("cuGraphAddNode", |state| {
            state.add_node(graph, dependencies, &work)
        })
    }

    fn add_conditional(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Result<(NodeHandle, GraphHandle)> {
        self.program("cuGraphAddNode", |state| {
            state.add_conditional(graph, dependencies)
        })
    }

    fn add_dependency(&self, graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()> {
        self.program("cuGraphAddDependencies", |state| {
            let graph = state.graph(graph)?;
            state.graphs.link(graph, from, to)
        })
    }

    fn remove_dependency(
        &self,
        graph: GraphHandle,
        from: Dependency,
        to: NodeHandle,
    ) -> Result<()> {
        self.program("cuGraphRemoveDependencies", |state| {
            let graph = state.graph(graph)?;
            state.graphs.unlink(graph, from, to)
        })
    }

    fn destroy_graph(&self, graph: GraphHandle) -> Result<()> {
        self.program("cuGraphDestroy", |state| state.destroy_graph(graph))
    }

    fn instantiate(&self, graph: GraphHandle) -> Result<ExecutableHandle> {
        self.program("cuGraphInstantiate", |state| state.instantiate(graph))
    }

    fn replay(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        self.program("cuGraphLaunch", |state| state.replay(executable, stream))
    }

    fn destroy_executable(&self, executable: ExecutableHandle) -> Result<()> {
        self.program("cuGraphExecDestroy", |state| {
            state.destroy_executable(executable)
        })
    }

    fn synchronize(&self) -> Result<()> {
        self.program("cuCtxSynchronize", State::synchronize)
    }

    fn take_wrong_tags(&self) -> Result<u64> {
        self.program("cuMemcpyDtoH", |state| Ok(state.execution.take_wrong()))
    }

    fn read_tags(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        self.program("cuMemcpyDtoH", |state| state.read_tags(address, bytes))
    }
}
