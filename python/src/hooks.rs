//! The functions that PyTorch calls: its pluggable allocator's hooks, and those of the allocator class
//! in `regraph/torch/cxx`.
//!
//! Nothing of Rust's unwinds out of them. Where PyTorch can take an error it is thrown as a C++
//! exception of PyTorch's own; where it cannot, in destructors, it is written to standard error.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use regraph::driver::{CaptureId, GraphHandle, StreamHandle};
use regraph::engine::OutOfMemory;
use regraph_plugin::{EndedGraph, Error, HostLock};

use crate::allocator::{allocator, fraction, is_forked};
use crate::doors::Attached;
use crate::errors::told;
use crate::{checkpoints, history, pools, sharing, shim, stacks};

/// PyTorch's name of a pool: a pair of two numbers, passed in two registers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolId {
    first: u64,
    second: u64,
}

thread_local! {
    /// The device and number of the route that the thread has begun for a capture that has not been announced yet.
    static BEGUN: Cell<Option<(u32, u64)>> = const { Cell::new(None) };
}

/// What [`BEGUN`] holds, which is nothing then.
pub(crate) fn take_begun() -> Option<(u32, u64)> {
    BEGUN.take()
}

/// The hooks' addresses by the names that the Python half gives them.
pub(crate) fn addresses() -> BTreeMap<&'static str, usize> {
    let mut addresses = BTreeMap::from([
        ("init", init as extern "C" fn(c_int) as usize),
        ("reset", reset as extern "C-unwind" fn() as usize),
        ("memory_fraction", memory_fraction as extern "C-unwind" fn(f64, c_int) as usize),
        (
            "base_allocation",
            base_allocation as extern "C" fn(*mut c_void, *mut usize) -> *mut c_void as usize,
        ),
        ("record_stream", record_stream as extern "C-unwind" fn(*mut c_void, *mut c_void) as usize),
        (
            "begin_pool",
            shim::regraph_shim_begin_pool as unsafe extern "C" fn(c_int, PoolId, *mut c_void)
                as usize,
        ),
        ("end_pool", end_pool as extern "C-unwind" fn(c_int, PoolId) as usize),
        ("release_pool", release_pool as extern "C" fn(c_int, PoolId) as usize),
        (
            "allocate",
            regraph_torch_allocate
                as unsafe extern "C-unwind" fn(usize, c_int, *mut c_void) -> *mut c_void
                as usize,
        ),
        (
            "allocate_at",
            allocate_at as extern "C-unwind" fn(usize, c_int, *mut c_void, *mut c_void) -> bool
                as usize,
        ),
        ("free", free as extern "C" fn(*mut c_void) -> bool as usize),
        ("memory_fraction_now", memory_fraction_now as extern "C" fn(c_int) -> f64 as usize),
        (
            "route_begin",
            regraph_hook_begin_pool
                as extern "C" fn(c_int, u64, u64, *mut c_void, *const c_void, Option<GraphOf>)
                as usize,
        ),
    ]);
    addresses.extend(checkpoints::addresses());
    addresses.extend(pools::addresses());
    addresses.extend(sharing::addresses());
    addresses.extend(history::addresses());
    addresses
}

/// Hands out memory. PyTorch does not look whether it got any, so failures are thrown.
///
/// # Safety
/// As PyTorch calls it: `stream` is a stream of the device's context.
#[no_mangle]
pub unsafe extern "C-unwind" fn regraph_torch_allocate(
    bytes: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let stream = StreamHandle::from_raw(stream);
    let allocated = guarded(|| {
        let allocator = allocator()?;
        Ok(stacks::remembering(|| allocator.allocate(bytes as u64, number(device), stream))?)
    });
    match allocated {
        Ok(address) => address as *mut c_void,
        Err(failure) => shim::throw(failure.memory, failure.message),
    }
}

/// Hands out memory at an address; false where it is not free there.
extern "C-unwind" fn allocate_at(
    bytes: usize,
    device: c_int,
    stream: *mut c_void,
    address: *mut c_void,
) -> bool {
    let stream = StreamHandle::from_raw(stream);
    or_throw(guarded(|| {
        let (allocator, address) = (allocator()?, address as u64);
        Ok(stacks::remembering(|| {
            allocator.allocate_at(bytes as u64, number(device), stream, address)
        })?)
    }))
}

/// Takes memory back.
///
/// # Safety
/// As PyTorch calls it: with what [`regraph_torch_allocate`] gave.
#[no_mangle]
pub unsafe extern "C" fn regraph_torch_free(
    address: *mut c_void,
    _bytes: usize,
    device: c_int,
    _stream: *mut c_void,
) {
    tell(guarded(|| Ok(allocator()?.free(address as u64, number(device))?)));
}

/// Takes memory of any device back; false where no live block begins there.
extern "C" fn free(address: *mut c_void) -> bool {
    let freed = guarded(|| match allocator()?.free_on((), address as u64, None) {
        Err(Error::UnknownAddress { .. }) => Ok(false),
        freed => Ok(freed.map(|()| true)?),
    });
    freed.map_err(|failure| tell(Err(failure))).unwrap_or(true)
}

extern "C" fn init(_devices: c_int) {}

extern "C-unwind" fn reset() {
    or_throw(unlocked(|| Ok(allocator()?.empty_cache()?)));
}

extern "C-unwind" fn memory_fraction(fraction: f64, device: c_int) {
    or_throw(unlocked(|| Ok(allocator()?.set_memory_fraction(number(device), fraction)?)));
}

extern "C" fn memory_fraction_now(device: c_int) -> f64 {
    fraction(number(device))
}

/// What a tensor's memory is a part of: each block stands by itself.
extern "C" fn base_allocation(address: *mut c_void, _bytes: *mut usize) -> *mut c_void {
    address
}

extern "C-unwind" fn record_stream(address: *mut c_void, stream: *mut c_void) {
    // PyTorch asks for tensors of other allocators and empty ones too, as its own allocator lets it.
    let recorded = guarded(|| {
        let stream = StreamHandle::from_raw(stream);
        match allocator()?.record_stream(address as u64, stream) {
            Err(Error::UnknownAddress { .. }) => Ok(()),
            recorded => Ok(recorded?),
        }
    });
    or_throw(recorded);
}

/// The graph that a capture of a graph object has come to, or null; the object is alive.
type GraphOf = extern "C" fn(*const c_void, u64) -> *mut c_void;

/// A graph object of PyTorch's.
struct Owner {
    object: *const c_void,
    graph_of: GraphOf,
}

// SAFETY: it is read when the pool that it began is ended, which it does itself in whichever thread.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    fn graph_of(&self, capture: CaptureId) -> Option<GraphHandle> {
        let graph = (self.graph_of)(self.object, capture.0);
        (!graph.is_null()).then(|| GraphHandle::from_raw(graph))
    }
}

/// Called by the C++ half, which owns the filter until then. `owner` is the graph object that begins to
/// capture, or null where that is not known; `graph_of` is not null then.
#[no_mangle]
extern "C" fn regraph_hook_begin_pool(
    device: c_int,
    first: u64,
    second: u64,
    filter: *mut c_void,
    owner: *const c_void,
    graph_of: Option<GraphOf>,
) {
    // SAFETY: the C++ half gives its filter away.
    let filter = unsafe { shim::Filter::from_raw(filter) };
    let graph_of = graph_of.filter(|_| !owner.is_null());
    let owner = graph_of.map(|graph_of| Owner { object: owner, graph_of });
    let begun = unlocked(|| {
        let (allocator, device) = (allocator()?, number(device));
        let takes = Arc::new(move |stream| filter.takes(stream));
        let ended: Option<EndedGraph> =
            owner.map(|owner| Arc::new(move |capture| owner.graph_of(capture)) as EndedGraph);
        let route = allocator.begin_pool_of(device, (first, second), takes, ended)?;
        BEGUN.set(Some((device, route)));
        Ok(())
    });
    tell(begun);
}

extern "C-unwind" fn end_pool(device: c_int, pool: PoolId) {
    or_throw(unlocked(|| Ok(allocator()?.end_pool(number(device), (pool.first, pool.second))?)));
}

extern "C" fn release_pool(device: c_int, pool: PoolId) {
    tell(unlocked(|| Ok(allocator()?.release_pool(number(device), (pool.first, pool.second))?)));
}

/// PyTorch's number of a device; one that is none becomes one that no device has.
pub(crate) fn number(device: c_int) -> u32 {
    u32::try_from(device).unwrap_or(u32::MAX)
}

/// What went wrong in a hook.
pub(crate) struct Failure {
    /// Whether memory is short.
    pub(crate) memory: bool,
    pub(crate) message: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.out_of_memory() {
            // Programs look for the first sentence, to go on with a smaller batch.
            Some(report) => {
                let (first, figures) = in_pytorchs_words(report);
                let message = format!("{first} regraph: {}\n  {figures}", told(report));
                Self { memory: true, message }
            }
            None => Self { memory: false, message: told(&error) },
        }
    }
}

/// A request that failed, in PyTorch's words: what was asked for, and the figures.
fn in_pytorchs_words(report: &OutOfMemory) -> (String, String) {
    /// In bytes; PyTorch calls it 1 EB.
    const MOST: u64 = 1 << 60;
    if report.requested > MOST {
        let first = "CUDA out of memory. Tried to allocate more than 1EB memory.";
        return (first.to_owned(), String::new());
    }
    let requested = readable(report.requested);
    let mut first = format!("CUDA out of memory. Tried to allocate {requested}.");
    if let (Some(free), Some(total)) = (report.device_free, report.device_total) {
        let (device, free, total) = (report.device, readable(free), readable(total));
        first += &format!(" GPU {device} has a total capacity of {total} of which {free} is free.");
    }
    let mut text = String::new();
    if let Some(limit) = report.engine_limit {
        text += &format!("{} allowed; ", readable(limit));
    }
    let allocated = report.engine_allocated;
    text += &format!("Of the allocated memory {} is allocated by PyTorch, ", readable(allocated));
    if report.in_graphs > 0 {
        let held = readable(report.in_graphs);
        text += &format!("with {held} reserved in private pools (e.g., CUDA Graphs), ");
    }
    let unallocated = readable(report.engine_reserved.saturating_sub(allocated));
    text += &format!("and {unallocated} is reserved by PyTorch but unallocated.");
    (first, text)
}

/// Bytes in a unit that suits them.
fn readable(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    let bytes = bytes as f64;
    match bytes {
        few if few < KIB => format!("{few} bytes"),
        some if some < KIB * KIB => format!("{:.2} KiB", some / KIB),
        more if more < KIB * KIB * KIB => format!("{:.2} MiB", more / (KIB * KIB)),
        many => format!("{:.2} GiB", many / (KIB * KIB * KIB)),
    }
}

/// Runs a hook; a panic in it is a failure like any other.
#[inline]
pub(crate) fn guarded<R>(hook: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(hook)).unwrap_or_else(|_| {
        let message = "regraph panicked; nothing more is handed out".to_owned();
        Err(Failure { memory: false, message })
    })
}

/// Runs a hook as [`guarded`], without the interpreter's lock where the calling thread has it, as PyTorch's destructors
/// and many of its calls do: what the hook waits for, another thread or work of the device, may need that lock.
pub(crate) fn unlocked<R: Send>(
    hook: impl FnOnce() -> Result<R, Failure> + Send,
) -> Result<R, Failure> {
    match shim::has_interpreter() {
        true => guarded(|| Attached.unlocked(hook)),
        false => guarded(hook),
    }
}

/// What a hook came to; its failure is thrown.
pub(crate) fn or_throw<R>(result: Result<R, Failure>) -> R {
    match result {
        Ok(done) => done,
        Err(failure) => shim::throw(failure.memory, failure.message),
    }
}

pub(crate) fn tell(result: Result<(), Failure>) {
    // What a forked process has of the other's memory comes to an end by itself.
    if let Some(failure) = result.err().filter(|_| !is_forked()) {
        // No caller is left that could handle a failed write.
        let _ = writeln!(std::io::stderr(), "regraph: {}", failure.message);
    }
}
