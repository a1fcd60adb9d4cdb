//! Pools: two heaps each, and their figures.

use super::config::PoolConfig;
use super::ledger::class;

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
    /// Graphs whose memory lies here.
    pub(super) graphs: usize,
    /// Captures under way that use it.
    pub(super) recordings: usize,
    /// Places that are in blocks, leased ones included.
    pub(super) blocks: usize,
    /// Live blocks that no front counts, small and large.
    pub(super) counted: [Counted; 2],
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
            graphs: 0,
            recordings: 0,
            blocks: 0,
            counted: Default::default(),
        }
    }

    /// The heap for blocks of this size.
    pub(super) fn heap(&self, bytes: u64) -> u32 {
        if is_small(bytes) {
            self.small
        } else {
            self.large
        }
    }

    /// Its heaps: of small and of large blocks.
    pub(super) fn heaps(&self) -> [u32; 2] {
        [self.small, self.large]
    }

    pub(super) fn count_in(&mut self, bytes: u64, requested: u64) {
        let counted = &mut self.counted[class(is_small(bytes))];
        counted.blocks += 1;
        counted.bytes += bytes;
        counted.requested += requested;
    }

    pub(super) fn count_out(&mut self, bytes: u64, requested: u64) {
        let counted = &mut self.counted[class(is_small(bytes))];
        counted.blocks -= 1;
        counted.bytes -= bytes;
        counted.requested -= requested;
    }
}
