//! The functions of libcuda that only tagged programs call.

use std::ffi::{c_char, c_void};

use regraph_driver::cuda::{CudaDriver, KernelNodeParams, Pointer, RawEdge};
use regraph_driver::Result;

use super::raw::{ConditionalNodeParams, LaunchConfig, ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR};

macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ident: $kind:ty),* $(,)?);)*) => {
        /// Each field is a function of libcuda; the method of the same name turns its code into a result.
        pub(super) struct Functions {
            $($field: unsafe extern "C" fn($($kind),*) -> u32,)*
        }

        impl Functions {
            /// Looks all functions up.
            pub(super) fn load(driver: &CudaDriver) -> Result<Self> {
                Ok(Self {
                    // SAFETY: the type is the C prototype of this symbol in cuda.h, with enums as
                    // the unsigned ints they are.
                    $($field: unsafe {
                        std::mem::transmute::<
                            *const c_void,
                            unsafe extern "C" fn($($kind),*) -> u32,
                        >(driver.function($name)?)
                    },)*
                })
            }

            $(
                #[allow(clippy::too_many_arguments, reason = "as many as the function has")]
                pub(super) unsafe fn $field(
                    &self,
                    driver: &CudaDriver,
                    $($argument: $kind),*
                ) -> Result<()> {
                    // SAFETY: the caller keeps the function's contract.
                    match unsafe { (self.$field)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(driver.error($name, code)),
                    }
                }
            )*
        }
    };
}

functions! {
    device_attribute = "cuDeviceGetAttribute"(value: *mut i32, attribute: u32, device: i32);
    update_dependencies = "cuStreamUpdateCaptureDependencies_v2"(
        stream: Pointer,
        nodes: *mut Pointer,
        edges: *const RawEdge,
        count: usize,
        flags: u32,
    );
    capture_begin_to_graph = "cuStreamBeginCaptureToGraph"(
        stream: Pointer,
        graph: Pointer,
        nodes: *const Pointer,
        edges: *const RawEdge,
        count: usize,
        mode: u32,
    );
    add_dependencies = "cuGraphAddDependencies_v2"(
        graph: Pointer,
        from: *const Pointer,
        to: *const Pointer,
        edges: *const RawEdge,
        count: usize,
    );
    remove_dependencies = "cuGraphRemoveDependencies_v2"(
        graph: Pointer,
        from: *const Pointer,
        to: *const Pointer,
        edges: *const RawEdge,
        count: usize,
    );
    add_kernel_node = "cuGraphAddKernelNode_v2"(
        node: *mut Pointer,
        graph: Pointer,
        nodes: *const Pointer,
        count: usize,
        parameters: *const KernelNodeParams,
    );
    conditional_handle = "cuGraphConditionalHandleCreate"(
        handle: *mut u64,
        graph: Pointer,
        context: Pointer,
        default_value: u32,
        flags: u32,
    );
    add_node = "cuGraphAddNode_v2"(
        node: *mut Pointer,
        graph: Pointer,
        nodes: *const Pointer,
        edges: *const RawEdge,
        count: usize,
        parameters: *mut ConditionalNodeParams,
    );
    memory_allocate = "cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    memory_free = "cuMemFree_v2"(address: u64);
    copy_to_host = "cuMemcpyDtoH_v2"(to: *mut c_void, from: u64, bytes: usize);
    copy_to_device = "cuMemcpyHtoD_v2"(to: u64, from: *const c_void, bytes: usize);
    host_allocate = "cuMemHostAlloc"(memory: *mut *mut c_void, bytes: usize, flags: u32);
    host_device_address = "cuMemHostGetDevicePointer_v2"(
        address: *mut u64,
        memory: *mut c_void,
        flags: u32,
    );
    host_free = "cuMemFreeHost"(memory: *mut c_void);
    module_load = "cuModuleLoadData"(module: *mut Pointer, image: *const c_void);
    module_function = "cuModuleGetFunction"(
        function: *mut Pointer,
        module: Pointer,
        name: *const c_char,
    );
    module_unload = "cuModuleUnload"(module: Pointer);
    launch = "cuLaunchKernelEx"(
        config: *const LaunchConfig,
        function: Pointer,
        parameters: *mut Pointer,
        extra: *mut Pointer,
    );
}

impl Functions {
    /// The major number of a device's compute capability.
    pub(super) fn compute_major(&self, driver: &CudaDriver) -> Result<i32> {
        let mut major = 0;
        let device = driver.context().cu_device();
        // SAFETY: writes one int.
        unsafe {
            self.device_attribute(driver, &mut major, ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
        }?;
        Ok(major)
    }
}
