//! Pools: two heaps each, and their figures.

use smallvec::SmallVec;

use super::config::PoolConfig;
use super::ledger::class;
use crate::heap::Claim;

/// Largest block of the small heap, in bytes: PyTorch's limit, so that figures compare.
const SMALL: u64 = 1 << 20;

/// Whether blocks of this size lie in the small heap.
#[inline]
pub(super) fn is_small(bytes: u64) -> bool {
    bytes <= SMALL
}

/// A pool.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) config: PoolConfig,
    /// The engine's numbers of its heaps.
    pub(super) small: u32,
    pub(super) large: u32,
    /// That of blocks which get their memory at the end of their capture, once there was one.
    pub(super) planned: Option<u32>,
    /// The heap that grows for captures of either class, from the pool's first graph on: what
    /// graphs used is there for both.
    pub(super) shared: Option<u32>,
    /// Graphs whose memory lies here.
    pub(super) graphs: usize,
    /// Captures under way that use it.
    pub(super) recordings: usize,
    /// Places that are in blocks, leased ones included.
    pub(super) blocks: usize,
    /// Live blocks that no front counts, small and large.
    pub(super) counted: [Counted; 2],
}

/// Where a block may lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Homes {
    /// The heap that is searched first: that of the block's class.
    pub(super) first: u32,
    /// The one that is searched then.
    pub(super) second: Option<u32>,
    /// The one that grows.
    pub(super) grows: u32,
}

/// Live blocks: how many, their bytes, and their bytes as asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    pub(super) requested: u64,
}

impl Pool {
    pub(super) fn new(config: PoolConfig, small: u32, large: u32) -> Self {
        Self {
            config,
            small,
            large,
            planned: None,
            shared: None,
            graphs: 0,
            recordings: 0,
            blocks: 0,
            counted: Default::default(),
        }
    }

    /// The heaps for a block of this size.
    pub(super) fn homes(&self, bytes: u64, claim: Claim) -> Homes {
        let (own, other) =
            if is_small(bytes) { (self.small, self.large) } else { (self.large, self.small) };
        match (claim, self.shared) {
            (Claim::Capture { .. }, Some(grows)) => {
                Homes { first: own, second: Some(other), grows }
            }
            _ => Homes { first: own, second: None, grows: own },
        }
    }

    /// Its heaps: of small and of large blocks.
    pub(super) fn heaps(&self) -> [u32; 2] {
        [self.small, self.large]
    }

    /// The same, and that of blocks which get their memory later.
    pub(super) fn all_heaps(&self) -> SmallVec<[u32; 3]> {
        self.heaps().into_iter().chain(self.planned).collect()
    }

    /// Counts a block into a heap of the pool.
    pub(super) fn count_in(&mut self, heap: u32, bytes: u64, requested: u64) {
        let counted = &mut self.counted[class(heap == self.small)];
        counted.blocks += 1;
        counted.bytes += bytes;
        counted.requested += requested;
    }

    pub(super) fn count_out(&mut self, heap: u32, bytes: u64, requested: u64) {
        let counted = &mut self.counted[class(heap == self.small)];
        counted.blocks -= 1;
        counted.bytes -= bytes;
        counted.requested -= requested;
    }
}
