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

/// Captures what `body` submits to `stream`, and to the streams that it forks, into a graph that owns its memory:
/// [`Engine::capture`], which refuses where cudarc's own slices would ruin the capture.
///
/// cudarc has every `CudaSlice` wait for events that were recorded when it was last used, once a second stream exists;
/// a wait for an event from before the capture invalidates it. Hold the guard of [`untracked`] meanwhile. Where only
/// buffers of this crate are used, [`Engine::capture`] does without. cudarc's `PinnedHostSlice`, `UnifiedSlice` and
/// `MappedBuffer` wait for events in any case, and cannot be used in a capture.
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
/// Guards of one context may overlap, on several threads too: the last one restores what was before the first.
///
/// # Safety
/// As with cudarc's `disable_event_tracking`, this holds for the whole context, on all threads. While a guard lives,
/// work on a `CudaSlice` on several streams is ordered by the program, and a slice that is allocated meanwhile has no
/// events ever after. The buffers of this crate never have any.
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

/// While it lives, cudarc tracks no events in its context. Made by [`untracked`].
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
