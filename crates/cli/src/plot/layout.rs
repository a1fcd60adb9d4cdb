//! Where blocks lie over time.
//!
//! Addresses are drawn without the gaps between pieces of memory: each piece stands on the one that a block came to lie
//! in before. Where a plan maps memory at a capture's end, blocks share it behind their addresses; the physical memory
//! is what is drawn.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use regraph::settings::Programmatic;
use regraph_trace::{minimum, BlockIndex, Operation, StreamIndex, Trace};

use crate::replay::Placement;

/// Blocks are placed in multiples of this, in bytes.
const GRANULE: u64 = 512;

/// Addresses that are closer than this are of one piece, in bytes.
const PIECE: u64 = 2 << 20;

/// The layout of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    parts: Vec<Part>,
    height: u64,
}

/// A stretch of memory that a block lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) block: BlockIndex,
    /// From the lower end of all memory, in bytes.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Physical(u32),
    /// Addresses from here on, where no physical memory is known any more.
    Addresses(u64),
}

impl Layout {
    /// Of blocks where they were placed. `behind` tells the physical memory behind addresses: its number, offset and
    /// bytes, in order; `None` where there is none any more.
    pub(crate) fn new(
        placements: &[Placement],
        behind: impl Fn(u64, u64) -> Option<Vec<(u32, u64, u64)>>,
    ) -> Self {
        let ranges = placements.iter().map(|it| (it.address, it.bytes.next_multiple_of(GRANULE)));
        let known: Vec<_> = ranges.clone().map(|(address, bytes)| behind(address, bytes)).collect();
        let unknown = ranges.clone().zip(&known).filter(|(_, known)| known.is_none());
        let pieces = pieces(unknown.map(|(range, _)| range).collect());
        let mut stretches = Vec::new();
        // By piece: how much of it is drawn, and when it was first met.
        let mut ends: BTreeMap<Piece, u64> = BTreeMap::new();
        let mut order = Vec::new();
        for ((placement, (address, bytes)), known) in placements.iter().zip(ranges).zip(known) {
            let found = match known {
                Some(known) => known
                    .into_iter()
                    .map(|(it, from, bytes)| (Piece::Physical(it), from, bytes))
                    .collect(),
                None => {
                    let base = pieces[pieces.partition_point(|&base| base <= address) - 1];
                    vec![(Piece::Addresses(base), address - base, bytes)]
                }
            };
            for (piece, from, bytes) in found {
                let end = ends.entry(piece).or_insert_with(|| {
                    order.push(piece);
                    0
                });
                *end = (from + bytes).max(*end);
                stretches.push((placement.id, piece, from, bytes));
            }
        }
        let mut bases = BTreeMap::new();
        let mut height = 0;
        for piece in order {
            bases.insert(piece, height);
            height += ends[&piece];
        }
        let mut parts: Vec<Part> = Vec::with_capacity(stretches.len());
        for (block, piece, from, bytes) in stretches {
            let offset = bases[&piece] + from;
            match parts.last_mut() {
                Some(last) if last.block == block && last.offset + last.bytes == offset => {
                    last.bytes += bytes;
                }
                _ => parts.push(Part { block, offset, bytes }),
            }
        }
        Self { parts, height }
    }

    /// Up to where blocks lie, in bytes.
    pub fn height(&self) -> u64 {
        self.height
    }

    /// Every stretch, in order of allocation.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// Where ranges of addresses begin that have larger gaps between them than within.
fn pieces(mut ranges: Vec<(u64, u64)>) -> Vec<u64> {
    ranges.sort_unstable();
    let mut bases = Vec::new();
    let mut end = None;
    for (address, bytes) in ranges {
        if end.is_none_or(|end: u64| address > end.saturating_add(PIECE)) {
            bases.push(address);
        }
        end = end.max(Some(address.saturating_add(bytes)));
    }
    bases
}

/// When a block lived, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) block: BlockIndex,
    /// As asked for.
    pub(super) bytes: u64,
    pub(super) stream: StreamIndex,
    /// The operation that allocated it, counted from 1.
    pub(super) from: usize,
    /// The operation that freed it; `None` where none did.
    pub(super) until: Option<usize>,
}

/// The blocks of a trace, in order of allocation.
pub(super) fn lives(trace: &Trace) -> Vec<Life> {
    let mut lives = Vec::with_capacity(trace.blocks());
    let mut rows = HashMap::new();
    for (operation, at) in trace.operations().iter().zip(1..) {
        match *operation {
            Operation::Alloc { id, bytes, stream } => {
                rows.insert(id, lives.len());
                lives.push(Life { block: id, bytes, stream, from: at, until: None });
            }
            Operation::Free { id } => lives[rows[&id]].until = Some(at),
            _ => {}
        }
    }
    lives
}

/// The blocks that live where most bytes do, in host order.
pub(super) fn live_at_peak(lives: &[Life]) -> Vec<&Life> {
    let mut changes: Vec<(usize, i128)> = Vec::with_capacity(2 * lives.len());
    for life in lives {
        changes.push((life.from, i128::from(life.bytes)));
        changes.extend(life.until.map(|until| (until, -i128::from(life.bytes))));
    }
    changes.sort_by_key(|change| change.0);
    let mut now = 0;
    let sums = changes.iter().map(|&(at, bytes)| {
        now += bytes;
        (now, Reverse(at))
    });
    let Some((_, Reverse(peak))) = sums.max() else { return Vec::new() };
    let is_live = |life: &&Life| life.from <= peak && life.until.is_none_or(|until| until > peak);
    lives.iter().filter(is_live).collect()
}

/// The least memory that a trace's captures need in any placement by free markers that adds no edges, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Least {
    /// In bytes, summed over pools.
    pub bytes: u64,
    /// The blocks that need it all at once: of each pool those of the capture that needs most.
    pub blocks: BTreeSet<BlockIndex>,
}

impl Least {
    /// Of a trace, with what programmatic edges prove.
    pub fn of(trace: &Trace, programmatic: Programmatic) -> Self {
        let certificates = minimum::of_trace(trace, programmatic);
        let largest = minimum::largest_of_pools(trace, &certificates);
        let blocks = largest.flat_map(|it| &it.antichain).map(|block| block.id).collect();
        Self { bytes: minimum::of_pools(trace, &certificates, 1), blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(id: BlockIndex, address: u64, bytes: u64) -> Placement {
        Placement { id, address, bytes }
    }

    #[test]
    fn pieces_stand_on_each_other_in_the_order_of_their_first_blocks() {
        let far = 1 << 40;
        let placements = [placed(0, far, 100), placed(1, 4096, 1024), placed(2, far + 512, 512)];
        let layout = Layout::new(&placements, |_, _| None);
        let offsets: Vec<_> = layout.parts().iter().map(|it| (it.offset, it.bytes)).collect();
        assert_eq!(offsets, [(0, 512), (1024, 1024), (512, 512)]);
        assert_eq!(layout.height(), 2048);
    }

    #[test]
    fn what_lies_behind_the_addresses_is_drawn() {
        let placements = [placed(7, 0, 2048), placed(8, 1 << 30, 1024)];
        let behind = |address, _| match address {
            0 => Some(vec![(3, 0, 512), (3, 512, 512), (9, 0, 1024)]),
            _ => Some(vec![(3, 0, 1024)]),
        };
        let layout = Layout::new(&placements, behind);
        let parts: Vec<_> =
            layout.parts().iter().map(|it| (it.block, it.offset, it.bytes)).collect();
        // Neighbours are one, and what two blocks share is drawn once.
        assert_eq!(parts, [(7, 0, 2048), (8, 0, 1024)]);
        assert_eq!(layout.height(), 2048);
    }
}
