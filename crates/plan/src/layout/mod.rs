//! One place for each block of a capture, as close together as they will lie.
//!
//! What a capture will ask for is known once it was captured before: then each block can be given an
//! offset in one arena, such that blocks which lie over one another are in use one after the other.
//! That is dynamic storage allocation, over a partial order where a capture has several streams.
//!
//! * `order`: which blocks may not lie over one another.
//! * `pack`: blocks in some order, each at the lowest place that is left.
//! * `improve`: better orders, with bounded work.
//! * `sweep`: each in the order of its allocation.
//! * `many`: the same for so many blocks that not all pairs can be looked at.
//! * `pages`: addresses for the same blocks where memory comes by pages at the capture's end.
//! * `outline`: from a capture's journal; `requests`: from a run outside captures; `period`: which part of what was
//!   asked for there is one.

mod improve;
mod many;
mod order;
mod outline;
mod pack;
mod pages;
mod period;
mod requests;
mod sweep;

use std::collections::{BTreeMap, HashMap};

use crate::lifetimes::Lifetimes;
use crate::minimum::Minimum;
use improve::Search;
use order::{Conflicts, Order};
pub use outline::{Outline, Pattern};
pub use pages::Pages;
use regraph_record::policy::Reuse;
pub use requests::{Demand, Heard, Requests};

/// Offsets are multiples of this, in bytes.
const GRANULE: u64 = 512;
/// So many blocks at most are compared pair by pair.
const PAIRWISE: usize = 6_000;
/// So many times as long is searched where pages still need more than the least.
const THOROUGH: u64 = 8;

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
    as_asked: u64,
    pages: Option<Pages>,
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
        Self::searched(lifetimes, frees, reuse, (None, 1))
    }

    /// Lays the blocks of a capture out as [`Layout::new`] does, searching `times` as long where the least is not found
    /// at once. For memory that is mapped in pages of a `unit` in bytes it has [`Layout::pages`], unless there are more
    /// than some thousand blocks, and is searched for longer where the pages need more than the least.
    ///
    /// # Panics
    /// Panics unless `frees` has an entry for each block, and if `unit` is 0.
    pub fn searched(
        lifetimes: &Lifetimes,
        frees: &[Option<u32>],
        reuse: Reuse,
        (unit, times): (Option<u64>, u64),
    ) -> Self {
        let order = Order::new(lifetimes, frees, reuse);
        let conflicts = (order.len() <= PAIRWISE).then(|| Conflicts::new(&order));
        let (swept, _) = match &conflicts {
            Some(conflicts) => sweep::best(&order, |block| conflicts.may_lie_over(block)),
            None => sweep::best(&order, |block| {
                let order = &order;
                move |earlier| order.precedes(earlier as usize, block)
            }),
        };
        let as_asked = order.taken(&swept);
        let (offsets, pages) = if let Some(conflicts) = conflicts {
            let with_pages = |times: u64| {
                let search = Search::thorough(&order, &conflicts, times);
                let offsets = improve::best(&order, &conflicts, search);
                let better = as_asked < order.taken(&offsets);
                let offsets = if better { swept.clone() } else { offsets };
                let pages = |unit| Pages::new(&order, &conflicts, lifetimes, &offsets, unit);
                let pages = unit.map(pages);
                (offsets, pages)
            };
            let quick = with_pages(times);
            let least = unit.map(|unit| Minimum::of(lifetimes).bytes.next_multiple_of(unit));
            let bytes = |pages: &Option<Pages>| pages.as_ref().map(Pages::bytes);
            if bytes(&quick.1) > least {
                let thorough = with_pages(times.saturating_mul(THOROUGH));
                if bytes(&thorough.1) < bytes(&quick.1) {
                    thorough
                } else {
                    quick
                }
            } else {
                quick
            }
        } else {
            (many::best(&order, swept), None)
        };
        Self::at(&order, frees, &offsets, as_asked, pages)
    }

    /// Lays the blocks of a capture out after a short search, for memory that comes in units of `unit` bytes. `None`
    /// where blocks take no more units when each goes, as it is allocated, to the first gap.
    ///
    /// # Panics
    /// Panics unless `frees` has an entry for each block, and if `unit` is 0.
    fn quick(
        lifetimes: &Lifetimes,
        frees: &[Option<u32>],
        reuse: Reuse,
        unit: u64,
    ) -> Option<Self> {
        if frees.len() > PAIRWISE {
            return None;
        }
        let order = Order::new(lifetimes, frees, reuse);
        let search = Search::quick(&order, Minimum::of(lifetimes).bytes, unit);
        let conflicts = Conflicts::new(&order);
        let (swept, as_asked) = sweep::best(&order, |block| conflicts.may_lie_over(block));
        if as_asked <= search.enough {
            return None;
        }
        let settled = |most| improve::settled(&order, &conflicts, most);
        let offsets = settled(search.enough).unwrap_or_else(|| {
            let found = improve::best(&order, &conflicts, search);
            let better = order.taken(&swept) < order.taken(&found);
            let offsets = if better { swept } else { found };
            settled(order.taken(&offsets).next_multiple_of(unit)).unwrap_or(offsets)
        });
        Some(Self::at(&order, frees, &offsets, as_asked, None)).filter(|layout| layout.saves(unit))
    }

    fn at(
        order: &Order<'_>,
        frees: &[Option<u32>],
        offsets: &[u64],
        as_asked: u64,
        pages: Option<Pages>,
    ) -> Self {
        let blocks = order.blocks().iter().zip(offsets).zip(frees);
        let mut streams: HashMap<u32, u32> = HashMap::new();
        let places: Vec<Place> = blocks
            .map(|((block, &offset), &until)| {
                let next = streams.len() as u32;
                let stream = *streams.entry(block.stream).or_insert(next);
                Place { offset, bytes: block.bytes, stream, until }
            })
            .collect();
        Self { bytes: order.taken(offsets), as_asked, places, pages }
    }

    /// What the blocks take, in bytes, where each goes to the first gap as it is allocated; of a layout that the host has
    /// asked for, to the best gap where that takes less.
    pub fn as_asked(&self) -> u64 {
        self.as_asked
    }

    /// Whether all blocks are for one stream.
    pub fn is_of_one_stream(&self) -> bool {
        self.places.iter().all(|place| place.stream == 0)
    }

    /// Whether it takes fewer units of `unit` bytes than the blocks do as they are asked for.
    ///
    /// # Panics
    /// Panics if the unit is 0.
    pub fn saves(&self, unit: u64) -> bool {
        self.bytes.div_ceil(unit) < self.as_asked.div_ceil(unit)
    }

    /// What the blocks take at most at a time whose places lie over bytes of the arena that are taken, in bytes: so much
    /// is needed beside it. `taken` has where each such part begins and where it ends; none lies over another. Takes a
    /// look at each place, times the logarithm of the parts.
    pub fn lost(&self, taken: &BTreeMap<u64, u64>) -> u64 {
        let mut leaving = vec![0; self.places.len() + 1];
        let (mut held, mut most) = (0, 0);
        for (row, place) in self.places.iter().enumerate() {
            held -= leaving[row];
            let (begin, end) = (place.offset, place.offset + place.bytes);
            if taken.range(..end).next_back().is_none_or(|(_, &to)| to <= begin) {
                continue;
            }
            held += place.bytes;
            most = most.max(held);
            if let Some(leaving) = place.until.and_then(|until| leaving.get_mut(until as usize)) {
                *leaving += place.bytes;
            }
        }
        most
    }

    /// The places, in the order of the blocks' allocation.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Where the blocks go if their memory comes by pages at the capture's end.
    pub fn pages(&self) -> Option<&Pages> {
        self.pages.as_ref()
    }

    /// What the arena takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
