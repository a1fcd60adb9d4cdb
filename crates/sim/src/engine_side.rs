//! The engine's calls: each counted, and failed where that was asked for.

use std::sync::atomic::Ordering;

use super::faults::Call;
use super::{slots, SimDriver};
#[cfg(unix)]
use regraph::driver::Descriptor;
use regraph::driver::{
    AllocationName, CaptureStatus, Dependency, Driver, ErrorKind, EventHandle, GraphHandle,
    MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind, NodePointer, Result,
    StreamHandle,
};

impl Driver for SimDriver {
    fn device(&self) -> u32 {
        self.device
    }

    fn device_of_stream(&self, stream: StreamHandle) -> Result<u32> {
        self.call(Call::DeviceOfStream, |state| state.device_of_stream(stream))
    }

    #[inline]
    fn capture_status(
        &self,
        stream: StreamHandle,
        terminals: &mut Vec<Dependency>,
    ) -> Result<CaptureStatus> {
        terminals.clear();
        if self.gates.answer(slots::of_stream(stream)) {
            return Ok(CaptureStatus::None);
        }
        self.call(Call::CaptureStatus, |state| {
            terminals.extend_from_slice(state.known_terminals(stream));
            state.capture_status(stream)
        })
    }

    #[inline(always)]
    fn capture_of(&self, stream: StreamHandle) -> Result<CaptureStatus> {
        if self.gates.answer(slots::of_stream(stream)) {
            return Ok(CaptureStatus::None);
        }
        self.call(Call::CaptureStatus, |state| state.capture_status(stream))
    }

    // Asked at both ends of a block's life; a call here would make the engine's calls look dearer.
    #[inline(always)]
    fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        Ok(self.capture_of(stream)? != CaptureStatus::None)
    }

    #[inline]
    fn dependencies(&self, node: NodeHandle, dependencies: &mut Vec<Dependency>) -> Result<()> {
        // Where that fails, what the caller had stays, as the caller has to expect.
        self.call(Call::Dependencies, |state| {
            let found = state.graphs.dependencies(node)?;
            dependencies.clear();
            dependencies.extend_from_slice(found);
            Ok(())
        })
    }

    fn nodes(&self, graph: GraphHandle, nodes: &mut Vec<NodeHandle>) -> Result<()> {
        nodes.clear();
        self.call(Call::Nodes, |state| {
            let graph = state.graph(graph)?;
            nodes.extend_from_slice(state.graphs.nodes(graph));
            Ok(())
        })
    }

    #[inline]
    fn node_kind(&self, node: NodeHandle) -> Result<NodeKind> {
        self.call(Call::NodeKind, |state| Ok(state.graphs.told(node)?.0))
    }

    fn pointers(&self, node: NodeHandle, pointers: &mut Vec<NodePointer>) -> Result<()> {
        self.call(Call::Pointers, |state| {
            let Some(work) = state.graphs.work(node)? else { return Ok(()) };
            let (_, kernel) = state.graphs.kernel(work);
            pointers.extend(kernel.pointers());
            Ok(())
        })
    }

    fn memory_support(&self) -> MemorySupport {
        self.support
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.call(Call::MemoryInfo, |state| Ok(state.memory.info(self.device)))
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        self.call(Call::Reserve, |state| state.memory.reserve(self.device, bytes))
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::Unreserve, |state| state.memory.unreserve(self.device, address, bytes))
    }

    fn create(&self, bytes: u64) -> Result<MemoryHandle> {
        self.call(Call::Create, |state| state.memory.create(self.device, bytes))
    }

    fn create_exportable(&self, bytes: u64) -> Result<MemoryHandle> {
        self.call(Call::Create, |state| state.memory.create_exportable(self.device, bytes))
    }

    #[cfg(unix)]
    fn export(&self, memory: MemoryHandle) -> Result<Descriptor> {
        self.call(Call::Export, |state| state.memory.export(memory))
    }

    #[cfg(unix)]
    fn import(&self, descriptor: &Descriptor) -> Result<MemoryHandle> {
        self.call(Call::Import, |state| state.memory.import(self.device, descriptor))
    }

    fn export_allocation(&self, address: u64) -> Result<AllocationName> {
        self.call(Call::ExportAllocation, |state| state.memory.name(address))
    }

    fn open_allocation(&self, name: &AllocationName) -> Result<u64> {
        self.call(Call::OpenAllocation, |state| {
            state.memory.open((self.device, self.reach()), name)
        })
    }

    fn close_allocation(&self, address: u64) -> Result<()> {
        self.call(Call::CloseAllocation, |state| state.memory.close(address))
    }

    fn open_to(&self, device: u32) -> Result<()> {
        self.call(Call::OpenTo, |state| {
            if device >= state.memory.devices() {
                return Err(ErrorKind::InvalidValue.into());
            }
            let reach = self.reach().and(device);
            self.reach.store(reach.bits(), Ordering::Relaxed);
            state.memory.widen(self.device, reach);
            Ok(())
        })
    }

    fn release(&self, memory: MemoryHandle) -> Result<()> {
        self.call(Call::Release, |state| state.memory.release(memory))
    }

    fn map(&self, address: u64, bytes: u64, memory: MemoryHandle) -> Result<()> {
        self.call(Call::Map, |state| state.memory.map(self.device, address, bytes, memory))
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::SetAccess, |state| {
            state.memory.set_access((self.device, self.reach()), address, bytes)
        })
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.call(Call::Unmap, |state| state.memory.unmap(self.device, address, bytes))
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        self.call(Call::Allocate, |state| state.memory.allocate((self.device, self.reach()), bytes))
    }

    fn free(&self, address: u64) -> Result<()> {
        self.call(Call::Free, |state| state.memory.free(address))
    }

    fn create_event(&self) -> Result<EventHandle> {
        self.create_event_on(self.device)
    }

    fn create_event_on(&self, device: u32) -> Result<EventHandle> {
        self.call(Call::CreateEvent, |state| {
            if device >= state.memory.devices() {
                return Err(ErrorKind::InvalidValue.into());
            }
            Ok(state.create_event(device))
        })
    }

    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.call(Call::RecordEvent, |state| state.record_event(event, stream))
    }

    fn query_event(&self, event: EventHandle) -> Result<bool> {
        self.call(Call::QueryEvent, |state| state.query_event(event))
    }

    fn synchronize_event(&self, event: EventHandle) -> Result<()> {
        self.call(Call::SynchronizeEvent, |state| state.synchronize_event(event))
    }

    fn destroy_event(&self, event: EventHandle) -> Result<()> {
        self.call(Call::DestroyEvent, |state| state.destroy_event(event))
    }
}
