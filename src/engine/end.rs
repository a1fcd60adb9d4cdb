//! Ending captures and graphs.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::capture_state::{CaptureState, Held};
use super::config::Flaw;
use super::deferred::Deferred;
use super::live_blocks::Origin;
use super::names::{GraphId, PoolId};
use super::planned::{PlanReport, Ready};
use super::pools::GraphUse;
use super::report::{CaptureReport, Record};
use super::state::{Locked, State};
use super::Error;
use crate::check;
use crate::driver::StreamHandle;
use crate::driver::{CaptureId, CaptureStatus, Driver, DriverError, GraphHandle};
use crate::heap::CaptureSlot;
use crate::logging;
use crate::uses::{self, LateUse};

/// A capture whose streams were looked at for the last time.
struct Looked {
    id: CaptureId,
    slot: CaptureSlot,
    /// `None` where the graph cannot be named: it may have run already.
    graph: Option<GraphHandle>,
}

/// A capture with plans for its blocks without memory, which its record names.
struct Prepared {
    looked: Looked,
    plans: Vec<Ready>,
    /// Whether it has such blocks.
    unbound: bool,
}

/// A capture that the checker has judged, as far as it was to.
struct Judged {
    prepared: Prepared,
    verdict: Result<(), Error>,
    late_uses: Vec<LateUse>,
}

/// A capture whose blocks have their memory, if it was accepted.
struct Bound {
    judged: Judged,
    plan: Option<PlanReport>,
}

impl State {
    /// A new graph's claim on its pools.
    fn add_graph_to(&mut self, pools: SmallVec<[PoolId; 1]>, capture: CaptureId) -> GraphId {
        let planned = self.keep_planned(&pools, capture).then_some(capture);
        for &pool in &pools {
            if let Some(pool) = self.pools.get_mut(pool) {
                pool.add_graph();
            }
            self.pools.share(pool);
        }
        self.graphs.add(GraphUse { pools, planned })
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Ends a capture, stage by stage: nothing of it is a graph's before it is judged, and nothing has
    /// memory that was not judged.
    pub(super) fn end_capture(
        &mut self,
        id: CaptureId,
        graph: Option<GraphHandle>,
    ) -> Result<CaptureReport, Error> {
        let looked = self.look_last(id, graph)?;
        let prepared = self.prepare(looked);
        let judged = self.judge(prepared);
        let bound = self.bind(judged);
        self.conclude(bound)
    }

    fn look_last(&mut self, id: CaptureId, graph: Option<GraphHandle>) -> Result<Looked, Error> {
        const CALL: &str = "end_capture";
        let slot = self.state.slot_of(id, CALL)?;
        // Without a graph's name the streams may be in other captures and threads by now.
        if graph.is_some() {
            if let Some(stream) = self.last_looks(slot) {
                let _ = self.end(slot, false);
                return Err(Error::CaptureInvalidated { call: CALL, stream });
            }
            self.take_over(slot);
            self.state.slot_of(id, CALL)?;
        }
        // Before its pools are named: a block that waits may bring one in.
        self.poll_deferred(usize::MAX);
        Ok(Looked { id, slot, graph })
    }

    fn prepare(&mut self, looked: Looked) -> Prepared {
        let Looked { slot, graph, .. } = looked;
        let plans = if graph.is_some() { self.prepare_plans(slot) } else { Vec::new() };
        let unbound = self.state.is_unbound(slot);
        Prepared { looked, plans, unbound }
    }

    fn judge(&mut self, prepared: Prepared) -> Judged {
        let Prepared { looked: Looked { id, slot, graph }, unbound, .. } = prepared;
        let capture_state = self.state.captures.get(slot);
        let recorded = capture_state.journal.as_ref().zip(graph);
        let verdict = match (recorded, capture_state.undone) {
            // A plan hands memory out, so nothing else than its being judged will do.
            (Some((journal, graph)), _) if self.config.settings.check || unbound => {
                let (policy, foreign) =
                    (self.config.settings.programmatic, self.config.foreign_nodes);
                check::judge(journal, policy, self.driver, graph, foreign)
                    .map(|_| ())
                    .map_err(|violation| Error::Refused(Box::new(violation)))
            }
            (_, Some((block, stream))) => Err(Error::SetBack { stream, block }),
            _ if unbound => Err(Error::Unplanned { capture: id }),
            _ => Ok(()),
        };
        let recorded = recorded.filter(|_| self.config.find_late_uses && verdict.is_ok());
        // What the checker could not read either, it has refused.
        let found =
            recorded.and_then(|(journal, graph)| uses::find(journal, self.driver, graph).ok());
        Judged { prepared, verdict, late_uses: found.unwrap_or_default() }
    }

    fn bind(&mut self, mut judged: Judged) -> Bound {
        let Prepared { looked: Looked { slot, .. }, plans, unbound } = &mut judged.prepared;
        // One that has lost memory is rolled back, and its pool may be suspended.
        let lost = self.state.capture(*slot).lost.is_some();
        let late = self.config.refuse_late_uses && !judged.late_uses.is_empty();
        let mut plan = None;
        if judged.verdict.is_ok() && !late && *unbound && !lost {
            match self.bind_plans(*slot, std::mem::take(plans)) {
                Ok(report) => plan = report,
                Err(error) => judged.verdict = Err(error),
            }
        }
        Bound { judged, plan }
    }

    /// Hands the memory to a graph, or rolls the capture back.
    fn conclude(&mut self, Bound { judged, plan }: Bound) -> Result<CaptureReport, Error> {
        let Judged { prepared, verdict, late_uses } = judged;
        let Prepared { looked: Looked { id, slot, graph }, unbound, .. } = prepared;
        let capture_state = self.state.capture(slot);
        let dependency_queries = capture_state.proof.queries();
        let (nodes, blocks) = (capture_state.proof.nodes(), capture_state.blocks);
        let pools = capture_state.pools.clone();
        let layout = capture_state.following.as_ref().map(|following| following.followed());
        let journal = capture_state.journal.take();
        let refused = self.config.refuse_late_uses && !late_uses.is_empty();
        // A graph that cannot be named may have run already: its memory stays its own.
        let accepted = verdict.is_ok() && !refused || graph.is_none();
        let ended = self.end(slot, accepted);
        if let Err(error) = verdict {
            if graph.is_none() {
                self.state.add_graph_to(pools, id);
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
        Ok(CaptureReport {
            capture: id,
            graph: self.state.add_graph_to(pools, id),
            nodes,
            blocks,
            verified: (self.config.settings.check || unbound) && graph.is_some(),
            dependency_queries,
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
        let capture_state = self.state.capture(slot);
        let id = capture_state.id;
        let mut inside = Vec::new();
        for stream in capture_state.streams() {
            match self.driver.capture_status(stream, &mut self.state.terminals) {
                Ok(CaptureStatus::Active { capture, .. }) if capture == id => {
                    inside.push(self.look(slot, stream));
                }
                Ok(CaptureStatus::Invalidated) => return Some(stream),
                // Ended already, or unknown: the record stays as it is.
                Ok(_) | Err(_) => {}
            }
        }
        let CaptureState { proof, journal, .. } = self.state.capture(slot);
        if let Some(journal) = journal {
            // What one was seen to launch is no launch of those that were looked at before it.
            inside.into_iter().for_each(|stream| proof.confirm(stream, journal));
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
        for pool in self.state.capture(slot).pools.clone() {
            self.drop_premapped_at_end(pool, slot);
        }
        let Some(capture_state) = self.state.take_capture(slot) else { return Ok(()) };
        let CaptureState { id, pools, held, lost, left, .. } = capture_state;
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
            self.state.record_capture(id, pool, false);
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
            let concurrent = if hold { self.state.captures.ids_of(pool) } else { SmallVec::new() };
            let Some(row) = self.state.pools.get_mut(pool) else { continue };
            row.remove_capture();
            let last = row.captures() == 0;
            for heap in row.heaps() {
                if last {
                    self.state.pools.heap_mut(heap).open_all();
                }
                self.state.pools.heap_mut(heap).restart_steps();
                let waiting = self.state.pools.heap_mut(heap).end_capture(
                    slot,
                    accepted,
                    !concurrent.is_empty(),
                );
                for (range, graphs) in waiting {
                    let number = self.state.blocks.number();
                    let captures = concurrent.clone();
                    let waiting = Deferred::new((pool, heap), range, number, graphs);
                    self.state.deferred.add(Deferred { captures, ..waiting });
                }
                self.state.touch(heap);
            }
        }
        for Held { heap, range, block, requested, graphs, outside, positions, .. } in held {
            let pool = self.state.pools.pool_of(heap);
            let waiting = Deferred::new((pool, heap), range, block, graphs || accepted);
            self.state.deferred.add(Deferred {
                streams: outside,
                positions,
                captures: self.state.captures.ids_of(pool),
                requested: Some(requested),
                ..waiting
            });
        }
        self.poll_deferred(usize::MAX);
        if !accepted {
            self.leave_planned(&pools, id);
            for pool in pools {
                self.forget_graphs(pool);
            }
        }
        lost.map_or(Ok(()), Err)
    }

    pub(super) fn release_graph(&mut self, graph: GraphId) -> Result<(), Error> {
        let found = self.state.graphs.remove(graph);
        let GraphUse { pools, planned } = found.ok_or(Error::UnknownGraph { graph })?;
        if let Some(capture) = planned {
            self.leave_planned(&pools, capture);
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
            // One with a stream that captures may be in use in a capture that was not announced.
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
}
