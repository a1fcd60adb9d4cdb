//! Which nodes each node depends on, row behind row.

use super::order::Order;
use super::windows::WORD;

/// Compressed sparse rows that are only appended to.
#[derive(Debug)]
pub(super) struct Rows {
    /// Where each row begins; the last one is where the open row does.
    starts: Vec<u32>,
    open: usize,
    /// In rising order within a row, each once.
    targets: Vec<u32>,
    /// What each edge proves.
    orders: Vec<Order>,
    /// The lowest target of the rows whose bits share a word of a set; the highest number where there
    /// is none.
    lowest: Vec<u32>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            starts: vec![0],
            open: 0,
            targets: Vec::new(),
            orders: Vec::new(),
            lowest: Vec::new(),
        }
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
        self.targets[edges.clone()].iter().copied().zip(self.orders[edges].iter().copied())
    }

    /// Adds an edge to the row that is open. Of two edges to one node the stronger one counts.
    #[inline]
    pub(super) fn add(&mut self, target: u32, order: Order) {
        // Rows are short, and mostly come in order.
        let mut place = self.targets.len();
        while place > self.open && self.targets[place - 1] > target {
            place -= 1;
        }
        if place > self.open && self.targets[place - 1] == target {
            self.orders[place - 1] = self.orders[place - 1].min(order);
            return;
        }
        self.targets.push(target);
        self.orders.push(order);
        for later in (place + 1..self.targets.len()).rev() {
            self.targets.swap(later - 1, later);
            self.orders.swap(later - 1, later);
        }
    }

    /// The targets of the open row.
    #[inline]
    pub(super) fn open(&self) -> &[u32] {
        &self.targets[self.open..]
    }

    /// Ends the open row; the next one is open then.
    ///
    /// # Panics
    /// Panics at 2^32 edges.
    #[inline]
    pub(super) fn end(&mut self) {
        let row = self.starts.len() - 1;
        if row / WORD == self.lowest.len() {
            self.lowest.push(u32::MAX);
        }
        if let Some(&first) = self.open().first() {
            let lowest = &mut self.lowest[row / WORD];
            *lowest = first.min(*lowest);
        }
        self.open = self.targets.len();
        self.starts.push(u32::try_from(self.open).expect("a capture has fewer than 2^32 edges"));
    }

    /// Empties the open row.
    pub(super) fn undo(&mut self) {
        self.targets.truncate(self.open);
        self.orders.truncate(self.open);
    }
}
