//! The process's allocator: one, from its start to the end of the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use regraph::driver::cuda::CudaDriver;
use regraph::engine::Config;
use regraph_plugin::{Error, Plugin};

use crate::hooks::Failure;

static ALLOCATOR: OnceLock<Plugin<CudaDriver>> = OnceLock::new();

/// The share that the settings allow of every device.
static CONFIGURED: OnceLock<f64> = OnceLock::new();

/// How many events the settings have histories keep, and whether with stacks of native code.
static HISTORY: OnceLock<(usize, bool)> = OnceLock::new();

/// The shares of devices that were set, by device.
static FRACTIONS: Mutex<BTreeMap<u32, f64>> = Mutex::new(BTreeMap::new());

/// The allocator, once it was started.
#[inline]
pub(crate) fn allocator() -> Result<&'static Plugin<CudaDriver>, Failure> {
    ALLOCATOR.get().ok_or_else(|| Failure {
        memory: false,
        message: "regraph was not started: call regraph.torch.enable()".to_owned(),
    })
}

/// Starts the allocator; false where that was done before.
pub(crate) fn start(config: Config) -> bool {
    // Set before the allocator can be used.
    let _ = CONFIGURED.set(config.settings.memory_fraction.unwrap_or(1.0));
    let _ = HISTORY.set((config.settings.history, config.settings.stacks));
    // SAFETY: handles are given to calls while what they name lives, and graphs run while what
    // they use does.
    ALLOCATOR.set(Plugin::new(config, |device| unsafe { CudaDriver::new(device as usize) })).is_ok()
}

/// How many events the settings have histories keep, and whether with stacks of native code.
pub(crate) fn history_settings() -> (usize, bool) {
    HISTORY.get().copied().unwrap_or((0, false))
}

pub(crate) fn set_fraction(device: u32, fraction: f64) -> Result<(), Failure> {
    let set: Result<(), Error> = allocator()?.set_memory_fraction(fraction, device);
    set?;
    fractions().insert(device, fraction);
    Ok(())
}

/// The share of a device's memory that may be held: as it was set, or as the settings have it, or all.
pub(crate) fn fraction(device: u32) -> f64 {
    let set = fractions().get(&device).copied();
    set.or_else(|| CONFIGURED.get().copied()).unwrap_or(1.0)
}

fn fractions() -> std::sync::MutexGuard<'static, BTreeMap<u32, f64>> {
    // No step leaves the table half changed.
    FRACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}
