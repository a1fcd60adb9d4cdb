//! Memory that other processes and devices use, as the allocator class in `regraph/torch/cxx` asks for it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use regraph_plugin::OpenedId;

use crate::allocator::allocator;
use crate::hooks::{number, or_throw, tell, unlocked};

/// Is handed bytes, with what its caller handed over; may throw.
type Keep = extern "C-unwind" fn(context: *mut c_void, bytes: *const u8, length: usize);

/// The functions' addresses by their names.
pub(crate) fn addresses() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([
        ("share", share as extern "C-unwind" fn(*mut c_void, *mut c_void, Keep) -> usize as usize),
        (
            "open_shared",
            open as unsafe extern "C-unwind" fn(c_int, *const u8, usize, *mut u64) -> *mut c_void
                as usize,
        ),
        ("close_shared", close as extern "C" fn(u64) as usize),
        ("peer_access", peer_access as extern "C-unwind" fn(c_int, c_int) as usize),
    ])
}

/// Tells the handle of the memory that a block lies in; returns where in it the block begins.
extern "C-unwind" fn share(address: *mut c_void, context: *mut c_void, keep: Keep) -> usize {
    let address = address as u64;
    let shared = unlocked(|| Ok(allocator()?.share(address)?));
    let shared = or_throw(shared);
    // Outside `unlocked`: what this throws is C++'s.
    keep(context, shared.handle.as_ptr(), shared.handle.len());
    shared.offset as usize
}

/// Maps the memory that a handle names, and names it for [`close`].
///
/// # Safety
/// `bytes` are `length` bytes, and `opened` can be written.
unsafe extern "C-unwind" fn open(
    device: c_int,
    bytes: *const u8,
    length: usize,
    opened: *mut u64,
) -> *mut c_void {
    // SAFETY: as above; a string's bytes are never at null.
    let handle = unsafe { std::slice::from_raw_parts(bytes, length) };
    let memory = or_throw(unlocked(|| Ok(allocator()?.open_shared(number(device), handle)?)));
    // SAFETY: as above.
    unsafe { opened.write(memory.id.number()) };
    memory.address as *mut c_void
}

/// Says that memory which was opened is not used any more.
extern "C" fn close(opened: u64) {
    tell(unlocked(|| Ok(allocator()?.close_shared(OpenedId::from_number(opened))?)));
}

/// Lets a device at the memory of another.
extern "C-unwind" fn peer_access(device: c_int, to: c_int) {
    or_throw(unlocked(|| Ok(allocator()?.peer_access(number(device), number(to))?)));
}
