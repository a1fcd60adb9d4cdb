//! What is known of one capture: its DAG as far as it was seen, what each stream's next work comes
//! after, and who waits for which node.
//!
//! * [`order`]: what an edge proves.
//! * [`dag`]: the mirrored nodes, each asked of the driver once.
//! * [`places`]: which index a node's handle has.
//! * [`rows`]: which nodes each depends on; [`windows`]: which of the latest lie behind it.
//! * [`reach`]: per stream, the nodes proven to precede its next work.
//! * [`watch`]: who waits for which node to be proven.
//!
//! [`Capture::proves`] is the one proof of the engine: nothing is handed out in a capture unless
//! it has said yes to every marker.

mod dag;
mod order;
mod places;
mod reach;
mod rows;
mod watch;
mod windows;

use smallvec::SmallVec;

pub use dag::NodeIndex;
pub use watch::Token;

use crate::driver::{Dependency, Driver, NodeHandle, StreamHandle};
use crate::index::{define_index, new_map, Map};
use crate::journal::{Entry, Journal};
use crate::policy::Programmatic;
use crate::recent::Recent;
use dag::Dag;
use reach::{Reach, Rules, Step, Terminals};
use watch::WatchLists;
use windows::WORD;

define_index! {
    /// A stream that was seen in a capture, in order of first sight.
    pub StreamIndex
}

/// Nodes that must precede new work.
pub type Markers = SmallVec<[NodeIndex; 8]>;

/// A moment in the capture's host order: a counter that every allocation and every change of a
/// stream advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

#[derive(Debug)]
struct Stream {
    handle: StreamHandle,
    reach: Reach,
    /// When a look last found other terminals than the look before.
    changed: Moment,
    /// When a look last found a [`Step::Broken`].
    broken: Option<Moment>,
    /// When it last came to follow nodes that had been seen on other streams.
    learned: Moment,
    watches: WatchLists,
}

/// One capture under way.
#[derive(Debug)]
pub struct Capture {
    programmatic: Programmatic,
    dag: Dag,
    streams: Vec<Stream>,
    by_handle: Map<StreamHandle, StreamIndex>,
    recent: Recent<StreamIndex, 32>,
    /// The terminals of a look, by index; kept for its capacity.
    indices: Terminals,
    now: Moment,
    heed_set_back: bool,
}

impl Capture {
    /// `heed_set_back` is false only in tests that take this rule out of the engine.
    pub fn new(programmatic: Programmatic, heed_set_back: bool) -> Self {
        Self {
            programmatic,
            heed_set_back,
            dag: Dag::new(programmatic),
            streams: Vec::new(),
            by_handle: new_map(),
            recent: Recent::new(),
            indices: Terminals::new(),
            now: Moment::default(),
        }
    }

    /// The index of a stream that was seen in this capture.
    pub fn stream(&self, handle: StreamHandle) -> Option<StreamIndex> {
        self.by_handle.get(&handle).copied()
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

    /// Takes in a stream's terminals as the driver gave them just now. The tokens that waited on
    /// this stream for nodes that are proven now go into `woken`.
    pub fn look<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        handle: StreamHandle,
        terminals: &[Dependency],
        mut journal: Option<&mut Journal>,
        woken: &mut Vec<Token>,
    ) -> StreamIndex {
        let mut known = self.recent.get(handle.bits());
        if known.is_none() {
            known = self.stream(handle);
            if let Some(stream) = known {
                self.recent.put(handle.bits(), stream);
            }
        }
        if let Some(stream) = known {
            if self.streams[stream.index()].reach.raw_terminals() == terminals {
                return stream;
            }
        }
        self.indices.clear();
        let seen = self.dag.len();
        for terminal in terminals {
            let node = self.dag.insert(driver, terminal.node, journal.as_deref_mut());
            self.indices.push((node, self.dag.order(terminal.edge)));
        }
        if let Some(journal) = journal {
            journal.push(Entry::Terminals { stream: handle, terminals });
        }
        let stream = known.unwrap_or_else(|| self.enter(handle));
        let now = self.tick();
        let rules = Rules { programmatic: self.programmatic, heed_set_back: self.heed_set_back };
        let Stream { reach, watches, changed, broken, learned, .. } =
            &mut self.streams[stream.index()];
        let mut lowest = usize::MAX;
        let step = reach.advance(&self.dag, rules, terminals, &self.indices, |word, nodes| {
            lowest = lowest.min(word * WORD + nodes.trailing_zeros() as usize);
            watches.fire(word, nodes, woken)
        });
        *changed = now;
        if lowest < seen {
            *learned = now;
        }
        if step == Step::Broken {
            *broken = Some(now);
        }
        stream
    }

    /// Enters into the journal that a stream's terminals are still those of the last look. What other
    /// streams were seen to launch since is not this one's then.
    pub fn confirm(&self, stream: StreamIndex, journal: &mut Journal) {
        let Stream { handle, reach, .. } = &self.streams[stream.index()];
        journal.push(Entry::Terminals { stream: *handle, terminals: reach.raw_terminals() });
    }

    /// Whether every marker is completed before any next work of the stream starts.
    #[inline]
    pub fn proves(&self, stream: StreamIndex, markers: &[NodeIndex]) -> bool {
        self.unproven(stream, markers).is_none()
    }

    /// The first marker that is not proven for the stream.
    #[inline]
    pub fn unproven(&self, stream: StreamIndex, markers: &[NodeIndex]) -> Option<NodeIndex> {
        let reach = &self.streams[stream.index()].reach;
        markers.iter().copied().find(|&marker| !reach.proves(marker))
    }

    /// Lets a token wait until this marker is proven for the stream.
    pub fn watch(&mut self, stream: StreamIndex, marker: NodeIndex, token: Token) {
        self.streams[stream.index()].watches.watch(marker, token);
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

    /// Whether a look after `since` found that users of blocks in use on the stream may escape
    /// their markers.
    #[inline]
    pub fn broken_since(&self, stream: StreamIndex, since: Moment) -> bool {
        self.streams[stream.index()].broken.is_some_and(|broken| broken > since)
    }

    /// When the stream last came to follow nodes that had been seen before, on other streams. Since
    /// then nothing but its own work has become proven for it.
    #[inline]
    pub fn learned(&self, stream: StreamIndex) -> Moment {
        self.streams[stream.index()].learned
    }

    /// The present moment.
    #[inline]
    pub fn now(&self) -> Moment {
        self.now
    }

    fn enter(&mut self, handle: StreamHandle) -> StreamIndex {
        let stream = StreamIndex::new(self.streams.len());
        self.streams.push(Stream {
            handle,
            reach: Reach::default(),
            changed: Moment::default(),
            broken: None,
            learned: Moment::default(),
            watches: WatchLists::default(),
        });
        self.by_handle.insert(handle, stream);
        stream
    }
}
