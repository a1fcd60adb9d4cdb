//! Reads the journal, entry by entry, and refuses what contradicts itself.

use smallvec::SmallVec;

use super::finished::FinishedGraph;
use super::graph::{Draft, EdgeLists, Graph};
use super::history::{
    Binding, BlockHistory, BlockUse, History, SharedMemory, StandingHistory, StreamHistory, NEVER,
};
use super::numbers::{Dense, Numbers};
use super::violation::{Flaw, Place, Violation};
use regraph_driver::{Dependency, StreamHandle};
use regraph_record::journal::{BlockNumber, Entry, Journal};
use regraph_record::policy::Programmatic;

#[derive(Clone, Copy)]
enum Known {
    Ours(u32),
    Standing(u32),
    Input(u32),
}

impl Known {
    fn from_number(number: u32) -> Self {
        match number % 4 {
            0 => Self::Ours(number / 4),
            1 => Self::Standing(number / 4),
            _ => Self::Input(number / 4),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Ours(block) => block * 4,
            Self::Standing(block) => block * 4 + 1,
            Self::Input(block) => block * 4 + 2,
        }
    }

    /// The block, which is the capture's.
    fn among<'a>(
        self,
        ours: &'a mut [BlockHistory],
        inputs: &'a mut [BlockHistory],
    ) -> &'a mut BlockHistory {
        match self {
            Self::Ours(number) => &mut ours[number as usize],
            Self::Input(number) => &mut inputs[number as usize],
            Self::Standing(_) => unreachable!("a standing block is not the capture's"),
        }
    }
}

/// So many streams need no table.
const FEW: usize = 8;

struct Reader<'a, 'h> {
    draft: Draft<'a>,
    history: &'h mut History,
    /// Blocks that stood before and are the capture's now.
    inputs: Vec<BlockHistory>,
    /// Of all streams, where there are more than [`FEW`].
    streams: Option<Numbers>,
    /// The stream of the last entry that named one, which the next one is likely to name.
    recent: Option<(StreamHandle, u32)>,
    blocks: Dense,
    /// Where the capture came to use pools: the entry, and the number that no block had by then.
    pools: SmallVec<[(u32, u64); 2]>,
}

impl History {
    /// Takes in the whole journal, sorted, in place of another one, and answers the finished graph, which it is compared
    /// with. `kept` is what another graph has allocated.
    ///
    /// # Errors
    /// What is wrong with the graph by itself, or with a node that the journal told of, comes first.
    pub fn read<'a>(
        &mut self,
        journal: &Journal,
        programmatic: Programmatic,
        graph: &'a FinishedGraph,
        kept: EdgeLists,
    ) -> Result<Graph<'a>, Violation> {
        self.clear();
        self.blocks.reserve(journal.len() / 4);
        self.looks.reserve(graph.nodes().len() + 1);
        let mut reader = Reader {
            draft: Draft::read(programmatic, graph, kept)?,
            history: self,
            inputs: Vec::new(),
            streams: None,
            recent: None,
            blocks: Dense::default(),
            pools: SmallVec::new(),
        };
        let mut wrong = None;
        for (index, entry) in journal.iter().enumerate() {
            match entry {
                Entry::Node { node, dependencies } => reader.draft.compare(node, dependencies)?,
                entry if wrong.is_none() => {
                    if let Err(violation) = reader.read(index, entry) {
                        wrong = Some(violation);
                    }
                }
                _ => {}
            }
        }
        let Reader { draft, history, mut inputs, .. } = reader;
        let (graph, rank) = draft.finish()?;
        wrong.map_or(Ok(()), Err)?;
        if let Some(rank) = rank {
            history.streams.iter_mut().for_each(|stream| stream.renumber(&rank));
        }
        history.standing.retain(|it| it.entered != NEVER);
        // Of a few nothing is to be had back.
        history.blocks.shrink_to(64);
        if !inputs.is_empty() {
            inputs.sort_by_key(|input| input.allocated);
            history.inputs = inputs.len();
            history.blocks.splice(0..0, inputs);
        }
        let History { streams, blocks, further, .. } = &mut *history;
        for block in blocks.iter_mut().filter(|block| block.outside) {
            // A stream that was never looked at is outside the capture; its users are no nodes of
            // this graph, and nothing may follow the block anyway.
            let mut next = std::mem::replace(&mut block.own.next, NEVER);
            while let Some(&used) = further.get(next as usize) {
                let until = block.until(&used);
                if streams[used.stream as usize].look_before(until).is_some() {
                    further[next as usize].next = std::mem::replace(&mut block.own.next, next);
                }
                next = used.next;
            }
        }
        for (number, block) in history.blocks.iter().enumerate() {
            history.require_looks(block, number < history.inputs)?;
        }
        Ok(graph)
    }

    /// A block's life rests on looks: at its own stream when it began, unless it stood before, and at every user when
    /// its uses ended. A user outside the capture cannot be looked at, and nothing with users may follow such a block.
    fn require_looks(&self, block: &BlockHistory, input: bool) -> Result<(), Violation> {
        for (index, used) in self.uses(block).enumerate() {
            let stream = &self.streams[used.stream as usize];
            let end = block.until(used);
            let ended = end != NEVER && (index == 0 || !block.outside);
            let needed = [
                (index == 0 && used.looks_before == 0 && !input).then_some(block.allocated),
                (ended && used.looks_until == 0).then_some(end),
            ];
            if let Some(entry) = needed.into_iter().flatten().next() {
                return Err(Violation::NeverLooked {
                    entry: entry as usize,
                    block: block.number,
                    stream: stream.handle,
                });
            }
        }
        Ok(())
    }
}

impl Reader<'_, '_> {
    // Inlined, nothing is left of the entry that the journal makes.
    #[inline(always)]
    fn read(&mut self, index: usize, entry: Entry<'_>) -> Result<(), Violation> {
        let at = index as u32;
        match entry {
            Entry::Node { .. } => {}
            Entry::Terminals { stream, terminals } => {
                let number = self.stream(stream);
                let stream = &mut self.history.streams[number as usize];
                stream.begin_look(at);
                for Dependency { node, .. } in terminals.iter() {
                    match self.draft.number(node) {
                        Some(node) => stream.add_terminal(node),
                        None => return Err(Violation::UnknownNode { node }),
                    }
                }
                self.history.looks.push(number);
            }
            Entry::Allocate { block, stream, address, bytes } => {
                let number = self.history.blocks.len() as u32;
                let end = self.introduce(block, Known::Ours(number), address, bytes);
                let end = end.map_err(|flaw| malformed(index, block, flaw))?;
                let own = self.stream(stream);
                let looks_before = self.history.streams[own as usize].looks() as u32;
                let own = first_use(own, looks_before);
                let (freed, outside) = (NEVER, false);
                let number = block;
                let allocated = at;
                let block = BlockHistory { number, address, end, allocated, freed, own, outside };
                self.history.blocks.push(block);
            }
            Entry::Use { block, stream } => self.used(index, block, stream, NEVER)?,
            Entry::LastUse { block, stream } => self.used(index, block, stream, at)?,
            // A standing block is never followed inside the capture before it is settled, so its
            // users need no record. A late word about a freed block still counts: it fails closed.
            Entry::Outside { block } => match self.known(block) {
                Some(Known::Standing(_)) => {}
                Some(known) => self.ours(known).outside = true,
                None => return Err(malformed(index, block, Flaw::Unknown)),
            },
            Entry::Free { block } => match self.known(block) {
                Some(Known::Standing(_)) => return Err(malformed(index, block, Flaw::NotOurs)),
                Some(known) => {
                    let Self { history, inputs, .. } = self;
                    let History { blocks, streams, further, .. } = &mut **history;
                    let ours = known.among(blocks, inputs);
                    if ours.freed != NEVER {
                        return Err(malformed(index, block, Flaw::Freed));
                    }
                    ours.freed = at;
                    let end = |used: &mut BlockUse| {
                        if used.last == NEVER {
                            used.looks_until = streams[used.stream as usize].looks() as u32;
                        }
                        used.next
                    };
                    let mut next = end(&mut ours.own);
                    while let Some(used) = further.get_mut(next as usize) {
                        next = end(used);
                    }
                }
                None => return Err(malformed(index, block, Flaw::Unknown)),
            },
            Entry::Standing { block, address, bytes } => {
                let number = self.history.standing.len() as u32;
                let end = self.introduce(block, Known::Standing(number), address, bytes);
                let end = end.map_err(|flaw| malformed(index, block, flaw))?;
                // Of what is told of only now: the first entry that names a number which the block's lies below.
                let since = self.pools.iter().find(|&&(_, next)| block.0 < next);
                self.history.standing.push(StandingHistory {
                    place: Place { block, stream: None, address, bytes },
                    end,
                    entered: since.map_or(at, |&(entry, _)| entry),
                    settled: NEVER,
                });
            }
            Entry::Pool { next, held, listed } => {
                if held != listed {
                    return Err(Violation::Unlisted { entry: index, held, listed });
                }
                self.pools.push((at, next.0));
            }
            Entry::Input { block, stream } => self.take(index, block, stream)?,
            Entry::Settled { block } => match self.known(block) {
                Some(Known::Standing(number)) => {
                    let standing = &mut self.history.standing[number as usize];
                    if standing.settled != NEVER {
                        return Err(malformed(index, block, Flaw::Settled));
                    }
                    standing.settled = at;
                }
                Some(_) => return Err(malformed(index, block, Flaw::NotStanding)),
                // Gone before this journal was told of it: it never stood in the way.
                None => {}
            },
            Entry::Bound { address, bytes, memory, offset } => {
                self.history.bindings.push(Binding { address, bytes, memory, offset });
            }
            Entry::Shared { memory, bytes, graph } => {
                self.history.shared.push(SharedMemory { memory, bytes, graph });
            }
            Entry::OutputFreed { memory, graph } => {
                self.history.outputs_freed.push((memory, graph));
            }
            Entry::Graphs => self.history.graphs = true,
            Entry::Looked => self.history.looked = true,
        }
        Ok(())
    }

    #[inline]
    fn stream(&mut self, handle: StreamHandle) -> u32 {
        match self.recent {
            Some((recent, number)) if recent == handle => number,
            _ => self.other_stream(handle),
        }
    }

    fn other_stream(&mut self, handle: StreamHandle) -> u32 {
        let Self { history, streams: numbers, .. } = self;
        let key = |it: u32, streams: &[StreamHistory]| streams[it as usize].handle.bits() as u64;
        let streams = &history.streams;
        let known = match numbers {
            Some(numbers) => numbers.get(handle.bits() as u64, |it| key(it, streams)),
            None => streams.iter().position(|it| it.handle == handle).map(|it| it as u32),
        };
        let number = known.unwrap_or_else(|| {
            history.add_stream(handle);
            let streams = &history.streams;
            let number = streams.len() as u32 - 1;
            // A few are searched one by one.
            if streams.len() > FEW {
                let all = if numbers.is_some() { number } else { 0 }..=number;
                let numbers = numbers.get_or_insert_with(|| Numbers::with_capacity(2 * FEW));
                for it in all {
                    numbers.insert(key(it, streams), it, |it| key(it, streams));
                }
            }
            number
        });
        self.recent = Some((handle, number));
        number
    }

    fn known(&self, block: BlockNumber) -> Option<Known> {
        let Self { history, inputs, .. } = self;
        self.blocks.get(block.0, |it| block_key(history, inputs, it)).map(Known::from_number)
    }

    /// Takes a new block's number and answers where the block ends.
    #[inline]
    fn introduce(
        &mut self,
        block: BlockNumber,
        known: Known,
        address: u64,
        bytes: u64,
    ) -> Result<u64, Flaw> {
        let Self { history, inputs, blocks, .. } = self;
        // The block itself is entered next.
        let key_of =
            |it| if it == known.number() { block.0 } else { block_key(history, inputs, it) };
        if blocks.insert(block.0, known.number(), key_of).is_some() {
            return Err(Flaw::NumberTaken);
        }
        address.checked_add(bytes).ok_or(Flaw::Wraps)
    }

    /// Makes a standing block the capture's. What the stream launched before it stood could be no user of it,
    /// so it must have stood before the first look at any stream.
    fn take(
        &mut self,
        index: usize,
        block: BlockNumber,
        handle: StreamHandle,
    ) -> Result<(), Violation> {
        let number = match self.known(block) {
            Some(Known::Standing(number)) => number as usize,
            Some(_) => return Err(malformed(index, block, Flaw::NotStanding)),
            None => return Err(malformed(index, block, Flaw::Unknown)),
        };
        let stream = self.stream(handle);
        let History { standing, streams, looks, .. } = &mut *self.history;
        let it = &mut standing[number];
        if it.settled != NEVER {
            return Err(malformed(index, block, Flaw::Settled));
        }
        let first = looks.first().map(|&stream| streams[stream as usize].entry(0));
        if first.is_some_and(|first| first < it.entered) {
            return Err(malformed(index, block, Flaw::Late));
        }
        // Any other block meets it as the capture's.
        let allocated = std::mem::replace(&mut it.entered, NEVER);
        let input = Known::Input(self.inputs.len() as u32).number();
        self.inputs.push(BlockHistory {
            number: block,
            address: it.place.address,
            end: it.end,
            allocated,
            freed: NEVER,
            own: first_use(stream, 0),
            outside: false,
        });
        let Self { history, inputs, blocks, .. } = self;
        blocks.insert(block.0, input, |it| block_key(history, inputs, it));
        Ok(())
    }

    fn ours(&mut self, known: Known) -> &mut BlockHistory {
        known.among(&mut self.history.blocks, &mut self.inputs)
    }

    fn used(
        &mut self,
        index: usize,
        block: BlockNumber,
        handle: StreamHandle,
        last: u32,
    ) -> Result<(), Violation> {
        let known = match self.known(block) {
            Some(Known::Standing(_)) => return Ok(()),
            Some(known) => known,
            None => return Err(malformed(index, block, Flaw::Unknown)),
        };
        if self.ours(known).freed != NEVER {
            return Err(malformed(index, block, Flaw::Freed));
        }
        let own = self.stream(handle);
        let Self { history, inputs, .. } = self;
        let History { blocks, streams, further, .. } = &mut **history;
        let stream = &streams[own as usize];
        let looks_until = stream.looks() as u32;
        let (count, block) = (further.len() as u32, known.among(blocks, inputs));
        let allocated = block.allocated;
        // Its use by the stream, or else the last.
        let mut at = NEVER;
        let mut used = &block.own;
        while used.stream != own && used.next != NEVER {
            at = used.next;
            used = &further[at as usize];
        }
        let is_known = used.stream == own;
        let used = further.get_mut(at as usize).unwrap_or(&mut block.own);
        if is_known {
            (used.last, used.looks_until) = (last, looks_until);
            return Ok(());
        }
        used.next = count;
        let looks_before = stream.look_before(allocated).map_or(0, |look| look as u32 + 1);
        further.push(BlockUse { last, looks_until, ..first_use(own, looks_before) });
        Ok(())
    }
}

/// A use that no other one follows.
fn first_use(stream: u32, looks_before: u32) -> BlockUse {
    BlockUse { stream, last: NEVER, looks_before, looks_until: 0, next: NEVER }
}

/// The number that a block of the journal has there.
#[inline]
fn block_key(history: &History, inputs: &[BlockHistory], known: u32) -> u64 {
    let number = match Known::from_number(known) {
        Known::Ours(it) => history.blocks[it as usize].number,
        Known::Standing(it) => history.standing[it as usize].place.block,
        Known::Input(it) => inputs[it as usize].number,
    };
    number.0
}

fn malformed(entry: usize, block: BlockNumber, flaw: Flaw) -> Violation {
    Violation::Malformed { entry, block, flaw }
}
