//! The calls of a host: streams and captures, kernels, edits of graphs, launches of graphs.

use std::sync::Arc;

use super::execute::Step;
use super::graph::NewNode;
use super::kernel::{Kernel, KernelMemory, Launch};
use super::refusal::{Fallible, Refusal};
use super::{slots, SimDriver, State};
use regraph::driver::{
    Access, CaptureMode, Dependency, ErrorKind, EventHandle, ExecutableHandle, GraphHandle,
    GraphShape, HostApi, NodeHandle, NodeKind, NodePointer, NodeShape, Result, StreamHandle,
};

/// A fill, which happens at its end.
#[derive(Debug)]
struct Fill {
    range: (u64, u64),
    number: u64,
}

impl Kernel for Fill {
    fn ranges(&self) -> Vec<(u64, u64)> {
        vec![self.range]
    }

    fn kind(&self) -> NodeKind {
        NodeKind::FILL
    }

    fn pointers(&self) -> Vec<NodePointer> {
        vec![NodePointer { address: self.range.0, access: Access::Writes }]
    }

    fn start(&self, _: &mut KernelMemory<'_>) {}

    fn end(&self, memory: &mut KernelMemory<'_>) {
        memory.fill(self.range.0, self.range.1, self.number);
    }
}

impl State {
    fn add_node(
        &mut self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        device: u32,
        kernel: Option<Arc<dyn Kernel>>,
    ) -> Fallible<NodeHandle> {
        let graph = self.graph(graph)?;
        self.graphs.check_all(graph, dependencies, NodeKind::KERNEL)?;
        let new =
            NewNode { kind: NodeKind::KERNEL, work: self.graphs.store(device, kernel), body: None };
        Ok(self.graphs.add(graph, dependencies, new))
    }

    fn add_conditional(
        &mut self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Fallible<(NodeHandle, GraphHandle)> {
        let graph = self.graph(graph)?;
        self.graphs.check_all(graph, dependencies, NodeKind::CONDITIONAL)?;
        let body = self.graphs.create(true);
        let new =
            NewNode { kind: NodeKind::CONDITIONAL, work: None, body: Some(slots::short(body)) };
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

    fn move_nodes(&mut self, graph: GraphHandle) -> Fallible<GraphHandle> {
        let graph = self.graph(graph)?;
        if self.graphs.any_capturing(graph) {
            return Err(ErrorKind::InvalidValue.into());
        }
        Ok(slots::graph(self.graphs.move_nodes(graph)))
    }

    fn synchronize(&mut self, device: u32) -> Fallible<()> {
        self.forbid_captures_on(device)?;
        let last: Vec<Step> = self.last_on(device).collect();
        self.execution.run_until(last, &self.graphs, &self.memory);
        self.left.retain(|it| it.0 != device);
        self.meet_illegal()
    }

    /// The last work of each stream of a device, of those that are gone too.
    fn last_on(&self, device: u32) -> impl Iterator<Item = Step> + '_ {
        let streams = self.streams.iter().filter(move |stream| stream.device == device);
        let gone = self.left.iter().filter(move |it| it.0 == device).map(|it| it.1);
        streams.filter_map(|stream| stream.last).chain(gone)
    }

    fn is_idle(&mut self, device: u32) -> Fallible<bool> {
        self.forbid_captures_on(device)?;
        let done = self.last_on(device).all(|step| self.execution.is_done(step));
        Ok(done)
    }

    /// Completes all work; fails where some of it met memory that was not there.
    pub(super) fn complete_checked(&mut self) -> Fallible<()> {
        self.complete_all();
        self.meet_illegal()
    }

    fn meet_illegal(&mut self) -> Fallible<()> {
        if self.execution.take_illegal() {
            return Err(Refusal::illegal_address());
        }
        Ok(())
    }
}

impl HostApi for SimDriver {
    fn create_stream(&self) -> Result<StreamHandle> {
        self.program("cuStreamCreate", |state| Ok(state.create_stream(false, self.device)))
    }

    fn destroy_stream(&self, stream: StreamHandle) -> Result<()> {
        self.program("cuStreamDestroy", |state| state.destroy_stream(stream))
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        self.program("cuStreamGetId", |state| {
            let slot = state.used_stream(stream)?;
            Ok(state.streams[slot].number)
        })
    }

    fn begin_capture(&self, stream: StreamHandle, mode: CaptureMode) -> Result<()> {
        self.program("cuStreamBeginCapture", |state| state.begin_capture(stream, None, mode))
    }

    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle> {
        self.program("cuStreamEndCapture", |state| state.end_capture(stream))
    }

    fn wait(&self, stream: StreamHandle, on: StreamHandle) -> Result<()> {
        self.program("cuStreamWaitEvent", |state| state.wait(stream, on))
    }

    fn wait_for_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.program("cuStreamWaitEvent", |state| state.wait_event(stream, event))
    }

    fn destroy_graph(&self, graph: GraphHandle) -> Result<()> {
        self.program("cuGraphDestroy", |state| state.destroy_graph(graph))
    }

    fn move_nodes(&self, graph: GraphHandle) -> Result<GraphHandle> {
        self.program("cuGraphClone", |state| state.move_nodes(graph))
    }

    fn instantiate(&self, graph: GraphHandle) -> Result<ExecutableHandle> {
        self.program("cuGraphInstantiate", |state| state.instantiate(self.device, graph))
    }

    fn update(&self, executable: ExecutableHandle, graph: GraphHandle) -> Result<()> {
        self.program("cuGraphExecUpdate", |state| state.update(executable, graph))
    }

    fn node_shape(&self, node: NodeHandle) -> Result<NodeShape> {
        self.program("cuGraphNodeGetParams", |state| state.node_shape(node))
    }

    fn executable_bytes(&self, shape: &GraphShape) -> u64 {
        self.lock().executables.bytes(shape.nodes())
    }

    fn upload(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        self.program("cuGraphUpload", |state| state.upload(executable, stream))
    }

    fn replay(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        self.program("cuGraphLaunch", |state| state.replay(executable, stream))
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()> {
        self.program("cuMemsetD8Async", |state| {
            state.must_reach(self.device, (address, bytes))?;
            let number = u64::from_ne_bytes([value; 8]);
            let kernel: Arc<dyn Kernel> = Arc::new(Fill { range: (address, bytes), number });
            state.launch(stream, self.device, Launch { kernel: Some(kernel), programmatic: false })
        })
    }

    fn destroy_executable(&self, executable: ExecutableHandle) -> Result<()> {
        self.program("cuGraphExecDestroy", |state| state.destroy_executable(executable))
    }

    fn synchronize(&self) -> Result<()> {
        const CALL: &str = "cuCtxSynchronize";
        let mut state = self.lock();
        let done = state.faults.enter_host().and_then(|()| state.synchronize(self.device));
        drop(state);
        done.map_err(|refusal| refusal.of(CALL))?;
        drop(self.lock_for(|| CALL));
        Ok(())
    }

    fn is_idle(&self) -> Result<bool> {
        self.program("cuCtxRecordEvent", |state| state.is_idle(self.device))
    }
}

/// What a program on a GPU does by other means: kernels of its own, and edits of graphs by hand.
impl SimDriver {
    /// Launches a kernel on a stream, which may be capturing.
    ///
    /// # Errors
    /// As `cuLaunchKernelEx`: an unknown stream, one of another device, one whose capture is invalidated.
    pub fn launch_kernel(&self, stream: StreamHandle, launch: Launch) -> Result<()> {
        self.program("cuLaunchKernelEx", |state| state.launch(stream, self.device, launch))
    }

    /// Adds a kernel node to a graph; no stream's terminals change.
    ///
    /// # Errors
    /// As `cuGraphAddNode`: an unknown graph, or dependencies that are no nodes of it.
    pub fn add_kernel_node(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        kernel: Option<Arc<dyn Kernel>>,
    ) -> Result<NodeHandle> {
        self.program("cuGraphAddNode", |state| {
            state.add_node(graph, dependencies, self.device, kernel)
        })
    }

    /// Begins a capture into an existing graph, such as a conditional node's body (`cuStreamBeginCaptureToGraph`).
    ///
    /// # Errors
    /// As the CUDA driver's call.
    pub fn begin_capture_to_graph(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        mode: CaptureMode,
    ) -> Result<()> {
        self.program("cuStreamBeginCaptureToGraph", |state| {
            state.begin_capture(stream, Some(graph), mode)
        })
    }

    /// Replaces a capturing stream's terminals (`cuStreamUpdateCaptureDependencies`).
    ///
    /// # Errors
    /// As the CUDA driver's call.
    pub fn set_terminals(&self, stream: StreamHandle, terminals: &[Dependency]) -> Result<()> {
        self.program("cuStreamUpdateCaptureDependencies", |state| {
            state.set_terminals(stream, terminals)
        })
    }

    /// Adds a conditional node (IF) to a graph and returns it with its body graph.
    ///
    /// # Errors
    /// As the CUDA driver's call.
    pub fn add_conditional(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Result<(NodeHandle, GraphHandle)> {
        self.program("cuGraphAddNode", |state| state.add_conditional(graph, dependencies))
    }

    /// Adds the edge `from` to `to`.
    ///
    /// # Errors
    /// As the CUDA driver's call.
    pub fn add_dependency(
        &self,
        graph: GraphHandle,
        from: Dependency,
        to: NodeHandle,
    ) -> Result<()> {
        self.program("cuGraphAddDependencies", |state| {
            let graph = state.graph(graph)?;
            state.graphs.link(graph, from, to)
        })
    }

    /// Removes the edge `from` to `to`.
    ///
    /// # Errors
    /// As the CUDA driver's call.
    pub fn remove_dependency(
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

    /// How many checks of kernels failed since the last call ([`KernelMemory::fail`](super::KernelMemory::fail)).
    pub fn take_failed_checks(&self) -> u64 {
        self.lock().execution.take_failures()
    }

    /// The number in every 512 bytes of a range, whose address is a multiple of 512.
    ///
    /// # Errors
    /// A range that is not all mapped.
    pub fn read(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        self.program("cuMemcpyDtoH", |state| {
            let read = state.execution.read(self.device, (address, bytes), &state.memory);
            read.ok_or_else(|| ErrorKind::InvalidValue.into())
        })
    }
}
