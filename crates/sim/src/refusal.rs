//! How the simulated parts refuse a call, before it is known which call it was.

use regraph::driver::{DriverError, ErrorKind};

/// A kind with the driver's code.
#[derive(Debug)]
pub(super) struct Refusal {
    code: u32,
    kind: ErrorKind,
}

pub(super) type Fallible<T> = Result<T, Refusal>;

impl Refusal {
    /// A stream that captures already, or does not capture.
    pub(super) fn illegal_state() -> Self {
        Self { code: 401, kind: ErrorKind::NotPermitted }
    }

    /// A capture that began in another stream.
    pub(super) fn unmatched() -> Self {
        Self {
            code: 903,
            kind: ErrorKind::Other("the capture did not begin in this stream".into()),
        }
    }

    /// A stream with something of another device.
    pub(super) fn invalid_handle() -> Self {
        Self { code: 400, kind: ErrorKind::Other("invalid resource handle".into()) }
    }

    /// A kernel that touched memory it may not touch.
    pub(super) fn illegal_address() -> Self {
        Self {
            code: 700,
            kind: ErrorKind::Other("an illegal memory access was encountered".into()),
        }
    }

    /// The error of the call named `call`.
    #[cold]
    pub(super) fn of(self, call: &'static str) -> DriverError {
        DriverError::new(call, self.code, self.kind)
    }
}

impl From<ErrorKind> for Refusal {
    #[cold]
    fn from(kind: ErrorKind) -> Self {
        let code = match kind {
            ErrorKind::InvalidValue => 1,
            ErrorKind::OutOfMemory => 2,
            ErrorKind::NoDriver(_) => 100,
            ErrorKind::LossyQuery => 402,
            ErrorKind::MissingFunction(_) => 500,
            ErrorKind::NotPermitted => 800,
            ErrorKind::NotSupported => 801,
            ErrorKind::CaptureUnsupported => 900,
            ErrorKind::CaptureInvalidated => 901,
            ErrorKind::CaptureMerge => 902,
            ErrorKind::CaptureUnjoined => 904,
            ErrorKind::CaptureIsolation => 905,
            ErrorKind::CaptureImplicit => 906,
            ErrorKind::CapturedEvent => 907,
            ErrorKind::CaptureWrongThread => 908,
            ErrorKind::UpdateRefused => 910,
            // `Other`, and kinds that the simulated driver never gives.
            _ => 999,
        };
        Self { code, kind }
    }
}
