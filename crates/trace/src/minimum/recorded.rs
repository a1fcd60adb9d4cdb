//! The captures of a trace as journals, read off the trace alone.

use std::collections::{BTreeMap, HashMap};

use crate::certify::BLOCK_MULTIPLE;
use crate::{BlockIndex, Members, NodeIndex, Operation, StreamIndex, Trace};
use regraph::driver::{Dependency, EdgeData, NodeHandle, StreamHandle};
use regraph_record::journal::{BlockNumber, Entry, Journal};

/// One capture. Handles and blocks have the trace's numbers, nodes one more; addresses are zero.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) nodes: usize,
    pub(super) blocks: usize,
    pub(super) journal: Journal,
}

/// The captures of a trace.
pub(super) fn captures(trace: &Trace) -> Vec<Recorded> {
    let operations = trace.operations();
    let capture = |(at, operation): (usize, &Operation)| match *operation {
        Operation::Begin { stream, .. } => {
            let operations = &operations[at + 1..];
            Some(Recorder::new(stream, operations).run(operations))
        }
        _ => None,
    };
    operations.iter().enumerate().filter_map(capture).collect()
}

/// The stream of a trace.
fn stream_handle(stream: StreamIndex) -> StreamHandle {
    StreamHandle::from_bits(stream.into())
}

/// The stream's number.
pub(super) fn stream_index(stream: StreamHandle) -> StreamIndex {
    StreamIndex::try_from(stream.bits()).expect("made from one")
}

fn node_handle(node: NodeIndex) -> NodeHandle {
    NodeHandle::from_bits(node as usize + 1)
}

/// The node's number.
pub(super) fn node_index(node: NodeHandle) -> NodeIndex {
    NodeIndex::try_from(node.bits() - 1).expect("made from one")
}

struct Recorder {
    recorded: Recorded,
    members: Members,
    terminals: HashMap<StreamIndex, Vec<NodeIndex>>,
    /// The capture's live blocks: the streams that use each, and whether their last use is recorded.
    live: HashMap<BlockIndex, BTreeMap<StreamIndex, bool>>,
}

impl Recorder {
    fn new(origin: StreamIndex, operations: &[Operation]) -> Self {
        Self {
            recorded: Recorded { nodes: 0, blocks: 0, journal: Journal::new() },
            members: Members::new(origin, operations),
            terminals: HashMap::new(),
            live: HashMap::new(),
        }
    }

    fn run(mut self, operations: &[Operation]) -> Recorded {
        for operation in operations {
            if matches!(operation, Operation::End {}) {
                break;
            }
            for stream in operation.streams() {
                self.members.enters_at_once(stream);
            }
            self.operation(operation);
        }
        self.recorded
    }

    fn operation(&mut self, operation: &Operation) {
        match operation {
            &Operation::Kernel { stream, programmatic, .. } => {
                let before = self.terminals.get(&stream).cloned().unwrap_or_default();
                let node = self.recorded.nodes as NodeIndex;
                self.node(&before, |_| programmatic);
                self.move_to(stream, vec![node]);
            }
            Operation::Node { after, programmatic, .. } => {
                self.node(after, |node| programmatic.contains(&node));
            }
            &Operation::Wait { stream, on } => {
                if self.members.waits(stream, on) {
                    let mut terminals = self.terminals.get(&stream).cloned().unwrap_or_default();
                    let more = self.terminals.get(&on).cloned().unwrap_or_default();
                    for node in more {
                        if !terminals.contains(&node) {
                            terminals.push(node);
                        }
                    }
                    self.move_to(stream, terminals);
                }
            }
            Operation::Terminals { stream, nodes } => self.move_to(*stream, nodes.clone()),
            &Operation::Alloc { id, bytes, stream } => {
                if self.members.is_inside(stream) {
                    self.look(stream);
                    self.recorded.blocks += 1;
                    self.live.insert(id, BTreeMap::from([(stream, false)]));
                    let (block, stream) = (BlockNumber(id.into()), stream_handle(stream));
                    let bytes = bytes.next_multiple_of(BLOCK_MULTIPLE);
                    self.push(Entry::Allocate { block, stream, address: 0, bytes });
                }
            }
            &Operation::Use { id, stream } => self.set_use(id, stream, false),
            &Operation::LastUse { id, stream } => {
                let inside = self.members.is_inside(stream);
                self.set_use(id, stream, inside);
            }
            &Operation::Free { id } => {
                if let Some(uses) = self.live.remove(&id) {
                    self.free(id, &uses);
                }
            }
            Operation::Begin { .. } | Operation::End {} => {}
        }
    }

    fn push(&mut self, entry: Entry<'_>) {
        self.recorded.journal.push(entry);
    }

    fn node(&mut self, after: &[NodeIndex], programmatic: impl Fn(NodeIndex) -> bool) {
        let dependency = |&node: &NodeIndex| {
            let edge = if programmatic(node) { EdgeData::PROGRAMMATIC } else { EdgeData::FULL };
            Dependency { node: node_handle(node), edge }
        };
        let dependencies: Vec<_> = after.iter().map(dependency).collect();
        let node = node_handle(self.recorded.nodes as NodeIndex);
        self.push(Entry::Node { node, dependencies: (&dependencies).into() });
        self.recorded.nodes += 1;
    }

    fn move_to(&mut self, stream: StreamIndex, terminals: Vec<NodeIndex>) {
        if self.terminals.get(&stream) == Some(&terminals) {
            return;
        }
        let full: Vec<_> =
            terminals.iter().map(|&node| Dependency::full(node_handle(node))).collect();
        self.push(Entry::Terminals { stream: stream_handle(stream), terminals: (&full).into() });
        self.terminals.insert(stream, terminals);
    }

    /// Each stream is looked at before it is asked for anything.
    fn look(&mut self, stream: StreamIndex) {
        if !self.terminals.contains_key(&stream) {
            self.move_to(stream, Vec::new());
        }
    }

    fn set_use(&mut self, id: BlockIndex, stream: StreamIndex, last: bool) {
        let Some(uses) = self.live.get_mut(&id) else { return };
        uses.insert(stream, last);
        let (block, handle) = (BlockNumber(id.into()), stream_handle(stream));
        if last {
            self.look(stream);
            self.push(Entry::LastUse { block, stream: handle });
        } else {
            self.push(Entry::Use { block, stream: handle });
        }
    }

    fn free(&mut self, id: BlockIndex, uses: &BTreeMap<StreamIndex, bool>) {
        let block = BlockNumber(id.into());
        for (&stream, _) in uses.iter().filter(|used| !used.1) {
            if self.members.is_inside(stream) {
                self.look(stream);
            } else {
                self.push(Entry::Outside { block });
            }
        }
        self.push(Entry::Free { block });
    }
}
