//! The flow network, without most of its edges.
//!
//! Each item that is freed *gives* up to its weight, each item *takes* up to its own, and an item that
//! precedes an item may give to it. These may be n² edges; none is stored. To which items of a row
//! one may give is told by the first of them, its *entry*, which is searched where it is asked for.
//! What is stored is where something flows, at the item that takes it.

use std::ops::Range;

use smallvec::SmallVec;

use super::rows::Rows;
use super::Items;

/// What an item takes from another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) from: u32,
    pub(super) amount: u64,
}

/// Items that give, positions that take, and what flows.
#[derive(Debug)]
pub(super) struct Network<'a> {
    pub(super) items: &'a Items,
    pub(super) rows: Rows,
    /// By item: what it gives to no item yet.
    pub(super) left: Vec<u64>,
    /// By position: what it takes from no item yet.
    pub(super) wanted: Vec<u64>,
    /// By position: what it takes. One may be there twice, and with nothing.
    pub(super) taken: Vec<SmallVec<[Flow; 2]>>,
}

impl<'a> Network<'a> {
    /// A network in which nothing flows.
    pub(super) fn new(items: &'a Items) -> Self {
        let rows = Rows::new(items);
        let count = items.items().len();
        let left = items.items().iter().map(|item| if item.freed { item.weight } else { 0 });
        let left = left.collect();
        let wanted = |position| items.items()[rows.item(position)].weight;
        let wanted = (0..count as u32).map(wanted).collect();
        Self { items, left, wanted, taken: vec![SmallVec::new(); count], rows }
    }

    /// Whether the item may give to that position.
    #[inline]
    pub(super) fn precedes(&self, item: usize, position: u32) -> bool {
        self.items.needs_within(item, self.rows.item(position))
    }

    /// The first of these positions of one row that the item may give to, or their end.
    pub(super) fn entry(&self, item: usize, positions: Range<u32>) -> u32 {
        let (mut low, mut high) = (positions.start, positions.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.precedes(item, middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// As [`entry`](Self::entry), and fast where it lies close to the start.
    pub(super) fn entry_near(&self, item: usize, positions: Range<u32>) -> u32 {
        let (mut low, mut high, mut step) = (positions.start, positions.start, 1);
        while high < positions.end && !self.precedes(item, high) {
            low = high + 1;
            high = high.saturating_add(step);
            step *= 2;
        }
        self.entry(item, low..high.min(positions.end))
    }

    /// Lets flow what the item still has to give and the position still wants, and no more than that; returns how much.
    pub(super) fn pass(&mut self, item: usize, position: u32, most: u64) -> u64 {
        let wanted = &mut self.wanted[position as usize];
        let amount = most.min(self.left[item]).min(*wanted);
        if amount > 0 {
            self.left[item] -= amount;
            *wanted -= amount;
            self.add(item, position, amount);
        }
        amount
    }

    /// Lets more flow.
    #[inline]
    pub(super) fn add(&mut self, item: usize, position: u32, amount: u64) {
        // Where it is one of many it may be there twice.
        const LOOK: usize = 8;
        let taken = &mut self.taken[position as usize];
        match taken.iter_mut().rev().take(LOOK).find(|flow| flow.from as usize == item) {
            Some(flow) => flow.amount += amount,
            None => taken.push(Flow { from: item as u32, amount }),
        }
    }

    /// Each giver once, and only those that give something.
    pub(super) fn tidy(&mut self) {
        for taken in &mut self.taken {
            if matches!(taken[..], [] | [Flow { amount: 1.., .. }]) {
                continue;
            }
            taken.sort_unstable_by_key(|flow| flow.from);
            taken.dedup_by(|next, first| {
                let same = next.from == first.from;
                first.amount += if same { next.amount } else { 0 };
                same
            });
            taken.retain(|flow| flow.amount > 0);
        }
    }

    /// What is taken from no item: new memory.
    pub(super) fn new_memory(&self) -> u128 {
        self.wanted.iter().map(|&wanted| u128::from(wanted)).sum()
    }
}
