//! What calls cost in steps: for tests of what must not cost more.

use std::cell::Cell;

thread_local! {
    static SPENT: Cell<u64> = const { Cell::new(0) };
}

/// Counts steps of this thread, in builds with debug assertions.
#[inline(always)]
pub fn spend(steps: usize) {
    if cfg!(debug_assertions) {
        SPENT.set(SPENT.get() + steps as u64);
    }
}

/// How many steps this thread has counted.
pub fn spent() -> u64 {
    SPENT.get()
}
