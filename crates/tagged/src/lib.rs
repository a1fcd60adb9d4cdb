//! Programs of tagged kernels: every kernel checks the tags of what it reads and writes tags of its
//! own, so that memory which two blocks share at once shows as a wrong tag.
//!
//! [`Program`] is what such a program calls. It runs on the simulated driver, whose kernels run in a
//! random order that the graph's edges allow, and with the feature `cuda` on a GPU (`CudaProgram`).
#![allow(clippy::disallowed_types, reason = "locks of one program")]

#[cfg(feature = "cuda")]
mod cuda;
mod simulated;

use std::sync::Arc;

use regraph_driver::{
    forward, CaptureMode, Dependency, GraphHandle, NodeHandle, Result, StreamHandle, Transfer,
};

#[cfg(feature = "cuda")]
pub use cuda::CudaProgram;

/// A range of device memory with the tag that it holds, or is to hold, in the first eight bytes of every 512.
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

/// A host program's calls on a device, with kernels and edits of graphs by hand.
///
/// Every stream call may run while the stream captures; it then adds to the graph what CUDA would add.
pub trait Program: Transfer {
    /// Begins a capture into an existing graph, such as a conditional node's body.
    ///
    /// # Errors
    /// What the driver answers.
    fn begin_capture_to_graph(
        &self,
        stream: StreamHandle,
        graph: GraphHandle,
        mode: CaptureMode,
    ) -> Result<()>;

    /// Launches a kernel; with `programmatic` it may start before its stream's last kernel ends.
    ///
    /// # Errors
    /// What the driver answers.
    fn launch(&self, stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()>;

    /// Replaces a capturing stream's terminals.
    ///
    /// # Errors
    /// What the driver answers.
    fn set_terminals(&self, stream: StreamHandle, terminals: &[Dependency]) -> Result<()>;

    /// Adds a kernel node to a graph; no stream's terminals change.
    ///
    /// # Errors
    /// What the driver answers.
    fn add_node(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
        work: Work<'_>,
    ) -> Result<NodeHandle>;

    /// Adds a conditional node (IF) to a graph and returns it with its body graph.
    ///
    /// # Errors
    /// What the driver answers.
    fn add_conditional(
        &self,
        graph: GraphHandle,
        dependencies: &[Dependency],
    ) -> Result<(NodeHandle, GraphHandle)>;

    /// Adds the edge `from` to `to`.
    ///
    /// # Errors
    /// What the driver answers.
    fn add_dependency(&self, graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;

    /// Removes the edge `from` to `to`.
    ///
    /// # Errors
    /// What the driver answers.
    fn remove_dependency(&self, graph: GraphHandle, from: Dependency, to: NodeHandle)
        -> Result<()>;

    /// How many tags were found wrong since the last call, over all nodes that ran.
    ///
    /// # Errors
    /// What the driver answers.
    fn take_wrong_tags(&self) -> Result<u64>;

    /// Reads the tag at the start of each granule of a range, once the device is idle.
    ///
    /// # Errors
    /// What the driver answers.
    fn read_tags(&self, address: u64, bytes: u64) -> Result<Vec<u64>>;
}

impl<P: Program + ?Sized> Program for Arc<P> {
    forward! {
        begin_capture_to_graph(stream: StreamHandle, graph: GraphHandle, mode: CaptureMode) -> Result<()>;
        launch(stream: StreamHandle, work: Work<'_>, programmatic: bool) -> Result<()>;
        set_terminals(stream: StreamHandle, terminals: &[Dependency]) -> Result<()>;
        add_node(graph: GraphHandle, dependencies: &[Dependency], work: Work<'_>) -> Result<NodeHandle>;
        add_conditional(graph: GraphHandle, dependencies: &[Dependency]) -> Result<(NodeHandle, GraphHandle)>;
        add_dependency(graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;
        remove_dependency(graph: GraphHandle, from: Dependency, to: NodeHandle) -> Result<()>;
        take_wrong_tags() -> Result<u64>;
        read_tags(address: u64, bytes: u64) -> Result<Vec<u64>>;
    }
}
