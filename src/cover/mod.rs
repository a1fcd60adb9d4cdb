//! The least memory for things that are in use as boxes, and who passes it on to whom.

#[allow(clippy::module_inception, reason = "the folder is named for its function")]
mod cover;

pub use cover::cover;

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
}

impl Items {
    /// None, with so many numbers each.
    pub fn new(chains: usize) -> Self {
        Self { chains, ..Self::default() }
    }

    /// Adds one. What precedes it has been added before.
    ///
    /// # Panics
    /// Panics unless `known` and `needed` have a number for each chain.
    pub fn push(&mut self, item: Item, known: &[u32], needed: &[u32]) {
        assert_eq!((known.len(), needed.len()), (self.chains, self.chains), "a number a chain");
        self.items.push(item);
        self.known.extend_from_slice(known);
        self.needed.extend_from_slice(needed);
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
        let needed = self.needed(earlier).iter().zip(self.known(later));
        self.items[earlier].freed && needed.into_iter().all(|(needed, known)| needed <= known)
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
/// the item takes `taken` of all that has come so far and was not taken yet; the rest goes on. Whoever
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
