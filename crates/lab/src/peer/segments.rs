//! Segments of a fixed size, each one allocation of the driver's.

use super::layout::{Layout, Queue, State, Traffic};
use super::sizes;

/// Allocates a segment for a block, if there is room for it.
pub(super) fn grow(
    layout: &mut Layout,
    queue: Queue,
    bytes: u64,
    room: u64,
) -> Option<(u64, Traffic)> {
    let bytes = sizes::segment(bytes);
    if bytes > room {
        return None;
    }
    let address = layout.add_segment(bytes, queue, State::Free);
    Some((address, Traffic { bytes, calls: 1 }))
}

/// Gives back every segment that is one free chunk.
pub(super) fn release(layout: &mut Layout) -> Traffic {
    let mut given = Traffic::default();
    for address in layout.free() {
        if layout.before(address).is_none() && layout.behind(address).is_none() {
            given.bytes += layout.remove(address).bytes;
            given.calls += 1;
        }
    }
    given
}
