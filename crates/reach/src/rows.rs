//! Which nodes each node depends on, row behind row.

use super::order::Order;
use super::windows::{WORD, WORDS};
use fixedbitset::Block;

/// Below so many targets a row is searched from its first on.
const SHORT: usize = 8;

/// Compressed sparse rows that are only appended to.
#[derive(Debug)]
pub(super) struct Rows {
    /// Where each row begins; the last one is open.
    starts: Vec<u32>,
    /// The targets of each row in rising order, each once.
    targets: Vec<u32>,
    /// What the edges prove, as far as one did not prove all; those behind are [`Order::Full`].
    orders: Vec<Order>,
    /// Of each word of a set the rows, as bits, with a target that lies one word or more before it, two words or
    /// more, and so on.
    far: Vec<[Block; WORDS]>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { starts: vec![0], targets: Vec::new(), orders: Vec::new(), far: Vec::new() }
    }
}

impl Rows {
    /// Forgets all rows; what is allocated stays.
    pub(super) fn clear(&mut self) {
        let Self { starts, targets, orders, far } = self;
        starts.truncate(1);
        targets.clear();
        orders.clear();
        far.clear();
    }

    /// The targets of a row.
    #[inline]
    pub(super) fn targets(&self, row: usize) -> &[u32] {
        &self.targets[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// The rows of a word of a set that have a target before the word `first`, which lies less than [`WORDS`] before it.
    #[inline]
    pub(super) fn far(&self, word: usize, first: usize) -> Block {
        self.far[word][word - first]
    }

    /// The targets of a row and what the edges prove.
    #[inline]
    pub(super) fn edges(&self, row: usize) -> impl Iterator<Item = (u32, Order)> + '_ {
        let first = self.starts[row] as usize;
        let edge = move |(at, &target): (usize, &u32)| {
            (target, self.orders.get(first + at).copied().unwrap_or(Order::Full))
        };
        self.targets(row).iter().enumerate().map(edge)
    }

    /// Adds a full edge to the row that is open.
    #[inline]
    pub(super) fn add_full(&mut self, target: u32) {
        let start = self.start();
        let row = &self.targets[start..];
        if row.last().is_none_or(|&last| last < target) {
            self.targets.push(target);
        } else if row.len() < SHORT && self.orders.len() <= start {
            self.add_to_short(target, start);
        } else {
            self.add_between(target, Order::Full);
        }
    }

    /// Adds a full edge to the open row of a few full ones, not at its end: as where a stream has waited
    /// for others, which come before its own node.
    fn add_to_short(&mut self, target: u32, start: usize) {
        let row = &self.targets[start..];
        let place = start + row.iter().take_while(|&&it| it < target).count();
        if self.targets[place] == target {
            return;
        }
        let mut next = target;
        for at in &mut self.targets[place..] {
            std::mem::swap(at, &mut next);
        }
        self.targets.push(next);
    }

    /// Adds an edge to the row that is open. Of two edges to one node the stronger one counts.
    pub(super) fn add(&mut self, target: u32, order: Order) {
        match order {
            Order::Full => self.add_full(target),
            _ => self.add_between(target, order),
        }
    }

    /// [`Rows::add`], wherever in its row the edge belongs. Of several edges between two nodes the first counts: each
    /// holds.
    fn add_between(&mut self, target: u32, order: Order) {
        let Err(place) = self.open().binary_search(&target) else { return };
        let place = self.start() + place;
        if order != Order::Full && self.orders.len() < place {
            self.orders.resize(place, Order::Full);
        }
        if order != Order::Full || place < self.orders.len() {
            self.orders.insert(place, order);
        }
        self.targets.insert(place, target);
    }

    /// Where the open row begins.
    #[inline]
    fn start(&self) -> usize {
        self.starts.last().map_or(0, |&start| start as usize)
    }

    /// The targets of the open row.
    #[inline]
    pub(super) fn open(&self) -> &[u32] {
        &self.targets[self.start()..]
    }

    /// Ends the open row; the next one is open then.
    ///
    /// # Panics
    /// Panics where there would be 2^32 edges.
    #[inline]
    pub(super) fn end(&mut self) {
        let first = self.open().first().copied();
        self.end_with(first.unwrap_or(u32::MAX));
    }

    /// Adds a row of one full edge; none is open.
    ///
    /// # Panics
    /// Panics where there would be 2^32 edges.
    #[inline]
    pub(super) fn push(&mut self, target: u32) {
        self.targets.push(target);
        self.end_with(target);
    }

    /// Ends the open row, whose first target is this one.
    #[inline]
    fn end_with(&mut self, first: u32) {
        let row = self.starts.len() - 1;
        let word = row / WORD;
        if self.far.len() == word {
            self.far.push([0; WORDS]);
        }
        let back = word.saturating_sub(first as usize / WORD);
        if back > 0 {
            self.far[word].iter_mut().take(back).for_each(|rows| *rows |= 1 << (row % WORD));
        }
        let end = u32::try_from(self.targets.len()).expect("captures have fewer than 2^32 edges");
        self.starts.push(end);
    }

    /// Empties the open row, of full edges.
    #[inline]
    pub(super) fn undo(&mut self) {
        self.targets.truncate(self.start());
    }
}
