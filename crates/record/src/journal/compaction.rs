//! The record of a compaction: what lies where in a pool, and what will.

use regraph_driver::CaptureId;

/// Addresses that lie on one physical memory, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Where they begin.
    pub address: u64,
    /// How many there are; the size of the memory.
    pub bytes: u64,
    /// The physical memory, by a number that no other one of the pool has.
    pub memory: u64,
}

/// A block that its capture did not free, and the host has freed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedOutput {
    /// Where it lay.
    pub address: u64,
    /// How much of the address range it occupied, in bytes.
    pub bytes: u64,
    /// The first plan that was made after it was freed, by [`GraphMemory::planned`].
    pub freed: u64,
}

/// What a graph has in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphMemory {
    /// The graph, by its capture.
    pub graph: CaptureId,
    /// Which plan of the pool it got: they are numbered in the order in which they were made.
    pub planned: u64,
    /// Whether it may be launched. Otherwise it was released, and only its live blocks count.
    pub launches: bool,
    /// Whether other captures of the pool were under way beside its own: one may run within the other.
    pub beside: bool,
    /// Where its memory lies now, in any order.
    pub before: Vec<Extent>,
    /// Where it will lie.
    pub after: Vec<Extent>,
    /// Of its outputs those that were freed.
    pub freed: Vec<FreedOutput>,
}

/// What compacting a pool is about to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// The device's unit of memory, in bytes.
    pub unit: u64,
    /// Blocks whose memory is to stay: where each begins, and its size in bytes.
    pub kept: Vec<(u64, u64)>,
    /// The graphs, in any order.
    pub graphs: Vec<GraphMemory>,
}
