//! Handing out memory. [`Engine::allocate`] asks the stream's cache first. What that has not goes through
//! [`Locked::allocate`]: a place among what is free, or in memory that the driver gives ([`oom`](super::oom)).

use smallvec::SmallVec;

use super::config::Flaw;
use super::history::{Asked, EventKind};
use super::lending::Spare;
use super::live_blocks::{BlockSite, Home, LiveBlock, Origin, Tenure};
use super::names::{BlockId, PoolId};
use super::oom::{Purpose, Remedy};
use super::pools::{Homes, Pools};
use super::report::Block;
use super::stream_cache::{CacheLease, StreamCache};
use super::{one_stream, Engine, Error, HostCalls, Locked, State, StreamRefusal};
use crate::capture::Proof;
use crate::driver::{AsStream, CaptureId, CaptureStatus, Driver, DriverError, StreamHandle};
use crate::heap::{is_small, CaptureSlot, Heap, Placed, Requester, Wanted};
use crate::journal::Entry;
use crate::layout::Demand;
use crate::policy::Reuse;
use crate::settings::Rounding;
use crate::sync::MutexGuard;

const CALL: &str = "allocate";

/// How many timelines and waiting ranges are looked at before the heap grows: a bound on what one call costs.
pub(super) const POLLED: usize = 32;

/// Blocks begin and end at multiples of this, in bytes.
pub(super) const UNIT: u64 = 512;

/// No request is larger, in bytes: sums of a few cannot overflow.
pub(super) const LARGEST: u64 = 1 << 60;

/// A request for memory.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The host's call, for errors.
    call: &'static str,
    pub(super) pool: PoolId,
    /// What the block is to occupy, in bytes.
    pub(super) bytes: u64,
    /// Whether it is to have memory of its own for good.
    pub(super) fixed: bool,
    pub(super) asked: Asked,
}

impl<D: Driver> Locked<'_, D> {
    /// Hands a block out; `None` where the request is to be made again.
    pub(super) fn allocate(&mut self, request: &Request) -> Result<Option<Block>, Error> {
        self.state.must_be_awake(request.pool, request.call)?;
        let capture = self.capture_of(request.asked.stream, request.call)?;
        self.allocate_in(capture, request)
    }

    /// Allocates for a stream of a capture, and for no other stream; `None` where the request is to be made again.
    fn allocate_for(
        &mut self,
        expected: CaptureId,
        request: &Request,
    ) -> Result<Option<Block>, Error> {
        let &Request { call, pool, asked: Asked { stream, .. }, .. } = request;
        match self.driver.capture_status(stream, &mut self.state.terminals)? {
            CaptureStatus::Active { capture, .. } if capture == expected => {}
            CaptureStatus::Invalidated => return Err(self.invalidated(stream, call)),
            _ => return Err(Error::Stream { call, stream, why: StreamRefusal::NotInCapture }),
        }
        self.state.must_be_awake(pool, call)?;
        self.allocate_in(Some(expected), request)
    }

    /// Allocates from the pool that serves the stream's capture, or from `outside` where it is in none.
    /// `Some(None)` if no pool serves the capture; `None` where the request is to be made again.
    fn allocate_by_capture(
        &mut self,
        outside: PoolId,
        request: &mut Request,
    ) -> Result<Option<Option<Block>>, Error> {
        let capture = self.capture_of(request.asked.stream, CALL)?;
        request.pool = match capture.map(|capture| self.state.captures.serves(capture)) {
            None => outside,
            Some(Some(pool)) => pool,
            Some(None) => return Ok(Some(None)),
        };
        self.state.must_be_awake(request.pool, CALL)?;
        Ok(self.allocate_in(capture, request)?.map(Some))
    }

    /// Allocates for a stream of a capture, or outside captures; `None` where the request is to be made again.
    #[inline]
    fn allocate_in(
        &mut self,
        capture: Option<CaptureId>,
        request: &Request,
    ) -> Result<Option<Block>, Error> {
        if capture.is_some_and(|capture| self.study(capture, request)) {
            return Ok(None);
        }
        let &Request { call, pool, bytes, asked: Asked { requested, .. }, .. } = request;
        // Who asks. A stream of a capture is looked at, so that the proof knows its latest nodes.
        let requester = self.requester(request, capture)?;
        if requested > LARGEST {
            return Err(self.out_of_memory(request, requester));
        }
        // Where the block goes: a place that is free and proven, or new memory.
        let homes = self.state.pool(pool, call)?.homes(bytes, requester);
        let found = match requester {
            Requester::Capture { capture, .. } if self.is_foreseen(request, capture) => {
                self.find_foreseen(request, homes, requester, capture)
            }
            _ => self.find(request, homes, requester),
        };
        // The block is entered in records, figures and tables, or the failure is told.
        match found {
            Ok(Some((heap, placed))) => Ok(Some(self.hand_out(request, heap, requester, placed))),
            Err(error) if !error.is_out_of_memory() => Err(error.into()),
            Ok(None) if self.errands.is_postponed() => Ok(None),
            Ok(None) | Err(_) => Err(self.out_of_memory(request, requester)),
        }
    }

    /// A place in memory of its own, by the plan that is made at its capture's end, by the layout that the capture
    /// follows, or by the proof alone.
    #[inline(never)]
    fn find_foreseen(
        &mut self,
        request: &Request,
        homes: Homes,
        requester: Requester,
        capture: CaptureSlot,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let &Request { pool, fixed, .. } = request;
        if (fixed || self.is_planned(capture, pool)) && self.can_plan_in(pool) {
            return match fixed {
                true => self.find_fixed(request, capture),
                false => self.find_planned(request, homes, requester),
            };
        }
        match self.follow(request, requester, capture) {
            None => self.find(request, homes, requester),
            laid => Ok(laid),
        }
    }

    fn out_of_memory(
        &mut self,
        &Request { pool, asked: Asked { requested, stream, .. }, .. }: &Request,
        requester: Requester,
    ) -> Error {
        let need = (requested, pool, matches!(requester, Requester::Outside { .. }));
        Error::OutOfMemory(self.report_oom(Purpose::Block, need, Some((stream, requester))))
    }

    /// Says who asks: work outside captures, or a stream of a capture, looked at just now.
    fn requester(
        &mut self,
        &Request { call, pool, bytes, asked: Asked { stream, .. }, .. }: &Request,
        capture: Option<CaptureId>,
    ) -> Result<Requester, Error> {
        let Some(capture) = capture else {
            self.caches.forget_capturing(stream);
            return Ok(Requester::Outside { timeline: Some(self.assign_stream(stream, false)) });
        };
        let (slot, stream) = self.look_into(stream, capture, pool, Some(bytes), call)?;
        let share = self.config.settings.reuse == Reuse::CrossStream;
        Ok(Requester::Capture { capture: slot, stream, share })
    }

    /// A block at an address, outside captures.
    fn allocate_at(&mut self, request: &Request, address: u64) -> Result<Option<Block>, Error> {
        let &Request { call, pool, bytes, asked: Asked { stream, .. }, .. } = request;
        self.state.must_be_awake(pool, call)?;
        let capture = self.capture_of(stream, call)?;
        if capture.is_some() || !address.is_multiple_of(UNIT) {
            return Ok(None);
        }
        let requester = self.requester(request, None)?;
        let heap = self.state.pool(pool, call)?.homes(bytes, requester)[0];
        self.end_premapped(pool, None)?;
        self.free_completed(Some(pool));
        let placed = self.with_proof(requester, |pools, proof| {
            pools.heap_mut(heap).place_at(address, bytes, requester, proof)
        });
        Ok(placed.map(|placed| self.hand_out(request, heap, requester, placed)))
    }

    /// A place among what is free, or among what has become free, or in new memory.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        request: &Request,
        homes: Homes,
        requester: Requester,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let &Request { pool, bytes, asked: Asked { stream, .. }, .. } = request;
        if let Requester::Outside { .. } = requester {
            self.end_premapped(pool, None)?;
            // First of all, so that free neighbours are one range when a place is chosen.
            self.take_back_own((pool, stream), is_small(bytes));
            self.poll_waits(POLLED);
        }
        match self.place(requester, homes, bytes, false) {
            None => match self.take_offer(request, requester, Spare::Offered)? {
                None => self.find_more(request, homes, requester),
                offered => Ok(offered),
            },
            placed => Ok(placed),
        }
    }

    /// Finds a place where no free range will do: memory that waits for work, or new memory.
    #[inline(never)]
    fn find_more(
        &mut self,
        request: &Request,
        homes: Homes,
        requester: Requester,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let &Request { pool, bytes, .. } = request;
        if self.poll_waits(POLLED) {
            if let Some(placed) = self.place(requester, homes, bytes, false) {
                return Ok(Some(placed));
            }
        }
        let mut freed = self.free_completed(Some(pool));
        if self.config.lacks(Flaw::StreamOrder) {
            freed |= self.state.pools.heap_mut(homes[0]).free_completed(|_| true);
        }
        if freed {
            if let Some(placed) = self.place(requester, homes, bytes, false) {
                return Ok(Some(placed));
            }
        }
        if bytes > self.capacity(pool) {
            return Ok(None);
        }
        if matches!(requester, Requester::Capture { capture, .. } if !self.is_laid(capture, pool)) {
            // A block that is larger than what an arena has left of its addresses would go behind them.
            self.state.pools.heap_mut(homes[0]).close_arena();
        }
        let need = (bytes, pool, matches!(requester, Requester::Outside { .. }));
        self.oom_ladder(need, |locked, attempt| match attempt {
            Remedy::Grow => locked.grow(request, homes[0], requester, false),
            Remedy::Place => Ok(locked.place(requester, homes, bytes, true)),
            Remedy::Offer => locked.take_offer(request, requester, Spare::OfferedWhenShort),
        })
    }

    /// A place in memory that the pool holds; where `all` is looked at, none is overlooked.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        requester: Requester,
        [mut number, second]: Homes,
        bytes: u64,
        all: bool,
    ) -> Option<(u32, Placed)> {
        let driver = self.driver;
        self.with_proof(requester, |pools, proof| loop {
            let heap = pools.counted_heap_mut(number);
            let placed = heap.place(bytes, requester, proof, all);
            match placed.or_else(|| heap.open(driver, bytes, requester, proof)) {
                Some(placed) => return Some((number, placed)),
                None if number == second => return None,
                None => number = second,
            }
        })
    }

    /// A place in memory that the driver gives, with `apart` in nothing else.
    pub(super) fn grow(
        &mut self,
        request: &Request,
        heap: u32,
        requester: Requester,
        apart: bool,
    ) -> Result<Option<(u32, Placed)>, DriverError> {
        let &Request { pool, bytes, asked: Asked { requested, stream, .. }, .. } = request;
        let (step, usual) = self.ahead(pool, Pools::is_small(heap), requester);
        let bounds = (self.state.room(pool), step, usual);
        let source = self.state.pools.get(pool).and_then(|row| row.config().source.clone());
        let given_by = source.as_ref().map(|source| (source, stream));
        let wanted = Wanted::new((bytes, requested), apart, bounds, given_by);
        let driver = self.driver;
        let grown = self.with_proof(requester, |pools, proof| {
            pools.heap_mut(heap).grow(driver, wanted, requester, proof)
        })?;
        Ok(grown.map(|placed| (heap, placed)))
    }

    /// Runs a search with the one proof, which must show a capture's markers for the stream that asks.
    #[inline(always)]
    pub(super) fn with_proof<R>(
        &mut self,
        requester: Requester,
        run: impl FnOnce(&mut Pools, Proof<'_>) -> R,
    ) -> R {
        let State { pools, captures, .. } = &mut *self.state;
        let proof = match requester {
            Requester::Capture { .. } if self.config.lacks(Flaw::Proof) => Proof::FLAWED,
            Requester::Capture { capture, stream, .. } => captures.get(capture).proof.proof(stream),
            Requester::Outside { .. } | Requester::Lent { .. } => Proof::NONE,
        };
        run(pools, proof)
    }

    /// Enters a block among the live ones that has its place: into the records of captures under way, the figures and
    /// the table of live blocks. Outside captures its stream's cache has it on lease, where that may keep it.
    pub(super) fn hand_out(
        &mut self,
        request: &Request,
        heap: u32,
        requester: Requester,
        placed: Placed,
    ) -> Block {
        let Request { asked, .. } = request;
        let &Asked { requested, stream, .. } = asked;
        // Another one than the request's, where it lends.
        let pool = self.state.pools.pool_of(heap);
        let Placed { range, mut address, bytes, users } = placed;
        if self.config.lacks(Flaw::Alias) && matches!(requester, Requester::Capture { .. }) {
            let live = self.state.blocks.of(pool).next();
            address = live.map_or(address, |it| self.state.pools.place(it.site).0);
        }
        if self.state.pools.find_heap(heap).is_none_or(Heap::is_changed) {
            // Before the block: the history shows memory before what lies in it.
            self.count_changes(heap);
        }
        let number = self.state.blocks.number();
        let site = BlockSite { number, heap, range };
        // What the records of captures beside it tell.
        let standing = Entry::Standing { block: number, address, bytes };
        let id = match requester {
            Requester::Capture { capture, stream: index, .. } => {
                // Into its record: whose place it has, if any, and the block itself.
                self.state.tell_met(capture, pool, (address, bytes));
                let State { captures, blocks, .. } = &mut *self.state;
                let capture_state = captures.get_mut(capture);
                capture_state.proof.hand_out(index);
                let since = capture_state.proof.tick();
                let entry = Entry::Allocate { block: number, stream, address, bytes };
                capture_state.write_journal(entry);
                capture_state.note_origin(number, asked.frames.as_ref());
                // Into the table, in a row that the capture finds again.
                let origin = Origin::Capture(Home { slot: capture, stream: index, since });
                let right = (origin, Tenure::Own(users));
                let id = blocks.insert(LiveBlock::new(site, bytes, asked.clone(), right));
                self.state.write_journals(pool, Some(capture), standing);
                self.count_in(heap, bytes, requested);
                id
            }
            Requester::Outside { .. } | Requester::Lent { .. } => {
                self.state.write_journals(pool, None, standing);
                let tenure = match requester {
                    Requester::Lent { lent, .. } => Tenure::Lent(lent),
                    // What was offered is the offering pool's again as soon as it is freed.
                    _ if pool != request.pool => Tenure::Offered(request.pool),
                    _ => Tenure::Own(users),
                };
                self.hand_out_outside(pool, (site, tenure), (address, bytes), asked)
            }
        };
        if self.state.history.is_some() {
            self.state.record_block(EventKind::Allocate, (heap, (address, bytes)), asked.clone());
        }
        Block { id, address, bytes: requested }
    }

    /// Enters a block that work outside captures gets, at an address and of so many bytes.
    fn hand_out_outside(
        &mut self,
        pool: PoolId,
        (site, tenure): (BlockSite, Tenure),
        (address, bytes): (u64, u64),
        asked: &Asked,
    ) -> BlockId {
        let BlockSite { number, heap, .. } = site;
        let &Asked { requested, stream, ref frames } = asked;
        let row = self.state.pools.get_mut(pool).expect("found before");
        if let Tenure::Lent(_) = tenure {
            row.add_lent(bytes);
        }
        let caches = self.config.settings.caching && row.config().may_cache();
        let leased = caches && matches!(tenure, Tenure::Own(_));
        let tenure = if leased { Tenure::Leased } else { tenure };
        let known = if leased { None } else { frames.clone() };
        let known = Asked { requested, stream, frames: known };
        let block = LiveBlock::new(site, bytes, known, (Origin::Outside, tenure));
        let id = self.state.blocks.insert(block);
        // A stream cache counts what it leases, and knows who asked.
        match leased {
            true => self.count_left_over(heap),
            false => self.count_in(heap, bytes, requested),
        }
        if self.config.lacks(Flaw::Unlisted) {
            self.state.blocks.forget_listing(id);
        }
        if !leased {
            self.caches.note(stream, Demand::Allocate { block: number, bytes, stream });
            return id;
        }
        let mut cache = self.caches.of(stream);
        self.caches.set_used(cache.number());
        let lease = CacheLease { row: id.slot, asked: asked.clone(), uses: SmallVec::new() };
        let (id, within) = cache.enroll(lease, pool, (address, bytes));
        self.state.accounts.keep_within(self.caches, &mut cache, (pool.row(), within));
        id
    }
}

impl<D: Driver> Engine<D> {
    /// Hands out a block of at least `bytes` to `stream`.
    ///
    /// While `stream` captures, the block is new memory, or memory of which every earlier user is
    /// proven to be completed before the stream's next node starts. Outside captures it is memory
    /// that no graph of the pool will ever use, and that no work uses any more or that `stream` itself
    /// used last: what it submits from now on comes after that.
    ///
    /// Costs the logarithm of the number of free ranges, a test for each of up to 2,048 ranges that the stream may not
    /// take, and a constant for every node that the stream has gained since it was last looked at. Outside captures a
    /// size that the stream has given back before costs no more than a look at its capture status, and nothing that
    /// other streams do slows it. Where the pool must grow, the driver's calls come on top. Only where memory is short,
    /// and outside captures, does the call wait for work, up to eight times where other threads take what it has waited
    /// for; their calls go on meanwhile. The first request of a capture, and its third one, may make a layout
    /// ([`Plans::learned`](crate::engine::Plans::learned)).
    ///
    /// # Errors
    /// [`Error::ZeroBytes`]; [`Error::OutOfMemory`], after which everything goes on as before;
    /// [`Error::CaptureInvalidated`]; [`Error::Unknown`];
    /// [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended); [`StreamRefusal::PerThread`]; the driver's.
    pub fn allocate(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: impl AsStream,
    ) -> Result<Block, Error> {
        self.allocate_as((CALL, false), pool, bytes, stream.as_stream(), || false)
    }

    /// Hands a block out for a call, with `fixed` on memory of its own where memory may be shared or moved.
    #[inline]
    pub(super) fn allocate_as(
        &self,
        (call, fixed): (&'static str, bool),
        pool: PoolId,
        bytes: u64,
        stream: StreamHandle,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Block, Error> {
        let mut request = self.ask(call, pool, bytes, stream)?;
        request.fixed = fixed;
        match self.take_cached(&mut request, false) {
            Some(block) => Ok(block),
            None => self.allocate_locked(&request, last_resort),
        }
    }

    /// Hands a block out that no stream cache has. Apart, since it would make the way through the cache longer.
    #[inline]
    fn allocate_locked(
        &self,
        request: &Request,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Block, Error> {
        self.request(|locked| locked.allocate(request), last_resort)
    }

    /// Like [`Engine::allocate`], or [`Engine::allocate_fixed`] with `fixed`, for a stream of a capture and no other
    /// stream. The driver is asked once for the stream's status.
    ///
    /// # Errors
    /// [`StreamRefusal::NotInCapture`] for a stream that is not in the capture; those of [`Engine::allocate`].
    #[inline]
    pub(crate) fn allocate_in(
        &self,
        capture: CaptureId,
        pool: PoolId,
        bytes: u64,
        stream: StreamHandle,
        fixed: bool,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Block, Error> {
        let call = if fixed { "allocate_fixed" } else { CALL };
        let mut request = self.ask(call, pool, bytes, stream)?;
        request.fixed = fixed;
        self.request(|locked| locked.allocate_for(capture, &request), last_resort)
    }

    /// A request for memory, with the size that the block is to have.
    #[inline]
    pub(super) fn ask(
        &self,
        call: &'static str,
        pool: PoolId,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Request, Error> {
        if bytes == 0 {
            return Err(Error::ZeroBytes { call });
        }
        let requested = bytes;
        let stream = one_stream(stream, call)?;
        // Without caching the driver gives the exact bytes: steps would be of no use.
        let caching = self.config.settings.caching;
        let rounding = if caching { self.rounding.get() } else { Rounding::default() };
        let bytes = rounding.round(requested.min(LARGEST));
        let asked = Asked { requested, stream, frames: self.frames() };
        Ok(Request { call, pool, bytes, fixed: false, asked })
    }

    /// What the stream's cache has for a request outside captures; `at_once` without a wait for another thread, or
    /// for a new peak.
    #[inline]
    fn take_cached(&self, request: &mut Request, at_once: bool) -> Option<Block> {
        // A poisoned engine hands nothing out.
        if !self.config.settings.caching || self.state.is_poisoned() {
            return None;
        }
        let number = self.caches.number_outside(request.asked.stream)?;
        let mut cache = match at_once {
            true => self.caches.get_at_once(number)?,
            false => self.caches.get(number)?,
        };
        let sizes = (request.pool, request.bytes);
        let (block, over) = cache.take(&self.driver, sizes, &mut request.asked, at_once)?;
        if let Some(row) = over {
            // The engine's lock tells the host what this fails with.
            self.raise_allowance(cache, row).ok()?;
        }
        Some(block)
    }

    /// Asks for what a stream cache is missing of its allowance for a pool, or notes a new peak.
    #[cold]
    pub(super) fn raise_allowance(
        &self,
        mut cache: MutexGuard<'_, StreamCache>,
        row: usize,
    ) -> Result<(), Error> {
        if !cache.counters().allow(row, &mut self.caches.peaks()) {
            drop(cache);
            self.with(&mut *self.lock()?).with_sums(|_| {});
        }
        Ok(())
    }
}

impl<D: Driver> HostCalls<'_, D> {
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
        stream: impl AsStream,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Block, Error> {
        self.0.allocate_as((CALL, false), pool, bytes, stream.as_stream(), last_resort)
    }

    /// Like [`Engine::allocate`], outside captures and for an address of the host's choice: `None`, and nothing handed
    /// out, where the stream captures, and where the pool has no memory there, or other than free memory that
    /// `stream` may have at once. Never asks the driver for memory, and waits for no work. Costs a look at each free
    /// range of the pool below the address.
    ///
    /// # Errors
    /// Those of [`Engine::allocate`] but [`Error::OutOfMemory`].
    pub fn allocate_at(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: impl AsStream,
        address: u64,
    ) -> Result<Option<Block>, Error> {
        let request = self.0.ask("allocate_at", pool, bytes, stream.as_stream())?;
        self.0.change(|locked| locked.allocate_at(&request, address))
    }

    /// Like [`HostCalls::allocate_or_release`], for hosts that learn from the driver which pool a request
    /// belongs to: `outside` where the stream does not capture, else that which serves the stream's capture
    /// ([`HostCalls::serve_capture`]). Returns `None`, and does nothing, where no pool serves it. The driver is asked
    /// once for both.
    ///
    /// # Errors
    /// As [`Engine::allocate`].
    pub fn allocate_by_capture(
        &self,
        outside: PoolId,
        bytes: u64,
        stream: impl AsStream,
        last_resort: impl FnOnce() -> bool,
    ) -> Result<Option<Block>, Error> {
        let mut request = self.0.ask(CALL, outside, bytes, stream.as_stream())?;
        if let Some(block) = self.0.take_cached(&mut request, false) {
            return Ok(Some(block));
        }
        self.0.request(|locked| locked.allocate_by_capture(outside, &mut request), last_resort)
    }

    /// Like [`Engine::allocate`], where that waits for no work and for no other thread: a block outside
    /// captures that the stream has given back before. `None`, and nothing done, for everything else; that is
    /// what [`Engine::allocate`] is for. For hosts that come with a lock held.
    #[inline]
    pub fn allocate_at_once(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: impl AsStream,
    ) -> Option<Block> {
        let mut request = self.0.ask(CALL, pool, bytes, stream.as_stream()).ok()?;
        self.0.take_cached(&mut request, true)
    }
}
