//! What belongs to an engine.

use super::Engine;
use crate::driver::Driver;
use crate::sync::PoisonError;

impl<D: Driver> Engine<D> {
    /// The device's number, as its configuration has it.
    pub fn device(&self) -> u32 {
        self.config.device
    }

    /// Whether an address lies in memory of one of the engine's pools, or in addresses that one has
    /// reserved, whoever uses them now. Asks no driver; costs a comparison for each segment.
    pub fn owns(&self, address: u64) -> bool {
        // A poisoned engine hands nothing out, but what it had it still has.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = state.pools.heaps().any(|heap| heap.owns(address));
        owned
    }
}
