//! Settings that change while the engine works.

use super::memory;
use super::{Engine, Error};
use crate::driver::Driver;
use crate::settings::{Rounding, Settings};
use crate::sync::{AtomicU64, Ordering};

/// The settings as they are now, and the bounds on memory that follow from them.
#[derive(Debug)]
pub(super) struct Tuning {
    /// As the configuration has them, but for what was changed since.
    settings: Settings,
    /// The most that all pools may hold, in bytes.
    limit: Option<u64>,
    /// The device's memory in bytes, once the driver has told it.
    device_bytes: Option<u64>,
}

impl Tuning {
    /// As settings have it, for a device with so much memory in all.
    pub(super) fn new(settings: Settings, total: Option<u64>) -> Self {
        let limit = memory::limit(&settings, total);
        Self { settings, limit, device_bytes: None }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The most that all pools may hold, in bytes.
    pub(super) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(super) fn set_limit(&mut self, bytes: Option<u64>) {
        self.limit = bytes;
    }

    /// The device's memory in bytes, if its driver tells.
    pub(super) fn device_bytes<D: Driver + ?Sized>(&mut self, driver: &D) -> Option<u64> {
        if self.device_bytes.is_none() {
            self.device_bytes = driver.memory_info().ok().map(|info| info.total);
        }
        self.device_bytes
    }

    /// Takes over what may change, for a device with so much memory in all.
    fn take(&mut self, settings: &Settings, total: Option<u64>) {
        let Self { settings: now, limit, .. } = self;
        let bounds = memory::limit(settings, total);
        if bounds != memory::limit(now, total) {
            *limit = bounds;
        }
        now.rounding = settings.rounding;
        now.garbage_collection_threshold = settings.garbage_collection_threshold;
        now.memory_fraction = settings.memory_fraction;
        now.memory_limit_bytes = settings.memory_limit_bytes;
        now.max_split_bytes = settings.max_split_bytes;
        now.max_non_split_rounding_bytes = settings.max_non_split_rounding_bytes;
        now.expandable_segments = settings.expandable_segments;
    }
}

/// How sizes are rounded, for calls without the engine's lock.
#[derive(Debug)]
pub(super) struct SharedRounding([AtomicU64; 2]);

impl SharedRounding {
    pub(super) fn new(rounding: Rounding) -> Self {
        Self(rounding.to_halves().map(AtomicU64::new))
    }

    #[inline]
    pub(super) fn get(&self) -> Rounding {
        let [low, high] = &self.0;
        Rounding::from_halves([low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)])
    }

    fn set(&self, rounding: Rounding) {
        for (half, bits) in self.0.iter().zip(rounding.to_halves()) {
            half.store(bits, Ordering::Relaxed);
        }
    }
}

impl<D: Driver> Engine<D> {
    /// Sets from now on what `settings` say of: how sizes are rounded, the garbage threshold, and the most
    /// that may be held; and for pools that are made later, which free blocks are split and whether segments
    /// grow. Nothing else of them counts. A size that is rounded in another thread meanwhile may be rounded by
    /// either.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn tune(&self, settings: &Settings) -> Result<(), Error> {
        let total = self.driver.memory_info().ok().map(|info| info.total);
        self.change(|locked| {
            locked.state.tuning.take(settings, total);
            self.rounding.set(settings.rounding);
            Ok(())
        })
    }
}
