//! Ending captures, graphs and pools.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::block::Origin;
use super::config::{Config, Flaw};
use super::deferred::Deferred;
use super::names::{GraphId, PoolId};
use super::recording::{Held, Recording};
use super::report::{CaptureReport, Record};
use super::state::State;
use super::Error;
use crate::check;
use crate::driver::StreamHandle;
use crate::driver::{CaptureId, CaptureStatus, Driver, DriverError, GraphHandle};
use crate::heap::CaptureSlot;
use crate::logging;
use crate::uses;

impl State {
    pub(super) fn end_capture<D: Driver>(
        &mut self,
        driver: &D,
        config: &Config,
        id: CaptureId,
        graph: Option<GraphHandle>,
    ) -> Result<CaptureReport, Error> {
        let unknown = Error::UnknownCapture { call: "end_capture", capture: id };
        let slot = self.slot(id).ok_or(unknown)?;
        // Where nobody can name the graph, the streams may be in other captures and threads by now.
        if graph.is_some() {
            if let Some(stream) = self.last_looks(driver, slot) {
                let _ = self.end(driver, config, slot, false);
                return Err(Error::CaptureInvalidated { call: "end_capture", stream });
            }
            self.take_over(driver, config, slot);
            self.slot(id).ok_or(Error::UnknownCapture { call: "end_capture", capture: id })?;
        }
        // Before its pools are named: a block that waits may bring one in.
        self.poll_deferred(driver, usize::MAX);
        let ready = match graph {
            Some(_) => self.prepare_plans(driver, config, slot),
            None => Vec::new(),
        };
        let unbound = self.is_unbound(slot);
        let recording = self.recording(slot);
        let queries = recording.capture.queries();
        let (nodes, blocks) = (recording.capture.nodes(), recording.blocks);
        let pools = recording.pools.clone();
        let layout = recording.following.as_ref().map(|following| following.followed());
        let mut judged = match (&recording.journal, recording.undone, graph) {
            // A plan hands memory out, so nothing else than its being judged will do.
            (Some(journal), _, Some(graph)) if config.settings.check || unbound => {
                let (policy, foreign) = (config.settings.programmatic, config.foreign_nodes);
                check::judge(journal, policy, driver, graph, foreign)
                    .map(|_| ())
                    .map_err(|violation| Error::Refused(Box::new(violation)))
            }
            (_, Some((block, stream)), _) => Err(Error::SetBack { stream, block }),
            _ if unbound => Err(Error::Unplanned { capture: id }),
            _ => Ok(()),
        };
        let late_uses = match (&recording.journal, graph) {
            (Some(journal), Some(graph)) if config.find_late_uses && judged.is_ok() => {
                // What the checker could not read either, it has refused.
                uses::find(journal, driver, graph).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let refused = config.refuse_late_uses && !late_uses.is_empty();
        let mut plan = None;
        // One that has lost memory is rolled back, and its pool may be suspended.
        let lost = self.recording(slot).lost.is_some();
        if judged.is_ok() && !refused && unbound && !lost {
            match self.bind_plans(driver, config, slot, ready) {
                Ok(report) => plan = report,
                Err(error) => judged = Err(error),
            }
        }
        let good = judged.is_ok() && !refused;
        let journal = self.recording(slot).journal.take();
        // A graph that nobody can name may have run already: its memory stays its own.
        let ended = self.end(driver, config, slot, good || graph.is_none());
        if let Err(error) = judged {
            if graph.is_none() {
                self.claim_pools(pools, id);
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
        let verified = (config.settings.check || unbound) && graph.is_some();
        Ok(CaptureReport {
            capture: id,
            graph: self.claim_pools(pools, id),
            nodes,
            blocks,
            verified,
            dependency_queries: queries,
            late_uses,
            record: journal.map(|journal| {
                let programmatic = config.settings.programmatic;
                Arc::new(Record { journal, programmatic, minimum: OnceLock::new() })
            }),
            layout,
            plan,
        })
    }

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

    /// Looks once more at every stream that is still in the capture, so that the record says what
    /// was launched since. Returns a stream whose capture is ruined.
    pub(super) fn last_looks<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        slot: CaptureSlot,
    ) -> Option<StreamHandle> {
        let recording = self.recording(slot);
        let id = recording.id;
        let capture = &recording.capture;
        let streams: Vec<_> =
            capture.streams().map(|stream| capture.stream_handle(stream)).collect();
        for stream in streams {
            match driver.capture_status(stream, &mut self.terminals) {
                Ok(CaptureStatus::Active { capture, .. }) if capture == id => {
                    self.look(driver, slot, stream);
                }
                Ok(CaptureStatus::Invalidated) => return Some(stream),
                // Ended already, or nobody can tell: the record stays as it is.
                Ok(_) | Err(_) => {}
            }
        }
        None
    }

    /// Takes a capture's state apart. `accepted` gives its memory to a graph; without, every
    /// decision taken in it is rolled back. What it leaves waits for the captures that are under
    /// way beside it in the same pools: one of them may contain it.
    ///
    /// # Errors
    /// The driver's, where memory of the capture is lost: it is rolled back then.
    pub(super) fn end<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        config: &Config,
        slot: CaptureSlot,
        mut accepted: bool,
    ) -> Result<(), DriverError> {
        // While it is still known: whatever waits and is used in it belongs to its graph.
        self.poll_deferred(driver, usize::MAX);
        // No graph with blocks in it has run yet.
        for pool in self.recording(slot).pools.clone() {
            self.trim_ended(driver, config, pool, slot);
        }
        let Some(recording) = self.take_recording(slot) else { return Ok(()) };
        let Recording { id, pools, held, lost, left, .. } = recording;
        accepted &= lost.is_none();
        for block in left {
            let Some(mut block) = self.blocks.remove(block) else { continue };
            self.count_out(&block);
            block.roll_back();
            if accepted {
                block.origin = Origin::Graph;
            }
            self.free_outside(driver, block);
        }
        if let Some(&pool) = pools.first() {
            self.remember_capture(id, pool, false);
        }
        for block in self.blocks.iter_mut() {
            if matches!(block.origin, Origin::Capture(home) if home.capture == id) {
                block.roll_back();
                if accepted {
                    block.origin = Origin::Graph;
                }
            }
        }
        for waiting in self.deferred.iter_mut() {
            let users = waiting.users.len();
            waiting.users.retain(|&mut capture| capture != id);
            waiting.graphs |= accepted && waiting.users.len() < users;
        }
        let hold = !config.lacks(Flaw::Hold);
        for &pool in &pools {
            let beside = if hold { self.under_way(pool) } else { SmallVec::new() };
            let Some(row) = self.pools.get_mut(pool) else { continue };
            row.remove_capture();
            let last = row.captures() == 0;
            for heap in row.heaps() {
                if last {
                    self.pools.heap_mut(heap).open_all();
                }
                self.pools.heap_mut(heap).restart_steps();
                let waiting =
                    self.pools.heap_mut(heap).end_capture(slot, accepted, !beside.is_empty());
                for (range, graphs) in waiting {
                    let number = self.blocks.number();
                    self.wait(Deferred {
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
                self.touch(heap);
            }
        }
        for Held { heap, range, block, requested, graphs, outside, marks, .. } in held {
            let pool = self.pools.pool_of(heap);
            self.wait(Deferred {
                pool,
                heap,
                range,
                number: block,
                streams: outside,
                marks,
                captures: self.under_way(pool),
                graphs: graphs || accepted,
                captured: false,
                unclear: false,
                looked: false,
                users: SmallVec::new(),
                own: None,
                requested: Some(requested),
            });
        }
        self.poll_deferred(driver, usize::MAX);
        if !accepted {
            self.leave_grounds(driver, &pools, id);
            for pool in pools {
                self.forget_graphs(driver, pool);
            }
        }
        lost.map_or(Ok(()), Err)
    }

    pub(super) fn release_graph<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        graph: GraphId,
    ) -> Result<(), Error> {
        let pools = self.graphs.remove(&graph).ok_or(Error::UnknownGraph { graph })?;
        if let Some(capture) = self.grounds.remove(&graph) {
            self.leave_grounds(driver, &pools, capture);
        }
        for pool in pools {
            if let Some(row) = self.pools.get_mut(pool) {
                row.remove_graph();
            }
            self.forget_graphs(driver, pool);
        }
        Ok(())
    }

    /// Without a graph and without a capture that may become one, what graphs used is free for
    /// work outside captures again.
    pub(super) fn forget_graphs<D: Driver + ?Sized>(&mut self, driver: &D, pool: PoolId) {
        let Some(row) = self.pools.get_mut(pool) else { return };
        if !row.is_without_graphs() {
            return;
        }
        for heap in row.heaps() {
            self.pools.heap_mut(heap).forget_graphs();
            self.touch(heap);
            self.drop_uncached(driver, heap);
        }
        for waiting in self.deferred.iter_mut().filter(|waiting| waiting.pool == pool) {
            waiting.graphs = false;
            // One with a stream that captures may be in use in a capture that nobody announced.
            waiting.captured &= !waiting.streams.is_empty();
            waiting.unclear &= !waiting.streams.is_empty();
        }
        for block in self.blocks.iter_mut().filter(|block| block.pool == pool) {
            block.before.graphs = false;
            if matches!(block.origin, Origin::Graph) {
                block.origin = Origin::Past;
            }
        }
    }

    pub(super) fn destroy_pool<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        id: PoolId,
    ) -> Result<(), Error> {
        self.pool(id, "destroy_pool")?;
        self.settle_everything(driver, Some(id));
        let heaps = self.pool(id, "destroy_pool")?.heaps();
        let waiting = self.deferred.iter().filter(|waiting| waiting.pool == id).count();
        let ordered: usize =
            heaps.iter().map(|&heap| self.pools.heap_mut(heap).ordered_ranges()).sum();
        let waiting = waiting + ordered;
        let pool = self.pool(id, "destroy_pool")?;
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
        for heap in self.pool(id, "destroy_pool")?.all_heaps() {
            self.pools.heap_mut(heap).note_close();
            self.note_changes(heap);
        }
        for heap in self.pools.remove(id) {
            result = result.and(heap.close(driver));
        }
        self.forget_figures(id);
        Ok(result?)
    }

    /// Destroys those of the leaving pools that nothing uses any more.
    pub(super) fn destroy_leaving<D: Driver + ?Sized>(&mut self, driver: &D) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|&id| {
            let Some(pool) = self.pools.get(id) else { return false };
            // Blocks of fronts that were freed count until they are taken back.
            if pool.captures() + pool.graphs() > 0 {
                return true;
            }
            matches!(self.destroy_pool(driver, id), Err(Error::PoolInUse { .. }))
        });
        self.leaving = leaving;
    }

    /// Gives back every pool that nothing uses. What graphs, blocks or running work may still touch
    /// stays with the driver: a leak is better than memory that is pulled away under a kernel.
    pub(super) fn close<D: Driver + ?Sized>(&mut self, driver: &D) {
        self.lanes.claim_all();
        for pool in self.pools.ids() {
            // Refusals are what the comment above says; driver errors have nobody to go to.
            let _ = self.destroy_pool(driver, pool);
        }
        self.lanes.close(driver);
    }
}
