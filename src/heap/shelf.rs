//! What one stream of a capture may take.
//!
//! Its own ranges lie on the shelf as *runs*: neighbours that all belong to it and are all proven
//! for it, so that a large block can span them without any of them giving up its own markers.
//!
//! What other streams give back stands in the capture's log, by size class. A stream reads on in it
//! only when its own ranges do not serve, and only in the classes that it needs; by then many are
//! taken again. What is proven for it goes on its shelf, what is not waits for a marker. An entry
//! may be out of date: whoever uses it compares it with the range itself.

use super::bins::{Bins, Bookmarks, Log, Sized512};
use super::range::{Given, RangeId};

/// What the streams of a capture may take.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    /// By stream; rows appear as they are needed.
    pub(crate) streams: Vec<Shelf>,
    /// Every range that was given back, by its size then and in host order.
    pub(crate) log: Log<Given>,
}

/// A run, named by its first range, or an idle range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) id: RangeId,
    pub(crate) bytes: u64,
}

impl Sized512 for Listed {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A range of another stream's, with its size when it was entered: it may have shrunk since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign {
    pub(crate) given: Given,
    pub(crate) bytes: u64,
}

impl Sized512 for Foreign {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What one stream may take.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) own: Bins<Listed>,
    /// How many ranges the runs in `own` are made of.
    pub(crate) own_ranges: usize,
    pub(crate) foreign: Bins<Foreign>,
    /// How many entries `foreign` had when those out of date were last dropped.
    pub(crate) foreign_kept: usize,
    /// How much of the log it has read.
    pub(crate) read: Bookmarks,
    /// Ranges of others whose last awaited marker was proven; not sorted in yet.
    pub(crate) news: Vec<Given>,
}
