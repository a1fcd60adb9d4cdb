//! Live blocks.

use std::sync::Arc;

use smallvec::SmallVec;

use super::history::Frames;
use super::lending::Lent;
use super::names::{BlockId, PoolId, NO_CACHE};
use super::streams::Position;
use crate::capture::{Markers, Moment, StreamIndex};
use crate::driver::StreamHandle;
use crate::heap::{CaptureSlot, RangeId};
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

/// The last use of a block on one stream, as the host declared it.
#[derive(Clone, Debug)]
pub(super) struct LastUse {
    /// The stream's terminals then.
    pub(super) markers: Markers,
    /// Whether the stream had gained anything since the block was allocated.
    pub(super) worked: bool,
    /// Whether users of the block may have escaped the markers by then.
    pub(super) broken: bool,
}

/// Another stream that uses a block.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) stream: StreamHandle,
    pub(super) last: Option<Box<LastUse>>,
}

/// A block that has not been freed.
#[derive(Clone, Debug)]
pub(super) struct LiveBlock {
    pub(super) number: BlockNumber,
    pub(super) pool: PoolId,
    pub(super) heap: u32,
    pub(super) range: RangeId,
    /// What was asked for, in bytes.
    pub(super) requested: u64,
    /// What it occupies, in bytes.
    pub(super) bytes: u64,
    pub(super) stream: StreamHandle,
    pub(super) origin: Origin,
    /// Whether a finished graph used its place before it did.
    pub(super) graphs: bool,
    /// Last use on its own stream.
    pub(super) last: Option<Box<LastUse>>,
    pub(super) uses: SmallVec<[Use; 2]>,
    /// Where its own stream stood when that was retired: the handle may name another one since.
    pub(super) gone: Option<Box<Position>>,
    /// Whether a stream cache has it on lease; the stream cache then knows what was asked for and who uses it.
    pub(super) leased: bool,
    /// The pool that it was asked of, where that is another, which borrows here.
    pub(super) borrower: Option<PoolId>,
    /// What it was had of, if it lies in memory of the pool's graphs that is lent between their launches.
    pub(super) lent: Option<Lent>,
    /// Whether it was lent until a graph was captured beside it, whose output it is taken for.
    pub(super) adopted: bool,
    /// Whether a restoration brought it back: the streams that were recorded for it before are forgotten.
    pub(super) restored: bool,
    /// Who asked for it, where that is recorded.
    pub(super) frames: Option<Arc<Frames>>,
}

impl LiveBlock {
    /// A block of a pool at a place of one of its heaps, of so many bytes of which so many were asked for, that
    /// nothing uses yet.
    #[inline(always)]
    pub(super) fn new(
        number: BlockNumber,
        (pool, heap, range): (PoolId, u32, RangeId),
        (bytes, requested): (u64, u64),
        (stream, origin): (StreamHandle, Origin),
    ) -> Self {
        Self {
            number,
            pool,
            heap,
            range,
            requested,
            bytes,
            stream,
            origin,
            graphs: false,
            last: None,
            uses: SmallVec::new(),
            gone: None,
            leased: false,
            borrower: None,
            lent: None,
            adopted: false,
            restored: false,
            frames: None,
        }
    }

    /// Forgets the capture that allocated the block; its nodes name nothing any more.
    pub(super) fn roll_back(&mut self) {
        self.origin = Origin::Past;
        self.last = None;
        for used in &mut self.uses {
            used.last = None;
        }
    }
}

/// A block that a stream cache had cached: where it lies, and whose it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedBlock {
    pub(super) number: BlockNumber,
    pub(super) pool: PoolId,
    pub(super) heap: u32,
    pub(super) range: RangeId,
    pub(super) stream: StreamHandle,
}

#[derive(Debug)]
struct Row {
    number: u64,
    block: Option<LiveBlock>,
}

/// The table of live blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Tells the engines of a process apart.
    engine: u32,
    rows: Vec<Row>,
    vacant: Vec<u32>,
    next: u64,
}

impl Blocks {
    pub(super) fn new(engine: u32) -> Self {
        Self { engine, rows: Vec::new(), vacant: Vec::new(), next: 0 }
    }

    /// A number that no block has had.
    pub(super) fn number(&mut self) -> BlockNumber {
        self.next += 1;
        BlockNumber(self.next - 1)
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, block: LiveBlock) -> BlockId {
        let number = block.number.0;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.rows.push(Row { number, block: None });
            u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 live blocks")
        });
        let row = &mut self.rows[slot as usize];
        row.number = number;
        row.block = Some(block);
        BlockId { engine: self.engine, cache: NO_CACHE, slot, number }
    }

    /// Puts a block back that was freed and waits for the thread that may look at its streams. Its own
    /// name is worth nothing any more.
    pub(super) fn insert_left(&mut self, block: LiveBlock) -> BlockId {
        /// No block has had so many before it.
        const LEFT: u64 = 1 << 63;
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

    /// The block of a row, of any name.
    pub(super) fn in_row_mut(&mut self, row: usize) -> Option<&mut LiveBlock> {
        self.rows.get_mut(row)?.block.as_mut()
    }

    fn is_mine(&self, id: BlockId) -> bool {
        id.engine == self.engine && id.cache == NO_CACHE
    }

    /// The block of a row that a stream cache has on lease.
    pub(super) fn leased(&self, row: u32) -> Option<&LiveBlock> {
        self.rows.get(row as usize)?.block.as_ref()
    }

    /// Takes back what a stream cache had cached.
    pub(super) fn end_cached(&mut self, row: u32) -> Option<CachedBlock> {
        let block = &mut self.rows.get_mut(row as usize)?.block;
        let &LiveBlock { number, pool, heap, range, stream, .. } = block.as_ref()?;
        // A copy of the whole block would cost more than the rest.
        *block = None;
        self.vacant.push(row);
        Some(CachedBlock { number, pool, heap, range, stream })
    }

    /// Takes back what a stream cache had on lease.
    pub(super) fn end_lease(&mut self, row: u32) -> Option<LiveBlock> {
        let block = self.rows.get_mut(row as usize)?.block.take()?;
        self.vacant.push(row);
        Some(block)
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, id: BlockId) -> Option<LiveBlock> {
        let mine = self.is_mine(id);
        let row = self.rows.get_mut(id.slot as usize)?;
        let named = mine && row.number == id.number;
        let block = row.block.take_if(|_| named)?;
        self.vacant.push(id.slot);
        Some(block)
    }

    /// All live blocks with their names, but for those that are freed and wait for another thread.
    pub(super) fn named(&self) -> impl Iterator<Item = (BlockId, &LiveBlock)> {
        let engine = self.engine;
        self.rows.iter().enumerate().filter_map(move |(slot, row)| {
            let id = BlockId { engine, cache: NO_CACHE, slot: slot as u32, number: row.number };
            let block = row.block.as_ref().filter(|block| block.number.0 == row.number);
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
