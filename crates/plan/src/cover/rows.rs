//! Items in rows: in each, what is known only grows.
//!
//! So an item that may give to one of a row may give to all later ones, and one number a row says to which. An item
//! goes to the latest row of its hint that it continues. Streams that never go back make one row each. Where going back
//! has made many, any row that an item continues will do: the cost grows with their number.

use std::ops::Range;

use ahash::AHashMap;

use super::Items;

/// How many rows there may be before hints are ignored where that saves a row.
const MANY: usize = 64;

/// Items by row. A *position* is a place in the list of all rows, one behind the other.
#[derive(Debug)]
pub(super) struct Rows {
    /// By row, its first position; and the end of the last.
    starts: Vec<u32>,
    /// By position.
    items: Vec<u32>,
    /// By item.
    positions: Vec<u32>,
    /// By item.
    rows: Vec<u32>,
}

impl Rows {
    /// Splits the items.
    ///
    /// # Panics
    /// Panics if there are more than `u32::MAX`.
    pub(super) fn new(items: &Items) -> Self {
        let count = items.items().len();
        assert!(u32::try_from(count).is_ok(), "more than u32::MAX items");
        let mut hinted: AHashMap<u32, Vec<u32>> = AHashMap::new();
        let mut lasts: Vec<u32> = Vec::new();
        let mut lengths: Vec<u32> = Vec::new();
        let mut rows = Vec::with_capacity(count);
        for (item, it) in items.items().iter().enumerate() {
            let continues = |row: &u32| items.knows_within(lasts[*row as usize] as usize, item);
            let own = hinted.entry(it.row).or_default();
            let mut row = own.iter().rev().copied().find(continues);
            if row.is_none() && lasts.len() >= MANY {
                row = (0..lasts.len() as u32).find(continues);
            }
            let row = row.unwrap_or_else(|| {
                own.push(lasts.len() as u32);
                lasts.push(0);
                lengths.push(0);
                lasts.len() as u32 - 1
            });
            lasts[row as usize] = item as u32;
            lengths[row as usize] += 1;
            rows.push(row);
        }
        let mut starts = vec![0; lengths.len() + 1];
        for (row, length) in lengths.iter().enumerate() {
            starts[row + 1] = starts[row] + length;
        }
        let mut next = starts.clone();
        let (mut by_position, mut positions) = (vec![0; count], vec![0; count]);
        for (item, &row) in rows.iter().enumerate() {
            let position = next[row as usize];
            next[row as usize] += 1;
            by_position[position as usize] = item as u32;
            positions[item] = position;
        }
        Self { starts, items: by_position, positions, rows }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// A row's positions.
    #[inline]
    pub(super) fn positions(&self, row: usize) -> Range<u32> {
        self.starts[row]..self.starts[row + 1]
    }

    /// Which item lies there.
    #[inline]
    pub(super) fn item(&self, position: u32) -> usize {
        self.items[position as usize] as usize
    }

    /// Where an item lies.
    #[inline]
    pub(super) fn position(&self, item: usize) -> u32 {
        self.positions[item]
    }

    /// In which row an item lies.
    #[inline]
    pub(super) fn row(&self, item: usize) -> usize {
        self.rows[item] as usize
    }

    /// The items of a row, in order.
    pub(super) fn items(&self, row: usize) -> &[u32] {
        &self.items[self.starts[row] as usize..self.starts[row + 1] as usize]
    }
}
