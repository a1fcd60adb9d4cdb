//! Builds the C++ half of the hooks: what only C++ can say. Binds the library to glibc 2.28.

use std::env;

/// Functions that `src/glibc.rs` stands for.
const WRAPPED: &[&str] = &[
    "dladdr",
    "dladdr1",
    "dlclose",
    "dlerror",
    "dlopen",
    "dlsym",
    "fstat64",
    "gettid",
    "lstat64",
    "pthread_attr_getguardsize",
    "pthread_attr_getstack",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_detach",
    "pthread_getattr_np",
    "pthread_join",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setname_np",
    "pthread_setspecific",
    "stat64",
];

fn main() {
    println!("cargo::rerun-if-changed=src/shim.cpp");
    println!("cargo::rerun-if-changed=build.rs");
    cc::Build::new().cpp(true).std("c++17").warnings(true).file("src/shim.cpp").compile("shim");

    let is = |key: &str, value: &str| env::var(key).is_ok_and(|set| set == value);
    // The condition under which `src/lib.rs` has `src/glibc.rs`.
    if is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        for name in WRAPPED {
            println!("cargo::rustc-link-arg-cdylib=-Wl,--wrap={name}");
        }
        // Where some of the functions were before glibc 2.34.
        println!(
            "cargo::rustc-link-arg-cdylib=-Wl,--push-state,--no-as-needed,-l:libdl.so.2,\
             -l:libpthread.so.0,--pop-state"
        );
    }
}
