//! Names the shared library, so that programs find the version that they were linked to.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of = |name: &str| env::var(name).unwrap_or_default();
    if of("CARGO_CFG_TARGET_OS") != "linux" {
        return;
    }
    // Before 1.0.0 a minor version breaks what the one before had.
    let version = match of("CARGO_PKG_VERSION_MAJOR").as_str() {
        "0" => format!("0.{}", of("CARGO_PKG_VERSION_MINOR")),
        major => major.to_owned(),
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libregraph_c.so.{version}");
}
