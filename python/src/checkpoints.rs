//! Checkpoints of pools, as the allocator class in `regraph/torch/cxx` asks for them for PyTorch's CUDA graph trees.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

use regraph::engine::Checkpoint;

use crate::allocator::allocator;
use crate::hooks::{number, or_throw, unlocked};

/// Is told of an address, with what its caller handed over; may throw.
type Each = extern "C-unwind" fn(context: *mut c_void, address: *mut c_void);

/// The functions' addresses by their names.
pub(crate) fn addresses() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([
        ("checkpoint_take", take as extern "C-unwind" fn(c_int, u64, u64) -> *mut c_void as usize),
        ("checkpoint_drop", drop_checkpoint as unsafe extern "C" fn(*mut c_void) as usize),
        (
            "checkpoint_restore",
            restore
                as unsafe extern "C-unwind" fn(
                    c_int,
                    u64,
                    u64,
                    *const c_void,
                    *mut c_void,
                    Each,
                    Each,
                ) as usize,
        ),
        (
            "pool_live",
            pool_live as extern "C-unwind" fn(c_int, u64, u64, *mut c_void, Each) as usize,
        ),
    ])
}

/// A checkpoint of a pool, to be given back to [`drop_checkpoint`].
extern "C-unwind" fn take(device: c_int, first: u64, second: u64) -> *mut c_void {
    let taken = unlocked(|| Ok(allocator()?.checkpoint(number(device), (first, second))?));
    Box::into_raw(Box::new(or_throw(taken))).cast()
}

/// # Safety
/// `checkpoint` came from [`take`] and was not given back before.
unsafe extern "C" fn drop_checkpoint(checkpoint: *mut c_void) {
    // SAFETY: as above.
    let checkpoint = unsafe { Box::from_raw(checkpoint.cast::<Checkpoint>()) };
    // Nothing of Rust's unwinds out of a destructor.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(checkpoint)));
}

/// Goes back to a checkpoint. `freed` is told each address where a block was live before, then `live`
/// each where one is now.
///
/// # Safety
/// `checkpoint` came from [`take`] and was not given back yet.
unsafe extern "C-unwind" fn restore(
    device: c_int,
    first: u64,
    second: u64,
    checkpoint: *const c_void,
    context: *mut c_void,
    freed: Each,
    live: Each,
) {
    // SAFETY: as above.
    let checkpoint = unsafe { &*checkpoint.cast::<Checkpoint>() };
    let restored =
        unlocked(|| Ok(allocator()?.restore(number(device), (first, second), checkpoint)?));
    let restored = or_throw(restored);
    // Outside `guarded`: what these throw is C++'s.
    tell_each(&restored.freed, context, freed);
    tell_each(&restored.live, context, live);
}

/// Tells where blocks of a pool are live.
extern "C-unwind" fn pool_live(
    device: c_int,
    first: u64,
    second: u64,
    context: *mut c_void,
    each: Each,
) {
    let live = unlocked(|| Ok(allocator()?.live_in_pool(number(device), (first, second))?));
    tell_each(&or_throw(live), context, each);
}

fn tell_each(addresses: &[u64], context: *mut c_void, each: Each) {
    for &address in addresses {
        each(context, address as *mut c_void);
    }
}
