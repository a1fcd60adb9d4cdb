//! Which nodes each node depends on, row behind row.

use petgraph::csr::Csr;
use petgraph::Directed;

use super::order::Order;
use super::windows::WORD;

/// Compressed sparse rows that are only appended to.
#[derive(Debug, Default)]
pub(super) struct Rows {
    ended: Csr<(), Order, Directed, u32>,
    /// The targets of the row that is open, in rising order, each once, and what its edges prove. Apart
    /// from the others, for a library's row cannot be taken back.
    open: Vec<u32>,
    orders: Vec<Order>,
    /// The lowest target of the rows whose bits share a word of a set; the highest number where there
    /// is none.
    lowest: Vec<u32>,
}

impl Rows {
    /// The targets of a row.
    #[inline]
    pub(super) fn targets(&self, row: usize) -> &[u32] {
        self.ended.neighbors_slice(row as u32)
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
        let orders = self.ended.edges_slice(row as u32);
        self.targets(row).iter().copied().zip(orders.iter().copied())
    }

    /// Adds an edge to the row that is open. Of two edges to one node the stronger one counts.
    #[inline]
    pub(super) fn add(&mut self, target: u32, order: Order) {
        if self.open.last().is_some_and(|&last| last >= target) {
            self.add_between(target, order);
            return;
        }
        self.open.push(target);
        self.orders.push(order);
    }

    /// [`Rows::add`], where the edge is not the last of its row, or is there.
    fn add_between(&mut self, target: u32, order: Order) {
        match self.open.binary_search(&target) {
            Ok(place) => self.orders[place] = self.orders[place].min(order),
            Err(place) => {
                self.open.insert(place, target);
                self.orders.insert(place, order);
            }
        }
    }

    /// The targets of the open row.
    #[inline]
    pub(super) fn open(&self) -> &[u32] {
        &self.open
    }

    /// Ends the open row; the next one is open then.
    #[inline]
    pub(super) fn end(&mut self) {
        let row = self.ended.add_node(());
        let word = row as usize / WORD;
        if word == self.lowest.len() {
            self.lowest.push(u32::MAX);
        }
        if let Some(&first) = self.open.first() {
            self.lowest[word] = first.min(self.lowest[word]);
        }
        for (&target, &order) in self.open.iter().zip(&self.orders) {
            self.ended.add_edge(row, target, order);
        }
        self.undo();
    }

    /// Empties the open row.
    #[inline]
    pub(super) fn undo(&mut self) {
        self.open.clear();
        self.orders.clear();
    }
}
