//! [`Program`]: streams, captures, launches and raw graph edits.

use std::ptr::null_mut;
use std::sync::{MutexGuard, PoisonError};

use super::super::{
    CaptureMode, Dependency, Driver, EventHandle, ExecutableHandle, GraphHandle, NodeHandle,
    Program, Result, StreamHandle, Work,
};
use super::error::nonsense;
use super::kernel::{shape, Kernel, Parameters};
use super::raw::{
    self, ConditionalNodeParams, KernelNodeParams, LaunchAttribute, LaunchConfig, Pointer, RawEdge,
};
use super::records::Records;
use super::symbols::Symbols;
use super::{is_full, split, CudaDriver};

const GRANULE: usize = 512;
/// How much [`Program::read_tags`] copies at once.
const READ_BYTES: usize = 1 << 22;

/// What launches need: the kernel, its tables, and how many wrong tags were already reported.
#[derive(Default)]
pub(super) struct Launcher {
    kernel: Option<Kernel>,
    records: Records,
    reported: u64,
}

impl Launcher {
    /// Whether nothing was ever loaded.
    pub fn is_empty(&self) -> bool {
        self.kernel.is_none()
    }

    /// Gives everything back. The context must be current, the thread relaxed, the device idle.
    pub fn free(&mut self, symbols: &Symbols) {
        // Freeing the counter waits for kernels that still run, so it goes before the tables.
        if let Some(mut kernel) = self.kernel.take() {
            kernel.unload(symbols);
        }
        self.records.free(symbols);
    }
}

impl CudaDriver {
    /// Gives the memory of all launches' range tables to later launches. No graph captured so
    /// far may be replayed again: its kernels would work on other ranges.
    ///
    /// # Errors
    /// Whatever the driver answers; waits for the device.
    pub fn forget_launches(&self) -> Result<()> {
        self.synchronize()?;
        self.launcher().records.rewind();
        Ok(())
    }

    fn launcher(&self) -> MutexGuard<'_, Launcher> {
        self.launcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the kernel, unless it is. Outside captures where that can be had.
    fn prepare(&self, launcher: &mut Launcher) -> Result<()> {
        if launcher.kernel.is_none() {
            let major = self.attribute(raw::ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let _relaxed = self.enter()?;
            launcher.kernel = Some(Kernel::load(&self.symbols, major)?);
        }
        Ok(())
    }

    /// Writes the work's table and returns the function with its parameters.
    fn compose(&self, work: &Work<'_>) -> Result<(Pointer, Parameters)> {
        let mut guard = self.launcher();
        self.prepare(&mut guard)?;
        let launcher = &mut *guard;
        let Some(kernel) = &launcher.kernel else {
            return Err(nonsense("cuModuleGetFunction", "the kernel is not loaded"));
        };
        let _relaxed = self.enter()?;
        let table = launcher.records.write(&self.symbols, work.inputs, work.outputs)?;
        Ok((kernel.function(), Parameters::new(kernel, table, work)))
    }
}

fn mode(mode: CaptureMode) -> u32 {
    match mode {
        CaptureMode::Global => raw::MODE_GLOBAL,
        CaptureMode::ThreadLocal => raw::MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => raw::MODE_RELAXED,
    }
}

/// An array's start, or null for an empty one.
fn start<T>(array: &[T]) -> *const T {
    if array.is_empty() {
        std::ptr::null()
    } else {
        array.as_ptr()
    }
}

impl Program for CudaDriver {
    fn create_stream(&self) -> Result<StreamHandle> {
        self.prepare(&mut self.launcher())?;
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
        let _current = self.bind()?;
        let mut id = 0;
        // SAFETY: the stream is the caller's and alive; writes one number.
        unsafe { self.symbols.stream_id(stream.as_raw(), &mut id) }?;
        Ok(id)
    }

    fn begin_capture(&self, stream: StreamHandle, capture: CaptureMode) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: the stream is the caller's and alive.
        unsafe { self.symbols.capture_begin(stream.as_raw(), mode(capture)) }
    }

    fn begin_capture_to_graph(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        capture: CaptureMode,
    ) -> Result<()> {
        self.prepare(&mut self.launcher())?;
        let _current = self.bind()?;
        // SAFETY: stream and graph are the caller's and alive; no dependencies are given.
        unsafe {
            self.symbols.capture_begin_to_graph(
                stream.as_raw(),
                graph.as_raw(),
                std::ptr::null(),
                std::ptr::null(),
                0,
                mode(capture),
            )
        }
    }

    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle> {
        let _current = self.bind()?;
        let mut graph: Pointer = null_mut();
        // SAFETY: the stream is the caller's and alive; writes one handle.
        unsafe { self.symbols.capture_end(stream.as_raw(), &mut graph) }?;
        if graph.is_null() {
            return Err(nonsense("cuStreamEndCapture", "no graph was returned"));
        }
        Ok(GraphHandle::from_raw(graph))
    }

    fn launch(&self, stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()> {
        let (function, parameters) = self.compose(&work)?;
        let (grid, block) = shape(&work);
        let mut attribute = LaunchAttribute::programmatic();
        let config = LaunchConfig {
            grid,
            block,
            shared_bytes: 0,
            stream: stream.as_raw(),
            attributes: if programmatic { &mut attribute } else { null_mut() },
            attribute_count: u32::from(programmatic),
        };
        let mut pointers = parameters.pointers();
        let _current = self.bind()?;
        // SAFETY: configuration, attribute and parameters outlive the call, which copies them;
        // the parameters are those that the kernel declares.
        unsafe { self.symbols.launch(&config, function, pointers.as_mut_ptr(), null_mut()) }
    }

    fn wait(&self, stream: StreamHandle, on: StreamHandle) -> Result<()> {
        let event = self.create_event_on(self.device_of_stream(on)?)?;
        let waited = self.record_event(event, on).and_then(|()| {
            let _relaxed = self.enter()?;
            // SAFETY: the stream is the caller's, the event is ours, and both are alive.
            unsafe { self.symbols.stream_wait(stream.as_raw(), event.as_raw(), 0) }
        });
        let destroyed = self.destroy_event(event);
        waited.and(destroyed)
    }

    fn wait_for_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: both handles are the caller's and alive.
        unsafe { self.symbols.stream_wait(stream.as_raw(), event.as_raw(), 0) }
    }

    fn set_terminals(&self, stream: StreamHandle, terminals: &[Dependency]) -> Result<()> {
        let (nodes, edges) = split(terminals);
        let _current = self.bind()?;
        // SAFETY: both arrays have as many entries as said and are only read.
        unsafe {
            self.symbols.update_dependencies(
                stream.as_raw(),
                start(&nodes).cast_mut(),
                start(&edges),
                nodes.len(),
                raw::SET_DEPENDENCIES,
            )
        }
    }

    fn add_node(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        work: Work<'_>,
    ) -> Result<NodeHandle> {
        let (function, parameters) = self.compose(&work)?;
        let (grid, block) = shape(&work);
        let mut pointers = parameters.pointers();
        let node_parameters = KernelNodeParams {
            function,
            grid,
            block,
            shared_bytes: 0,
            parameters: pointers.as_mut_ptr(),
            extra: null_mut(),
            kernel: null_mut(),
            context: null_mut(),
        };
        // The call for kernel nodes knows ordinary edges only; the others follow.
        let (full, other): (Vec<Dependency>, Vec<Dependency>) =
            dependencies.iter().partition(|dependency| is_full(dependency));
        let (nodes, _) = split(&full);
        let mut node: Pointer = null_mut();
        let _current = self.bind()?;
        // SAFETY: the arrays and parameters outlive the call, which copies them; the parameters
        // are those that the kernel declares.
        unsafe {
            self.symbols.add_kernel_node(
                &mut node,
                graph.as_raw(),
                start(&nodes),
                nodes.len(),
                &node_parameters,
            )
        }?;
        let node = NodeHandle::from_raw(node);
        for dependency in other {
            self.add_dependency(graph, dependency, node)?;
        }
        Ok(node)
    }

    fn add_conditional(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Result<(NodeHandle, GraphHandle)> {
        let context = self.raw_context();
        let (nodes, edges) = split(dependencies);
        let _relaxed = self.enter()?;
        let mut handle = 0;
        // SAFETY: the graph is the caller's and alive; writes one handle, which the graph owns.
        unsafe {
            self.symbols.conditional_handle(
                &mut handle,
                graph.as_raw(),
                context,
                1,
                raw::CONDITIONAL_ASSIGN_DEFAULT,
            )
        }?;
        let mut parameters = ConditionalNodeParams::if_once(handle, context);
        let mut node: Pointer = null_mut();
        // SAFETY: the parameters have the layout of `CUgraphNodeParams`; both arrays have as
        // many entries as said.
        unsafe {
            self.symbols.add_node(
                &mut node,
                graph.as_raw(),
                start(&nodes),
                start(&edges),
                nodes.len(),
                &mut parameters,
            )
        }?;
        if parameters.bodies.is_null() {
            return Err(nonsense("cuGraphAddNode_v2", "no body graph was returned"));
        }
        // SAFETY: on success the driver has set this to an array of one graph that lives as long
        // as the node.
        let body = unsafe { parameters.bodies.read() };
        Ok((NodeHandle::from_raw(node), GraphHandle::from_raw(body)))
    }

    fn add_dependency(&self, graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()> {
        let edge = RawEdge::from(from.edge);
        let (from, to) = (from.node.as_raw(), to.as_raw());
        // SAFETY: one entry is said and one is behind each pointer; all are only read.
        unsafe { self.symbols.add_dependencies(graph.as_raw(), &from, &to, &edge, 1) }
    }

    fn remove_dependency(
        &self,
        graph: GraphHandle,
        from: Dependency,
        to: NodeHandle,
    ) -> Result<()> {
        let edge = RawEdge::from(from.edge);
        let (from, to) = (from.node.as_raw(), to.as_raw());
        // SAFETY: one entry is said and one is behind each pointer; all are only read.
        unsafe { self.symbols.remove_dependencies(graph.as_raw(), &from, &to, &edge, 1) }
    }

    fn destroy_graph(&self, graph: GraphHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the graph is the caller's, who gives it up.
        unsafe { self.symbols.graph_destroy(graph.as_raw()) }
    }

    fn instantiate(&self, graph: GraphHandle) -> Result<ExecutableHandle> {
        let mut executable: Pointer = null_mut();
        let _relaxed = self.enter()?;
        // SAFETY: the graph is the caller's and alive; writes one handle.
        unsafe { self.symbols.instantiate(&mut executable, graph.as_raw(), 0) }?;
        Ok(ExecutableHandle(executable as usize))
    }

    fn upload(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: both handles are the caller's and alive.
        unsafe { self.symbols.graph_upload(executable.0 as Pointer, stream.as_raw()) }
    }

    fn replay(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: both handles are the caller's and alive.
        unsafe { self.symbols.graph_launch(executable.0 as Pointer, stream.as_raw()) }
    }

    fn destroy_executable(&self, executable: ExecutableHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the handle is the caller's, who gives it up.
        unsafe { self.symbols.executable_destroy(executable.0 as Pointer) }
    }

    fn synchronize(&self) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: takes nothing.
        unsafe { self.symbols.synchronize() }
    }

    fn take_wrong_tags(&self) -> Result<u64> {
        let mut launcher = self.launcher();
        let Some(kernel) = &launcher.kernel else {
            return Ok(0);
        };
        let mut total = 0u64;
        let _relaxed = self.enter()?;
        // SAFETY: copies the eight bytes of the counter into a local.
        unsafe { self.symbols.copy_to_host((&raw mut total).cast(), kernel.wrong, 8) }?;
        let fresh = total.wrapping_sub(launcher.reported);
        launcher.reported = total;
        Ok(fresh)
    }

    fn read_tags(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        let _relaxed = self.enter()?;
        let mut tags = Vec::with_capacity((bytes as usize).div_ceil(GRANULE));
        let mut buffer = vec![0u8; READ_BYTES.min(bytes as usize)];
        let mut done = 0;
        while done < bytes as usize {
            let length = READ_BYTES.min(bytes as usize - done);
            let piece = &mut buffer[..length];
            // SAFETY: the piece has room for `length` bytes; that the range is device memory is
            // the caller's part.
            unsafe {
                self.symbols.copy_to_host(piece.as_mut_ptr().cast(), address + done as u64, length)
            }?;
            tags.extend(
                piece
                    .chunks(GRANULE)
                    .filter_map(|granule| granule.first_chunk::<8>())
                    .map(|tag| u64::from_ne_bytes(*tag)),
            );
            done += length;
        }
        Ok(tags)
    }
}
