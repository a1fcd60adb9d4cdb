//! Live blocks by their address.
//!
//! Sharded, so that threads that work on different tensors seldom meet.

use crate::map::{new_map, Map};
use regraph::engine::BlockId;
use regraph::sync::{Mutex, MutexGuard, PoisonError};

/// A power of two.
const SHARDS: usize = 32;

/// Blocks begin at multiples of this many bytes, 2 to this power.
const ALIGNMENT: u32 = 9;

/// The table. Each address has one block at most: it is live from its allocation to its free.
#[derive(Debug)]
pub(super) struct Addresses(Vec<Mutex<Map<u64, BlockId>>>);

impl Addresses {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::new(new_map())).collect())
    }

    /// The shard of an address: bits from far apart, for neighbours of one size differ in high ones.
    fn shard(&self, address: u64) -> MutexGuard<'_, Map<u64, BlockId>> {
        let block = address >> ALIGNMENT;
        let row = (block ^ (block >> 5) ^ (block >> 12)) as usize % SHARDS;
        // No step leaves a shard half changed.
        self.0[row].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, address: u64, block: BlockId) {
        self.shard(address).insert(address, block);
    }

    pub(super) fn get(&self, address: u64) -> Option<BlockId> {
        self.shard(address).get(&address).copied()
    }

    pub(super) fn remove(&self, address: u64) -> Option<BlockId> {
        self.shard(address).remove(&address)
    }
}
