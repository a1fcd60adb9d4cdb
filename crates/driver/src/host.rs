//! What a host program does besides allocating: calls of which the engine makes few.

use super::{
    Driver, EventHandle, GraphHandle, GraphShape, NodeHandle, NodeShape, Result, StreamHandle,
};

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

/// A host program's calls on a device: streams, captures, and graphs.
///
/// `regraph::graphs` needs them to begin and end captures and to launch graphs in order. The engine makes some of them
/// to wait for the device, to order work after loans and to fill memory. Every stream call may run while the stream
/// captures; it then adds to the graph what CUDA would add.
pub trait HostApi: Driver + 'static {
    /// Creates a stream that does not synchronise with the legacy stream.
    ///
    /// # Errors
    /// What the driver answers.
    fn create_stream(&self) -> Result<StreamHandle>;

    /// Destroys a stream that is not capturing.
    ///
    /// # Errors
    /// What the driver answers.
    fn destroy_stream(&self, stream: StreamHandle) -> Result<()>;

    /// The driver's number of a stream. Unlike a handle it is never given again.
    ///
    /// # Errors
    /// What the driver answers.
    fn stream_id(&self, stream: StreamHandle) -> Result<u64>;

    /// Begins a capture into a new graph.
    ///
    /// # Errors
    /// What the driver answers.
    fn begin_capture(&self, stream: StreamHandle, mode: CaptureMode) -> Result<()>;

    /// Ends the capture that began on `stream` and returns its graph.
    ///
    /// # Errors
    /// What the driver answers: a capture that was invalidated, or streams left unjoined.
    fn end_capture(&self, stream: StreamHandle) -> Result<GraphHandle>;

    /// Records an event on `on` and makes `stream` wait for it.
    ///
    /// # Errors
    /// What the driver answers.
    fn wait(&self, stream: StreamHandle, on: StreamHandle) -> Result<()>;

    /// Makes a stream that does not capture wait for an event that [`Driver::record_event`]
    /// recorded. An event that was never recorded is no reason to wait.
    ///
    /// # Errors
    /// What the driver answers.
    fn wait_for_event(&self, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Destroys a graph.
    ///
    /// # Errors
    /// What the driver answers.
    fn destroy_graph(&self, graph: GraphHandle) -> Result<()>;

    /// A new graph with all nodes of one that is not under capture, which has none from then on.
    ///
    /// # Errors
    /// What the driver answers, for nodes that it can neither copy nor take away: those that allocate memory for instance.
    /// There is no new graph then, and the other one must not be launched.
    fn move_nodes(&self, graph: GraphHandle) -> Result<GraphHandle>;

    /// Makes a graph ready to launch.
    ///
    /// # Errors
    /// What the driver answers.
    fn instantiate(&self, graph: GraphHandle) -> Result<ExecutableHandle>;

    /// Gives an executable graph what the nodes of another graph of its shape have: kernels, parameters, launch
    /// dimensions. Launches that were made before run with what it had then, also those that have not begun. No other
    /// call may use the executable meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::UpdateRefused`](super::ErrorKind::UpdateRefused) where the graphs differ in more than that, or the
    /// driver cannot: the executable is as it was. After any other error nothing is known of it.
    fn update(&self, executable: ExecutableHandle, graph: GraphHandle) -> Result<()>;

    /// What a node of a graph that is not under capture has that an update of an executable does not change. The
    /// default cannot tell: a graph with such a node is like no other.
    ///
    /// # Errors
    /// What the driver answers.
    fn node_shape(&self, node: NodeHandle) -> Result<NodeShape> {
        Ok(NodeShape::unknown(self.node_kind(node)?))
    }

    /// The device memory that an executable of a graph of this shape will take, in bytes, as far as that can be told
    /// before it is made. The default tells nothing: 0.
    fn executable_bytes(&self, shape: &GraphShape) -> u64 {
        let _ = shape;
        0
    }

    /// Puts on the device what an executable graph needs there, so that its first launch does not.
    ///
    /// # Errors
    /// What the driver answers.
    fn upload(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()>;

    /// Launches an executable graph on a stream.
    ///
    /// # Errors
    /// What the driver answers.
    fn replay(&self, executable: ExecutableHandle, stream: StreamHandle) -> Result<()>;

    /// Fills `bytes` bytes of the device's memory at `address` with `value`, behind what `stream` holds. Does not wait.
    ///
    /// # Errors
    /// What the driver answers.
    fn fill(&self, address: u64, bytes: u64, value: u8, stream: StreamHandle) -> Result<()>;

    /// Destroys an executable graph.
    ///
    /// # Errors
    /// What the driver answers.
    fn destroy_executable(&self, executable: ExecutableHandle) -> Result<()>;

    /// Waits until the device has done all work, that of other contexts included whose streams this driver was asked about.
    ///
    /// # Errors
    /// What the driver answers, errors of earlier work included.
    fn synchronize(&self) -> Result<()>;

    /// Whether the device has done all work that [`HostApi::synchronize`] would wait for. No stream of the device may be
    /// capturing: as that call the question would invalidate a capture.
    ///
    /// # Errors
    /// What the driver answers; [`ErrorKind::MissingFunction`](super::ErrorKind::MissingFunction) where it
    /// is older than CUDA 12.5.
    fn is_idle(&self) -> Result<bool>;
}

impl<H: HostApi + ?Sized> HostApi for std::sync::Arc<H> {
    crate::forward_host_api!();
}
