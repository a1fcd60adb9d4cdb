//! Live blocks.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::figures::class;
use super::free::LastUse;
use super::history::Asked;
use super::names::{BlockId, PoolId, NO_CACHE};
use super::pools::Pools;
use crate::capture::{Moment, StreamIndex};
use crate::driver::StreamHandle;
#[cfg(debug_assertions)]
use crate::heap::verify::{holds, Verdict};
use crate::heap::{reach, CaptureSlot, Lent, Mark, RangeId, Users};
use crate::index::Table;
use crate::journal::BlockNumber;

/// Where a block was allocated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// Outside captures.
    Outside,
    /// In a capture that was rolled back, or whose graph is gone.
    Past,
    /// In a capture that is under way.
    Capture(Home),
    /// In a capture that has ended: a graph uses it.
    Graph,
}

/// A block's place in the capture that allocated it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) slot: CaptureSlot,
    /// The block's own stream.
    pub(super) stream: StreamIndex,
    pub(super) since: Moment,
}

/// Whose memory a block lies in, and by what right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tenure {
    /// The pool's. Of before the block: eager, or graphs where a finished graph used its place.
    Own(Users),
    /// The pool's, by a restoration: the streams that were recorded for the block before are forgotten.
    Restored(Users),
    /// The pool's, and it was asked of this other pool, which takes offers.
    Offered(PoolId),
    /// That of the pool's graphs, which is lent between their launches.
    Lent(Lent),
    /// That of the pool's graphs: it was lent until one more was captured beside it, whose output it is taken for.
    Adopted,
    /// The pool's, of eager work: a stream cache has it on lease, and knows which other streams use the block.
    Leased,
}

impl Tenure {
    /// Whose the memory is.
    #[inline]
    pub(super) fn users(self) -> Users {
        match self {
            Self::Own(users) | Self::Restored(users) => users,
            Self::Offered(_) | Self::Leased => Users::Eager,
            Self::Lent(_) => Users::Lent,
            Self::Adopted => Users::Graphs,
        }
    }

    /// This right, to memory that graphs use too if `graphs` do.
    pub(super) fn or_graphs(self, graphs: bool) -> Self {
        match self {
            Self::Own(users) => Self::Own(users.or_graphs(graphs)),
            Self::Restored(users) => Self::Restored(users.or_graphs(graphs)),
            other => other,
        }
    }

    /// This right, to memory that no graph uses any more.
    pub(super) fn without_graphs(self) -> Self {
        match self {
            Self::Own(_) | Self::Lent(_) | Self::Adopted => Self::Own(Users::Eager),
            Self::Restored(_) => Self::Restored(Users::Eager),
            Self::Offered(_) | Self::Leased => self,
        }
    }

    /// The pool that the block was asked of, if that is another one.
    pub(super) fn asked_of(self) -> Option<PoolId> {
        match self {
            Self::Offered(pool) => Some(pool),
            _ => None,
        }
    }
}

/// Where a block lies or lay: a range of a heap, and the block's number in journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSite {
    pub(super) number: BlockNumber,
    pub(super) heap: u32,
    pub(super) range: RangeId,
}

impl BlockSite {
    /// Whether it is in a pool, which exists.
    #[inline]
    pub(super) fn is_in(&self, pool: PoolId) -> bool {
        Pools::row(self.heap) == pool.row()
    }
}

/// A block that has not been freed.
#[derive(Clone, Debug)]
pub(super) struct LiveBlock {
    pub(super) site: BlockSite,
    /// What it occupies, in bytes.
    pub(super) bytes: u64,
    /// What was asked for. Of a leased block only the stream is right: its stream cache has the bytes and the frames.
    pub(super) asked: Asked,
    pub(super) origin: Origin,
    pub(super) tenure: Tenure,
    /// Last use on its own stream.
    last: Option<Box<LastUse>>,
    /// Other streams that use it, each with its last use, where the host declared that.
    uses: SmallVec<[(StreamHandle, Option<Box<LastUse>>); 2]>,
    /// Where its own stream stood when that was retired: the handle may name another one since.
    pub(super) gone: Option<Box<Mark>>,
}

impl LiveBlock {
    /// A new live block; `bytes` is what it occupies.
    #[inline(always)]
    pub(super) fn new(
        site: BlockSite,
        bytes: u64,
        asked: Asked,
        (origin, tenure): (Origin, Tenure),
    ) -> Self {
        Self { site, bytes, asked, origin, tenure, last: None, uses: SmallVec::new(), gone: None }
    }

    /// Whether a stream cache has it on lease.
    #[inline]
    pub(super) fn is_leased(&self) -> bool {
        matches!(self.tenure, Tenure::Leased)
    }

    /// Notes that a stream uses the block: for the last time, or until it is freed.
    pub(super) fn set_use(&mut self, stream: StreamHandle, last: Option<Box<LastUse>>) {
        if stream == self.asked.stream && self.gone.is_none() {
            self.last = last;
        } else if let Some((_, known)) = self.uses.iter_mut().find(|(of, _)| *of == stream) {
            *known = last;
        } else {
            self.uses.push((stream, last));
        }
    }

    /// The streams that use it, its own first, each with its last use, where the host declared that.
    #[inline]
    pub(super) fn uses(&self) -> impl Iterator<Item = (StreamHandle, Option<&LastUse>)> {
        let others = self.uses.iter().map(|(stream, last)| (*stream, last.as_deref()));
        std::iter::once((self.asked.stream, self.last.as_deref())).chain(others)
    }

    /// Notes the other streams that use it, each until it is freed.
    pub(super) fn set_users(&mut self, streams: impl IntoIterator<Item = StreamHandle>) {
        self.uses = streams.into_iter().map(|stream| (stream, None)).collect();
    }

    /// Whether other streams use it.
    #[inline]
    pub(super) fn has_users(&self) -> bool {
        !self.uses.is_empty()
    }

    /// The other streams that use it.
    pub(super) fn users(&self) -> impl Iterator<Item = StreamHandle> + '_ {
        self.uses.iter().map(|&(stream, _)| stream)
    }

    /// Forgets the capture that allocated the block; its nodes name nothing any more.
    pub(super) fn roll_back(&mut self) {
        self.origin = Origin::Past;
        self.last = None;
        self.uses.iter_mut().for_each(|(_, last)| *last = None);
    }
}

#[derive(Debug)]
struct Row {
    number: u64,
    listing: Listing,
    block: Option<LiveBlock>,
}

/// Where a row stands among those of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// Nowhere: it has no block, or a test has left it out.
    Nowhere,
    /// Among those that came last, at this place.
    Recent(u32),
    /// Among those by address.
    At(u64),
}

/// The rows of a pool's live blocks: each is in one of the two lists.
#[derive(Debug, Default)]
struct PoolBlocks {
    /// Those that came since a capture last began to use the pool.
    recent: Vec<u32>,
    /// By address: their ends and rows.
    by_address: BTreeMap<u64, (u64, u32)>,
    /// What they occupy in the heaps of small and large blocks, in bytes.
    bytes: u64,
    /// What those occupy in each of these heaps that stream caches have on lease, in bytes.
    leased: [u64; 2],
    /// Whether two of them were found to overlap.
    overlap: bool,
}

/// The table of live blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Tells the engines of a process apart.
    engine: u32,
    rows: Table<Row>,
    /// By the rows of the pools.
    by_pool: Vec<PoolBlocks>,
    next: u64,
}

impl Blocks {
    pub(super) fn new(engine: u32) -> Self {
        Self { engine, rows: Table::default(), by_pool: Vec::new(), next: 0 }
    }

    pub(super) fn number(&mut self) -> BlockNumber {
        self.next += 1;
        BlockNumber(self.next - 1)
    }

    pub(super) fn next_number(&self) -> BlockNumber {
        BlockNumber(self.next)
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, block: LiveBlock) -> BlockId {
        let BlockSite { number: BlockNumber(number), heap, .. } = block.site;
        let new = || Row { number, listing: Listing::Nowhere, block: None };
        let slot = self.rows.take_vacant(new);
        let of_pool = reach(&mut self.by_pool, Pools::row(heap));
        let row = &mut self.rows[slot as usize];
        row.listing = Listing::Recent(of_pool.recent.len() as u32);
        of_pool.recent.push(slot);
        of_pool.bytes += listed_bytes(heap, block.bytes);
        if block.is_leased() {
            of_pool.leased[class(Pools::is_small(heap))] += block.bytes;
        }
        row.number = number;
        row.block = Some(block);
        BlockId { engine: self.engine, cache: NO_CACHE, slot, number }
    }

    /// Takes the block of a row out of the lists.
    #[inline]
    fn unlist(&mut self, slot: u32) {
        let row = &mut self.rows[slot as usize];
        let Some(block) = &row.block else { return };
        let (heap, bytes, leased) = (block.site.heap, block.bytes, block.is_leased());
        let listing = std::mem::replace(&mut row.listing, Listing::Nowhere);
        let of_pool = &mut self.by_pool[Pools::row(heap)];
        match listing {
            Listing::Nowhere => return,
            Listing::Recent(place) => {
                of_pool.recent.swap_remove(place as usize);
                if let Some(&moved) = of_pool.recent.get(place as usize) {
                    self.rows[moved as usize].listing = listing;
                }
            }
            Listing::At(address) => drop(of_pool.by_address.remove(&address)),
        }
        of_pool.bytes -= listed_bytes(heap, bytes);
        if leased {
            of_pool.leased[class(Pools::is_small(heap))] -= bytes;
        }
    }

    /// Leaves a block out of the lists: never, outside tests.
    pub(super) fn forget_listing(&mut self, id: BlockId) {
        if self.get(id).is_some() {
            self.unlist(id.slot);
        }
    }

    /// Forgets a pool that is gone: its row will be another's.
    pub(super) fn forget_pool(&mut self, pool: PoolId) {
        if let Some(of_pool) = self.by_pool.get_mut(pool.row()) {
            *of_pool = PoolBlocks::default();
        }
    }

    /// The number of live blocks, leased ones included.
    pub(super) fn count(&self) -> usize {
        self.rows.used()
    }

    /// The number of live blocks of a pool, leased ones included.
    pub(super) fn count_of(&self, pool: PoolId) -> usize {
        let of_pool = self.by_pool.get(pool.row());
        of_pool.map_or(0, |it| it.recent.len() + it.by_address.len())
    }

    /// What live blocks occupy in a pool's heaps of small and large blocks, in bytes: the most if any overlap.
    pub(super) fn bytes_of(&self, pool: PoolId) -> u64 {
        let of_pool = self.by_pool.get(pool.row());
        of_pool.map_or(0, |it| if it.overlap { u64::MAX } else { it.bytes })
    }

    /// What those blocks of a pool's class occupy that stream caches have on lease, in bytes.
    #[inline]
    pub(super) fn leased_bytes(&self, pool: usize, class: usize) -> i64 {
        self.by_pool.get(pool).map_or(0, |it| it.leased[class] as i64)
    }

    /// The live blocks of a pool.
    pub(super) fn of(&self, pool: PoolId) -> impl Iterator<Item = &LiveBlock> {
        let of_pool = self.by_pool.get(pool.row()).into_iter();
        let rows =
            of_pool.flat_map(|it| it.by_address.values().map(|(_, row)| row).chain(&it.recent));
        rows.filter_map(|&row| self.rows[row as usize].block.as_ref())
    }

    /// Changes the live blocks of a pool: without `all` those alone that came since [`Blocks::sort`] was last called. A
    /// capture that uses the pool alone has no others there.
    pub(super) fn change_of(&mut self, pool: PoolId, all: bool, change: impl Fn(&mut LiveBlock)) {
        let Some(of_pool) = self.by_pool.get(pool.row()) else { return };
        let mut change = |row: u32| self.rows[row as usize].block.iter_mut().for_each(&change);
        if all {
            of_pool.by_address.values().for_each(|&(_, row)| change(row));
        }
        of_pool.recent.iter().for_each(|&row| change(row));
    }

    /// Sorts the live blocks of a pool by address, for [`Blocks::over`]; `extent` says where one lies, and what
    /// it occupies in bytes. Costs the logarithm of their number for each that came since it was last called.
    pub(super) fn sort(&mut self, pool: PoolId, extent: impl Fn(&LiveBlock) -> (u64, u64)) {
        let Some(of_pool) = self.by_pool.get_mut(pool.row()) else { return };
        let PoolBlocks { recent, by_address, overlap, .. } = of_pool;
        for slot in std::mem::take(recent) {
            let row = &mut self.rows[slot as usize];
            let Some((address, bytes)) = row.block.as_ref().map(&extent) else { continue };
            let end = address + bytes;
            if by_address.range(..end).next_back().is_some_and(|(_, &(below, _))| below > address) {
                // It stays where it is known of. No capture into the pool is accepted any more.
                *overlap = true;
                row.listing = Listing::Recent(recent.len() as u32);
                recent.push(slot);
                continue;
            }
            row.listing = Listing::At(address);
            by_address.insert(address, (end, slot));
        }
    }

    /// Tells of the live blocks of a pool over which a place lies, among those that are sorted, and where they lie.
    #[inline]
    pub(super) fn over(
        &self,
        pool: PoolId,
        (address, end): (u64, u64),
        mut tell: impl FnMut(&LiveBlock, u64, u64),
    ) {
        let sorted = self.by_pool.get(pool.row()).filter(|it| !it.by_address.is_empty());
        let Some(of_pool) = sorted else { return };
        let below = of_pool.by_address.range(..end).rev();
        // None of them overlap.
        for (&start, &(end, row)) in below.take_while(|(_, &(end, _))| end > address) {
            self.rows[row as usize].block.iter().for_each(|block| tell(block, start, end));
        }
    }

    /// Puts a freed block back until the thread frees it that may look at its streams. Its own name is known no more.
    pub(super) fn insert_left(&mut self, block: LiveBlock) -> BlockId {
        let mut id = self.insert(block);
        id.number |= LEFT;
        self.rows[id.slot as usize].number = id.number;
        id
    }

    pub(super) fn get(&self, id: BlockId) -> Option<&LiveBlock> {
        let row = self.rows.get(id.slot as usize)?;
        row.block.as_ref().filter(|_| self.is_mine(id) && row.number == id.number)
    }

    pub(super) fn get_mut(&mut self, id: BlockId) -> Option<&mut LiveBlock> {
        let mine = self.is_mine(id);
        let row = self.rows.get_mut(id.slot as usize)?;
        row.block.as_mut().filter(|_| mine && row.number == id.number)
    }

    fn is_mine(&self, id: BlockId) -> bool {
        id.engine == self.engine && id.cache == NO_CACHE
    }

    /// The block of a row that a stream cache has on lease.
    pub(super) fn leased(&self, row: u32) -> Option<&LiveBlock> {
        self.rows.get(row as usize)?.block.as_ref()
    }

    /// Takes back what a stream cache had cached, of the stream that it returns.
    pub(super) fn end_cached(&mut self, row: u32) -> Option<(BlockSite, StreamHandle)> {
        let &LiveBlock { site, asked: Asked { stream, .. }, .. } = self.leased(row)?;
        self.unlist(row);
        // A copy of the whole block would cost more than the rest.
        self.rows[row as usize].block = None;
        self.rows.vacate(row);
        Some((site, stream))
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, id: BlockId) -> Option<LiveBlock> {
        self.get(id)?;
        self.take(id.slot)
    }

    /// Takes the block of a row out: of one that a stream cache had on lease, for instance.
    #[inline(always)]
    pub(super) fn take(&mut self, row: u32) -> Option<LiveBlock> {
        self.unlist(row);
        self.rows.vacate(row);
        // In the end, so that the block is copied once.
        self.rows[row as usize].block.take()
    }

    /// All live blocks with their names, but for those that are freed and wait for another thread.
    pub(super) fn named(&self) -> impl Iterator<Item = (BlockId, &LiveBlock)> {
        let engine = self.engine;
        self.rows.iter().enumerate().filter_map(move |(slot, row)| {
            let id = BlockId { engine, cache: NO_CACHE, slot: slot as u32, number: row.number };
            let block = row.block.as_ref().filter(|block| block.site.number.0 == row.number);
            block.map(|block| (id, block))
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LiveBlock> {
        self.rows.iter().filter_map(|row| row.block.as_ref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LiveBlock> {
        self.rows.iter_mut().filter_map(|row| row.block.as_mut())
    }
}

/// In the name of a block that was freed and waits for another thread. No block has had so many before it.
const LEFT: u64 = 1 << 63;

/// What a block adds to [`Blocks::bytes_of`].
#[inline]
fn listed_bytes(heap: u32, bytes: u64) -> u64 {
    if Pools::is_planned(heap) {
        0
    } else {
        bytes
    }
}

#[cfg(debug_assertions)]
impl Blocks {
    /// What [`verify`](super::verify) says of the table itself. `extent` says where a block lies, and its bytes.
    pub(super) fn verify(&self, extent: impl Fn(&LiveBlock) -> (u64, u64)) -> Verdict {
        let mut of_pools = vec![(0, 0, [0; 2]); self.by_pool.len()];
        self.rows.verify(|_, row| row.block.is_some())?;
        for (slot, row) in self.rows.iter().enumerate() {
            let Some(block) = &row.block else {
                holds!(row.listing == Listing::Nowhere, "row {slot} has no block: {row:?}");
                continue;
            };
            let LiveBlock { site: BlockSite { number, heap, .. }, bytes, .. } = *block;
            let pool = Pools::row(heap);
            let named = row.number & !LEFT == number.0 && number.0 < self.next;
            holds!(named, "row {slot} has another block: {row:?}");
            let (Some(of_pool), (address, placed)) = (self.by_pool.get(pool), extent(block)) else {
                return Err(format!("row {pool} of pools has no lists for {block:?}"));
            };
            let slot = slot as u32;
            let listed = match row.listing {
                Listing::Nowhere => false,
                Listing::Recent(place) => of_pool.recent.get(place as usize) == Some(&slot),
                Listing::At(at) => {
                    let end = address + placed;
                    at == address && of_pool.by_address.get(&at) == Some(&(end, slot))
                }
            };
            holds!(
                listed && placed == bytes,
                "row {pool} of pools does not list, of {placed} bytes, {row:?}"
            );
            let counted = &mut of_pools[pool];
            *counted = (counted.0 + 1, counted.1 + listed_bytes(heap, bytes), counted.2);
            if block.is_leased() {
                counted.2[class(Pools::is_small(heap))] += bytes;
            }
        }
        for (row, (it, (count, bytes, leased))) in self.by_pool.iter().zip(of_pools).enumerate() {
            let listed = it.recent.len() + it.by_address.len();
            let right = (listed, it.bytes, it.leased, it.overlap) == (count, bytes, leased, false);
            holds!(right, "row {row} of pools has {count} blocks of {bytes} bytes: {it:?}");
            let mut ends = it.by_address.iter().zip(it.by_address.keys().skip(1));
            let apart = ends.all(|((_, &(end, _)), &next)| end <= next);
            holds!(apart, "row {row} of pools has blocks that overlap: {:x?}", it.by_address);
        }
        Ok(())
    }

    /// Every live block with its row, its name if it was freed and waits for another thread, and whether it came since
    /// a capture last began to use its pool.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, &LiveBlock, Option<BlockId>, bool)> {
        let rows = self.rows.iter().zip(0..);
        rows.filter_map(|(row, slot)| {
            let left = row.number & LEFT != 0;
            let id = BlockId { engine: self.engine, cache: NO_CACHE, slot, number: row.number };
            let is_recent = matches!(row.listing, Listing::Recent(_));
            Some((slot, row.block.as_ref()?, left.then_some(id), is_recent))
        })
    }
}
