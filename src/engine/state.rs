//! Everything behind the engine's lock, and what its calls have in common.

use smallvec::SmallVec;

use super::block::Blocks;
use super::config::{Config, Flaw};
use super::deferred::Deferred;
use super::pool::Pool;
use super::recording::Recording;
use super::report::{GraphId, PoolId};
use super::Error;
use crate::capture::{Capture, StreamIndex, Token};
use crate::driver::{CaptureId, CaptureStatus, Dependency, Driver, StreamHandle};
use crate::heap::{CaptureSlot, Heap};
use crate::index::{new_map, Map};
use crate::journal::{Entry, Journal};
use crate::policy::{Programmatic, Reuse};

/// The engine's state. Fields are borrowed apart from each other: a capture proves while a heap
/// searches.
#[derive(Debug)]
pub(super) struct State {
    pub(super) pools: Vec<Option<Pool>>,
    pub(super) heaps: Vec<Option<Heap>>,
    pub(super) recordings: Vec<Option<Recording>>,
    pub(super) blocks: Blocks,
    pub(super) deferred: Vec<Deferred>,
    pub(super) graphs: Map<GraphId, SmallVec<[PoolId; 1]>>,
    pub(super) next_graph: u64,
    pub(super) next_age: u64,
    /// The latest answer of the driver; kept for its capacity.
    pub(super) terminals: Vec<Dependency>,
    woken: Vec<Token>,
}

/// How a stream stands to one capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is in the capture, and was looked at just now.
    Inside(StreamIndex),
    /// It is not, or nobody can tell.
    Outside,
    /// It is in a capture that is ruined.
    Invalidated,
}

pub(super) const GONE: &str = "heaps live as long as their pool, and rows name them";

impl State {
    pub(super) fn new() -> Self {
        Self {
            pools: Vec::new(),
            heaps: Vec::new(),
            recordings: Vec::new(),
            blocks: Blocks::default(),
            deferred: Vec::new(),
            graphs: new_map(),
            next_graph: 0,
            next_age: 0,
            terminals: Vec::new(),
            woken: Vec::new(),
        }
    }

    pub(super) fn pool(&mut self, pool: PoolId, call: &'static str) -> Result<&mut Pool, Error> {
        let row = self.pools.get_mut(pool.0 as usize);
        row.and_then(Option::as_mut).ok_or(Error::UnknownPool { call, pool })
    }

    pub(super) fn heap(&mut self, heap: u32) -> &mut Heap {
        self.heaps[heap as usize].as_mut().expect(GONE)
    }

    pub(super) fn recording(&mut self, slot: CaptureSlot) -> &mut Recording {
        self.recordings[slot.index()].as_mut().expect("the slot of a capture under way")
    }

    pub(super) fn slot(&self, capture: CaptureId) -> Option<CaptureSlot> {
        let rows = self.recordings.iter();
        rows.enumerate()
            .find(|(_, row)| row.as_ref().is_some_and(|recording| recording.id == capture))
            .map(|(row, _)| CaptureSlot::new(row))
    }

    /// The row of a capture, new at its first sight, and known to use the pool from now on.
    pub(super) fn enter(
        &mut self,
        config: &Config,
        capture: CaptureId,
        pool: PoolId,
    ) -> CaptureSlot {
        let slot = self.slot(capture).unwrap_or_else(|| self.add_recording(config, capture));
        if !self.recording(slot).pools.contains(&pool) {
            self.join_pool(slot, pool);
        }
        slot
    }

    fn add_recording(&mut self, config: &Config, id: CaptureId) -> CaptureSlot {
        let trusted =
            if config.lacks(Flaw::EdgeKinds) { Programmatic::Trust } else { config.programmatic };
        self.next_age += 1;
        let recording = Recording {
            id,
            age: self.next_age,
            capture: Capture::new(trusted, !config.lacks(Flaw::SetBack)),
            journal: (config.check || config.journal).then(Journal::new),
            pools: SmallVec::new(),
            blocks: 0,
            held: Vec::new(),
            left: Vec::new(),
        };
        let vacant = self.recordings.iter().position(Option::is_none);
        let row = vacant.unwrap_or(self.recordings.len());
        if row == self.recordings.len() {
            self.recordings.push(None);
        }
        self.recordings[row] = Some(recording);
        CaptureSlot::new(row)
    }

    /// Notes that a capture uses a pool, and what lies there that is not the capture's own.
    fn join_pool(&mut self, slot: CaptureSlot, pool: PoolId) {
        let Self { pools, heaps, recordings, blocks, deferred, .. } = self;
        let recording = recordings[slot.index()].as_mut().expect("just entered");
        recording.pools.push(pool);
        let Some(Some(row)) = pools.get_mut(pool.0 as usize) else {
            return;
        };
        row.recordings += 1;
        if recording.journal.is_none() {
            return;
        }
        let mut strangers = Vec::new();
        for block in blocks.iter().filter(|block| block.pool == pool) {
            let (address, bytes) =
                heaps[block.heap as usize].as_ref().expect(GONE).extent(block.range);
            strangers.push((block.number, address, bytes));
        }
        for waiting in deferred.iter().filter(|waiting| waiting.pool == pool) {
            let (address, bytes) =
                heaps[waiting.heap as usize].as_ref().expect(GONE).extent(waiting.range);
            strangers.push((waiting.number, address, bytes));
        }
        for heap in [row.small, row.large] {
            let heap = heaps[heap as usize].as_ref().expect(GONE);
            for (owner, address, bytes) in heap.given_back() {
                let number = blocks.number();
                strangers.push((number, address, bytes));
                if let Some(Some(owner)) = recordings.get_mut(owner.index()) {
                    owner.left.push((pool, number));
                }
            }
        }
        let recording = recordings[slot.index()].as_mut().expect("just entered");
        let Some(journal) = &mut recording.journal else {
            return;
        };
        for (block, address, bytes) in strangers {
            journal.push(Entry::Standing { block, address, bytes });
        }
    }

    /// Takes in the terminals that the driver has just given for a stream of a capture.
    pub(super) fn look<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        slot: CaptureSlot,
        stream: StreamHandle,
    ) -> StreamIndex {
        let Self { heaps, recordings, terminals, woken, .. } = self;
        let recording = recordings[slot.index()].as_mut().expect("the slot of a capture under way");
        let markers = |token: Token| heaps.get(token.heap as usize)?.as_ref()?.markers(token);
        let journal = recording.journal.as_mut();
        let index = recording.capture.look(driver, stream, terminals, journal, markers, woken);
        let share = config.reuse == Reuse::CrossStream;
        for token in woken.drain(..) {
            heaps[token.heap as usize].as_mut().expect(GONE).learn(token, index, share);
        }
        index
    }

    /// Looks at a stream and says how it stands to a capture under way.
    pub(super) fn standing<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        (slot, id): (CaptureSlot, CaptureId),
        stream: StreamHandle,
    ) -> Standing {
        match driver.capture_status(stream, &mut self.terminals) {
            Ok(CaptureStatus::Active { capture, .. }) if capture == id => {
                Standing::Inside(self.look(driver, config, slot, stream))
            }
            Ok(CaptureStatus::Invalidated) => Standing::Invalidated,
            Ok(_) | Err(_) => Standing::Outside,
        }
    }

    /// Every capture under way that has seen this stream, and is ruined with it, is rolled back.
    pub(super) fn abandon_invalidated<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        stream: StreamHandle,
    ) {
        for row in 0..self.recordings.len() {
            let recording = self.recordings[row].as_ref();
            if recording.is_some_and(|recording| recording.capture.stream(stream).is_some()) {
                self.end(driver, CaptureSlot::new(row), false, false);
            }
        }
    }

    /// Frees what waits no longer, and tells the captures under way.
    pub(super) fn poll_deferred<D: Driver + ?Sized>(&mut self, driver: &D) {
        let Self { heaps, recordings, deferred, terminals, .. } = self;
        deferred.retain_mut(|waiting| {
            let under_way = |id| recordings.iter().flatten().any(|recording| recording.id == id);
            let beside: SmallVec<[CaptureId; 2]> = recordings
                .iter()
                .flatten()
                .filter(|recording| recording.pools.contains(&waiting.pool))
                .map(|recording| recording.id)
                .collect();
            if !waiting.poll(driver, terminals, under_way, &beside) {
                return true;
            }
            let heap = heaps[waiting.heap as usize].as_mut().expect(GONE);
            heap.free_waiting(waiting.range, waiting.graphs);
            for recording in recordings.iter_mut().flatten() {
                if let Some(journal) = &mut recording.journal {
                    journal.push(Entry::Settled { block: waiting.number });
                }
            }
            false
        });
    }

    /// The captures under way that use a pool.
    pub(super) fn under_way(&self, pool: PoolId) -> SmallVec<[CaptureId; 2]> {
        let recordings = self.recordings.iter().flatten();
        recordings
            .filter(|recording| recording.pools.contains(&pool))
            .map(|recording| recording.id)
            .collect()
    }

    /// Writes a fact into a capture's journal, where it keeps one.
    pub(super) fn note(&mut self, slot: CaptureSlot, entry: Entry<'_>) {
        if let Some(journal) = &mut self.recording(slot).journal {
            journal.push(entry);
        }
    }
}
