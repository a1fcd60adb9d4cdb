//! Where in the Python program memory was asked for.
//!
//! Only while a history is kept or captures are recorded with stacks, and only in threads that run Python: PyTorch's own
//! threads have no Python stack.

use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::prelude::*;
use regraph::engine::{with_frames, HostFrame};

use crate::shim::with_interpreter;

/// What stacks are recorded for, a bit each: history, traces, pages.
static WANTED: AtomicU8 = AtomicU8::new(0);

/// What stacks are remembered for.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum For {
    History = 1,
    Traces = 2,
    Shown = 4,
}

/// How deep stacks are followed.
const DEPTH: usize = 32;

/// Sets whether stacks are remembered for something.
pub(crate) fn want(what: For, wanted: bool) {
    match wanted {
        true => WANTED.fetch_or(what as u8, Ordering::Relaxed),
        false => WANTED.fetch_and(!(what as u8), Ordering::Relaxed),
    };
}

/// Runs an allocation, which remembers the thread's Python stack if that is wanted.
#[inline]
pub(crate) fn remembering<R>(allocation: impl FnOnce() -> R) -> R {
    if WANTED.load(Ordering::Relaxed) == 0 {
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
    let read_all = |py: Python<'_>| {
        let mut frames = Vec::new();
        let mut next = py.import("sys").and_then(|sys| sys.call_method0("_getframe")).ok();
        while let Some(frame) = next.filter(|frame| !frame.is_none() && frames.len() < DEPTH) {
            frames.push(read(&frame).ok()?);
            next = frame.getattr("f_back").ok();
        }
        Some(frames)
    };
    with_interpreter(read_all).flatten()
}

fn read(frame: &Bound<'_, PyAny>) -> PyResult<HostFrame> {
    let code = frame.getattr("f_code")?;
    Ok(HostFrame {
        filename: code.getattr("co_filename")?.extract()?,
        line: frame.getattr("f_lineno")?.extract::<Option<u32>>()?.unwrap_or(0),
        name: code.getattr("co_name")?.extract()?,
    })
}
