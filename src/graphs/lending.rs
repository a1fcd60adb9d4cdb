//! Work outside captures in memory that a pool's graphs use, between their launches.

use std::cell::Cell;
use std::marker::PhantomData;

use super::memory::Memory;
use super::order::{Event, Launched};
use super::pool::Pool;
use super::{Error, PoolRefusal, Unknown};
use crate::driver::{AsStream, HostApi, StreamHandle};
use crate::engine::{BlockId, Lent, Loan, LoanId};
use crate::logging::{tell_later, Level, Range};
use crate::shown::shown;

/// A stream that borrows from a pool what its graphs do not keep between launches ([`Pool::lend`]).
///
/// The host may keep this value for as long as it likes: only blocks that it gives out are borrowed memory. When the
/// value is dropped, it marks how far its stream is, so that launches on other threads can come after that work. It is
/// not `Send`: it stays on the thread that uses the stream.
pub struct Lending<D: HostApi> {
    pool: Pool<D>,
    stream: StreamHandle,
    /// How many launches of the pool the stream is known to come after, with the stream as the driver knew it then.
    followed: Cell<Option<(u64, Launched)>>,
    /// What a profiler shows of it.
    _shown: Option<Range>,
    thread: PhantomData<*const ()>,
}

impl<D: HostApi> Lending<D> {
    /// A block of at least `bytes`, for the stream to use from now on: in memory of the pool's graphs if there is a
    /// place, and else as [`Pool::allocate`] gives it.
    ///
    /// What the stream is given from now on comes after all launches of the pool's graphs so far. Until such a block is
    /// dropped, none of these graphs can be launched ([`PoolRefusal::BlocksLent`](crate::PoolRefusal::BlocksLent)). The
    /// next launch comes after all work that has used the block: on its own stream, and on those that
    /// [`Memory::record_stream`] was told of.
    ///
    /// Costs a wait of the stream for an event where the pool was launched on another since the last call, and
    /// what [`HostCalls::lend`](crate::engine::HostCalls::lend) does.
    ///
    /// # Errors
    /// Those of [`Pool::follow`], [`HostCalls::lend`](crate::engine::HostCalls::lend) and [`Pool::allocate`].
    pub fn allocate(&self, bytes: u64) -> Result<Memory<D>, Error> {
        const CALL: &str = "allocate";
        let _told = tell_later();
        let engine = self.pool.engine();
        let order = self.pool.order();
        order.must_launch(CALL)?;
        let launched = Launched::behind(engine.driver(), self.stream, CALL)?;
        let now = Some((order.launches(), launched));
        if self.followed.get() != now {
            order.follow(launched, CALL)?;
            self.followed.set(now);
        }
        let block = engine.host().lend(self.pool.id(), bytes, self.stream, Lent::Temporary)?;
        drop(order);
        match block {
            Some(block) => Ok(Memory::new(block, self.pool.clone())),
            None => self.pool.allocate(bytes, self.stream),
        }
    }

    /// The stream.
    pub fn stream(&self) -> StreamHandle {
        self.stream
    }

    /// The pool.
    pub fn pool(&self) -> Pool<D> {
        self.pool.clone()
    }
}

impl<D: HostApi> Drop for Lending<D> {
    fn drop(&mut self) {
        // What cannot be marked now, the next launch marks or refuses.
        let _ = self.pool.engine().host().mark_borrower(self.pool.id(), self.stream);
    }
}

shown!([D: HostApi] Lending<D>: |it| pool = it.pool.id(), stream = it.stream);

impl<D: HostApi> Pool<D> {
    /// Lets a stream that does not capture borrow memory of the pool's graphs while none of them runs: what they do
    /// not keep between launches, which is all but outputs, inputs and what lies in blocks. Planned
    /// captures ([`PoolConfig::plan`](crate::engine::PoolConfig::plan)) lend nothing.
    ///
    /// A block that a capture both allocated and freed is not kept: the library assumes that each launch writes it
    /// before reading it. If eager work wrote to such a block during the capture, borrowers overwrite what it wrote,
    /// and launches read what borrowers left.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use regraph::driver::{CaptureMode, HostApi};
    /// # use regraph::{Config, Engine, Error, Pool, PoolConfig, PoolRefusal};
    /// # use regraph_sim::{Launch, SimConfig, SimDriver};
    /// # fn main() -> Result<(), Error> {
    /// # let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    /// # let pool = Pool::new(&engine, PoolConfig::default());
    /// # let stream = engine.driver().create_stream()?;
    /// let (graph, ()) = engine.capture(stream, &pool, CaptureMode::Relaxed, |capture| {
    ///     let temporary = capture.allocate(1 << 30, stream)?;
    ///     engine.driver().launch_kernel(stream, Launch::default())?; // uses it
    ///     drop(temporary);
    ///     Ok::<_, Error>(())
    /// })?;
    /// graph.launch(stream)?;
    /// let lending = pool.lend(stream)?;
    /// let block = lending.allocate(1 << 30)?; // where the temporary block lies
    /// engine.driver().launch_kernel(stream, Launch::default())?; // uses the block, after the graph
    /// assert_eq!(pool.statistics()?.lent, 1 << 30);
    /// assert!(matches!(graph.launch(stream), Err(Error::Pool { why: PoolRefusal::BlocksLent { .. }, .. })));
    /// drop(block);
    /// graph.launch(stream)?; // after that
    /// assert_eq!(pool.reserved()?, 1 << 30);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Pool::follow`].
    pub fn lend(&self, stream: impl AsStream) -> Result<Lending<D>, Error> {
        const CALL: &str = "lend";
        let launched = Launched::behind(self.engine().driver(), stream, CALL)?;
        self.order().must_launch(CALL)?;
        let lends = || {
            let (pool, stream) = (self.engine().label(self.id()), launched.stream());
            format!("{pool} lends memory of its graphs to {stream}, between their launches")
        };
        self.engine().tell(Level::Debug, lends);
        Ok(Lending {
            pool: self.clone(),
            stream: launched.stream(),
            followed: Cell::new(None),
            _shown: self.engine().range(lends),
            thread: PhantomData,
        })
    }

    /// Lends another process of the device `bytes` of what graphs of the pool do not keep between launches, as
    /// [`Pool::lend`] does for a stream of this one; that process takes the loan by its handle
    /// ([`Sharing::take_loan`](crate::engine::Sharing::take_loan)). The lent block is that of `stream`, which does not
    /// capture. Waits for the device, so that the launches so far have completed. Memory must be exportable
    /// ([`Settings::exportable`](crate::Settings::exportable)).
    ///
    /// Until the loan is back no graph of the pool can be launched
    /// ([`PoolRefusal::BlocksLent`](crate::PoolRefusal::BlocksLent)).
    /// [`Sharing::offer_loan`](crate::engine::Sharing::offer_loan) says when that is, and for what the other process is
    /// trusted.
    ///
    /// # Errors
    /// [`PoolRefusal::NothingLent`] where the pool has no such place now;
    /// [`Error::DeviceCaptures`] where something captures, which a wait would ruin; those of [`Pool::follow`],
    /// [`HostCalls::lend`](crate::engine::HostCalls::lend) and
    /// [`Sharing::offer_loan`](crate::engine::Sharing::offer_loan).
    pub fn lend_to_process(&self, bytes: u64, stream: impl AsStream) -> Result<Loan, Error> {
        let loan =
            self.lend_once_idle(bytes, stream, |block| self.engine().sharing().offer_loan(block))?;
        self.engine().tell(Level::Debug, || {
            let pool = self.engine().label(self.id());
            format!("{pool} lends {bytes} bytes of its graphs' memory to another process")
        });
        Ok(loan)
    }

    /// As [`Pool::lend_to_process`], to a process that a test plays, whose block the test shares by itself.
    #[doc(hidden)]
    pub fn play_loan(&self, bytes: u64, stream: impl AsStream) -> Result<(LoanId, BlockId), Error> {
        self.lend_once_idle(bytes, stream, |block| {
            Ok((self.engine().sharing().play_loan(block)?, block))
        })
    }

    /// Borrows a block, and offers it once the launches so far have completed. It is freed where that fails.
    fn lend_once_idle<R>(
        &self,
        bytes: u64,
        stream: impl AsStream,
        offer: impl FnOnce(BlockId) -> Result<R, Error>,
    ) -> Result<R, Error> {
        const CALL: &str = "lend_to_process";
        let _told = tell_later();
        let (engine, pool) = (self.engine(), self.id());
        let launched = Launched::behind(engine.driver(), stream, CALL)?;
        let order = self.order();
        order.follow(launched, CALL)?;
        let block = engine.host().lend(pool, bytes, launched.stream(), Lent::Temporary)?;
        drop(order);
        let nothing = || engine.refuse(pool, CALL, PoolRefusal::NothingLent { bytes });
        let block = block.ok_or_else(&nothing)?;
        // No graph is launched from here on. The stream, which has followed the last launch and may have borrowed before,
        // may be another device's, which a wait for this device does not cover.
        let behind = Event::behind(engine, launched.stream());
        let done = behind.and_then(|event| event.synchronize()).map_err(Error::from);
        let offered = done.and_then(|()| match engine.wait_for_device() {
            // Where the pool's last graph has gone meanwhile, the block is eager work's.
            Ok(true) => offer(block.id).map_err(|error| match error {
                Error::Unknown { what: Unknown::Block(_), .. } => nothing(),
                error => error,
            }),
            Ok(false) => Err(Error::DeviceCaptures { call: CALL }),
            Err(error) => Err(error),
        });
        offered.inspect_err(|_| _ = engine.free(block.id))
    }
}
