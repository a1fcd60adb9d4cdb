//! Taking memory back that is of no capture under way.

use smallvec::SmallVec;

use super::block::{LiveBlock, Origin};
use super::deferred::Deferred;
use super::history::Action;
use super::lanes::Mark;
use super::state::State;
use crate::driver::{Driver, ErrorKind, StreamHandle};

impl State {
    /// Frees a block that no capture under way allocated. If it was handed out outside captures and
    /// its stream does not capture, the stream may have it back once the other streams that used it
    /// have completed that. Any other waits for the work of all its streams, and for the captures
    /// under way in its pool if a graph uses it.
    pub(super) fn free_outside<D: Driver + ?Sized>(&mut self, driver: &D, block: LiveBlock) {
        let LiveBlock { number, pool, heap, range, stream, before, origin, uses, .. } = block;
        let LiveBlock { bytes: _, requested, frames, gone, .. } = block;
        self.touch(heap);
        let graph = matches!(origin, Origin::Graph);
        let graphs = before.graphs || graph;
        let mut streams: SmallVec<[StreamHandle; 2]> =
            uses.iter().map(|used| used.stream).collect();
        let eager = matches!(origin, Origin::Outside) && !graphs && self.may_order(pool);
        let own = if eager && gone.is_none() { self.own_mark(driver, stream) } else { None };
        if own.is_none() && gone.is_none() {
            streams.insert(0, stream);
        }
        let (address, _) = self.pools.heap_mut(heap).extent(range);
        let now = own.filter(|_| streams.is_empty());
        let action = if now.is_some() { Action::FreeCompleted } else { Action::Free };
        self.remember_from(action, (address, requested), Some(stream), pool, frames);
        if let Some(own) = now {
            self.pools.heap_mut(heap).free_ordered(range, own.lane, own.epoch);
            return;
        }
        self.pools.heap_mut(heap).free_later(range, number);
        // Captures that were under way beside the block's own know nothing of what lay there before
        // it, or may contain its graph.
        let captures = match origin {
            Origin::Outside => SmallVec::new(),
            _ => self.under_way(pool),
        };
        // Records the events now: the streams need not outlive the block.
        let free = self.defer(
            driver,
            Deferred {
                pool,
                heap,
                range,
                number,
                streams,
                marks: gone.into_iter().collect(),
                captures,
                graphs,
                captured: false,
                unclear: false,
                looked: false,
                users: SmallVec::new(),
                own,
                requested: Some(requested),
            },
        );
        if !free && self.pools.heap_mut(heap).is_uncached() {
            // So that a memory checker sees at once what touches the block from now on.
            self.lanes.synchronize(driver);
            self.poll_deferred(driver, usize::MAX);
        }
    }

    /// Frees a place that a front had cached: its stream had given it back before, and did not
    /// capture then, whatever it does now.
    pub(super) fn free_cached<D: Driver + ?Sized>(&mut self, driver: &D, block: LiveBlock) {
        let LiveBlock { number, pool, heap, range, stream, .. } = block;
        self.touch(heap);
        let lane = self.lanes.of(stream);
        let mark = Mark { lane, epoch: self.lanes.now(lane) };
        if self.may_order(pool) {
            self.pools.heap_mut(heap).free_ordered(range, mark.lane, mark.epoch);
            return;
        }
        self.pools.heap_mut(heap).free_later(range, number);
        self.lanes.fence(driver, lane);
        self.defer(
            driver,
            Deferred {
                pool,
                heap,
                range,
                number,
                streams: SmallVec::new(),
                marks: [mark].into_iter().collect(),
                captures: SmallVec::new(),
                graphs: false,
                captured: false,
                unclear: false,
                looked: false,
                users: SmallVec::new(),
                own: None,
                requested: None,
            },
        );
    }

    /// Where a stream stands whose own order is enough to have its memory back: one that does not
    /// capture.
    fn own_mark<D: Driver + ?Sized>(&mut self, driver: &D, stream: StreamHandle) -> Option<Mark> {
        match driver.is_capturing(stream) {
            Ok(false) => {}
            // The legacy stream while some blocking stream captures: it does not capture itself.
            Err(error) if error.kind == ErrorKind::CaptureImplicit => {}
            Ok(_) | Err(_) => return None,
        }
        let lane = self.lanes.of(stream);
        Some(Mark { lane, epoch: self.lanes.now(lane) })
    }
}
