//! A simulated driver where a capture begins between the engine's question about a stream and the event it records.

use std::sync::{Arc, Mutex, PoisonError};

use crate::common::deref;
use regraph::driver::{
    CaptureMode, CaptureStatus, Dependency, Descriptor, Driver, EventHandle, GraphHandle, HostApi,
    MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind, NodePointer, Result,
    StreamHandle,
};
use regraph_sim::SimDriver;

/// The driver.
#[derive(Debug)]
pub struct Overtaken {
    sim: Arc<SimDriver>,
    /// A stream that is captured on just before the next event is recorded there.
    overtaken: Mutex<Option<StreamHandle>>,
    /// An event that became a part of that capture, and what it is to the simulated driver, whose
    /// events for engines refuse to be captured. CUDA's do not.
    captured: Mutex<Option<(EventHandle, EventHandle)>>,
}

impl Overtaken {
    pub fn new(sim: Arc<SimDriver>) -> Self {
        Self { sim, overtaken: Mutex::default(), captured: Mutex::default() }
    }

    /// Begins a capture on a stream between the engine's next question about it and the event that
    /// it records there, as another thread may.
    pub fn overtake(&self, stream: StreamHandle) {
        *self.overtaken.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }
}

deref!(Overtaken.sim as SimDriver);

impl Driver for Overtaken {
    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let mut overtaken = self.overtaken.lock().unwrap_or_else(PoisonError::into_inner);
        if overtaken.take_if(|overtaken| *overtaken == stream).is_some() {
            self.sim.begin_capture(stream, CaptureMode::Relaxed)?;
            let captured = self.sim.record(stream)?.handle();
            let mut events = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
            *events = Some((event, captured));
            return Ok(());
        }
        self.sim.record_event(event, stream)
    }

    fn query_event(&self, event: EventHandle) -> Result<bool> {
        let captured = *self.captured.lock().unwrap_or_else(PoisonError::into_inner);
        let captured = captured.filter(|captured| captured.0 == event);
        self.sim.query_event(captured.map_or(event, |captured| captured.1))
    }

    regraph::forward! {
        capture_status(stream: StreamHandle, terminals: &mut Vec<Dependency>) -> Result<CaptureStatus>;
        capture_of(stream: StreamHandle) -> Result<CaptureStatus>;
        is_capturing(stream: StreamHandle) -> Result<bool>;
        dependencies(node: NodeHandle, dependencies: &mut Vec<Dependency>) -> Result<()>;
        nodes(graph: GraphHandle, nodes: &mut Vec<NodeHandle>) -> Result<()>;
        node_kind(node: NodeHandle) -> Result<NodeKind>;
        pointers(node: NodeHandle, pointers: &mut Vec<NodePointer>) -> Result<()>;
        memory_support() -> MemorySupport;
        memory_info() -> Result<MemoryInfo>;
        reserve(bytes: u64) -> Result<u64>;
        unreserve(address: u64, bytes: u64) -> Result<()>;
        create(bytes: u64) -> Result<MemoryHandle>;
        create_exportable(bytes: u64) -> Result<MemoryHandle>;
        export(memory: MemoryHandle) -> Result<Descriptor>;
        import(descriptor: &Descriptor) -> Result<MemoryHandle>;
        release(memory: MemoryHandle) -> Result<()>;
        map(address: u64, bytes: u64, memory: MemoryHandle) -> Result<()>;
        set_access(address: u64, bytes: u64) -> Result<()>;
        unmap(address: u64, bytes: u64) -> Result<()>;
        allocate(bytes: u64) -> Result<u64>;
        free(address: u64) -> Result<()>;
        create_event() -> Result<EventHandle>;
        synchronize_event(event: EventHandle) -> Result<()>;
        destroy_event(event: EventHandle) -> Result<()>;
    }
}
