//! The C++ half, as Rust sees it.

use std::ffi::{c_char, c_int, c_void, CStr};

use pyo3::ffi;
use pyo3::prelude::*;
use regraph::driver::StreamHandle;

use crate::hooks::PoolId;

extern "C-unwind" {
    fn regraph_shim_throw(memory: bool, text: *const c_char, length: usize) -> !;
}

extern "C" {
    fn regraph_shim_can_throw(memory: bool) -> bool;
    fn regraph_shim_filter_takes(filter: *const c_void, stream: *mut c_void) -> bool;
    fn regraph_shim_filter_drop(filter: *mut c_void);
    fn regraph_shim_has_interpreter() -> bool;
    fn regraph_shim_path() -> *const c_char;
    fn regraph_shim_is_allocator(table: *const c_void) -> bool;
    /// Its last argument is a `std::function`, which Rust cannot name.
    pub(crate) fn regraph_shim_begin_pool(device: c_int, pool: PoolId, filter: *mut c_void);
}

/// Throws a C++ exception, which becomes `torch.OutOfMemoryError` or `RuntimeError` in Python.
pub(crate) fn throw(memory: bool, message: String) -> ! {
    // SAFETY: the text is copied before anything is thrown; the declaration lets it unwind.
    unsafe { regraph_shim_throw(memory, message.as_ptr().cast(), message.len()) }
}

/// Whether `torch.OutOfMemoryError` can be raised, and not only `RuntimeError`.
#[pyfunction]
pub(crate) fn throws_out_of_memory() -> bool {
    // SAFETY: looks symbols up and nothing else.
    unsafe { regraph_shim_can_throw(true) }
}

/// Whether the calling thread has the interpreter's lock.
pub(crate) fn has_interpreter() -> bool {
    // SAFETY: may be asked from any thread, at any time.
    unsafe { regraph_shim_has_interpreter() }
}

/// The interpreter's lock, taken by a thread that does not have it.
struct Taken(ffi::PyGILState_STATE);

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the thread took it when this was made.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

/// Runs with the interpreter's lock; `None` where the interpreter has ended. PyO3 takes a thread to have the lock for as
/// long as a call runs that Python has made here, although what the call leads to, as PyTorch does, may let the lock go.
pub(crate) fn with_interpreter<R>(run: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    // SAFETY: may be asked at any time.
    let may_take = !has_interpreter() && unsafe { ffi::Py_IsInitialized() } != 0;
    // SAFETY: the interpreter is there, and the thread does not have its lock.
    let _taken = may_take.then(|| Taken(unsafe { ffi::PyGILState_Ensure() }));
    Python::try_attach(run)
}

/// The file of this library.
pub(crate) fn path() -> Option<String> {
    // SAFETY: the answer is null, or a string of the loader's that lives as long as the library.
    let path = unsafe { regraph_shim_path().as_ref() }?;
    // SAFETY: as above.
    let path = unsafe { CStr::from_ptr(path) };
    Some(path.to_string_lossy().into_owned())
}

/// Whether a class of allocators is of the kind that the loaded PyTorch has, by its table of virtual functions.
pub(crate) fn is_allocator(table: usize) -> bool {
    // SAFETY: looks the address up in the loader's tables, and reads nothing there.
    unsafe { regraph_shim_is_allocator(table as *const c_void) }
}

/// A filter of PyTorch's, kept beyond the call that brought it.
pub(crate) struct Filter(*mut c_void);

// SAFETY: the function reads the driver's state and its own graph's number, and may run on any thread.
unsafe impl Send for Filter {}
// SAFETY: as above.
unsafe impl Sync for Filter {}

impl Filter {
    /// # Safety
    /// `filter` comes from `regraph_shim_begin_pool`, which gives it away.
    pub(crate) unsafe fn from_raw(filter: *mut c_void) -> Self {
        Self(filter)
    }

    pub(crate) fn takes(&self, stream: StreamHandle) -> bool {
        // SAFETY: it lives until it is dropped here.
        unsafe { regraph_shim_filter_takes(self.0, stream.as_raw()) }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: this is its only owner.
        unsafe { regraph_shim_filter_drop(self.0) }
    }
}
