//! A capture that is run for the sake of its layout and thrown away.

use std::collections::BTreeSet;

use super::runner::Runner;
use super::ReplayError;
use regraph_plan::layout::Layout;
use regraph_tagged::Program;
use regraph_trace::{Operation, PoolIndex, StreamIndex};

impl<P: Program> Runner<'_, P> {
    /// Runs the capture with these operations behind its `begin`, up to its end, and throws it away.
    pub(super) fn rehearse(
        &mut self,
        origin: StreamIndex,
        pool: PoolIndex,
        rest: &[Operation],
    ) -> Result<Layout, ReplayError> {
        let before = (self.operation, self.placements.len(), self.alloc.clone(), self.free.clone());
        self.begin(origin, pool, rest)?;
        let mut own = BTreeSet::new();
        for operation in rest {
            self.operation += 1;
            match *operation {
                Operation::End {} => break,
                Operation::Alloc { id, .. } => _ = own.insert(id),
                Operation::Use { id, .. }
                | Operation::LastUse { id, .. }
                | Operation::Free { id }
                    if !own.contains(&id) =>
                {
                    continue;
                }
                _ => {}
            }
            self.step(operation)?;
        }
        let id = self.capture.as_ref().and_then(|capture| capture.id);
        let layout = id.map(|id| self.engine.plans().layout_of(id)).transpose();
        let layout = layout.map_err(|e| self.engine_failed(e))?.unwrap_or_default();
        for id in own {
            if let Some(block) = self.blocks.remove(&id) {
                self.engine.free(block.id).map_err(|e| self.engine_failed(e))?;
            }
        }
        self.join()?;
        self.throw_away().map_or(Ok(()), Err)?;
        self.placements.truncate(before.1);
        (self.operation, self.alloc, self.free) = (before.0, before.2, before.3);
        Ok(layout)
    }

    /// Asks outside captures for what the capture with these operations behind its `begin` will ask for.
    pub(super) fn warm_up(&mut self, rest: &[Operation]) -> Result<(), ReplayError> {
        let before = (self.operation, self.placements.len(), self.alloc.clone(), self.free.clone());
        let pool = std::mem::replace(&mut self.pool, PoolIndex::MAX);
        let mut own = BTreeSet::new();
        for operation in rest {
            self.operation += 1;
            match *operation {
                Operation::End {} => break,
                Operation::Alloc { id, .. } => _ = own.insert(id),
                Operation::Use { id, .. }
                | Operation::LastUse { id, .. }
                | Operation::Free { id }
                    if own.contains(&id) => {}
                _ => continue,
            }
            self.step(operation)?;
        }
        for id in own {
            if let Some(block) = self.blocks.remove(&id) {
                self.engine.free(block.id).map_err(|e| self.engine_failed(e))?;
            }
        }
        self.driver.synchronize().map_err(|e| self.driver_failed(e))?;
        if let Some(own) = self.pools.remove(&PoolIndex::MAX) {
            self.engine.destroy_pool(own).map_err(|e| self.engine_failed(e))?;
        }
        self.pool = pool;
        self.placements.truncate(before.1);
        (self.operation, self.alloc, self.free) = (before.0, before.2, before.3);
        Ok(())
    }

    /// Has the capture that has just begun lie by a layout.
    pub(super) fn follow(&mut self, layout: Layout) -> Result<(), ReplayError> {
        let Some(id) = self.capture.as_ref().and_then(|capture| capture.id) else { return Ok(()) };
        self.engine.plans().follow_layout(id, layout).map_err(|e| self.engine_failed(e))
    }
}
