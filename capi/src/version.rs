//! Versions.

use std::ffi::{c_char, CStr};

/// The header's major version.
pub const REGRAPH_VERSION_MAJOR: u32 = 0;
/// The header's minor version.
pub const REGRAPH_VERSION_MINOR: u32 = 1;
/// The header's patch version.
pub const REGRAPH_VERSION_PATCH: u32 = 0;
/// The header's version as one number: major * 1000000 + minor * 1000 + patch.
pub const REGRAPH_VERSION: u32 = 1000;

const TEXT: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no nul"),
    };

/// The library's version as one number, to compare with REGRAPH_VERSION. Before 1.0.0 a library fits a header if major
/// and minor versions are the same; from then on if the major version is the same and the library is not older.
///
/// Threads: any.
#[no_mangle]
pub extern "C" fn regraph_version() -> u32 {
    REGRAPH_VERSION
}

/// The library's version as text, such as "0.1.0". The text is never freed.
///
/// Threads: any.
#[no_mangle]
pub extern "C" fn regraph_version_string() -> *const c_char {
    TEXT.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_packages() {
        let (major, minor, patch) =
            (REGRAPH_VERSION_MAJOR, REGRAPH_VERSION_MINOR, REGRAPH_VERSION_PATCH);
        assert_eq!(format!("{major}.{minor}.{patch}"), env!("CARGO_PKG_VERSION"));
        assert_eq!(REGRAPH_VERSION, major * 1_000_000 + minor * 1000 + patch);
    }
}
