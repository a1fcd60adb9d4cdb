//! Where chunks lie: by address, and the free and the unmapped ones by stream and class.

use std::collections::{BTreeMap, BTreeSet};

use super::sizes::Class;
use regraph_trace::StreamIndex;

/// Chunks of one queue never serve another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Queue {
    pub(super) stream: StreamIndex,
    pub(super) class: Class,
}

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Live,
    /// Freed, and other streams may still use it.
    Waiting,
    Free,
    /// Address space without memory.
    Unmapped,
}

/// A range of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) bytes: u64,
    pub(super) queue: Queue,
    pub(super) segment: u32,
    pub(super) state: State,
}

/// Memory from the driver, or back to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) bytes: u64,
    pub(super) calls: u64,
}

#[derive(Debug, Default)]
pub(super) struct Layout {
    chunks: BTreeMap<u64, Chunk>,
    /// By queue, size and address: the first that is large enough is the best fit.
    free: BTreeSet<(Queue, u64, u64)>,
    unmapped: BTreeSet<(Queue, u64)>,
    segments: u32,
    next_address: u64,
}

impl Layout {
    /// Lays out a new segment behind all others; returns its address.
    pub(super) fn add_segment(&mut self, bytes: u64, queue: Queue, state: State) -> u64 {
        let address = self.next_address;
        self.next_address += bytes;
        let segment = self.segments;
        self.segments += 1;
        self.insert(address, Chunk { bytes, queue, segment, state });
        address
    }

    /// The chunk at an address, where there is one.
    pub(super) fn chunk(&self, address: u64) -> Chunk {
        self.chunks[&address]
    }

    /// The free chunks of a queue that are large enough, best fit first.
    pub(super) fn fits(&self, queue: Queue, bytes: u64) -> impl Iterator<Item = u64> + '_ {
        let range = (queue, bytes, 0)..=(queue, u64::MAX, u64::MAX);
        self.free.range(range).map(|(_, _, address)| *address)
    }

    /// All free chunks.
    pub(super) fn free(&self) -> Vec<u64> {
        self.free.iter().map(|(_, _, address)| *address).collect()
    }

    /// The unmapped chunks of a queue by address.
    pub(super) fn unmapped(&self, queue: Queue) -> impl Iterator<Item = u64> + '_ {
        self.unmapped.range((queue, 0)..=(queue, u64::MAX)).map(|(_, address)| *address)
    }

    /// The chunk before one in its segment.
    pub(super) fn before(&self, address: u64) -> Option<(u64, Chunk)> {
        let segment = self.chunk(address).segment;
        let (at, chunk) = self.chunks.range(..address).next_back()?;
        (chunk.segment == segment).then_some((*at, *chunk))
    }

    /// The chunk behind one in its segment.
    pub(super) fn behind(&self, address: u64) -> Option<(u64, Chunk)> {
        let chunk = self.chunk(address);
        let at = address + chunk.bytes;
        let next = self.chunks.get(&at)?;
        (next.segment == chunk.segment).then_some((at, *next))
    }

    pub(super) fn set_state(&mut self, address: u64, state: State) {
        let chunk = self.remove(address);
        self.insert(address, Chunk { state, ..chunk });
    }

    /// Splits a chunk so that the front has so many bytes; returns the rest's address.
    pub(super) fn split(&mut self, address: u64, bytes: u64) -> u64 {
        let chunk = self.remove(address);
        self.insert(address, Chunk { bytes, ..chunk });
        self.insert(address + bytes, Chunk { bytes: chunk.bytes - bytes, ..chunk });
        address + bytes
    }

    /// Joins a chunk with neighbours of its own state; returns where it starts then.
    pub(super) fn merge(&mut self, address: u64) -> u64 {
        let mut start = address;
        let state = self.chunk(address).state;
        if let Some((at, chunk)) = self.behind(address) {
            if chunk.state == state {
                self.join(address, at);
            }
        }
        if let Some((at, chunk)) = self.before(address) {
            if chunk.state == state {
                self.join(at, address);
                start = at;
            }
        }
        start
    }

    pub(super) fn remove(&mut self, address: u64) -> Chunk {
        let chunk = self.chunk(address);
        self.chunks.remove(&address);
        match chunk.state {
            State::Free => {
                self.free.remove(&(chunk.queue, chunk.bytes, address));
            }
            State::Unmapped => {
                self.unmapped.remove(&(chunk.queue, address));
            }
            State::Live | State::Waiting => {}
        }
        chunk
    }

    fn join(&mut self, front: u64, rest: u64) {
        let (one, other) = (self.remove(front), self.remove(rest));
        self.insert(front, Chunk { bytes: one.bytes + other.bytes, ..one });
    }

    fn insert(&mut self, address: u64, chunk: Chunk) {
        match chunk.state {
            State::Free => {
                self.free.insert((chunk.queue, chunk.bytes, address));
            }
            State::Unmapped => {
                self.unmapped.insert((chunk.queue, address));
            }
            State::Live | State::Waiting => {}
        }
        self.chunks.insert(address, chunk);
    }
}
