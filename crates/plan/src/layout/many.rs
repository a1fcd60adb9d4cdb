//! So many blocks that not all pairs can be looked at: packed in several orders, each over those that are in its way.
//!
//! Blocks are numbered in the order of their allocation. Of later blocks of one stream, which know more and more, a block
//! is in the way of the first ones and of none behind: so it is in the way from its own number up to one number for each
//! stream (*span*). What was placed is found by numbers, in buckets: of an earlier block those that the span crosses, of a
//! later one that in which it begins.

use std::cmp::Reverse;

use super::order::Order;
use super::pack::Fit;

/// Numbers of a bucket.
const BUCKET: usize = 64;
/// The most rows of all buckets together, and of blocks by streams. What would take more is not packed.
const ROWS: usize = 1 << 25;
/// The most placed blocks that are looked at, some six seconds' worth; finding spans and sorting come on top.
const STEPS: u64 = 400_000_000;

/// Offsets of the blocks: those given, or better ones.
pub(super) fn best(order: &Order<'_>, swept: Vec<u64>) -> Vec<u64> {
    let Some(mut packer) = SpanPacker::new(order) else { return swept };
    let (mut taken, mut offsets) = (order.taken(&swept), swept);
    let least = order.most_at_once();
    for blocks in packer.orders() {
        for fit in [Fit::First, Fit::Best] {
            if taken <= least {
                return offsets;
            }
            let Some(packed) = packer.pack(&blocks, fit) else { return offsets };
            if packed < taken {
                taken = packed;
                offsets.copy_from_slice(&packer.offsets);
            }
        }
    }
    offsets
}

struct SpanPacker {
    streams: usize,
    /// By block.
    stream: Vec<u32>,
    bytes: Vec<u64>,
    offsets: Vec<u64>,
    /// By block and stream: the first block of the stream that may lie over it, or the number of blocks.
    until: Vec<u32>,
    /// By block: behind the last number of its span.
    end: Vec<u32>,
    /// Of the placed blocks, by bucket: those whose spans cross it, and those that begin there.
    crossing: Vec<Vec<u32>>,
    begun: Vec<Vec<u32>>,
    /// What is in the way of the block that is placed: begin and end.
    beside: Vec<(u64, u64)>,
    steps: u64,
}

impl SpanPacker {
    /// `None` where a stream was set back, or spans are too long.
    fn new(order: &Order<'_>) -> Option<Self> {
        let count = order.len();
        let by_stream = order.by_stream()?;
        let streams = by_stream.len();
        if count * streams > ROWS {
            return None;
        }
        let mut until = Vec::with_capacity(count * streams);
        let mut end = Vec::with_capacity(count);
        let mut rows = 0;
        for block in 0..count {
            let mut last = block + 1;
            for blocks in &by_stream {
                let (beside, over) = order.later(block, blocks);
                until.push(over.first().map_or(count as u32, |&other| other));
                last = last.max(beside.last().map_or(0, |&other| other as usize + 1));
            }
            end.push(last as u32);
            rows += (last - 1) / BUCKET - block / BUCKET + 1;
        }
        if rows > ROWS {
            return None;
        }
        let buckets = count.div_ceil(BUCKET);
        Some(Self {
            streams,
            stream: order.blocks().iter().map(|block| block.stream).collect(),
            bytes: (0..count).map(|block| order.bytes(block)).collect(),
            offsets: vec![0; count],
            until,
            end,
            crossing: vec![Vec::new(); buckets],
            begun: vec![Vec::new(); buckets],
            beside: Vec::new(),
            steps: 0,
        })
    }

    /// The largest first; those that take the most bytes for the longest first. Of equals the one that was allocated first.
    fn orders(&self) -> [Vec<u32>; 2] {
        let bytes = |block: u32| u128::from(self.bytes[block as usize]);
        let span = |block: u32| u128::from(self.end[block as usize] - block);
        let sorted = |key: &dyn Fn(u32) -> u128| {
            let mut order: Vec<u32> = (0..self.bytes.len() as u32).collect();
            order.sort_by_cached_key(|&block| Reverse(key(block)));
            order
        };
        [sorted(&bytes), sorted(&|block| bytes(block) * span(block))]
    }

    /// Places all blocks, and returns what they take in bytes; `None` where that asks for too many looks.
    fn pack(&mut self, order: &[u32], fit: Fit) -> Option<u64> {
        self.crossing.iter_mut().chain(&mut self.begun).for_each(Vec::clear);
        let mut taken = 0;
        for &block in order {
            let offset = self.find(block, fit);
            if self.steps > STEPS {
                return None;
            }
            self.offsets[block as usize] = offset;
            taken = taken.max(offset + self.bytes[block as usize]);
            let (first, last) = self.buckets(block);
            self.begun[first].push(block);
            self.crossing[first..=last].iter_mut().for_each(|bucket| bucket.push(block));
        }
        Some(taken)
    }

    /// The first and the last bucket of a block's span.
    fn buckets(&self, block: u32) -> (usize, usize) {
        (block as usize / BUCKET, (self.end[block as usize] as usize - 1) / BUCKET)
    }

    fn find(&mut self, block: u32, fit: Fit) -> u64 {
        let (first, last) = self.buckets(block);
        let placed =
            self.crossing[first].iter().chain(self.begun[first + 1..=last].iter().flatten());
        let mut beside = std::mem::take(&mut self.beside);
        beside.clear();
        let mut looked = 0;
        for &other in placed {
            looked += 1;
            let (earlier, later) = (block.min(other), block.max(other));
            let stream = self.stream[later as usize] as usize;
            // Neither may lie over the other.
            if later < self.until[earlier as usize * self.streams + stream] {
                let offset = self.offsets[other as usize];
                beside.push((offset, offset + self.bytes[other as usize]));
            }
        }
        self.steps += looked + beside.len() as u64;
        beside.sort_unstable();
        let bytes = self.bytes[block as usize];
        let (mut best, mut free_from): (Option<(u64, u64)>, u64) = (None, 0);
        for &(begin, end) in &beside {
            if begin >= free_from + bytes {
                let gap = begin - free_from;
                if best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, free_from));
                }
                if fit == Fit::First {
                    break;
                }
            }
            free_from = free_from.max(end);
        }
        self.beside = beside;
        best.map_or(free_from, |(_, offset)| offset)
    }
}
