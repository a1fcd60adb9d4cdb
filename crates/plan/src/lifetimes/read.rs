//! From a journal to lifetimes.

use smallvec::SmallVec;

use super::nodes::Nodes;
use super::streams::{Moment, Rows, Stream};
use super::{Lifetime, Lifetimes};
use regraph_driver::{EdgeData, StreamHandle};
use regraph_record::index::{new_map, Map};
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

/// A block, with as many numbers as there were chains then.
#[derive(Debug)]
struct Told {
    lifetime: Lifetime,
    known: Vec<u32>,
    needed: Vec<u32>,
}

impl Lifetimes {
    /// The blocks that a capture allocated, from its journal and with what programmatic edges prove.
    ///
    /// A block needs its free markers, the terminals of its stream at its allocation (but those whose
    /// edge to the next node proves nothing), and, where its streams were set back or went on behind an
    /// edge that proves nothing, each node that they gained meanwhile. It was used if its stream gained a
    /// node between its allocation and the last use there, or if another of its streams gained one that
    /// is not known to be completed at the allocation.
    ///
    /// Costs a few operations for each node, edge, look and block, times the number of chains; a clock
    /// of 4 bytes a chain is held for each node meanwhile. At most 4096 chains are told apart, and no
    /// more than make 1 GiB of clocks (but 64 in any case): beyond, [`Lifetimes::is_exact`] is false.
    pub fn read(journal: &Journal, policy: Programmatic) -> Self {
        let (mut nodes, mut blocks, mut early) = (0, 0, new_map());
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
    streams: Vec<Stream>,
    /// How many of them have been looked at, and each stream's rank by first look.
    sights: u32,
    sight: Vec<Option<u32>>,
    live: Map<BlockNumber, Live>,
    told: Vec<Told>,
}

impl<'a> Reader<'a> {
    fn new(nodes: Nodes<'a>, blocks: usize) -> Self {
        Self {
            nodes,
            numbers: new_map(),
            streams: Vec::new(),
            sights: 0,
            sight: Vec::new(),
            live: new_map(),
            told: Vec::with_capacity(blocks),
        }
    }

    fn stream(&mut self, handle: StreamHandle) -> usize {
        let next = self.streams.len();
        let number = *self.numbers.entry(handle).or_insert(next);
        if number == next {
            self.streams.push(Stream::default());
            self.sight.push(None);
        }
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
                    let last = Some(end(&self.streams[stream], live.at, at));
                    self.set_use(block, Use { stream, last });
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
            Entry::Standing { .. }
            | Entry::Input { .. }
            | Entry::Settled { .. }
            | Entry::Bound { .. }
            | Entry::Shared { .. }
            | Entry::OutputFreed { .. } => {}
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
        let mut known = vec![0; self.nodes.clocks.chains()];
        self.streams[stream].know(&self.nodes, &mut known);
        let place = (address, bytes);
        let sight = self.sighted(stream);
        let lifetime = Lifetime::new(block, place, sight, false);
        let live = Live {
            row: self.told.len(),
            at,
            terminals: self.streams[stream].proving_terminals(),
            uses: [Use { stream, last: None }].into_iter().collect(),
            outside: false,
        };
        self.live.insert(block, live);
        self.told.push(Told { lifetime, known, needed: Vec::new() });
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
        let mut needed = vec![0; clocks.chains()];
        let mut need = |rows: &Rows| {
            for place in rows.iter().filter_map(|&node| clocks.place(node)) {
                let number: &mut u32 = &mut needed[place.chain as usize];
                *number = (*number).max(place.position);
            }
        };
        need(&live.terminals);
        let (mut worked, mut broken) = (false, SmallVec::<[_; 2]>::new());
        for (order, used) in live.uses.iter().enumerate() {
            let stream = &self.streams[used.stream];
            let now;
            let end = match &used.last {
                Some(end) => end,
                None => {
                    now = end(stream, live.at, at);
                    &now
                }
            };
            need(&end.markers);
            let mut gains = stream.gains(live.at, end.at);
            let knows = |chain: u32| told.known.get(chain as usize).copied().unwrap_or(0);
            worked |= gains.any(|gain| order == 0 || gain.position > knows(gain.chain));
            if end.broken {
                broken.push((used.stream, end.at));
            }
        }
        for &(stream, end) in &broken {
            for gain in self.streams[stream].gains(live.at, end) {
                let number = &mut needed[gain.chain as usize];
                *number = (*number).max(gain.position);
            }
        }
        let Lifetime { worked: used, freed, covered, .. } = &mut told.lifetime;
        *freed = true;
        *covered = broken.is_empty();
        *used = worked || !*covered;
        if !worked && !*covered {
            // It keeps its memory, but has no user that was seen: it precedes itself.
            needed.clone_from(&told.known);
        }
        told.needed = needed;
    }

    fn finish(self) -> Lifetimes {
        let chains = self.nodes.clocks.chains();
        let mut lifetimes = Lifetimes::new(chains);
        lifetimes.cut = self.nodes.clocks.is_cut();
        lifetimes.known.reserve(self.told.len() * chains);
        lifetimes.needed.reserve(self.told.len() * chains);
        for Told { lifetime, mut known, mut needed } in self.told {
            known.resize(chains, 0);
            needed.resize(chains, 0);
            lifetimes.push(lifetime, &known, &needed);
        }
        lifetimes
    }
}

/// What a stream has now, for a block that was allocated then.
fn end(stream: &Stream, allocated: Moment, at: Moment) -> End {
    End { at, markers: stream.terminals(), broken: stream.broke(allocated) }
}
