//! A capture of a trace as far as a certificate speaks of it: its edges, what its streams gained when,
//! and the blocks that are named.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::{BlockIndex, Members, NodeIndex, Operation, StreamIndex};

/// An edge from an earlier node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: NodeIndex,
    pub(super) programmatic: bool,
}

/// What a stream has had behind it.
#[derive(Debug, Default)]
struct Sight {
    terminals: Vec<NodeIndex>,
    /// All nodes that were ever behind its terminals, over edges of any kind.
    nodes: FixedBitSet,
    /// In order, behind how many operations they were so first.
    gains: Vec<(usize, NodeIndex)>,
}

/// A block that is named.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: u64,
    pub(super) stream: StreamIndex,
    /// Behind how many operations it was allocated.
    at: usize,
    /// Its stream's terminals there.
    pub(super) terminals: Vec<NodeIndex>,
    /// The streams that use it, with when they did so last and their terminals there, where recorded.
    uses: BTreeMap<StreamIndex, Option<(usize, Vec<NodeIndex>)>>,
    /// `None` if it was not freed in the capture, or used outside it.
    pub(super) freed: Option<Freed>,
}

/// The end of a block.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// The terminals of its streams at its free, or at their last use.
    pub(super) markers: Vec<NodeIndex>,
    /// What its own stream gained while it was in use there.
    pub(super) own: Vec<NodeIndex>,
    /// What its other streams gained.
    pub(super) others: Vec<NodeIndex>,
}

/// A capture.
#[derive(Debug)]
pub(super) struct Sighted {
    /// By node.
    pub(super) edges: Vec<Vec<Edge>>,
    /// The nodes that programmatic edges lead on from.
    pub(super) early: FixedBitSet,
    /// How many blocks it allocates.
    pub(super) allocated: usize,
    /// Those that were asked for and that it allocates.
    pub(super) blocks: BTreeMap<BlockIndex, Block>,
}

impl Sighted {
    /// The capture that began on `origin`, from the operations behind its `begin`.
    pub(super) fn new(
        origin: StreamIndex,
        operations: &[Operation],
        wanted: &impl Fn(BlockIndex) -> bool,
    ) -> Self {
        let mut reader = Reader {
            members: Members::new(origin, operations),
            sights: BTreeMap::new(),
            capture: Self {
                edges: Vec::new(),
                early: FixedBitSet::new(),
                allocated: 0,
                blocks: BTreeMap::new(),
            },
        };
        for (at, operation) in operations.iter().enumerate() {
            if matches!(operation, Operation::End {}) {
                break;
            }
            reader.operation(at, operation, wanted);
        }
        reader.capture
    }
}

struct Reader {
    members: Members,
    sights: BTreeMap<StreamIndex, Sight>,
    capture: Sighted,
}

impl Reader {
    fn operation(
        &mut self,
        at: usize,
        operation: &Operation,
        wanted: &impl Fn(BlockIndex) -> bool,
    ) {
        for stream in operation.streams() {
            self.members.enters_at_once(stream);
        }
        match operation {
            &Operation::Kernel { stream, programmatic, .. } => {
                let node = self.capture.edges.len() as NodeIndex;
                let before = self.terminals(stream);
                let edges = before.into_iter().map(|from| Edge { from, programmatic });
                self.add(edges.collect());
                self.move_to(at, stream, vec![node]);
            }
            Operation::Node { after, programmatic, .. } => {
                let edge = |&from| Edge { from, programmatic: programmatic.contains(&from) };
                self.add(after.iter().map(edge).collect());
            }
            &Operation::Wait { stream, on } => {
                if self.members.waits(stream, on) {
                    let mut terminals = self.terminals(stream);
                    let more = self.terminals(on);
                    for node in more {
                        if !terminals.contains(&node) {
                            terminals.push(node);
                        }
                    }
                    self.move_to(at, stream, terminals);
                }
            }
            Operation::Terminals { stream, nodes } => self.move_to(at, *stream, nodes.clone()),
            &Operation::Alloc { id, bytes, stream } => {
                if self.members.is_inside(stream) {
                    self.capture.allocated += 1;
                    if wanted(id) {
                        let terminals = self.terminals(stream);
                        let uses = BTreeMap::from([(stream, None)]);
                        let block = Block { bytes, stream, at, terminals, uses, freed: None };
                        self.capture.blocks.insert(id, block);
                    }
                }
            }
            Operation::Use { id, stream } => {
                if let Some(block) = self.capture.blocks.get_mut(id) {
                    block.uses.insert(*stream, None);
                }
            }
            Operation::LastUse { id, stream } => {
                let last = (at, self.terminals(*stream));
                let inside = self.members.is_inside(*stream);
                if let Some(block) = self.capture.blocks.get_mut(id) {
                    block.uses.insert(*stream, Some(last).filter(|_| inside));
                }
            }
            Operation::Free { id } => self.free(at, *id),
            Operation::Begin { .. } | Operation::End {} => {}
        }
    }

    /// Adds a node with its edges.
    fn add(&mut self, edges: Vec<Edge>) {
        let early = &mut self.capture.early;
        early.grow(self.capture.edges.len() + 1);
        edges.iter().filter(|it| it.programmatic).for_each(|it| early.insert(it.from as usize));
        self.capture.edges.push(edges);
    }

    fn terminals(&self, stream: StreamIndex) -> Vec<NodeIndex> {
        self.sights.get(&stream).map(|sight| sight.terminals.clone()).unwrap_or_default()
    }

    /// Gives a stream new terminals.
    fn move_to(&mut self, at: usize, stream: StreamIndex, terminals: Vec<NodeIndex>) {
        let sight = self.sights.entry(stream).or_default();
        sight.nodes.grow(self.capture.edges.len());
        let mut stack = terminals.clone();
        sight.terminals = terminals;
        while let Some(node) = stack.pop() {
            if !sight.nodes.put(node as usize) {
                sight.gains.push((at, node));
                stack.extend(self.capture.edges[node as usize].iter().map(|edge| edge.from));
            }
        }
    }

    fn free(&mut self, at: usize, id: BlockIndex) {
        let Some(block) = self.capture.blocks.get_mut(&id) else { return };
        let mut freed = Freed::default();
        for (&stream, last) in &block.uses {
            if last.is_none() && !self.members.is_inside(stream) {
                return;
            }
            let Some(sight) = self.sights.get(&stream) else { continue };
            let (end, markers) = match last {
                Some((end, markers)) => (*end, markers),
                None => (at, &sight.terminals),
            };
            freed.markers.extend_from_slice(markers);
            let first = sight.gains.partition_point(|gain| gain.0 <= block.at);
            let gains = sight.gains[first..].iter().take_while(|gain| gain.0 <= end);
            let own = stream == block.stream;
            let list = if own { &mut freed.own } else { &mut freed.others };
            list.extend(gains.map(|gain| gain.1));
        }
        block.freed = Some(freed);
    }
}
