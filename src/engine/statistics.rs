//! Figures of memory, with the meanings that PyTorch gives them.

use serde::Serialize;

/// One figure over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// Now.
    pub current: u64,
    /// The highest it has been since [`Engine::reset_peaks`](super::Engine::reset_peaks).
    pub peak: u64,
    /// By how much it has risen in all since
    /// [`Engine::reset_accumulated`](super::Engine::reset_accumulated).
    pub allocated: u64,
    /// By how much it has fallen in all since then.
    pub freed: u64,
}

/// The figures of some memory: of all, or of the heaps of small or large blocks (up to 1 MiB, and
/// above). What counts is the heap in which a block lies: captures put blocks of every size into that of
/// large ones where it grows in place, and into what is free in the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Blocks that have not been freed.
    pub allocation: Figure,
    /// Their bytes as placed, rounded up.
    pub allocated_bytes: Figure,
    /// Their bytes as asked for.
    pub requested_bytes: Figure,
    /// Blocks that have not been freed, and freed ones that no stream may take yet.
    pub active: Figure,
    /// Their bytes.
    pub active_bytes: Figure,
    /// Free pieces of segments that are, or may be, in use elsewhere.
    pub inactive_split: Figure,
    /// Their bytes.
    pub inactive_split_bytes: Figure,
    /// Pieces of memory held from the driver: mappings and allocations.
    pub segment: Figure,
    /// Their bytes.
    pub reserved_bytes: Figure,
    /// Bytes of suspended pools that were given back to the driver, and that the pool asks for again
    /// when it is resumed.
    pub suspended_bytes: Figure,
}

/// The figures of an engine or of a pool.
///
/// At any time `reserved_bytes + suspended_bytes = active_bytes + inactive_split_bytes`, to the byte,
/// and `active_bytes` is `allocated_bytes` and what waits. Without suspended pools
/// ([`Engine::suspend_pool`](super::Engine::suspend_pool)) `suspended_bytes` is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statistics {
    /// All blocks.
    pub all: Figures,
    /// The heaps of small blocks.
    pub small_pool: Figures,
    /// The heaps of large blocks.
    pub large_pool: Figures,
    /// Counts of what happened on the whole device; the same for every pool.
    pub counts: Counts,
    /// What was asked for in blocks that are never freed, since uses of them may not be known
    /// ([`Memory::leak`](crate::Memory::leak), lost buffers of `regraph::cudarc`), in bytes. The same for every
    /// pool; no reset changes it.
    pub lost_bytes: u64,
}

/// Counts of what an engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that were tried again after memory had been given back.
    pub num_alloc_retries: u64,
    /// Requests that failed for want of memory.
    pub num_ooms: u64,
    /// How often the host was made to wait for the work of streams.
    pub num_sync_all_streams: u64,
    /// Pieces of memory got from the driver.
    pub num_device_alloc: u64,
    /// Pieces given back.
    pub num_device_free: u64,
}
