//! Pools: two heaps each, and their figures.

use super::config::PoolConfig;

/// Largest block of the small heap, in bytes: PyTorch's limit, so that figures compare.
const SMALL: u64 = 1 << 20;

/// Every block's size is a multiple of this, in bytes.
pub(super) const UNIT: u64 = 512;

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
    pub(super) allocated: u64,
    pub(super) peak_allocated: u64,
    pub(super) requested: u64,
    pub(super) blocks: usize,
}

impl Pool {
    pub(super) fn new(config: PoolConfig, small: u32, large: u32) -> Self {
        Self {
            config,
            small,
            large,
            graphs: 0,
            recordings: 0,
            allocated: 0,
            peak_allocated: 0,
            requested: 0,
            blocks: 0,
        }
    }

    /// The heap for blocks of this size.
    pub(super) fn heap(&self, bytes: u64) -> u32 {
        if bytes <= SMALL {
            self.small
        } else {
            self.large
        }
    }

    pub(super) fn count_in(&mut self, bytes: u64, requested: u64) {
        self.allocated += bytes;
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.requested += requested;
        self.blocks += 1;
    }

    pub(super) fn count_out(&mut self, bytes: u64, requested: u64) {
        self.allocated -= bytes;
        self.requested -= requested;
        self.blocks -= 1;
    }
}
