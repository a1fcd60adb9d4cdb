//! Drivers that pass every call on to another one: `Arc<D>`, and wrappers that dereference to a driver.

/// Methods that call the same method of what `self` dereferences to; with `own` those of the same name that the type
/// itself has beside the trait's.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    (own $($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result {
            self.$name($($argument),*)
        })*
    };
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result {
            (**self).$name($($argument),*)
        })*
    };
}

/// All methods of [`Driver`](crate::Driver), for a type that dereferences to a driver.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_driver {
    () => {
        $crate::forward_driver!(all but mappings);
        $crate::forward! {
            reserve(bytes: u64) -> $crate::Result<u64>;
            unreserve(address: u64, bytes: u64) -> $crate::Result<()>;
            map(address: u64, bytes: u64, memory: $crate::MemoryHandle) -> $crate::Result<()>;
            set_access(address: u64, bytes: u64) -> $crate::Result<()>;
            unmap(address: u64, bytes: u64) -> $crate::Result<()>;
            allocate(bytes: u64) -> $crate::Result<u64>;
            free(address: u64) -> $crate::Result<()>;
        }
    };
    // For wrappers that look at what comes to lie at addresses.
    (all but mappings) => {
        $crate::forward! {
            device() -> u32;
            device_of_stream(stream: $crate::StreamHandle) -> $crate::Result<u32>;
            create_event_on(device: u32) -> $crate::Result<$crate::EventHandle>;
            capture_status(stream: $crate::StreamHandle, terminals: &mut Vec<$crate::Dependency>) -> $crate::Result<$crate::CaptureStatus>;
            capture_of(stream: $crate::StreamHandle) -> $crate::Result<$crate::CaptureStatus>;
            is_capturing(stream: $crate::StreamHandle) -> $crate::Result<bool>;
            dependencies(node: $crate::NodeHandle, dependencies: &mut Vec<$crate::Dependency>) -> $crate::Result<()>;
            nodes(graph: $crate::GraphHandle, nodes: &mut Vec<$crate::NodeHandle>) -> $crate::Result<()>;
            node_kind(node: $crate::NodeHandle) -> $crate::Result<$crate::NodeKind>;
            pointers(node: $crate::NodeHandle, pointers: &mut Vec<$crate::NodePointer>) -> $crate::Result<()>;
            kernel_name(node: $crate::NodeHandle) -> Option<String>;
            memory_support() -> $crate::MemorySupport;
            memory_info() -> $crate::Result<$crate::MemoryInfo>;
            create(bytes: u64) -> $crate::Result<$crate::MemoryHandle>;
            create_exportable(bytes: u64) -> $crate::Result<$crate::MemoryHandle>;
            export(memory: $crate::MemoryHandle) -> $crate::Result<$crate::Descriptor>;
            import(descriptor: &$crate::Descriptor) -> $crate::Result<$crate::MemoryHandle>;
            export_allocation(address: u64) -> $crate::Result<$crate::AllocationName>;
            open_allocation(name: &$crate::AllocationName) -> $crate::Result<u64>;
            close_allocation(address: u64) -> $crate::Result<()>;
            open_to(device: u32) -> $crate::Result<()>;
            release(memory: $crate::MemoryHandle) -> $crate::Result<()>;
            create_event() -> $crate::Result<$crate::EventHandle>;
            record_event(event: $crate::EventHandle, stream: $crate::StreamHandle) -> $crate::Result<()>;
            query_event(event: $crate::EventHandle) -> $crate::Result<bool>;
            synchronize_event(event: $crate::EventHandle) -> $crate::Result<()>;
            destroy_event(event: $crate::EventHandle) -> $crate::Result<()>;
        }
    };
}

/// All methods of [`HostApi`](crate::HostApi), likewise.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_host_api {
    () => {
        $crate::forward_host_api!(all but synchronize);
        $crate::forward! {
            synchronize() -> $crate::Result<()>;
        }
    };
    // For wrappers that look at what the host waits for.
    (all but synchronize) => {
        $crate::forward! {
            create_stream() -> $crate::Result<$crate::StreamHandle>;
            destroy_stream(stream: $crate::StreamHandle) -> $crate::Result<()>;
            stream_id(stream: $crate::StreamHandle) -> $crate::Result<u64>;
            begin_capture(stream: $crate::StreamHandle, mode: $crate::CaptureMode) -> $crate::Result<()>;
            end_capture(stream: $crate::StreamHandle) -> $crate::Result<$crate::GraphHandle>;
            wait(stream: $crate::StreamHandle, on: $crate::StreamHandle) -> $crate::Result<()>;
            wait_for_event(stream: $crate::StreamHandle, event: $crate::EventHandle) -> $crate::Result<()>;
            destroy_graph(graph: $crate::GraphHandle) -> $crate::Result<()>;
            move_nodes(graph: $crate::GraphHandle) -> $crate::Result<$crate::GraphHandle>;
            instantiate(graph: $crate::GraphHandle) -> $crate::Result<$crate::ExecutableHandle>;
            update(executable: $crate::ExecutableHandle, graph: $crate::GraphHandle) -> $crate::Result<()>;
            node_shape(node: $crate::NodeHandle) -> $crate::Result<$crate::NodeShape>;
            executable_bytes(shape: &$crate::GraphShape) -> u64;
            upload(executable: $crate::ExecutableHandle, stream: $crate::StreamHandle) -> $crate::Result<()>;
            replay(executable: $crate::ExecutableHandle, stream: $crate::StreamHandle) -> $crate::Result<()>;
            fill(address: u64, bytes: u64, value: u8, stream: $crate::StreamHandle) -> $crate::Result<()>;
            destroy_executable(executable: $crate::ExecutableHandle) -> $crate::Result<()>;
            is_idle() -> $crate::Result<bool>;
        }
    };
}

/// All methods of [`Transfer`](crate::Transfer), likewise.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_transfer {
    () => {
        $crate::forward! {
            host_memory() -> Option<u64>;
            host_threads() -> usize;
            allocate_host(bytes: u64) -> $crate::Result<$crate::HostPlace>;
            free_host(place: $crate::HostPlace) -> $crate::Result<()>;
            copy_to_host(to: $crate::HostPlace, address: u64, bytes: u64, stream: $crate::StreamHandle) -> $crate::Result<()>;
            copy_to_device(address: u64, from: $crate::HostPlace, bytes: u64, stream: $crate::StreamHandle) -> $crate::Result<()>;
        }
        $crate::forward_transfer!(files);
    };
    // For wrappers that look at the copies.
    (files) => {
        $crate::forward! {
            holds_same(one: $crate::HostPlace, other: $crate::HostPlace, bytes: u64) -> bool;
            write_file(file: &std::fs::File, offset: u64, from: $crate::HostPlace, bytes: u64) -> std::io::Result<()>;
            read_file(file: &std::fs::File, offset: u64, to: $crate::HostPlace, bytes: u64) -> std::io::Result<()>;
            sync_file(file: &std::fs::File) -> std::io::Result<()>;
        }
    };
}
