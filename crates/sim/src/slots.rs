//! Handles are slot numbers: a base plus a multiple, so that looking one up is arithmetic.

use regraph::driver::{EventHandle, ExecutableHandle, GraphHandle, NodeHandle, StreamHandle};

const STREAMS: (usize, usize) = (0x1000_0000, 16);
const GRAPHS: (usize, usize) = (0x2000_0000, 64);
const EVENTS: (usize, usize) = (0x3000_0000, 16);
/// Nodes lie so far apart on an H200, whose handles are multiples of 8 and no more.
const NODES: (usize, usize) = (0x100_0000_0000, 1896);
const EXECUTABLES: (usize, usize) = (0x5000_0000, 64);

/// The slot of the legacy stream, whose handle is zero.
pub(super) const LEGACY: usize = 0;

/// The slot of the per-thread default stream, whose handle is two.
const PER_THREAD: usize = 1;
/// The slots of created streams begin here.
pub(super) const CREATED: usize = 2;

/// What no slot vector is long enough for.
const NOWHERE: usize = usize::MAX;

fn bits(slot: usize, (base, stride): (usize, usize)) -> usize {
    base + slot * stride
}

#[inline]
fn slot(bits: usize, (base, stride): (usize, usize)) -> usize {
    // A handle below the base wraps round to a slot that cannot exist.
    let offset = bits.wrapping_sub(base);
    if offset % stride == 0 {
        offset / stride
    } else {
        NOWHERE
    }
}

pub(super) fn stream(slot: usize) -> StreamHandle {
    StreamHandle::from_bits(match slot {
        LEGACY => 0,
        PER_THREAD => 2,
        created => bits(created - CREATED, STREAMS),
    })
}

#[inline]
pub(super) fn of_stream(handle: StreamHandle) -> usize {
    match handle.bits() {
        0 => LEGACY,
        2 => PER_THREAD,
        created => slot(created, STREAMS).saturating_add(CREATED),
    }
}

pub(super) fn graph(slot: usize) -> GraphHandle {
    GraphHandle::from_bits(bits(slot, GRAPHS))
}

pub(super) fn of_graph(handle: GraphHandle) -> usize {
    slot(handle.bits(), GRAPHS)
}

pub(super) fn event(slot: usize) -> EventHandle {
    EventHandle::from_bits(bits(slot, EVENTS))
}

pub(super) fn of_event(handle: EventHandle) -> usize {
    slot(handle.bits(), EVENTS)
}

pub(super) fn node(slot: usize) -> NodeHandle {
    NodeHandle::from_bits(bits(slot, NODES))
}

#[inline]
pub(super) fn of_node(handle: NodeHandle) -> usize {
    slot(handle.bits(), NODES)
}

pub(super) fn executable(slot: usize) -> ExecutableHandle {
    ExecutableHandle(bits(slot, EXECUTABLES))
}

pub(super) fn of_executable(handle: ExecutableHandle) -> usize {
    slot(handle.0, EXECUTABLES)
}

/// A slot number in the four bytes that the tables keep it in.
pub(super) fn short(slot: usize) -> u32 {
    u32::try_from(slot).expect("a simulated driver makes fewer than 2^32 of anything")
}
