//! What the doors of CuPy, Numba, cuda.core, RMM and Warp call.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use regraph::driver::{CaptureId, Driver, StreamHandle};
use regraph::engine;
use regraph_plugin::{Error, HostLock, PoolKey};

use crate::allocator::allocator;
use crate::captures::stream;
use crate::errors::{raised, told};
use crate::hooks::{guarded, number, tell, Failure};
use crate::stacks;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions!(
        module:
        allocate, allocate_unordered, free, free_on, record_stream, retire_stream, retire_unused, empty_cache, name_pool, release_pool,
        capture_started, capture_finished, capture_paused, memory_info, cupy_functions,
    );
    module.add_class::<CupyAllocator>()?;
    module.add_class::<KeptStreams>()
}

calls! {
    /// Gives free memory back to the driver, after a wait for the work that held it.
    fn empty_cache() -> ();

    /// A graph lets go of its pool.
    fn release_pool(device: u32, pool: PoolKey) -> ();
}

/// The interpreter's lock, which the calling thread has.
struct Held<'py>(Python<'py>);

impl HostLock for Held<'_> {
    fn unlocked<R: Send>(self, call: impl FnOnce() -> R + Send) -> R {
        self.0.detach(call)
    }
}

/// Hands out memory on a stream; 0 for no bytes.
#[pyfunction]
fn allocate(py: Python<'_>, bytes: u64, device: u32, stream: usize) -> PyResult<u64> {
    let allocator = allocator()?;
    let asked = || allocator.allocate_on(Held(py), bytes, device, self::stream(stream));
    stacks::remembering(asked).map_err(raised)
}

/// Hands out memory to a host that names no stream; 0 for no bytes.
#[pyfunction]
fn allocate_unordered(py: Python<'_>, bytes: u64, device: u32) -> PyResult<u64> {
    py.detach(|| {
        let allocator = allocator()?;
        let asked = || allocator.allocate_unordered(bytes, device);
        stacks::remembering(asked).map_err(raised)
    })
}

/// Takes memory of any device back.
#[pyfunction]
fn free(py: Python<'_>, address: u64) -> PyResult<()> {
    allocator()?.free_on(Held(py), address, None).map_err(raised)
}

/// Takes memory of any device back, after what a stream holds.
#[pyfunction]
fn free_on(py: Python<'_>, address: u64, stream: usize) -> PyResult<()> {
    allocator()?.free_on(Held(py), address, Some(self::stream(stream))).map_err(raised)
}

/// Says that a stream uses the block at an address until its free.
#[pyfunction]
fn record_stream(py: Python<'_>, address: u64, stream: usize) -> PyResult<()> {
    let stream = self::stream(stream);
    py.detach(|| allocator()?.record_stream(address, stream).map_err(raised))
}

/// Tells that a stream is about to be destroyed; false where it must live on, and the call be made again.
#[pyfunction]
fn retire_stream(py: Python<'_>, stream: usize) -> PyResult<bool> {
    let stream = self::stream(stream);
    py.detach(|| retired(allocator()?.retire_stream(stream)))
}

/// Tells that a stream may be about to be destroyed, or go on; false where memory waits for it or was allocated on it.
#[pyfunction]
fn retire_unused(py: Python<'_>, stream: usize) -> PyResult<bool> {
    let stream = self::stream(stream);
    py.detach(|| retired(allocator()?.retire_unused(stream)))
}

fn retired(retired: Result<(), Error>) -> PyResult<bool> {
    match retired {
        Ok(()) => Ok(true),
        Err(Error::Engine(engine::Error::Stream { why: engine::StreamRefusal::InUse, .. })) => {
            Ok(false)
        }
        Err(error) => Err(raised(error)),
    }
}

/// What is free of a device's memory, and all of it, in bytes.
#[pyfunction]
fn memory_info(py: Python<'_>, device: u32) -> PyResult<(u64, u64)> {
    py.detach(|| {
        let engine = allocator()?.engine(device).map_err(raised)?;
        let info = engine.driver().memory_info().map_err(raised)?;
        Ok((info.free, info.total))
    })
}

/// A name for a pool of graphs.
#[pyfunction]
fn name_pool() -> PyResult<PoolKey> {
    Ok(allocator()?.name_pool())
}

/// Announces the capture that a stream has begun; returns its ID.
#[pyfunction]
fn capture_started(py: Python<'_>, device: u32, stream: usize, pool: PoolKey) -> PyResult<u64> {
    let stream = self::stream(stream);
    // Communication libraries may register its memory: nothing says that it is alone.
    py.detach(|| {
        let capture = allocator()?.capture_started(device, stream, pool, false).map_err(raised)?;
        Ok(capture.0)
    })
}

/// Tells that the host has ended such a capture; waits for the verdict and raises `Refused`.
#[pyfunction]
fn capture_finished(py: Python<'_>, device: u32, stream: usize, pool: PoolKey) -> PyResult<()> {
    let stream = self::stream(stream);
    py.detach(|| allocator()?.capture_finished(device, stream, pool).map_err(raised))
}

/// Tells that the host has ended such a capture, and adds to its graph by another one.
#[pyfunction]
fn capture_paused(
    py: Python<'_>,
    device: u32,
    stream: usize,
    pool: PoolKey,
    capture: u64,
) -> PyResult<()> {
    let (stream, capture) = (self::stream(stream), CaptureId(capture));
    py.detach(|| allocator()?.capture_paused(device, stream, pool, capture).map_err(raised))
}

/// [`allocate`] and [`free_on`] for streams as objects, which are kept alive while memory is on them.
#[pyclass(frozen)]
struct KeptStreams {
    /// What keeps streams, by their handles.
    kept: Py<PyDict>,
    /// Keeps a stream that is not kept, and gives its handle.
    keep: Py<PyAny>,
}

#[pymethods]
impl KeptStreams {
    #[new]
    fn new(kept: Py<PyDict>, keep: Py<PyAny>) -> Self {
        Self { kept, keep }
    }

    /// Hands out memory on a stream; 0 for no bytes.
    fn allocate(&self, bytes: u64, device: u32, stream: &Bound<'_, PyAny>) -> PyResult<u64> {
        allocate(stream.py(), bytes, device, self.handle(stream)?)
    }

    /// Takes memory back, after what a stream holds.
    fn free(&self, address: u64, stream: &Bound<'_, PyAny>) -> PyResult<()> {
        free_on(stream.py(), address, self.handle(stream)?)
    }
}

impl KeptStreams {
    fn handle(&self, stream: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = stream.py();
        // As the protocol has it: a version and the handle. `keep` knows what else there is.
        let told = stream.call_method0(intern!(py, "__cuda_stream__")).ok();
        let handle = told.and_then(|told| told.cast_into::<PyTuple>().ok()?.get_item(1).ok());
        if let Some(handle) = handle {
            let number: usize = handle.extract()?;
            if number <= PER_THREAD || self.kept.bind(py).contains(handle)? {
                return Ok(number);
            }
        }
        self.keep.bind(py).call1((stream,))?.extract()
    }
}

/// The addresses of the functions that CuPy calls: to allocate, to free.
#[pyfunction]
fn cupy_functions() -> (usize, usize) {
    (
        cupy_allocate as unsafe extern "C-unwind" fn(*mut c_void, usize, c_int) -> *mut c_void
            as usize,
        cupy_free as unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, c_int) as usize,
    )
}

/// CuPy's function that gives the current stream of the calling thread; [`NO_STREAM`] with an exception set.
type CurrentStream = unsafe extern "C" fn() -> isize;

const NO_STREAM: isize = -1;

/// The default streams, which never end, have this handle and smaller ones.
const PER_THREAD: usize = 2;

thread_local! {
    /// Why CuPy's latest request in this thread failed.
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// CuPy's allocator over [`cupy_allocate`], of which CuPy does not look what it got.
#[pyclass(frozen)]
struct CupyAllocator {
    /// `CFunctionAllocator.malloc`.
    malloc: Py<PyAny>,
    /// Makes an exception of the size, whether memory is short, and the message.
    failed: Py<PyAny>,
}

#[pymethods]
impl CupyAllocator {
    #[new]
    fn new(malloc: Py<PyAny>, failed: Py<PyAny>) -> Self {
        Self { malloc, failed }
    }

    /// Memory of a size in bytes, as CuPy has it.
    fn malloc<'py>(&self, size: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = size.py();
        // A finalizer may ask in the middle of another request.
        let outer = FAILURE.take();
        let memory = self.malloc.bind(py).call1((size,));
        match FAILURE.replace(outer).filter(|_| memory.is_ok()) {
            None => memory,
            Some(Failure { memory: short, message }) => {
                Err(PyErr::from_value(self.failed.bind(py).call1((size, short, message))?))
            }
        }
    }
}

/// Hands out memory to CuPy on its current stream; null where that fails. CuPy does not look at what it gets,
/// nor for a Python exception: [`CupyAllocator`] does.
///
/// # Safety
/// As CuPy calls it: with the interpreter's lock, and with the address of a [`CurrentStream`] as `param`.
unsafe extern "C-unwind" fn cupy_allocate(
    param: *mut c_void,
    bytes: usize,
    device: c_int,
) -> *mut c_void {
    // SAFETY: the caller's promise; a pointer to data and one to a function are alike here.
    let current = unsafe { std::mem::transmute::<*mut c_void, CurrentStream>(param) };
    // SAFETY: the caller has the interpreter's lock.
    let stream = unsafe { current() };
    if stream == NO_STREAM {
        let failed = match Python::try_attach(PyErr::take) {
            Some(failed) => failed.map(|error| error.to_string()),
            None => Some("the interpreter ends, and CuPy's current stream is not known".to_owned()),
        };
        if let Some(message) = failed {
            FAILURE.set(Some(Failure { memory: false, message }));
            return std::ptr::null_mut();
        }
    }
    let stream = StreamHandle::from_raw(stream as *mut c_void);
    let allocate = || {
        let allocator = allocator()?;
        let asked = || allocator.allocate_on(Attached, bytes as u64, number(device), stream);
        stacks::remembering(asked).map_err(|error| match error.out_of_memory() {
            Some(report) => Failure { memory: true, message: told(report) },
            None => error.into(),
        })
    };
    match guarded(allocate) {
        Ok(address) => address as *mut c_void,
        Err(failure) => {
            FAILURE.set(Some(failure));
            std::ptr::null_mut()
        }
    }
}

/// Takes memory back from CuPy: what the stream that asked for it has not done yet, it does before another
/// stream gets the memory.
///
/// # Safety
/// As CuPy calls it: with the interpreter's lock, and what [`cupy_allocate`] gave.
unsafe extern "C-unwind" fn cupy_free(_param: *mut c_void, address: *mut c_void, _device: c_int) {
    tell(guarded(|| Ok(allocator()?.free_on(Attached, address as u64, None)?)));
}

/// The interpreter's lock, which the thread has, in calls that come from C. At the interpreter's end it is kept.
pub(crate) struct Attached;

impl HostLock for Attached {
    fn unlocked<R: Send>(self, call: impl FnOnce() -> R + Send) -> R {
        let mut call = Some(call);
        let mut run = || call.take().map(|call| call());
        let done = Python::try_attach(|py| py.detach(&mut run)).flatten();
        done.or_else(run).expect("the call is run once")
    }
}
