//! Checkpoints: a host that records a tree of graphs in one pool brings a pool's live blocks back to life at their
//! addresses, and goes on from there (design/allocator.md, "Checkpoints"; design/safety.md, "Restored blocks").

use super::history::{Asked, EventKind};
use super::live_blocks::{BlockSite, LiveBlock, Origin, Tenure};
use super::names::{BlockId, PoolId};
use super::pools::PoolRow;
use super::report::Block;
use super::stream_cache::Leases;
use super::streams::{StreamStatus, Timelines};
use super::{CheckpointRefusal, Error, HostCalls, Locked, State};
use crate::driver::{Driver, StreamHandle};
use crate::heap::{Cut, Mark, RangeId, Users};

/// The blocks that were live in a pool at some point ([`HostCalls::checkpoint`]).
#[derive(Clone, Debug)]
pub struct Checkpoint {
    pool: PoolId,
    /// In order of addresses.
    blocks: Vec<SavedBlock>,
}

/// A block that was live.
#[derive(Clone, Debug)]
struct SavedBlock {
    heap: u32,
    address: u64,
    /// What it occupied, in bytes.
    bytes: u64,
    asked: Asked,
    /// The number of its stream, which no later stream with the same handle has; none where the stream had been
    /// retired.
    stream_number: Option<u64>,
    /// Whether it belonged to a graph.
    graph: bool,
}

/// What a restoration has changed ([`HostCalls::restore`]).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Restored {
    /// The blocks that were live before and were freed by this, in order of addresses. Their names are unknown from now
    /// on.
    pub freed: Vec<Block>,
    /// The blocks of the checkpoint, which are live now under new names, in order of addresses. Some may lie where
    /// freed ones lay.
    pub live: Vec<Block>,
}

impl Checkpoint {
    /// Its pool.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Address of each block and the size that was asked for, in bytes, in order of addresses.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.blocks.iter().map(|kept| (kept.address, kept.asked.requested))
    }

    fn blocks_in(&self, heap: u32) -> impl Iterator<Item = &SavedBlock> {
        self.blocks.iter().filter(move |kept| kept.heap == heap)
    }

    /// Addresses and sizes in a heap, in order.
    fn places_in(&self, heap: u32) -> Vec<(u64, u64)> {
        self.blocks_in(heap).map(|kept| (kept.address, kept.bytes)).collect()
    }
}

impl<D: Driver> HostCalls<'_, D> {
    /// Notes the blocks of a pool that are live now, for [`HostCalls::restore`]. Nothing of them changes;
    /// memory of captures with a plan that nothing needs any more is given back before.
    ///
    /// # Errors
    /// [`CheckpointRefusal::Captures`], [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended),
    /// [`CheckpointRefusal::NoWayBack`], [`CheckpointRefusal::OnLoan`], [`Error::Unknown`].
    pub fn checkpoint(&self, pool: PoolId) -> Result<Checkpoint, Error> {
        self.0.change(|locked| {
            locked.must_be_plain(pool, "checkpoint")?;
            let mut blocks = Vec::new();
            locked.each_live(|_, block, asked| {
                if !block.site.is_in(pool) || block.tenure.asked_of().is_some() {
                    return;
                }
                let (address, bytes) = locked.state.pools.place(block.site);
                let stream_number = locked.state.timelines.number(asked.stream);
                blocks.push(SavedBlock {
                    heap: block.site.heap,
                    address,
                    bytes,
                    asked: asked.clone(),
                    stream_number: stream_number.filter(|_| block.gone.is_none()),
                    graph: matches!(block.origin, Origin::Graph),
                });
            });
            blocks.sort_unstable_by_key(|kept| kept.address);
            Ok(Checkpoint { pool, blocks })
        })
    }

    /// Makes the blocks live that were live in the pool at the checkpoint, and no others: every block that is live now
    /// is freed, and every block of the checkpoint is live again, at its address and under a new name. No memory is
    /// written or moved: a block that lived all the time holds what it held, and any other block holds what the last
    /// launch of the pool's graphs has left there.
    ///
    /// **The host promises** that all work that has used memory of the pool so far, eager work as well as launches of
    /// graphs, precedes all work that uses it from now on; and that no capture of which the engine has not heard uses
    /// any of it now. So a place that the checkpoint names is taken even if other blocks have been there since. A graph
    /// that was captured after the checkpoint overwrites the blocks again when it is launched: as with every output,
    /// the host launches it only where these are not wanted any more. A block that was lent ([`HostCalls::lend`]) is an
    /// output once it is restored, and refuses no launch.
    ///
    /// A restored block belongs to the pool's graphs, later ones included. When it is freed, captures of the pool may
    /// have its place; work outside captures may have it only when the last graph of the pool is released. For the
    /// place of a block that this call frees that holds at once. Streams that were recorded for these blocks are
    /// forgotten. Free memory of the pool goes to the driver, and to pools that take offers, only once all work that
    /// has used it so far has completed. Blocks that other pools have in this pool's memory are not freed, and a
    /// checkpoint with a place where such a block lies is refused. No other thread may ask for memory of the pool
    /// meanwhile, or free any.
    ///
    /// Costs a look at each range of the pool, and asks the driver nothing, unless a capture into another
    /// pool is under way, or the pool has memory of captures with a plan, of which it gives back what nothing needs any
    /// more. An error leaves every block as it was.
    ///
    /// # Errors
    /// [`CheckpointRefusal::Captures`], [`PoolRefusal::Suspended`](crate::PoolRefusal::Suspended),
    /// [`CheckpointRefusal::NoWayBack`], [`CheckpointRefusal::OnLoan`], [`CheckpointRefusal::BlocksInCapture`],
    /// [`CheckpointRefusal::OtherPool`], [`CheckpointRefusal::Gone`], [`Error::Unknown`].
    pub fn restore(&self, pool: PoolId, checkpoint: &Checkpoint) -> Result<Restored, Error> {
        self.0.change(|locked| {
            locked.must_be_plain(pool, "restore")?;
            locked.must_be_apart(pool, "restore")?;
            locked.state.must_fit(pool, checkpoint)?;
            Ok(locked.restore(pool, checkpoint))
        })
    }

    /// The blocks of a pool that have not been freed, in order of addresses, except blocks that other pools have in
    /// its memory ([`HostCalls::set_spare`]).
    pub fn live_blocks(&self, pool: PoolId) -> Result<Vec<Block>, Error> {
        let mut state = self.0.lock()?;
        state.pool(pool, "live_blocks")?;
        let live = self.0.with(&mut state).live_in(pool);
        Ok(live)
    }
}

impl State {
    /// What a call that refuses a checkpoint of a pool fails with.
    fn no_checkpoint(&self, pool: PoolId, call: &'static str, why: CheckpointRefusal) -> Error {
        Error::Checkpoint { call, pool: Box::new(self.pools.label(pool)), why }
    }

    /// Refuses a checkpoint of another pool, and one whose blocks have no place any more.
    fn must_fit(&self, pool: PoolId, checkpoint: &Checkpoint) -> Result<(), Error> {
        let heaps = self.pools.heaps_of(Some(pool)).into_iter();
        let mut gone = heaps.filter_map(|heap| {
            self.pools.heap(heap).first_unclaimable(&checkpoint.places_in(heap))
        });
        // Blocks may lie there that were offered to another pool.
        let offered = self.blocks.of(pool).filter(|block| block.tenure.asked_of().is_some());
        let offered: Vec<(u64, u64)> = offered.map(|it| self.pools.place(it.site)).collect();
        let mut places = checkpoint.blocks.iter().map(|kept| (kept.address, kept.bytes));
        let is_offered = |&(address, bytes): &(u64, u64)| {
            offered.iter().any(|&(at, held)| at < address + bytes && address < at + held)
        };
        let why = if checkpoint.pool != pool {
            CheckpointRefusal::OtherPool { of: checkpoint.pool }
        } else if let Some((address, bytes)) = gone.next().or_else(|| places.find(is_offered)) {
            CheckpointRefusal::Gone { address, bytes }
        } else {
            return Ok(());
        };
        Err(self.no_checkpoint(pool, "restore", why))
    }

    /// Whether work from before a restoration of a pool may still use memory that is free in it.
    pub(super) fn is_settling(&self, pool: PoolId) -> bool {
        let marks = self.pools.get(pool).map(PoolRow::settling).unwrap_or_default();
        marks.iter().any(|&mark| !self.timelines.is_reached(mark))
    }
}

impl<D: Driver> Locked<'_, D> {
    /// The live blocks of a pool, in order of addresses, but for those that were offered to other pools.
    fn live_in(&self, pool: PoolId) -> Vec<Block> {
        let mut live = Vec::new();
        self.each_live(|id, block, asked| {
            if block.site.is_in(pool) && block.tenure.asked_of().is_none() {
                let (address, _) = self.state.pools.place(block.site);
                live.push(Block { id, address, bytes: asked.requested });
            }
        });
        live.sort_unstable_by_key(|block| block.address);
        live
    }

    /// The streams that the live blocks of a pool are used on.
    fn streams_in(&self, pool: PoolId) -> Vec<StreamHandle> {
        let mut streams = Vec::new();
        for block in self.state.blocks.of(pool) {
            // Of a stream that was retired nothing can be asked.
            streams.extend(block.gone.is_none().then_some(block.asked.stream));
            streams.extend(block.users());
        }
        for cache in self.caches.used() {
            for (_, _, lease) in cache.leases().filter(|(_, _, lease)| !lease.uses.is_empty()) {
                let block = self.state.blocks.leased(lease.row).filter(|it| it.site.is_in(pool));
                streams.extend(block.iter().flat_map(|_| lease.uses.iter().copied()));
            }
        }
        streams.sort_unstable_by_key(|stream| stream.bits());
        streams.dedup();
        streams
    }

    /// What must be completed before memory of a pool can go to anyone but later users of the pool: all
    /// that its blocks, and what was freed of it, may be used by now.
    fn unsettled_marks(&mut self, pool: PoolId) -> Vec<Mark> {
        let mut marks = Vec::new();
        for heap in self.state.pools.heaps_of(Some(pool)) {
            marks.extend(self.state.pools.heap(heap).ordered_marks());
        }
        let gone = self.state.blocks.of(pool);
        marks.extend(gone.filter_map(|block| block.gone.as_deref().copied()));
        let mut streams = self.streams_in(pool);
        for waiting in self.state.waiting.iter().filter(|waiting| waiting.site().is_in(pool)) {
            let awaited = waiting.awaited();
            marks.extend(awaited.0);
            streams.extend(awaited.1);
        }
        for stream in streams {
            marks.push(self.state.timelines.open_mark(stream));
        }
        marks
    }

    /// Refuses a pool whose blocks cannot be told, or not be brought back.
    fn must_be_plain(&mut self, pool: PoolId, call: &'static str) -> Result<(), Error> {
        self.settle_loans();
        self.state.must_be_awake(pool, call)?;
        let planned = |row: &PoolRow| row.planned_heap().is_some_and(|it| !it.is_empty());
        if planned(self.state.pool(pool, call)?) {
            // What was there may be gone by now.
            self.free_completed(Some(pool));
            self.release_planned(Some(pool));
        }
        let row = self.state.pool(pool, call)?;
        let (captures, planned, small) = (row.captures(), planned(row), row.small());
        let why = if planned || self.state.pools.heap(small).is_uncached() {
            CheckpointRefusal::NoWayBack
        } else if captures > 0 {
            CheckpointRefusal::Captures { captures }
        } else if self.has_loan(pool) {
            CheckpointRefusal::OnLoan
        } else {
            return Ok(());
        };
        Err(self.state.no_checkpoint(pool, call, why))
    }

    /// Refuses a pool of which a live block may be in use in a capture under way, into any pool: it is launched later.
    fn must_be_apart(&mut self, pool: PoolId, call: &'static str) -> Result<(), Error> {
        if self.state.captures.iter().next().is_none() {
            return Ok(());
        }
        let State { captures, timelines, .. } = &*self.state;
        let is_inside = |&stream: &StreamHandle| match timelines.ask(self.driver, stream) {
            StreamStatus::Outside | StreamStatus::Barred | StreamStatus::Elsewhere => false,
            // One that has ended here the driver may still report.
            StreamStatus::Inside(capture) => {
                captures.slot(capture).is_some() || !timelines.has_ended(capture)
            }
            StreamStatus::Unclear => true,
        };
        let inside = self.streams_in(pool).iter().filter(|&it| is_inside(it)).count();
        if inside > 0 {
            let why = CheckpointRefusal::BlocksInCapture { streams: inside };
            return Err(self.state.no_checkpoint(pool, call, why));
        }
        Ok(())
    }

    /// After all that could refuse it: the driver is asked nothing from here on.
    fn restore(&mut self, pool: PoolId, checkpoint: &Checkpoint) -> Restored {
        let heaps = self.state.pools.heaps_of(Some(pool));
        // Later users of the pool come after all that; the driver and other pools do not.
        let marks = self.unsettled_marks(pool);
        if let Some(row) = self.state.pools.get_mut(pool) {
            row.settle_behind(&marks);
        }
        let freed = self.end_all(pool);
        let mut live = Vec::with_capacity(checkpoint.blocks.len());
        for heap in heaps {
            let places = self.state.pools.heap_mut(heap).claim(&checkpoint.places_in(heap));
            for (kept, place) in checkpoint.blocks_in(heap).zip(places) {
                live.push(self.revive(pool, kept, place));
            }
        }
        live.sort_unstable_by_key(|block| block.address);
        Restored { freed, live }
    }

    /// Ends every block of a pool that no capture under way uses, and names them.
    fn end_all(&mut self, pool: PoolId) -> Vec<Block> {
        let mut ended = Vec::new();
        let (mut leases, mut cached) = (Vec::new(), Leases::new());
        for mut cache in self.caches.used() {
            // Under one lock: what another thread takes or frees just then is in one of the two.
            let (live, within) = cache.give_up_live(pool);
            leases.extend(live);
            self.state.accounts.keep_within(self.caches, &mut cache, (pool.row(), within));
            cached.extend(cache.drain(Some(pool), |_, _| true));
        }
        for (id, lease) in leases {
            let Some(mut block) = self.state.blocks.take(lease.row) else { continue };
            // Its stream cache counted it.
            block.asked.requested = lease.asked.requested;
            ended.push(self.end_block(id, block));
        }
        // What was freed to a stream cache just before, too.
        self.end_leases(cached);
        for Block { id, .. } in self.live_in(pool) {
            let Some(block) = self.state.blocks.remove(id) else { continue };
            self.discount(&block);
            ended.push(self.end_block(id, block));
        }
        ended.sort_unstable_by_key(|block| block.address);
        ended
    }

    /// Gives a block's place to the pool's graphs, if there are any: the host says that all so far precedes what comes.
    fn end_block(&mut self, id: BlockId, block: LiveBlock) -> Block {
        let LiveBlock { site: site @ BlockSite { number, heap, range }, asked, tenure, .. } = block;
        let has_graphs = self.state.pools.find_pool(heap).is_some_and(|it| !it.is_without_graphs());
        let place @ (address, _) = self.state.pools.place(site);
        let bytes = asked.requested;
        self.state.record_block(EventKind::FreeCompleted, (heap, place), asked);
        let users = tenure.users().of_block().or_graphs(has_graphs);
        let heap = self.state.pools.heap_mut(heap);
        if users.are_graphs() {
            heap.keep(range);
        }
        heap.free_idle(range, users, number);
        Block { id, address, bytes }
    }

    /// Enters a block that has its place again.
    fn revive(
        &mut self,
        pool: PoolId,
        kept: &SavedBlock,
        (range, mut users, cuts): (RangeId, Users, Vec<Cut>),
    ) -> Block {
        let &SavedBlock { heap, address, bytes, ref asked, .. } = kept;
        let requested = asked.requested;
        for cut in cuts {
            users = users.or_graphs(self.state.cut_waiting(heap, cut).are_graphs());
        }
        let row = self.state.pools.get_mut(pool).expect("a pool that was looked at");
        users = users.or_graphs(!row.is_without_graphs());
        let known = self.state.timelines.number(asked.stream);
        let retired = kept.stream_number.is_none() || kept.stream_number != known;
        // All that the old stream did is over by the host's word, and a new one of its handle is another.
        let gone = retired.then(|| Box::new(Timelines::passed()));
        let number = self.state.blocks.number();
        let site = BlockSite { number, heap, range };
        let origin = if kept.graph && users.are_graphs() { Origin::Graph } else { Origin::Past };
        let right = (origin, Tenure::Restored(users));
        let mut block = LiveBlock::new(site, bytes, asked.clone(), right);
        block.gone = gone;
        let id = self.state.blocks.insert(block);
        self.count_in(heap, bytes, requested);
        self.state.record_block(EventKind::Allocate, (heap, (address, bytes)), asked.clone());
        Block { id, address, bytes: requested }
    }
}
