//! The host's calls: streams and captures, raw edits, replays.

use super::execute::Executable;
use super::graph::NewNode;
use super::refusal::{Fallible, Refusal};
use super::{slots, SimDriver, State};
use regraph::driver::{
    CaptureMode, Dependency, ErrorKind, EventHandle, ExecutableHandle, GraphHandle, NodeHandle,
    NodeKind, Program, Result, StreamHandle, Tagged, Work,
};

impl State {
    fn add_node(
        &mut self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        (device, work): (u32, &Work<'_>),
    ) -> Fallible<NodeHandle> {
        let graph = self.graph(graph)?;
        self.graphs.check_all(graph, dependencies, NodeKind::KERNEL)?;
        let new = NewNode {
            kind: NodeKind::KERNEL,
            launched: None,
            work: self.graphs.store(device, work),
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
        self.graphs.check_all(graph, dependencies, NodeKind::CONDITIONAL)?;
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
        if self.refuse_unmapped && !executable.is_mapped(&self.graphs, &self.memory) {
            return Err(ErrorKind::InvalidValue.into());
        }
        self.executables.push(Some(executable));
        Ok(slots::executable(self.executables.len() - 1))
    }

    fn upload(&mut self, executable: ExecutableHandle, stream: StreamHandle) -> Fallible<()> {
        let slot = self.used_stream(stream)?;
        let found =
            self.executables.get(slots::of_executable(executable)).is_some_and(Option::is_some);
        match (found, self.streams[slot].is_capturing()) {
            (true, false) => Ok(()),
            (true, true) => Err(ErrorKind::CaptureUnsupported.into()),
            (false, _) => Err(ErrorKind::InvalidValue.into()),
        }
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

    fn synchronize(&mut self) -> Fallible<()> {
        self.relaxed_calls += 1;
        self.complete_all();
        if self.execution.take_illegal() {
            return Err(Refusal::illegal_address());
        }
        Ok(())
    }

    fn read_tags(&self, device: u32, address: u64, bytes: u64) -> Fallible<Vec<u64>> {
        let range = Tagged { address, bytes, tag: 0 };
        let tags = self.execution.read_tags(device, &range, &self.memory);
        tags.ok_or_else(|| ErrorKind::InvalidValue.into())
    }
}

impl Program for SimDriver {
    fn create_stream(&self) -> Result<StreamHandle> {
        self.program("cuStreamCreate", |state| Ok(state.create_stream(false, self.device)))
    }

    fn destroy_stream(&self, stream: StreamHandle) -> Result<()> {
        self.program("cuStreamDestroy", |state| state.destroy_stream(stream))
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        // Handles are never given again here.
        self.program("cuStreamGetId", |state| Ok(state.used_stream(stream)? as u64))
    }

    fn begin_capture(&self, stream: StreamHandle, mode: CaptureMode) -> Result<()> {
        self.program("cuStreamBeginCapture", |state| state.begin_capture(stream, None, mode))
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
            state.launch(stream, (self.device, &work), programmatic)
        })
    }

    fn wait(&self, stream: StreamHandle, on: StreamHandle) -> Result<()> {
        self.program("cuStreamWaitEvent", |state| state.wait(stream, on))
    }

    fn wait_for_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.program("cuStreamWaitEvent", |state| state.wait_event(stream, event))
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
            state.add_node(graph, dependencies, (self.device, &work))
        })
    }

    fn add_conditional(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Result<(NodeHandle, GraphHandle)> {
        self.program("cuGraphAddNode", |state| state.add_conditional(graph, dependencies))
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

    fn upload(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        self.program("cuGraphUpload", |state| state.upload(executable, stream))
    }

    fn replay(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        self.program("cuGraphLaunch", |state| state.replay(executable, stream))
    }

    fn destroy_executable(&self, executable: ExecutableHandle) -> Result<()> {
        self.program("cuGraphExecDestroy", |state| state.destroy_executable(executable))
    }

    fn synchronize(&self) -> Result<()> {
        self.program("cuCtxSynchronize", State::synchronize)
    }

    fn take_wrong_tags(&self) -> Result<u64> {
        self.program("cuMemcpyDtoH", |state| Ok(state.execution.take_wrong()))
    }

    fn read_tags(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        self.program("cuMemcpyDtoH", |state| state.read_tags(self.device, address, bytes))
    }
}
