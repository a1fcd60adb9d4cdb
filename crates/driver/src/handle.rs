//! Raw handles and plain values that cross the driver seam.

use std::ffi::c_void;
use std::fmt;

macro_rules! pointer_handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(usize);

        impl $name {
            /// Wraps the driver's pointer. It is only a number here. A driver that follows it is made by an unsafe
            /// call, whose contract says what handles it may be given; the simulated one checks each.
            pub fn from_raw(raw: *mut c_void) -> Self {
                Self(raw as usize)
            }

            /// The driver's pointer.
            pub fn as_raw(self) -> *mut c_void {
                self.0 as *mut c_void
            }

            /// Wraps a handle's number.
            pub const fn from_bits(bits: usize) -> Self {
                Self(bits)
            }

            /// The handle as a number.
            pub const fn bits(self) -> usize {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

pointer_handle! {
    /// A stream (`CUstream`). Zero is the legacy default stream.
    StreamHandle
}
pointer_handle! {
    /// A node of a graph (`CUgraphNode`). Unique within a capture, since nodes cannot be removed
    /// while it lasts; after that the driver may use the value again.
    NodeHandle
}
pointer_handle! {
    /// A graph (`CUgraph`).
    GraphHandle
}
pointer_handle! {
    /// An event (`CUevent`).
    EventHandle
}

impl StreamHandle {
    /// Whether it names a default stream, of the context that is current: the legacy one (0 or 1) or
    /// the thread's own (2). Calls with such a stream fail with [`ErrorKind::OtherContext`](crate::ErrorKind::OtherContext)
    /// while another context of the device is current to the calling thread.
    pub const fn is_default(self) -> bool {
        self.bits() <= 2
    }
}

impl fmt::Display for StreamHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits() {
            0 | 1 => f.write_str("the legacy default stream"),
            2 => f.write_str("the per-thread default stream"),
            bits => write!(f, "stream {bits:#x}"),
        }
    }
}

/// Something that names a stream: a raw handle, or a host library's own type such as
/// `Arc<CudaStream>`. Calls take it by value or by reference.
pub trait AsStream {
    /// The stream's handle.
    fn as_stream(&self) -> StreamHandle;
}

impl AsStream for StreamHandle {
    #[inline]
    fn as_stream(&self) -> StreamHandle {
        *self
    }
}

impl<S: AsStream + ?Sized> AsStream for &S {
    #[inline]
    fn as_stream(&self) -> StreamHandle {
        (**self).as_stream()
    }
}

impl<S: AsStream + ?Sized> AsStream for std::sync::Arc<S> {
    #[inline]
    fn as_stream(&self) -> StreamHandle {
        (**self).as_stream()
    }
}

/// The driver's number of a capture, unique while the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureId(pub u64);

/// A piece of physical memory (`CUmemGenericAllocationHandle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryHandle(pub u64);

/// An open file that stands for a piece of physical memory, and keeps it until it is closed.
#[cfg(unix)]
pub type Descriptor = std::os::fd::OwnedFd;

/// No file stands for physical memory on this system.
#[cfg(not(unix))]
#[derive(Debug)]
pub enum Descriptor {}

/// A driver's name of an allocation for other processes (`CUipcMemHandle`).
pub type AllocationName = [u8; 64];

/// The data of an edge, as the driver reports it (`CUgraphEdgeData`).
///
/// All zero is an ordinary edge: the later node starts when the earlier one has completed and its
/// writes are visible. Everything else promises less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EdgeData {
    /// When the edge fires, by the earlier node (`CU_GRAPH_KERNEL_NODE_PORT_*`).
    pub from_port: u8,
    /// What part of the later node waits. Only zero is defined.
    pub to_port: u8,
    /// The edge's type (`CUgraphDependencyType`).
    pub kind: u8,
}

impl EdgeData {
    /// An ordinary edge: completion and memory visibility.
    pub const FULL: Self = Self { from_port: 0, to_port: 0, kind: 0 };
    /// Programmatic dependent launch: fires when every block of the earlier kernel has triggered or exited.
    pub const PROGRAMMATIC: Self = Self { from_port: 1, to_port: 0, kind: 1 };
    /// Fires when the earlier kernel's blocks have begun; best effort.
    pub const LAUNCH_ORDER: Self = Self { from_port: 2, to_port: 0, kind: 1 };
}

/// A node that another one depends on (or will), and the edge's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// The earlier node.
    pub node: NodeHandle,
    /// What the edge promises.
    pub edge: EdgeData,
}

impl Dependency {
    /// A dependency by an ordinary edge.
    pub const fn full(node: NodeHandle) -> Self {
        Self { node, edge: EdgeData::FULL }
    }
}

/// Whether a stream is capturing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// Not capturing.
    None,
    /// Capturing.
    Active {
        /// The capture that the stream is in.
        capture: CaptureId,
        /// The graph under capture. May die with the capture.
        graph: GraphHandle,
    },
    /// In a capture that an invalid operation has ruined.
    Invalidated,
}

/// A node's type, by the driver's number (`CUgraphNodeType`); unknown numbers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeKind(pub u32);

impl NodeKind {
    /// A kernel launch.
    pub const KERNEL: Self = Self(0);
    /// A copy.
    pub const COPY: Self = Self(1);
    /// A fill.
    pub const FILL: Self = Self(2);
    /// A function on the host.
    pub const HOST: Self = Self(3);
    /// A whole graph as one node.
    pub const CHILD_GRAPH: Self = Self(4);
    /// A node that does nothing.
    pub const EMPTY: Self = Self(5);
    /// A conditional node, whose bodies are graphs of their own.
    pub const CONDITIONAL: Self = Self(13);
}

/// What a node does with an address among its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It reads there, and writes nothing: a copy's source.
    Reads,
    /// It writes there, and reads nothing: a copy's destination, what is filled.
    Writes,
    /// Anything: a kernel's parameters do not tell, nor whether the value is an address at all.
    Unknown,
}

/// A value among a node's parameters that may be a device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePointer {
    /// The value.
    pub address: u64,
    /// What the node does there, if it is an address.
    pub access: Access,
}

/// How a device gives out memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySupport {
    /// Address space is reserved and physical memory mapped into it.
    Mapped {
        /// Unit of physical memory, in bytes; a power of two.
        granularity: u64,
    },
    /// Only whole allocations.
    Allocated,
}

impl MemorySupport {
    /// Unit of physical memory, in bytes; `None` where there are only whole allocations.
    pub const fn granularity(self) -> Option<u64> {
        match self {
            Self::Mapped { granularity } => Some(granularity),
            Self::Allocated => None,
        }
    }
}

/// Device memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not in use.
    pub free: u64,
    /// All there is.
    pub total: u64,
}
