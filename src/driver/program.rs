//! What a capturing host does: the calls that the engine never makes.

use super::{Dependency, Driver, EventHandle, GraphHandle, NodeHandle, Result, StreamHandle};

/// Which other calls a capture forbids (`CUstreamCaptureMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Unsafe calls are forbidden to every thread that is not relaxed.
    Global,
    /// Unsafe calls are forbidden to the capturing thread.
    ThreadLocal,
    /// Unsafe calls are allowed.
    Relaxed,
}

/// An instantiated graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExecutableHandle(pub usize);

/// A range of device memory with the tag that it holds, or is to hold, in the first eight bytes of
/// every 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Start, a multiple of 512.
    pub address: u64,
    /// Length in bytes; the last granule may be short, but never shorter than eight bytes.
    pub bytes: u64,
    /// The value.
    pub tag: u64,
}

/// What one node does: check its inputs, wait, check them again, write its outputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work<'a> {
    /// Must hold their tags when the node starts, and still when it ends.
    pub inputs: &'a [Tagged],
    /// Get their tags.
    pub outputs: &'a [Tagged],
    /// How long the node waits between, in nanoseconds.
    pub delay: u32,
    /// Whether the kernel lets its programmatic successor start at once.
    pub trigger_early: bool,
}

/// A host program's calls on a device: streams, captures, launches, raw edits of a graph.
///
/// Every stream call may run while the stream captures; it then adds to the graph what CUDA would
/// add.
pub trait Program: Driver + 'static {
    /// Creates a stream that does not synchronise with the legacy stream.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn create_stream(&self) -> Result<StreamHandle>;

    /// Destroys a stream that is not capturing.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn destroy_stream(&self, stream: StreamHandle) -> Result<()>;

    /// The driver's number of a stream. Unlike a handle it is never given again.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn stream_id(&self, stream: StreamHandle) -> Result<u64>;

    /// Begins a capture into a new graph.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn begin_capture(&self, stream: StreamHandle, mode: CaptureMode) -> Result<()>;

    /// Begins a capture into an existing graph, such as a conditional node's body.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn begin_capture_to_graph(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        mode: CaptureMode,
    ) -> Result<()>;

    /// Ends the capture that began on `stream` and returns its graph.
    ///
    /// # Errors
    /// Whatever the driver answers: a capture that was invalidated, or streams left unjoined.
    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle>;

    /// Launches a kernel; with `programmatic` it may start before its stream's last kernel ends.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn launch(&self, stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()>;

    /// Records an event on `on` and makes `stream` wait for it.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn wait(&self, stream: StreamHandle, on: StreamHandle) -> Result<()>;

    /// Makes a stream that does not capture wait for an event that [`Driver::record_event`]
    /// recorded. An event that was never recorded is no reason to wait.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn wait_for_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Replaces a capturing stream's terminals.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn set_terminals(&self, stream: StreamHandle, terminals: &[Dependency]) -> Result<()>;

    /// Adds a kernel node to a graph; no stream's terminals change.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn add_node(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        work: Work<'_>,
    ) -> Result<NodeHandle>;

    /// Adds a conditional node (IF) to a graph and returns it with its body graph.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn add_conditional(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Result<(NodeHandle, GraphHandle)>;

    /// Adds the edge `from` to `to`.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn add_dependency(&self, graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;

    /// Removes the edge `from` to `to`.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn remove_dependency(&self, graph: GraphHandle, from: Dependency, to: NodeHandle)
        -> Result<()>;

    /// Destroys a graph.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn destroy_graph(&self, graph: GraphHandle) -> Result<()>;

    /// Makes a graph ready to launch.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn instantiate(&self, graph: GraphHandle) -> Result<ExecutableHandle>;

    /// Puts on the device what an executable graph needs there, so that its first launch does not.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn upload(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()>;

    /// Launches an executable graph on a stream.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn replay(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()>;

    /// Destroys an executable graph.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn destroy_executable(&self, executable: ExecutableHandle) -> Result<()>;

    /// Waits until the device has done all work.
    ///
    /// # Errors
    /// Whatever the driver answers, errors of earlier work included.
    fn synchronize(&self) -> Result<()>;

    /// How many tags were found wrong since the last call, over all nodes that ran.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn take_wrong_tags(&self) -> Result<u64>;

    /// Reads the tag at the start of each granule of a range, once the device is idle.
    ///
    /// # Errors
    /// Whatever the driver answers.
    fn read_tags(&self, address: u64, bytes: u64) -> Result<Vec<u64>>;
}

impl<P: Program + ?Sized> Program for std::sync::Arc<P> {
    forward! {
        create_stream() -> Result<StreamHandle>;
        destroy_stream(stream: StreamHandle) -> Result<()>;
        stream_id(stream: StreamHandle) -> Result<u64>;
        begin_capture(stream: StreamHandle, mode: CaptureMode) -> Result<()>;
        begin_capture_to_graph(stream: StreamHandle, graph: GraphHandle, mode: CaptureMode) -> Result<()>;
        end_capture(stream: StreamHandle) -> Result<GraphHandle>;
        launch(stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()>;
        wait(stream: StreamHandle, on: StreamHandle) -> Result<()>;
        wait_for_event(stream: StreamHandle, event: EventHandle) -> Result<()>;
        set_terminals(stream: StreamHandle, terminals: &[Dependency]) -> Result<()>;
        add_node(graph: GraphHandle, dependencies: &[Dependency], work: Work<'_>) -> Result<NodeHandle>;
        add_conditional(graph: GraphHandle, dependencies: &[Dependency]) -> Result<(NodeHandle, GraphHandle)>;
        add_dependency(graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;
        remove_dependency(graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;
        destroy_graph(graph: GraphHandle) -> Result<()>;
        instantiate(graph: GraphHandle) -> Result<ExecutableHandle>;
        upload(executable: ExecutableHandle, stream: StreamHandle) -> Result<()>;
        replay(executable: ExecutableHandle, stream: StreamHandle) -> Result<()>;
        destroy_executable(executable: ExecutableHandle) -> Result<()>;
        synchronize() -> Result<()>;
        take_wrong_tags() -> Result<u64>;
        read_tags(address: u64, bytes: u64) -> Result<Vec<u64>>;
    }
}
