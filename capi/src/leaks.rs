//! Blocks that have not been freed.

use std::ffi::{c_char, CString};

use regraph::engine::Leak;

use crate::arguments::{give, take_back, Out};
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::failure::{c_text, guard, or_default};
use crate::handles::{raw_stream, regraph_block_id, regraph_pool, regraph_stream};

/// A block that has not been freed. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct regraph_leak {
    /// The block.
    pub block: regraph_block_id,
    /// Its device address.
    pub address: u64,
    /// The size that was requested, in bytes.
    pub bytes: u64,
    /// Its stream.
    pub stream: regraph_stream,
    /// All of this in words, with the host's stack frames at the allocation, innermost first, if
    /// stacks are recorded (the setting "stacks:True"). Lives as long as the list.
    pub text: *const c_char,
    /// Its pool.
    pub pool: regraph_pool,
}

/// The live blocks at one time, in order of addresses.
#[derive(Debug)]
pub struct regraph_leak_list {
    leaks: Vec<regraph_leak>,
    /// The texts that the leaks point to.
    _texts: Vec<CString>,
}

impl regraph_leak_list {
    fn new(leaks: &[Leak]) -> Self {
        let texts: Vec<_> = leaks.iter().map(|leak| c_text(leak.to_string())).collect();
        let leak = |(leak, text): (&Leak, &CString)| regraph_leak {
            block: leak.block.into(),
            address: leak.address,
            bytes: leak.bytes,
            stream: raw_stream(leak.stream),
            text: text.as_ptr(),
            pool: leak.pool.id.into(),
        };
        Self { leaks: leaks.iter().zip(&texts).map(leak).collect(), _texts: texts }
    }
}

/// Lists every block that has not been freed. `leaks` gets a list to be destroyed with
/// regraph_leak_list_destroy().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_get_leaks(
    engine: *const regraph_engine,
    leaks: *mut *mut regraph_leak_list,
) -> regraph_error {
    guard(|| {
        // SAFETY: the contract of all calls.
        let (engine, out) =
            unsafe { (regraph_engine::read(engine)?, Out::needed(leaks, "leaks")?) };
        let found = on!(engine, engine => engine.leaks())?;
        out.put(give(regraph_leak_list::new(&found)));
        Ok(())
    })
}

/// The number of blocks of a list; 0 for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_leak_list_count(leaks: *const regraph_leak_list) -> usize {
    // SAFETY: the contract of all calls.
    unsafe { leaks.as_ref() }.map_or(0, |leaks| leaks.leaks.len())
}

/// One block of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an
/// index beyond the end.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_leak_list_get(
    leaks: *const regraph_leak_list,
    index: usize,
) -> *const regraph_leak {
    // SAFETY: the contract of all calls.
    let leak = unsafe { leaks.as_ref() }.and_then(|leaks| leaks.leaks.get(index));
    leak.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Destroys a list. Does nothing for NULL.
///
/// Threads: any, while no other call uses the list.
#[no_mangle]
pub unsafe extern "C" fn regraph_leak_list_destroy(leaks: *mut regraph_leak_list) {
    // SAFETY: the contract of all calls.
    or_default(|| unsafe { take_back(leaks) });
}
