//! Limits, and memory that goes back to the driver.

use regraph::engine::Emptied;

use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::Failure;
use crate::handles::REGRAPH_NO_LIMIT;

/// The result of regraph_empty_cache() and regraph_trim(), in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct regraph_emptied {
    /// Given back to the driver.
    pub released: u64,
    /// Free, but work that has not completed may still use it: it can be given back later.
    pub waiting: u64,
    /// Still held.
    pub reserved: u64,
    /// Zero. Later versions may give this a name.
    pub unused: u64,
}

copied! {
    Emptied => regraph_emptied { released, waiting, reserved; unused = 0 }
}

/// Sets the most memory that all pools together may hold, in bytes; REGRAPH_NO_LIMIT removes the
/// limit. Does not give memory back that is held already: see regraph_trim().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_set_memory_limit(
    engine: *const regraph_engine,
    bytes: u64,
) -> regraph_error {
    call!(engine, engine.set_memory_limit((bytes != REGRAPH_NO_LIMIT).then_some(bytes))?)
}

/// Sets the most memory that all pools together may hold, as a share of the device's memory from 0 to 1.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_INVALID_ARGUMENT; REGRAPH_ERROR_DRIVER, if it does not know the size of the device's memory.
#[no_mangle]
pub unsafe extern "C" fn regraph_set_memory_fraction(
    engine: *const regraph_engine,
    fraction: f64,
) -> regraph_error {
    call!(engine, {
        if !(0.0..=1.0).contains(&fraction) {
            let expected = "a share of the memory, from 0 to 1";
            return Err(Failure::argument("fraction", fraction, expected));
        }
        engine.set_memory_fraction(fraction)?
    })
}

/// The most memory that all pools together may hold, in bytes, or REGRAPH_NO_LIMIT.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_get_memory_limit(
    engine: *const regraph_engine,
    bytes: *mut u64,
) -> regraph_error {
    call!(engine, bytes = engine.memory_limit()?.unwrap_or(REGRAPH_NO_LIMIT))
}

/// Gives memory back to the driver that is completely free. Does not wait: memory that running work
/// may still use stays, and so does memory of graphs. `emptied` may be NULL.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_empty_cache(
    engine: *const regraph_engine,
    emptied: *mut regraph_emptied,
) -> regraph_error {
    // SAFETY: the contract of all calls.
    unsafe { regraph_trim(engine, 0, emptied) }
}

/// Gives memory back to the driver that is completely free, until no more than `keep` bytes are held;
/// memory that was unused longest goes first. Does not wait: memory that running work may still use
/// stays, and so does memory of graphs. `emptied` may be NULL.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_trim(
    engine: *const regraph_engine,
    keep: u64,
    emptied: *mut regraph_emptied,
) -> regraph_error {
    call!(engine, Some(emptied) = engine.trim(keep)?.into())
}
