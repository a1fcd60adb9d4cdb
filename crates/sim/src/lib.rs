//! The simulated driver: the capture semantics of a CUDA driver, without a GPU.
//!
//! Simulated: streams, captures with their forks, joins and ruin, capture modes, graphs and their
//! edits, virtual memory with its refusals, whole allocations, events, failures on demand, and the
//! running of kernels ([`Kernel`]) on memory (see [`SimDriver::set_schedule_seed`]).
//!
//! Not simulated: time (a delay is ignored, work completes when [`SimDriver::complete`], [`SimDriver::complete_all`] or
//! `synchronize` says so), the bytes of memory, the order between the legacy stream and blocking streams outside
//! captures (but for the engine's events on the legacy stream, which wait for all blocking streams), child graphs, a
//! replay inside a capture (refused), memory and host nodes, default streams of devices but the first (their handles
//! are that one's for all drivers), per-thread default streams of threads but one (the handle is the same stream in
//! each), and a thread's own capture mode: calls through [`Driver`](regraph::driver::Driver) that a capture may forbid
//! are made in relaxed mode, and [`SimDriver::unsafe_call`] is one that is not. `synchronize` invalidates every capture
//! on its device, as a wait for a device does in any mode. A graph that was handed to a capture keeps what a failed
//! capture left in it.
//!
//! Work that touches memory which is not mapped, or mapped without access, when it runs makes the
//! next `synchronize` fail, as an illegal access does. CUDA may refuse a graph that touches unmapped addresses before
//! that, when it is instantiated.
//!
//! A thread to which another context of the device is current ([`SimDriver::set_elsewhere`]) is refused the default
//! streams, as CUDA's driver object refuses them. Work on that context's own streams is a created stream's.
//!
//! Handles of streams, graphs, nodes, events and memory are never used twice.
//!
//! A machine has one device, or several ([`SimDriver::add_device`]) with a driver for each. A kernel
//! runs on its driver's device, on streams of that; it may touch memory of another one only where
//! that one's driver was told so ([`SimDriver::with_peers`]). Failures on demand, counts of calls,
//! schedules, `synchronize` and failed checks of kernels are the machine's.
//!
//! All calls go through one lock, but for one: that a stream does not capture is answered without
//! it, so that threads which ask about streams of their own do not slow each other down.
#![forbid(unsafe_code)]

mod capture;
mod contents;
mod devices;
mod engine_side;
mod events;
mod executables;
mod execute;
mod faults;
mod gates;
mod graph;
mod host_side;
mod kernel;
mod memory;
pub mod probe;
mod refusal;
mod slots;
mod transfer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use capture::{Capture, Stream};
use devices::Reach;
use events::Event;
use executables::Executables;
use execute::Execution;
use faults::Faults;
use gates::Gates;
use graph::Graphs;
use memory::Memory;
use refusal::Fallible;
use transfer::HostMemory;

pub use events::SimEvent;
pub use faults::Call;
pub use kernel::{Kernel, KernelMemory, Launch};

use regraph::driver::{
    Dependency, EdgeData, ErrorKind, GraphHandle, MemorySupport, Result, StreamHandle,
};
use regraph::sync::{Mutex, MutexGuard, Rank};

/// What the simulated device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimConfig {
    /// Its memory, in bytes: no more than a process has addresses for, 128 TiB.
    pub total_bytes: u64,
    /// How it gives out memory. A granularity is rounded up to a power of two, 512 at least.
    pub support: MemorySupport,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self { total_bytes: 141 << 30, support: MemorySupport::Mapped { granularity: 2 << 20 } }
    }
}

/// A driver without a GPU.
#[derive(Debug)]
pub struct SimDriver {
    device: u32,
    /// Who may touch its memory, as bits.
    reach: AtomicU64,
    support: MemorySupport,
    gates: Arc<Gates>,
    /// The whole machine's.
    state: Arc<Mutex<State>>,
}

/// What stands behind the lock. Aligned so that the lock's cache line is shared with none of the
/// driver's other fields, which are read without it.
#[derive(Debug)]
#[repr(align(128))]
struct State {
    gates: Arc<Gates>,
    faults: Faults,
    /// The first two are the default streams: the legacy one, and that of a thread.
    streams: Vec<Stream>,
    streams_ever: u64,
    /// The threads to which another context of a device is current.
    elsewhere: Vec<ThreadId>,
    /// Slots of streams that are gone, where such are given again.
    vacant_streams: Option<Vec<usize>>,
    /// The last work of streams that are gone and whose slots others have, by device.
    left: Vec<(u32, execute::Step)>,
    /// The number of the first capture: numbers are unique in the process, as CUDA's are.
    first_capture: u64,
    captures: Vec<Capture>,
    live_captures: Vec<usize>,
    /// How many blocking streams capture.
    blocking_captures: usize,
    graphs: Graphs,
    events: Vec<Event>,
    memory: Memory,
    host: HostMemory,
    execution: Execution,
    executables: Executables,
    /// By the call.
    before: BTreeMap<&'static str, Before>,
}

/// What is done before a call.
#[derive(Clone)]
struct Before(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Before")
    }
}

impl State {
    /// The slot of a graph that is alive.
    fn graph(&self, graph: GraphHandle) -> Fallible<usize> {
        self.graphs.alive(slots::of_graph(graph))
    }

    fn inject(&mut self, call: Option<Call>, n: u64, kind: ErrorKind) {
        self.faults.inject(call, n, kind);
        self.set_all_gates();
    }

    #[inline]
    fn enter(&mut self, call: Call) -> Fallible<()> {
        let entered = self.faults.enter(call);
        if entered.is_err() {
            // There may be none left to come.
            self.set_all_gates();
        }
        entered
    }

    fn complete(&mut self, stream: StreamHandle) -> Fallible<()> {
        let slot = self.stream(stream)?;
        if let Some(step) = self.streams[slot].last {
            self.execution.run_until([step], &self.graphs, &self.memory);
        }
        Ok(())
    }

    fn complete_all(&mut self) {
        self.execution.run_all(&self.graphs, &self.memory);
    }
}

impl SimConfig {
    /// With a granularity that is one, and memory that a process has addresses for.
    fn normal(mut self) -> Self {
        self.total_bytes = self.total_bytes.min(memory::ADDRESSES);
        if let MemorySupport::Mapped { granularity } = &mut self.support {
            *granularity = (*granularity).max(memory::GRANULE).next_power_of_two();
        }
        self
    }
}

impl SimDriver {
    /// A machine with one device and nothing on it.
    pub fn new(config: SimConfig) -> Self {
        static MACHINES: AtomicU64 = AtomicU64::new(0);
        let machine = MACHINES.fetch_add(1, Ordering::Relaxed);
        let config = config.normal();
        let mut memory = Memory::new();
        let device = memory.add_device(config);
        let gates = Arc::new(Gates::default());
        let state = State {
            gates: gates.clone(),
            faults: Faults::default(),
            streams: vec![Stream::new(false, device, 0), Stream::new(true, device, 1)],
            streams_ever: 1,
            elsewhere: Vec::new(),
            vacant_streams: None,
            left: Vec::new(),
            first_capture: (machine << 32) + 1,
            captures: Vec::new(),
            live_captures: Vec::new(),
            blocking_captures: 0,
            graphs: Graphs::default(),
            events: Vec::new(),
            memory,
            host: HostMemory::default(),
            execution: Execution::new(),
            executables: Executables::default(),
            before: BTreeMap::new(),
        };
        state.set_all_gates();
        Self {
            device,
            reach: AtomicU64::new(Reach::of(device).bits()),
            support: config.support,
            gates,
            state: Arc::new(Mutex::new(Rank::Driver, state)),
        }
    }

    /// Has each call of CUDA's name (as errors have it) run a function before it does anything, in place of the one
    /// that it ran before: what other threads do meanwhile, or what goes wrong. A wait for a device runs it when the
    /// device's work is done, before the wait ends. The function may call the driver, on any thread.
    pub fn before(&self, call: &'static str, run: impl Fn() + Send + Sync + 'static) {
        self.lock().before.insert(call, Before(Arc::new(run)));
    }

    /// Has streams get handles again that streams had which were destroyed since, as a driver may do; their numbers
    /// are others. Without this call none is given twice, so that what is used late is found.
    pub fn give_streams_again(&self) {
        self.lock().vacant_streams = Some(Vec::new());
    }

    /// Has another context of the device be current to the calling thread from now on, such as a green one, or no more:
    /// default streams are its streams, on which nothing is done here.
    pub fn set_elsewhere(&self, elsewhere: bool) {
        let (mut state, thread) = (self.lock(), thread::current().id());
        state.elsewhere.retain(|&it| it != thread);
        state.elsewhere.extend(elsewhere.then_some(thread));
        state.set_all_gates();
    }

    /// Destroys the context of a stream that was created, such as a green one, in which it is alone and captures
    /// nothing. What it was given goes on; each call that names it fails with [`ErrorKind::ContextDestroyed`].
    ///
    /// # Errors
    /// As of any call with a stream that is not there.
    pub fn destroy_context_of(&self, stream: StreamHandle) -> Result<()> {
        self.program("cuGreenCtxDestroy", |state| state.destroy_context_of(stream))
    }

    /// Creates a stream that synchronises with the legacy stream.
    pub fn create_blocking_stream(&self) -> StreamHandle {
        self.lock().create_stream(true, self.device)
    }

    /// Records a new event on a stream, capturing or not. What the event stands for does not
    /// change when the stream goes on.
    ///
    /// # Errors
    /// An unknown stream, or one whose capture is invalidated.
    pub fn record(&self, stream: StreamHandle) -> Result<SimEvent> {
        let recorded = self.lock().record(stream, None);
        recorded.map_err(|refusal| refusal.of("cuEventRecord"))
    }

    /// Records a new event that fires early: a stream that waits for it depends by `edge` on the kernels
    /// that it stands behind, and by ordinary edges on nodes that are not kernels.
    ///
    /// # Errors
    /// As for [`SimDriver::record`].
    pub fn record_programmatic(&self, stream: StreamHandle, edge: EdgeData) -> Result<SimEvent> {
        let recorded = self.lock().record(stream, Some(edge));
        recorded.map_err(|refusal| refusal.of("cuLaunchKernelEx"))
    }

    /// Makes a stream wait for an event, however long ago it was recorded.
    ///
    /// # Errors
    /// As for [`HostApi::wait`](regraph::driver::HostApi::wait).
    pub fn wait_event(&self, stream: StreamHandle, event: SimEvent) -> Result<()> {
        let waited = self.lock().wait_event(stream, event.handle());
        waited.map_err(|refusal| refusal.of("cuStreamWaitEvent"))
    }

    /// Ruins the capture that a stream is in.
    ///
    /// # Errors
    /// A stream that does not capture.
    pub fn invalidate(&self, stream: StreamHandle) -> Result<()> {
        let invalidated = self.lock().invalidate(stream);
        invalidated.map_err(|refusal| refusal.of("cuStreamAttachMemAsync"))
    }

    /// A call of the host's that captures forbid, such as `cuMemAlloc`, made in the ordinary mode
    /// of its thread. It ruins every capture whose mode forbids it.
    ///
    /// # Errors
    /// [`ErrorKind::CaptureUnsupported`] if there was such a capture.
    pub fn unsafe_call(&self) -> Result<()> {
        let called = self.lock().unsafe_call();
        called.map_err(|refusal| refusal.of("cuMemAlloc"))
    }

    /// Completes the work of a stream, and what that waits for, and no other.
    ///
    /// # Errors
    /// An unknown stream.
    pub fn complete(&self, stream: StreamHandle) -> Result<()> {
        let completed = self.lock().complete(stream);
        completed.map_err(|refusal| refusal.of("cuStreamSynchronize"))
    }

    /// Completes all work.
    pub fn complete_all(&self) {
        self.lock().complete_all();
    }

    /// Completes all work of all streams, and says what `synchronize` would, also while streams capture.
    ///
    /// # Errors
    /// An illegal address, where work met memory that was not there.
    pub fn complete_all_checked(&self) -> Result<()> {
        self.program("cuCtxSynchronize", State::complete_checked)
    }

    /// Chooses the order of pending and later work among those that its edges allow. Work starts
    /// and ends when it is completed, not before.
    pub fn set_schedule_seed(&self, seed: u64) {
        self.lock().execution.set_seed(seed);
    }

    /// Makes one coming call of a kind fail without effect; zero is the very next.
    pub fn fail_nth(&self, call: Call, n: u64, kind: ErrorKind) {
        self.lock().inject(Some(call), n, kind);
    }

    /// Makes one coming call of any kind in [`Call`] fail without effect; zero is the very next.
    pub fn fail_any_nth(&self, n: u64, kind: ErrorKind) {
        self.lock().inject(None, n, kind);
    }

    /// Makes one coming call of the host's, of those in [`HostApi`](regraph::driver::HostApi) and those
    /// of this driver that stand for other calls of CUDA's, fail without effect; zero is the very next.
    pub fn fail_host_nth(&self, n: u64, kind: ErrorKind) {
        self.lock().faults.fail_host(n, kind);
    }

    /// Loses the device: every call of the engine's and of the host's fails without effect, from the
    /// n-th on, until [`SimDriver::forget_failures`]; zero is the very next.
    pub fn lose_device_at(&self, n: u64, kind: ErrorKind) {
        let mut state = self.lock();
        state.faults.lose(n, kind);
        state.set_all_gates();
    }

    /// How many calls of the host's were made, failures included.
    pub fn host_calls(&self) -> u64 {
        self.lock().faults.host_calls()
    }

    /// Forgets the failures that were asked for and have not come yet.
    pub fn forget_failures(&self) {
        let mut state = self.lock();
        state.faults.forget();
        state.executables.forget_fault();
        state.set_all_gates();
    }

    /// How often a call was made, failures included.
    pub fn calls(&self, call: Call) -> u64 {
        let answered = if call == Call::CaptureStatus { self.gates.answered() } else { 0 };
        self.lock().faults.count(call) + answered
    }

    /// How many calls in [`Call`] were made, failures included.
    pub fn total_calls(&self) -> u64 {
        self.lock().faults.total() + self.gates.answered()
    }

    /// Whether the work before an event of the host's has completed. No call of the engine's: it is
    /// neither counted nor made to fail.
    ///
    /// # Errors
    /// An unknown event, or one that was recorded in a capture.
    pub fn is_complete(&self, event: SimEvent) -> Result<bool> {
        self.lock().query_event(event.handle()).map_err(|refusal| refusal.of("cuEventQuery"))
    }

    /// How much of this device's memory is in use, in bytes. As [`SimDriver::is_complete`] it is no
    /// call of the engine's.
    pub fn used_bytes(&self) -> u64 {
        let info = self.lock().memory.info(self.device);
        info.total - info.free
    }

    /// The physical memory behind some of this device's addresses now: its number, and offset and size
    /// in bytes, in order; `None` where the device may not touch all of it. Numbers are never used
    /// again. No call of the engine's either.
    pub fn behind(&self, address: u64, bytes: u64) -> Option<Vec<(u32, u64, u64)>> {
        let mut stretches = Vec::new();
        self.lock().memory.translate(self.device, (address, bytes), &mut stretches)?;
        Some(stretches.iter().map(|it| (it.physical, it.offset, it.bytes)).collect())
    }

    /// The machine and the number there of the physical memory behind an address, also of memory that was
    /// imported from another machine or process. No call of the engine's.
    pub fn origin(&self, address: u64) -> Option<(u64, u64)> {
        self.lock().memory.origin(address)
    }

    /// Whether the physical memory behind an address was made for other processes to map. No call of the engine's.
    pub fn is_exportable(&self, address: u64) -> bool {
        self.lock().memory.is_exportable(address)
    }

    /// The nodes that a stream's next node would depend on; none for a stream that does not capture.
    ///
    /// # Errors
    /// An unknown stream.
    pub fn terminals(&self, stream: StreamHandle) -> Result<Vec<Dependency>> {
        let state = self.lock();
        let terminals = state.terminals(stream).map(<[Dependency]>::to_vec);
        terminals.map_err(|refusal| refusal.of("cuStreamGetCaptureInfo"))
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked inside left at worst a call half done.
        self.state.lock()
    }

    /// Takes the lock for a call, after what is to be done before it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_for(&self, call: impl FnOnce() -> &'static str) -> MutexGuard<'_, State> {
        let state = self.lock();
        if state.before.is_empty() {
            return state;
        }
        let before = state.before.get(call()).cloned();
        drop(state);
        before.iter().for_each(|Before(run)| run());
        self.lock()
    }

    /// Makes a call of [`Driver`](regraph::driver::Driver): counted, and failed where that was asked for.
    #[inline]
    fn call<T>(&self, call: Call, body: impl FnOnce(&mut State) -> Fallible<T>) -> Result<T> {
        let mut state = self.lock_for(|| call.driver_name());
        match state.enter(call).and_then(|()| body(&mut state)) {
            Ok(value) => Ok(value),
            Err(refusal) => Err(refusal.of(call.driver_name())),
        }
    }

    /// Makes a call of [`Program`].
    fn program<T>(
        &self,
        name: &'static str,
        body: impl FnOnce(&mut State) -> Fallible<T>,
    ) -> Result<T> {
        let mut state = self.lock_for(|| name);
        let done = state.faults.enter_host().and_then(|()| body(&mut state));
        done.map_err(|refusal| refusal.of(name))
    }
}
