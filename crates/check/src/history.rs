//! What the journal says, sorted into streams and blocks.

use super::violation::Place;
use regraph_driver::{CaptureId, StreamHandle};
use regraph_record::journal::BlockNumber;

/// Stands for an entry that never comes.
pub(crate) const NEVER: u32 = u32::MAX;

/// A look's entry, and where its terminals begin.
type Look = (u32, u32);

/// What the driver said about one stream, in host order.
pub(crate) struct StreamHistory {
    pub handle: StreamHandle,
    looks: Vec<Look>,
    terminals: Vec<u32>,
}

impl StreamHistory {
    /// Begins a look, without terminals.
    #[inline]
    pub(super) fn begin_look(&mut self, entry: u32) {
        self.looks.push((entry, self.terminals.len() as u32));
    }

    /// Adds a terminal to the last look.
    #[inline]
    pub(super) fn add_terminal(&mut self, node: u32) {
        self.terminals.push(node);
    }

    /// Gives all nodes other numbers.
    pub(super) fn renumber(&mut self, numbers: &[u32]) {
        self.terminals.iter_mut().for_each(|node| *node = numbers[*node as usize]);
    }

    /// The number of looks.
    #[inline]
    pub fn looks(&self) -> usize {
        self.looks.len()
    }

    /// The entry of a look.
    #[inline]
    pub fn entry(&self, look: usize) -> u32 {
        self.looks[look].0
    }

    /// The terminals at a look.
    #[inline]
    pub fn terminals(&self, look: usize) -> &[u32] {
        let looks = &self.looks[look..];
        let rest = &self.terminals[looks[0].1 as usize..];
        looks.get(1).map_or(rest, |next| &rest[..(next.1 - looks[0].1) as usize])
    }

    /// Whether an entry is a look at it.
    pub fn has_look(&self, entry: u32) -> bool {
        self.looks.binary_search_by_key(&entry, |look| look.0).is_ok()
    }

    /// The last look before an entry.
    pub fn look_before(&self, entry: u32) -> Option<usize> {
        self.looks.partition_point(|look| look.0 < entry).checked_sub(1)
    }
}

/// A stream that may use a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockUse {
    pub stream: u32,
    /// The entry that said its uses are over, or [`NEVER`], also where a later one took that back.
    pub last: u32,
    /// How many looks at the stream came before the block's allocation.
    pub looks_before: u32,
    /// How many came before the uses ended, where they did.
    pub looks_until: u32,
    /// The block's next use among [`History::further`], or [`NEVER`].
    pub(super) next: u32,
}

impl BlockUse {
    /// The last look at the stream before the block's allocation.
    pub fn start(&self) -> Option<u32> {
        self.looks_before.checked_sub(1)
    }
}

/// A block that the capture allocated or took for its own.
pub(crate) struct BlockHistory {
    pub number: BlockNumber,
    pub address: u64,
    pub end: u64,
    /// The entry of its allocation, or of its coming.
    pub allocated: u32,
    /// The entry of its free, or [`NEVER`].
    pub freed: u32,
    /// By its own stream.
    pub own: BlockUse,
    pub outside: bool,
}

impl BlockHistory {
    /// The entry that ended a use of this block, or [`NEVER`].
    pub fn until(&self, used: &BlockUse) -> u32 {
        match used.last {
            NEVER => self.freed,
            last => last,
        }
    }
}

/// A block from elsewhere.
pub(crate) struct StandingHistory {
    pub place: Place,
    pub end: u64,
    /// The entries of its coming and of its going, or [`NEVER`]; one that the capture took never came.
    pub(super) entered: u32,
    pub(super) settled: u32,
}

/// Addresses that lie on physical memory.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    pub address: u64,
    pub bytes: u64,
    pub memory: u64,
    pub offset: u64,
}

/// Physical memory that another graph overwrites.
#[derive(Clone, Copy)]
pub(crate) struct SharedMemory {
    pub memory: u64,
    pub bytes: u64,
    pub graph: CaptureId,
}

/// The whole journal.
#[derive(Default)]
pub(crate) struct History {
    pub streams: Vec<StreamHistory>,
    /// In order of their coming: inputs first, then what the capture allocated.
    pub blocks: Vec<BlockHistory>,
    /// How many of them stood before the first look.
    pub inputs: usize,
    pub standing: Vec<StandingHistory>,
    pub bindings: Vec<Binding>,
    pub shared: Vec<SharedMemory>,
    /// Memory and graph where the host has freed what the graph's capture left there.
    pub outputs_freed: Vec<(u64, CaptureId)>,
    /// Whether all streams were looked at when the capture ended: what no look saw is no launch of theirs.
    pub looked: bool,
    /// Whether blocks may lie where those of other graphs do.
    pub graphs: bool,
    /// The streams of all looks, in host order.
    pub looks: Vec<u32>,
    /// Uses of blocks by other streams than their own; each names the block's next.
    pub(super) further: Vec<BlockUse>,
    /// Looks and terminals of streams of journals before; empty, and kept for what they have allocated.
    spare: Vec<(Vec<Look>, Vec<u32>)>,
}

impl History {
    /// Forgets everything; what is allocated stays.
    pub(super) fn clear(&mut self) {
        let Self {
            streams,
            blocks,
            inputs,
            standing,
            bindings,
            shared,
            outputs_freed,
            looked,
            graphs,
            looks,
            further,
            spare,
        } = self;
        for StreamHistory { handle: _, mut looks, mut terminals } in streams.drain(..) {
            looks.clear();
            terminals.clear();
            spare.push((looks, terminals));
        }
        blocks.clear();
        *inputs = 0;
        standing.clear();
        bindings.clear();
        shared.clear();
        outputs_freed.clear();
        (*looked, *graphs) = (false, false);
        looks.clear();
        further.clear();
    }

    /// Adds a stream without looks.
    pub(super) fn add_stream(&mut self, handle: StreamHandle) {
        let (looks, terminals) = self.spare.pop().unwrap_or_default();
        self.streams.push(StreamHistory { handle, looks, terminals });
    }

    /// Where a block lies.
    pub fn place(&self, block: u32) -> Place {
        let BlockHistory { number, address, end, ref own, .. } = self.blocks[block as usize];
        let stream = Some(self.streams[own.stream as usize].handle);
        Place { block: number, stream, address, bytes: end - address }
    }

    /// The streams that may use a block, its own first.
    pub fn uses<'a>(&'a self, block: &'a BlockHistory) -> impl Iterator<Item = &'a BlockUse> {
        std::iter::successors(Some(&block.own), |used| self.further.get(used.next as usize))
    }

    /// All looks in host order: the stream's number, and the look's at that stream.
    pub fn looks(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let mut next = vec![0; self.streams.len()];
        self.looks.iter().map(move |&stream| {
            next[stream as usize] += 1;
            (stream, next[stream as usize] - 1)
        })
    }

    /// What a block's own stream waited for when it was allocated.
    pub fn allocation_point(&self, block: u32) -> &[u32] {
        let used = &self.blocks[block as usize].own;
        let own = &self.streams[used.stream as usize];
        used.start().map_or(&[], |look| own.terminals(look as usize))
    }
}
