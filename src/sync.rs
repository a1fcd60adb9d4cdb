//! Locks, atomics and threads: the standard library's, or shuttle's with `--cfg shuttle`.
//!
//! Shuttle runs a test again and again with its threads interleaved at random. It sees only what
//! goes through its own types, so everything that threads share is built from these. They work
//! inside shuttle's runs alone: an ordinary test cannot run in a build for shuttle.

#![allow(unused_imports, reason = "one set for all, of which not every part is in use")]

#[cfg(shuttle)]
use shuttle::sync;
#[cfg(not(shuttle))]
use std::sync;

#[cfg(shuttle)]
pub use shuttle::thread;
#[cfg(not(shuttle))]
pub use std::thread;

pub use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use sync::{Condvar, LockResult, Mutex, MutexGuard, PoisonError};

/// Whether a thread panicked with the lock held. Under shuttle such a panic ends the run.
#[inline]
pub fn is_poisoned<T>(mutex: &Mutex<T>) -> bool {
    #[cfg(shuttle)]
    let poisoned = {
        let _ = mutex;
        false
    };
    #[cfg(not(shuttle))]
    let poisoned = mutex.is_poisoned();
    poisoned
}
