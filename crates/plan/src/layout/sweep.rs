//! Many blocks: each in the order of its allocation, over blocks that precede it.
//!
//! Those that lie on one byte precede one another, so what matters is the last of them.

use super::order::Order;
use super::pack::Fit;

/// So many regions are looked at for a block.
const LOOKED_AT: usize = 4_096;
/// Blocks behind which no block may ever lie.
const KEPT: u32 = u32::MAX;

/// Bytes with the same last block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    begin: u64,
    end: u64,
    last: u32,
}

/// Where the blocks lie if each goes to the first gap, as the heap has it, or to the best, whichever takes less, and what
/// they take with the first, in bytes. `may_lie_over` says for a block which earlier ones it may lie over.
pub(super) fn best<F: Fn(u32) -> bool>(
    order: &Order<'_>,
    may_lie_over: impl Fn(usize) -> F,
) -> (Vec<u64>, u64) {
    let [first, best] = [Fit::First, Fit::Best].map(|fit| sweep(order, &may_lie_over, fit));
    (if best.0 < first.0 { best.1 } else { first.1 }, first.0)
}

fn sweep<F: Fn(u32) -> bool>(
    order: &Order<'_>,
    may_lie_over: impl Fn(usize) -> F,
    fit: Fit,
) -> (u64, Vec<u64>) {
    // Without those that no block may follow, so they may leave gaps.
    let mut regions: Vec<Region> = Vec::new();
    let mut offsets = Vec::with_capacity(order.len());
    let mut top = 0;
    for block in 0..order.len() {
        let bytes = order.bytes(block);
        let offset = find(bytes, &regions, top, may_lie_over(block), fit);
        let end = offset + bytes;
        top = top.max(end);
        offsets.push(offset);
        let last = if order.is_kept(block) { KEPT } else { block as u32 };
        replace(&mut regions, Region { begin: offset, end, last });
    }
    (top, offsets)
}

fn find(
    bytes: u64,
    regions: &[Region],
    top: u64,
    may_lie_over: impl Fn(u32) -> bool,
    fit: Fit,
) -> u64 {
    let mut best: Option<(u64, u64)> = None;
    let mut run: Option<(u64, u64)> = None;
    for region in regions.iter().take(LOOKED_AT) {
        if !may_lie_over(region.last) {
            run = None;
            continue;
        }
        let (begin, end) = match run {
            Some((begin, end)) if end == region.begin => (begin, region.end),
            _ => (region.begin, region.end),
        };
        run = Some((begin, end));
        if end - begin < bytes {
            continue;
        }
        match (fit, best) {
            (Fit::First, _) => return begin,
            // The run has grown, or it is another one.
            (Fit::Best, Some((held, at))) if at == begin => {
                best = Some((held.max(end - begin), at))
            }
            (Fit::Best, Some((held, _))) if held <= end - begin => {}
            (Fit::Best, _) => best = Some((end - begin, begin)),
        }
    }
    if let Some((_, offset)) = best {
        return offset;
    }
    // What is free at the top is a part of the place.
    match run {
        Some((begin, end)) if end == top && regions.len() <= LOOKED_AT => begin,
        _ => top,
    }
}

/// Puts a region in the place of those that it covers.
fn replace(regions: &mut Vec<Region>, new: Region) {
    let from = regions.partition_point(|region| region.end <= new.begin);
    let to = regions.partition_point(|region| region.begin < new.end);
    let mut rests = Vec::with_capacity(3);
    if let Some(&first) = regions.get(from).filter(|first| from < to && first.begin < new.begin) {
        rests.push(Region { end: new.begin, ..first });
    }
    if new.last != KEPT {
        rests.push(new);
    }
    if let Some(&last) = regions[from..to].last().filter(|last| new.end < last.end) {
        rests.push(Region { begin: new.end, ..last });
    }
    regions.splice(from..to, rests);
}
