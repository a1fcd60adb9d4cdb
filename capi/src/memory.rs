//! Limits, and memory that goes back to the driver.

use regraph::engine::Emptied;

use crate::arguments::{put_if_wanted, Out};
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{guard, Failure};
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

impl From<Emptied> for regraph_emptied {
    fn from(emptied: Emptied) -> Self {
        let Emptied { released, waiting, reserved, .. } = emptied;
        Self { released, waiting, reserved, unused: 0 }
    }
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
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let limit = (bytes != REGRAPH_NO_LIMIT).then_some(bytes);
        Ok(on!(engine, engine => engine.set_memory_limit(limit))?)
    })
}

/// Sets the most memory that all pools together may hold, as a share of the device's memory from 0
/// to 1.
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_INVALID_ARGUMENT; REGRAPH_ERROR_DRIVER, if it does not know the size of
/// the device's memory.
#[no_mangle]
pub unsafe extern "C" fn regraph_set_memory_fraction(
    engine: *const regraph_engine,
    fraction: f64,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        if !(0.0..=1.0).contains(&fraction) {
            let (found, expected) = (fraction.to_string(), "a share of the memory, from 0 to 1");
            return Err(Failure::Argument { argument: "fraction", found, expected });
        }
        Ok(on!(engine, engine => engine.set_memory_fraction(fraction))?)
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
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) =
            unsafe { (regraph_engine::read(engine)?, Out::needed(bytes, "bytes")?) };
        out.put(on!(engine, engine => engine.memory_limit())?.unwrap_or(REGRAPH_NO_LIMIT));
        Ok(())
    })
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
    guard(|| {
        // SAFETY: the contract of all calls.
        let engine = unsafe { regraph_engine::read(engine) }?;
        let told = on!(engine, engine => engine.trim(keep))?;
        // SAFETY: the contract of all calls.
        unsafe { put_if_wanted(emptied, told.into()) };
        Ok(())
    })
}
