//! What a look-up among devices fails with.

use thiserror::Error;

use crate::driver::{CaptureId, DriverError, StreamHandle};
use crate::engine;

/// What a call about several devices failed with. Unless it says otherwise, nothing has changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is an engine of this device.
    #[error("device {device} has an engine already; one device has one engine here")]
    Taken {
        /// The device.
        device: u32,
    },
    /// The engine is said to be of another device than its driver.
    #[error(
        "the engine is configured for device {configured}, but its driver drives device {driven}; \
         make it with Config::device({driven})"
    )]
    OtherDevice {
        /// What the engine's configuration says.
        configured: u32,
        /// What its driver says.
        driven: u32,
    },
    /// There is no engine at all.
    #[error("there are no engines here; add one for each device first")]
    NoEngine,
    /// There is no engine of this device.
    #[error("device {device} has no engine here; make one on a driver of that device and add it")]
    UnknownDevice {
        /// The device.
        device: u32,
    },
    /// A default stream has the same handle on all devices.
    #[error(
        "{stream:?} is a default stream, and every device has one of this handle; say which device \
         is meant (Devices::of_device), or use a stream that was created"
    )]
    DefaultStream {
        /// The stream.
        stream: StreamHandle,
    },
    /// The address belongs to no engine.
    #[error(
        "{address:#x} lies in the memory of no engine here; it was given back to the driver, or \
         came from elsewhere"
    )]
    UnknownAddress {
        /// The address.
        address: u64,
    },
    /// No engine takes part in the capture.
    #[error(
        "{call}: capture {} is under way in no engine here; it has ended, was abandoned, or never \
         allocated",
        .capture.0
    )]
    UnknownCapture {
        /// The call.
        call: &'static str,
        /// The capture.
        capture: CaptureId,
    },
    /// The engine of one device refused.
    #[error("device {device}: {error}")]
    Engine {
        /// The device.
        device: u32,
        /// What it said.
        #[source]
        error: Box<engine::Error>,
    },
    /// The driver refused a question.
    #[error(transparent)]
    Driver(#[from] DriverError),
}
