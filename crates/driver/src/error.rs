//! Errors of the driver seam.

use thiserror::Error;

/// What a driver call failed with, by the call's name and the driver's own code.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{call} failed: {kind}{}{}", answered(*.code), advice(.kind))]
pub struct DriverError {
    /// The driver's name of the call, such as `cuMemCreate`.
    pub call: &'static str,
    /// The driver's error code; zero where the call never reached a driver.
    pub code: u32,
    /// What the code means, where the engine tells codes apart.
    pub kind: ErrorKind,
}

/// Failures that callers tell apart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device has no more memory.
    #[error("out of device memory")]
    OutOfMemory,
    /// An argument was refused.
    #[error("invalid value")]
    InvalidValue,
    /// The device or driver cannot do this.
    #[error("not supported")]
    NotSupported,
    /// The call is not allowed now.
    #[error("not permitted")]
    NotPermitted,
    /// An edge carries data that the query could not return.
    #[error("the query would lose edge data")]
    LossyQuery,
    /// The call is not allowed while capturing.
    #[error("not supported while a stream captures")]
    CaptureUnsupported,
    /// The capture was ruined by an invalid operation.
    #[error("the capture is invalidated")]
    CaptureInvalidated,
    /// Two captures would be merged.
    #[error("two captures would merge")]
    CaptureMerge,
    /// A forked stream has not rejoined the stream that began the capture.
    #[error("a forked stream has not rejoined")]
    CaptureUnjoined,
    /// A dependency would cross the capture's boundary.
    #[error("a dependency crosses the capture's boundary")]
    CaptureIsolation,
    /// The legacy stream was touched while a blocking stream captures.
    #[error("the legacy stream would join a capture")]
    CaptureImplicit,
    /// A default stream is named while another context of the device is current, whose stream the handle means then.
    #[error("a default stream is one of the current context, which is another one of this device, such as a green context")]
    OtherContext,
    /// The stream's context is destroyed, so nothing can be asked of the stream any more, nor recorded on it.
    #[error("the stream's context is destroyed")]
    ContextDestroyed,
    /// An event recorded in a capture was asked about outside it.
    #[error("the event was recorded in a capture")]
    CapturedEvent,
    /// The capture is ended by a thread that did not begin it.
    #[error("wrong thread for this capture")]
    CaptureWrongThread,
    /// An executable cannot be updated by a graph that differs in more than an update changes. The executable is as it was.
    #[error("the executable cannot be updated by this graph")]
    UpdateRefused,
    /// There is no driver on this machine.
    #[error("no CUDA driver: {0}")]
    NoDriver(String),
    /// The driver lacks a function.
    #[error("the CUDA driver has no function {0}")]
    MissingFunction(&'static str),
    /// Anything else; the text is the driver's.
    #[error("{0}")]
    Other(String),
}

/// The code, where a driver has answered.
fn answered(code: u32) -> String {
    match code {
        0 => String::new(),
        code => format!(" (driver code {code})"),
    }
}

fn advice(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NoDriver(_) => {
            "; install an NVIDIA driver (libcuda.so.1 must be loadable) or use the simulated driver"
        }
        ErrorKind::OtherContext => {
            "; make the device's primary context current, or use a stream that was created"
        }
        // The first of the table that a driver from before 12.3 lacks.
        ErrorKind::MissingFunction("cuStreamGetCaptureInfo_v3") => {
            "; a driver for CUDA 12.3 or newer is needed"
        }
        ErrorKind::MissingFunction("cuCtxRecordEvent") => {
            "; a driver for CUDA 12.5 or newer is needed"
        }
        _ => "",
    }
}

impl DriverError {
    /// A failure of `call`.
    pub fn new(call: &'static str, code: u32, kind: ErrorKind) -> Self {
        Self { call, code, kind }
    }

    /// Whether the device ran out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.kind == ErrorKind::OutOfMemory
    }
}

#[cfg(test)]
mod tests {
    use super::{DriverError, ErrorKind};

    #[test]
    fn a_missing_function_names_the_version_that_has_it() {
        let told = |name| DriverError::new(name, 0, ErrorKind::MissingFunction(name)).to_string();
        assert!(told("cuStreamGetCaptureInfo_v3").contains("CUDA 12.3"));
        assert!(told("cuCtxRecordEvent").contains("CUDA 12.5"));
        assert!(!told("cuCtxCreate_v4").contains("CUDA 12"), "of others it is not known");
    }
}
