//! Which index a node's handle has.
//!
//! Handles are addresses that a driver gives out one behind the other, so there is a table for each
//! page of addresses in which nodes lie: finding one is arithmetic, and handles that lie near each
//! other share cache lines. Only the page itself is looked up by hash, and the latest pages not even
//! so.

use super::dag::NodeIndex;
use regraph_driver::NodeHandle;
use regraph_record::index::{new_map, Map};
use regraph_record::recent::Recent;

/// Bits of a handle within its page.
const PAGE: u32 = 12;

/// Low bits that are zero in a handle that lies in a page: allocations are that far apart.
const APART: u32 = 4;

/// Slots of a page.
const SLOTS: usize = 1 << (PAGE - APART);

/// No node has these indices: memory would have run out long before.
const UNKNOWN: u32 = u32::MAX;
const OPEN: u32 = u32::MAX - 1;

/// What is known of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Unknown,
    /// Its dependencies are being mirrored.
    Open,
    Mirrored(NodeIndex),
}

/// Where a handle's place is kept; for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot(usize);

/// The places of a capture's nodes.
#[derive(Debug)]
pub(super) struct Places {
    /// Indices, or [`UNKNOWN`], or [`OPEN`].
    places: Vec<u32>,
    /// The first slot of each page.
    pages: Map<usize, Slot>,
    recent: Recent<Slot, 64>,
    /// Handles that lie in no page.
    others: Map<usize, Slot>,
}

impl Places {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), pages: new_map(), recent: Recent::default(), others: new_map() }
    }

    /// Forgets all handles; what is allocated stays.
    pub(super) fn clear(&mut self) {
        let Self { places, pages, recent, others } = self;
        places.clear();
        pages.drain().for_each(|(page, _)| recent.forget(page));
        others.clear();
    }

    /// The slot of a handle.
    #[inline]
    pub(super) fn slot(&mut self, node: NodeHandle) -> Slot {
        let bits = node.bits();
        if bits & ((1 << APART) - 1) != 0 {
            return self.other(bits);
        }
        let first = match self.recent.get(bits >> PAGE) {
            Some(first) => first,
            None => self.page(bits >> PAGE),
        };
        Slot(first.0 + (bits >> APART) % SLOTS)
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Place {
        match self.places[slot.0] {
            UNKNOWN => Place::Unknown,
            OPEN => Place::Open,
            index => Place::Mirrored(NodeIndex::from_raw(index)),
        }
    }

    #[inline]
    pub(super) fn set(&mut self, slot: Slot, place: Place) {
        self.places[slot.0] = match place {
            Place::Unknown => UNKNOWN,
            Place::Open => OPEN,
            Place::Mirrored(index) => index.index() as u32,
        };
    }

    #[cold]
    fn page(&mut self, page: usize) -> Slot {
        let Self { places, pages, recent, .. } = self;
        let first = *pages.entry(page).or_insert_with(|| add(places, SLOTS));
        recent.put(page, first);
        first
    }

    #[cold]
    fn other(&mut self, bits: usize) -> Slot {
        let Self { places, others, .. } = self;
        *others.entry(bits).or_insert_with(|| add(places, 1))
    }
}

/// Adds unknown places and names the first.
fn add(places: &mut Vec<u32>, count: usize) -> Slot {
    let first = Slot(places.len());
    places.resize(places.len() + count, UNKNOWN);
    first
}
