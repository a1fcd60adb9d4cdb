//! The memory of a buffer, and who used it.
//!
//! The engine must know of every stream that used a block before the block is freed. A stream is
//! told to it once and stays recorded; only a last use that is recorded takes that back, so only
//! then a stream is told again. What cannot be told loses the block: it is never freed.

use std::sync::Arc;

use ::cudarc::driver::CudaStream;
use smallvec::SmallVec;

use super::{Error, StreamRefusal};
use crate::driver::cuda::CudaDriver;
use crate::driver::{AsStream, StreamHandle};
use crate::engine::one_stream;
use crate::graphs::Memory;
use crate::sync::{Mutex, Rank};

/// What the uses so far came to.
struct Uses {
    /// The streams that the engine knows to use the block until its free.
    recorded: SmallVec<[StreamHandle; 3]>,
    /// Whether the block has users that the engine does not know.
    lost: bool,
}

/// A block with its stream. Freed when it is dropped.
pub(super) struct BlockOwner {
    /// None for a buffer without bytes.
    memory: Option<Memory<CudaDriver>>,
    stream: Arc<CudaStream>,
    uses: Mutex<Uses>,
}

/// A stream that uses a buffer, by what its handle is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    stream: StreamHandle,
    /// The handle of its context.
    context: usize,
}

impl User {
    pub(super) fn new(stream: StreamHandle, context: usize) -> Self {
        Self { stream, context }
    }
}

impl From<&CudaStream> for User {
    #[inline]
    fn from(stream: &CudaStream) -> Self {
        Self { stream: stream.as_stream(), context: stream.context().cu_ctx() as usize }
    }
}

impl BlockOwner {
    pub(super) fn new(memory: Option<Memory<CudaDriver>>, stream: Arc<CudaStream>) -> Self {
        let recorded = [name(stream.as_stream())].into_iter().collect();
        Self { memory, stream, uses: Mutex::new(Rank::BufferUses, Uses { recorded, lost: false }) }
    }

    pub(super) fn memory(&self) -> Option<&Memory<CudaDriver>> {
        self.memory.as_ref()
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Records that a stream uses the block, from now on and until it is freed. After an error the block is lost, since
    /// the use cannot be stopped from here.
    pub(super) fn record(&self, user: User) -> Result<(), Error> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let mut uses = self.uses.lock();
        let stream = self.known(user, "record_stream").inspect_err(|_| uses.lost = true)?;
        if uses.recorded.contains(&stream) {
            return Ok(());
        }
        memory.record_stream(stream).inspect_err(|_| uses.lost = true)?;
        uses.recorded.push(stream);
        Ok(())
    }

    /// The handle by which the engine knows a stream. That of a default stream names a stream of the context that is
    /// current, whichever the user's is.
    fn known(&self, user: User, call: &'static str) -> Result<StreamHandle, Error> {
        let stream = name(user.stream);
        let own = user.context == self.stream.context().cu_ctx() as usize;
        match own || !stream.is_default() {
            true => Ok(stream),
            false => Err(Error::Stream { call, stream, why: StreamRefusal::Foreign }),
        }
    }

    /// Gives the block up for lost: it is in use on a stream that is not known.
    pub(super) fn lose(&self) {
        self.uses.lock().lost = true;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.uses.lock().lost
    }

    /// Records that what a stream holds so far includes its last use. After an error the block is lost.
    pub(super) fn record_last_use(&mut self, user: User) -> Result<(), Error> {
        let Some(memory) = &self.memory else { return Ok(()) };
        let known = self.known(user, "record_use");
        let uses = self.uses.get_mut();
        let recorded = known.and_then(|stream| {
            // From here on a further use is to be told to the engine.
            uses.recorded.retain(|recorded| *recorded != stream);
            memory.record_use(stream)
        });
        recorded.inspect_err(|_| uses.lost = true)
    }
}

/// The one handle of a stream: the legacy stream has two.
fn name(stream: StreamHandle) -> StreamHandle {
    // The engine refuses the per-thread stream itself.
    one_stream(stream, "record_stream").unwrap_or(stream)
}

impl Drop for BlockOwner {
    fn drop(&mut self) {
        if self.is_lost() {
            self.memory.take().map(Memory::leak);
        }
    }
}
