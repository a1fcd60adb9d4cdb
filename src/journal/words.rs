//! How the facts are kept: as few words as each needs, since a capture writes millions and mostly
//! pays for fresh memory.

use super::{BlockNumber, Entry};
use crate::driver::{CaptureId, Dependency, NodeHandle, StreamHandle};

/// The kind of a fact: the low bits of its first word.
const KIND_BITS: u32 = 5;
const TERMINALS: u64 = 0;
const NODE: u64 = 1;
const ALLOCATE: u64 = 2;
const USE: u64 = 3;
const LAST_USE: u64 = 4;
const OUTSIDE: u64 = 5;
const FREE: u64 = 6;
const STANDING: u64 = 7;
const SETTLED: u64 = 8;
const BOUND: u64 = 9;
const SHARED: u64 = 10;
const OUTPUT_FREED: u64 = 11;
/// Beside the kind: the number is too great for the first word, and is the second.
const WIDE: u64 = 16;

/// Facts, one behind the other. Above the kind the first word of a fact holds the number of its
/// block or its memory, or where its dependencies end; the other words are its other fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    words: Vec<u64>,
    /// The slices of [`Entry::Terminals`] and [`Entry::Node`], one behind the other; each begins
    /// where the one before it ended.
    dependencies: Vec<Dependency>,
}

impl Words {
    #[inline]
    pub fn push(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Terminals { stream, terminals } => {
                self.put_list(TERMINALS, stream.bits(), terminals);
            }
            Entry::Node { node, dependencies } => self.put_list(NODE, node.bits(), dependencies),
            Entry::Allocate { block, stream, address, bytes } => {
                self.put(ALLOCATE, block.0, [0, stream.bits() as u64, address, bytes]);
            }
            Entry::Use { block, stream } => self.put(USE, block.0, [0, stream.bits() as u64]),
            Entry::LastUse { block, stream } => {
                self.put(LAST_USE, block.0, [0, stream.bits() as u64])
            }
            Entry::Outside { block } => self.put(OUTSIDE, block.0, [0]),
            Entry::Free { block } => self.put(FREE, block.0, [0]),
            Entry::Standing { block, address, bytes } => {
                self.put(STANDING, block.0, [0, address, bytes]);
            }
            Entry::Settled { block } => self.put(SETTLED, block.0, [0]),
            Entry::Bound { address, bytes, memory, offset } => {
                self.put(BOUND, memory, [0, address, bytes, offset]);
            }
            Entry::Shared { memory, bytes, graph } => {
                self.put(SHARED, memory, [0, bytes, graph.0]);
            }
            Entry::OutputFreed { memory, graph } => {
                self.put(OUTPUT_FREED, memory, [0, graph.0]);
            }
        }
    }

    #[inline]
    fn put_list(&mut self, kind: u64, handle: usize, list: &[Dependency]) {
        match *list {
            [one] => self.dependencies.push(one),
            _ => self.dependencies.extend_from_slice(list),
        }
        let end = self.dependencies.len() as u64;
        self.words.extend_from_slice(&[end << KIND_BITS | kind, handle as u64]);
    }

    /// The first of `words` is the number's.
    #[inline]
    fn put<const COUNT: usize>(&mut self, kind: u64, number: u64, mut words: [u64; COUNT]) {
        words[0] = number << KIND_BITS | kind;
        if number >> (u64::BITS - KIND_BITS) != 0 {
            self.words.push(WIDE | kind);
            words[0] = number;
        }
        self.words.extend_from_slice(&words);
    }

    pub fn iter(&self) -> Entries<'_> {
        Entries { words: self.words.iter(), dependencies: &self.dependencies, taken: 0 }
    }
}

/// The facts in order.
pub(super) struct Entries<'a> {
    words: std::slice::Iter<'a, u64>,
    /// Those of the facts that are left.
    dependencies: &'a [Dependency],
    taken: usize,
}

impl<'a> Entries<'a> {
    #[inline]
    fn word(&mut self) -> u64 {
        *self.words.next().expect("each fact was written with all its words")
    }

    #[inline]
    fn list(&mut self, end: u64) -> &'a [Dependency] {
        let (list, rest) = self.dependencies.split_at(end as usize - self.taken);
        self.dependencies = rest;
        self.taken = end as usize;
        list
    }

    #[inline]
    fn stream(&mut self) -> StreamHandle {
        StreamHandle::from_bits(self.word() as usize)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        let first = *self.words.next()?;
        let (kind, upper) = (first & (WIDE - 1), first >> KIND_BITS);
        if kind == TERMINALS {
            let stream = self.stream();
            return Some(Entry::Terminals { stream, terminals: self.list(upper) });
        }
        if kind == NODE {
            let node = NodeHandle::from_bits(self.word() as usize);
            return Some(Entry::Node { node, dependencies: self.list(upper) });
        }
        let number = if first & WIDE == 0 { upper } else { self.word() };
        let block = BlockNumber(number);
        Some(match kind {
            ALLOCATE => Entry::Allocate {
                block,
                stream: self.stream(),
                address: self.word(),
                bytes: self.word(),
            },
            USE => Entry::Use { block, stream: self.stream() },
            LAST_USE => Entry::LastUse { block, stream: self.stream() },
            OUTSIDE => Entry::Outside { block },
            FREE => Entry::Free { block },
            STANDING => Entry::Standing { block, address: self.word(), bytes: self.word() },
            BOUND => Entry::Bound {
                memory: number,
                address: self.word(),
                bytes: self.word(),
                offset: self.word(),
            },
            SHARED => {
                Entry::Shared { memory: number, bytes: self.word(), graph: CaptureId(self.word()) }
            }
            OUTPUT_FREED => Entry::OutputFreed { memory: number, graph: CaptureId(self.word()) },
            _ => Entry::Settled { block },
        })
    }
}
