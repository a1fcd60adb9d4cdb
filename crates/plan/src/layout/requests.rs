//! A layout from what the host asked for in a run outside captures.
//!
//! Such a run has no graph, so what streams know of each other is guessed from the blocks that are
//! recorded for more than one of them (`waits`). A guess that is wrong costs memory: a place is handed out
//! only where the capture proves it.

use std::ops::Range;

use super::Outline;
use crate::lifetimes::{Lifetime, Lifetimes};
use regraph_driver::StreamHandle;
use regraph_record::index::Map;
use regraph_record::journal::BlockNumber;
use regraph_record::policy::Reuse;

/// What a host asked for outside captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// A block of so many bytes for a stream.
    Allocate {
        /// The block.
        block: BlockNumber,
        /// What it takes.
        bytes: u64,
        /// Its stream.
        stream: StreamHandle,
    },
    /// A stream uses a block until it is freed, or has used it for the last time.
    Use {
        /// The block.
        block: BlockNumber,
        /// The stream.
        stream: StreamHandle,
        /// Whether it was for the last time.
        last: bool,
    },
    /// A block is freed.
    Free {
        /// The block.
        block: BlockNumber,
    },
}

/// One request. Blocks and streams in the order of their first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
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

/// What is known of a block, whose number is its place among all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Which request it was asked for by.
    pub(super) at: usize,
    pub(super) bytes: u64,
    pub(super) stream: usize,
    /// How many blocks had been asked for when it was freed; as many as there can be where it was not.
    pub(super) freed: usize,
}

/// Requests outside captures, in the order of the host's calls.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    requests: Vec<Request>,
    /// The blocks, in the order of allocation.
    asked: Vec<Asked>,
    streams: usize,
}

impl Requests {
    /// How many blocks were asked for.
    pub fn blocks(&self) -> usize {
        self.asked.len()
    }

    /// What they take, in bytes, in the order of allocation.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.asked.iter().map(|block| block.bytes)
    }

    /// Whether blocks show that each stream but the first waits for others: in one of its first two turns, blocks in a
    /// row for one stream, it uses a block of another stream, as a branch does that is handed its input; or it has one
    /// turn alone. (What a first layer reads may come from before the run.) Of other runs too little is known of what
    /// streams wait for. Costs a look at each request.
    pub fn shows_waits(&self) -> bool {
        // The turns of each stream so far, while nothing is shown of it.
        let mut turns = vec![Some(0); self.streams];
        let mut latest = None;
        for request in &self.requests {
            match *request {
                Request::Allocate { stream, .. } => {
                    let before = latest.replace(stream);
                    if before != Some(stream) {
                        // Work begins on the first stream, which waits for none then.
                        turns[stream] = before.and(turns[stream]).map(|turns| turns + 1);
                    }
                    if turns[stream] > Some(2) {
                        return false;
                    }
                }
                Request::Use { block, stream, .. } => {
                    let within = latest == Some(stream) || turns[stream] == Some(0);
                    turns[stream] =
                        turns[stream].filter(|_| !within || self.asked[block].stream == stream);
                }
                Request::Free { .. } => {}
            }
        }
        !turns.contains(&Some(2))
    }

    pub(super) fn all(&self) -> &[Request] {
        &self.requests
    }

    /// The blocks, in the order of allocation.
    pub(super) fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// How many blocks were asked for before a request.
    pub(super) fn blocks_before(&self, request: usize) -> usize {
        self.asked.partition_point(|block| block.at < request)
    }

    fn push(&mut self, request: Request) {
        match request {
            Request::Allocate { bytes, stream } => {
                self.streams = self.streams.max(stream + 1);
                let at = self.requests.len();
                self.asked.push(Asked { at, bytes, stream, freed: usize::MAX });
            }
            Request::Use { stream, .. } => self.streams = self.streams.max(stream + 1),
            Request::Free { block } => self.asked[block].freed = self.asked.len(),
        }
        self.requests.push(request);
    }

    /// The requests of a part, but for those about blocks from before it.
    pub(super) fn part(&self, part: Range<usize>) -> Self {
        self.picked(part, |_| true)
    }

    /// The requests of a part about blocks of it that are wanted.
    pub(super) fn picked(&self, part: Range<usize>, wanted: impl Fn(usize) -> bool) -> Self {
        let mut next = self.blocks_before(part.start);
        let mut run = Self::default();
        // By the names that they have here.
        let mut blocks: Map<usize, usize> = Map::default();
        let mut streams: Vec<Option<usize>> = vec![None; self.streams];
        for request in &self.requests[part] {
            let block = match *request {
                Request::Allocate { .. } => {
                    next += 1;
                    if !wanted(next - 1) {
                        continue;
                    }
                    blocks.insert(next - 1, run.blocks());
                    run.blocks()
                }
                Request::Use { block, .. } | Request::Free { block } => match blocks.get(&block) {
                    Some(&block) => block,
                    None => continue,
                },
            };
            let new = run.streams;
            let mut number = |stream: usize| *streams[stream].get_or_insert(new);
            run.push(match *request {
                Request::Allocate { bytes, stream } => {
                    Request::Allocate { bytes, stream: number(stream) }
                }
                Request::Use { stream, last, .. } => {
                    Request::Use { block, stream: number(stream), last }
                }
                Request::Free { .. } => Request::Free { block },
            });
        }
        run
    }

    /// The blocks, with what is guessed of their streams.
    pub fn outline(&self, reuse: Reuse) -> Outline {
        let mut lifetimes = Lifetimes::new(self.streams);
        let mut frees = Vec::with_capacity(self.blocks());
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
        // The latest blocks in a row that were for one stream: since when, whose.
        let mut run = (0, usize::MAX);
        // Waits of that stream that depend on whose the next block is.
        let mut open: Vec<(usize, usize, usize)> = Vec::new();
        // Behind a run comes the next one: a branch that ends the run was forked too.
        for (now, request) in self.requests.iter().chain(self.requests.first()).enumerate() {
            match *request {
                Request::Allocate { stream, .. } => {
                    if run.1 != stream {
                        waits.extend(open.drain(..).map(|(_, stream, on)| (run.0, stream, on)));
                        run = (now, stream);
                    }
                    waits.append(&mut open);
                }
                Request::Use { block, stream, .. } => {
                    let Asked { at: since, stream: on, .. } = self.asked[block];
                    match (on == stream, run.1 == stream && since < run.0) {
                        (true, _) => {}
                        (false, true) => open.push((now, stream, on)),
                        (false, false) => waits.push((now, stream, on)),
                    }
                }
                Request::Free { .. } => {}
            }
        }
        waits.sort();
        waits
    }

    /// What streams are taken to know. What one has submitted is counted by the requests that name it: who
    /// knows all up to such a request knows what was submitted between that one and the next.
    fn guess(&self) -> Vec<Block> {
        let count = self.streams;
        let mut blocks: Vec<Block> = Vec::with_capacity(self.blocks());
        let mut uses: Vec<Vec<(usize, u32, bool)>> = Vec::with_capacity(self.blocks());
        let mut clocks = vec![vec![0; count]; count];
        // What each stream has waited for: it knows that from its next block on, and who waits for it meanwhile does not.
        let mut waited = clocks.clone();
        // Which streams have had no block yet.
        let mut silent = vec![true; count];
        let note = |known: &mut [u32], other: &[u32]| {
            known.iter_mut().zip(other).for_each(|(mine, &other)| *mine = other.max(*mine));
        };
        let mut waits = self.waits().into_iter().peekable();
        for (now, request) in self.requests.iter().enumerate() {
            while let Some((_, stream, on)) = waits.next_if(|wait| wait.0 <= now) {
                note(&mut waited[stream], &clocks[on]);
            }
            let (time, asked) = (now as u32 + 1, blocks.len() as u32);
            match *request {
                Request::Allocate { bytes, stream } => {
                    silent[stream] = false;
                    note(&mut clocks[stream], &waited[stream]);
                    clocks[stream][stream] = time;
                    let known = clocks[stream].clone();
                    let needed = known.clone();
                    blocks.push(Block { bytes, stream, known, needed, free: None });
                    uses.push(vec![(stream, time, false)]);
                }
                Request::Use { block, stream, last } => {
                    clocks[stream][stream] = time;
                    uses[block].retain(|user| user.0 != stream);
                    uses[block].push((stream, time, last));
                }
                Request::Free { block } => {
                    let (uses, block) = (&uses[block], &mut blocks[block]);
                    for &(stream, since, last) in uses {
                        let until = if last { since } else { clocks[stream][stream] };
                        block.needed[stream] = block.needed[stream].max(until);
                        // No block shows that such a stream is waited for: the first one has waited where it keeps its own.
                        if block.stream == 0 && silent[stream] && since < clocks[0][0] {
                            note(&mut waited[0], &clocks[stream]);
                        }
                    }
                    block.free = Some(asked);
                }
            }
        }
        blocks
    }
}

/// Requests as they are heard, with the names that the host has for blocks and streams.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    requests: Requests,
    streams: Map<StreamHandle, usize>,
    /// Blocks that are not freed.
    live: Map<BlockNumber, usize>,
    /// How many of the blocks were asked for before the latest capture for which a run was searched.
    captured: usize,
}

impl Heard {
    /// All requests.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The latest run that begins with requests for so many bytes each, one or more, as far as there was one; with the
    /// first of them on this stream, if that has ever begun so. Costs a constant for each request, and some milliseconds
    /// at most where runs differ.
    pub fn last_run(&self, first: &[u64], stream: StreamHandle) -> Option<Requests> {
        self.requests.last_run((first, self.streams.get(&stream).copied()), self.captured)
    }

    /// Notes that a capture began for which a run is searched: of what comes from now on, a run of the next one may have
    /// been the only one.
    pub fn note_capture(&mut self) {
        self.captured = self.requests.blocks();
    }

    /// Adds a request. One about a block that was not asked for here is left out.
    pub fn add(&mut self, asked: Demand) {
        match asked {
            Demand::Allocate { block, bytes, stream } => {
                let stream = self.stream(stream);
                self.live.insert(block, self.requests.blocks());
                self.requests.push(Request::Allocate { bytes, stream });
            }
            Demand::Use { block, stream, last } => {
                let Some(&block) = self.live.get(&block) else { return };
                let stream = self.stream(stream);
                self.requests.push(Request::Use { block, stream, last });
            }
            Demand::Free { block } => {
                if let Some(block) = self.live.remove(&block) {
                    self.requests.push(Request::Free { block });
                }
            }
        }
    }

    fn stream(&mut self, stream: StreamHandle) -> usize {
        let next = self.streams.len();
        *self.streams.entry(stream).or_insert(next)
    }

    /// Forgets all requests but so many, the latest, where there are more than twice as many.
    pub fn keep(&mut self, most: usize) {
        let all = self.requests.requests.len();
        if all / 2 <= most {
            return;
        }
        let from = all - most;
        let gone = self.requests.blocks_before(from);
        self.captured = self.captured.saturating_sub(gone);
        self.live.retain(|_, block| {
            let kept = *block >= gone;
            *block = block.wrapping_sub(gone);
            kept
        });
        // Streams keep their numbers.
        let mut kept = Requests { streams: self.requests.streams, ..Requests::default() };
        for request in self.requests.requests.drain(from..) {
            match request {
                Request::Allocate { .. } => kept.push(request),
                Request::Use { block, .. } | Request::Free { block } if block < gone => {}
                Request::Use { block, stream, last } => {
                    kept.push(Request::Use { block: block - gone, stream, last });
                }
                Request::Free { block } => kept.push(Request::Free { block: block - gone }),
            }
        }
        self.requests = kept;
    }
}
