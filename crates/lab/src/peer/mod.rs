//! A model of PyTorch's native caching allocator outside captures, to set figures beside ours.
//!
//! A model of the policy only, written from the documented behaviour: it reserves nothing and its
//! addresses are made up. What it models:
//!
//! * Requests are rounded up to 512 bytes. Blocks of up to 1 MiB come from segments of 2 MiB, those
//!   below 10 MiB from segments of 20 MiB, larger ones from segments of their own, rounded up to
//!   2 MiB.
//! * The smallest free block that is large enough serves, then the lowest; only of the request's
//!   own stream, and of its own class (small or large).
//! * A block is split where 512 bytes remain (small), or more than 1 MiB (large).
//! * A freed block joins its free neighbours in the segment. One that other streams used is not free
//!   before their work up to its free has completed.
//! * Where the limit is reached, all waiting work is completed, whole free segments are given back,
//!   and the segment is asked for once more.
//! * With [`Options::expandable`], one address space for each stream and class, in pages of 2 MiB
//!   (small) or 20 MiB (large), which are mapped as needed and joined with what is free beside them.
//!
//! Not modelled: captures, private pools, what one may configure beyond the above (all at its
//! default), and the work of other processes.

mod expandable;
mod figures;
mod layout;
mod segments;
mod sizes;
mod waiting;

use std::collections::BTreeMap;

use thiserror::Error;

pub use figures::Figures;

use layout::{Chunk, Layout, Queue, State};
use regraph_trace::StreamIndex;
use sizes::Class;
use waiting::Waiting;

/// How the allocator is configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether segments are expandable.
    pub expandable: bool,
    /// The most that may be reserved, in bytes; `None` is without limit.
    pub limit: Option<u64>,
}

/// A block's number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u64);

/// A point in time: what was freed before, and what after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// The block is not live in this model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("block {} is not live; was it freed before?", .0 .0)]
pub struct UnknownBlock(pub BlockId);

#[derive(Debug)]
struct Block {
    address: u64,
    /// Streams other than its own that used it.
    users: Vec<StreamIndex>,
}

/// The model of an allocator on one device.
#[derive(Debug, Default)]
pub struct Peer {
    options: Options,
    layout: Layout,
    blocks: BTreeMap<BlockId, Block>,
    waiting: Waiting,
    figures: Figures,
    next_block: u64,
}

impl Peer {
    /// An allocator that holds nothing.
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Allocates a block of at least `bytes` on a stream; `None` where the limit does not allow it,
    /// and for no bytes or more than an exbibyte.
    pub fn allocate(&mut self, bytes: u64, stream: StreamIndex) -> Option<BlockId> {
        if bytes == 0 || bytes > sizes::REQUEST_LIMIT {
            return None;
        }
        let bytes = sizes::rounded(bytes);
        let queue = Queue { stream, class: Class::of(bytes) };
        let found = if self.options.expandable {
            expandable::best_fit(&self.layout, queue, bytes)
        } else {
            self.layout.fits(queue, bytes).next()
        };
        let address = match found {
            Some(address) => address,
            None => self.grow(queue, bytes).or_else(|| {
                self.figures.retries += 1;
                self.empty_cache();
                self.grow(queue, bytes)
            })?,
        };
        Some(self.hand_out(address, queue.class, bytes))
    }

    /// Says that a stream uses a block (PyTorch's `record_stream`).
    ///
    /// # Errors
    /// A block that is not live.
    pub fn record_stream(
        &mut self,
        block: BlockId,
        stream: StreamIndex,
    ) -> Result<(), UnknownBlock> {
        let row = self.blocks.get_mut(&block).ok_or(UnknownBlock(block))?;
        let own = self.layout.chunk(row.address).queue.stream;
        if stream != own && !row.users.contains(&stream) {
            row.users.push(stream);
        }
        Ok(())
    }

    /// Frees a block.
    ///
    /// # Errors
    /// A block that is not live.
    pub fn free(&mut self, block: BlockId) -> Result<(), UnknownBlock> {
        let Block { address, users } = self.blocks.remove(&block).ok_or(UnknownBlock(block))?;
        self.figures.allocated -= self.layout.chunk(address).bytes;
        if users.is_empty() {
            self.reclaim(address);
        } else {
            self.layout.set_state(address, State::Waiting);
            self.waiting.add(address, &users);
        }
        Ok(())
    }

    /// Where a live block lies. Addresses are made up: they only tell blocks apart.
    pub fn address(&self, block: BlockId) -> Option<u64> {
        self.blocks.get(&block).map(|row| row.address)
    }

    /// The point in time that is now.
    pub fn mark(&self) -> Mark {
        Mark(self.waiting.now())
    }

    /// Says that all work of a stream up to now has completed.
    pub fn complete(&mut self, stream: StreamIndex) {
        self.complete_before(stream, self.mark());
    }

    /// Says that all work of a stream up to a mark has completed.
    pub fn complete_before(&mut self, stream: StreamIndex, mark: Mark) {
        for address in self.waiting.complete(stream, mark.0) {
            self.reclaim(address);
        }
    }

    /// Says that all work of all streams has completed.
    pub fn complete_all(&mut self) {
        for address in self.waiting.complete_all() {
            self.reclaim(address);
        }
    }

    /// Completes all work and gives back what is wholly free: segments, or pages of expandable
    /// ones.
    pub fn empty_cache(&mut self) {
        self.complete_all();
        let given = if self.options.expandable {
            expandable::release(&mut self.layout)
        } else {
            segments::release(&mut self.layout)
        };
        self.figures.reserved -= given.bytes;
        self.figures.shrink_calls += given.calls;
    }

    /// The figures now.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Gets memory for a block from the driver; returns a free chunk that is large enough.
    fn grow(&mut self, queue: Queue, bytes: u64) -> Option<u64> {
        let room = self.options.limit.map_or(u64::MAX, |limit| limit - self.figures.reserved);
        let (address, got) = if self.options.expandable {
            expandable::grow(&mut self.layout, queue, bytes, room)?
        } else {
            segments::grow(&mut self.layout, queue, bytes, room)?
        };
        self.figures.reserve(got.bytes, got.calls);
        Some(address)
    }

    /// Makes a block of a free chunk's front, and of all of it where the rest is not worth a split.
    fn hand_out(&mut self, address: u64, class: Class, bytes: u64) -> BlockId {
        let rest = self.layout.chunk(address).bytes - bytes;
        if class.splits(rest, self.options.expandable) {
            self.layout.split(address, bytes);
        }
        self.layout.set_state(address, State::Live);
        self.figures.allocate(self.layout.chunk(address).bytes);
        let id = BlockId(self.next_block);
        self.next_block += 1;
        self.blocks.insert(id, Block { address, users: Vec::new() });
        id
    }

    /// Makes a chunk free that is not in use any more.
    fn reclaim(&mut self, address: u64) {
        let Chunk { bytes, .. } = self.layout.chunk(address);
        self.figures.active -= bytes;
        self.layout.set_state(address, State::Free);
        self.layout.merge(address);
    }
}
