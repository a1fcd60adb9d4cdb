//! The least memory for things that are in use as boxes, and who passes it on to whom.
//!
//! That is Dilworth's theorem (1950) with weights: as many units of memory are needed as the heaviest antichain weighs,
//! and so many do, each serving a chain. The chains come from a largest flow (Ford and Fulkerson 1956; Dantzig and
//! Hoffman 1956): an item gives its memory to items that it precedes, and what flows need not be new. The antichain is
//! that flow's least cut. `design/plans.md` has the proofs.
//!
//! * `rows`: items in rows, along which an item that may give to one may give to all later ones.
//! * `network`: what is given and taken. Its n² edges are not stored, so no graph library has it.
//! * `greedy`: the flow's start, within a per cent or two of its end.
//! * `levels`, `flow`: from there to the largest flow.
//! * `cut`: what comes out. `proof`: whether it is right, by the items alone.
//! * [`Heaviest`]: the antichain alone, also of items that were parted since it was last asked for.

mod cut;
mod flow;
mod greedy;
mod heaviest;
mod levels;
mod network;
mod proof;
mod rows;

use std::ops::Range;

pub use heaviest::Heaviest;

use crate::numbers::{within, Lanes, Numbers};
use network::Network;

/// Something that takes memory while it is in use: a block, or pages of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// How much it takes, in any unit.
    pub weight: u64,
    /// A hint, for speed and for mappings: items of one row are mostly allocated one after the other,
    /// each knowing all that the one before knew. In blocks: the stream.
    pub row: u32,
    /// Whether it gives its memory back.
    pub freed: bool,
}

impl Item {
    /// One that takes `weight`.
    pub fn new(weight: u64, row: u32, freed: bool) -> Self {
        Self { weight, row, freed }
    }
}

/// Things that take memory, in the order in which they were allocated, with what they know and need
/// as in [`Lifetimes`](crate::lifetimes::Lifetimes).
#[derive(Clone, Debug, Default)]
pub struct Items {
    chains: usize,
    items: Vec<Item>,
    known: Numbers,
    needed: Numbers,
    /// By item: the lanes outside which nothing is known, and nothing needed. Where launches prove
    /// little there are as many chains as nodes, and an item knows few.
    known_in: Vec<Range<u32>>,
    needed_in: Vec<Range<u32>>,
    /// By item: of what it needs, the number that is furthest beyond what it knows, and where it lies in its row. Who
    /// does not know the item's last user does not know that, mostly.
    marks: Vec<(u32, u32)>,
}

impl Items {
    /// None, with so many numbers each.
    pub fn new(chains: usize) -> Self {
        Self::with_capacity(chains, 0)
    }

    /// None, with `chains` numbers each and room for `items` of them.
    pub(crate) fn with_capacity(chains: usize, items: usize) -> Self {
        Self {
            chains,
            items: Vec::with_capacity(items),
            known: Numbers::new(chains, items),
            needed: Numbers::new(chains, items),
            known_in: Vec::with_capacity(items),
            needed_in: Vec::with_capacity(items),
            marks: Vec::with_capacity(items),
        }
    }

    /// Adds one. What precedes it has been added before. What it knows is needed too: in a capture
    /// an item that knows what another one needs knows that anyway, and with it *precedes* is transitive. One
    /// that needs no more than it knows would precede itself: it counts as never freed.
    ///
    /// # Panics
    /// Panics unless `known` and `needed` have a number for each chain.
    pub fn push(&mut self, item: Item, known: &[u32], needed: &[u32]) {
        assert_eq!((known.len(), needed.len()), (self.chains, self.chains), "a number a chain");
        self.known.push(known);
        self.needed.push(needed);
        self.finish(item);
    }

    /// Adds an item, as [`Items::push`] does, whose numbers lie in lanes already.
    pub(crate) fn push_rows(&mut self, item: Item, known: &[Lanes], needed: &[Lanes]) {
        self.known.push_row(known);
        self.needed.push_row(needed);
        self.finish(item);
    }

    /// Adds the item whose numbers were added.
    fn finish(&mut self, mut item: Item) {
        let row = self.items.len();
        let (known, needed) = (self.known.row(row), self.needed.row_mut(row));
        item.freed &= !within(needed, known);
        let (mut mark, mut most) = ((0, 0), 0);
        let both = needed.as_flattened_mut().iter_mut().zip(known.as_flattened());
        for (at, (needed, known)) in (0..).zip(both) {
            *needed = (*needed).max(*known);
            if *needed - known > most {
                (mark, most) = ((at, *needed), *needed - known);
            }
        }
        self.marks.push(mark);
        self.items.push(item);
        self.known_in.push(self.known.used(row));
        self.needed_in.push(self.needed.used(row));
    }

    /// How many numbers each has.
    pub fn chains(&self) -> usize {
        self.chains
    }

    /// All of them.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// What an item knows.
    pub fn known(&self, item: usize) -> &[u32] {
        &self.known.row(item).as_flattened()[..self.chains]
    }

    /// What an item needs.
    pub fn needed(&self, item: usize) -> &[u32] {
        &self.needed.row(item).as_flattened()[..self.chains]
    }

    /// Whether memory may go from one to another.
    pub fn precedes(&self, earlier: usize, later: usize) -> bool {
        self.items[earlier].freed && self.needs_within(earlier, later)
    }

    /// Whether one knows all that another needs, freed or not.
    #[inline]
    pub(super) fn needs_within(&self, earlier: usize, later: usize) -> bool {
        let (at, number) = self.marks[earlier];
        if self.known.number(later, at) < number {
            return false;
        }
        let lanes = self.needed_in[earlier].clone();
        within(self.needed.part(earlier, lanes.clone()), self.known.part(later, lanes))
    }

    /// Whether one knows all that another knows.
    #[inline]
    pub(super) fn knows_within(&self, earlier: usize, later: usize) -> bool {
        let lanes = self.known_in[earlier].clone();
        within(self.known.part(earlier, lanes.clone()), self.known.part(later, lanes))
    }
}

/// Memory that an item gives to the first item of a row that may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who gave it.
    pub from: u32,
    /// How much of it.
    pub amount: u64,
}

/// Items that know ever more, in order, and what flows along them: at each item come its `entries`;
/// the item takes `taken` of all that has come so far and was not taken yet; the rest goes on. An item that
/// gave memory to a row precedes the item at which it entered, and so all later ones.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The items.
    pub items: Vec<u32>,
    /// By position in the row.
    pub entries: Vec<Vec<Entry>>,
    /// By position in the row. The rest of an item's weight is new memory.
    pub taken: Vec<u64>,
}

/// The least memory that items need, who passes it on, and why less does not do.
#[derive(Clone, Debug, Default)]
pub struct Cover {
    /// The sum of what is new: the weight of a heaviest antichain.
    pub minimum: u64,
    /// A heaviest antichain, ascending: no two of its items precede one another.
    pub antichain: Vec<u32>,
    /// Who passes memory on to whom.
    pub rows: Vec<Row>,
}

impl Cover {
    /// The least memory for these items.
    ///
    /// With R rows and S chains it takes time of at most `items * R * S` for each of some ten phases,
    /// and memory as the items do, once more. R is S where nothing goes back.
    ///
    /// # Panics
    /// Panics if there are more than `u32::MAX` items, or if the least memory is more than `u64::MAX`.
    pub fn new(items: &Items) -> Self {
        let mut network = Network::new(items);
        greedy::fill(&mut network);
        let levels = flow::maximise(&mut network);
        let cover = cut::read(&network, &levels);
        debug_assert!(cover.is_proven(items), "the flow and the cut agree");
        cover
    }

    /// What the cover needs that the search starts from, made in one go: never less than the minimum,
    /// and mostly little more.
    ///
    /// # Panics
    /// As [`Cover::new`].
    pub fn at_once(items: &Items) -> u64 {
        let mut network = Network::new(items);
        greedy::fill(&mut network);
        u64::try_from(network.new_memory()).expect("the memory fits in 64 bits")
    }
}
