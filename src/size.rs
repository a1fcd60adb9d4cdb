//! Sizes in messages.

use std::fmt;

/// A number of bytes as people read it: in the largest unit that it has one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let Self(bytes) = *self;
        let power = bytes.max(1).ilog2() / 10;
        let unit = 1_u64 << (10 * power);
        match power.checked_sub(1).map(|row| UNITS[row as usize]) {
            None => write!(f, "{bytes} bytes"),
            Some(name) if bytes % unit == 0 => write!(f, "{} {name}", bytes / unit),
            Some(name) => write!(f, "{:.2} {name}", bytes as f64 / unit as f64),
        }
    }
}
