//! The parts of the `regraph` command: they run traces, and draw what they came to.
#![forbid(unsafe_code)]

pub mod advice;
pub mod pickle;
pub mod plot;
pub mod replay;
#[cfg(feature = "command")]
#[doc(hidden)]
pub mod shell;

/// Bytes in MiB, for columns and lines whose figures have one unit; others print a `regraph::Size`.
pub fn mebibytes(bytes: i128) -> f64 {
    // Not -0.00.
    bytes as f64 / f64::from(1 << 20) + 0.0
}
