//! The CUDA driver, loaded at run time.
//!
//! - `symbols`: the functions of libcuda, by exported name, with every enum as a plain integer;
//! - `raw`: numbers and structure layouts;
//! - `error`: driver codes as [`DriverError`]s;
//! - `guard`: the calling thread's context and capture mode;
//! - `devices`: streams of other devices and of other contexts of this one, and access for other devices' kernels;
//! - `kept`: cudarc's streams that live as long as the driver;
//! - `inspection`, `pointers`: what nodes' parameters hold that may be an address;
//! - `sharing`: memory that other processes, devices and network cards can map;
//! - `host`: [`HostApi`](super::HostApi);
//! - `transfer`: [`Transfer`](super::Transfer).
//!
//! # The calling thread
//! Calls that need a current context make the driver object's context current to the calling thread, and afterwards the
//! one that was current before, or none. [`CudaDriver::new`] leaves its context current to a thread that had none. A
//! default stream is refused while another context of the device is current: its handle means a stream of that one. A
//! wait for the device covers the primary context with its green ones, and each other context in which this driver was
//! asked about a stream.
//!
//! Calls that a capture forbids run with the thread in the relaxed capture mode and restore the mode, so no call of
//! [`Driver`] invalidates a capture. One exception: a question about an event that was captured, which the caller must
//! not ask.
//!
//! That mode does not help where a blocking stream captures and the legacy stream is used: an event recorded there is
//! refused before the driver sees it. [`HostApi::synchronize`](super::HostApi::synchronize) invalidates such a capture.

mod devices;
mod error;
mod guard;
mod host;
mod host_memory;
mod inspection;
mod kept;
mod pages;
mod pointers;
mod raw;
mod sharing;
mod symbols;
mod transfer;

pub use devices::{devices, CudaDevice};
#[doc(hidden)]
pub use raw::{mode, KernelNodeParams, Pointer, RawEdge};

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Arc;

use ::cudarc::driver::CudaContext;

#[cfg(unix)]
use super::Descriptor;
use super::{
    AllocationName, CaptureId, CaptureStatus, Dependency, Driver, DriverError, ErrorKind,
    EventHandle, GraphHandle, MemoryHandle, MemoryInfo, MemorySupport, NodeHandle, NodeKind,
    NodePointer, Result, StreamHandle,
};
use devices::Neighbours;
use error::{failure, nonsense};
use guard::{Current, Entered, Relaxed, Saved};
use inspection::Inspection;
use kept::Kept;
use pages::PageTable;
use raw::AllocationProp;
use sharing::Sharing;
use symbols::Symbols;

/// The predecessors that one query can return without asking again. Few nodes have more.
const FIRST_CAPACITY: usize = 16;

/// A device, driven through libcuda.
pub struct CudaDriver {
    symbols: Symbols,
    inspection: Inspection,
    /// Keeps the context alive; dropped last.
    context: ManuallyDrop<Arc<CudaContext>>,
    device: i32,
    support: MemorySupport,
    sharing: Sharing,
    neighbours: ManuallyDrop<Neighbours>,
    kept: Kept,
    pages: PageTable,
}

impl CudaDriver {
    /// Opens a device by its ordinal and retains its primary context. If the calling thread has no current context,
    /// this one stays current to it.
    ///
    /// # Safety
    /// Handles are numbers that any code can copy, and CUDA does not check them. The program that makes a driver
    /// promises for all calls of it, and of engines, pools and graphs on it:
    ///
    /// * a handle that is given to a call names an object of CUDA's of that kind, which lives during the
    ///   call, and a stream beyond it for as long as `regraph::Engine` says;
    /// * addresses and memory that calls of the driver itself unmap, free or write are in no use;
    /// * while a graph runs, all memory that its nodes use is there: host memory, and device memory that is neither
    ///   a block of its capture nor kept (`regraph::Capture::keep`) with it.
    ///
    /// Types that own what they name hold the first two by themselves: the buffers of
    /// `regraph::cudarc`, the blocks, pools and graphs of `regraph::graphs`.
    ///
    /// # Errors
    /// [`ErrorKind::NoDriver`] where libcuda cannot be loaded, [`ErrorKind::MissingFunction`]
    /// where it is older than CUDA 12.3, and what the driver answers.
    pub unsafe fn new(ordinal: u32) -> Result<Self> {
        // First of all: cudarc panics where there is no libcuda.
        let symbols = Symbols::load()?;
        // SAFETY: takes no pointers; may be called any number of times.
        unsafe { symbols.init(0) }?;
        let context = {
            // Some stream of the process may be capturing.
            let _relaxed = Relaxed::enter(&symbols)?;
            devices::retain(&symbols, ordinal)?
        };
        Self::open(symbols, context)
    }

    /// Drives the device of a context that the host already has.
    ///
    /// # Safety
    /// As [`CudaDriver::new`].
    ///
    /// # Errors
    /// As [`CudaDriver::new`].
    pub unsafe fn from_context(context: Arc<CudaContext>) -> Result<Self> {
        Self::open(Symbols::load()?, context)
    }

    fn open(symbols: Symbols, context: Arc<CudaContext>) -> Result<Self> {
        let device = context.cu_device();
        let mut driver = Self {
            symbols,
            inspection: Inspection::load(),
            context: ManuallyDrop::new(context),
            device,
            support: MemorySupport::Allocated,
            sharing: Sharing::default(),
            neighbours: ManuallyDrop::new(Neighbours::of(device)),
            kept: Kept::default(),
            pages: PageTable::default(),
        };
        if driver.attribute(raw::ATTRIBUTE_VIRTUAL_MEMORY)? != 0 {
            driver.support = MemorySupport::Mapped { granularity: driver.granularity()? };
            driver.sharing = Sharing::of(&driver);
        }
        Ok(driver)
    }

    /// The device's name.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn device_name(&self) -> Result<String> {
        devices::name(&self.symbols, self.device)
    }

    /// The newest CUDA version that the driver knows, such as 13000 for 13.0.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn driver_version(&self) -> Result<u32> {
        let mut version = 0;
        // SAFETY: writes one int.
        unsafe { self.symbols.driver_version(&mut version) }?;
        Ok(version.unsigned_abs())
    }

    /// The context that all calls use.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The address of one of libcuda's functions, by the name that the library exports, for calls
    /// that this driver does not make.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFunction`] where the library has none of that name.
    pub fn function(&self, name: &'static str) -> Result<*const c_void> {
        symbols::address(name)
    }

    /// The error that a code of the driver means.
    pub fn error(&self, call: &'static str, code: u32) -> DriverError {
        failure(&self.symbols, call, code)
    }

    /// While the guard lives, the device's context is current to the calling thread and the thread's
    /// capture mode is relaxed, so that no call invalidates a capture.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn relaxed(&self) -> Result<impl Sized + '_> {
        self.enter()
    }

    fn attribute(&self, attribute: u32) -> Result<i32> {
        let mut value = 0;
        // SAFETY: writes one int.
        unsafe { self.symbols.device_attribute(&mut value, attribute, self.device) }?;
        Ok(value)
    }

    fn granularity(&self) -> Result<u64> {
        let prop = AllocationProp::pinned(self.device);
        let mut bytes = 0;
        let _relaxed = self.enter()?;
        // SAFETY: reads the properties and writes one size.
        unsafe { self.symbols.granularity(&mut bytes, &prop, raw::GRANULARITY_MINIMUM) }?;
        if !bytes.is_power_of_two() {
            return Err(nonsense(
                "cuMemGetAllocationGranularity",
                "the granularity is not a power of two",
            ));
        }
        Ok(bytes as u64)
    }

    fn raw_context(&self) -> Pointer {
        self.context.cu_ctx().cast()
    }

    /// Makes the context current to the calling thread while the guard lives.
    #[inline]
    fn bind(&self) -> Result<Current<'_>> {
        Current::enter(&self.symbols, self.raw_context())
    }

    /// Makes the context current for a stream, as [`CudaDriver::bind`] does, unless the handle is that of a default stream
    /// and means, for the calling thread, one of another context of the device.
    #[inline]
    fn bind_to(&self, stream: StreamHandle) -> Result<Current<'_>> {
        Current::enter_if(&self.symbols, self.raw_context(), || match stream.is_default() {
            true => self.refuse_other(),
            false => Ok(()),
        })
    }

    /// Fails where the context that is current is one of this device, such as a green one. Where it is another device's, the
    /// engine's callers mean this device's default stream, as PyTorch does for tensors of any device.
    #[cold]
    fn refuse_other(&self) -> Result<()> {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: writes one int, and one pointer.
        unsafe {
            self.symbols.context_device(&mut device)?;
            self.symbols.current_context(&mut context)?;
        }
        if device == self.device {
            self.note_beside(context)?;
            return Err(DriverError::new("cuCtxGetCurrent", 0, ErrorKind::OtherContext));
        }
        Ok(())
    }

    /// Asks about a stream's capture, a second time with the context current where that is needed: it is while what is
    /// returned lives.
    #[inline]
    fn ask_of_capture(
        &self,
        stream: StreamHandle,
        mut ask: impl FnMut() -> u32,
    ) -> Result<Option<Current<'_>>> {
        // A default stream's handle means a stream of the context that is current.
        let mut current = stream.is_default().then(|| self.bind_to(stream)).transpose()?;
        let mut code = ask();
        // Said of a context that is destroyed while ours is current, it is the stream's.
        let of_current = matches!(code, raw::INVALID_CONTEXT | raw::CONTEXT_IS_DESTROYED);
        if of_current && current.is_none() {
            current = Some(self.bind()?);
            code = ask();
        }
        match code {
            0 => Ok(current),
            code => Err(failure(&self.symbols, CAPTURE_INFO, code)),
        }
    }

    /// Makes an event of a context that lives.
    fn create_event_in(&self, context: Pointer) -> Result<EventHandle> {
        let mut event: Pointer = null_mut();
        let _entered = Entered::enter(Current::enter(&self.symbols, context)?)?;
        // SAFETY: writes one handle.
        unsafe { self.symbols.event_create(&mut event, raw::EVENT_DISABLE_TIMING) }?;
        Ok(EventHandle::from_raw(event))
    }

    /// Makes the context current and the thread relaxed while the guard lives.
    fn enter(&self) -> Result<Entered<'_>> {
        Entered::enter(self.bind()?)
    }

    /// As [`CudaDriver::enter`], for a stream, as [`CudaDriver::bind_to`] does.
    fn enter_for(&self, stream: StreamHandle) -> Result<Entered<'_>> {
        Entered::enter(self.bind_to(stream)?)
    }
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDriver")
            .field("device", &self.device)
            .field("support", &self.support)
            .finish_non_exhaustive()
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        let context = self.raw_context();
        // Letting go of a stream, or of a context, makes its context current first.
        let mut before = Saved::now(&self.symbols).ok();
        std::mem::take(&mut self.kept);
        // SAFETY: not used again; this is the only place that drops it.
        unsafe { ManuallyDrop::drop(&mut self.neighbours) };
        // Ours is current again while it is there, and not when it has gone.
        before.take_if(|before| before.is(context));
        // SAFETY: as for the neighbours.
        unsafe { ManuallyDrop::drop(&mut self.context) };
    }
}

const CAPTURE_INFO: &str = "cuStreamGetCaptureInfo_v3";

/// What the driver said of a stream's capture.
#[inline]
fn decoded(status: u32, id: u64, graph: Pointer) -> Result<CaptureStatus> {
    match status {
        raw::CAPTURE_NONE => Ok(CaptureStatus::None),
        raw::CAPTURE_INVALIDATED => Ok(CaptureStatus::Invalidated),
        raw::CAPTURE_ACTIVE => Ok(CaptureStatus::Active {
            capture: CaptureId(id),
            graph: GraphHandle::from_raw(graph),
        }),
        _ => Err(nonsense(CAPTURE_INFO, "unknown capture status")),
    }
}

impl Driver for CudaDriver {
    fn device(&self) -> u32 {
        self.context.ordinal() as u32
    }

    fn device_of_stream(&self, stream: StreamHandle) -> Result<u32> {
        self.owner(stream)
    }

    #[inline]
    fn capture_status(
        &self,
        stream: StreamHandle,
        terminals: &mut Vec<Dependency>,
    ) -> Result<CaptureStatus> {
        terminals.clear();
        let (mut status, mut id) = (0, 0);
        let mut graph: Pointer = null_mut();
        let mut nodes: *const Pointer = std::ptr::null();
        let mut edges: *const RawEdge = std::ptr::null();
        let mut count = 0;
        let _bound = self.ask_of_capture(stream, || {
            // SAFETY: every out pointer is to a local of the right type.
            unsafe {
                (self.symbols.capture_info)(
                    stream.as_raw(),
                    &mut status,
                    &mut id,
                    &mut graph,
                    &mut nodes,
                    &mut edges,
                    &mut count,
                )
            }
        })?;
        let status = decoded(status, id, graph)?;
        if !matches!(status, CaptureStatus::Active { .. }) || count == 0 {
            return Ok(status);
        }
        if nodes.is_null() {
            return Err(nonsense(CAPTURE_INFO, "terminals without nodes"));
        }
        // SAFETY: the driver gave an array of `count` nodes, valid until the next call on this stream, and no other
        // thread captures into it meanwhile.
        let nodes = unsafe { std::slice::from_raw_parts(nodes, count) };
        if edges.is_null() {
            // Edge data was asked for and the call succeeded, so there is none but the ordinary: anything else could
            // not have been left out.
            terminals
                .extend(nodes.iter().map(|&node| Dependency::full(NodeHandle::from_raw(node))));
        } else {
            // SAFETY: as for the nodes; both arrays have `count` entries.
            let edges = unsafe { std::slice::from_raw_parts(edges, count) };
            terminals
                .extend(nodes.iter().zip(edges).map(|(&node, &edge)| raw::dependency(node, edge)));
        }
        Ok(status)
    }

    #[inline]
    fn capture_of(&self, stream: StreamHandle) -> Result<CaptureStatus> {
        let (mut status, mut id) = (0, 0);
        let mut graph: Pointer = null_mut();
        let _bound = self.ask_of_capture(stream, || {
            // SAFETY: every out pointer is null, for what is optional, or to a local of the right type.
            unsafe {
                (self.symbols.capture_info)(
                    stream.as_raw(),
                    &mut status,
                    &mut id,
                    &mut graph,
                    null_mut(),
                    null_mut(),
                    null_mut(),
                )
            }
        })?;
        decoded(status, id, graph)
    }

    #[inline]
    fn is_capturing(&self, stream: StreamHandle) -> Result<bool> {
        let mut status = 0;
        let _bound = self.ask_of_capture(stream, || {
            // SAFETY: writes one enum of the size of an unsigned int; all other outputs are optional. Asked for more, the
            // driver reads what another thread's capture may change: that was seen to crash.
            unsafe {
                (self.symbols.capture_info)(
                    stream.as_raw(),
                    &mut status,
                    null_mut(),
                    null_mut(),
                    null_mut(),
                    null_mut(),
                    null_mut(),
                )
            }
        })?;
        Ok(status != raw::CAPTURE_NONE)
    }

    #[inline]
    fn dependencies(&self, node: NodeHandle, dependencies: &mut Vec<Dependency>) -> Result<()> {
        dependencies.clear();
        let mut nodes: [Pointer; FIRST_CAPACITY] = [null_mut(); FIRST_CAPACITY];
        let mut edges = [RawEdge::default(); FIRST_CAPACITY];
        let count = self.fill_dependencies(node, &mut nodes, &mut edges)?;
        if count < FIRST_CAPACITY {
            push_dependencies(dependencies, &nodes[..count], &edges[..count]);
            return Ok(());
        }
        self.many_dependencies(node, dependencies)
    }

    fn nodes(&self, graph: GraphHandle, nodes: &mut Vec<NodeHandle>) -> Result<()> {
        nodes.clear();
        let mut few: [Pointer; FIRST_CAPACITY] = [null_mut(); FIRST_CAPACITY];
        let mut count = few.len();
        // SAFETY: `count` says how many entries the array has room for, here and below.
        unsafe { self.symbols.graph_nodes(graph.as_raw(), few.as_mut_ptr(), &mut count) }?;
        if count < few.len() {
            nodes.extend(few[..count].iter().copied().map(NodeHandle::from_raw));
            return Ok(());
        }
        // SAFETY: no array is given, so only the count is written.
        unsafe { self.symbols.graph_nodes(graph.as_raw(), null_mut(), &mut count) }?;
        let mut buffer: Vec<Pointer> = vec![null_mut(); count];
        // SAFETY: as above.
        unsafe { self.symbols.graph_nodes(graph.as_raw(), buffer.as_mut_ptr(), &mut count) }?;
        buffer.truncate(count);
        nodes.extend(buffer.into_iter().map(NodeHandle::from_raw));
        Ok(())
    }

    fn node_kind(&self, node: NodeHandle) -> Result<NodeKind> {
        let mut kind = 0;
        // SAFETY: writes one enum of the size of an unsigned int.
        unsafe { self.symbols.node_kind(node.as_raw(), &mut kind) }?;
        Ok(NodeKind(kind))
    }

    fn pointers(&self, node: NodeHandle, pointers: &mut Vec<NodePointer>) -> Result<()> {
        let _relaxed = self.enter()?;
        self.push_pointers(node, 0, pointers)
    }

    fn kernel_name(&self, node: NodeHandle) -> Option<String> {
        if self.node_kind(node).ok()? != NodeKind::KERNEL {
            return None;
        }
        let _relaxed = self.enter().ok()?;
        self.inspection.name(node.as_raw())
    }

    fn memory_support(&self) -> MemorySupport {
        self.support
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        let _relaxed = self.enter()?;
        // SAFETY: writes two sizes.
        unsafe { self.symbols.memory_info(&mut free, &mut total) }?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let mut address = 0;
        let _relaxed = self.enter()?;
        // SAFETY: writes one address; no alignment and no place is asked for.
        unsafe { self.symbols.address_reserve(&mut address, bytes as usize, 0, 0, 0) }?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: takes no pointers; the driver refuses ranges that are no reservation.
        unsafe { self.symbols.address_free(address, bytes as usize) }
    }

    fn create(&self, bytes: u64) -> Result<MemoryHandle> {
        self.create_with(bytes, &AllocationProp::pinned(self.device))
    }

    fn create_exportable(&self, bytes: u64) -> Result<MemoryHandle> {
        self.create_for_export(bytes)
    }

    #[cfg(unix)]
    fn export(&self, memory: MemoryHandle) -> Result<Descriptor> {
        self.export_descriptor(memory)
    }

    #[cfg(unix)]
    fn import(&self, descriptor: &Descriptor) -> Result<MemoryHandle> {
        self.import_descriptor(descriptor)
    }

    fn export_allocation(&self, address: u64) -> Result<AllocationName> {
        self.name_allocation(address)
    }

    fn open_allocation(&self, name: &AllocationName) -> Result<u64> {
        self.open_named(name)
    }

    fn close_allocation(&self, address: u64) -> Result<()> {
        self.close_named(address)
    }

    fn open_to(&self, device: u32) -> Result<()> {
        self.add_peer(device)
    }

    fn release(&self, memory: MemoryHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the handle is one that `create` gave, which the caller gives up.
        unsafe { self.symbols.memory_release(memory.0) }
    }

    fn map(&self, address: u64, bytes: u64, memory: MemoryHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: takes no pointers; the driver refuses addresses that are not reserved.
        unsafe { self.symbols.memory_map(address, bytes as usize, 0, memory.0, 0) }
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        let allowed = self.neighbours.access();
        let (access, count) = (allowed.as_ptr(), allowed.len());
        let _relaxed = self.enter()?;
        // SAFETY: reads so many access descriptions; the driver refuses what is not mapped.
        unsafe { self.symbols.memory_set_access(address, bytes as usize, access, count) }
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: takes no pointers; that the device is done with the range is the caller's part.
        unsafe { self.symbols.memory_unmap(address, bytes as usize) }
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        self.open_to_peers()?;
        let mut address = 0;
        let _relaxed = self.enter()?;
        // SAFETY: writes one address.
        unsafe { self.symbols.memory_allocate(&mut address, bytes as usize) }?;
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: takes no pointers of the host; that the device is done is the caller's part.
        unsafe { self.symbols.memory_free(address) }
    }

    fn create_event(&self) -> Result<EventHandle> {
        self.create_event_on(self.device())
    }

    fn create_event_on(&self, device: u32) -> Result<EventHandle> {
        match device == self.device() {
            true => self.create_event_in(self.raw_context()),
            // It stays among the neighbours.
            false => self.create_event_in(self.neighbour(device)?.cu_ctx().cast()),
        }
    }

    fn record_event(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        let _relaxed = self.enter_for(stream)?;
        // The legacy stream waits for all blocking streams and they for it.
        if stream.bits() <= 1 {
            self.refuse_implicit(stream)?;
        }
        // SAFETY: both handles are the caller's and alive.
        unsafe { self.symbols.event_record(event.as_raw(), stream.as_raw()) }
    }

    fn query_event(&self, event: EventHandle) -> Result<bool> {
        let _relaxed = self.enter()?;
        // SAFETY: the handle is the caller's and alive.
        match unsafe { (self.symbols.event_query)(event.as_raw()) } {
            0 => Ok(true),
            raw::NOT_READY => Ok(false),
            code => Err(failure(&self.symbols, "cuEventQuery", code)),
        }
    }

    fn synchronize_event(&self, event: EventHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the handle is the caller's and alive.
        unsafe { self.symbols.event_synchronize(event.as_raw()) }
    }

    fn destroy_event(&self, event: EventHandle) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the handle is the caller's, who gives it up.
        unsafe { self.symbols.event_destroy(event.as_raw()) }
    }
}

impl CudaDriver {
    /// Fails with [`ErrorKind::CaptureImplicit`] while a blocking stream captures. Using the
    /// legacy stream then invalidates that capture, even in the relaxed mode; asking does not.
    fn refuse_implicit(&self, legacy: StreamHandle) -> Result<()> {
        let mut status = 0;
        // SAFETY: writes one enum of the size of an unsigned int; all other outputs are optional.
        unsafe {
            self.symbols.capture_info(
                legacy.as_raw(),
                &mut status,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            )
        }
    }

    /// Asks for the predecessors of `node` and returns how many were written. As many as there
    /// is room for may mean that there are more: the driver does not say.
    #[inline]
    fn fill_dependencies(
        &self,
        node: NodeHandle,
        nodes: &mut [Pointer],
        edges: &mut [RawEdge],
    ) -> Result<usize> {
        let capacity = nodes.len().min(edges.len());
        let mut count = capacity;
        // SAFETY: both arrays have room for `count` entries.
        unsafe {
            self.symbols.node_dependencies(
                node.as_raw(),
                nodes.as_mut_ptr(),
                edges.as_mut_ptr(),
                &mut count,
            )
        }?;
        Ok(count.min(capacity))
    }

    #[cold]
    fn many_dependencies(
        &self,
        node: NodeHandle,
        dependencies: &mut Vec<Dependency>,
    ) -> Result<()> {
        let mut capacity = FIRST_CAPACITY;
        loop {
            capacity *= 8;
            let mut nodes: Vec<Pointer> = vec![null_mut(); capacity];
            let mut edges = vec![RawEdge::default(); capacity];
            let count = self.fill_dependencies(node, &mut nodes, &mut edges)?;
            if count < capacity {
                push_dependencies(dependencies, &nodes[..count], &edges[..count]);
                return Ok(());
            }
        }
    }
}

#[inline]
fn push_dependencies(dependencies: &mut Vec<Dependency>, nodes: &[Pointer], edges: &[RawEdge]) {
    dependencies.extend(nodes.iter().zip(edges).map(|(&node, &edge)| raw::dependency(node, edge)));
}
