//! Blocks that are freed when they are dropped.

use std::sync::Arc;

use super::pool::Pool;
use super::Error;
use crate::driver::{AsStream, HostApi};
use crate::engine::{Block, BlockId, Engine};
use crate::shown::shown;

/// An owned block of device memory. Dropping this value frees the block, on any thread, inside a capture too.
///
/// Every stream that used the block, other than its own, must have been named by [`Memory::record_stream`] before.
pub struct Memory<D: HostApi> {
    block: Block,
    pool: Pool<D>,
}

impl<D: HostApi> Memory<D> {
    pub(super) fn new(block: Block, pool: Pool<D>) -> Self {
        Self { block, pool }
    }

    /// Takes ownership of a block that no value owns, such as one of [`Memory::into_block`] or [`Engine::allocate`].
    ///
    /// # Safety
    /// The block must be live and have been allocated from this pool, and from now on only this value may free it.
    pub unsafe fn from_block(pool: &Pool<D>, block: Block) -> Self {
        Self::new(block, pool.clone())
    }

    /// The block's device address, a multiple of 512.
    pub fn address(&self) -> u64 {
        self.block.address
    }

    /// The size that was asked for, in bytes.
    pub fn bytes(&self) -> u64 {
        self.block.bytes
    }

    /// The engine's name of the block.
    pub fn id(&self) -> BlockId {
        self.block.id
    }

    /// The pool from which the block came.
    pub fn pool(&self) -> Pool<D> {
        self.pool.clone()
    }

    /// The engine of that pool.
    pub fn engine(&self) -> &Arc<Engine<D>> {
        self.pool.engine()
    }

    /// Records that another stream than its own uses the block, at any time until this value is dropped. See
    /// [`Engine::record_stream`](crate::engine::Engine::record_stream).
    pub fn record_stream(&self, stream: impl AsStream) -> Result<(), Error> {
        self.pool.engine().record_stream(self.block.id, stream.as_stream())
    }

    /// Records that the work submitted to a stream so far includes the stream's last use of the block. See
    /// [`Engine::record_use`](crate::engine::Engine::record_use).
    pub fn record_use(&self, stream: impl AsStream) -> Result<(), Error> {
        self.pool.engine().record_use(self.block.id, stream.as_stream())
    }

    /// Never frees the block, counts its bytes ([`Statistics::lost_bytes`](crate::engine::Statistics::lost_bytes)), and
    /// returns its address: for memory that work may use of which the engine cannot know. The memory goes back to the
    /// driver with the engine.
    pub fn leak(self) -> u64 {
        self.engine().count_lost(self.bytes());
        self.into_block().address
    }

    /// Returns the block without freeing it. The caller frees it by its name, or by [`Memory::from_block`].
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
