//! Addresses such that pages of memory can go their own ways.
//!
//! In one arena a page of memory serves all blocks that have a part of it, to the end of the capture. Memory
//! that comes by pages at the capture's end need not: a page can go to other addresses whenever nothing uses
//! it. For that, blocks must not share addresses. But blocks that have parts of one page at one time must lie
//! on one page of addresses, and so beside each other as in the layout: they and all blocks that are so joined
//! to them are a *body*, which keeps the layout's offsets.
//!
//! Memory that serves the layout serves bodies with addresses of their own, so these need no more than the
//! layout takes in whole pages. But each block that has addresses after another needs no mapping of its own.
//! So as many bodies as can without more memory share one range of addresses, where they lie as in the
//! layout; of the others as many as can another one, and so on. To which that applies is found by halving.

use std::collections::BTreeMap;

use super::order::{Conflicts, Order};
use crate::lifetimes::{Lifetime, Lifetimes};
use crate::plan::{self, Options, Plan};

/// So often the least memory is looked for, at most.
const TRIES: usize = 400;
/// So many blocks these searches look at together.
const LOOKS: usize = 200_000;

/// Where blocks lie if their memory comes at the capture's end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    offsets: Vec<u64>,
    span: u64,
    bytes: u64,
    mappings: usize,
}

impl Pages {
    /// Where each block begins, in the order of allocation, in bytes from the first page.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// How many bytes of addresses they take, in whole pages.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// The least memory for them, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many mappings a plan of so much memory takes.
    pub fn mappings(&self) -> usize {
        self.mappings
    }

    /// Addresses for the blocks of a layout, with pages of `unit` bytes.
    ///
    /// Costs a look at each two blocks with parts of one page, and at most [`TRIES`] searches for the least
    /// memory, or as many as look at [`LOOKS`] blocks.
    pub(super) fn new(
        order: &Order<'_>,
        conflicts: &Conflicts,
        lifetimes: &Lifetimes,
        offsets: &[u64],
        unit: u64,
    ) -> Self {
        let ends = |block: usize| (offsets[block], offsets[block] + order.bytes(block));
        let mut bodies = Bodies::new(order.len());
        for blocks in partly(order.len(), ends, unit).values() {
            for (nth, &block) in blocks.iter().enumerate() {
                let row = conflicts.of(block);
                for &other in blocks[..nth].iter().filter(|other| row.has(**other as u32)) {
                    bodies.join(block, other);
                }
            }
        }
        let mut numbers = BTreeMap::new();
        let body: Vec<usize> = (0..order.len())
            .map(|block| {
                let next = numbers.len();
                *numbers.entry(bodies.of(block)).or_insert(next)
            })
            .collect();
        let mut ranges = Ranges {
            lifetimes,
            offsets,
            unit,
            tries: TRIES.min(LOOKS / order.len().max(1)),
            range: (0..numbers.len()).collect(),
            body,
        };
        let bytes = ranges.least();
        let end = (0..order.len()).map(|block| ends(block).1).max().unwrap_or(0);
        if bytes >= end {
            // As much as the layout takes.
            ranges.range.fill(0);
        } else {
            ranges.share(bytes);
        }
        let (offsets, span) = ranges.addresses();
        let whole = Options::default().pool_graphs(Some(1));
        let plan = Plan::new(&placed(lifetimes, &offsets), unit, &[], &whole);
        Self { offsets, span, bytes, mappings: plan.mappings.len() }
    }
}

/// Which bodies share a range of addresses.
struct Ranges<'a> {
    lifetimes: &'a Lifetimes,
    offsets: &'a [u64],
    unit: u64,
    /// How often the least memory may still be looked for.
    tries: usize,
    /// By body.
    range: Vec<usize>,
    /// By block.
    body: Vec<usize>,
}

impl Ranges<'_> {
    /// Where all blocks begin, and where the last range ends: as close together as the ranges' blocks allow.
    fn addresses(&self) -> (Vec<u64>, u64) {
        let blocks = self.lifetimes.blocks().iter().zip(self.offsets).zip(&self.body);
        let mut extents: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for ((block, &offset), &body) in blocks {
            let extent = extents.entry(self.range[body]).or_insert((u64::MAX, 0));
            let (first, end) = (offset / self.unit, (offset + block.bytes).div_ceil(self.unit));
            *extent = (extent.0.min(first), extent.1.max(end));
        }
        let mut at = 0;
        for (first, end) in extents.values_mut() {
            let begin = at;
            at += *end - *first;
            (*first, *end) = (begin * self.unit, *first * self.unit);
        }
        let place = |(offset, body): (&u64, &usize)| {
            let (begin, first) = extents[&self.range[*body]];
            begin + (offset - first)
        };
        (self.offsets.iter().zip(&self.body).map(place).collect(), at * self.unit)
    }

    /// The least memory for the blocks at these addresses, in bytes.
    fn least(&self) -> u64 {
        let (offsets, _) = self.addresses();
        plan::least(&placed(self.lifetimes, &offsets), self.unit)
    }

    /// Has bodies share ranges where so much memory still does.
    fn share(&mut self, least: u64) {
        let mut rest: Vec<usize> = (0..self.range.len()).collect();
        while let Some(&range) = rest.first() {
            let mut parts = vec![std::mem::take(&mut rest)];
            while let Some(part) = parts.pop() {
                if part == [range] {
                    continue;
                }
                if self.tries == 0 {
                    return;
                }
                self.tries -= 1;
                let before = self.range.clone();
                part.iter().for_each(|&body| self.range[body] = range);
                if self.least() > least {
                    self.range = before;
                    match part.len() {
                        1 => rest.extend(part),
                        _ => {
                            let (first, second) = part.split_at(part.len() / 2);
                            parts.extend([second.to_vec(), first.to_vec()]);
                        }
                    }
                }
            }
        }
    }
}

/// The blocks by the pages that they have a part of and not all.
fn partly(
    blocks: usize,
    ends: impl Fn(usize) -> (u64, u64),
    unit: u64,
) -> BTreeMap<u64, Vec<usize>> {
    let mut partly: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for block in 0..blocks {
        let (begin, end) = ends(block);
        let (first, last) = (begin / unit, end / unit);
        if first == last || begin % unit > 0 {
            partly.entry(first).or_default().push(block);
        }
        if last > first && end % unit > 0 {
            partly.entry(last).or_default().push(block);
        }
    }
    partly
}

/// The blocks where these offsets put them.
fn placed(lifetimes: &Lifetimes, offsets: &[u64]) -> Lifetimes {
    let mut placed = Lifetimes::new(lifetimes.chains());
    for (number, (block, &address)) in lifetimes.blocks().iter().zip(offsets).enumerate() {
        let block = Lifetime { address, ..*block };
        placed.push(block, lifetimes.known(number), lifetimes.needed(number));
    }
    placed
}

/// Which blocks belong together: each knows another of its body, or itself where it is the first.
struct Bodies(Vec<usize>);

impl Bodies {
    fn new(blocks: usize) -> Self {
        Self((0..blocks).collect())
    }

    /// The first block of a block's body.
    fn of(&self, mut block: usize) -> usize {
        while self.0[block] != block {
            block = self.0[block];
        }
        block
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        let first = one.min(other);
        self.0[one.max(other)] = first;
    }
}
