//! A layout from what the host asked for in a run outside captures.
//!
//! Such a run has no graph, so what streams know of each other is guessed from the blocks that are
//! recorded for more than one of them (`waits`). A guess that is wrong costs memory: a place is handed out
//! only where the capture proves it.

use std::collections::HashMap;

use super::Outline;
use crate::lifetimes::{Lifetime, Lifetimes};
use regraph_driver::StreamHandle;
use regraph_record::journal::BlockNumber;
use regraph_record::policy::Reuse;

/// One request. Blocks and streams in the order of their first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Allocate { bytes: u64, stream: usize },
    Use { block: usize, stream: usize, last: bool },
    Free { block: usize },
}

/// A block of a run, with what its stream is taken to know.
#[derive(Clone, Debug)]
struct Block {
    bytes: u64,
    stream: usize,
    known: Vec<u32>,
    needed: Vec<u32>,
    /// How many blocks had been asked for when it was freed.
    free: Option<u32>,
}

/// Requests of a run outside captures, in the order of the host's calls.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    requests: Vec<Request>,
    streams: HashMap<StreamHandle, usize>,
    blocks: usize,
    /// Those that are not freed.
    live: HashMap<BlockNumber, usize>,
}

impl Requests {
    /// How many blocks were asked for.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// A block of so many bytes for a stream.
    pub fn allocate(&mut self, block: BlockNumber, bytes: u64, stream: StreamHandle) {
        let stream = self.stream(stream);
        self.live.insert(block, self.blocks);
        self.blocks += 1;
        self.requests.push(Request::Allocate { bytes, stream });
    }

    /// A stream uses a block until it is freed. A block that was not asked for here is not known.
    pub fn record_stream(&mut self, block: BlockNumber, stream: StreamHandle) {
        self.record(block, stream, false);
    }

    /// A stream has used a block for the last time.
    pub fn record_use(&mut self, block: BlockNumber, stream: StreamHandle) {
        self.record(block, stream, true);
    }

    /// A block is freed.
    pub fn free(&mut self, block: BlockNumber) {
        let block = self.live.remove(&block);
        self.requests.extend(block.map(|block| Request::Free { block }));
    }

    fn record(&mut self, block: BlockNumber, stream: StreamHandle, last: bool) {
        let Some(&block) = self.live.get(&block) else { return };
        let stream = self.stream(stream);
        self.requests.push(Request::Use { block, stream, last });
    }

    fn stream(&mut self, stream: StreamHandle) -> usize {
        let next = self.streams.len();
        *self.streams.entry(stream).or_insert(next)
    }

    /// The blocks, with what is guessed of their streams.
    pub fn outline(&self, reuse: Reuse) -> Outline {
        let mut lifetimes = Lifetimes::new(self.streams.len());
        let mut frees = Vec::with_capacity(self.blocks);
        for (number, block) in self.guess().into_iter().enumerate() {
            let Block { bytes, stream, known, needed, free } = block;
            let number = BlockNumber(number as u64);
            let lifetime = Lifetime::new(number, (0, bytes), stream as u32, free.is_some());
            lifetimes.push(lifetime, &known, &needed);
            frees.push(free);
        }
        Outline::new(lifetimes, frees, reuse)
    }

    /// When which stream is taken to wait for which: before what request, who, for whom.
    ///
    /// A stream that uses a block has waited for the block's own before. If the block is recorded while
    /// the host is busy with the stream that uses it, and the next block is for another, then the host has
    /// just left a branch that it forked, and the branch waited when it began; else the stream waits now.
    fn waits(&self) -> Vec<(usize, usize, usize)> {
        let mut waits = Vec::new();
        let mut allocated: Vec<(usize, usize)> = Vec::new();
        // The latest blocks in a row that were for one stream: since when, whose.
        let mut run = (0, usize::MAX);
        // Waits of that stream that depend on whose the next block is.
        let mut open: Vec<(usize, usize, usize)> = Vec::new();
        for (now, request) in self.requests.iter().enumerate() {
            match *request {
                Request::Allocate { stream, .. } => {
                    allocated.push((now, stream));
                    if run.1 != stream {
                        waits.extend(open.drain(..).map(|(_, stream, on)| (run.0, stream, on)));
                        run = (now, stream);
                    }
                    waits.append(&mut open);
                }
                Request::Use { block, stream, .. } => {
                    let (since, on) = allocated[block];
                    match (on == stream, run.1 == stream && since < run.0) {
                        (true, _) => {}
                        (false, true) => open.push((now, stream, on)),
                        (false, false) => waits.push((now, stream, on)),
                    }
                }
                Request::Free { .. } => {}
            }
        }
        waits.extend(open);
        waits.sort();
        waits
    }

    /// What streams are taken to know. What one has submitted is counted by the requests that name it: who
    /// knows all up to such a request knows what was submitted between that one and the next.
    fn guess(&self) -> Vec<Block> {
        let count = self.streams.len();
        let mut blocks: Vec<Block> = Vec::with_capacity(self.blocks);
        let mut uses: Vec<Vec<(usize, Option<u32>)>> = Vec::with_capacity(self.blocks);
        let mut clocks = vec![vec![0; count]; count];
        let waits = self.waits();
        let mut waits = waits.into_iter().peekable();
        for (now, request) in self.requests.iter().enumerate() {
            while let Some((_, stream, on)) = waits.next_if(|wait| wait.0 <= now) {
                let other = clocks[on].clone();
                let both = clocks[stream].iter_mut().zip(other);
                both.for_each(|(mine, other)| *mine = other.max(*mine));
            }
            let time = now as u32 + 1;
            match *request {
                Request::Allocate { bytes, stream } => {
                    clocks[stream][stream] = time;
                    let known = clocks[stream].clone();
                    let needed = known.clone();
                    blocks.push(Block { bytes, stream, known, needed, free: None });
                    uses.push(vec![(stream, None)]);
                }
                Request::Use { block, stream, last } => {
                    clocks[stream][stream] = time;
                    uses[block].retain(|user| user.0 != stream);
                    uses[block].push((stream, last.then_some(time)));
                }
                Request::Free { block } => {
                    for &(stream, last) in &uses[block] {
                        let needed = &mut blocks[block].needed[stream];
                        *needed = (*needed).max(last.unwrap_or(clocks[stream][stream]));
                    }
                    blocks[block].free = Some(blocks.len() as u32);
                }
            }
        }
        blocks
    }
}
