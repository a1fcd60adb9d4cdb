//! One place for each block of a capture, as close together as they will lie.
//!
//! What a capture will ask for is known once it was captured before: then each block can be given an
//! offset in one arena, such that blocks which lie over one another are in use one after the other.
//! That is dynamic storage allocation, over a partial order where a capture has several streams.
//!
//! * `order`: which blocks may not lie over one another.
//! * `pack`: blocks in some order, each at the lowest place that is left.
//! * `improve`: better orders, with bounded work.
//! * `sweep`: the same for so many blocks that not all pairs can be looked at.
//! * `outline`: from a capture's journal; `requests`: from a run outside captures.

mod improve;
mod order;
mod outline;
mod pack;
mod requests;
mod sweep;

use std::collections::HashMap;

use crate::lifetimes::Lifetimes;
use crate::policy::Reuse;
use order::{Conflicts, Order};
pub use outline::Outline;
pub use requests::Requests;

/// Offsets are multiples of this, in bytes.
const GRANULE: u64 = 512;
/// So many blocks at most are compared pair by pair.
const PAIRWISE: usize = 6_000;

/// Where one block goes, and for what request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// Where it begins in the arena, a multiple of 512 bytes.
    pub offset: u64,
    /// What the block occupies, in bytes.
    pub bytes: u64,
    /// The stream that it is for, by the order of streams' first blocks.
    pub stream: u32,
    /// How many blocks are allocated before it is freed; `None` where it is not.
    pub until: Option<u32>,
}

/// Places for the blocks of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    places: Vec<Place>,
    bytes: u64,
}

impl Layout {
    /// Lays the blocks of a capture out.
    ///
    /// `frees` says of each block how many of them had been allocated when it was freed, in the order
    /// of the host's calls; `None` where it was not. A place goes from a block to another where that
    /// knows all that the first one needs *and* is allocated after the first one's free, and with any
    /// policy but [`Reuse::CrossStream`] on the same stream. Blocks that were not used get places too.
    ///
    /// The same blocks get the same places, on every machine. Work is bounded: where there are more
    /// than some thousand blocks, less is tried.
    ///
    /// # Panics
    /// Panics unless `frees` has an entry for each block.
    pub fn new(lifetimes: &Lifetimes, frees: &[Option<u32>], reuse: Reuse) -> Self {
        let order = Order::new(lifetimes, frees, reuse);
        let offsets = if order.len() <= PAIRWISE {
            improve::best(&order, &Conflicts::new(&order))
        } else {
            sweep::best(&order)
        };
        let blocks = lifetimes.blocks().iter().zip(&offsets).zip(frees);
        let mut streams: HashMap<u32, u32> = HashMap::new();
        let places: Vec<Place> = blocks
            .map(|((block, &offset), &until)| {
                let next = streams.len() as u32;
                let stream = *streams.entry(block.stream).or_insert(next);
                Place { offset, bytes: block.bytes, stream, until }
            })
            .collect();
        let ends = (0..order.len()).map(|block| offsets[block] + order.bytes(block));
        Self { bytes: ends.max().unwrap_or(0), places }
    }

    /// The places, in the order of the blocks' allocation.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// What the arena takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
