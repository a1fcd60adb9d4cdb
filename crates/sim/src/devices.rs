//! Devices of one simulated machine: what belongs to which, and who reaches whose memory.

use std::sync::atomic::{AtomicU64, Ordering};

use super::refusal::Fallible;
use super::{SimConfig, SimDriver, State};
use regraph::driver::StreamHandle;

/// More devices than any machine has.
const MOST: u32 = 64;

/// The devices that may touch a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach(u64);

impl Reach {
    /// One device alone.
    pub(super) fn of(device: u32) -> Self {
        Self(1 << device)
    }

    pub(super) fn and(self, device: u32) -> Self {
        Self(self.0 | 1 << device)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn holds(self, device: u32) -> bool {
        self.0 & 1 << device != 0
    }
}

impl State {
    pub(super) fn device_of_stream(&self, stream: StreamHandle) -> Fallible<u32> {
        Ok(self.streams[self.stream(stream)?].device)
    }
}

impl SimDriver {
    /// Puts one more device into the same machine and returns its driver. Streams, captures, graphs,
    /// events and the shadow of memory are the machine's; memory, its limit and the streams and
    /// events that a driver creates are its device's. Ordinals count up from 0.
    ///
    /// # Panics
    /// If the machine has 64 devices.
    pub fn add_device(&self, config: SimConfig) -> Self {
        let config = config.normal();
        let device = {
            let memory = &mut self.lock().memory;
            assert!(memory.devices() < MOST, "a simulated machine has at most {MOST} devices");
            memory.add_device(config)
        };
        Self {
            device,
            reach: AtomicU64::new(Reach::of(device).bits()),
            support: config.support,
            gates: self.gates.clone(),
            state: self.state.clone(),
        }
    }

    /// Lets other devices touch the memory that this driver hands out from now on, by their ordinals.
    ///
    /// # Panics
    /// If the machine has no such device.
    #[must_use]
    pub fn with_peers(self, devices: &[u32]) -> Self {
        let known = self.lock().memory.devices();
        for &device in devices {
            assert!(device < known, "the machine has {known} devices, none of ordinal {device}");
            self.reach.fetch_or(Reach::of(device).bits(), Ordering::Relaxed);
        }
        self
    }

    /// Who may touch what this driver hands out now.
    pub(super) fn reach(&self) -> Reach {
        Reach(self.reach.load(Ordering::Relaxed))
    }
}
