//! Tagged kernels on the simulated driver.

use std::sync::Arc;

use regraph_driver::{
    forward, CaptureMode, Dependency, GraphHandle, NodeHandle, Result, StreamHandle,
};
use regraph_sim::{Kernel, KernelMemory, Launch, SimDriver};

use super::{Program, Tagged, Work};

/// Checks its inputs when it starts and when it ends, and writes its outputs when it ends.
#[derive(Debug)]
struct TaggedKernel {
    inputs: Box<[Tagged]>,
    outputs: Box<[Tagged]>,
}

impl TaggedKernel {
    /// The kernel of some work; `None` for work that touches no memory.
    fn of(work: &Work<'_>) -> Option<Arc<dyn Kernel>> {
        if work.inputs.is_empty() && work.outputs.is_empty() {
            return None;
        }
        Some(Arc::new(Self { inputs: work.inputs.into(), outputs: work.outputs.into() }))
    }

    fn check(&self, memory: &mut KernelMemory<'_>) {
        let mut wrong = 0;
        for input in &self.inputs {
            memory.read(input.address, input.bytes, |number, granules| {
                if number != input.tag {
                    wrong += granules;
                }
            });
        }
        memory.fail(wrong);
    }
}

impl Kernel for TaggedKernel {
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.inputs.iter().chain(&self.outputs).map(|it| (it.address, it.bytes)).collect()
    }

    fn start(&self, memory: &mut KernelMemory<'_>) {
        self.check(memory);
    }

    fn end(&self, memory: &mut KernelMemory<'_>) {
        self.check(memory);
        for output in &self.outputs {
            memory.fill(output.address, output.bytes, output.tag);
        }
    }
}

/// A delay is ignored, and every kernel lets its programmatic successor start at once.
impl Program for SimDriver {
    forward! {
        own
        begin_capture_to_graph(stream: StreamHandle, graph: GraphHandle, mode: CaptureMode) -> Result<()>;
        set_terminals(stream: StreamHandle, terminals: &[Dependency]) -> Result<()>;
        add_conditional(graph: GraphHandle, dependencies: &[Dependency]) -> Result<(NodeHandle, GraphHandle)>;
        add_dependency(graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;
        remove_dependency(graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;
    }

    fn launch(&self, stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()> {
        self.launch_kernel(stream, Launch { kernel: TaggedKernel::of(&work), programmatic })
    }

    fn add_node(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        work: Work<'_>,
    ) -> Result<NodeHandle> {
        self.add_kernel_node(graph, dependencies, TaggedKernel::of(&work))
    }

    fn take_wrong_tags(&self) -> Result<u64> {
        Ok(self.take_failed_checks())
    }

    fn read_tags(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        self.read(address, bytes)
    }
}
