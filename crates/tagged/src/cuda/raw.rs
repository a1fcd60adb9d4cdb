//! The driver's numbers and structures that tagged programs alone need, in the layout of `cuda.h` from CUDA 12.3 on.

use std::mem::{offset_of, size_of};

use regraph_driver::cuda::Pointer;

/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`
pub(super) const SET_DEPENDENCIES: u32 = 1;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
pub(super) const HOST_PORTABLE_MAPPED: u32 = 3;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`
pub(super) const ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: u32 = 75;
const ATTRIBUTE_PROGRAMMATIC_SERIALIZATION: u32 = 6;

const NODE_CONDITIONAL: u32 = 13;
const CONDITIONAL_IF: u32 = 0;
/// `CU_GRAPH_COND_ASSIGN_DEFAULT`
pub(super) const CONDITIONAL_ASSIGN_DEFAULT: u32 = 1;

/// `CUlaunchAttribute`; the value is a union of 64 bytes, aligned to eight.
#[repr(C, align(8))]
pub(super) struct LaunchAttribute {
    id: u32,
    pad: u32,
    value: [i32; 16],
}

impl LaunchAttribute {
    /// Programmatic stream serialization, allowed.
    pub fn programmatic() -> Self {
        // The union's member is an int at its start.
        let mut value = [0; 16];
        value[0] = 1;
        Self { id: ATTRIBUTE_PROGRAMMATIC_SERIALIZATION, pad: 0, value }
    }
}

/// `CUlaunchConfig`
#[repr(C)]
pub(super) struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Pointer,
    pub attributes: *mut LaunchAttribute,
    pub attribute_count: u32,
}

/// `CUgraphNodeParams` of a conditional node: the header, `CUDA_CONDITIONAL_NODE_PARAMS` in a
/// union of 232 bytes, and the tail.
#[repr(C)]
pub(super) struct ConditionalNodeParams {
    kind: u32,
    reserved0: [i32; 3],
    handle: u64,
    conditional_kind: u32,
    size: u32,
    /// Written by the driver: an array of `size` body graphs that it owns.
    pub bodies: *mut Pointer,
    context: Pointer,
    rest: [u64; 25],
    reserved2: i64,
}

impl ConditionalNodeParams {
    /// An IF with one body.
    pub fn if_once(handle: u64, context: Pointer) -> Self {
        Self {
            kind: NODE_CONDITIONAL,
            reserved0: [0; 3],
            handle,
            conditional_kind: CONDITIONAL_IF,
            size: 1,
            bodies: std::ptr::null_mut(),
            context,
            rest: [0; 25],
            reserved2: 0,
        }
    }
}

// The layouts of the 64-bit ABI. The driver is there for no other.
const _: () = {
    assert!(size_of::<LaunchAttribute>() == 72);
    assert!(offset_of!(LaunchAttribute, value) == 8);
    assert!(size_of::<LaunchConfig>() == 56);
    assert!(offset_of!(LaunchConfig, stream) == 32);
    assert!(offset_of!(LaunchConfig, attributes) == 40);
    assert!(offset_of!(LaunchConfig, attribute_count) == 48);
    assert!(size_of::<ConditionalNodeParams>() == 256);
    assert!(offset_of!(ConditionalNodeParams, handle) == 16);
    assert!(offset_of!(ConditionalNodeParams, size) == 28);
    assert!(offset_of!(ConditionalNodeParams, bodies) == 32);
    assert!(offset_of!(ConditionalNodeParams, context) == 40);
    assert!(offset_of!(ConditionalNodeParams, reserved2) == 248);
};
