//! The driver's codes as errors.

use std::ffi::CStr;

use super::super::{DriverError, ErrorKind};
use super::raw;
use super::symbols::Symbols;

/// The error that a driver code means.
#[cold]
pub(super) fn failure(symbols: &Symbols, call: &'static str, code: u32) -> DriverError {
    DriverError::new(call, code, kind(symbols, code))
}

/// An answer of the driver that makes no sense.
#[cold]
pub(super) fn nonsense(call: &'static str, what: &str) -> DriverError {
    DriverError::new(call, 0, ErrorKind::Other(what.to_owned()))
}

fn kind(symbols: &Symbols, code: u32) -> ErrorKind {
    known(code).unwrap_or_else(|| {
        ErrorKind::Other(format!(
            "{}: {}",
            text(symbols.error_name, code),
            text(symbols.error_string, code)
        ))
    })
}

fn known(code: u32) -> Option<ErrorKind> {
    Some(match code {
        1 => ErrorKind::InvalidValue,
        2 => ErrorKind::OutOfMemory,
        34 => ErrorKind::NoDriver("the libcuda found is a stub for linking".to_owned()),
        402 => ErrorKind::LossyQuery,
        raw::CONTEXT_IS_DESTROYED => ErrorKind::ContextDestroyed,
        800 => ErrorKind::NotPermitted,
        801 => ErrorKind::NotSupported,
        900 => ErrorKind::CaptureUnsupported,
        901 => ErrorKind::CaptureInvalidated,
        902 => ErrorKind::CaptureMerge,
        904 => ErrorKind::CaptureUnjoined,
        905 => ErrorKind::CaptureIsolation,
        906 => ErrorKind::CaptureImplicit,
        907 => ErrorKind::CapturedEvent,
        908 => ErrorKind::CaptureWrongThread,
        910 => ErrorKind::UpdateRefused,
        _ => return None,
    })
}

fn text(ask: unsafe extern "C" fn(u32, *mut *const std::ffi::c_char) -> u32, code: u32) -> String {
    let mut answer = std::ptr::null();
    // SAFETY: both functions that come here take any code and write one pointer.
    let status = unsafe { ask(code, &mut answer) };
    if status != 0 || answer.is_null() {
        return format!("unknown driver error {code}");
    }
    // SAFETY: on success the driver gave a static, nul-terminated string.
    unsafe { CStr::from_ptr(answer) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn silent(_: u32, _: *mut *const std::ffi::c_char) -> u32 {
        1
    }

    #[test]
    fn unknown_codes_have_a_text() {
        assert_eq!(text(silent, 4711), "unknown driver error 4711");
        assert_eq!(known(4711), None);
    }

    #[test]
    fn capture_codes_are_told_apart() {
        assert_eq!(known(906), Some(ErrorKind::CaptureImplicit));
        assert_eq!(known(903), None);
        assert_eq!(known(402), Some(ErrorKind::LossyQuery));
    }
}
