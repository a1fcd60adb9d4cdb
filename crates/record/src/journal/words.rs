//! How the facts are kept: as few words as each needs, since a capture writes millions and mostly
//! pays for fresh memory.

use std::iter::Chain;
use std::slice::Iter;

use super::nodes::{Form, Nodes};
use super::{BlockNumber, Entry};
use regraph_driver::{CaptureId, Dependency, EdgeData, NodeHandle, StreamHandle};

/// The kind of a fact: the low bits of its first word.
const KIND_BITS: u32 = 5;
const TERMINALS: u32 = 0;
const NODE: u32 = 1;
const ALLOCATE: u32 = 2;
const USE: u32 = 3;
const LAST_USE: u32 = 4;
const OUTSIDE: u32 = 5;
const FREE: u32 = 6;
const STANDING: u32 = 7;
const SETTLED: u32 = 8;
const BOUND: u32 = 9;
const SHARED: u32 = 10;
const OUTPUT_FREED: u32 = 11;
const INPUT: u32 = 12;
const POOL: u32 = 13;
const GRAPHS: u32 = 14;
const LOOKED: u32 = 15;
/// Beside the kind: numbers and handles are written out.
const WIDE: u32 = 16;

/// Addresses and sizes are mostly multiples of so many bytes (a power of two).
const GRAIN_BITS: u32 = 9;

/// Words of the first chunk, and of the largest but for facts that need more.
const LEAST: usize = 64;
const MOST: usize = 1 << 14;

/// Facts, one behind the other, in chunks that are never copied. Above the kind the first word of a fact
/// holds how far the number of its block or its memory lies above the first one's, or how many nodes it
/// lists; the other words are its other fields, handles of nodes as distances from the first one's. What
/// does not fit is written out, two words each.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    /// Each with the room that it was made with; the open one takes the next words.
    chunks: Vec<Vec<u32>>,
    open: Vec<u32>,
    len: usize,
    streams: Streams,
    /// The first node, number and address, from which distances count.
    node: Option<usize>,
    number: Option<u64>,
    address: Option<u64>,
}

impl Words {
    /// How many bytes the facts take.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<u32>()
    }

    // Each caller writes one kind of fact: inlined, nothing is left of the match.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Terminals { stream, terminals } => {
                let stream = self.streams.number(stream);
                if !self.put_short(TERMINALS, stream, terminals) {
                    self.put_list(TERMINALS, None, stream, terminals);
                }
            }
            Entry::Node { node, dependencies } => {
                let near = self.near(node);
                let written = near.is_some_and(|near| self.put_short(NODE, near, dependencies));
                if !written {
                    self.put_list(NODE, Some(node), near.unwrap_or(0), dependencies);
                }
            }
            Entry::Allocate { block, stream, address, bytes } => {
                let stream = self.streams.number(stream);
                let from_first = address.wrapping_sub(*self.address.get_or_insert(address));
                match (grains(from_first), grains(bytes), self.above(block.0)) {
                    (Some(address), Some(bytes), Some(block)) => {
                        self.put([block << KIND_BITS | ALLOCATE, stream, address, bytes]);
                    }
                    _ => self.put_wide(ALLOCATE, stream, [block.0, address, bytes]),
                }
            }
            Entry::Use { block, stream } => self.put_use(USE, block, stream),
            Entry::LastUse { block, stream } => self.put_use(LAST_USE, block, stream),
            Entry::Input { block, stream } => self.put_use(INPUT, block, stream),
            Entry::Outside { block } => self.put_number(OUTSIDE, block),
            Entry::Free { block } => self.put_number(FREE, block),
            Entry::Settled { block } => self.put_number(SETTLED, block),
            Entry::Standing { block, address, bytes } => {
                self.put_wide(STANDING, 0, [block.0, address, bytes]);
            }
            Entry::Pool { next, held, listed } => {
                let short = grains(held).filter(|_| held == listed);
                match short.map(|held| (self.above(next.0), held)) {
                    Some((Some(next), held)) => self.put([next << KIND_BITS | POOL, held]),
                    _ => self.put_wide(POOL, 0, [next.0, held, listed]),
                }
            }
            Entry::Bound { address, bytes, memory, offset } => {
                self.put_wide(BOUND, 0, [memory, address, bytes, offset]);
            }
            Entry::Shared { memory, bytes, graph } => {
                self.put_wide(SHARED, 0, [memory, bytes, graph.0]);
            }
            Entry::OutputFreed { memory, graph } => {
                self.put_wide(OUTPUT_FREED, 0, [memory, graph.0]);
            }
            Entry::Graphs => self.put([GRAPHS]),
            Entry::Looked => self.put([LOOKED]),
        }
    }

    /// The chunk for the next words.
    #[inline]
    fn room(&mut self, words: usize) -> &mut Vec<u32> {
        self.len += words;
        if self.open.capacity() - self.open.len() < words {
            self.add_chunk(words);
        }
        &mut self.open
    }

    #[cold]
    fn add_chunk(&mut self, words: usize) {
        let usual = (self.len - words).clamp(LEAST, MOST);
        let next = Vec::with_capacity(words.max(usual));
        let full = std::mem::replace(&mut self.open, next);
        // Before the first there is none: a short record takes one piece of memory, not two.
        if full.capacity() > 0 {
            self.chunks.push(full);
        }
    }

    #[inline(always)]
    fn put<const COUNT: usize>(&mut self, words: [u32; COUNT]) {
        // Word by word: to call for a copy of so few costs more.
        let chunk = self.room(COUNT);
        for word in words {
            chunk.push(word);
        }
    }

    fn put_wide<const COUNT: usize>(&mut self, kind: u32, stream: u32, fields: [u64; COUNT]) {
        let chunk = self.room(2 + 2 * COUNT);
        chunk.extend([WIDE | kind, stream]);
        chunk.extend(fields.into_iter().flat_map(halves));
    }

    #[inline]
    fn put_number(&mut self, kind: u32, block: BlockNumber) {
        match self.above(block.0) {
            Some(block) => self.put([block << KIND_BITS | kind]),
            None => self.put_wide(kind, 0, [block.0]),
        }
    }

    #[inline]
    fn put_use(&mut self, kind: u32, block: BlockNumber, stream: StreamHandle) {
        let stream = self.streams.number(stream);
        match self.above(block.0) {
            Some(block) => self.put([block << KIND_BITS | kind, stream]),
            None => self.put_wide(kind, stream, [block.0]),
        }
    }

    /// Writes a list of one node or two, as nearly all are, if nothing of it is to be written out.
    #[inline]
    fn put_short(&mut self, kind: u32, first: u32, list: Nodes<'_>) -> bool {
        const FULL: EdgeData = EdgeData::FULL;
        let head = |count: u32| count << KIND_BITS | kind;
        match list.0 {
            Form::Plain(&[Dependency { node, edge: FULL }]) => match self.near(node) {
                Some(node) => self.put([head(1), first, node]),
                None => return false,
            },
            Form::Plain(
                &[Dependency { node, edge: FULL }, Dependency { node: other, edge: FULL }],
            ) => match (self.near(node), self.near(other)) {
                (Some(node), Some(other)) => self.put([head(2), first, node, other]),
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    fn put_list(&mut self, kind: u32, node: Option<NodeHandle>, first: u32, list: Nodes<'_>) {
        let count = list.len();
        let head = (count as u32) << KIND_BITS | kind;
        let node_bits = node.map_or(0, NodeHandle::bits) as u64;
        // Also where there are no dependencies: a root may lie far from the first node.
        if node.is_some_and(|node| self.near(node).is_none()) {
            return self.put_wide_list(head, node_bits, first, list);
        }
        self.node = self.node.or_else(|| list.get(0).map(|it| it.node.bits()));
        let base = self.node.unwrap_or(0);
        let chunk = self.room(2 + count);
        let start = chunk.len();
        chunk.extend_from_slice(&[head, first]);
        for Dependency { node, edge } in list.iter() {
            let distance = node.bits().wrapping_sub(base);
            if distance as i32 as usize != distance || edge != EdgeData::FULL {
                chunk.truncate(start);
                self.len -= 2 + count;
                return self.put_wide_list(head, node_bits, first, list);
            }
            chunk.push(distance as u32);
        }
    }

    #[cold]
    fn put_wide_list(&mut self, head: u32, node: u64, first: u32, list: Nodes<'_>) {
        let chunk = self.room(4 + 3 * list.len());
        chunk.extend([head | WIDE, first]);
        chunk.extend(halves(node));
        for Dependency { node, edge } in list.iter() {
            chunk.extend(halves(node.bits() as u64));
            chunk.push(u32::from_le_bytes([edge.from_port, edge.to_port, edge.kind, 0]));
        }
    }

    /// The distance of a node from the first one.
    #[inline]
    fn near(&mut self, node: NodeHandle) -> Option<u32> {
        let base = *self.node.get_or_insert(node.bits());
        let distance = node.bits().wrapping_sub(base) as isize;
        i32::try_from(distance).ok().map(|distance| distance as u32)
    }

    /// How far a number lies above the first one.
    #[inline]
    fn above(&mut self, number: u64) -> Option<u32> {
        let above = number.wrapping_sub(*self.number.get_or_insert(number));
        (above >> (u32::BITS - KIND_BITS) == 0).then_some(above as u32)
    }

    pub fn iter(&self) -> Entries<'_> {
        let chunks = self.chunks.iter().chain(std::slice::from_ref(&self.open));
        let [number, address] = [self.number, self.address].map(Option::unwrap_or_default);
        let node = self.node.unwrap_or_default();
        Entries { streams: &self.streams.handles, node, number, address, chunks, words: &[] }
    }
}

/// A distance or a size in grains, with its sign.
#[inline]
fn grains(bytes: u64) -> Option<u32> {
    let grains = i32::try_from(bytes as i64 >> GRAIN_BITS).ok()?;
    (from_grains(grains as u32) == bytes).then_some(grains as u32)
}

#[inline]
fn from_grains(grains: u32) -> u64 {
    (i64::from(grains as i32) << GRAIN_BITS) as u64
}

fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// The streams by number.
#[derive(Clone, Debug, Default)]
struct Streams {
    handles: Vec<StreamHandle>,
    /// Numbers by a few bits of the handle; a guess.
    likely: [u32; 32],
}

impl Streams {
    #[inline]
    fn number(&mut self, stream: StreamHandle) -> u32 {
        let bits = stream.bits();
        let likely = &mut self.likely[(bits ^ bits >> 5 ^ bits >> 10) % 32];
        if self.handles.get(*likely as usize) != Some(&stream) {
            let known = self.handles.iter().position(|&known| known == stream);
            *likely = known.unwrap_or(self.handles.len()) as u32;
            if known.is_none() {
                self.handles.push(stream);
            }
        }
        *likely
    }
}

/// The facts in order.
pub(super) struct Entries<'a> {
    streams: &'a [StreamHandle],
    /// From what distances count.
    node: usize,
    number: u64,
    address: u64,
    chunks: Chain<Iter<'a, Vec<u32>>, Iter<'a, Vec<u32>>>,
    words: &'a [u32],
}

impl<'a> Entries<'a> {
    /// The next words of a fact.
    #[inline]
    fn take<const COUNT: usize>(&mut self) -> [u32; COUNT] {
        let words = self.words.split_first_chunk();
        let (&words, rest) = words.expect("each fact was written with all its words");
        self.words = rest;
        words
    }

    #[inline]
    fn wide(&mut self) -> u64 {
        let [low, high] = self.take();
        u64::from(low) | u64::from(high) << 32
    }

    #[inline]
    fn words(&mut self, count: usize) -> &'a [u32] {
        let (words, rest) = self.words.split_at(count);
        self.words = rest;
        words
    }

    #[inline]
    fn stream(&mut self) -> StreamHandle {
        let [stream] = self.take();
        self.streams[stream as usize]
    }

    #[inline]
    fn near_list(&mut self, count: u32) -> Nodes<'a> {
        Nodes(Form::Near { words: self.words(count as usize), base: self.node })
    }

    #[inline(always)]
    fn narrow(&mut self, kind: u32, upper: u32) -> Entry<'a> {
        let block = BlockNumber(self.number.wrapping_add(u64::from(upper)));
        match kind {
            TERMINALS => {
                Entry::Terminals { stream: self.stream(), terminals: self.near_list(upper) }
            }
            NODE => {
                let [node] = self.take();
                let node = Nodes::near(node, self.node);
                Entry::Node { node, dependencies: self.near_list(upper) }
            }
            ALLOCATE => {
                let [stream, address, bytes] = self.take();
                Entry::Allocate {
                    block,
                    stream: self.streams[stream as usize],
                    address: self.address.wrapping_add(from_grains(address)),
                    bytes: from_grains(bytes),
                }
            }
            USE => Entry::Use { block, stream: self.stream() },
            LAST_USE => Entry::LastUse { block, stream: self.stream() },
            INPUT => Entry::Input { block, stream: self.stream() },
            OUTSIDE => Entry::Outside { block },
            FREE => Entry::Free { block },
            POOL => {
                let [held] = self.take();
                let held = from_grains(held);
                Entry::Pool { next: block, held, listed: held }
            }
            GRAPHS => Entry::Graphs,
            LOOKED => Entry::Looked,
            _ => Entry::Settled { block },
        }
    }

    #[cold]
    fn written_out(&mut self, kind: u32, upper: u32) -> Entry<'a> {
        let [stream] = self.take();
        let stream = |of: &Self| of.streams[stream as usize];
        let number = self.wide();
        let block = BlockNumber(number);
        match kind {
            TERMINALS | NODE => {
                let list = Nodes(Form::Wide(self.words(3 * upper as usize)));
                match kind {
                    TERMINALS => Entry::Terminals { stream: stream(self), terminals: list },
                    _ => Entry::Node {
                        node: NodeHandle::from_bits(number as usize),
                        dependencies: list,
                    },
                }
            }
            ALLOCATE => Entry::Allocate {
                block,
                stream: stream(self),
                address: self.wide(),
                bytes: self.wide(),
            },
            USE => Entry::Use { block, stream: stream(self) },
            LAST_USE => Entry::LastUse { block, stream: stream(self) },
            INPUT => Entry::Input { block, stream: stream(self) },
            OUTSIDE => Entry::Outside { block },
            FREE => Entry::Free { block },
            POOL => Entry::Pool { next: block, held: self.wide(), listed: self.wide() },
            STANDING => Entry::Standing { block, address: self.wide(), bytes: self.wide() },
            BOUND => Entry::Bound {
                memory: number,
                address: self.wide(),
                bytes: self.wide(),
                offset: self.wide(),
            },
            SHARED => {
                Entry::Shared { memory: number, bytes: self.wide(), graph: CaptureId(self.wide()) }
            }
            OUTPUT_FREED => Entry::OutputFreed { memory: number, graph: CaptureId(self.wide()) },
            _ => Entry::Settled { block },
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    // Inlined, nothing is left of the entry between what is written and what reads it.
    #[inline(always)]
    fn next(&mut self) -> Option<Entry<'a>> {
        while self.words.is_empty() {
            self.words = self.chunks.next()?;
        }
        let [first] = self.take();
        let (kind, upper) = (first & (WIDE - 1), first >> KIND_BITS);
        Some(match first & WIDE {
            0 => self.narrow(kind, upper),
            _ => self.written_out(kind, upper),
        })
    }
}
