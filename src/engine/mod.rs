//! The public face: pools, blocks, captures.
//!
//! * `config`, `error`, `report`: what goes in and what comes out.
//! * `state`: what stands behind the lock, and how streams are looked at.
//! * `allocate`, `free`, `end`, `explain`: the calls, by what they do to the state.
//! * `pool`, `block`, `recording`, `deferred`: what the state is made of.

mod allocate;
mod block;
mod config;
mod deferred;
mod end;
mod error;
mod explain;
mod free;
mod pool;
mod recording;
mod report;
mod state;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use config::Flaw;
pub use config::{Config, PoolConfig};
pub use error::Error;
pub use report::{
    Block, BlockId, CaptureReport, FreeRange, GraphId, OutOfMemory, PoolId, PoolStatistics,
    Refusal, WaitReason,
};

use crate::driver::{
    CaptureId, CaptureStatus, Driver, ErrorKind, GraphHandle, MemorySupport, StreamHandle,
};
use crate::heap::{self, Claim, Heap};
use crate::journal::Journal;
use crate::policy::Reuse;
use explain::View;
use pool::Pool;
use state::State;

/// An allocator on one device.
///
/// All calls may come from any thread. Calls that concern streams of a capture read its graph and
/// must not run while another thread captures into the same graph: CUDA's graph objects are not
/// thread-safe. The engine asks about other streams too, but only whether they capture.
///
/// A stream that was recorded for a block must live until the block is freed; one that captures
/// then, or that captures itself, until its capture has ended both here and in the driver. A
/// capture is ended or abandoned here before its streams begin another.
///
/// Dropping the engine gives back the memory of every pool that no live block, capture, graph or
/// running work uses; the rest is left to the driver.
pub struct Engine<D: Driver> {
    driver: D,
    config: Config,
    /// Address space that a heap of large blocks reserves at once, in bytes.
    reserve: u64,
    state: Mutex<State>,
}

impl<D: Driver> fmt::Debug for Engine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<D: Driver> Engine<D> {
    /// An engine on a driver. Asks the driver for the device's size and nothing else.
    pub fn new(driver: D, config: Config) -> Self {
        /// Reserved where the driver does not tell how much memory there is, in bytes.
        const FALLBACK: u64 = 64 << 30;
        let reserve = driver.memory_info().map_or(FALLBACK, |info| info.total);
        Self { driver, config, reserve, state: Mutex::new(State::new()) }
    }

    /// The driver that the engine was made on.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Creates an empty pool. Memory comes with the first allocation.
    pub fn create_pool(&self, config: PoolConfig) -> PoolId {
        /// Address space for small blocks, in bytes; another such segment follows where it is full.
        const SMALL_RESERVE: u64 = 1 << 30;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let small = state.heaps.len() as u32;
        let unit = match self.driver.memory_support() {
            support @ MemorySupport::Mapped { .. } => heap::unit(support),
            MemorySupport::Allocated => 1,
        };
        let limit = config.max_bytes.unwrap_or(u64::MAX);
        let reserve = |bytes: u64| bytes.min(limit).max(1).next_multiple_of(unit);
        let large = small + 1;
        state.heaps.push(Some(Heap::new(small, reserve(SMALL_RESERVE.min(self.reserve)), false)));
        state.heaps.push(Some(Heap::new(large, reserve(self.reserve), true)));
        state.pools.push(Some(Pool::new(config, small, large)));
        PoolId(state.pools.len() as u32 - 1)
    }

    /// Gives all memory of a pool back to the driver.
    ///
    /// # Errors
    /// [`Error::PoolInUse`] while a block of it is live, a capture into it is under way, a graph of
    /// it exists or work may still use a freed block; [`Error::UnknownPool`]; the driver's, when
    /// the pool is gone but some of its memory may not have been given back.
    pub fn destroy_pool(&self, pool: PoolId) -> Result<(), Error> {
        self.lock()?.destroy_pool(&self.driver, pool)
    }

    /// Tells the engine that `stream` has begun to capture and that the capture uses `pool`.
    ///
    /// The first allocation on a stream that captures does the same. A capture whose graph has
    /// conditional nodes *must* be announced, by either, before one of their bodies is captured into
    /// the same pool, and ended after: nothing else tells that the bodies run inside it.
    ///
    /// A capture that uses blocks of a pool it does not allocate from should be announced for that
    /// pool too, so that the pool knows of the graph.
    ///
    /// # Errors
    /// [`Error::NotCapturing`], [`Error::CaptureInvalidated`], [`Error::UnknownPool`], or the
    /// driver's.
    pub fn begin_capture(&self, pool: PoolId, stream: StreamHandle) -> Result<CaptureId, Error> {
        const CALL: &str = "begin_capture";
        let mut state = self.lock()?;
        state.pool(pool, CALL)?;
        match self.driver.capture_status(stream, &mut state.terminals)? {
            CaptureStatus::Active { capture, .. } => {
                let slot = state.enter(&self.driver, &self.config, CALL, capture, pool)?;
                state.look(&self.driver, slot, stream);
                Ok(capture)
            }
            CaptureStatus::None => Err(Error::NotCapturing { stream }),
            CaptureStatus::Invalidated => {
                state.abandon_invalidated(&self.driver, &self.config, stream);
                Err(Error::CaptureInvalidated { call: CALL, stream })
            }
        }
    }

    /// Ends a capture. `graph` is the handle under capture, just before the host ends it, or the one
    /// that ending it gave. The first is better: the engine can then look at the streams once more
    /// and knows whose the last nodes are; a capture whose streams it never looked at may be refused
    /// otherwise. Every use of the capture's blocks is recorded before.
    ///
    /// With [`Config::check`] the checker judges the capture on the finished graph; without it
    /// nobody does, and then `deny` is safe only where no launch is programmatic, and no dependency
    /// may be edited by hand. If it accepts,
    /// what the capture freed is there for later captures into the same pools, blocks not freed
    /// stay allocated as the graph's outputs, and the pools belong to one more graph.
    ///
    /// # Errors
    /// [`Error::Refused`]: the graph must not be launched; the capture is rolled back as by
    /// [`Engine::abandon_capture`]. [`Error::SetBack`], likewise, where there is no checker.
    /// [`Error::CaptureInvalidated`], [`Error::UnknownCapture`].
    pub fn end_capture(
        &self,
        capture: CaptureId,
        graph: GraphHandle,
    ) -> Result<CaptureReport, Error> {
        self.lock()?.end_capture(&self.driver, &self.config, capture, graph)
    }

    /// Rolls back every decision taken in a capture whose graph will never run. Blocks it
    /// allocated and did not free stay live until freed; nothing else may be done with them, since
    /// they may lie on memory of a graph of the pool that lives.
    ///
    /// # Errors
    /// [`Error::UnknownCapture`].
    pub fn abandon_capture(&self, capture: CaptureId) -> Result<(), Error> {
        let mut state = self.lock()?;
        let unknown = Error::UnknownCapture { call: "abandon_capture", capture };
        let slot = state.slot(capture).ok_or(unknown)?;
        state.end(&self.driver, &self.config, slot, false);
        Ok(())
    }

    /// Tells the engine that a graph is destroyed and no launch of it is running.
    ///
    /// # Errors
    /// [`Error::UnknownGraph`].
    pub fn release_graph(&self, graph: GraphId) -> Result<(), Error> {
        self.lock()?.release_graph(graph)
    }

    /// Hands out a block of at least `bytes` to `stream`.
    ///
    /// While `stream` captures, the block is new memory, or memory of which every earlier user is
    /// proven to be completed before the stream's next node starts. Outside captures it is memory
    /// that no work uses any more and no graph of the pool ever will.
    ///
    /// Costs a constant however many ranges are free or wait, and another for every node that the
    /// stream has gained since it was last looked at; a large block is weighed against up to 96
    /// places. Where the pool must grow, the driver's calls come on top.
    ///
    /// # Errors
    /// [`Error::ZeroBytes`]; [`Error::OutOfMemory`], after which everything goes on as before;
    /// [`Error::CaptureInvalidated`]; [`Error::UnknownPool`]; the driver's.
    pub fn allocate(&self, pool: PoolId, bytes: u64, stream: StreamHandle) -> Result<Block, Error> {
        self.lock()?.allocate(&self.driver, &self.config, pool, bytes, stream)
    }

    /// Says that `stream` uses the block at some time before its free (PyTorch's `record_stream`).
    /// The use must be ordered after the allocation, by an event for instance.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`].
    pub fn record_stream(&self, block: BlockId, stream: StreamHandle) -> Result<(), Error> {
        self.lock()?.record_stream(&self.config, block, stream)
    }

    /// Says that what `stream` holds so far includes its last use of the block, so that the
    /// block's marker on it is this point and not the free. A later [`Engine::record_stream`]
    /// takes this back.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], [`Error::CaptureInvalidated`].
    pub fn record_use(&self, block: BlockId, stream: StreamHandle) -> Result<(), Error> {
        self.lock()?.record_use(&self.driver, &self.config, block, stream)
    }

    /// Frees a block. Its free markers are the terminals, now, of its own stream and of every
    /// stream that was recorded for it, or those of the last use where one was recorded.
    ///
    /// # Errors
    /// [`Error::UnknownBlock`], where the block was freed before.
    pub fn free(&self, block: BlockId) -> Result<(), Error> {
        self.lock()?.free(&self.driver, &self.config, block)
    }

    /// Frees a block in the order of `stream`, which need not be its own: the same as
    /// [`Engine::record_stream`] and [`Engine::free`].
    ///
    /// # Errors
    /// [`Error::UnknownBlock`].
    pub fn free_from(&self, block: BlockId, stream: StreamHandle) -> Result<(), Error> {
        let mut state = self.lock()?;
        state.record_stream(&self.config, block, stream)?;
        state.free(&self.driver, &self.config, block)
    }

    /// Looks at a stream, so that the engine knows its terminals as they are now.
    ///
    /// A host that sets a capturing stream's terminals back by hand
    /// (`cuStreamUpdateCaptureDependencies`) calls this before and after, unless a call that
    /// concerns the stream comes in between anyway: the engine can only heed what it has seen.
    ///
    /// # Errors
    /// [`Error::CaptureInvalidated`], or the driver's.
    pub fn observe(&self, stream: StreamHandle) -> Result<(), Error> {
        let mut state = self.lock()?;
        match self.driver.capture_status(stream, &mut state.terminals)? {
            CaptureStatus::Active { capture, .. } => {
                if let Some(slot) = state.slot(capture) {
                    state.look(&self.driver, slot, stream);
                }
                Ok(())
            }
            CaptureStatus::None => Ok(()),
            CaptureStatus::Invalidated => {
                state.abandon_invalidated(&self.driver, &self.config, stream);
                Err(Error::CaptureInvalidated { call: "observe", stream })
            }
        }
    }

    /// Every free range of a pool as `stream` sees it now, in address order: where it may not take
    /// one, why, and which marker it waits for.
    ///
    /// # Errors
    /// [`Error::UnknownPool`], [`Error::CaptureInvalidated`], or the driver's.
    pub fn explain(&self, pool: PoolId, stream: StreamHandle) -> Result<Vec<FreeRange>, Error> {
        const CALL: &str = "explain";
        let mut state = self.lock()?;
        state.pool(pool, CALL)?;
        let view = match self.driver.capture_status(stream, &mut state.terminals) {
            Ok(CaptureStatus::Active { capture, .. }) => match state.slot(capture) {
                Some(slot) => {
                    let stream = state.look(&self.driver, slot, stream);
                    let share = self.config.reuse == Reuse::CrossStream;
                    View::Claim(Claim::Capture { capture: slot, stream, share })
                }
                None => View::NewCapture,
            },
            Ok(CaptureStatus::None) => View::Claim(Claim::Outside),
            Err(error) if error.kind == ErrorKind::CaptureImplicit => View::Claim(Claim::Outside),
            Ok(CaptureStatus::Invalidated) => {
                state.abandon_invalidated(&self.driver, &self.config, stream);
                return Err(Error::CaptureInvalidated { call: CALL, stream });
            }
            Err(error) => return Err(error.into()),
        };
        Ok(state.free_ranges(&self.config, pool, view))
    }

    /// Figures of a pool. Costs a look at every free range.
    ///
    /// # Errors
    /// [`Error::UnknownPool`].
    pub fn pool_statistics(&self, pool: PoolId) -> Result<PoolStatistics, Error> {
        let mut state = self.lock()?;
        let reserved = state.reserved(pool);
        let row = state.pool(pool, "pool_statistics")?;
        let (small, large) = (row.small, row.large);
        let mut statistics = PoolStatistics {
            reserved,
            allocated: row.allocated,
            peak_allocated: row.peak_allocated,
            requested: row.requested,
            active: row.allocated,
            blocks: row.blocks,
        };
        for heap in [small, large] {
            statistics.active += state.heap(heap).waiting();
        }
        Ok(statistics)
    }

    /// A copy of the record of a capture that is under way; `None` where no journal is kept. Looks
    /// at the capture's streams first, so that nothing is missing.
    ///
    /// # Errors
    /// [`Error::UnknownCapture`].
    pub fn journal(&self, capture: CaptureId) -> Result<Option<Journal>, Error> {
        let mut state = self.lock()?;
        let unknown = Error::UnknownCapture { call: "journal", capture };
        let slot = state.slot(capture).ok_or(unknown)?;
        state.last_looks(&self.driver, slot);
        Ok(state.recording(slot).journal.clone())
    }

    /// A thread that panicked inside the engine has broken an invariant of ours, which is a bug; its
    /// books may be wrong, and memory is not handed out by them any more.
    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        self.state.lock().map_err(|_| Error::Poisoned)
    }
}

impl<D: Driver> Drop for Engine<D> {
    fn drop(&mut self) {
        if let Ok(state) = self.state.get_mut() {
            state.close(&self.driver);
        }
    }
}
