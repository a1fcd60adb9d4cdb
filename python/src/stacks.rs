//! Where in the Python program memory was asked for.
//!
//! Only while a history is kept, and only in threads that run Python: PyTorch's own threads have no
//! Python stack.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use regraph::engine::{with_frames, HostFrame};

static WANTED: AtomicBool = AtomicBool::new(false);

/// How deep stacks are followed.
const DEPTH: usize = 32;

/// Sets whether stacks are remembered.
pub(crate) fn want(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Runs an allocation, which remembers the thread's Python stack if that is wanted.
#[inline]
pub(crate) fn remembering<R>(allocation: impl FnOnce() -> R) -> R {
    if !WANTED.load(Ordering::Relaxed) {
        return allocation();
    }
    match here() {
        Some(frames) => with_frames(frames, allocation),
        None => allocation(),
    }
}

/// The Python stack, innermost first; `None` in a thread that Python does not know.
fn here() -> Option<Vec<HostFrame>> {
    // SAFETY: may be asked from any thread, with or without the interpreter's lock.
    if unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null() {
        return None;
    }
    // PyTorch lets the interpreter go before it asks for memory; nothing is locked here.
    Python::attach(|py| {
        let mut frames = Vec::new();
        let mut next = py.import("sys").and_then(|sys| sys.call_method0("_getframe")).ok();
        while let Some(frame) = next.filter(|frame| !frame.is_none() && frames.len() < DEPTH) {
            frames.push(read(&frame).ok()?);
            next = frame.getattr("f_back").ok();
        }
        Some(frames)
    })
}

fn read(frame: &Bound<'_, PyAny>) -> PyResult<HostFrame> {
    let code = frame.getattr("f_code")?;
    let mut read = HostFrame::default();
    read.file = code.getattr("co_filename")?.extract()?;
    read.function = code.getattr("co_name")?.extract()?;
    read.line = frame.getattr("f_lineno")?.extract::<Option<u32>>()?.unwrap_or(0);
    Ok(read)
}
