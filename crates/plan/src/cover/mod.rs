//! The least memory for things that are in use as boxes, and who passes it on to whom.
//!
//! That is Dilworth's theorem (1950) with weights: as many units of memory are needed as the heaviest
//! antichain weighs, and so many do, each serving a chain. The chains come from a largest flow (Ford
//! and Fulkerson 1956; Dantzig and Hoffman 1956): an item gives its memory to items that it precedes,
//! and what flows need not be new. The antichain is that flow's least cut. `design/minimum.md` has the
//! proofs.
//!
//! * `rows`: items in rows, along which an item that may give to one may give to all later ones.
//! * `network`: what is given and taken. Its n² edges are not stored, so no graph library has it.
//! * `greedy`: the flow's start, within a per cent or two of its end.
//! * `levels`, `flow`: from there to the largest flow.
//! * `cut`: what comes out. `proof`: whether it is right, by the items alone.

mod cut;
mod flow;
mod greedy;
mod levels;
mod network;
mod proof;
mod rows;

use std::ops::Range;

use network::Network;
use rows::within;

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
    known: Vec<u32>,
    needed: Vec<u32>,
    /// By item: the chains outside which nothing is known, and nothing needed. Where launches prove
    /// little there are as many chains as nodes, and an item knows few.
    known_in: Vec<Range<u32>>,
    needed_in: Vec<Range<u32>>,
}

impl Items {
    /// None, with so many numbers each.
    pub fn new(chains: usize) -> Self {
        Self { chains, ..Self::default() }
    }

    /// Adds one. What precedes it has been added before. What it knows is needed too: in a capture
    /// an item that knows what another one needs knows that anyway, and with it *precedes* is transitive. One
    /// that needs no more than it knows would precede itself: it counts as never freed.
    ///
    /// # Panics
    /// Panics unless `known` and `needed` have a number for each chain.
    pub fn push(&mut self, mut item: Item, known: &[u32], needed: &[u32]) {
        assert_eq!((known.len(), needed.len()), (self.chains, self.chains), "a number a chain");
        item.freed &= !within(needed, known);
        self.items.push(item);
        self.known.extend_from_slice(known);
        self.needed.extend(known.iter().zip(needed).map(|(known, needed)| *known.max(needed)));
        self.known_in.push(chains_in(known));
        self.needed_in.push(chains_in(&self.needed[self.needed.len() - self.chains..]));
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
        &self.known[item * self.chains..][..self.chains]
    }

    /// What an item needs.
    pub fn needed(&self, item: usize) -> &[u32] {
        &self.needed[item * self.chains..][..self.chains]
    }

    /// Whether memory may go from one to another.
    pub fn precedes(&self, earlier: usize, later: usize) -> bool {
        self.items[earlier].freed && self.needs_within(earlier, later)
    }

    /// Whether one knows all that another needs, freed or not.
    #[inline]
    pub(super) fn needs_within(&self, earlier: usize, later: usize) -> bool {
        let Range { start, end } = self.needed_in[earlier].clone();
        let chains = start as usize..end as usize;
        within(&self.needed(earlier)[chains.clone()], &self.known(later)[chains])
    }

    /// Whether one knows all that another knows.
    #[inline]
    pub(super) fn knows_within(&self, earlier: usize, later: usize) -> bool {
        let Range { start, end } = self.known_in[earlier].clone();
        let chains = start as usize..end as usize;
        within(&self.known(earlier)[chains.clone()], &self.known(later)[chains])
    }
}

/// From the first chain with a number to the last.
fn chains_in(numbers: &[u32]) -> Range<u32> {
    let some = |number: &u32| *number > 0;
    let start = numbers.iter().position(some).unwrap_or(0);
    let end = numbers.iter().rposition(some).map_or(start, |last| last + 1);
    start as u32..end as u32
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
    /// Panics if there are more than `u32::MAX` items, or if the least memory is more than
    /// `u64::MAX`.
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
