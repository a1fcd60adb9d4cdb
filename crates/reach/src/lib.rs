//! What is known of one CUDA graph capture: its DAG as far as it was seen, and what each stream's next work
//! comes after. It is the reachability of [regraph](https://docs.rs/regraph), and no part of that crate's
//! interface: anything here may change in any release.
//!
//! * `order`: what an edge proves.
//! * `dag`: the mirrored nodes, each asked of the driver once.
//! * `places`: which index a node's handle has.
//! * `rows`: which nodes each depends on; `windows`: which of the latest lie behind it.
//! * `reach`: per stream, the nodes proven to precede its next work.
//! * `foresight`: which launches to come may start early.
//!
//! A [`Proof`] is the one proof of the engine: nothing is handed out in a capture unless it covers every marker.
#![forbid(unsafe_code)]

mod dag;
mod foresight;
mod order;
mod places;
mod reach;
mod rows;
mod windows;

use std::sync::Arc;

use fixedbitset::Block;
use smallvec::SmallVec;

pub use dag::NodeIndex;
pub use foresight::Foresight;

use dag::Dag;
use foresight::Course;
use order::Order;
use reach::{Found, Reach, Rules, Step, Terminals};
use regraph_driver::{Dependency, Driver, NodeHandle, StreamHandle};
use regraph_record::index::{define_index, Map};
use regraph_record::journal::{Entry, Journal};
use regraph_record::policy::Programmatic;
use regraph_record::recent::{stream_key, Recent};
use windows::WORD;

define_index! {
    /// A stream that was seen in a capture, in order of first sight.
    pub StreamIndex
}

/// Nodes that must precede new work.
pub type Markers = SmallVec<[NodeIndex; 8]>;

/// A moment in the capture's host order: a counter that every allocation and every change of a stream advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// What kind of edges a capture expects to lead to its streams' next nodes.
#[derive(Clone, Debug, Default)]
pub enum Outlook {
    /// Full ones.
    #[default]
    Full,
    /// Each may be programmatic.
    Early,
    /// What earlier attempts tell, as long as this one asks for the same blocks.
    Foreseen(Arc<Foresight>),
}

#[derive(Debug)]
struct Stream {
    handle: StreamHandle,
    reach: Reach,
    course: Course,
    /// Whether the next look must prove everything anew.
    stale: bool,
    /// When a look last found other terminals than the look before.
    changed: Moment,
    /// When a look last found a [`Step::Broken`].
    broken: Option<Moment>,
}

/// One capture under way.
#[derive(Debug)]
pub struct Capture {
    outlook: Outlook,
    dag: Dag,
    streams: Vec<Stream>,
    by_handle: Map<StreamHandle, StreamIndex>,
    recent: Recent<StreamIndex, 64>,
    /// The terminals of a look, by index; kept for its capacity.
    indices: Terminals,
    found: Found,
    now: Moment,
    heed_set_back: bool,
    /// Of streams of captures before; cleared, and kept for what they have allocated.
    spare: Vec<Reach>,
}

/// Of a capture with more nodes nothing is kept for the next one.
const KEPT_NODES: usize = 1 << 12;

/// Of so many streams at most what is allocated is kept for the next capture.
const KEPT_STREAMS: usize = 16;

/// What is completed before any next work of one stream starts.
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// A bit for each node that is proven.
    nodes: &'a [Block],
    proven: Proven,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proven {
    Nothing,
    Nodes,
    Everything,
}

impl Proof<'_> {
    /// No node: for work outside captures.
    pub const NONE: Self = Self { nodes: &[], proven: Proven::Nothing };
    /// Every node, proven or not: only for tests that take the proof out of the engine.
    pub const FLAWED: Self = Self { nodes: &[], proven: Proven::Everything };

    /// Whether every marker is proven. Costs a bit for each.
    #[inline]
    pub fn covers(self, markers: &[NodeIndex]) -> bool {
        let is_proven = |marker: &NodeIndex| {
            let word = self.nodes.get(marker.index() / WORD);
            word.is_some_and(|word| word >> (marker.index() % WORD) & 1 != 0)
        };
        if markers.iter().all(is_proven) {
            self.proven != Proven::Nothing
        } else {
            self.proven == Proven::Everything
        }
    }
}

impl Capture {
    /// `heed_set_back` is false only in tests that take this rule out of the engine.
    pub fn new(programmatic: Programmatic, heed_set_back: bool) -> Self {
        Self {
            outlook: Outlook::default(),
            heed_set_back,
            dag: Dag::new(programmatic),
            streams: Vec::new(),
            by_handle: Map::default(),
            recent: Recent::default(),
            indices: Terminals::new(),
            found: Found::default(),
            now: Moment::default(),
            spare: Vec::new(),
        }
    }

    /// Forgets everything but what edges prove and are expected to be, so that another capture can be mirrored with what
    /// this one has allocated. False where that is too much to be kept: then it is to be dropped.
    pub fn clear(&mut self) -> bool {
        let Self {
            outlook: _,
            dag,
            streams,
            by_handle,
            recent,
            indices: _,
            found: _,
            now: _,
            heed_set_back: _,
            spare,
        } = self;
        if dag.len() > KEPT_NODES || streams.len() > KEPT_STREAMS {
            return false;
        }
        dag.clear();
        spare.extend(streams.drain(..).map(|Stream { handle, mut reach, .. }| {
            recent.forget(stream_key(handle));
            reach.clear();
            reach
        }));
        spare.truncate(KEPT_STREAMS);
        by_handle.clear();
        true
    }

    /// The index of a stream that was seen in this capture.
    pub fn stream(&self, handle: StreamHandle) -> Option<StreamIndex> {
        self.by_handle.get(&handle).copied()
    }

    /// How many streams were seen.
    #[inline]
    pub fn seen(&self) -> usize {
        self.streams.len()
    }

    /// Whether a stream is among those looked at of late. A quick look: false says nothing.
    #[inline]
    pub fn has_seen(&self, handle: StreamHandle) -> bool {
        self.recent.get(stream_key(handle)).is_some()
    }

    /// The driver's handle of a stream.
    pub fn stream_handle(&self, stream: StreamIndex) -> StreamHandle {
        self.streams[stream.index()].handle
    }

    /// All streams seen so far, in order of first sight.
    pub fn streams(&self) -> impl Iterator<Item = StreamIndex> {
        (0..self.streams.len()).map(StreamIndex::new)
    }

    /// The driver's handle of a node.
    pub fn node_handle(&self, node: NodeIndex) -> NodeHandle {
        self.dag.handle(node)
    }

    /// How many nodes are mirrored.
    pub fn nodes(&self) -> usize {
        self.dag.len()
    }

    /// How often the driver was asked for a node's dependencies.
    pub fn queries(&self) -> u64 {
        self.dag.queries()
    }

    /// Advances the host order and returns the new moment.
    pub fn tick(&mut self) -> Moment {
        self.now.0 += 1;
        self.now
    }

    /// The last moment of the host order.
    pub fn moment(&self) -> Moment {
        self.now
    }

    /// Takes in a stream's terminals as the driver gave them just now.
    #[inline]
    pub fn look<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        handle: StreamHandle,
        terminals: &[Dependency],
        journal: Option<&mut Journal>,
    ) -> StreamIndex {
        let known = self.recent.get(stream_key(handle));
        if let Some(stream) = known {
            let Stream { reach, stale, .. } = &self.streams[stream.index()];
            if reach.raw_terminals() == terminals && !stale {
                return stream;
            }
        }
        self.take_in(driver, (handle, known), terminals, journal)
    }

    /// [`Capture::look`], where they may have changed.
    fn take_in<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        (handle, mut known): (StreamHandle, Option<StreamIndex>),
        terminals: &[Dependency],
        mut journal: Option<&mut Journal>,
    ) -> StreamIndex {
        if known.is_none() {
            known = self.stream(handle);
            if let Some(stream) = known {
                self.recent.put(stream_key(handle), stream);
                let Stream { reach, stale, .. } = &self.streams[stream.index()];
                if reach.raw_terminals() == terminals && !stale {
                    return stream;
                }
            }
        }
        let stream = known.unwrap_or_else(|| self.enter(handle));
        let now = self.tick();
        let (next, foreseen) = self.next_edge(stream);
        let Self { dag, streams, indices, found, .. } = self;
        let mut mirror = |terminal: &Dependency| {
            let node = dag.insert(driver, terminal.node, journal.as_deref_mut());
            (node, dag.order(terminal.edge))
        };
        let only;
        let indices = match terminals {
            [terminal] => {
                only = [mirror(terminal)];
                &only[..]
            }
            _ => {
                indices.clear();
                indices.extend(terminals.iter().map(mirror));
                &indices[..]
            }
        };
        if let Some(journal) = journal {
            journal.push(Entry::Terminals { stream: handle, terminals: terminals.into() });
        }
        let Stream { reach, changed, broken, stale, .. } = &mut streams[stream.index()];
        let rules = Rules {
            next,
            foreseen,
            anew: std::mem::take(stale),
            heed_set_back: self.heed_set_back,
        };
        let stepped = reach.step(dag, rules, terminals, indices);
        let step = stepped.unwrap_or_else(|| reach.advance(dag, found, rules, terminals, indices));
        *changed = now;
        if step == Step::Broken {
            *broken = Some(now);
        }
        stream
    }

    /// What the edges to a stream's next node are expected to prove, and whether that may ever be [`Order::Start`].
    #[inline]
    fn next_edge(&self, stream: StreamIndex) -> (Order, bool) {
        match &self.outlook {
            Outlook::Full => (Order::Full, false),
            Outlook::Early => (Order::Start, true),
            Outlook::Foreseen(foresight) => {
                let (row, Stream { handle, course, .. }) =
                    (stream.index(), &self.streams[stream.index()]);
                if foresight.starts_early(row, *handle, *course) {
                    (Order::Start, true)
                } else {
                    (Order::Full, foresight.concerns(row, *handle))
                }
            }
        }
    }

    /// Whether any edge to come may be programmatic.
    pub fn is_early(&self) -> bool {
        matches!(self.outlook, Outlook::Early)
    }

    /// Whether a programmatic edge was seen, and edges to come were taken for full.
    pub fn is_surprised(&self) -> bool {
        !self.is_early() && self.dag.starts()
    }

    /// Changes what kind of edges is expected. The next look at each stream proves everything anew.
    pub fn set_outlook(&mut self, outlook: Outlook) {
        self.outlook = outlook;
        self.streams.iter_mut().for_each(|stream| stream.stale = true);
    }

    /// Says that a stream, which has just been looked at, asks for a block of so many bytes. Returns
    /// whether it must be looked at again first: it goes another way than was foreseen.
    #[inline]
    pub fn ask(&mut self, stream: StreamIndex, bytes: u64) -> bool {
        let Outlook::Foreseen(foresight) = &self.outlook else { return false };
        let Stream { course, stale, .. } = &mut self.streams[stream.index()];
        if course.astray || foresight.expects(stream.index(), *course, bytes) {
            return false;
        }
        course.astray = true;
        *stale = true;
        true
    }

    /// Says that a block was handed out to a stream.
    #[inline]
    pub fn hand_out(&mut self, stream: StreamIndex) {
        self.streams[stream.index()].course.allocations += 1;
    }

    /// Whether a block was handed out to one of its streams. Costs a look at each until one has.
    pub fn has_handed_out(&self) -> bool {
        self.streams.iter().any(|stream| stream.course.allocations > 0)
    }

    /// How many blocks were handed out to its streams. Costs a look at each.
    pub fn handed_out(&self) -> usize {
        self.streams.iter().map(|stream| stream.course.allocations).sum()
    }

    /// Enters into the journal that a stream's terminals are still those of the last look: it launched
    /// nothing of what other streams were seen to launch since.
    pub fn confirm(&self, stream: StreamIndex, journal: &mut Journal) {
        let Stream { handle, reach, .. } = &self.streams[stream.index()];
        journal.push(Entry::Terminals { stream: *handle, terminals: reach.raw_terminals().into() });
    }

    /// Enters into a journal that begins now what was seen by now: the nodes, whose dependencies the driver is
    /// asked for again, and the streams' terminals.
    pub fn tell_all<D: Driver + ?Sized>(&self, driver: &D, journal: &mut Journal) {
        let mut answer = Vec::new();
        for node in (0..self.dag.len()).map(NodeIndex::new) {
            dag::ask(driver, self.node_handle(node), &mut answer, &mut Some(&mut *journal));
        }
        self.streams().for_each(|stream| self.confirm(stream, journal));
    }

    /// What is proven for a stream.
    #[inline]
    pub fn proof(&self, stream: StreamIndex) -> Proof<'_> {
        let nodes = self.streams[stream.index()].reach.proven().as_slice();
        Proof { nodes, proven: Proven::Nodes }
    }

    /// Whether every marker is completed before any next work of the stream starts.
    #[inline]
    pub fn proves(&self, stream: StreamIndex, markers: &[NodeIndex]) -> bool {
        self.proof(stream).covers(markers)
    }

    /// The first marker that is not proven for the stream.
    #[inline]
    pub fn unproven(&self, stream: StreamIndex, markers: &[NodeIndex]) -> Option<NodeIndex> {
        let reach = &self.streams[stream.index()].reach;
        markers.iter().copied().find(|&marker| !reach.proves(marker))
    }

    /// Whether a marker would be proven if no launch to come started early.
    pub fn precedes(&self, stream: StreamIndex, marker: NodeIndex) -> bool {
        self.streams[stream.index()].reach.is_reached(marker)
    }

    /// The nodes that the stream's next node would depend on, at the last look.
    #[inline]
    pub fn terminals(&self, stream: StreamIndex) -> impl Iterator<Item = NodeIndex> + '_ {
        self.streams[stream.index()].reach.terminals().iter().map(|&(node, _)| node)
    }

    /// Whether a look after `since` found that the stream had gained or lost terminals.
    #[inline]
    pub fn changed_since(&self, stream: StreamIndex, since: Moment) -> bool {
        self.streams[stream.index()].changed > since
    }

    /// Whether a look after `since` found that users of blocks in use on the stream may escape their markers.
    #[inline]
    pub fn broken_since(&self, stream: StreamIndex, since: Moment) -> bool {
        self.streams[stream.index()].broken.is_some_and(|broken| broken > since)
    }

    fn enter(&mut self, handle: StreamHandle) -> StreamIndex {
        let stream = StreamIndex::new(self.streams.len());
        self.streams.push(Stream {
            handle,
            reach: self.spare.pop().unwrap_or_default(),
            course: Course::default(),
            stale: false,
            changed: Moment::default(),
            broken: None,
        });
        self.by_handle.insert(handle, stream);
        stream
    }
}
