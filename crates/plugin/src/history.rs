//! What a plug-in's history keeps, and what happens to blocks as it is told to those who watch.

use regraph::driver::{StreamHandle, Transfer};
use regraph::engine::{Block, BlockId, HistoryOptions, PoolId};
use regraph::snapshot::Action;

use super::device::{Device, Target};
use super::figures::{counted, parts, signed, BY_NAME};
use super::pools::PoolKey;
use super::watch::{Happening, Watcher};
use super::{Error, Plugin};

/// A block that has not been freed, as its host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveBlock {
    /// The device's number.
    pub device: u32,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// What it occupies, in bytes.
    pub bytes: u64,
    /// The stream that it was handed out to.
    pub stream: StreamHandle,
    /// Its pool's name.
    pub key: PoolKey,
}

/// The number of values that [`Plugin::figures`] fills: four for each of nine figures of three kinds of memory and of
/// two more figures, and six.
pub const FIGURES: usize = 4 * 9 * 3 + 4 * 2 + 6;

impl<D: Transfer> Plugin<D> {
    /// Keeps the latest events of every device from now on, for [`Plugin::snapshot`]: as many, and with as much of
    /// each, as `options` say.
    ///
    /// # Errors
    /// Those of [`Engine::keep_history`](regraph::engine::Engine::keep_history).
    pub fn keep_history(&self, options: HistoryOptions) -> Result<(), Error> {
        let mut history = self.history.lock();
        let options = history.insert(options);
        self.engines().try_for_each(|engine| Ok(engine.keep_history(options)?))
    }

    /// Adds one that is told of memory as it comes and goes, from now on: what every device's driver
    /// maps and allocates, and blocks as they are handed out and freed. A block is told to be free when
    /// its host frees it, as if nothing used it any more.
    pub fn watch(&self, watcher: Watcher) {
        self.watch.add(watcher);
    }

    /// What is known of the live block at an address.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] where no live block of any device begins there.
    pub fn live_block(&self, address: u64) -> Result<LiveBlock, Error> {
        let (device, _) = self.find(address, "live_block")?;
        device.live_block(address)
    }

    /// How many pieces of memory came to a device before the one at an address, which is the same in
    /// processes that do the same; `None` where none lies.
    pub fn arrival(&self, device: u32, address: u64) -> Option<u64> {
        self.watch.arrival(device, address)
    }

    /// A device's figures as numbers: for each of all blocks, small ones and large ones in turn, within
    /// each of allocation, segment, active, inactive_split, allocated_bytes, reserved_bytes,
    /// active_bytes, inactive_split_bytes and requested_bytes: current, peak, allocated, freed. Behind
    /// them these four of oversize_allocations and of oversize_segments, then num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free, and
    /// the size in bytes from which on blocks are not cut; -1 where all may be. Zeros of a device that nothing was asked
    /// of yet.
    ///
    /// # Errors
    /// Those of [`Engine::statistics`](regraph::engine::Engine::statistics).
    pub fn figures(&self, device: u32) -> Result<[i64; FIGURES], Error> {
        let (statistics, oversize) = self.counts(device)?;
        let kinds = [&statistics.all, &statistics.small_pool, &statistics.large_pool];
        let figures = BY_NAME.into_iter().flat_map(|(_, of)| kinds.map(of)).chain(oversize);
        let counted = counted(&statistics.counts).map(|(_, count)| count);
        let split = self.settings().max_split_bytes;
        Ok(signed(figures.flat_map(parts).chain(counted).chain(split)))
    }
}

impl<D: Transfer> Device<D> {
    /// Hands out a block while someone watches.
    #[cold]
    pub(super) fn allocate_watched(
        &self,
        target: Target,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<u64, Error> {
        let key = self.pools().key_of(u64::from(target.pool.number()));
        let block = self.watch.asking(key, stream, || self.allocate_from(target, bytes, stream))?;
        self.enter_watched(&block, bytes, stream, key);
        Ok(block.address)
    }

    /// Enters a block that was handed out, and tells of it.
    fn enter_watched(&self, block: &Block, bytes: u64, stream: StreamHandle, key: PoolKey) {
        self.blocks.insert(block);
        // Another pool's, where that lends.
        let key = self.live_block(block.address).map_or(key, |block| block.key);
        let (device, address) = (self.number, block.address);
        let action = Action::Alloc;
        self.watch.tell(&Happening { action, device, address, bytes, stream, key });
    }

    /// Hands out a block at an address while someone watches; false where there is none to be had.
    #[cold]
    pub(super) fn allocate_at_watched(
        &self,
        pool: PoolId,
        (bytes, stream): (u64, StreamHandle),
        address: u64,
    ) -> Result<bool, Error> {
        let key = self.pools().key_of(u64::from(pool.number()));
        let place =
            || Ok::<_, Error>(self.engine.host().allocate_at(pool, bytes, stream, address)?);
        let Some(block) = self.watch.asking(key, stream, place)? else { return Ok(false) };
        self.enter_watched(&block, bytes, stream, key);
        Ok(true)
    }

    #[cold]
    pub(super) fn tell_free(&self, address: u64, block: BlockId) {
        if let Ok(block) = self.described(block) {
            self.tell(&[(address, block)], &[Action::FreeRequested, Action::FreeCompleted]);
        }
    }

    /// Tells what happens to blocks, given with their addresses.
    pub(super) fn tell(&self, blocks: &[(u64, LiveBlock)], actions: &[Action]) {
        for &(address, LiveBlock { device, requested: bytes, stream, key, .. }) in blocks {
            for &action in actions {
                self.watch.tell(&Happening { action, device, address, bytes, stream, key });
            }
        }
    }

    pub(super) fn live_block(&self, address: u64) -> Result<LiveBlock, Error> {
        let call = "live_block";
        self.described(self.blocks.get(address).ok_or(Error::UnknownAddress { call, address })?)
    }

    pub(super) fn described(&self, block: BlockId) -> Result<LiveBlock, Error> {
        let report = self.engine.host().block_report(block)?;
        let key = self.pools().key_of(u64::from(report.pool.number()));
        let (requested, bytes, stream) = (report.requested, report.bytes, report.stream);
        Ok(LiveBlock { device: self.number, requested, bytes, stream, key })
    }
}
