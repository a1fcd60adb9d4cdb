//! Keeps the library loadable with glibc 2.28, also when a machine with a newer glibc builds it.
//!
//! A linker binds each function to the newest version that the building machine's glibc has. Some
//! functions that Rust's standard library calls were given a new version in glibc 2.29 to 2.34
//! although they work as before. `build.rs` has the linker send the calls of them here
//! (`--wrap`), and from here they go to the version that every glibc has, with all arguments as they
//! are. Without an old version there is one of the kernel's or an older function that does the same.
//!
//! maturin refuses a wheel for glibc 2.28 whose library needs a newer one, and names the functions:
//! those belong here and in `build.rs` then.

use std::arch::global_asm;

/// A jump to the version of a function that every glibc has on x86-64.
macro_rules! old_version {
    ($version:literal: $($name:literal)*) => {
        $(global_asm!(
            concat!(".symver regraph_old_", $name, ", ", $name, "@GLIBC_", $version),
            concat!(".globl __wrap_", $name),
            concat!(".hidden __wrap_", $name),
            concat!(".type __wrap_", $name, ", @function"),
            concat!("__wrap_", $name, ":"),
            concat!("jmp *regraph_old_", $name, "@GOTPCREL(%rip)"),
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            options(att_syntax)
        );)*
    };
}

old_version! { "2.12": "pthread_setname_np" }

old_version! { "2.3.3": "dladdr1" }

old_version! {
    "2.2.5":
    "dladdr" "dlclose" "dlerror" "dlopen" "dlsym"
    "pthread_attr_getguardsize" "pthread_attr_getstack" "pthread_attr_setstacksize" "pthread_create"
    "pthread_detach" "pthread_getattr_np" "pthread_join"
    "pthread_key_create" "pthread_key_delete" "pthread_setspecific"
}

/// `stat64` and its like, which were static functions before glibc 2.33: they called these, with the
/// number of the structure's layout before the other arguments.
macro_rules! old_stat {
    ($($name:literal by $old:literal)*) => {
        $(global_asm!(
            concat!(".symver regraph_old_", $name, ", ", $old, "@GLIBC_2.2.5"),
            concat!(".globl __wrap_", $name),
            concat!(".hidden __wrap_", $name),
            concat!(".type __wrap_", $name, ", @function"),
            concat!("__wrap_", $name, ":"),
            "movq %rsi, %rdx",
            "movq %rdi, %rsi",
            "movl $1, %edi",
            concat!("jmp *regraph_old_", $name, "@GOTPCREL(%rip)"),
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            options(att_syntax)
        );)*
    };
}

old_stat! {
    "fstat64" by "__fxstat64"
    "lstat64" by "__lxstat64"
    "stat64" by "__xstat64"
}

// New in glibc 2.30: system call 186.
global_asm!(
    ".globl __wrap_gettid",
    ".hidden __wrap_gettid",
    ".type __wrap_gettid, @function",
    "__wrap_gettid:",
    "movl $186, %eax",
    "syscall",
    "ret",
    ".size __wrap_gettid, . - __wrap_gettid",
    options(att_syntax)
);
