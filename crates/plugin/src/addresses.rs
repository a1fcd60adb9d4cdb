//! Live blocks by their address.
//!
//! Sharded, so that threads that work on different tensors seldom meet. A shard is a table with open
//! addressing: a look-up is a multiplication and mostly one row.

use regraph::engine::{Block, BlockId};
use regraph::sync::{Mutex, MutexGuard, Rank};

use super::oversize::Oversize;

/// Two to this power.
const SHARDS: u32 = 5;

/// The table. Each address has one block at most: it is live from its allocation to its free.
#[derive(Debug)]
pub(super) struct Addresses {
    shards: Box<[Padded]>,
    oversize: Oversize,
}

/// On a cache line of its own, so that threads do not slow each other.
#[derive(Debug)]
#[repr(align(64))]
struct Padded(Mutex<Shard>);

/// A row is empty where its address is 0, which no block has. Behind an empty row lies nothing that belongs before it.
#[derive(Debug, Default)]
struct Shard {
    /// A power of two of rows, at most three quarters of them in use; none at first.
    addresses: Vec<u64>,
    /// Of the same length, with anything in empty rows.
    blocks: Vec<Option<BlockId>>,
    used: usize,
    /// The addresses of oversize blocks.
    oversize: Vec<u64>,
}

impl Addresses {
    /// Blocks of at least `least` bytes count as oversize.
    pub(super) fn new(least: Option<u64>) -> Self {
        let padded = |_| Padded(Mutex::new(Rank::Addresses, Shard::default()));
        Self { shards: (0..1 << SHARDS).map(padded).collect(), oversize: Oversize::new(least) }
    }

    #[inline]
    fn shard(&self, address: u64) -> MutexGuard<'_, Shard> {
        let row = (mixed(address) >> (u64::BITS - SHARDS)) as usize;
        self.shards[row].0.lock()
    }

    #[inline]
    pub(super) fn insert(&self, &Block { id, address, bytes, .. }: &Block) {
        let mut shard = self.shard(address);
        shard.insert(address, id);
        if self.oversize.has(bytes) {
            shard.oversize.push(address);
            self.oversize.rise();
        }
    }

    pub(super) fn get(&self, address: u64) -> Option<BlockId> {
        let shard = self.shard(address);
        shard.blocks[shard.find(address)?]
    }

    #[inline]
    pub(super) fn remove(&self, address: u64) -> Option<BlockId> {
        let mut shard = self.shard(address);
        if let Some(row) = shard.oversize.iter().position(|&at| at == address) {
            shard.oversize.swap_remove(row);
            self.oversize.fall();
        }
        shard.remove(address)
    }

    /// Counts of oversize blocks.
    pub(super) fn oversize(&self) -> &Oversize {
        &self.oversize
    }
}

/// Neighbours of any size come far apart: the high bits depend on all of the address.
#[inline]
fn mixed(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Shard {
    /// Where an address belongs, if nothing else is there. Bits below those that choose the shard.
    #[inline]
    fn home(&self, address: u64) -> usize {
        (mixed(address) >> 24) as usize & self.mask()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.addresses.len().wrapping_sub(1)
    }

    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        let mut row = self.home(address);
        loop {
            match *self.addresses.get(row)? {
                0 => return None,
                found if found == address => return Some(row),
                _ => row = (row + 1) & self.mask(),
            }
        }
    }

    #[inline]
    fn insert(&mut self, address: u64, block: BlockId) {
        if 4 * (self.used + 1) > 3 * self.addresses.len() {
            self.grow();
        }
        self.used += 1;
        self.put(address, Some(block));
    }

    #[inline]
    fn put(&mut self, address: u64, block: Option<BlockId>) {
        let mut row = self.home(address);
        while self.addresses[row] != 0 {
            debug_assert!(self.addresses[row] != address, "a live block begins there");
            row = (row + 1) & self.mask();
        }
        self.addresses[row] = address;
        self.blocks[row] = block;
    }

    #[cold]
    fn grow(&mut self) {
        let rows = (2 * self.addresses.len()).max(64);
        let addresses = std::mem::replace(&mut self.addresses, vec![0; rows]);
        let blocks = std::mem::replace(&mut self.blocks, vec![None; rows]);
        for (address, block) in addresses.into_iter().zip(blocks) {
            if address != 0 {
                self.put(address, block);
            }
        }
    }

    #[inline]
    fn remove(&mut self, address: u64) -> Option<BlockId> {
        let mut hole = self.find(address)?;
        let block = self.blocks[hole];
        self.used -= 1;
        // What had to go past the row moves up, so that it is found without it.
        let mut row = hole;
        loop {
            row = (row + 1) & self.mask();
            let next = self.addresses[row];
            if next == 0 {
                break;
            }
            let passed = row.wrapping_sub(self.home(next)) & self.mask();
            if passed >= row.wrapping_sub(hole) & self.mask() {
                self.addresses[hole] = next;
                self.blocks[hole] = self.blocks[row];
                hole = row;
            }
        }
        self.addresses[hole] = 0;
        block
    }
}
