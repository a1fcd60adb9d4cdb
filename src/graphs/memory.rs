//! Blocks that are freed when they are dropped.

use std::sync::Arc;

use super::pool::Pool;
use super::Error;
use crate::driver::{AsStream, HostApi};
use crate::engine::{Block, BlockId, Engine};
use crate::shown::shown;

/// A block of device memory, owned: dropping it frees it, on any thread, inside a capture too.
///
/// Which streams used it must be known by then: its own, and those that [`Memory::record_stream`] was told of.
pub struct Memory<D: HostApi> {
    block: Block,
    pool: Pool<D>,
}

impl<D: HostApi> Memory<D> {
    pub(super) fn new(block: Block, pool: Pool<D>) -> Self {
        Self { block, pool }
    }

    /// Owns a block that has none, such as one of [`Memory::into_block`] or [`Engine::allocate`].
    ///
    /// # Safety
    /// The block is a live one of the pool's engine that was asked of this pool, and from now on nothing but this
    /// value frees it.
    pub unsafe fn from_block(pool: &Pool<D>, block: Block) -> Self {
        Self::new(block, pool.clone())
    }

    /// Its device address, a multiple of 512.
    pub fn address(&self) -> u64 {
        self.block.address
    }

    /// What was asked for, in bytes.
    pub fn bytes(&self) -> u64 {
        self.block.bytes
    }

    /// The engine's name of the block.
    pub fn id(&self) -> BlockId {
        self.block.id
    }

    /// The pool that it came from.
    pub fn pool(&self) -> Pool<D> {
        self.pool.clone()
    }

    /// The engine that it came from.
    pub fn engine(&self) -> &Arc<Engine<D>> {
        self.pool.engine()
    }

    /// Says that another stream than its own uses it, at any time until it is dropped. See
    /// [`Engine::record_stream`](crate::engine::Engine::record_stream).
    pub fn record_stream(&self, stream: impl AsStream) -> Result<(), Error> {
        self.pool.engine().record_stream(self.block.id, stream.as_stream())
    }

    /// Says that what a stream holds so far includes its last use of the block. See
    /// [`Engine::record_use`](crate::engine::Engine::record_use).
    pub fn record_use(&self, stream: impl AsStream) -> Result<(), Error> {
        self.pool.engine().record_use(self.block.id, stream.as_stream())
    }

    /// Gives the memory up without ever freeing it, counts it
    /// ([`Statistics::lost_bytes`](crate::engine::Statistics::lost_bytes)), and returns its address: where work may
    /// use it that the engine cannot know of. It goes back to the driver with the engine.
    pub fn leak(self) -> u64 {
        self.engine().count_lost(self.bytes());
        self.into_block().address
    }

    /// Gives the block up without freeing it: that is now up to the caller, by its name, or [`Memory::from_block`].
    pub fn into_block(self) -> Block {
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the value is never dropped nor used again, so the pool is dropped once, here.
        unsafe { std::ptr::drop_in_place(&mut this.pool) };
        this.block
    }
}

impl<D: HostApi> Drop for Memory<D> {
    fn drop(&mut self) {
        // It fails only if the block was freed by its name, or if the engine is poisoned, which
        // hands out nothing any more.
        let _ = self.pool.engine().free(self.block.id);
    }
}

shown!([D: HostApi] Memory<D>: |it| block = it.block);
