//! Drivers that pass every call on to another one: `Arc<D>`, and wrappers that dereference to a
//! driver.

/// Methods that call the same method of what `self` dereferences to.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result {
            (**self).$name($($argument),*)
        })*
    };
}

/// All methods of [`Driver`](crate::driver::Driver), for a type that dereferences to a driver.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_driver {
    () => {
        $crate::forward_driver!(all but mappings);
        $crate::forward! {
            reserve(bytes: u64) -> $crate::driver::Result<u64>;
            unreserve(address: u64, bytes: u64) -> $crate::driver::Result<()>;
            map(address: u64, bytes: u64, memory: $crate::driver::MemoryHandle) -> $crate::driver::Result<()>;
            set_access(address: u64, bytes: u64) -> $crate::driver::Result<()>;
            unmap(address: u64, bytes: u64) -> $crate::driver::Result<()>;
            allocate(bytes: u64) -> $crate::driver::Result<u64>;
            free(address: u64) -> $crate::driver::Result<()>;
        }
    };
    // For wrappers that look at what comes to lie at addresses.
    (all but mappings) => {
        $crate::forward! {
            device() -> u32;
            device_of_stream(stream: $crate::driver::StreamHandle) -> $crate::driver::Result<u32>;
            create_event_on(device: u32) -> $crate::driver::Result<$crate::driver::EventHandle>;
            capture_status(stream: $crate::driver::StreamHandle, terminals: &mut Vec<$crate::driver::Dependency>) -> $crate::driver::Result<$crate::driver::CaptureStatus>;
            capture_of(stream: $crate::driver::StreamHandle) -> $crate::driver::Result<$crate::driver::CaptureStatus>;
            is_capturing(stream: $crate::driver::StreamHandle) -> $crate::driver::Result<bool>;
            dependencies(node: $crate::driver::NodeHandle, dependencies: &mut Vec<$crate::driver::Dependency>) -> $crate::driver::Result<()>;
            nodes(graph: $crate::driver::GraphHandle, nodes: &mut Vec<$crate::driver::NodeHandle>) -> $crate::driver::Result<()>;
            node_kind(node: $crate::driver::NodeHandle) -> $crate::driver::Result<$crate::driver::NodeKind>;
            pointers(node: $crate::driver::NodeHandle, values: &mut Vec<u64>) -> $crate::driver::Result<()>;
            kernel_name(node: $crate::driver::NodeHandle) -> Option<String>;
            memory_support() -> $crate::driver::MemorySupport;
            memory_info() -> $crate::driver::Result<$crate::driver::MemoryInfo>;
            create(bytes: u64) -> $crate::driver::Result<$crate::driver::MemoryHandle>;
            create_exportable(bytes: u64) -> $crate::driver::Result<$crate::driver::MemoryHandle>;
            export(memory: $crate::driver::MemoryHandle) -> $crate::driver::Result<$crate::driver::Descriptor>;
            import(descriptor: &$crate::driver::Descriptor) -> $crate::driver::Result<$crate::driver::MemoryHandle>;
            export_allocation(address: u64) -> $crate::driver::Result<$crate::driver::AllocationName>;
            open_allocation(name: &$crate::driver::AllocationName) -> $crate::driver::Result<u64>;
            close_allocation(address: u64) -> $crate::driver::Result<()>;
            open_to(device: u32) -> $crate::driver::Result<()>;
            release(memory: $crate::driver::MemoryHandle) -> $crate::driver::Result<()>;
            create_event() -> $crate::driver::Result<$crate::driver::EventHandle>;
            record_event(event: $crate::driver::EventHandle, stream: $crate::driver::StreamHandle) -> $crate::driver::Result<()>;
            query_event(event: $crate::driver::EventHandle) -> $crate::driver::Result<bool>;
            synchronize_event(event: $crate::driver::EventHandle) -> $crate::driver::Result<()>;
            destroy_event(event: $crate::driver::EventHandle) -> $crate::driver::Result<()>;
        }
    };
}

/// All methods of [`HostApi`](crate::driver::HostApi), likewise.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_host_api {
    () => {
        $crate::forward! {
            create_stream() -> $crate::driver::Result<$crate::driver::StreamHandle>;
            destroy_stream(stream: $crate::driver::StreamHandle) -> $crate::driver::Result<()>;
            stream_id(stream: $crate::driver::StreamHandle) -> $crate::driver::Result<u64>;
            begin_capture(stream: $crate::driver::StreamHandle, mode: $crate::driver::CaptureMode) -> $crate::driver::Result<()>;
            end_capture(stream: $crate::driver::StreamHandle) -> $crate::driver::Result<$crate::driver::GraphHandle>;
            wait(stream: $crate::driver::StreamHandle, on: $crate::driver::StreamHandle) -> $crate::driver::Result<()>;
            wait_for_event(stream: $crate::driver::StreamHandle, event: $crate::driver::EventHandle) -> $crate::driver::Result<()>;
            destroy_graph(graph: $crate::driver::GraphHandle) -> $crate::driver::Result<()>;
            instantiate(graph: $crate::driver::GraphHandle) -> $crate::driver::Result<$crate::driver::ExecutableHandle>;
            upload(executable: $crate::driver::ExecutableHandle, stream: $crate::driver::StreamHandle) -> $crate::driver::Result<()>;
            replay(executable: $crate::driver::ExecutableHandle, stream: $crate::driver::StreamHandle) -> $crate::driver::Result<()>;
            destroy_executable(executable: $crate::driver::ExecutableHandle) -> $crate::driver::Result<()>;
            synchronize() -> $crate::driver::Result<()>;
            is_idle() -> $crate::driver::Result<bool>;
        }
    };
}

/// All methods of [`Transfer`](crate::driver::Transfer), likewise.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_transfer {
    () => {
        $crate::forward! {
            allocate_host(bytes: u64) -> $crate::driver::Result<$crate::driver::HostPlace>;
            free_host(place: $crate::driver::HostPlace) -> $crate::driver::Result<()>;
            copy_to_host(to: $crate::driver::HostPlace, address: u64, bytes: u64, stream: $crate::driver::StreamHandle) -> $crate::driver::Result<()>;
            copy_to_device(address: u64, from: $crate::driver::HostPlace, bytes: u64, stream: $crate::driver::StreamHandle) -> $crate::driver::Result<()>;
        }
    };
}
