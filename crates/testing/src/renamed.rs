//! A simulated driver whose streams have names that the host chooses, so that a new stream can get
//! the name of one that is gone, as CUDA's do.

use std::sync::{Arc, Mutex, PoisonError};

use regraph::driver::{
    CaptureMode, CaptureStatus, Dependency, Descriptor, Driver, EventHandle, GraphHandle, HostApi,
    MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind, NodePointer, Result,
    StreamHandle,
};
use regraph_sim::SimDriver;

/// The driver, and what each name stands for now.
///
/// A question about a name that stands for nothing panics: on a real driver it would be about a
/// stream that was destroyed.
#[derive(Debug)]
pub struct Renamed {
    sim: Arc<SimDriver>,
    names: Mutex<Vec<(StreamHandle, Option<StreamHandle>)>>,
    /// A stream that is captured on just before the next event is recorded there.
    overtaken: Mutex<Option<StreamHandle>>,
    /// An event that became a part of that capture, and what it is to the simulated driver, whose
    /// events for engines refuse to be captured. CUDA's do not.
    captured: Mutex<Option<(EventHandle, EventHandle)>>,
}

impl Renamed {
    /// A driver where no stream has a name yet.
    pub fn new(sim: Arc<SimDriver>) -> Self {
        let names = Mutex::default();
        Self { sim, names, overtaken: Mutex::default(), captured: Mutex::default() }
    }

    /// Lets a name stand for a stream, or for none.
    pub fn name(&self, name: StreamHandle, stream: Option<StreamHandle>) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|known| known.0 != name);
        names.push((name, stream));
    }

    /// Begins a capture on a stream between the engine's next question about it and the event that
    /// it records there, as another thread may.
    pub fn overtake(&self, name: StreamHandle) {
        let stream = self.stream(name);
        *self.overtaken.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    fn stream(&self, name: StreamHandle) -> StreamHandle {
        let found = {
            let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.iter().find(|known| known.0 == name).and_then(|known| known.1)
        };
        found.unwrap_or_else(|| panic!("{name:?} was destroyed, and the engine asks about it"))
    }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result {
            self.sim.$name($($argument),*)
        })*
    };
}

impl Driver for Renamed {
    fn capture_status(
        &self,
        stream: StreamHandle,
        terminals: &mut Vec<Dependency>,
    ) -> Result<CaptureStatus> {
        self.sim.capture_status(self.stream(stream), terminals)
    }

    fn capture_of(&self, stream: StreamHandle) -> Result<CaptureStatus> {
        self.sim.capture_of(self.stream(stream))
    }

    fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        self.sim.is_capturing(self.stream(stream))
    }

    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let stream = self.stream(stream);
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

    forward! {
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
