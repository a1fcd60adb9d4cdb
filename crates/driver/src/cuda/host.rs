//! [`HostApi`]: streams, captures and graphs.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::super::{
    CaptureMode, Driver, EventHandle, ExecutableHandle, GraphHandle, GraphShape, HostApi,
    NodeHandle, NodeShape, Result, StreamHandle,
};
use super::error::{failure, nonsense};
use super::guard::Current;
use super::raw::{self, Pointer, UpdateOutcome};
use super::{symbols, CudaDriver};

/// What an executable takes on the device, in bytes, measured on an H200 under driver 580 by graphs of 1 to 2,000 kernels
/// with parameters of 16 bytes to 4 KiB: by itself, more where nodes run side by side, and for each node, whose
/// parameters are free up to 1 KiB. Kernels with more to keep there, such as those of cuBLAS, take up to four times as
/// much.
const EXECUTABLE_BYTES: u64 = 128 << 10;
const FORK_BYTES: u64 = 144 << 10;
const NODE_BYTES: u64 = 2_560;
const FREE_PARAMETERS: u64 = 1 << 10;

impl HostApi for CudaDriver {
    fn create_stream(&self) -> Result<StreamHandle> {
        let mut stream: Pointer = null_mut();
        let _relaxed = self.enter()?;
        // SAFETY: writes one handle.
        unsafe { self.symbols.stream_create(&mut stream, raw::STREAM_NON_BLOCKING) }?;
        Ok(StreamHandle::from_raw(stream))
    }

    fn destroy_stream(&self, stream: StreamHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the handle is the caller's, who gives it up.
        unsafe { self.symbols.stream_destroy(stream.as_raw()) }
    }

    fn stream_id(&self, stream: StreamHandle) -> Result<u64> {
        let _current = self.bind_to(stream)?;
        let mut id = 0;
        // SAFETY: the stream is the caller's and alive; writes one number.
        unsafe { self.symbols.stream_id(stream.as_raw(), &mut id) }?;
        Ok(id)
    }

    fn begin_capture(&self, stream: StreamHandle, capture: CaptureMode) -> Result<()> {
        let _current = self.bind_to(stream)?;
        // SAFETY: the stream is the caller's and alive.
        unsafe { self.symbols.capture_begin(stream.as_raw(), raw::mode(capture)) }
    }

    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle> {
        let _current = self.bind_to(stream)?;
        let mut graph: Pointer = null_mut();
        // SAFETY: the stream is the caller's and alive; writes one handle.
        unsafe { self.symbols.capture_end(stream.as_raw(), &mut graph) }?;
        if graph.is_null() {
            return Err(nonsense("cuStreamEndCapture", "no graph was returned"));
        }
        Ok(GraphHandle::from_raw(graph))
    }

    fn wait(&self, stream: StreamHandle, on: StreamHandle) -> Result<()> {
        let event = self.create_event_on(self.device_of_stream(on)?)?;
        let waited = self.record_event(event, on).and_then(|()| {
            let _relaxed = self.enter_for(stream)?;
            // SAFETY: the stream is the caller's, the event is ours, and both are alive.
            unsafe { self.symbols.stream_wait(stream.as_raw(), event.as_raw(), 0) }
        });
        let destroyed = self.destroy_event(event);
        waited.and(destroyed)
    }

    fn wait_for_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let _current = self.bind_to(stream)?;
        // SAFETY: both handles are the caller's and alive.
        unsafe { self.symbols.stream_wait(stream.as_raw(), event.as_raw(), 0) }
    }

    fn destroy_graph(&self, graph: GraphHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the graph is the caller's, who gives it up.
        unsafe { self.symbols.graph_destroy(graph.as_raw()) }
    }

    fn move_nodes(&self, graph: GraphHandle) -> Result<GraphHandle> {
        let mut nodes = Vec::new();
        self.nodes(graph, &mut nodes)?;
        let mut clone: Pointer = null_mut();
        let _relaxed = self.enter()?;
        // SAFETY: the graph is the caller's and alive; writes one handle.
        unsafe { self.symbols.graph_clone(&mut clone, graph.as_raw()) }?;
        let moved = GraphHandle::from_raw(clone);
        for node in nodes {
            // SAFETY: the node is the graph's, and each is destroyed once.
            let gone = unsafe { self.symbols.node_destroy(node.as_raw()) };
            gone.inspect_err(|_| drop(self.destroy_graph(moved)))?;
        }
        Ok(moved)
    }

    fn instantiate(&self, graph: GraphHandle) -> Result<ExecutableHandle> {
        let mut executable: Pointer = null_mut();
        let _relaxed = self.enter()?;
        // SAFETY: the graph is the caller's and alive; writes one handle.
        unsafe { self.symbols.instantiate(&mut executable, graph.as_raw(), 0) }?;
        Ok(ExecutableHandle(executable as usize))
    }

    fn update(&self, executable: ExecutableHandle, graph: GraphHandle) -> Result<()> {
        let mut outcome = UpdateOutcome::none();
        let _relaxed = self.enter()?;
        // SAFETY: both handles are the caller's and alive, and nothing else uses the executable; writes one structure.
        unsafe {
            self.symbols.executable_update(executable.0 as Pointer, graph.as_raw(), &mut outcome)
        }
    }

    fn node_shape(&self, node: NodeHandle) -> Result<NodeShape> {
        let kind = self.node_kind(node)?;
        let _relaxed = self.enter()?;
        let shape = self.inspection.shape(node.as_raw(), kind);
        shape.map_err(|(call, code)| failure(&self.symbols, call, code))
    }

    fn executable_bytes(&self, shape: &GraphShape) -> u64 {
        let fork = if shape.is_forked() { FORK_BYTES } else { 0 };
        let node = |bytes: u64| NODE_BYTES + bytes.saturating_sub(FREE_PARAMETERS) * 5 / 2;
        EXECUTABLE_BYTES + fork + shape.parameter_bytes().into_iter().map(node).sum::<u64>()
    }

    fn upload(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        let _current = self.bind_to(stream)?;
        // SAFETY: both handles are the caller's and alive.
        unsafe { self.symbols.graph_upload(executable.0 as Pointer, stream.as_raw()) }
    }

    fn replay(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        let _current = self.bind_to(stream)?;
        // SAFETY: both handles are the caller's and alive.
        unsafe { self.symbols.graph_launch(executable.0 as Pointer, stream.as_raw()) }
    }

    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()> {
        let _current = self.bind_to(stream)?;
        // SAFETY: the memory and the stream are the caller's and stay until the fill is done.
        unsafe { self.symbols.fill(address, value, bytes as usize, stream.as_raw()) }
    }

    fn destroy_executable(&self, executable: ExecutableHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the handle is the caller's, who gives it up.
        unsafe { self.symbols.executable_destroy(executable.0 as Pointer) }
    }

    fn synchronize(&self) -> Result<()> {
        // A wait in the primary context does not cover what other contexts of the device were given.
        self.contexts().into_iter().try_for_each(|context| {
            let _current = Current::enter(&self.symbols, context)?;
            // SAFETY: takes nothing.
            unsafe { self.symbols.synchronize() }
        })
    }

    fn is_idle(&self) -> Result<bool> {
        const CALL: &str = "cuCtxRecordEvent";
        // SAFETY: the C prototype of this function in cuda.h: a context and an event.
        let record = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn(Pointer, Pointer) -> u32>(
                symbols::address(CALL)?,
            )
        };
        for context in self.contexts() {
            let event = self.create_event_in(context)?;
            let _current = Current::enter(&self.symbols, context)?;
            // SAFETY: context and event live, and the event is of this context.
            let idle = match unsafe { record(context, event.as_raw()) } {
                0 => self.query_event(event),
                code => Err(failure(&self.symbols, CALL, code)),
            };
            // An event that work is behind goes when that is done.
            self.destroy_event(event)?;
            if !idle? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
