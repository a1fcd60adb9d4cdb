//! The process's allocator: one, from its start to the end of the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use regraph::driver::cuda::CudaDriver;
use regraph::engine::Config;
use regraph::snapshot::{Setting, Snapshot};
use regraph::sync::{Mutex, Rank};
use regraph_plugin::{Overlay, Plugin};

use crate::errors::raised;
use crate::hooks::Failure;

static ALLOCATOR: OnceLock<Plugin<CudaDriver>> = OnceLock::new();

/// What was said for PyTorch, which says whole texts.
static SAID: Mutex<Option<Overlay>> = Mutex::new(Rank::Python, None);

/// Whether this process was forked from one that had engines: of these it has copies alone, whose locks threads of the
/// other process may have held.
static FORKED: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The allocator, once it was started.
#[inline]
pub(crate) fn allocator() -> Result<&'static Plugin<CudaDriver>, Failure> {
    ALLOCATOR.get().filter(|_| !is_forked()).ok_or_else(|| {
        let message = match is_forked() {
            true => "this process was forked from one that had used CUDA: start it by 'spawn'",
            false => "regraph was not started: call regraph.torch.enable()",
        };
        Failure { memory: false, message: message.to_owned() }
    })
}

/// Tells that this process was forked: it makes no call of the engines that there are.
#[pyfunction]
pub(crate) fn forked() {
    let has_engines = ALLOCATOR.get().is_some_and(|it| it.engines().next().is_some());
    FORKED.fetch_or(has_engines, Ordering::Relaxed);
}

/// Starts the allocator; false where that was done before.
pub(crate) fn start(config: Config, said: Overlay) -> bool {
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let plugin = Plugin::new(config, |device| unsafe { CudaDriver::new(device) });
    let started = ALLOCATOR.set(plugin).is_ok();
    if started {
        *SAID.lock() = Some(said);
    }
    started
}

/// Changes the settings by a text that is meant for PyTorch. Returns its keys that have no effect.
pub(crate) fn change_settings(text: &str) -> PyResult<Vec<String>> {
    let before = allocator()?.settings();
    let overlaid = SAID.lock().as_mut().map(|said| said.change(before.clone(), text));
    let Some(overlaid) = overlaid else { return Ok(Vec::new()) };
    let (settings, mut unused) =
        overlaid.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let of_pools = [
        ("max_split_size_mb", settings.max_split_bytes != before.max_split_bytes),
        (
            "max_non_split_rounding_mb",
            settings.max_non_split_rounding_bytes != before.max_non_split_rounding_bytes,
        ),
        ("expandable_segments", settings.expandable_segments != before.expandable_segments),
    ];
    if allocator()?.change_settings(settings).map_err(raised)? {
        let late = of_pools.into_iter().filter(|&(_, changed)| changed);
        unused.extend(late.map(|(key, _)| key.to_owned()));
    }
    Ok(unused)
}

/// The share of a device's memory that may be held.
#[pyfunction(name = "memory_fraction")]
pub(crate) fn fraction(device: u32) -> f64 {
    allocator().map_or(1.0, |allocator| allocator.memory_fraction(device))
}

/// Memory and history, with what was said for PyTorch where PyTorch's own snapshots have it: programs say it again.
pub(crate) fn snapshot() -> Result<Snapshot, Failure> {
    let mut snapshot = allocator()?.snapshot()?;
    let said = SAID.lock();
    let text = said.as_ref().map_or("", Overlay::text);
    snapshot.allocator_settings.insert("PYTORCH_CUDA_ALLOC_CONF".to_owned(), Setting::from(text));
    Ok(snapshot)
}
