//! A capture's journal as a trace, in the raw form.

use std::collections::hash_map::{Entry as Slot, HashMap};

use thiserror::Error;

use super::{
    BlockIndex, InvalidTrace, Labels, NodeIndex, Operation, PoolIndex, StreamIndex, Trace,
};
use regraph::driver::{CaptureId, Dependency, Driver, EdgeData, NodeHandle, StreamHandle};
use regraph::engine::{Engine, Error};
use regraph::snapshot::Frame;
use regraph_record::journal::{BlockNumber, Entry, Journal, Nodes};

/// Why a journal has no trace.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The format numbers fewer streams.
    #[error("the journal has {0} streams; a trace numbers at most 65535 and one outside")]
    Streams(usize),
    /// The format numbers fewer nodes or blocks.
    #[error("the journal has more than 2^32 - 1 nodes or blocks")]
    Numbers,
    /// The nodes of the journal depend on each other in a circle.
    #[error("node {0:?} depends on itself")]
    Circle(NodeHandle),
    /// The journal breaks a rule of the format: a block of zero bytes, or one freed twice.
    #[error(transparent)]
    Invalid(#[from] InvalidTrace),
    /// The capture is not under way, or its engine keeps no journal.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// What is known of a capture beside its journal: where its blocks came from, and what its kernels are called.
#[derive(Default)]
pub struct Sources<'a> {
    stacks: HashMap<BlockNumber, Vec<Frame>>,
    kernel_name: Option<Box<dyn Fn(NodeHandle) -> Option<String> + 'a>>,
}

impl<'a> Sources<'a> {
    /// Of a capture that an engine has under way, and that has not ended in the driver: stacks as far as the host gave
    /// them or the settings ask for them (`stacks`), names as far as the driver tells them.
    ///
    /// # Errors
    /// As of [`HostCalls::origins`](regraph::engine::HostCalls::origins).
    pub fn of<D: Driver>(engine: &'a Engine<D>, capture: CaptureId) -> Result<Self, Error> {
        let kernel_name = |node| engine.driver().kernel_name(node);
        Ok(Self {
            stacks: engine.host().origins(capture)?.into_iter().collect(),
            kernel_name: Some(Box::new(kernel_name)),
        })
    }
}

/// A capture that an engine has under way and that began on `origin`, as far as it has come: for a file
/// ([`write`](super::write)), of which `regraph plot` shows where the blocks lie and which lines of code asked for them.
/// Lines are known where the engine has the setting `stacks` and `regraph` the feature of that name.
///
/// ```
/// use regraph::driver::HostApi;
/// use regraph::graphs::Capture;
///
/// /// To be called behind all that is captured.
/// fn write_trace<D: HostApi>(capture: &Capture<D>) -> Result<(), Box<dyn std::error::Error>> {
///     let trace = regraph_trace::from_capture(&capture.engine(), capture.id(), capture.stream())?;
///     Ok(regraph_trace::write(&trace, std::fs::File::create("capture.jsonl")?)?)
/// }
/// ```
///
/// # Errors
/// Those of [`from_journal`], and of [`HostCalls::journal`](regraph::engine::HostCalls::journal); [`Error::NoJournal`]
/// where the engine has neither the checker nor [`Config::journal`](regraph::engine::Config::journal).
pub fn from_capture<D: Driver>(
    engine: &Engine<D>,
    capture: CaptureId,
    origin: StreamHandle,
) -> Result<Trace, JournalError> {
    let journal = engine.host().journal(capture)?;
    let journal = journal.ok_or(Error::NoJournal { call: "from_capture", capture })?;
    from_journal(&journal, origin, 0, &Sources::of(engine, capture)?)
}

/// The journal of a capture that began on `origin` and allocates from the pool that the trace
/// calls `pool`, with labels from `sources`.
///
/// Streams are numbered in order of appearance, the origin first; nodes likewise, dependencies before dependents;
/// blocks in order of allocation. Blocks that the capture did not allocate are left out. A use outside the capture
/// becomes a use on a stream that never enters it. The format knows full and programmatic edges; any other edge is left
/// out, since it promises less than both. A terminal with an edge that is not full counts as a marker of a free and not
/// as proof for an allocation.
///
/// # Errors
/// A journal beyond the numbers of the format, or one that breaks its rules.
pub fn from_journal(
    journal: &Journal,
    origin: StreamHandle,
    pool: PoolIndex,
    sources: &Sources<'_>,
) -> Result<Trace, JournalError> {
    let mut writer = Writer::new(journal, origin, sources)?;
    writer.operations.push(Operation::Begin { stream: 0, pool });
    for entry in journal.iter() {
        writer.entry(entry)?;
    }
    writer.operations.push(Operation::End {});
    Ok(Trace::new(writer.operations)?.with_labels(writer.labels))
}

/// A stream's terminals as last answered, and as last written.
#[derive(Default)]
struct Terminals {
    all: Vec<NodeIndex>,
    full: Vec<NodeIndex>,
    written: Option<Vec<NodeIndex>>,
}

struct Writer<'a> {
    operations: Vec<Operation>,
    streams: HashMap<StreamHandle, StreamIndex>,
    outside: StreamIndex,
    dependencies: HashMap<NodeHandle, Nodes<'a>>,
    /// Numbered nodes; a node without a number is being visited.
    nodes: HashMap<NodeHandle, Option<NodeIndex>>,
    node_count: NodeIndex,
    blocks: HashMap<BlockNumber, BlockIndex>,
    block_count: BlockIndex,
    terminals: HashMap<StreamIndex, Terminals>,
    sources: &'a Sources<'a>,
    labels: Labels,
}

impl<'a> Writer<'a> {
    fn new(
        journal: &'a Journal,
        origin: StreamHandle,
        sources: &'a Sources<'a>,
    ) -> Result<Self, JournalError> {
        let mut order = vec![origin];
        let mut seen: HashMap<StreamHandle, usize> = HashMap::new();
        seen.insert(origin, 0);
        let mut dependencies_of = HashMap::new();
        for entry in journal.iter() {
            match entry {
                Entry::Terminals { stream, .. }
                | Entry::Allocate { stream, .. }
                | Entry::Use { stream, .. }
                | Entry::LastUse { stream, .. } => {
                    if let Slot::Vacant(slot) = seen.entry(stream) {
                        slot.insert(order.len());
                        order.push(stream);
                    }
                }
                Entry::Node { node, dependencies } => {
                    dependencies_of.entry(node).or_insert(dependencies);
                }
                _ => {}
            }
        }
        let too_many = JournalError::Streams(order.len());
        let Ok(outside) = StreamIndex::try_from(order.len()) else {
            return Err(too_many);
        };
        Ok(Self {
            operations: Vec::new(),
            streams: order.into_iter().zip(0..outside).collect(),
            outside,
            dependencies: dependencies_of,
            nodes: HashMap::new(),
            node_count: 0,
            blocks: HashMap::new(),
            block_count: 0,
            terminals: HashMap::new(),
            sources,
            labels: Labels::default(),
        })
    }

    fn entry(&mut self, entry: Entry<'_>) -> Result<(), JournalError> {
        match entry {
            Entry::Terminals { stream, terminals } => self.look(stream, terminals)?,
            Entry::Node { node, .. } => {
                self.number(node)?;
            }
            Entry::Allocate { block, stream, bytes, .. } => {
                let stream = self.streams[&stream];
                self.show(stream, false);
                let id = self.block_count;
                self.block_count = id.checked_add(1).ok_or(JournalError::Numbers)?;
                self.blocks.insert(block, id);
                self.operations.push(Operation::Alloc { id, bytes, stream });
                if let Some(stack) = self.sources.stacks.get(&block) {
                    self.labels.place_block(id, stack.as_slice());
                }
            }
            Entry::Use { block, stream } => {
                if let Some(&id) = self.blocks.get(&block) {
                    let stream = self.streams[&stream];
                    self.operations.push(Operation::Use { id, stream });
                }
            }
            Entry::LastUse { block, stream } => {
                if let Some(&id) = self.blocks.get(&block) {
                    let stream = self.streams[&stream];
                    self.show(stream, true);
                    self.operations.push(Operation::LastUse { id, stream });
                }
            }
            Entry::Outside { block } => {
                if let Some(&id) = self.blocks.get(&block) {
                    let stream = self.outside;
                    self.operations.push(Operation::Use { id, stream });
                }
            }
            Entry::Free { block } => {
                // A freed block is forgotten: what is outside of the capture may still name it.
                if let Some(id) = self.blocks.remove(&block) {
                    let mut streams: Vec<_> = self.terminals.keys().copied().collect();
                    streams.sort_unstable();
                    for stream in streams {
                        self.show(stream, true);
                    }
                    self.operations.push(Operation::Free { id });
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
        Ok(())
    }

    fn look(&mut self, stream: StreamHandle, terminals: Nodes<'_>) -> Result<(), JournalError> {
        let mut all = Vec::with_capacity(terminals.len());
        let mut full = Vec::new();
        for terminal in terminals.iter() {
            let node = self.number(terminal.node)?;
            if !all.contains(&node) {
                all.push(node);
            }
            if terminal.edge == EdgeData::FULL && !full.contains(&node) {
                full.push(node);
            }
        }
        let stream = self.streams[&stream];
        let state = self.terminals.entry(stream).or_default();
        state.all = all;
        state.full = full;
        self.show(stream, true);
        Ok(())
    }

    /// Writes a stream's terminals unless they stand so already: all of them where they are to be
    /// markers, those that prove completion where they are to be proof.
    fn show(&mut self, stream: StreamIndex, as_markers: bool) {
        let Some(state) = self.terminals.get_mut(&stream) else {
            return;
        };
        let wanted = if as_markers { &state.all } else { &state.full };
        if state.written.as_ref() == Some(wanted) {
            return;
        }
        self.operations.push(Operation::Terminals { stream, nodes: wanted.clone() });
        state.written = Some(wanted.clone());
    }

    /// The number of a node, which is written behind its dependencies if it is new.
    fn number(&mut self, node: NodeHandle) -> Result<NodeIndex, JournalError> {
        let mut stack = vec![node];
        while let Some(&top) = stack.last() {
            match self.nodes.get(&top) {
                Some(Some(_)) => {
                    stack.pop();
                }
                None => {
                    self.nodes.insert(top, None);
                    for dependency in self.said(top) {
                        match self.nodes.get(&dependency.node) {
                            Some(Some(_)) => {}
                            Some(None) => return Err(JournalError::Circle(dependency.node)),
                            None => stack.push(dependency.node),
                        }
                    }
                }
                Some(None) => {
                    stack.pop();
                    let index = self.write_node(top)?;
                    self.nodes.insert(top, Some(index));
                }
            }
        }
        match self.nodes.get(&node) {
            Some(Some(index)) => Ok(*index),
            _ => Err(JournalError::Circle(node)),
        }
    }

    /// The dependencies of a node that a trace can say.
    fn said(&self, node: NodeHandle) -> impl Iterator<Item = Dependency> + 'a {
        let dependencies = self.dependencies.get(&node).copied().unwrap_or_default();
        dependencies.iter().filter(|dependency| {
            dependency.edge == EdgeData::FULL || dependency.edge == EdgeData::PROGRAMMATIC
        })
    }

    fn write_node(&mut self, handle: NodeHandle) -> Result<NodeIndex, JournalError> {
        let node = self.node_count;
        self.node_count = node.checked_add(1).ok_or(JournalError::Numbers)?;
        let mut after = Vec::new();
        let mut programmatic = Vec::new();
        for dependency in self.said(handle) {
            let Some(&Some(index)) = self.nodes.get(&dependency.node) else {
                return Err(JournalError::Circle(handle));
            };
            if !after.contains(&index) {
                after.push(index);
            }
            if dependency.edge == EdgeData::PROGRAMMATIC && !programmatic.contains(&index) {
                programmatic.push(index);
            }
        }
        // Two edges between the same nodes: the stronger one counts.
        for dependency in self.said(handle) {
            if dependency.edge == EdgeData::FULL {
                let full = self.nodes.get(&dependency.node).copied().flatten();
                programmatic.retain(|index| Some(*index) != full);
            }
        }
        if let Some(name) = self.sources.kernel_name.as_ref().and_then(|ask| ask(handle)) {
            self.labels.name_node(0, node, name);
        }
        self.operations.push(Operation::Node {
            node,
            after,
            kind: None,
            uses: Vec::new(),
            programmatic,
        });
        Ok(node)
    }
}
