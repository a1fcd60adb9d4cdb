//! The process's allocator: one, from its start to the end of the process.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::PyResult;
use regraph::driver::cuda::CudaDriver;
use regraph::engine::Config;
use regraph::snapshot::{Setting, Snapshot};
use regraph::sync::{Mutex, Rank};
use regraph_plugin::{Error, Overlay, Plugin};

use crate::errors::raised;
use crate::hooks::Failure;

static ALLOCATOR: OnceLock<Plugin<CudaDriver>> = OnceLock::new();

/// The share that the settings allow of every device; `None` for all.
static CONFIGURED: Mutex<Option<f64>> = Mutex::new(Rank::Python, None);

/// How many events the settings have histories keep, and whether with stacks of native code.
static HISTORY: OnceLock<(usize, bool)> = OnceLock::new();

/// The shares of devices that were set, by device.
static FRACTIONS: Mutex<BTreeMap<u32, f64>> = Mutex::new(Rank::Python, BTreeMap::new());

/// What was said for PyTorch, which says whole texts.
static SAID: Mutex<Option<Overlay>> = Mutex::new(Rank::Python, None);

/// The allocator, once it was started.
#[inline]
pub(crate) fn allocator() -> Result<&'static Plugin<CudaDriver>, Failure> {
    ALLOCATOR.get().ok_or_else(|| Failure {
        memory: false,
        message: "regraph was not started: call regraph.torch.enable()".to_owned(),
    })
}

/// Starts the allocator; false where that was done before.
pub(crate) fn start(config: Config, said: Overlay) -> bool {
    // Set before the allocator can be used.
    *CONFIGURED.lock() = config.settings.memory_fraction;
    let _ = HISTORY.set((config.settings.history, config.settings.stacks));
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    let plugin = Plugin::new(config, |device| unsafe { CudaDriver::new(device) });
    let started = ALLOCATOR.set(plugin).is_ok();
    if started {
        *SAID.lock() = Some(said);
    }
    started
}

/// How many events the settings have histories keep, and whether with stacks of native code.
pub(crate) fn history_settings() -> (usize, bool) {
    HISTORY.get().copied().unwrap_or((0, false))
}

/// Changes the settings by a text that is meant for PyTorch, in place of the one before. Returns its keys that have no
/// effect.
pub(crate) fn change_settings(text: &str) -> PyResult<Vec<String>> {
    let before = allocator()?.settings();
    let overlaid = SAID.lock().as_mut().map(|said| said.change(text));
    let Some(overlaid) = overlaid else { return Ok(Vec::new()) };
    let (settings, mut unused) =
        overlaid.map_err(|error| PyValueError::new_err(error.to_string()))?;
    if settings.memory_fraction != before.memory_fraction {
        // For every device, those included whose share was set by itself.
        *CONFIGURED.lock() = settings.memory_fraction;
        FRACTIONS.lock().clear();
    }
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

pub(crate) fn set_fraction(device: u32, fraction: f64) -> Result<(), Failure> {
    allocator()?.engine(device)?.set_memory_fraction(fraction).map_err(Error::from)?;
    FRACTIONS.lock().insert(device, fraction);
    Ok(())
}

/// The share of a device's memory that may be held: as it was set, or as the settings have it, or all.
pub(crate) fn fraction(device: u32) -> f64 {
    let set = FRACTIONS.lock().get(&device).copied();
    set.or(*CONFIGURED.lock()).unwrap_or(1.0)
}

/// Memory and history, with what was said for PyTorch where PyTorch's own snapshots have it: programs say it again.
pub(crate) fn snapshot() -> Result<Snapshot, Failure> {
    let mut snapshot = allocator()?.snapshot()?;
    let said = SAID.lock();
    let text = said.as_ref().map_or("", Overlay::text);
    snapshot.allocator_settings.insert("PYTORCH_CUDA_ALLOC_CONF".to_owned(), Setting::from(text));
    Ok(snapshot)
}
