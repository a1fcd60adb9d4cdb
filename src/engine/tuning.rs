//! Settings that change while the engine works.

use super::memory;
use super::{Engine, Error};
use crate::driver::Driver;
use crate::settings::{Rounding, Settings};
use crate::sync::{AtomicU64, Ordering};

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
            let now = &mut locked.state.settings;
            let limit = memory::limit(settings, total);
            if limit != memory::limit(now, total) {
                locked.state.limit = limit;
            }
            now.rounding = settings.rounding;
            now.garbage_collection_threshold = settings.garbage_collection_threshold;
            now.memory_fraction = settings.memory_fraction;
            now.memory_limit_bytes = settings.memory_limit_bytes;
            now.max_split_bytes = settings.max_split_bytes;
            now.max_non_split_rounding_bytes = settings.max_non_split_rounding_bytes;
            now.expandable_segments = settings.expandable_segments;
            self.rounding.set(settings.rounding);
            Ok(())
        })
    }
}
