//! What one stream of a capture may take.
//!
//! Its own ranges lie on the shelf as *runs*: neighbours that all belong to it and are all proven
//! for it, so that a large block can span them without any of them giving up its own markers.
//! Ranges of other streams arrive as news, at the moment their last marker is proven for this
//! stream, and are sorted only when the stream first looks for one. An entry may be out of date:
//! whoever uses it compares it with the range itself.

use std::collections::BTreeSet;

use super::range::RangeId;

/// A range of another stream's, ordered by how few streams know of it, then best fit, then address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Foreign {
    pub(crate) known: u32,
    pub(crate) bytes: u64,
    pub(crate) address: u64,
    pub(crate) id: RangeId,
    pub(crate) generation: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// Runs by size, then address, named by their first range.
    pub(crate) own: BTreeSet<(u64, u64, RangeId)>,
    /// Ranges of others that became takeable and are not sorted yet.
    pub(crate) news: Vec<(RangeId, u32)>,
    pub(crate) foreign: BTreeSet<Foreign>,
}
