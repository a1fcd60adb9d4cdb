//! Pools of PyTorch's own making (`torch.cuda.MemPool`), and what it asks of memory as a whole.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pyo3::prelude::*;
use regraph::driver::{DriverError, ErrorKind, Source, StreamHandle};
use regraph::engine::Lent;
use regraph::sync::{Mutex, Rank};

use crate::allocator::allocator;
use crate::errors::raised;
use crate::hooks::{guarded, number, or_throw, tell, unlocked};

/// An allocator of PyTorch's that a pool has its memory from.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolSource {
    context: *mut c_void,
    /// Null where there is no memory. Throws nothing, and the calling thread's capture mode is relaxed.
    allocate: extern "C" fn(*mut c_void, usize, *mut c_void) -> *mut c_void,
    free: extern "C" fn(*mut c_void, *mut c_void),
    drop: extern "C" fn(*mut c_void),
}

/// The functions' addresses by their names.
pub(crate) fn addresses() -> BTreeMap<&'static str, usize> {
    type OnPool = extern "C-unwind" fn(c_int, u64, u64);
    BTreeMap::from([
        (
            "pool_create",
            create as unsafe extern "C-unwind" fn(c_int, u64, u64, *const PoolSource) as usize,
        ),
        (
            "pool_source",
            source as unsafe extern "C-unwind" fn(c_int, u64, u64, *const PoolSource) as usize,
        ),
        ("pool_users", users as extern "C-unwind" fn(c_int, u64, u64) -> usize as usize),
        ("pool_use_on_oom", use_on_oom as extern "C-unwind" fn(c_int, u64, u64, bool) as usize),
        ("pool_no_split", no_split as OnPool as usize),
        ("pool_empty", empty as extern "C" fn(u64, u64) as usize),
        ("largest_block", largest_block as extern "C-unwind" fn(c_int) -> usize as usize),
        (
            "surroundings",
            surroundings as unsafe extern "C-unwind" fn(*mut c_void, *mut usize) -> *mut c_void
                as usize,
        ),
        ("set_caching", set_caching as extern "C-unwind" fn(bool) as usize),
        ("is_caching", is_caching as extern "C" fn() -> bool as usize),
    ])
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions!(
        module:
        compact, excess_bytes, limit_pool, set_pool_name, has_source, has_checkpoint, begin_thread_pool,
        begin_borrowing, launches_elsewhere, lent_bytes, keep_exported,
    );
    module.add_class::<Borrowing>()
}

calls! {
    /// Has the memory behind an address stay there, since others have it by handles that they exported. Returns whether
    /// it is regraph's.
    fn keep_exported(address: u64, bytes: u64) -> bool;

    /// Sends all that this thread asks for to a pool.
    fn begin_thread_pool(device: u32, pool: (u64, u64)) -> ();

    /// Whether a checkpoint was taken of a pool.
    fn has_checkpoint(device: u32, pool: (u64, u64)) -> bool;

    /// Tells that graphs of a pool may be launched by others from now on.
    fn launches_elsewhere(pool: (u64, u64)) -> ();

    /// The bytes that live in memory which a pool has lent.
    fn lent_bytes(device: u32, pool: (u64, u64)) -> u64;

    /// Has the graphs of a pool, or of all, share what they can by now; how many bytes went. The host has waited
    /// for the device.
    #[pyo3(signature = (device, pool=None))]
    fn compact(device: u32, pool: Option<(u64, u64)>) -> u64;

    /// Sets the most that a pool will ever hold, in bytes, before its first use.
    fn limit_pool(device: u32, pool: (u64, u64), bytes: u64) -> ();

    /// How many bytes that would be.
    #[pyo3(signature = (device, pool=None))]
    fn excess_bytes(device: u32, pool: Option<(u64, u64)>) -> u64;
}

/// Whether a pool's memory comes from an allocator of the host's.
#[pyfunction]
fn has_source(py: Python<'_>, pool: (u64, u64)) -> PyResult<bool> {
    py.detach(|| Ok(allocator()?.has_source(pool)))
}

/// The same as `begin_thread_pool`, with all that is free in a pool of graphs first.
#[pyfunction]
fn begin_borrowing(py: Python<'_>, device: u32, pool: (u64, u64)) -> PyResult<()> {
    let begun =
        py.detach(|| allocator()?.begin_borrowing(device, pool, Lent::AllFree).map_err(raised));
    begun.map(|_| ())
}

/// That a thread borrows what a pool's graphs do not keep.
#[pyclass(frozen)]
struct Borrowing(Mutex<Option<Begun>>);

/// The device, the pool and the number of what was begun.
type Begun = (u32, (u64, u64), u64);

#[pymethods]
impl Borrowing {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Rank::Python, None))
    }

    /// This thread borrows from now on.
    fn begin(&self, py: Python<'_>, device: u32, pool: (u64, u64)) -> PyResult<()> {
        let begin = || allocator()?.begin_borrowing(device, pool, Lent::Temporary).map_err(raised);
        let number = py.detach(begin)?;
        *self.0.lock() = Some((device, pool, number));
        Ok(())
    }

    /// Ends that, on any thread. Does nothing where it was not begun.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let Some((device, pool, number)) = self.0.lock().take() else { return Ok(()) };
        py.detach(|| allocator()?.end_borrowing(device, pool, number).map_err(raised))
    }
}

/// Calls a pool by a text in messages and reports; `None` takes it away.
#[pyfunction]
fn set_pool_name(
    py: Python<'_>,
    device: u32,
    pool: (u64, u64),
    name: Option<String>,
) -> PyResult<()> {
    py.detach(|| allocator()?.set_pool_name(device, pool, name.as_deref()).map_err(raised))
}

/// Memory from an allocator of PyTorch's.
#[derive(Debug)]
struct Theirs(PoolSource);

// SAFETY: PyTorch's allocators are for all threads.
unsafe impl Send for Theirs {}
// SAFETY: as above.
unsafe impl Sync for Theirs {}

impl Source for Theirs {
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<u64, DriverError> {
        let given = (self.0.allocate)(self.0.context, bytes as usize, stream.as_raw());
        if given.is_null() {
            return Err(DriverError::new("CUDAAllocator::raw_alloc", 0, ErrorKind::OutOfMemory));
        }
        Ok(given as u64)
    }

    fn free(&self, address: u64, _: u64) -> Result<(), DriverError> {
        (self.0.free)(self.0.context, address as *mut c_void);
        Ok(())
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        (self.0.drop)(self.0.context);
    }
}

/// Counts a user of a pool, and makes the pool with the first. Owns what the table is about.
///
/// # Safety
/// `source` is null or a table whose functions may be called with its context until that is dropped.
unsafe extern "C-unwind" fn create(
    device: c_int,
    first: u64,
    second: u64,
    source: *const PoolSource,
) {
    // SAFETY: as above.
    let source =
        unsafe { source.as_ref() }.map(|table| Arc::new(Theirs(*table)) as Arc<dyn Source>);
    or_throw(unlocked(|| {
        Ok(allocator()?.create_or_incref_pool(number(device), (first, second), source)?)
    }));
}

/// Gives a pool that has no memory yet a source for all of it. Owns what the table is about.
///
/// # Safety
/// `source` is a table as for [`create`].
unsafe extern "C-unwind" fn source(
    device: c_int,
    first: u64,
    second: u64,
    source: *const PoolSource,
) {
    // SAFETY: as above.
    let source: Arc<dyn Source> = Arc::new(Theirs(unsafe { *source }));
    or_throw(unlocked(|| Ok(allocator()?.set_source(number(device), (first, second), || source)?)));
}

extern "C-unwind" fn users(device: c_int, first: u64, second: u64) -> usize {
    or_throw(unlocked(|| Ok(allocator()?.pool_use_count(number(device), (first, second))?)))
}

extern "C-unwind" fn use_on_oom(device: c_int, first: u64, second: u64, on: bool) {
    or_throw(unlocked(|| Ok(allocator()?.set_use_on_oom(number(device), (first, second), on)?)));
}

extern "C-unwind" fn no_split(device: c_int, first: u64, second: u64) {
    or_throw(unlocked(|| Ok(allocator()?.set_no_split(number(device), (first, second))?)));
}

/// Called in destructors.
extern "C" fn empty(first: u64, second: u64) {
    tell(unlocked(|| Ok(allocator()?.empty_pool((first, second))?)));
}

extern "C-unwind" fn largest_block(device: c_int) -> usize {
    or_throw(unlocked(|| Ok(allocator()?.largest_block(number(device))? as usize)))
}

/// Where the memory begins that a block lies in, and its size.
///
/// # Safety
/// `bytes` can be written.
unsafe extern "C-unwind" fn surroundings(address: *mut c_void, bytes: *mut usize) -> *mut c_void {
    let place = or_throw(guarded(|| Ok(allocator()?.surroundings_of(address as u64)?)));
    // SAFETY: as above.
    unsafe { bytes.write(place.1 as usize) };
    place.0 as *mut c_void
}

extern "C-unwind" fn set_caching(caches: bool) {
    or_throw(guarded(|| {
        allocator()?.set_caching(caches);
        Ok(())
    }));
}

extern "C" fn is_caching() -> bool {
    allocator().map_or(true, |allocator| allocator.is_caching())
}
