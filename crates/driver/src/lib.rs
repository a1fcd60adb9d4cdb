//! What the engine asks of a GPU, as one trait, and what a host does to it, as others.
//!
//! [`Driver`] is the seam below the engine: capture queries, virtual memory, events. [`HostApi`] is the side of the
//! host: streams, captures, launches of graphs. `regraph::graphs` calls it; the engine calls it only to wait for the
//! device, to order work after loans and to fill memory (the setting `poison`). [`Transfer`] copies between a device
//! and its host, for `regraph::regions`. `cuda::CudaDriver` (feature `cuda`) and the simulated driver of the crate
//! `regraph-sim` implement all three, and other drivers can.
#![allow(clippy::disallowed_types, reason = "the crate lies below the one that orders locks")]

mod error;
mod forward;
mod handle;
mod host;
#[doc(hidden)]
pub mod nvtx;
mod shape;
mod source;
mod transfer;

#[cfg(feature = "cuda")]
pub mod cuda;

pub use error::{DriverError, ErrorKind};
pub use handle::{
    Access, AllocationName, AsStream, CaptureId, CaptureStatus, Dependency, Descriptor, EdgeData,
    EventHandle, GraphHandle, MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind,
    NodePointer, StreamHandle,
};
pub use host::{CaptureMode, ExecutableHandle, HostApi};
pub use shape::{Functions, GraphShape, NodeShape};
pub use source::Source;
#[doc(hidden)]
pub use transfer::{read_at, write_at};
pub use transfer::{HostPlace, Transfer};

/// Result of a driver call.
pub type Result<T> = std::result::Result<T, DriverError>;

/// What the engine asks of a GPU.
///
/// No call adds a node or an edge to a graph, and none may invalidate a capture: implementations
/// switch the calling thread to the relaxed capture mode around calls that a capture forbids.
///
/// Calls that read a graph under capture must not run while another thread captures into it: the
/// driver's graph objects are not thread-safe (CUDA documents this with every graph query). The
/// engine calls them from the thread that called the engine.
pub trait Driver: Send + Sync {
    /// The ordinal of the device that this drives. All else in this trait that names no stream, no
    /// event and no graph is about this device; the default is for drivers of one device.
    fn device(&self) -> u32 {
        0
    }

    /// The ordinal of the device that a stream belongs to, which need not be this driver's. The
    /// default streams, whose handles are the same for all devices, are this driver's own. May be
    /// asked of any stream at any time, also while another thread captures on it.
    ///
    /// The default is for drivers of one device: every stream is this driver's.
    ///
    /// # Errors
    /// What the driver answers.
    fn device_of_stream(&self, stream: StreamHandle) -> Result<u32> {
        let _ = stream;
        Ok(self.device())
    }

    /// Says whether `stream` is capturing, and fills `terminals` with the nodes that its next
    /// node would depend on, each with the edge that dependency would have.
    ///
    /// `terminals` is cleared first, and stays empty unless the status is active.
    ///
    /// # Errors
    /// What the driver answers; the legacy stream gives [`ErrorKind::CaptureImplicit`] while a
    /// blocking stream captures.
    fn capture_status(
        &self,
        stream: StreamHandle,
        terminals: &mut Vec<Dependency>,
    ) -> Result<CaptureStatus>;

    /// Says whether `stream` is capturing, and in which capture, but not what its next node would depend on.
    /// Of a stream that another thread may be capturing on, only [`Driver::is_capturing`] may be asked.
    ///
    /// # Errors
    /// As [`Driver::capture_status`].
    fn capture_of(&self, stream: StreamHandle) -> Result<CaptureStatus>;

    /// Whether a stream is in a capture, sound or not. This alone may be asked about any stream at
    /// any time, also while another thread captures on it.
    ///
    /// # Errors
    /// As [`Driver::capture_status`].
    fn is_capturing(&self, stream: StreamHandle) -> Result<bool>;

    /// Fills `dependencies` with the direct predecessors of `node` and the edges they come by.
    ///
    /// # Errors
    /// What the driver answers.
    fn dependencies(&self, node: NodeHandle, dependencies: &mut Vec<Dependency>) -> Result<()>;

    /// Fills `nodes` with all nodes of `graph`, in no promised order.
    ///
    /// # Errors
    /// What the driver answers.
    fn nodes(&self, graph: GraphHandle, nodes: &mut Vec<NodeHandle>) -> Result<()>;

    /// The type of a node.
    ///
    /// # Errors
    /// What the driver answers.
    fn node_kind(&self, node: NodeHandle) -> Result<NodeKind>;

    /// Adds to `pointers` what among a node's parameters may be a device address: every aligned eight-byte value of a
    /// kernel's parameters, the source and then the destination of a copy, the start of a fill, and all of these of a
    /// child graph's nodes, which count as [`Access::Unknown`], for nothing tells what comes first there. Most of a
    /// kernel's are none, and an address that a kernel finds in memory is not among them. Nothing for nodes whose
    /// parameters cannot be had; so does the default.
    ///
    /// # Errors
    /// What the driver answers. Then some values may have been added.
    fn pointers(&self, node: NodeHandle, pointers: &mut Vec<NodePointer>) -> Result<()> {
        let _ = (node, pointers);
        Ok(())
    }

    /// The name of the kernel that a node launches, as its compiler mangled it. `None` for other
    /// nodes, and where the driver does not tell; so does the default.
    fn kernel_name(&self, node: NodeHandle) -> Option<String> {
        let _ = node;
        None
    }

    /// How this device gives out memory.
    fn memory_support(&self) -> MemorySupport;

    /// Free and total device memory, in bytes.
    ///
    /// # Errors
    /// What the driver answers.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Reserves `bytes` of address space, a multiple of the granularity, and returns its start.
    ///
    /// # Errors
    /// What the driver answers.
    fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Gives back a whole reservation. Nothing may be mapped in it.
    ///
    /// # Errors
    /// What the driver answers.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<()>;

    /// Creates `bytes` of physical memory, a multiple of the granularity.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] where the device has no more.
    fn create(&self, bytes: u64) -> Result<MemoryHandle>;

    /// Creates `bytes` of physical memory, a multiple of the granularity, that other processes can map
    /// ([`Driver::export`]) and that network cards can reach, as far as the device supports that. The default
    /// is [`Driver::create`], for devices that support neither.
    ///
    /// # Errors
    /// As [`Driver::create`].
    fn create_exportable(&self, bytes: u64) -> Result<MemoryHandle> {
        self.create(bytes)
    }

    /// A descriptor that stands for memory which was made to be exported. It keeps the memory until it
    /// is closed, and is not inherited by programs that the process starts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] or [`ErrorKind::NotSupported`] for memory that was not made so; so does the default.
    fn export(&self, memory: MemoryHandle) -> Result<Descriptor> {
        let _ = memory;
        Err(DriverError::new("cuMemExportToShareableHandle", 0, ErrorKind::NotSupported))
    }

    /// The memory behind a descriptor that some process has exported. The handle is released as any
    /// other, and the memory mapped as any other, whole.
    ///
    /// # Errors
    /// What the driver answers, for a descriptor of anything else too.
    fn import(&self, descriptor: &Descriptor) -> Result<MemoryHandle> {
        let _ = descriptor;
        Err(DriverError::new("cuMemImportFromShareableHandle", 0, ErrorKind::NotSupported))
    }

    /// A name for what [`Driver::allocate`] gave, by which other processes can map it; `address` is where it begins.
    ///
    /// # Errors
    /// What the driver answers. The default can do no such thing.
    fn export_allocation(&self, address: u64) -> Result<AllocationName> {
        let _ = address;
        Err(DriverError::new("cuIpcGetMemHandle", 0, ErrorKind::NotSupported))
    }

    /// Maps what another process has named, and returns where.
    ///
    /// # Errors
    /// What the driver answers. The default can do no such thing.
    fn open_allocation(&self, name: &AllocationName) -> Result<u64> {
        let _ = name;
        Err(DriverError::new("cuIpcOpenMemHandle", 0, ErrorKind::NotSupported))
    }

    /// Unmaps what [`Driver::open_allocation`] mapped.
    ///
    /// # Errors
    /// What the driver answers.
    fn close_allocation(&self, address: u64) -> Result<()> {
        let _ = address;
        Err(DriverError::new("cuIpcCloseMemHandle", 0, ErrorKind::NotSupported))
    }

    /// Lets another device, by its ordinal, read and write what this driver gives access to from now on, as if it had
    /// been told at the beginning, and all that [`Driver::allocate`] gave. What is mapped already the device can touch
    /// when [`Driver::set_access`] is called for it again. Telling it twice does nothing more.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] with a text where the device cannot reach this one's memory; what the driver
    /// answers. The default knows no other device.
    fn open_to(&self, device: u32) -> Result<()> {
        if device == self.device() {
            return Ok(());
        }
        Err(DriverError::new("cuDeviceCanAccessPeer", 0, ErrorKind::NotSupported))
    }

    /// Drops the handle; the memory goes when its last mapping goes.
    ///
    /// # Errors
    /// What the driver answers.
    fn release(&self, memory: MemoryHandle) -> Result<()>;

    /// Maps all of `memory` at `address`, which must be reserved and unmapped.
    ///
    /// # Errors
    /// What the driver answers.
    fn map(&self, address: u64, bytes: u64, memory: MemoryHandle) -> Result<()>;

    /// Lets the device, and those that the driver was told to give access, read and write a mapped range.
    ///
    /// # Errors
    /// What the driver answers.
    fn set_access(&self, address: u64, bytes: u64) -> Result<()>;

    /// Unmaps whole mappings; a part of one is refused.
    ///
    /// # Errors
    /// What the driver answers.
    fn unmap(&self, address: u64, bytes: u64) -> Result<()>;

    /// Allocates device memory where mapping is not supported.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] where the device has no more.
    fn allocate(&self, bytes: u64) -> Result<u64>;

    /// Frees what [`Driver::allocate`] gave.
    ///
    /// # Errors
    /// What the driver answers.
    fn free(&self, address: u64) -> Result<()>;

    /// Creates an event without timing, for streams of this device.
    ///
    /// # Errors
    /// What the driver answers.
    fn create_event(&self) -> Result<EventHandle>;

    /// Creates an event without timing for streams of another device: events and the streams they
    /// are recorded on must belong together. Asking and waiting for it works as for any other.
    ///
    /// The default is for drivers of one device, and knows no other.
    ///
    /// # Errors
    /// What the driver answers.
    fn create_event_on(&self, device: u32) -> Result<EventHandle> {
        if device == self.device() {
            return self.create_event();
        }
        Err(DriverError::new("cuEventCreate", 0, ErrorKind::NotSupported))
    }

    /// Records the event behind the work of a stream that is not capturing, and that is of the event's device.
    ///
    /// # Errors
    /// What the driver answers.
    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;

    /// Whether the work before a recorded event has completed. Does not wait.
    ///
    /// # Errors
    /// What the driver answers; "not ready" is `Ok(false)`.
    fn query_event(&self, event: EventHandle) -> Result<bool>;

    /// Waits until the work before a recorded event has completed. Returns at once for an event
    /// that was never recorded.
    ///
    /// # Errors
    /// What the driver answers, errors of earlier work included;
    /// [`ErrorKind::CapturedEvent`] for an event that was recorded in a capture.
    fn synchronize_event(&self, event: EventHandle) -> Result<()>;

    /// Destroys an event.
    ///
    /// # Errors
    /// What the driver answers.
    fn destroy_event(&self, event: EventHandle) -> Result<()>;
}

impl<D: Driver + ?Sized> Driver for std::sync::Arc<D> {
    crate::forward_driver!();
}
