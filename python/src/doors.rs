//! What the doors of CuPy, Numba, cuda.core, RMM and Warp call.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use pyo3::prelude::*;
use regraph::driver::{CaptureId, Driver, StreamHandle};
use regraph::engine;
use regraph_plugin::{Error, PoolKey};

use crate::allocator::allocator;
use crate::captures::stream;
use crate::errors::{not_allocated, raised};
use crate::hooks::{guarded, number, tell, Failure};
use crate::stacks;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(allocate, module)?)?;
    module.add_function(wrap_pyfunction!(allocate_unordered, module)?)?;
    module.add_function(wrap_pyfunction!(free, module)?)?;
    module.add_function(wrap_pyfunction!(free_on, module)?)?;
    module.add_function(wrap_pyfunction!(record_stream, module)?)?;
    module.add_function(wrap_pyfunction!(retire_stream, module)?)?;
    module.add_function(wrap_pyfunction!(empty_cache, module)?)?;
    module.add_function(wrap_pyfunction!(name_pool, module)?)?;
    module.add_function(wrap_pyfunction!(release_pool, module)?)?;
    module.add_function(wrap_pyfunction!(capture_started, module)?)?;
    module.add_function(wrap_pyfunction!(capture_finished, module)?)?;
    module.add_function(wrap_pyfunction!(capture_paused, module)?)?;
    module.add_function(wrap_pyfunction!(memory_info, module)?)?;
    module.add_function(wrap_pyfunction!(cupy_functions, module)?)?;
    module.add_function(wrap_pyfunction!(cupy_failure, module)?)
}

/// Hands out memory on a stream; 0 for no bytes.
#[pyfunction]
fn allocate(py: Python<'_>, bytes: u64, device: u32, stream: usize) -> PyResult<u64> {
    let stream = self::stream(stream);
    py.detach(|| {
        let allocator = allocator()?;
        let asked = || allocator.allocate_on(bytes, device, stream);
        stacks::remembering(asked).map_err(not_allocated)
    })
}

/// Hands out memory to a host that names no stream; 0 for no bytes.
#[pyfunction]
fn allocate_unordered(py: Python<'_>, bytes: u64, device: u32) -> PyResult<u64> {
    py.detach(|| {
        let allocator = allocator()?;
        let asked = || allocator.allocate_unordered(bytes, device);
        stacks::remembering(asked).map_err(not_allocated)
    })
}

/// Takes memory of any device back.
#[pyfunction]
fn free(py: Python<'_>, address: u64) -> PyResult<()> {
    py.detach(|| allocator()?.free_anywhere(address).map_err(raised))
}

/// Takes memory of any device back, after what a stream holds.
#[pyfunction]
fn free_on(py: Python<'_>, address: u64, stream: usize) -> PyResult<()> {
    let stream = self::stream(stream);
    py.detach(|| allocator()?.free_on(address, stream).map_err(raised))
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
    py.detach(|| match allocator()?.retire_stream(stream) {
        Ok(()) => Ok(true),
        Err(Error::Engine(engine::Error::StreamInUse { .. })) => Ok(false),
        Err(error) => Err(raised(error)),
    })
}

/// Gives free memory back to the driver, after a wait for the work that held it.
#[pyfunction]
fn empty_cache(py: Python<'_>) -> PyResult<()> {
    py.detach(|| allocator()?.empty_cache().map_err(raised))
}

/// What is free of a device's memory, and all of it, in bytes.
#[pyfunction]
fn memory_info(py: Python<'_>, device: u32) -> PyResult<(u64, u64)> {
    py.detach(|| {
        let engine = allocator()?.engine(device).map_err(raised)?;
        let info = engine.driver().memory_info().map_err(|error| raised(error.into()))?;
        Ok((info.free, info.total))
    })
}

/// A name for a pool of graphs.
#[pyfunction]
fn name_pool() -> PyResult<PoolKey> {
    Ok(allocator()?.name_pool())
}

/// A graph lets go of its pool.
#[pyfunction]
fn release_pool(py: Python<'_>, device: u32, pool: PoolKey) -> PyResult<()> {
    py.detach(|| allocator()?.release_pool(device, pool).map_err(raised))
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

thread_local! {
    /// Why CuPy's latest request in this thread failed.
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Why the thread's latest request of CuPy's failed: whether memory is short, and the message. Takes it.
#[pyfunction]
fn cupy_failure() -> Option<(bool, String)> {
    FAILURE.take().map(|failure| (failure.memory, failure.message))
}

/// Hands out memory to CuPy on its current stream; null where that fails, and [`cupy_failure`] says why. CuPy
/// does not look at what it gets, nor for a Python exception: the Python half does.
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
        if let Some(error) = Python::attach(PyErr::take) {
            FAILURE.set(Some(Failure { memory: false, message: error.to_string() }));
            return std::ptr::null_mut();
        }
    }
    let stream = StreamHandle::from_raw(stream as *mut c_void);
    let allocate = || {
        let allocator = allocator()?;
        let asked = || allocator.allocate_on(bytes as u64, number(device), stream);
        stacks::remembering(asked).map_err(|error| match error.out_of_memory() {
            Some(report) => Failure { memory: true, message: report.to_string() },
            None => error.into(),
        })
    };
    let allocated = unlocked(|| guarded(allocate));
    match allocated {
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
unsafe extern "C-unwind" fn cupy_free(_param: *mut c_void, address: *mut c_void, device: c_int) {
    let address = address as u64;
    let free = || Ok(allocator()?.free(address, number(device))?);
    tell(unlocked(|| guarded(free)));
}

/// Runs a call without the interpreter's lock, which the thread has: the engine may wait for work, and that
/// work for a host function of Python's. At the interpreter's end the lock is kept.
fn unlocked<R: Send>(call: impl Fn() -> R + Sync) -> R {
    Python::try_attach(|py| py.detach(&call)).unwrap_or_else(call)
}
