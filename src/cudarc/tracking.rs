//! Captures beside cudarc's event tracking.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::cudarc::driver::{CudaContext, CudaStream};

use super::Error;
use crate::driver::cuda::CudaDriver;
use crate::driver::CaptureMode;
use crate::engine::Engine;
use crate::graphs::{Capture, Graph, Pool};
use crate::sync::{Mutex, MutexGuard, Rank};

/// Captures what `body` submits to `stream`, and to the streams that it forks, into a graph that owns its memory, as
/// [`Engine::capture`] does, and refuses where cudarc's own slices would invalidate the capture.
///
/// cudarc has every `CudaSlice` wait for events that were recorded when it was last used, once a second stream exists;
/// a wait for an event from before the capture invalidates it. Hold the guard of [`untracked`] during the capture. A
/// capture that uses only buffers of this crate needs no guard: call [`Engine::capture`]. cudarc's `PinnedHostSlice`,
/// `UnifiedSlice` and `MappedBuffer` always wait for events, and cannot be used in a capture.
///
/// # Errors
/// [`Error::Tracking`]; those of [`Engine::capture`].
pub fn capture<R, E: From<Error>>(
    engine: &Arc<Engine<CudaDriver>>,
    stream: &Arc<CudaStream>,
    pool: &Pool<CudaDriver>,
    mode: CaptureMode,
    body: impl FnMut(&Capture<CudaDriver>) -> Result<R, E>,
) -> Result<(Graph<CudaDriver>, R), E> {
    if stream.context().is_managing_stream_synchronization() {
        return Err(Error::Tracking.into());
    }
    engine.driver().keep_stream(stream);
    engine.capture(stream, pool, mode, body)
}

/// Keeps cudarc from tracking events, until the guard is dropped.
///
/// Guards of one context may overlap, on several threads too: the last one to be dropped restores the state from before
/// the first.
///
/// # Safety
/// As with cudarc's `disable_event_tracking`, this holds for the whole context, on all threads. While a guard lives,
/// the program must order work on a `CudaSlice` on several streams by itself, and a slice that is allocated meanwhile
/// never has events. Buffers of this crate never have any.
pub unsafe fn untracked(context: &Arc<CudaContext>) -> Untracked {
    let mut off = off();
    let entry = off
        .entry(key(context))
        .or_insert_with(|| Off { guards: 0, before: context.is_event_tracking() });
    entry.guards += 1;
    if entry.before {
        // SAFETY: the caller orders its streams itself.
        unsafe { context.disable_event_tracking() };
    }
    Untracked { context: context.clone() }
}

/// While this guard of [`untracked`] lives, cudarc tracks no events in its context.
#[must_use = "tracking begins again when the guard is dropped"]
#[derive(Debug)]
pub struct Untracked {
    context: Arc<CudaContext>,
}

impl Drop for Untracked {
    fn drop(&mut self) {
        let mut off = off();
        let Some(entry) = off.get_mut(&key(&self.context)) else { return };
        entry.guards -= 1;
        if entry.guards > 0 {
            return;
        }
        if entry.before {
            // SAFETY: it was on before the first guard; the maker of that one knows what slices since
            // then lack.
            unsafe { self.context.enable_event_tracking() };
        }
        off.remove(&key(&self.context));
    }
}

/// A context whose tracking is off.
struct Off {
    guards: usize,
    /// Whether it was on before.
    before: bool,
}

/// By the context's place, which is its own while a guard holds it.
fn off() -> MutexGuard<'static, BTreeMap<usize, Off>> {
    static OFF: Mutex<BTreeMap<usize, Off>> = Mutex::new(Rank::Tracking, BTreeMap::new());
    OFF.lock()
}

fn key(context: &Arc<CudaContext>) -> usize {
    Arc::as_ptr(context) as usize
}
