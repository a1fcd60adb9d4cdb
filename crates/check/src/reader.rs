//! Reads the journal, entry by entry, and refuses what contradicts itself.

use smallvec::SmallVec;

use super::graph::Graph;
use super::history::{
    Binding, BlockHistory, BlockUse, History, SharedMemory, StandingHistory, StreamHistory, NEVER,
};
use super::numbers::Numbers;
use super::violation::{Flaw, Place, Violation};
use regraph_driver::StreamHandle;
use regraph_record::journal::{BlockNumber, Entry, Journal};

#[derive(Clone, Copy)]
enum Known {
    Ours(u32),
    Standing(u32),
    Input(u32),
}

impl Known {
    fn from_number(number: u32) -> Self {
        match number % 3 {
            0 => Self::Ours(number / 3),
            1 => Self::Standing(number / 3),
            _ => Self::Input(number / 3),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Ours(block) => block * 3,
            Self::Standing(block) => block * 3 + 1,
            Self::Input(block) => block * 3 + 2,
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

struct Reader<'a> {
    graph: &'a Graph,
    history: History,
    /// Blocks that stood before and are the capture's now.
    inputs: Vec<BlockHistory>,
    streams: Numbers,
    /// The stream of the last entry that named one, which the next one is likely to name.
    recent: Option<(StreamHandle, u32)>,
    blocks: Numbers,
    /// Where the capture came to use pools: the entry, and the number that no block had by then.
    pools: SmallVec<[(u32, u64); 2]>,
}

impl History {
    /// The whole journal, sorted.
    pub fn read(journal: &Journal, graph: &Graph) -> Result<Self, Violation> {
        let mut reader = Reader {
            graph,
            history: Self::default(),
            inputs: Vec::new(),
            streams: Numbers::with_capacity(0),
            recent: None,
            blocks: Numbers::with_capacity(0),
            pools: SmallVec::new(),
        };
        for (index, entry) in journal.iter().enumerate() {
            reader.read(index, entry)?;
        }
        let Reader { mut history, mut inputs, .. } = reader;
        inputs.sort_by_key(|input| input.allocated);
        history.inputs = inputs.len();
        history.standing.retain(|it| it.entered != NEVER);
        history.blocks.splice(0..0, inputs);
        let streams = &history.streams;
        for block in history.blocks.iter_mut().filter(|block| block.outside) {
            // A stream that was never looked at is outside the capture; its users are no nodes of
            // this graph, and nothing may follow the block anyway.
            let end = block.freed;
            let mut index = 0;
            block.uses.retain(|used| {
                index += 1;
                let last = used.last.unwrap_or(end);
                index == 1 || streams[used.stream as usize].look_before(last).is_some()
            });
        }
        for (number, block) in history.blocks.iter().enumerate() {
            history.require_looks(block, number < history.inputs)?;
        }
        Ok(history)
    }

    /// A block's life rests on looks: at its own stream when it began, unless it stood before, and at every
    /// user when its uses ended. A user outside the capture cannot be looked at, and nothing with users may
    /// follow such a block.
    fn require_looks(&self, block: &BlockHistory, input: bool) -> Result<(), Violation> {
        for (index, used) in block.uses.iter().enumerate() {
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
                    block: block.place.block,
                    stream: stream.handle,
                });
            }
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn read(&mut self, index: usize, entry: Entry<'_>) -> Result<(), Violation> {
        let at = index as u32;
        match entry {
            Entry::Node { .. } => {}
            Entry::Terminals { stream, terminals } => {
                let number = self.stream(stream);
                let stream = &mut self.history.streams[number as usize];
                let look = stream.entries.len() as u32;
                for terminal in terminals.iter() {
                    stream.terminals.push(self.graph.number(terminal.node)?);
                }
                stream.entries.push(at);
                stream.ends.push(stream.terminals.len() as u32);
                self.history.looks.push((number, look));
            }
            Entry::Allocate { block, stream, address, bytes } => {
                let number = self.history.blocks.len() as u32;
                let end = self.introduce(index, block, Known::Ours(number), address, bytes)?;
                let own = self.stream(stream);
                let looks_before = self.history.streams[own as usize].looks() as u32;
                let used = BlockUse { stream: own, last: None, looks_before, looks_until: 0 };
                self.history.blocks.push(BlockHistory {
                    place: Place { block, stream: Some(stream), address, bytes },
                    end,
                    allocated: at,
                    freed: NEVER,
                    outside: false,
                    uses: SmallVec::from_slice(&[used]),
                });
            }
            Entry::Use { block, stream } => self.used(index, block, stream, None)?,
            Entry::LastUse { block, stream } => self.used(index, block, stream, Some(at))?,
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
                    let Self { history: History { blocks, streams, .. }, inputs, .. } = self;
                    let ours = known.among(blocks, inputs);
                    if ours.freed != NEVER {
                        return Err(malformed(index, block, Flaw::Freed));
                    }
                    ours.freed = at;
                    for used in ours.uses.iter_mut().filter(|used| used.last.is_none()) {
                        used.looks_until = streams[used.stream as usize].looks() as u32;
                    }
                }
                None => return Err(malformed(index, block, Flaw::Unknown)),
            },
            Entry::Standing { block, address, bytes } => {
                let number = self.history.standing.len() as u32;
                let end = self.introduce(index, block, Known::Standing(number), address, bytes)?;
                self.history.standing.push(StandingHistory {
                    place: Place { block, stream: None, address, bytes },
                    end,
                    entered: self.stands_since(block).unwrap_or(at),
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
        }
        Ok(())
    }

    fn stream(&mut self, handle: StreamHandle) -> u32 {
        if let Some((_, number)) = self.recent.filter(|&(recent, _)| recent == handle) {
            return number;
        }
        let number = self.streams.get(handle.bits() as u64).unwrap_or_else(|| {
            let number = self.history.streams.len() as u32;
            self.history.streams.push(StreamHistory {
                handle,
                entries: Vec::new(),
                ends: Vec::new(),
                terminals: Vec::new(),
            });
            self.streams.insert(handle.bits() as u64, number);
            number
        });
        self.recent = Some((handle, number));
        number
    }

    /// The entry by which a block was there that is told of only now: the first that names a number which
    /// the block's lies below.
    fn stands_since(&self, block: BlockNumber) -> Option<u32> {
        let mut pools = self.pools.iter();
        pools.find(|&&(_, next)| block.0 < next).map(|&(entry, _)| entry)
    }

    fn known(&self, block: BlockNumber) -> Option<Known> {
        self.blocks.get(block.0).map(Known::from_number)
    }

    /// Takes a new block's number and answers where the block ends.
    fn introduce(
        &mut self,
        index: usize,
        block: BlockNumber,
        known: Known,
        address: u64,
        bytes: u64,
    ) -> Result<u64, Violation> {
        if self.blocks.insert(block.0, known.number()).is_some() {
            return Err(malformed(index, block, Flaw::NumberTaken));
        }
        let end = address.checked_add(bytes);
        end.ok_or_else(|| malformed(index, block, Flaw::Wraps))
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
        let History { standing, streams, looks, .. } = &mut self.history;
        let it = &mut standing[number];
        if it.settled != NEVER {
            return Err(malformed(index, block, Flaw::Settled));
        }
        let first = looks.first().map(|&(stream, _)| streams[stream as usize].entry(0));
        if first.is_some_and(|first| first < it.entered) {
            return Err(malformed(index, block, Flaw::Late));
        }
        // Any other block meets it as the capture's.
        let allocated = std::mem::replace(&mut it.entered, NEVER);
        let used = BlockUse { stream, last: None, looks_before: 0, looks_until: 0 };
        let number = self.inputs.len() as u32;
        self.inputs.push(BlockHistory {
            place: Place { stream: Some(handle), ..it.place },
            end: it.end,
            allocated,
            freed: NEVER,
            outside: false,
            uses: SmallVec::from_slice(&[used]),
        });
        self.blocks.insert(block.0, Known::Input(number).number());
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
        last: Option<u32>,
    ) -> Result<(), Violation> {
        let known = match self.known(block) {
            Some(Known::Standing(_)) => return Ok(()),
            Some(known) => known,
            None => return Err(malformed(index, block, Flaw::Unknown)),
        };
        if self.ours(known).freed != NEVER {
            return Err(malformed(index, block, Flaw::Freed));
        }
        let number_of_stream = self.stream(handle);
        let Self { history: History { blocks, streams, .. }, inputs, .. } = self;
        let stream = &streams[number_of_stream as usize];
        let looks_until = stream.looks() as u32;
        let block = known.among(blocks, inputs);
        match block.uses.iter_mut().find(|used| used.stream == number_of_stream) {
            Some(used) => (used.last, used.looks_until) = (last, looks_until),
            None => block.uses.push(BlockUse {
                stream: number_of_stream,
                last,
                looks_before: stream.look_before(block.allocated).map_or(0, |look| look as u32 + 1),
                looks_until,
            }),
        }
        Ok(())
    }
}

fn malformed(entry: usize, block: BlockNumber, flaw: Flaw) -> Violation {
    Violation::Malformed { entry, block, flaw }
}
