//! The least memory that a capture needs, in any placement that goes by free markers and adds no edges to its graph.
//!
//! It is the weight of a heaviest antichain of the blocks' order ([`lifetimes`](crate::lifetimes)): no two blocks of it
//! precede one another, so none can have another's memory. No placement needs less, and page by page so much is enough
//! ([`cover`](crate::cover), [`plan`](crate::plan)).
//!
//! [`Minimum::of`] finds it for the lifetimes of any capture.

use crate::cover::{Heaviest, Item, Items};
use crate::lifetimes::Lifetimes;
use regraph_record::journal::BlockNumber;

/// The least memory for a capture, and the proof that less is not enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Minimum {
    /// The least memory in bytes, with block sizes as occupied.
    pub bytes: u64,
    /// Blocks of which no two precede one another, in the order of their allocation: together they occupy `bytes`.
    pub antichain: Vec<BlockNumber>,
    /// The last antichain block of each stream; several of a stream that was set back.
    ///
    /// What a threshold knows holds all that those before it on its stream know, and no block of the
    /// antichain needs only what a threshold knows. That is enough for no two of them to precede one
    /// another, and can be seen by comparing each block with each threshold.
    pub thresholds: Vec<BlockNumber>,
    /// Which block passes memory on to which, and how many bytes: a placement in `bytes` bytes, page by page.
    pub flows: Vec<(BlockNumber, BlockNumber, u64)>,
    /// Whether no placement needs less. False only where [`Lifetimes::is_exact`] is false.
    pub exact: bool,
}

impl Minimum {
    /// The least memory for these blocks.
    ///
    /// Blocks that no node can have used need none.
    pub fn of(lifetimes: &Lifetimes) -> Self {
        let blocks = lifetimes.blocks();
        let mut items = Items::new(lifetimes.chains());
        let mut rows = Vec::new();
        for (row, block) in blocks.iter().enumerate() {
            if block.worked && !lifetimes.precedes(row, row) {
                let item = Item::new(block.bytes, block.stream, block.freed);
                items.push(item, lifetimes.known(row), lifetimes.needed(row));
                rows.push(row);
            }
        }
        let heaviest = Heaviest::of(&items);
        let antichain: Vec<_> =
            heaviest.antichain.iter().map(|&item| rows[item as usize]).collect();
        let number = |&row: &usize| blocks[row].block;
        let name = |item: u32| blocks[rows[item as usize]].block;
        Self {
            bytes: heaviest.minimum,
            thresholds: thresholds(lifetimes, &antichain).iter().map(number).collect(),
            antichain: antichain.iter().map(number).collect(),
            flows: heaviest
                .flows
                .iter()
                .map(|&(from, to, by)| (name(from), name(to), by))
                .collect(),
            exact: lifetimes.is_exact(),
        }
    }
}

/// Reserved over least memory; `None` where no memory is needed.
pub fn ratio(reserved_bytes: u64, minimum_bytes: u64) -> Option<f64> {
    (minimum_bytes > 0).then(|| reserved_bytes as f64 / minimum_bytes as f64)
}

/// The blocks of an antichain that know all that those before them on their stream do, up to the one
/// before that did not.
fn thresholds(lifetimes: &Lifetimes, antichain: &[usize]) -> Vec<usize> {
    let stream = |row: usize| lifetimes.blocks()[row].stream;
    let knows_more = |row: usize, top: usize| {
        lifetimes.known(top).iter().zip(lifetimes.known(row)).all(|(top, known)| top <= known)
    };
    let mut tops: Vec<usize> = Vec::new();
    for &row in antichain {
        let own = tops.iter_mut().rev().find(|top| stream(**top) == stream(row));
        match own {
            Some(top) if knows_more(row, *top) => *top = row,
            _ => tops.push(row),
        }
    }
    tops
}
