//! A cover made in one go, in the order of allocation: the flow's start.
//!
//! Each item takes what there is for it: first from its own row, then from whom the fewest rows know
//! by now, as what all may have can wait. On captures of programs that leaves little to do.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};

use super::network::Network;

/// How much may be remembered before what is of no use any more is forgotten; a hundred MiB.
const MANY: usize = 1 << 22;

/// Fills a network in which nothing flows.
pub(super) fn fill(network: &mut Network<'_>) {
    let mut known = Known {
        rows: vec![BinaryHeap::new(); network.rows.count()],
        shared: vec![0; network.left.len()],
        held: 0,
        most: MANY,
    };
    let mut passed: Vec<u32> =
        (0..network.rows.count()).map(|row| network.rows.positions(row).start).collect();
    let mut arrivals = Arrivals::new(network.left.len());
    for item in 0..network.left.len() {
        let (row, position) = (network.rows.row(item), network.rows.position(item));
        passed[row] = position + 1;
        while let Some(from) = arrivals.take(position) {
            known.learn(network, row, from);
        }
        known.take(network, row, position);
        if network.left[item] == 0 {
            continue;
        }
        known.forget(network);
        // Where too much is remembered others do without; the flow will find it.
        let full = known.held + arrivals.waiting > 2 * MANY;
        let rows = if full { row..row + 1 } else { 0..network.rows.count() };
        for row in rows {
            let end = network.rows.positions(row).end;
            let entry = network.entry_near(item, passed[row]..end);
            if entry < end {
                arrivals.add(entry, item as u32);
            }
        }
    }
}

/// An item, by its rank and then by its number.
type Ranked = Reverse<(u32, Reverse<u32>)>;

/// Which items each row knows to have given memory back.
struct Known {
    /// By row: own first, then by how many rows knew of it when that was looked at, roughly; the latest first.
    rows: Vec<BinaryHeap<Ranked>>,
    /// By item: how many rows know of it.
    shared: Vec<u32>,
    /// How much is in all rows.
    held: usize,
    /// How much may be.
    most: usize,
}

impl Known {
    fn learn(&mut self, network: &Network<'_>, row: usize, from: u32) {
        let item = from as usize;
        self.shared[item] += 1;
        if network.left[item] > 0 {
            let own = network.rows.row(item) == row;
            let rank = if own { 0 } else { self::rank(self.shared[item]) };
            self.rows[row].push(Reverse((rank, Reverse(from))));
            self.held += 1;
        }
    }

    fn take(&mut self, network: &mut Network<'_>, row: usize, position: u32) {
        while network.wanted[position as usize] > 0 {
            let Some(mut first) = self.rows[row].peek_mut() else { return };
            let Reverse((rank, Reverse(from))) = *first;
            let item = from as usize;
            let amount = network.left[item].min(network.wanted[position as usize]);
            if amount > 0 && 0 < rank && rank < self::rank(self.shared[item]) {
                // Its place is put right when `first` goes.
                *first = Reverse((self::rank(self.shared[item]), Reverse(from)));
                continue;
            }
            if amount == network.left[item] {
                PeekMut::pop(first);
                self.held -= 1;
            }
            network.pass(item, position, amount);
        }
    }

    /// Forgets who has nothing left, where that has become much.
    fn forget(&mut self, network: &Network<'_>) {
        if self.held > self.most {
            for row in &mut self.rows {
                row.retain(|Reverse((_, Reverse(from)))| network.left[*from as usize] > 0);
            }
            self.held = self.rows.iter().map(BinaryHeap::len).sum();
            self.most = MANY.max(2 * self.held);
        }
    }
}

/// Many rows more or fewer make no difference, and who moves back rarely is moved cheaply.
fn rank(rows: u32) -> u32 {
    const EXACT: u32 = 16;
    if rows <= EXACT {
        rows
    } else {
        EXACT - EXACT.ilog2() + rows.ilog2()
    }
}

/// Who may give to a position that is still to come, and to none before it in its row.
struct Arrivals {
    /// By position, its first link.
    firsts: Vec<u32>,
    /// Items, and the next link.
    links: Vec<(u32, u32)>,
    /// The first link that is not in use.
    unused: u32,
    /// How many are in use.
    waiting: usize,
}

const NONE: u32 = u32::MAX;

impl Arrivals {
    fn new(positions: usize) -> Self {
        Self { firsts: vec![NONE; positions], links: Vec::new(), unused: NONE, waiting: 0 }
    }

    fn add(&mut self, position: u32, item: u32) {
        let first = &mut self.firsts[position as usize];
        let link = (item, *first);
        if self.unused == NONE {
            *first = self.links.len() as u32;
            self.links.push(link);
        } else {
            *first = self.unused;
            self.unused = std::mem::replace(&mut self.links[*first as usize], link).1;
        }
        self.waiting += 1;
    }

    fn take(&mut self, position: u32) -> Option<u32> {
        let first = self.firsts[position as usize];
        if first == NONE {
            return None;
        }
        let (item, next) = self.links[first as usize];
        self.firsts[position as usize] = next;
        self.links[first as usize].1 = self.unused;
        self.unused = first;
        self.waiting -= 1;
        Some(item)
    }
}
