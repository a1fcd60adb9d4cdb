//! Going back to what lived in a pool at an earlier point, as PyTorch's CUDA graph trees do.

use regraph::driver::Transfer;
use regraph::engine::{Block, Checkpoint, PoolId};
use regraph::snapshot::Action;
use regraph::tell_later;

use super::device::Device;
use super::history::LiveBlock;
use super::{Error, Plugin, PoolKey};

/// What a restoration has changed, as its host sees it: addresses, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Where blocks were live and are no more.
    pub freed: Vec<u64>,
    /// Where blocks are live now. Another one may have been freed there.
    pub live: Vec<u64>,
}

impl<D: Transfer> Plugin<D> {
    /// The blocks that are live in a pool. From now on captures into the pool neither get their memory at their end nor
    /// map ahead, which moves memory. See [`HostCalls::checkpoint`](regraph::engine::HostCalls::checkpoint).
    ///
    /// # Errors
    /// [`Error::UnknownPool`]; those of [`HostCalls::checkpoint`](regraph::engine::HostCalls::checkpoint), for a pool with
    /// a capture that got its memory at its end, or with a loan to another process, among them.
    pub fn checkpoint(&self, device: u32, key: PoolKey) -> Result<Checkpoint, Error> {
        const CALL: &str = "checkpoint";
        let pool = self.settled_pool(device, key, CALL)?;
        let device = self.device(device)?;
        let _told = tell_later();
        // A restoration ends all blocks of the pool: none is lent to another process from now on.
        let _begins = device.begins_captures.lock();
        let checkpoint = device.engine.host().checkpoint(pool)?;
        if let Some(private) = device.pools().private.get_mut(&key) {
            private.checkpointed = true;
        }
        Ok(checkpoint)
    }

    /// Goes back to a checkpoint of a pool: what is live now is freed, and what was live then is live
    /// again at its address. See [`HostCalls::restore`](regraph::engine::HostCalls::restore), which also says
    /// what the host promises. No other thread may ask for memory of the pool meanwhile, or free any.
    ///
    /// # Errors
    /// [`Error::UnknownPool`]; those of [`HostCalls::restore`](regraph::engine::HostCalls::restore).
    pub fn restore(
        &self,
        device: u32,
        key: PoolKey,
        checkpoint: &Checkpoint,
    ) -> Result<Restored, Error> {
        let pool = self.settled_pool(device, key, "restore")?;
        let device = self.device(device)?;
        let before = device.watched_in(pool)?;
        let restored = device.engine.host().restore(pool, checkpoint)?;
        // All of the old ones first: another may lie there now.
        for block in &restored.freed {
            device.blocks.remove(block.address);
        }
        for block in &restored.live {
            device.blocks.insert(block);
        }
        device.tell(&before, &[Action::FreeRequested, Action::FreeCompleted]);
        device.tell(&device.watched_in(pool)?, &[Action::Alloc]);
        let [freed, live] = [restored.freed, restored.live].map(addresses);
        Ok(Restored { freed, live })
    }

    /// Where blocks of a pool are live, in order of addresses.
    ///
    /// # Errors
    /// [`Error::UnknownPool`].
    pub fn live_in_pool(&self, device: u32, key: PoolKey) -> Result<Vec<u64>, Error> {
        let device = self.device(device)?;
        let pool = device.pools().named(key, "live_in_pool")?;
        Ok(addresses(device.engine.host().live_blocks(pool)?))
    }

    /// A pool by its name, once captures into it are ended whose end the host has not told.
    fn settled_pool(&self, device: u32, key: PoolKey, call: &'static str) -> Result<PoolId, Error> {
        let device = self.device(device)?;
        let mut pools = device.pools();
        let private = pools.private.get_mut(&key).ok_or(Error::UnknownPool { call, key })?;
        device.end_untold(key, private, None)?;
        Ok(private.pool)
    }
}

impl<D: Transfer> Device<D> {
    /// The live blocks of a pool and where they lie, if someone watches.
    fn watched_in(&self, pool: PoolId) -> Result<Vec<(u64, LiveBlock)>, Error> {
        if !self.watch.is_on() {
            return Ok(Vec::new());
        }
        let live = self.engine.host().live_blocks(pool)?;
        // One that its host is freeing just now is no more.
        let known = live.iter().map(|block| (block.address, self.live_block(block.address)));
        Ok(known.filter_map(|(address, block)| Some((address, block.ok()?))).collect())
    }
}

fn addresses(blocks: Vec<Block>) -> Vec<u64> {
    blocks.into_iter().map(|block| block.address).collect()
}
