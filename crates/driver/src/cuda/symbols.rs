//! The table of driver functions, by the names that libcuda exports.
//!
//! A symbol's suffix is its ABI: `cuStreamGetCaptureInfo_v3` and the `_v2` graph functions are
//! those with edge data. Without edge data nothing can be proven, so there is no fall-back to the
//! older ones; a driver that lacks them (before CUDA 12.3) is refused.

use std::error::Error;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use libloading::Library;

use super::super::{DriverError, ErrorKind, Result};
use super::error::failure;
use super::raw::{AccessDesc, AllocationProp, IpcHandle, Pointer, RawEdge, UpdateOutcome};

macro_rules! symbols {
    ($($field:ident = $name:literal ($($argument:ident: $kind:ty),* $(,)?);)*) => {
        /// Functions of libcuda. Each field is the function itself; the method of the same name
        /// turns its code into a result.
        pub(super) struct Symbols {
            $(pub $field: unsafe extern "C" fn($($kind),*) -> u32,)*
        }

        // A few functions are only called through their fields.
        #[allow(dead_code, clippy::too_many_arguments)]
        impl Symbols {
            /// Opens libcuda, unless it is open, and looks all functions up.
            pub fn load() -> Result<Self> {
                let library = library()?;
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is the C prototype of this symbol in cuda.h, with
                        // enums as the unsigned ints they are.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($kind),*) -> u32>(
                                concat!($name, "\0").as_bytes(),
                            )
                        };
                        match found {
                            Ok(symbol) => *symbol,
                            Err(_) => return Err(missing($name)),
                        }
                    },)*
                })
            }

            $(
                #[inline]
                pub unsafe fn $field(&self, $($argument: $kind),*) -> Result<()> {
                    // SAFETY: the caller keeps the function's contract.
                    match unsafe { (self.$field)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(failure(self, $name, code)),
                    }
                }
            )*
        }
    };
}

symbols! {
    init = "cuInit"(flags: u32);
    driver_version = "cuDriverGetVersion"(version: *mut i32);
    error_name = "cuGetErrorName"(code: u32, text: *mut *const c_char);
    error_string = "cuGetErrorString"(code: u32, text: *mut *const c_char);
    device_attribute = "cuDeviceGetAttribute"(value: *mut i32, attribute: u32, device: i32);
    device_count = "cuDeviceGetCount"(count: *mut i32);
    device_get = "cuDeviceGet"(device: *mut i32, ordinal: i32);
    device_bytes = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: i32);
    device_name = "cuDeviceGetName"(name: *mut c_char, length: i32, device: i32);
    current_context = "cuCtxGetCurrent"(context: *mut Pointer);
    set_context = "cuCtxSetCurrent"(context: Pointer);
    context_device = "cuCtxGetDevice"(device: *mut i32);
    context_id = "cuCtxGetId"(context: Pointer, id: *mut u64);
    can_access_peer = "cuDeviceCanAccessPeer"(reaches: *mut i32, device: i32, peer: i32);
    enable_peer_access = "cuCtxEnablePeerAccess"(peer: Pointer, flags: u32);
    synchronize = "cuCtxSynchronize"();

    capture_info = "cuStreamGetCaptureInfo_v3"(
        stream: Pointer,
        status: *mut u32,
        id: *mut u64,
        graph: *mut Pointer,
        nodes: *mut *const Pointer,
        edges: *mut *const RawEdge,
        count: *mut usize,
    );
    exchange_mode = "cuThreadExchangeStreamCaptureMode"(mode: *mut u32);
    stream_create = "cuStreamCreate"(stream: *mut Pointer, flags: u32);
    stream_destroy = "cuStreamDestroy_v2"(stream: Pointer);
    stream_id = "cuStreamGetId"(stream: Pointer, id: *mut u64);
    stream_context = "cuStreamGetCtx"(stream: Pointer, context: *mut Pointer);
    stream_wait = "cuStreamWaitEvent"(stream: Pointer, event: Pointer, flags: u32);
    capture_begin = "cuStreamBeginCapture_v2"(stream: Pointer, mode: u32);
    capture_end = "cuStreamEndCapture"(stream: Pointer, graph: *mut Pointer);

    graph_nodes = "cuGraphGetNodes"(graph: Pointer, nodes: *mut Pointer, count: *mut usize);
    node_kind = "cuGraphNodeGetType"(node: Pointer, kind: *mut u32);
    node_dependencies = "cuGraphNodeGetDependencies_v2"(
        node: Pointer,
        nodes: *mut Pointer,
        edges: *mut RawEdge,
        count: *mut usize,
    );
    graph_destroy = "cuGraphDestroy"(graph: Pointer);
    graph_clone = "cuGraphClone"(clone: *mut Pointer, graph: Pointer);
    node_destroy = "cuGraphDestroyNode"(node: Pointer);
    instantiate = "cuGraphInstantiateWithFlags"(
        executable: *mut Pointer,
        graph: Pointer,
        flags: u64,
    );
    executable_update = "cuGraphExecUpdate_v2"(
        executable: Pointer,
        graph: Pointer,
        outcome: *mut UpdateOutcome,
    );
    graph_upload = "cuGraphUpload"(executable: Pointer, stream: Pointer);
    graph_launch = "cuGraphLaunch"(executable: Pointer, stream: Pointer);
    executable_destroy = "cuGraphExecDestroy"(executable: Pointer);

    granularity = "cuMemGetAllocationGranularity"(
        bytes: *mut usize,
        prop: *const AllocationProp,
        option: u32,
    );
    memory_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    address_reserve = "cuMemAddressReserve"(
        address: *mut u64,
        bytes: usize,
        alignment: usize,
        hint: u64,
        flags: u64,
    );
    address_free = "cuMemAddressFree"(address: u64, bytes: usize);
    memory_create = "cuMemCreate"(
        handle: *mut u64,
        bytes: usize,
        prop: *const AllocationProp,
        flags: u64,
    );
    memory_release = "cuMemRelease"(handle: u64);
    memory_map = "cuMemMap"(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    memory_set_access = "cuMemSetAccess"(
        address: u64,
        bytes: usize,
        access: *const AccessDesc,
        count: usize,
    );
    memory_export = "cuMemExportToShareableHandle"(
        shareable: *mut c_void,
        handle: u64,
        kind: u32,
        flags: u64,
    );
    memory_import = "cuMemImportFromShareableHandle"(
        handle: *mut u64,
        shareable: *mut c_void,
        kind: u32,
    );
    ipc_get = "cuIpcGetMemHandle"(handle: *mut IpcHandle, address: u64);
    ipc_open = "cuIpcOpenMemHandle_v2"(address: *mut u64, handle: IpcHandle, flags: u32);
    ipc_close = "cuIpcCloseMemHandle"(address: u64);
    memory_unmap = "cuMemUnmap"(address: u64, bytes: usize);
    memory_allocate = "cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    memory_free = "cuMemFree_v2"(address: u64);
    host_allocate = "cuMemHostAlloc"(address: *mut Pointer, bytes: usize, flags: u32);
    host_free = "cuMemFreeHost"(address: Pointer);
    host_register = "cuMemHostRegister_v2"(address: Pointer, bytes: usize, flags: u32);
    host_unregister = "cuMemHostUnregister"(address: Pointer);
    fill = "cuMemsetD8Async"(address: u64, value: u8, bytes: usize, stream: Pointer);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(
        to: Pointer,
        from: u64,
        bytes: usize,
        stream: Pointer,
    );
    copy_to_device = "cuMemcpyHtoDAsync_v2"(
        to: u64,
        from: Pointer,
        bytes: usize,
        stream: Pointer,
    );

    event_create = "cuEventCreate"(event: *mut Pointer, flags: u32);
    event_record = "cuEventRecord"(event: Pointer, stream: Pointer);
    event_query = "cuEventQuery"(event: Pointer);
    event_synchronize = "cuEventSynchronize"(event: Pointer);
    event_destroy = "cuEventDestroy_v2"(event: Pointer);
}

#[cfg(windows)]
const LIBRARY_NAMES: [&str; 1] = ["nvcuda.dll"];
/// The second name is for systems that have the link without a version alone.
#[cfg(not(windows))]
const LIBRARY_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// libcuda, which is never closed: the function pointers taken from it are copied freely.
///
/// cudarc panics where it does not find the library, so this comes before any call into cudarc.
/// Every name here is also one that cudarc tries.
pub(super) fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let mut reasons = Vec::new();
    for name in LIBRARY_NAMES {
        // SAFETY: opens libcuda, whose initialisers are sound to run.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(LIBRARY.get_or_init(|| library)),
            // The system's reason, which names the file.
            Err(error) => {
                reasons.push(error.source().map_or(error.to_string(), ToString::to_string));
            }
        }
    }
    Err(absent(&reasons.join("; ")))
}

/// The address of a function, by the name that libcuda exports.
pub(super) fn address(name: &'static str) -> Result<*const c_void> {
    // SAFETY: the symbol is only read as an address; its caller knows its prototype.
    let found = unsafe { library()?.get::<*const c_void>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| missing(name))
}

#[cold]
fn absent(reasons: &str) -> DriverError {
    DriverError::new(
        "cuInit",
        0,
        ErrorKind::NoDriver(format!("libcuda could not be loaded: {reasons}")),
    )
}

#[cold]
fn missing(name: &'static str) -> DriverError {
    DriverError::new(name, 0, ErrorKind::MissingFunction(name))
}
