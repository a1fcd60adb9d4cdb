//! Blocks that have not been freed.

use std::ffi::c_char;

use regraph::engine::Leak;

use crate::arguments::give;
use crate::engine::regraph_engine;
use crate::error::regraph_error;
use crate::handles::{raw_stream, regraph_block_id, regraph_pool, regraph_stream};
use crate::rows::Rows;

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
pub struct regraph_leak_list(Rows<regraph_leak>);

impl regraph_leak_list {
    fn new(leaks: &[Leak]) -> Self {
        let mut list = Rows::new();
        for leak in leaks {
            let text = list.text(leak.to_string());
            list.push(regraph_leak {
                block: leak.block.into(),
                address: leak.address,
                bytes: leak.bytes,
                stream: raw_stream(leak.stream),
                text,
                pool: leak.pool.id.into(),
            });
        }
        Self(list)
    }
}

/// Lists every block that has not been freed. `leaks` gets a list to be destroyed with regraph_leak_list_destroy().
///
/// Threads: any.
///
/// Errors: REGRAPH_ERROR_NULL, REGRAPH_ERROR_POISONED.
#[no_mangle]
pub unsafe extern "C" fn regraph_get_leaks(
    engine: *const regraph_engine,
    leaks: *mut *mut regraph_leak_list,
) -> regraph_error {
    call!(engine, leaks = give(regraph_leak_list::new(&engine.leaks()?)))
}

/// The number of blocks of a list; 0 for NULL.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_leak_list_count(leaks: *const regraph_leak_list) -> usize {
    count!(leaks)
}

/// One block of a list, by its index from 0. Lives as long as the list; NULL for NULL and for an index beyond the end.
///
/// Threads: any.
#[no_mangle]
pub unsafe extern "C" fn regraph_leak_list_get(
    leaks: *const regraph_leak_list,
    index: usize,
) -> *const regraph_leak {
    row!(leaks, index)
}

/// Destroys a list. Does nothing for NULL.
///
/// Threads: any, while no other call uses the list.
#[no_mangle]
pub unsafe extern "C" fn regraph_leak_list_destroy(leaks: *mut regraph_leak_list) {
    destroy!(leaks)
}
