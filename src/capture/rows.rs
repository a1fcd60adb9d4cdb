//! Which nodes each node depends on, row behind row.

use super::order::Order;
use super::windows::WORD;

/// Compressed sparse rows that are only appended to.
#[derive(Debug)]
pub(super) struct Rows {
    /// Where each row begins; the last one is open.
    starts: Vec<u32>,
    /// The targets of each row in rising order, each once, and what its edges prove.
    targets: Vec<u32>,
    orders: Vec<Order>,
    /// The lowest target of the rows whose bits share a word of a set; the highest number where there
    /// is none.
    lowest: Vec<u32>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { starts: vec![0], targets: Vec::new(), orders: Vec::new(), lowest: Vec::new() }
    }
}

impl Rows {
    /// The targets of a row.
    #[inline]
    pub(super) fn targets(&self, row: usize) -> &[u32] {
        &self.targets[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// The lowest target of the rows whose bits are in this word of a set; the highest number where
    /// there is none.
    #[inline]
    pub(super) fn lowest(&self, word: usize) -> usize {
        self.lowest[word] as usize
    }

    /// The targets of a row and what the edges prove.
    #[inline]
    pub(super) fn edges(&self, row: usize) -> impl Iterator<Item = (u32, Order)> + '_ {
        let edges = self.starts[row] as usize..self.starts[row + 1] as usize;
        let orders = self.orders[edges.clone()].iter().copied();
        self.targets[edges].iter().copied().zip(orders)
    }

    /// Adds an edge to the row that is open. Of two edges to one node the stronger one counts.
    #[inline]
    pub(super) fn add(&mut self, target: u32, order: Order) {
        if self.open().last().is_some_and(|&last| last >= target) {
            self.add_between(target, order);
            return;
        }
        self.targets.push(target);
        self.orders.push(order);
    }

    /// [`Rows::add`], where the edge is not the last of its row, or is there.
    fn add_between(&mut self, target: u32, order: Order) {
        let start = self.start();
        match self.open().binary_search(&target) {
            Ok(place) => {
                let known = &mut self.orders[start + place];
                *known = order.min(*known);
            }
            Err(place) => {
                self.targets.insert(start + place, target);
                self.orders.insert(start + place, order);
            }
        }
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
        let word = (self.starts.len() - 1) / WORD;
        if word == self.lowest.len() {
            self.lowest.push(u32::MAX);
        }
        if let Some(&first) = self.open().first() {
            self.lowest[word] = first.min(self.lowest[word]);
        }
        let end = u32::try_from(self.targets.len()).expect("captures have fewer than 2^32 edges");
        self.starts.push(end);
    }

    /// Empties the open row.
    #[inline]
    pub(super) fn undo(&mut self) {
        let start = self.start();
        self.targets.truncate(start);
        self.orders.truncate(start);
    }
}
