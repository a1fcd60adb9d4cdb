//! From a journal to lifetimes.

use std::ops::Range;

use smallvec::SmallVec;

use super::clocks::Place;
use super::nodes::Nodes;
use super::streams::{Moment, Rows, Stream};
use super::{Lifetime, Lifetimes};
use regraph_driver::{EdgeData, StreamHandle};
use regraph_record::index::Map;
use regraph_record::journal::{BlockNumber, Entry, Journal};
use regraph_record::policy::Programmatic;

/// What a stream had when it used a block for the last time.
#[derive(Clone, Debug)]
struct End {
    at: Moment,
    markers: Rows,
    broken: bool,
}

/// A stream that uses a block.
#[derive(Clone, Debug)]
struct Use {
    stream: usize,
    /// Where its last use is recorded.
    last: Option<End>,
}

/// A block that was not freed yet.
#[derive(Debug)]
struct Live {
    /// Which one it is, in order of allocation.
    row: usize,
    at: Moment,
    /// Its stream's terminals at the allocation whose edges prove something.
    terminals: Rows,
    /// Its own stream first.
    uses: SmallVec<[Use; 2]>,
    outside: bool,
}

/// A block, and where its numbers lie: as many as there were chains then.
#[derive(Debug)]
struct Told {
    lifetime: Lifetime,
    known: Range<usize>,
    /// Empty until it is freed.
    needed: Range<usize>,
}

impl Lifetimes {
    /// The blocks that a capture allocated, from its journal and with what programmatic edges prove.
    ///
    /// A block needs its free markers, the terminals of its stream at its allocation (but those whose edge to the next
    /// node proves nothing), and, where its streams were set back or went on behind an edge that proves nothing, each
    /// node that they gained meanwhile. It was used if its stream gained a node between its allocation and the last use
    /// there, or if another of its streams gained one that is not known to be completed at the allocation.
    ///
    /// Costs a few operations for each node, edge, look and block, times the number of chains; a clock
    /// of 4 bytes a chain is held for each node meanwhile. At most 4096 chains are told apart, and no
    /// more than make 1 GiB of clocks (but 64 in any case): beyond, [`Lifetimes::is_exact`] is false.
    pub fn read(journal: &Journal, policy: Programmatic) -> Self {
        let (mut nodes, mut blocks, mut early) = (0, 0, Map::default());
        for entry in journal.iter() {
            match entry {
                Entry::Node { .. } => nodes += 1,
                Entry::Allocate { .. } => blocks += 1,
                _ => {}
            }
            if let Entry::Node { dependencies: edges, .. }
            | Entry::Terminals { terminals: edges, .. } = entry
            {
                let programmatic = edges.iter().filter(|it| it.edge == EdgeData::PROGRAMMATIC);
                early.extend(programmatic.map(|dependency| (dependency.node, ())));
            }
        }
        let mut reader = Reader::new(Nodes::new(policy, nodes, blocks, early), blocks);
        for (at, entry) in journal.iter().enumerate() {
            reader.entry(at, entry);
        }
        reader.finish()
    }
}

struct Reader<'a> {
    nodes: Nodes<'a>,
    numbers: Map<StreamHandle, usize>,
    /// The stream of the last fact that names one: the next one mostly names it too.
    recent: Option<(StreamHandle, usize)>,
    streams: Vec<Stream>,
    /// How many of them have been looked at, and each stream's rank by first look.
    sights: u32,
    sight: Vec<Option<u32>>,
    live: Map<BlockNumber, Live>,
    told: Vec<Told>,
    /// What the blocks know and need.
    bounds: Vec<u32>,
}

impl<'a> Reader<'a> {
    fn new(nodes: Nodes<'a>, blocks: usize) -> Self {
        Self {
            nodes,
            numbers: Map::default(),
            recent: None,
            streams: Vec::new(),
            sights: 0,
            sight: Vec::new(),
            live: Map::default(),
            told: Vec::with_capacity(blocks),
            bounds: Vec::new(),
        }
    }

    fn stream(&mut self, handle: StreamHandle) -> usize {
        if let Some((_, number)) = self.recent.filter(|(recent, _)| *recent == handle) {
            return number;
        }
        let next = self.streams.len();
        let number = *self.numbers.entry(handle).or_insert(next);
        if number == next {
            self.streams.push(Stream::default());
            self.sight.push(None);
        }
        self.recent = Some((handle, number));
        number
    }

    /// A stream's number by order of first sight. One that is only named as a user is not seen by that.
    fn sighted(&mut self, stream: usize) -> u32 {
        let Self { sights, sight, .. } = self;
        *sight[stream].get_or_insert_with(|| {
            *sights += 1;
            *sights - 1
        })
    }

    fn entry(&mut self, at: Moment, entry: Entry<'a>) {
        match entry {
            Entry::Node { node, dependencies } => self.nodes.say(node, dependencies),
            Entry::Terminals { stream, terminals } => {
                let stream = self.stream(stream);
                self.sighted(stream);
                self.streams[stream].look(&mut self.nodes, stream, terminals, at);
            }
            Entry::Allocate { block, stream, address, bytes } => {
                let stream = self.stream(stream);
                self.allocate(at, (block, address, bytes), stream);
            }
            Entry::Use { block, stream } => {
                let stream = self.stream(stream);
                self.set_use(block, Use { stream, last: None });
            }
            Entry::LastUse { block, stream } => {
                let stream = self.stream(stream);
                if let Some(live) = self.live.get(&block) {
                    let now = &self.streams[stream];
                    let markers = now.terminals().collect();
                    let last = End { at, markers, broken: now.broke(live.at) };
                    self.set_use(block, Use { stream, last: Some(last) });
                }
            }
            Entry::Outside { block } => {
                if let Some(live) = self.live.get_mut(&block) {
                    live.outside = true;
                }
            }
            Entry::Free { block } => {
                if let Some(live) = self.live.remove(&block) {
                    self.free(at, live);
                }
            }
            Entry::Pool { .. }
            | Entry::Standing { .. }
            | Entry::Input { .. }
            | Entry::Settled { .. }
            | Entry::Bound { .. }
            | Entry::Shared { .. }
            | Entry::OutputFreed { .. }
            | Entry::Graphs
            | Entry::Looked => {}
        }
    }

    fn set_use(&mut self, block: BlockNumber, new: Use) {
        let Some(live) = self.live.get_mut(&block) else { return };
        match live.uses.iter_mut().find(|used| used.stream == new.stream) {
            Some(used) => *used = new,
            None => live.uses.push(new),
        }
    }

    fn allocate(
        &mut self,
        at: Moment,
        (block, address, bytes): (BlockNumber, u64, u64),
        stream: usize,
    ) {
        let sight = self.sighted(stream);
        let lifetime = Lifetime::new(block, (address, bytes), sight, false);
        let known = self.bounds.len()..self.bounds.len() + self.nodes.clocks.chains();
        self.bounds.resize(known.end, 0);
        let own = &self.streams[stream];
        own.know(&self.nodes, &mut self.bounds[known.clone()]);
        let terminals = own.proving_terminals().collect();
        let mut uses = SmallVec::new();
        uses.push(Use { stream, last: None });
        let row = self.told.len();
        self.live.insert(block, Live { row, at, terminals, uses, outside: false });
        self.told.push(Told { lifetime, known, needed: 0..0 });
    }

    fn free(&mut self, at: Moment, live: Live) {
        let told = &mut self.told[live.row];
        if live.outside {
            return;
        }
        let clocks = &self.nodes.clocks;
        let unseen = |used: &Use| used.last.is_none() && !self.streams[used.stream].was_seen();
        if clocks.is_cut() || live.uses.iter().any(unseen) {
            // Some of its users may be among nodes that were left out, or that no look saw.
            told.lifetime.covered = false;
            return;
        }
        let start = self.bounds.len();
        self.bounds.resize(start + clocks.chains(), 0);
        let (known, needed) = self.bounds.split_at_mut(start);
        let known = &known[told.known.clone()];
        told.needed = start..start + clocks.chains();
        live.terminals.iter().for_each(|node| need(needed, clocks.place(*node)));
        let (mut worked, mut broken) = (false, SmallVec::<[_; 2]>::new());
        for (order, used) in live.uses.iter().enumerate() {
            let stream = &self.streams[used.stream];
            let (end, broke) = match &used.last {
                Some(End { at, markers, broken }) => {
                    markers.iter().for_each(|node| need(needed, clocks.place(*node)));
                    (*at, *broken)
                }
                None => {
                    stream.terminals().for_each(|node| need(needed, clocks.place(node)));
                    (at, stream.broke(live.at))
                }
            };
            let mut gains = stream.gains(live.at, end);
            let knows = |chain: u32| known.get(chain as usize).copied().unwrap_or(0);
            worked |= gains.any(|gain| order == 0 || gain.place.position > knows(gain.place.chain));
            if broke {
                broken.push((used.stream, end));
            }
        }
        for &(stream, end) in &broken {
            for gain in self.streams[stream].gains(live.at, end) {
                need(needed, Some(gain.place));
            }
        }
        let Lifetime { worked: used, freed, covered, .. } = &mut told.lifetime;
        *freed = true;
        *covered = broken.is_empty();
        *used = worked || !*covered;
        if !worked && !*covered {
            // It keeps its memory, but has no user that was seen: it precedes itself.
            needed.fill(0);
            needed[..known.len()].copy_from_slice(known);
        }
    }

    fn finish(mut self) -> Lifetimes {
        let chains = self.nodes.clocks.chains();
        let mut lifetimes = Lifetimes::new(chains);
        lifetimes.cut = self.nodes.clocks.is_cut();
        lifetimes.known.reserve(self.told.len() * chains);
        lifetimes.needed.reserve(self.told.len() * chains);
        let streams = &self.streams;
        for live in self.live.values() {
            let broke = |used: &Use| match &used.last {
                Some(end) => end.broken,
                None => streams[used.stream].broke(live.at),
            };
            self.told[live.row].lifetime.covered &= !live.uses.iter().any(broke);
        }
        for (Told { lifetime, known, needed }, rows) in self.told.into_iter().zip(1..) {
            lifetimes.blocks.push(lifetime);
            lifetimes.known.extend_from_slice(&self.bounds[known]);
            lifetimes.known.resize(rows * chains, 0);
            lifetimes.needed.extend_from_slice(&self.bounds[needed]);
            lifetimes.needed.resize(rows * chains, 0);
        }
        lifetimes
    }
}

/// What is needed up to a place in its chain.
fn need(needed: &mut [u32], place: Option<Place>) {
    if let Some(Place { chain, position }) = place {
        let number = &mut needed[chain as usize];
        *number = (*number).max(position);
    }
}
