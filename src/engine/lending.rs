//! Memory of graphs for work outside captures, between their launches (`design/sleep-and-lend.md`); [`Spare`] says who
//! may have what is free in a pool: the driver, other pools, or the pool alone.

use std::fmt;
use std::sync::Arc;

use super::allocate::{Request, POLLED};
use super::config::Flaw;
use super::history::Asked;
use super::live_blocks::{LiveBlock, Tenure};
use super::names::{BlockId, GraphId, PoolId};
use super::report::Block;
use super::{one_stream, Engine, Error, HostCalls, Level, Locked, PoolRefusal, State};
use crate::driver::{AsStream, Driver, DriverError, HostApi, StreamHandle};
use crate::heap::{is_small, Lent, Mark, Placed, Requester};
use crate::journal::BlockNumber;
use crate::sync::AtomicBool;

const CALL: &str = "lend";

impl<D: Driver> Engine<D> {
    /// Is set while the next launch of a graph of the pool has anything to ask: whether the pool
    /// [is awake](HostCalls::require_awake), and what [was lent](HostCalls::follow_lent) of it.
    pub(crate) fn asks(&self, pool: PoolId) -> Arc<AtomicBool> {
        // A poisoned engine lends nothing more, and refuses to be asked.
        let poisoned = || Arc::new(AtomicBool::new(true));
        let Ok(state) = self.lock() else { return poisoned() };
        state.pools.get(pool).map_or_else(poisoned, |row| Arc::clone(row.asks()))
    }

    /// Fills what the graphs of a pool do not keep between launches, by a stream that comes after their launches so
    /// far and after all work on what was lent. False where a capture uses the pool: nothing is filled then.
    pub(crate) fn poison(&self, pool: PoolId, stream: StreamHandle) -> Result<bool, Error>
    where
        D: HostApi,
    {
        /// Not a number, and a negative one.
        const BYTE: u8 = 0xff;
        if self.driver.device_of_stream(stream)? != self.driver.device() {
            return Ok(true);
        }
        // Under the lock: no request gets any of it meanwhile.
        self.change(|locked| {
            if !locked.may_lend(pool)? {
                return Ok(false);
            }
            for heap in locked.state.pools.heaps_of(Some(pool)) {
                for (address, bytes) in locked.state.pools.heap(heap).temporary_places() {
                    self.driver.fill(address, bytes, BYTE, stream)?;
                }
            }
            Ok(true)
        })
    }

    pub(crate) fn poisons(&self) -> bool {
        self.config.settings.poison
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// Hands out a block of at least `bytes` to `stream`, outside captures, in memory that graphs of the pool use: what
    /// these do not keep between launches. `None` where there is no such place, the stream captures or a capture into
    /// the pool is under way. The pool never grows for it, and memory that captures get at their end, as planned, is
    /// not lent. Costs what [`Engine::allocate`] does where the stream's cache has nothing.
    ///
    /// **The host promises** that work of the stream from now on comes after all launches of the pool's graphs so far,
    /// and that no block is lent while a graph is launched. A host that launches by itself calls
    /// [`HostCalls::follow_lent`] before each launch. [`graphs::Pool::lend`](crate::graphs::Pool::lend) and launches of
    /// [`graphs`](crate::graphs) do all of this.
    ///
    /// Once the block is freed, its memory goes to what the stream borrows next; after the next launch, or once the
    /// stream's work has completed, also to other streams that borrow and to captures of the pool.
    ///
    /// # Errors
    /// [`Error::ZeroBytes`], [`Error::Unknown`], [`PoolRefusal::Suspended`],
    /// [`StreamRefusal::PerThread`](crate::StreamRefusal::PerThread), [`Error::CaptureInvalidated`]; the driver's.
    pub fn lend(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: impl AsStream,
        lent: Lent,
    ) -> Result<Option<Block>, Error> {
        let request = self.0.ask(CALL, pool, bytes, stream.as_stream())?;
        self.0.change(|locked| locked.lend(&request, lent))
    }

    /// Orders what `stream` is given from now on, which is a launch of a graph of the pool, after all work that has
    /// used memory which the pool has lent. Does not block the host. Once the launch is submitted the host calls
    /// [`HostCalls::forget_borrowers`].
    ///
    /// # Errors
    /// [`PoolRefusal::BlocksLent`] while such a block is live. [`PoolRefusal::LentWork`], where no event can be
    /// recorded behind that work now: on a stream that captures, or that belongs to another thread.
    /// [`Engine::wait_for_device`] helps then, or that thread drops its [`graphs::Lending`](crate::graphs::Lending).
    /// [`Error::Unknown`]; the driver's.
    pub fn follow_lent(&self, pool: PoolId, stream: impl AsStream) -> Result<(), Error>
    where
        D: HostApi,
    {
        let stream = one_stream(stream.as_stream(), "launch")?;
        self.0.change(|locked| locked.follow_lent(pool, stream))
    }

    /// Tells the engine that the launch for which [`HostCalls::follow_lent`] was called was submitted, and that later
    /// launches come after it.
    pub fn forget_borrowers(&self, pool: PoolId) -> Result<(), Error> {
        let mut state = self.0.lock()?;
        state.pool(pool, "launch")?;
        state.pools.forget_borrowers(pool);
        Ok(())
    }

    /// How many graphs a pool has, those included that use other pools too.
    pub fn graph_count(&self, pool: PoolId) -> Result<usize, Error> {
        Ok(self.0.lock()?.pool(pool, "graph_count")?.graphs())
    }

    /// Marks how far a stream that has borrowed from a pool is, so that launches on other threads can come after its
    /// work. Costs one event record where the stream has freed a borrowed block since the last mark.
    pub fn mark_borrower(&self, pool: PoolId, stream: impl AsStream) -> Result<(), Error> {
        let stream = one_stream(stream.as_stream(), CALL)?;
        self.0.change(|locked| {
            let known = locked.state.timelines.known(stream);
            let mut behind = locked.state.pool(pool, CALL)?.borrowers().iter();
            if let Some(&mark) = behind.find(|mark| known == Some(mark.timeline)) {
                locked.state.timelines.fence(locked.driver, mark.timeline);
            }
            Ok(())
        })
    }

    /// Sets what becomes of a pool's free memory. Blocks that other pools have there stay theirs until they are freed.
    pub fn set_spare(&self, pool: PoolId, spare: Spare) -> Result<(), Error> {
        self.0.change(|locked| {
            locked.state.pool(pool, "set_spare")?;
            locked.state.pools.set_spare(pool, spare);
            let text = |pool| format!("free memory of {pool} is {spare}");
            locked.state.say_of(pool, Level::Debug, text);
            Ok(())
        })
    }

    /// Gives free memory of a pool back to the driver, also where the pool keeps it ([`Spare::Kept`]), and returns how
    /// many bytes went. With `wait`, and where work may still use freed memory of the pool, it first waits for the last
    /// event that the engine has recorded on each stream, streams that never used the pool included. Other calls go on
    /// during the wait.
    pub fn empty_pool(&self, pool: PoolId, wait: bool) -> Result<u64, Error> {
        const CALL: &str = "empty_pool";
        if wait {
            self.0.change(|locked| {
                let heaps = locked.state.pool(pool, CALL)?.heaps();
                locked.free_completed(Some(pool));
                let unsettled = |heap: &u32| locked.state.pools.heap(*heap).unsettled() > 0;
                if locked.state.is_settling(pool) || heaps.iter().any(unsettled) {
                    locked.errands.wait();
                }
                Ok(())
            })?;
        }
        self.0.change(|locked| {
            locked.state.pool(pool, CALL)?;
            locked.free_completed(Some(pool));
            let before = locked.state.pools.reserved(pool);
            locked.give_back(Some(pool), u64::MAX, None);
            Ok(before.saturating_sub(locked.state.pools.reserved(pool)))
        })
    }

    /// The largest block that a request outside captures to a pool could get, in bytes, while nothing else is given
    /// back for it: free in the pool, perhaps after streams have completed, or on the device within the limits.
    ///
    /// # Errors
    /// [`Error::Unknown`]; the driver's.
    pub fn largest_block(&self, pool: PoolId) -> Result<u64, Error> {
        self.0.change(|locked| {
            let heaps = locked.state.pool(pool, "largest_block")?.heaps();
            locked.free_completed(Some(pool));
            let device = locked.driver.memory_info()?.free.min(locked.state.room(pool));
            let places = heaps.iter().map(|&heap| locked.state.pools.heap(heap).largest_place());
            Ok(places.fold(device, u64::max))
        })
    }
}

impl State {
    /// Ends the loan of a block that is freed or taken over: the pool's next launch must wait for the streams that used
    /// it. A block that was taken over before is on loan no more; only its streams are noted.
    pub(super) fn note_lent_gone(&mut self, block: &LiveBlock) {
        let Self { pools, timelines, .. } = self;
        let Some(row) = pools.get_mut(pools.pool_of(block.site.heap)) else { return };
        if matches!(block.tenure, Tenure::Lent(_)) {
            row.remove_lent(block.bytes);
        }
        for stream in block.users() {
            row.launch_behind(timelines.open_mark(stream));
        }
        let gone = block.gone.as_deref().copied();
        row.launch_behind(gone.unwrap_or_else(|| timelines.open_mark(block.asked.stream)));
    }

    /// A capture is accepted: what was lent of all that is free in its graph's pools becomes as its outputs, but for what
    /// was lent since the capture was over, when the number of the next block was `end`: the graph may write there.
    pub(super) fn adopt_lent(&mut self, graph: GraphId, end: BlockNumber) {
        for pool in self.pools.pools_of(graph) {
            if self.pools.get(pool).is_none_or(|row| row.lent().0 == 0) {
                continue;
            }
            let adopted = |block: &LiveBlock| {
                let all_free =
                    block.site.is_in(pool) && block.tenure == Tenure::Lent(Lent::AllFree);
                all_free && block.site.number < end
            };
            let blocks = self.blocks.iter().filter(|block| adopted(block));
            for block in blocks.cloned().collect::<Vec<_>>() {
                self.note_lent_gone(&block);
            }
            for block in self.blocks.iter_mut().filter(|block| adopted(block)) {
                block.tenure = Tenure::Adopted;
            }
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Whether a loan of the pool to another process is not over, also one of when the pool had graphs.
    pub(super) fn has_loan(&self, pool: PoolId) -> bool {
        let is_in = |bits| {
            let block = self.state.blocks.get(BlockId::from_bits(bits));
            block.is_some_and(|it| it.site.is_in(pool))
        };
        self.loans.blocks().into_iter().any(is_in)
    }

    /// Frees the blocks of loans that are back. Costs a look at a counter where there are none.
    pub(super) fn settle_loans(&mut self) {
        for block in self.loans.take_back().into_iter().map(BlockId::from_bits) {
            let Ok((live, _)) = self.live_block(block, "settle_loans") else { continue };
            let pool = self.state.pools.pool_of(live.site.heap);
            if self.free(block).is_ok() {
                self.state.say_of(pool, Level::Debug, |pool| {
                    format!("a loan of {pool} to another process is back")
                });
            }
        }
    }

    fn lend(&mut self, request: &Request, lent: Lent) -> Result<Option<Block>, Error> {
        let &Request { pool, bytes, asked: Asked { stream, .. }, .. } = request;
        self.settle_loans();
        self.state.must_be_awake(pool, CALL)?;
        if self.capture_of(stream, CALL)?.is_some() {
            return Ok(None);
        }
        // First, as a capture may be found to use the pool by that.
        self.poll_waits(POLLED);
        if !self.may_lend(pool)? {
            return Ok(None);
        }
        let timeline = self.assign_stream(stream, true);
        let requester = Requester::Lent { timeline, lent };
        let homes = self.state.pool(pool, CALL)?.homes(bytes, requester);
        if self.state.pool(pool, CALL)?.take_passed() {
            // The launch came after all who had it, and this stream comes after the launch.
            for heap in self.state.pools.heaps_of(Some(pool)) {
                self.state.pools.heap_mut(heap).free_lent();
            }
        }
        let mut found = self.place(requester, homes, bytes, false);
        let heaps = self.state.pools.heaps_of(Some(pool));
        let given_back = |&heap: &u32| self.state.pools.heap(heap).unsettled() > 0;
        if found.is_none() && heaps.iter().any(given_back) {
            self.free_completed(Some(pool));
            if !self.may_lend(pool)? {
                return Ok(None);
            }
            found = self.place(requester, homes, bytes, false);
        }
        Ok(found.map(|(heap, placed)| self.hand_out(request, heap, requester, placed)))
    }

    /// Whether the pool has graphs, and no capture under way, whose record must name what stands in the pool.
    fn may_lend(&mut self, pool: PoolId) -> Result<bool, Error> {
        let row = self.state.pool(pool, CALL)?;
        Ok(row.graphs() > 0 && row.captures() == 0)
    }

    fn follow_lent(&mut self, pool: PoolId, stream: StreamHandle) -> Result<(), Error>
    where
        D: HostApi,
    {
        self.settle_loans();
        let row = self.state.pool(pool, "launch")?;
        let (live, _) = row.lent();
        let behind: Vec<Mark> = row.borrowers().to_vec();
        if live > 0 {
            let lent = |block: &LiveBlock| matches!(block.tenure, Tenure::Lent(_));
            let blocks = self.live_of(pool, lent);
            let why = PoolRefusal::BlocksLent { blocks };
            return Err(self.state.pools.refuse(pool, "launch", why));
        }
        let own = self.state.timelines.known(stream);
        for mark in behind {
            if own == Some(mark.timeline) {
                continue;
            }
            if !self.state.timelines.lead(self.driver, stream, mark)? {
                let stream = self.state.timelines.stream(mark.timeline);
                let why = PoolRefusal::LentWork { stream };
                return Err(self.state.pools.refuse(pool, "launch", why));
            }
        }
        self.state.pool(pool, "launch")?.set_followed();
        Ok(())
    }

    /// A place for work outside captures in a pool that offers what is free in it now, if the pool that
    /// was asked takes offers. The driver's error, where memory of a pool that offers it is lost: it is suspended now.
    pub(super) fn take_offer(
        &mut self,
        request: &Request,
        requester: Requester,
        spare: Spare,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        if self.state.pools.offering().is_empty() {
            return Ok(None);
        }
        let &Request { pool, bytes, asked: Asked { stream, .. }, .. } = request;
        let takes = self.state.pools.get(pool).is_some_and(|row| row.config().takes_offers);
        if !takes || !matches!(requester, Requester::Outside { .. }) {
            return Ok(None);
        }
        for offering in self.state.pools.offering().to_vec() {
            let Some(row) = self.state.pools.get(offering) else { continue };
            if row.spare() != spare || offering == pool || self.state.is_settling(offering) {
                continue;
            }
            let homes = row.homes(bytes, requester);
            self.end_premapped(offering, None)?;
            self.take_back_own((offering, stream), is_small(bytes));
            if self.config.lacks(Flaw::Lending) {
                self.state.pools.heap_mut(homes[0]).free_completed(|_| true);
            }
            if let Some(placed) = self.place(requester, homes, bytes, false) {
                return Ok(Some(placed));
            }
        }
        Ok(None)
    }
}

/// What becomes of memory that is free in a pool while the driver or other pools could use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spare {
    /// Free memory goes back to the driver when the cache is emptied or memory is short.
    #[default]
    GivenBack,
    /// Free memory stays in the pool, until [`HostCalls::empty_pool`], or until the pool itself is short of memory.
    Kept,
    /// Free memory stays in the pool as with [`Spare::Kept`], but where memory is short, requests outside captures to
    /// pools that take offers ([`PoolConfig::takes_offers`](super::PoolConfig::takes_offers)) get some of it.
    OfferedWhenShort,
    /// Requests outside captures to pools that take offers get free memory before these pools grow. Free memory goes
    /// back to the driver as with [`Spare::GivenBack`].
    Offered,
}

impl fmt::Display for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GivenBack => "given back",
            Self::Kept => "kept",
            Self::OfferedWhenShort => "offered where memory is short",
            Self::Offered => "offered",
        })
    }
}
