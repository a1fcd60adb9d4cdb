//! Which blocks the nodes' parameters point into, by the address map in host order.

use ahash::AHashMap;
use smallvec::SmallVec;

use crate::reading::{BlockHistory, Graph, History, RangeMap, NEVER};
use regraph_driver::{Access, Driver, NodePointer};
use regraph_record::journal::{BlockNumber, Entry, Journal};

/// An address in a node's parameters.
#[derive(Clone, Copy)]
pub(super) struct Touch {
    pub node: u32,
    pub address: u64,
    /// The last block that was allocated there before the node was first seen.
    pub block: u32,
    /// Whether it had not been freed by then.
    pub live: bool,
    /// What the node does in the block, at any address.
    pub does: Does,
    /// Whether all that it has of the block is where another one ends that it has an address in: mostly an
    /// iterator's end.
    pub end: bool,
}

/// What a node does in a block, as far as its parameters tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Does {
    /// It reads there.
    pub reads: bool,
    /// It writes there.
    pub writes: bool,
    /// It may do either.
    pub unknown: bool,
}

impl Does {
    fn add(&mut self, access: Access) {
        match access {
            Access::Reads => self.reads = true,
            Access::Writes => self.writes = true,
            Access::Unknown => self.unknown = true,
        }
    }
}

/// All of them, and which blocks lay at an address before one another.
pub(super) struct Touches {
    pub all: Vec<Touch>,
    /// By block: the last ones that lay in its range before it.
    before: Vec<SmallVec<[u32; 2]>>,
}

/// The address map while the journal is read.
struct Map {
    live: RangeMap<u32>,
    /// The last block at each address, live or not.
    last: RangeMap<u32>,
    /// How many blocks from elsewhere lie at each address.
    standing: RangeMap<u32>,
}

impl Touches {
    /// A user of a block was launched, and so first seen, while the block was live, if a look at
    /// its stream ended its use; so one block is asked for at each address.
    pub fn read<D: Driver + ?Sized>(
        journal: &Journal,
        history: &History,
        graph: &Graph<'_>,
        seen: &[u32],
        driver: &D,
    ) -> Self {
        let mut nodes: Vec<u32> = (0..graph.len() as u32).collect();
        nodes.sort_by_key(|&node| seen[node as usize]);
        let mut nodes = nodes.into_iter().peekable();
        let mut touches = Self { all: Vec::new(), before: Vec::new() };
        let mut map =
            Map { live: RangeMap::new(), last: RangeMap::new(), standing: RangeMap::new() };
        let mut ours: AHashMap<BlockNumber, u32> = AHashMap::new();
        let mut others: AHashMap<BlockNumber, (u64, u64)> = AHashMap::new();
        let mut pointers = Vec::new();
        let mut take = |touches: &mut Self, map: &Map, node: u32| {
            pointers.clear();
            if driver.pointers(graph.handle(node), &mut pointers).is_ok() {
                pointers.sort_unstable_by_key(|it: &NodePointer| it.address);
                touches.take(map, &history.blocks, node, &pointers);
            }
        };
        for (number, input) in (0..).zip(&history.blocks[..history.inputs]) {
            let (start, end) = (input.address, input.end);
            ours.insert(input.number, number);
            touches.before.push(SmallVec::new());
            map.live.replace(start, end, number);
            map.last.replace(start, end, number);
        }
        for (index, entry) in journal.iter().enumerate() {
            while let Some(node) = nodes.next_if(|&node| seen[node as usize] <= index as u32) {
                take(&mut touches, &map, node);
            }
            match entry {
                Entry::Allocate { block, .. } => {
                    let number = touches.before.len() as u32;
                    ours.insert(block, number);
                    let place = &history.blocks[number as usize];
                    let (start, end) = (place.address, place.end);
                    let mut before: SmallVec<[u32; 2]> =
                        map.last.overlapping(start, end).copied().collect();
                    before.sort_unstable();
                    before.dedup();
                    touches.before.push(before);
                    map.live.replace(start, end, number);
                    map.last.replace(start, end, number);
                }
                Entry::Free { block } => {
                    if let Some(&number) = ours.get(&block) {
                        let place = &history.blocks[number as usize];
                        if place.address < place.end {
                            map.live.remove(place.address, place.end);
                        }
                    }
                }
                Entry::Standing { block, address, bytes } if !ours.contains_key(&block) => {
                    let end = address.saturating_add(bytes);
                    others.insert(block, (address, end));
                    map.standing.change(address, end, &0, |here| *here += 1);
                }
                Entry::Settled { block } => {
                    if let Some((address, end)) = others.remove(&block) {
                        map.standing.change(address, end, &0, |here| *here -= 1);
                    }
                }
                _ => {}
            }
        }
        for node in nodes {
            take(&mut touches, &map, node);
        }
        touches
    }

    /// Enters what the sorted values of a node point to, each block once.
    fn take(&mut self, map: &Map, blocks: &[BlockHistory], node: u32, pointers: &[NodePointer]) {
        let first = self.all.len();
        let mut end = None;
        for &NodePointer { address, access } in pointers {
            let behind = address.saturating_add(1);
            if map.standing.overlapping(address, behind).any(|&here| here > 0) {
                continue;
            }
            let Some(&block) = map.last.overlapping(address, behind).next() else { continue };
            let known = self.all[first..].last_mut().filter(|it| it.block == block);
            let at_end = end == Some(address) && access == Access::Unknown;
            if let Some(known) = known {
                known.does.add(access);
                if known.end && !at_end {
                    (known.address, known.end) = (address, false);
                }
                continue;
            }
            if !at_end {
                end = Some(blocks[block as usize].end);
            }
            let live = map.live.overlapping(address, behind).next() == Some(&block);
            let mut does = Does::default();
            does.add(access);
            self.all.push(Touch { node, address, block, live, does, end: at_end });
        }
    }

    /// The blocks that lay at an address: this one, the one before it, and so on.
    pub fn history_of(&self, touch: Touch, blocks: &[BlockHistory]) -> Vec<u32> {
        let mut found = vec![touch.block];
        let mut at = touch.block;
        loop {
            let here = |&&block: &&u32| {
                let it = &blocks[block as usize];
                it.address <= touch.address && touch.address < it.end
            };
            // Of those that reach there the youngest was the last.
            match self.before[at as usize].iter().filter(here).max() {
                Some(&block) => {
                    found.push(block);
                    at = block;
                }
                None => return found,
            }
        }
    }
}

/// Whether a block was never freed.
pub(super) fn stays(block: &BlockHistory) -> bool {
    block.freed == NEVER
}
