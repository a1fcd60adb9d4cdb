//! The driver's numbers and structures, in the layout of `cuda.h` from CUDA 12.3 on.
//!
//! Everything the driver writes is a plain integer here: a newer driver may answer with values
//! that no binding knows, and those must not become an invalid Rust enum.
//!
//! Public items are those that the crate `regraph-tagged` uses for functions of libcuda that it alone calls.

use std::ffi::c_void;
use std::mem::{offset_of, size_of};

use super::super::{AllocationName, CaptureMode, Dependency, EdgeData, NodeHandle};

/// Any opaque handle of the driver.
pub type Pointer = *mut c_void;

pub(super) const INVALID_CONTEXT: u32 = 201;
pub(super) const NOT_READY: u32 = 600;
pub(super) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
pub(super) const CONTEXT_IS_DESTROYED: u32 = 709;

pub(super) const CAPTURE_NONE: u32 = 0;
pub(super) const CAPTURE_ACTIVE: u32 = 1;
pub(super) const CAPTURE_INVALIDATED: u32 = 2;

pub(super) const MODE_RELAXED: u32 = 2;

/// `CUstreamCaptureMode`
pub fn mode(mode: CaptureMode) -> u32 {
    match mode {
        CaptureMode::Global => 0,
        CaptureMode::ThreadLocal => 1,
        CaptureMode::Relaxed => MODE_RELAXED,
    }
}

/// `CU_STREAM_NON_BLOCKING`
pub(super) const STREAM_NON_BLOCKING: u32 = 1;
/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`
pub(super) const HOST_PORTABLE: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`
pub(super) const EVENT_DISABLE_TIMING: u32 = 2;

pub(super) const ATTRIBUTE_VIRTUAL_MEMORY: u32 = 102;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`
pub(super) const ATTRIBUTE_DESCRIPTORS: u32 = 103;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`
pub(super) const ATTRIBUTE_RDMA: u32 = 110;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`
pub(super) const ATTRIBUTE_FABRIC: u32 = 128;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(super) const HANDLE_DESCRIPTOR: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`
pub(super) const HANDLE_FABRIC: u32 = 8;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`
pub(super) const IPC_LAZY_PEER_ACCESS: u32 = 1;

const LOCATION_DEVICE: u32 = 1;
const ALLOCATION_PINNED: u32 = 1;
const ACCESS_READ_WRITE: u32 = 3;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`
pub(super) const GRANULARITY_MINIMUM: u32 = 0;

/// `CUgraphEdgeData`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawEdge {
    from_port: u8,
    to_port: u8,
    kind: u8,
    reserved: [u8; 5],
}

impl From<EdgeData> for RawEdge {
    fn from(edge: EdgeData) -> Self {
        Self { from_port: edge.from_port, to_port: edge.to_port, kind: edge.kind, reserved: [0; 5] }
    }
}

impl From<RawEdge> for EdgeData {
    fn from(raw: RawEdge) -> Self {
        // Bytes that are reserved today may weaken the edge tomorrow: such an edge must not read
        // as an ordinary one.
        let unknown = raw.reserved != [0; 5];
        Self {
            from_port: raw.from_port,
            to_port: raw.to_port,
            kind: if unknown { u8::MAX } else { raw.kind },
        }
    }
}

/// A dependency from the driver's two arrays.
pub(super) fn dependency(node: Pointer, edge: RawEdge) -> Dependency {
    Dependency { node: NodeHandle::from_raw(node), edge: edge.into() }
}

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: u32,
    id: i32,
}

impl Location {
    fn device(ordinal: i32) -> Self {
        Self { kind: LOCATION_DEVICE, id: ordinal }
    }
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AllocationProp {
    kind: u32,
    handle_types: u32,
    location: Location,
    win32_metadata: usize,
    compression: u8,
    rdma_capable: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl AllocationProp {
    /// Pinned memory of a device.
    pub fn pinned(ordinal: i32) -> Self {
        Self {
            kind: ALLOCATION_PINNED,
            handle_types: 0,
            location: Location::device(ordinal),
            win32_metadata: 0,
            compression: 0,
            rdma_capable: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// Pinned memory of a device that can be exported by these types of handles, and that network cards
    /// can reach where `rdma` is set.
    pub fn exportable(ordinal: i32, handle_types: u32, rdma: bool) -> Self {
        Self { handle_types, rdma_capable: rdma.into(), ..Self::pinned(ordinal) }
    }
}

/// `CUipcMemHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IpcHandle(pub AllocationName);

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AccessDesc {
    location: Location,
    flags: u32,
}

impl AccessDesc {
    /// Reading and writing by a device.
    pub fn read_write(ordinal: i32) -> Self {
        Self { location: Location::device(ordinal), flags: ACCESS_READ_WRITE }
    }
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
#[allow(missing_docs, reason = "the fields are described with CUDA's structure")]
#[derive(Debug)]
pub struct KernelNodeParams {
    pub function: Pointer,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub parameters: *mut Pointer,
    pub extra: *mut Pointer,
    pub kernel: Pointer,
    pub context: Pointer,
}

impl KernelNodeParams {
    /// No kernel: each field is zero or null.
    pub fn none() -> Self {
        Self {
            function: std::ptr::null_mut(),
            grid: [0; 3],
            block: [0; 3],
            shared_bytes: 0,
            parameters: std::ptr::null_mut(),
            extra: std::ptr::null_mut(),
            kernel: std::ptr::null_mut(),
            context: std::ptr::null_mut(),
        }
    }
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
pub(super) struct UpdateOutcome {
    result: u32,
    node: Pointer,
    from: Pointer,
}

impl UpdateOutcome {
    /// What the driver is to write over.
    pub fn none() -> Self {
        Self { result: 0, node: std::ptr::null_mut(), from: std::ptr::null_mut() }
    }
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct HostNodeParams {
    pub function: usize,
    data: usize,
}

/// `CUlaunchAttributeValue`
pub(super) type AttributeValue = [u64; 8];
/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`
pub(super) const DEVICE_UPDATABLE: u32 = 13;
/// Those of `CUlaunchAttributeID` that a kernel node may have, and the numbers behind the last one of CUDA 13.0.
pub(super) const NODE_ATTRIBUTES: [u32; 14] =
    [1, 2, 4, 5, 8, 9, 10, 11, DEVICE_UPDATABLE, 14, 15, 16, 17, 18];
/// `CU_MEMORYTYPE_ARRAY`
const MEMORY_ARRAY: u32 = 3;

/// One end of a copy in `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CopyEnd {
    x_bytes: usize,
    y: usize,
    z: usize,
    level: usize,
    memory: u32,
    host: usize,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

impl CopyEnd {
    /// Where the copy begins. Of what lies in an array or on the host it is no device address.
    fn start(&self) -> u64 {
        let rows = self.z.wrapping_mul(self.height).wrapping_add(self.y);
        let offset = rows.wrapping_mul(self.pitch).wrapping_add(self.x_bytes);
        self.device.wrapping_add(offset as u64)
    }
}

/// `CUDA_MEMCPY3D`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CopyNodeParams {
    from: CopyEnd,
    to: CopyEnd,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

impl CopyNodeParams {
    /// The first address that is read.
    pub fn source(&self) -> u64 {
        self.from.start()
    }

    /// The first address that is written.
    pub fn destination(&self) -> u64 {
        self.to.start()
    }

    /// The kinds of memory that it reads and writes (`CUmemorytype`); `None` where one is an array.
    pub fn memory(&self) -> Option<[u64; 2]> {
        let kinds = [self.from.memory, self.to.memory];
        (!kinds.contains(&MEMORY_ARRAY)).then_some(kinds.map(u64::from))
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct FillNodeParams {
    /// The first address that is written.
    pub start: u64,
    pitch: usize,
    value: u32,
    element_bytes: u32,
    width: usize,
    height: usize,
}

impl FillNodeParams {
    /// What an update leaves as it is: of one row the size of an element, of several all but the start and the value.
    pub fn fixed(&self) -> Vec<u64> {
        let mut fixed = vec![u64::from(self.element_bytes)];
        if self.height > 1 {
            fixed.extend([self.pitch, self.width, self.height].map(|it| it as u64));
        }
        fixed
    }
}

// The layouts of the 64-bit ABI. The driver is there for no other.
const _: () = {
    assert!(size_of::<Pointer>() == 8);
    assert!(size_of::<RawEdge>() == 8);
    assert!(size_of::<Location>() == 8);
    assert!(size_of::<AllocationProp>() == 32);
    assert!(offset_of!(AllocationProp, location) == 8);
    assert!(offset_of!(AllocationProp, win32_metadata) == 16);
    assert!(offset_of!(AllocationProp, compression) == 24);
    assert!(offset_of!(AllocationProp, usage) == 26);
    assert!(size_of::<AccessDesc>() == 12);
    assert!(size_of::<KernelNodeParams>() == 72);
    assert!(offset_of!(KernelNodeParams, grid) == 8);
    assert!(offset_of!(KernelNodeParams, shared_bytes) == 32);
    assert!(offset_of!(KernelNodeParams, parameters) == 40);
    assert!(offset_of!(KernelNodeParams, extra) == 48);
    assert!(offset_of!(KernelNodeParams, kernel) == 56);
    assert!(size_of::<CopyEnd>() == 88);
    assert!(offset_of!(CopyEnd, memory) == 32);
    assert!(offset_of!(CopyEnd, host) == 40);
    assert!(offset_of!(CopyEnd, device) == 48);
    assert!(offset_of!(CopyEnd, pitch) == 72);
    assert!(offset_of!(CopyEnd, height) == 80);
    assert!(size_of::<CopyNodeParams>() == 200);
    assert!(offset_of!(CopyNodeParams, to) == 88);
    assert!(offset_of!(CopyNodeParams, width_bytes) == 176);
    assert!(size_of::<UpdateOutcome>() == 24);
    assert!(size_of::<HostNodeParams>() == 16);
    assert!(size_of::<FillNodeParams>() == 40);
    assert!(offset_of!(FillNodeParams, value) == 16);
    assert!(offset_of!(FillNodeParams, width) == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_survive_the_crossing() {
        for edge in [EdgeData::FULL, EdgeData::PROGRAMMATIC, EdgeData::LAUNCH_ORDER] {
            assert_eq!(EdgeData::from(RawEdge::from(edge)), edge);
        }
    }

    #[test]
    fn a_copy_begins_behind_its_offsets() {
        let end = CopyEnd { x_bytes: 3, y: 2, z: 1, pitch: 100, height: 10, ..CopyEnd::default() };
        let params = CopyNodeParams {
            from: CopyEnd { device: 0x1_0000, ..end },
            to: CopyEnd { device: 0x2_0000, ..CopyEnd::default() },
            ..CopyNodeParams::default()
        };
        assert_eq!((params.source(), params.destination()), (0x1_0000 + 1203, 0x2_0000));
    }

    #[test]
    fn reserved_bytes_never_read_as_an_ordinary_edge() {
        let raw = RawEdge { reserved: [0, 0, 1, 0, 0], ..RawEdge::default() };
        assert_ne!(EdgeData::from(raw), EdgeData::FULL);
    }
}
