//! Ending captures, graphs and pools.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::capture_state::{Held, Recording};
use super::config::Flaw;
use super::deferred::Deferred;
use super::live_blocks::Origin;
use super::names::{GraphId, PoolId};
use super::report::{CaptureReport, Record};
use super::state::{Locked, State};
use super::Error;
use crate::check;
use crate::driver::StreamHandle;
use crate::driver::{CaptureId, CaptureStatus, Driver, DriverError, GraphHandle};
use crate::heap::CaptureSlot;
use crate::logging;
use crate::uses;

impl State {
    /// A new graph's claim on its pools.
    fn claim_pools(&mut self, pools: SmallVec<[PoolId; 1]>, capture: CaptureId) -> GraphId {
        let graph = self.new_graph();
        if self.keep_grounds(&pools, capture) {
            self.grounds.insert(graph, capture);
        }
        for &pool in &pools {
            if let Some(pool) = self.pools.get_mut(pool) {
                pool.add_graph();
            }
            self.pools.share(pool);
        }
        self.graphs.insert(graph, pools);
        graph
    }
}

impl<D: Driver> Locked<'_, D> {
    pub(super) fn end_capture(
        &mut self,
        id: CaptureId,
        graph: Option<GraphHandle>,
    ) -> Result<CaptureReport, Error> {
        let unknown = Error::UnknownCapture { call: "end_capture", capture: id };
        let slot = self.state.slot(id).ok_or(unknown)?;
        // Where nobody can name the graph, the streams may be in other captures and threads by now.
        if graph.is_some() {
            if let Some(stream) = self.last_looks(slot) {
                let _ = self.end(slot, false);
                return Err(Error::CaptureInvalidated { call: "end_capture", stream });
            }
            self.take_over(slot);
            self.state
                .slot(id)
                .ok_or(Error::UnknownCapture { call: "end_capture", capture: id })?;
        }
        // Before its pools are named: a block that waits may bring one in.
        self.poll_deferred(usize::MAX);
        let ready = match graph {
            Some(_) => self.prepare_plans(slot),
            None => Vec::new(),
        };
        let unbound = self.state.is_unbound(slot);
        let recording = self.state.recording(slot);
        let queries = recording.capture.queries();
        let (nodes, blocks) = (recording.capture.nodes(), recording.blocks);
        let pools = recording.pools.clone();
        let layout = recording.following.as_ref().map(|following| following.followed());
        let mut judged = match (&recording.journal, recording.undone, graph) {
            // A plan hands memory out, so nothing else than its being judged will do.
            (Some(journal), _, Some(graph)) if self.config.settings.check || unbound => {
                let (policy, foreign) =
                    (self.config.settings.programmatic, self.config.foreign_nodes);
                check::judge(journal, policy, self.driver, graph, foreign)
                    .map(|_| ())
                    .map_err(|violation| Error::Refused(Box::new(violation)))
            }
            (_, Some((block, stream)), _) => Err(Error::SetBack { stream, block }),
            _ if unbound => Err(Error::Unplanned { capture: id }),
            _ => Ok(()),
        };
        let late_uses = match (&recording.journal, graph) {
            (Some(journal), Some(graph)) if self.config.find_late_uses && judged.is_ok() => {
                // What the checker could not read either, it has refused.
                uses::find(journal, self.driver, graph).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let refused = self.config.refuse_late_uses && !late_uses.is_empty();
        let mut plan = None;
        // One that has lost memory is rolled back, and its pool may be suspended.
        let lost = self.state.recording(slot).lost.is_some();
        if judged.is_ok() && !refused && unbound && !lost {
            match self.bind_plans(slot, ready) {
                Ok(report) => plan = report,
                Err(error) => judged = Err(error),
            }
        }
        let good = judged.is_ok() && !refused;
        let journal = self.state.recording(slot).journal.take();
        // A graph that nobody can name may have run already: its memory stays its own.
        let ended = self.end(slot, good || graph.is_none());
        if let Err(error) = judged {
            if graph.is_none() {
                self.state.claim_pools(pools, id);
            }
            return Err(error);
        }
        if refused {
            return Err(Error::LateUse(late_uses));
        }
        ended?;
        if !late_uses.is_empty() {
            let (count, id) = (late_uses.len(), id.0);
            let headline = format!("capture {id}: {count} uses of blocks later than was recorded:");
            logging::warn_list(&headline, &late_uses);
        }
        let verified = (self.config.settings.check || unbound) && graph.is_some();
        Ok(CaptureReport {
            capture: id,
            graph: self.state.claim_pools(pools, id),
            nodes,
            blocks,
            verified,
            dependency_queries: queries,
            late_uses,
            record: journal.map(|journal| {
                let programmatic = self.config.settings.programmatic;
                Arc::new(Record { journal, programmatic, minimum: OnceLock::new() })
            }),
            layout,
            plan,
        })
    }

    /// Looks once more at every stream that is still in the capture, so that the record says what
    /// was launched since, and by whom. Returns a stream whose capture is ruined.
    pub(super) fn last_looks(&mut self, slot: CaptureSlot) -> Option<StreamHandle> {
        let recording = self.state.recording(slot);
        let id = recording.id;
        let capture = &recording.capture;
        let streams: Vec<_> =
            capture.streams().map(|stream| (stream, capture.stream_handle(stream))).collect();
        let mut inside = Vec::with_capacity(streams.len());
        for (index, stream) in streams {
            match self.driver.capture_status(stream, &mut self.state.terminals) {
                Ok(CaptureStatus::Active { capture, .. }) if capture == id => {
                    self.look(slot, stream);
                    inside.push(index);
                }
                Ok(CaptureStatus::Invalidated) => return Some(stream),
                // Ended already, or nobody can tell: the record stays as it is.
                Ok(_) | Err(_) => {}
            }
        }
        let Recording { capture, journal, .. } = self.state.recording(slot);
        if let Some(journal) = journal {
            // What one was seen to launch is no launch of those that were looked at before it.
            inside.into_iter().for_each(|stream| capture.confirm(stream, journal));
        }
        None
    }

    /// Takes a capture's state apart. `accepted` gives its memory to a graph; without, every
    /// decision taken in it is rolled back. What it leaves waits for the captures that are under
    /// way beside it in the same pools: one of them may contain it.
    ///
    /// # Errors
    /// The driver's, where memory of the capture is lost: it is rolled back then.
    pub(super) fn end(&mut self, slot: CaptureSlot, mut accepted: bool) -> Result<(), DriverError> {
        // While it is still known: whatever waits and is used in it belongs to its graph.
        self.poll_deferred(usize::MAX);
        // No graph with blocks in it has run yet.
        for pool in self.state.recording(slot).pools.clone() {
            self.trim_ended(pool, slot);
        }
        let Some(recording) = self.state.take_recording(slot) else { return Ok(()) };
        let Recording { id, pools, held, lost, left, .. } = recording;
        accepted &= lost.is_none();
        for block in left {
            let Some(mut block) = self.state.blocks.remove(block) else { continue };
            self.state.count_out(&block);
            block.roll_back();
            if accepted {
                block.origin = Origin::Graph;
            }
            self.free_outside(block);
        }
        if let Some(&pool) = pools.first() {
            self.state.remember_capture(id, pool, false);
        }
        for block in self.state.blocks.iter_mut() {
            if matches!(block.origin, Origin::Capture(home) if home.capture == id) {
                block.roll_back();
                if accepted {
                    block.origin = Origin::Graph;
                }
            }
        }
        for waiting in self.state.deferred.iter_mut() {
            let users = waiting.users.len();
            waiting.users.retain(|&mut capture| capture != id);
            waiting.graphs |= accepted && waiting.users.len() < users;
        }
        let hold = !self.config.lacks(Flaw::Hold);
        for &pool in &pools {
            let beside = if hold { self.state.under_way(pool) } else { SmallVec::new() };
            let Some(row) = self.state.pools.get_mut(pool) else { continue };
            row.remove_capture();
            let last = row.captures() == 0;
            for heap in row.heaps() {
                if last {
                    self.state.pools.heap_mut(heap).open_all();
                }
                self.state.pools.heap_mut(heap).restart_steps();
                let waiting =
                    self.state.pools.heap_mut(heap).end_capture(slot, accepted, !beside.is_empty());
                for (range, graphs) in waiting {
                    let number = self.state.blocks.number();
                    self.state.wait(Deferred {
                        pool,
                        heap,
                        range,
                        number,
                        streams: SmallVec::new(),
                        marks: SmallVec::new(),
                        captures: beside.clone(),
                        graphs,
                        captured: false,
                        unclear: false,
                        looked: false,
                        users: SmallVec::new(),
                        own: None,
                        requested: None,
                    });
                }
                self.state.touch(heap);
            }
        }
        for Held { heap, range, block, requested, graphs, outside, marks, .. } in held {
            let pool = self.state.pools.pool_of(heap);
            self.state.wait(Deferred {
                pool,
                heap,
                range,
                number: block,
                streams: outside,
                marks,
                captures: self.state.under_way(pool),
                graphs: graphs || accepted,
                captured: false,
                unclear: false,
                looked: false,
                users: SmallVec::new(),
                own: None,
                requested: Some(requested),
            });
        }
        self.poll_deferred(usize::MAX);
        if !accepted {
            self.leave_grounds(&pools, id);
            for pool in pools {
                self.forget_graphs(pool);
            }
        }
        lost.map_or(Ok(()), Err)
    }

    pub(super) fn release_graph(&mut self, graph: GraphId) -> Result<(), Error> {
        let pools = self.state.graphs.remove(&graph).ok_or(Error::UnknownGraph { graph })?;
        if let Some(capture) = self.state.grounds.remove(&graph) {
            self.leave_grounds(&pools, capture);
        }
        for pool in pools {
            if let Some(row) = self.state.pools.get_mut(pool) {
                row.remove_graph();
            }
            self.forget_graphs(pool);
        }
        Ok(())
    }

    /// Without a graph and without a capture that may become one, what graphs used is free for
    /// work outside captures again.
    pub(super) fn forget_graphs(&mut self, pool: PoolId) {
        let Some(row) = self.state.pools.get_mut(pool) else { return };
        if !row.is_without_graphs() {
            return;
        }
        for heap in row.heaps() {
            self.state.pools.heap_mut(heap).forget_graphs();
            self.state.touch(heap);
            self.drop_uncached(heap);
        }
        for waiting in self.state.deferred.iter_mut().filter(|waiting| waiting.pool == pool) {
            waiting.graphs = false;
            // One with a stream that captures may be in use in a capture that nobody announced.
            waiting.captured &= !waiting.streams.is_empty();
            waiting.unclear &= !waiting.streams.is_empty();
        }
        for block in self.state.blocks.iter_mut().filter(|block| block.pool == pool) {
            block.before.graphs = false;
            if matches!(block.origin, Origin::Graph) {
                block.origin = Origin::Past;
            }
        }
    }

    pub(super) fn destroy_pool(&mut self, id: PoolId) -> Result<(), Error> {
        self.state.pool(id, "destroy_pool")?;
        self.settle_everything(Some(id));
        let heaps = self.state.pool(id, "destroy_pool")?.heaps();
        let waiting = self.state.deferred.iter().filter(|waiting| waiting.pool == id).count();
        let ordered: usize =
            heaps.iter().map(|&heap| self.state.pools.heap_mut(heap).ordered_ranges()).sum();
        let waiting = waiting + ordered;
        let pool = self.state.pool(id, "destroy_pool")?;
        if pool.blocks() + pool.captures() + pool.graphs() + waiting > 0 {
            return Err(Error::PoolInUse {
                pool: pool.label(),
                blocks: pool.blocks(),
                captures: pool.captures(),
                graphs: pool.graphs(),
                waiting,
            });
        }
        let mut result = Ok(());
        for heap in self.state.pool(id, "destroy_pool")?.all_heaps() {
            self.state.pools.heap_mut(heap).note_close();
            self.state.note_changes(heap);
        }
        for heap in self.state.pools.remove(id) {
            result = result.and(heap.close(self.driver));
        }
        self.state.forget_figures(id);
        Ok(result?)
    }

    /// Destroys those of the leaving pools that nothing uses any more.
    pub(super) fn destroy_leaving(&mut self) {
        let mut leaving = std::mem::take(&mut self.state.leaving);
        leaving.retain(|&id| {
            let Some(pool) = self.state.pools.get(id) else { return false };
            // Blocks of fronts that were freed count until they are taken back.
            if pool.captures() + pool.graphs() > 0 {
                return true;
            }
            matches!(self.destroy_pool(id), Err(Error::PoolInUse { .. }))
        });
        self.state.leaving = leaving;
    }

    /// Gives back every pool that nothing uses. What graphs, blocks or running work may still touch
    /// stays with the driver: a leak is better than memory that is pulled away under a kernel.
    pub(super) fn close(&mut self) {
        self.state.lanes.claim_all();
        for pool in self.state.pools.ids() {
            // Refusals are what the comment above says; self.driver errors have nobody to go to.
            let _ = self.destroy_pool(pool);
        }
        self.state.lanes.close(self.driver);
    }
}
