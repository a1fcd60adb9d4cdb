//! The calls about blocks.

use super::allocate::{Request, LARGEST, POLLED};
use super::config::Flaw;
use super::explain::View;
use super::front::{Front, Given, Taken};
use super::names::{BlockId, PoolId, NO_FRONT};
use super::report::{Block, FreeRange};
use super::state::State;
use super::{one_stream, Engine, Error};
use crate::driver::{CaptureStatus, Driver, ErrorKind, StreamHandle};
use crate::heap::Claim;
use crate::policy::Reuse;
use crate::settings::{Rounding, Settings};
use crate::sync::{is_poisoned, MutexGuard};

impl<D: Driver> Engine<D> {
    /// Hands out a block of at least `bytes` to `stream`.
    ///
    /// While `stream` captures, the block is new memory, or memory of which every earlier user is
    /// proven to be completed before the stream's next node starts. Outside captures it is memory
    /// that no graph of the pool will ever use, and that nobody uses any more or that `stream` itself
    /// used last: what it submits from now on comes after that.
    ///
    /// Costs a constant however many ranges are free or wait, and another for every node that the
    /// stream has gained since it was last looked at; a large block in a capture is weighed against
    /// up to 96 places. Outside captures a size that the stream has given back before costs no more
    /// than a look at its capture status, and nothing that other streams do slows it. Where the pool
    /// must grow, the driver's calls come on top. Only where memory is short, and outside captures,
    /// does the call wait for work.
    ///
    /// # Errors
    /// [`Error::ZeroBytes`]; [`Error::OutOfMemory`], after which everything goes on as before;
    /// [`Error::CaptureInvalidated`]; [`Error::UnknownPool`]; [`Error::PoolSuspended`];
    /// [`Error::PerThreadStream`]; the driver's.
    pub fn allocate(&self, pool: PoolId, bytes: u64, stream: StreamHandle) -> Result<Block, Error> {
        self.allocate_as(pool, bytes, stream, false, || false)
    }

    /// Like [`Engine::allocate`], but before the request fails for want of memory, `last_resort` may
    /// give some back, which the engine knows nothing of or may not take by itself: with pools that it
    /// destroys, for instance. It is called on this thread with none of the engine's locks held, at
    /// most once, and says whether the request is to be tried again.
    ///
    /// # Errors
    /// As [`Engine::allocate`].
    pub fn allocate_or_release(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: StreamHandle,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Block, Error> {
        self.allocate_as(pool, bytes, stream, false, last_resort)
    }

    /// Hands a block out, with `fixed` on memory of its own where memory may be shared or moved.
    #[inline]
    pub(super) fn allocate_as(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: StreamHandle,
        fixed: bool,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Block, Error> {
        const CALL: &str = "allocate";
        if bytes == 0 {
            return Err(Error::ZeroBytes { call: CALL });
        }
        let requested = bytes;
        let stream = one_stream(stream, CALL)?;
        // Without caching the driver gives the exact bytes: steps would be of no use.
        let Settings { rounding, caching, .. } = self.config.settings;
        let rounding = if caching { rounding } else { Rounding::default() };
        let bytes = rounding.round(requested.min(LARGEST));
        let frames = self.frames();
        let front = self.front_of(stream)?;
        if let Some(mut front) = front {
            let sizes = (bytes, requested);
            let taken = front.take(&self.driver, (pool, stream), sizes, frames.clone());
            if let Taken::Block { block, settle } = taken {
                if settle && !front.grant(&mut self.fronts.ledger()) {
                    drop(front);
                    self.lock()?.settle();
                }
                return Ok(block);
            }
        }
        let request = Request { pool, stream, requested, bytes, fixed, frames };
        let allocate = |state: &mut State| state.allocate(&self.driver, &self.config, &request);
        self.request(allocate, last_resort)
    }

    /// Says that `stream` uses the block at some time before its free (PyTorch's `record_stream`).
    /// The use must be ordered after the allocation, by an event for instance.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], [`Error::PerThreadStream`].
    pub fn record_stream(&self, block: BlockId, stream: StreamHandle) -> Result<(), Error> {
        const CALL: &str = "record_stream";
        let stream = one_stream(stream, CALL)?;
        if self.record_in_front(block, stream, CALL)? {
            return Ok(());
        }
        self.change(|state| state.record_stream(&self.driver, &self.config, block, stream))
    }

    /// Says that what `stream` holds so far includes its last use of the block, so that the
    /// block's marker on it is this point and not the free. A later [`Engine::record_stream`]
    /// takes this back. For a block from outside captures it is the same as that: an event at its
    /// free covers every use.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], [`Error::CaptureInvalidated`], [`Error::PerThreadStream`].
    pub fn record_use(&self, block: BlockId, stream: StreamHandle) -> Result<(), Error> {
        const CALL: &str = "record_use";
        let stream = one_stream(stream, CALL)?;
        if self.record_in_front(block, stream, CALL)? {
            return Ok(());
        }
        self.change(|state| state.record_use(&self.driver, &self.config, block, stream))
    }

    /// Frees a block. In a capture its free markers are the terminals, now, of its own stream and of
    /// every stream that was recorded for it, or those of the last use where one was recorded.
    /// Outside captures its own stream may have it back at once, unless other streams used it.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], where the block was freed before.
    pub fn free(&self, block: BlockId) -> Result<(), Error> {
        if block.engine == self.number && block.front != NO_FRONT {
            if let Some(done) = self.free_in_front(block) {
                return done;
            }
            return self.change(|state| state.free_leased(&self.driver, &self.config, block));
        }
        self.change(|state| state.free(&self.driver, &self.config, block))
    }

    /// Frees a block in the order of `stream`, which need not be its own: the same as
    /// [`Engine::record_stream`] and [`Engine::free`].
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], [`Error::PerThreadStream`].
    pub fn free_from(&self, block: BlockId, stream: StreamHandle) -> Result<(), Error> {
        self.record_stream(block, stream)?;
        self.free(block)
    }

    /// Every free range of a pool as `stream` sees it now, in address order: where it may not take
    /// one, why, and which marker it waits for.
    ///
    /// # Errors
    /// [`Error::UnknownPool`], [`Error::CaptureInvalidated`], or the driver's.
    pub fn explain(&self, pool: PoolId, stream: StreamHandle) -> Result<Vec<FreeRange>, Error> {
        const CALL: &str = "explain";
        self.change(|state| {
            state.pool(pool, CALL)?;
            // As a request would, so that one that follows finds what this says.
            state.take_back(&self.driver, |of, _, _| of == pool);
            state.poll_deferred(&self.driver, POLLED);
            let outside = View::Claim(Claim::Outside { lane: state.lanes.known(stream) });
            let view = match self.driver.capture_status(stream, &mut state.terminals) {
                Ok(CaptureStatus::Active { capture, .. }) => match state.slot(capture) {
                    Some(slot) => {
                        let stream = state.look(&self.driver, slot, stream);
                        let share = self.config.settings.reuse == Reuse::CrossStream;
                        View::Claim(Claim::Capture { capture: slot, stream, share })
                    }
                    None => View::NewCapture,
                },
                Ok(CaptureStatus::None) => outside,
                Err(error) if error.kind == ErrorKind::CaptureImplicit => outside,
                Ok(CaptureStatus::Invalidated) => {
                    state.abandon_invalidated(&self.driver, &self.config, stream);
                    return Err(Error::CaptureInvalidated { call: CALL, stream });
                }
                Err(error) => return Err(error.into()),
            };
            Ok(state.free_ranges(&self.config, pool, view))
        })
    }

    /// The front of a stream, if fronts may hand out anything.
    #[inline]
    fn front_of(&self, stream: StreamHandle) -> Result<Option<MutexGuard<'_, Front>>, Error> {
        if is_poisoned(&self.state) {
            return Err(Error::Poisoned);
        }
        Ok(self.config.settings.caching.then(|| self.fronts.of(stream)))
    }

    /// Frees a block that a front handed out, if the front may keep it; else it is not freed.
    #[inline]
    fn free_in_front(&self, block: BlockId) -> Option<Result<(), Error>> {
        let unknown = Error::UnknownBlock { call: "free", block: block.number() };
        let Some(mut front) = self.fronts.get(block.front) else { return Some(Err(unknown)) };
        match front.give(&self.driver, block) {
            Given::Done { settle } => {
                if settle && !front.grant(&mut self.fronts.ledger()) {
                    drop(front);
                    return Some(self.lock().map(|mut state| {
                        state.settle();
                    }));
                }
                Some(Ok(()))
            }
            Given::Undecided => None,
            Given::Unknown => Some(Err(unknown)),
        }
    }

    /// Records a stream for a block that a front handed out; false for any other block.
    fn record_in_front(
        &self,
        block: BlockId,
        stream: StreamHandle,
        call: &'static str,
    ) -> Result<bool, Error> {
        if block.engine != self.number || block.front == NO_FRONT {
            return Ok(false);
        }
        if self.config.lacks(Flaw::Events) {
            return Ok(true);
        }
        let front = self.fronts.get(block.front);
        let recorded = front.and_then(|mut front| front.record_stream(block, stream));
        recorded.ok_or(Error::UnknownBlock { call, block: block.number() }).map(|()| true)
    }
}
