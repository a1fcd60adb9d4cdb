//! Which blocks may lie over one another.

use super::GRANULE;
use crate::lifetimes::{Lifetime, Lifetimes};
use regraph_record::policy::Reuse;

/// The blocks, and who comes after whom.
#[derive(Debug)]
pub(super) struct Order<'a> {
    lifetimes: &'a Lifetimes,
    /// What each block takes, in bytes: whole granules.
    bytes: Vec<u64>,
    /// How many blocks had been allocated at each block's free.
    freed: Vec<u32>,
    across: bool,
}

impl<'a> Order<'a> {
    pub(super) fn new(lifetimes: &'a Lifetimes, frees: &[Option<u32>], reuse: Reuse) -> Self {
        assert_eq!(lifetimes.blocks().len(), frees.len(), "an entry for each block");
        let blocks = lifetimes.blocks().iter().zip(frees);
        let freed = blocks
            .map(|(block, free)| free.filter(|_| block.freed || !block.worked).unwrap_or(u32::MAX))
            .collect();
        let bytes = lifetimes.blocks().iter().map(|it| it.bytes.next_multiple_of(GRANULE));
        let (bytes, across) = (bytes.collect(), reuse == Reuse::CrossStream);
        Self { lifetimes, bytes, freed, across }
    }

    pub(super) fn len(&self) -> usize {
        self.freed.len()
    }

    /// What a block takes, in bytes: whole granules.
    #[inline]
    pub(super) fn bytes(&self, block: usize) -> u64 {
        self.bytes[block]
    }

    /// What each block takes, in bytes.
    pub(super) fn all_bytes(&self) -> &[u64] {
        &self.bytes
    }

    pub(super) fn blocks(&self) -> &[Lifetime] {
        self.lifetimes.blocks()
    }

    /// What the blocks take at these offsets, up to the highest end, in bytes.
    pub(super) fn taken(&self, offsets: &[u64]) -> u64 {
        let ends = offsets.iter().enumerate().map(|(block, offset)| offset + self.bytes(block));
        ends.max().unwrap_or(0)
    }

    /// The most bytes of blocks that the host had asked for and not freed: none of these may lie over another.
    pub(super) fn most_at_once(&self) -> u64 {
        let mut leaving = vec![0; self.len() + 1];
        let (mut held, mut most) = (0, 0);
        for block in 0..self.len() {
            held -= leaving[block];
            held += self.bytes(block);
            most = most.max(held);
            if let Some(leaving) = leaving.get_mut(self.freed[block] as usize) {
                *leaving += self.bytes(block);
            }
        }
        most
    }

    /// How many blocks had been allocated when one was freed; as many as there can be where no other gets its memory.
    pub(super) fn freed(&self, block: usize) -> u32 {
        self.freed[block]
    }

    /// Whether no other block gets a block's memory.
    pub(super) fn is_kept(&self, block: usize) -> bool {
        self.freed[block] == u32::MAX
    }

    /// The blocks of each stream, if each of these knows all that those before it on its stream did: none was set back.
    pub(super) fn by_stream(&self) -> Option<Vec<Vec<u32>>> {
        let mut streams: Vec<Vec<u32>> = Vec::new();
        for (block, lifetime) in self.blocks().iter().enumerate() {
            let stream = lifetime.stream as usize;
            if streams.len() <= stream {
                streams.resize_with(stream + 1, Vec::new);
            }
            if let Some(&before) = streams[stream].last() {
                let known = self.lifetimes.known(before as usize).iter();
                if known.zip(self.lifetimes.known(block)).any(|(before, now)| before > now) {
                    return None;
                }
            }
            streams[stream].push(block as u32);
        }
        Some(streams)
    }

    /// The blocks of one stream (of [`Order::by_stream`]) that were allocated after a block: those that may not lie over
    /// it, and those that may. Of blocks that know more and more the first ones may not, and none behind.
    pub(super) fn later<'b>(&self, block: usize, blocks: &'b [u32]) -> (&'b [u32], &'b [u32]) {
        let later = &blocks[blocks.partition_point(|&other| other as usize <= block)..];
        later.split_at(later.partition_point(|&later| !self.precedes(block, later as usize)))
    }

    /// Whether `later`, which was allocated after `earlier`, may have its memory.
    #[inline]
    pub(super) fn precedes(&self, earlier: usize, later: usize) -> bool {
        if self.freed[earlier] as usize > later {
            return false;
        }
        let blocks = self.lifetimes.blocks();
        if !self.across && blocks[earlier].stream != blocks[later].stream {
            return false;
        }
        if blocks[earlier].worked {
            return self.lifetimes.precedes(earlier, later);
        }
        // It leaves its place as it found it: a block that knows what it knew may have what lay there.
        let known = self.lifetimes.known(earlier).iter().zip(self.lifetimes.known(later));
        known.into_iter().all(|(earlier, later)| earlier <= later)
    }
}

/// The pairs of blocks that may not lie over one another.
#[derive(Debug)]
pub(super) struct Conflicts {
    /// Words of a row.
    words: usize,
    bits: Vec<u64>,
}

impl Conflicts {
    pub(super) fn new(order: &Order<'_>) -> Self {
        let words = order.len().div_ceil(64);
        let mut conflicts = Self { words, bits: vec![0; words * order.len()] };
        match order.by_stream() {
            Some(streams) => streams.iter().for_each(|blocks| conflicts.add_all(order, blocks)),
            None => {
                for later in 0..order.len() {
                    let earlier = (0..later).filter(|&earlier| !order.precedes(earlier, later));
                    earlier.for_each(|earlier| conflicts.add(earlier, later));
                }
            }
        }
        conflicts
    }

    /// Adds what conflicts with later blocks of one stream.
    fn add_all(&mut self, order: &Order<'_>, blocks: &[u32]) {
        for earlier in 0..order.len() {
            let (beside, _) = order.later(earlier, blocks);
            beside.iter().for_each(|&later| self.add(earlier, later as usize));
        }
    }

    fn add(&mut self, one: usize, other: usize) {
        self.bits[one * self.words + other / 64] |= 1 << (other % 64);
        self.bits[other * self.words + one / 64] |= 1 << (one % 64);
    }

    /// The most bytes found of blocks none of which may lie over another: no layout takes less. `order`
    /// says which blocks are tried first.
    pub(super) fn least(&self, blocks: &Order<'_>, order: &[u32]) -> u64 {
        /// So many blocks are begun with; fewer where there are many.
        const SEEDS: usize = 200;
        let seeds = (100_000 / blocks.len().max(1)).min(SEEDS);
        let mut most = 0;
        for &seed in order.iter().take(seeds) {
            let mut rest = self.of(seed as usize).0.to_vec();
            let mut held = blocks.bytes(seed as usize);
            for &other in order {
                if Row(&rest).has(other) {
                    held += blocks.bytes(other as usize);
                    let row = self.of(other as usize).0;
                    rest.iter_mut().zip(row).for_each(|(rest, row)| *rest &= row);
                }
            }
            most = most.max(held);
        }
        most
    }

    /// Says for a block which earlier ones it may lie over, as [`Order::precedes`] does, at a look at a bit each.
    pub(super) fn may_lie_over(&self, block: usize) -> impl Fn(u32) -> bool + '_ {
        let row = self.of(block);
        move |earlier| !row.has(earlier)
    }

    /// Those of one block.
    #[inline]
    pub(super) fn of(&self, block: usize) -> Row<'_> {
        Row(&self.bits[block * self.words..][..self.words])
    }
}

/// The blocks that one may not lie over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a>(&'a [u64]);

impl<'a> Row<'a> {
    #[inline]
    pub(super) fn has(self, other: u32) -> bool {
        self.0[other as usize / 64] >> (other % 64) & 1 == 1
    }

    /// All of them.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> + use<'a> {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            let mut left = bits;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(word * 64 + bit as usize)
            })
        })
    }
}
