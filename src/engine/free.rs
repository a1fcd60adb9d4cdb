//! Taking memory back.

use std::sync::Arc;

use smallvec::SmallVec;

use super::block::{Home, LastUse, LiveBlock, Origin, Use};
use super::config::{Config, Flaw};
use super::history::Action;
use super::lanes::Whereabouts;
use super::names::BlockId;
use super::recording::Held;
use super::report::WaitReason;
use super::state::{Standing, State};
use super::Error;
use crate::capture::{Markers, NodeIndex};
use crate::driver::{CaptureId, Driver, StreamHandle};
use crate::heap::{CaptureSlot, Freed};
use crate::journal::Entry;
use crate::policy::Reuse;

/// What the end of a block's use on all its streams came to.
#[derive(Default)]
struct Ending {
    markers: Markers,
    /// Whether any of its streams gained anything while it was live.
    worked: bool,
    /// Why its markers prove nothing, if they do not.
    reason: Option<WaitReason>,
    outside: SmallVec<[StreamHandle; 2]>,
}

impl State {
    pub(super) fn record_stream<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        id: BlockId,
        stream: StreamHandle,
    ) -> Result<(), Error> {
        const CALL: &str = "record_stream";
        let unknown = || Error::UnknownBlock { call: CALL, block: id.number() };
        let block = self.blocks.get_mut(id).ok_or_else(unknown)?;
        if let Origin::Capture(home) = block.origin {
            let place = (block.heap, block.range);
            if stream != block.stream || block.gone.is_some() {
                self.heed_use(driver, home.slot, place, stream);
            }
        }
        let block = self.blocks.get_mut(id).ok_or_else(unknown)?;
        let keep = config.lacks(Flaw::UseAfterLastUse);
        if stream == block.stream && block.gone.is_none() {
            block.last = block.last.take().filter(|_| keep);
        } else {
            match block.uses.iter_mut().find(|used| used.stream == stream) {
                Some(used) => used.last = used.last.take().filter(|_| keep),
                None => block.uses.push(Use { stream, last: None }),
            }
        }
        let number = block.number;
        if let Origin::Capture(home) = block.origin {
            self.note(home.slot, Entry::Use { block: number, stream });
        }
        Ok(())
    }

    pub(super) fn record_use<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        id: BlockId,
        stream: StreamHandle,
    ) -> Result<(), Error> {
        const CALL: &str = "record_use";
        let unknown = || Error::UnknownBlock { call: CALL, block: id.number() };
        let origin = self.blocks.get_mut(id).ok_or_else(unknown)?.origin;
        let Origin::Capture(home) = origin else {
            // Outside captures an event at the free covers every use.
            return self.record_stream(driver, config, id, stream);
        };
        let last = match self.standing(driver, (home.slot, home.capture), stream) {
            Standing::Inside(index) => {
                let capture = &self.recording(home.slot).capture;
                LastUse {
                    markers: capture.terminals(index).collect(),
                    worked: capture.changed_since(index, home.since),
                    broken: capture.broken_since(index, home.since),
                }
            }
            Standing::Outside => return self.record_stream(driver, config, id, stream),
            Standing::Invalidated => {
                self.abandon_invalidated(driver, config, stream);
                return Err(Error::CaptureInvalidated { call: CALL, stream });
            }
        };
        let block = self.blocks.get_mut(id).ok_or_else(unknown)?;
        let number = block.number;
        if stream == block.stream {
            block.last = Some(Box::new(last));
        } else {
            match block.uses.iter_mut().find(|used| used.stream == stream) {
                Some(used) => used.last = Some(Box::new(last)),
                None => block.uses.push(Use { stream, last: Some(Box::new(last)) }),
            }
        }
        self.note(home.slot, Entry::LastUse { block: number, stream });
        Ok(())
    }

    pub(super) fn free<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        id: BlockId,
    ) -> Result<(), Error> {
        let Some(block) = self.blocks.remove(id) else {
            return Err(Error::UnknownBlock { call: "free", block: id.number() });
        };
        match block.origin {
            Origin::Capture(home) if self.is_another_threads(home, &block) => {
                let id = self.blocks.insert_left(block);
                self.recording(home.slot).left.push(id);
            }
            _ => self.free_block(driver, config, block),
        }
        Ok(())
    }

    /// Whether a stream of the block's capture that used it may be another thread's to look at: that
    /// thread may be capturing on it.
    fn is_another_threads(&mut self, home: Home, block: &LiveBlock) -> bool {
        if self.is_kept_here(home.slot) {
            return false;
        }
        let Self { recordings, lanes, .. } = self;
        let Some(recording) = recordings[home.slot.index()].as_ref() else { return false };
        let own = block.last.is_none().then_some(block.stream);
        let others = block.uses.iter().filter(|used| used.last.is_none()).map(|used| used.stream);
        own.into_iter()
            .chain(others)
            .any(|stream| recording.capture.stream(stream).is_some() && !lanes.is_mine(stream))
    }

    /// Takes a block that is in the tables no more out of the figures.
    pub(super) fn count_out(&mut self, block: &LiveBlock) {
        if let Some(pool) = self.pools.get_mut(block.pool) {
            pool.remove_block();
            pool.count_out(block.heap, block.bytes, block.requested);
        }
        self.touch(block.heap);
    }

    /// Frees a block that is in the tables no more.
    pub(super) fn free_block<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        mut block: LiveBlock,
    ) {
        self.count_out(&block);
        match block.origin {
            Origin::Capture(home) => {
                let mut ending = Ending::default();
                let looked = self.ending(driver, config, &block, home, &mut ending);
                if let Err(ruined) = looked {
                    // Nothing of the capture will ever run: the block is as one from outside it.
                    block.roll_back();
                    self.abandon_invalidated(driver, config, ruined);
                    let pool = block.pool;
                    self.free_outside(driver, block);
                    self.forget_graphs(driver, pool);
                } else {
                    self.free_in_capture(driver, config, &mut block, home, ending);
                }
            }
            Origin::Outside | Origin::Past | Origin::Graph => {
                if config.lacks(Flaw::OlderBlocks) {
                    let LiveBlock { heap, range, number, before, origin, .. } = block;
                    let graphs = before.graphs || matches!(origin, Origin::Graph);
                    self.pools.heap_mut(heap).free_quiet(range, graphs, number);
                } else {
                    self.free_outside(driver, block);
                }
            }
        }
    }

    /// Frees a block that a front had on lease and may not keep.
    pub(super) fn free_leased<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        id: BlockId,
    ) -> Result<(), Error> {
        let unknown = Error::UnknownBlock { call: "free", block: id.number() };
        let fronts = Arc::clone(&self.fronts);
        let lease = fronts.get(id.front).and_then(|mut front| {
            let lease = front.give_up(id)?;
            self.unsettled |= !front.adjust_grants(&mut fronts.ledger());
            Some(lease)
        });
        let lease = lease.ok_or(unknown)?;
        let block = self.blocks.end_lease(lease.row);
        let mut block = block.expect("a front's leases are the engine's blocks");
        block.requested = lease.requested;
        block.uses = lease.uses.iter().map(|&stream| Use { stream, last: None }).collect();
        if let Some(pool) = self.pools.get_mut(block.pool) {
            pool.remove_block();
        }
        if config.lacks(Flaw::OlderBlocks) {
            self.pools.heap_mut(block.heap).free_quiet(
                block.range,
                block.before.graphs,
                block.number,
            );
        } else {
            self.free_outside(driver, block);
        }
        Ok(())
    }

    /// Looks at every stream that used a block and gathers its free markers; the error names a
    /// stream whose capture is ruined.
    fn ending<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        block: &LiveBlock,
        home: Home,
        ending: &mut Ending,
    ) -> Result<(), StreamHandle> {
        let own = (block.stream, &block.last, Flaw::OwnMarker);
        let others = block.uses.iter().map(|used| (used.stream, &used.last, Flaw::ForeignMarkers));
        for (stream, last, flaw) in std::iter::once(own).chain(others) {
            if let Some(last) = last {
                ending.worked |= last.worked;
                if last.broken {
                    ending.reason = Some(WaitReason::Untrusted(stream));
                }
                ending.add(config, flaw, last.markers.iter().copied());
                continue;
            }
            match self.standing(driver, (home.slot, home.capture), stream) {
                Standing::Inside(index) => {
                    let capture = &self.recording(home.slot).capture;
                    ending.worked |= capture.changed_since(index, home.since);
                    if capture.broken_since(index, home.since) {
                        ending.reason = Some(WaitReason::Untrusted(stream));
                    }
                    ending.add(config, flaw, capture.terminals(index));
                }
                Standing::Outside => {
                    self.keep_piece(block.heap, block.range);
                    ending.outside.push(stream);
                    self.note(home.slot, Entry::Outside { block: block.number });
                    if !config.lacks(Flaw::OutsideUses) {
                        ending.reason = Some(WaitReason::OutsideStream(stream));
                    }
                }
                Standing::Invalidated => return Err(stream),
            }
        }
        if config.settings.reuse == Reuse::Deferred && !block.uses.is_empty() {
            ending.reason.get_or_insert(WaitReason::Policy);
        }
        if let Some(nested) = self.nested_capture(home, block) {
            self.note(home.slot, Entry::Outside { block: block.number });
            if !config.lacks(Flaw::NestedCapture) {
                ending.reason.get_or_insert(WaitReason::NestedCapture(nested));
            }
        }
        Ok(())
    }

    /// A younger capture into the block's pool that is under way: it may be the body of a
    /// conditional node of the block's capture, and the block may be in use there.
    fn nested_capture(&self, home: Home, block: &LiveBlock) -> Option<CaptureId> {
        let mut recordings = self.recordings.iter().flatten();
        let own = recordings.clone().find(|recording| recording.id == home.capture)?.age;
        recordings
            .find(|other| other.age > own && other.pools.contains(&block.pool))
            .map(|other| other.id)
    }

    fn free_in_capture<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        block: &mut LiveBlock,
        home: Home,
        ending: Ending,
    ) {
        let &mut LiveBlock { number, pool, heap, range, requested, stream, .. } = block;
        let before = &mut block.before;
        let graphs = before.graphs;
        self.note(home.slot, Entry::Free { block: number });
        let (address, _) = self.pools.heap_mut(heap).extent(range);
        let action = if ending.reason.is_none() { Action::FreeCompleted } else { Action::Free };
        self.remember_from(action, (address, requested), Some(stream), pool, block.frames.take());
        if let Some(reason) = ending.reason {
            self.pools.heap_mut(heap).free_later(range, number);
            let mut outside = ending.outside;
            let mut marks = SmallVec::new();
            let mut graphs = graphs;
            outside.retain(|&mut stream| {
                match self.lanes.ask(driver, stream) {
                    // Recorded now where that is possible: the stream need not outlive the block.
                    Whereabouts::Outside => {
                        self.lanes.mark(driver, stream).map(|mark| marks.push(mark)).is_none()
                    }
                    // Another capture's graph may use the block.
                    Whereabouts::Inside(capture) => {
                        graphs = true;
                        if let Some(slot) = self.slot(capture) {
                            self.join_pool(driver, slot, pool);
                        }
                        true
                    }
                    // Any capture may be the one.
                    Whereabouts::Unclear => {
                        graphs = true;
                        for row in 0..self.recordings.len() {
                            if self.recordings[row].is_some() {
                                self.join_pool(driver, CaptureSlot::new(row), pool);
                            }
                        }
                        true
                    }
                    Whereabouts::Barred => true,
                }
            });
            let held =
                Held { heap, range, block: number, requested, graphs, outside, marks, reason };
            self.recording(home.slot).held.push(held);
            return;
        }
        // A block that nothing can have used leaves its place as it found it.
        let markers =
            if ending.worked { ending.markers } else { std::mem::take(&mut before.markers) };
        if markers.is_empty() {
            self.pools.heap_mut(heap).free_quiet(range, graphs, number);
            self.tell(pool, Some(home.slot), Entry::Settled { block: number });
            return;
        }
        let now = self.recording(home.slot).capture.now();
        let freed = Freed { capture: home.slot, owner: home.stream, markers, graphs, now };
        let token = self.pools.heap_mut(heap).free_marked(range, freed, number);
        self.wait_or_learn(config, home.slot, token, home.stream);
    }
}

impl Ending {
    fn add(&mut self, config: &Config, flaw: Flaw, nodes: impl Iterator<Item = NodeIndex>) {
        if config.lacks(flaw) {
            return;
        }
        for node in nodes {
            if !self.markers.contains(&node) {
                self.markers.push(node);
            }
        }
    }
}
