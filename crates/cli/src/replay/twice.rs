//! A capture that is run for the sake of its layout and thrown away.

use std::collections::BTreeSet;

use super::runner::Runner;
use super::ReplayError;
use regraph_plan::layout::Layout;
use regraph_tagged::Program;
use regraph_trace::{BlockIndex, Operation, PoolIndex, StreamIndex};

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
        let own = self.step_through(rest, true)?;
        let id = self.capture.as_ref().and_then(|capture| capture.id);
        let layout = id.map(|id| self.engine.plans().layout_of(id)).transpose();
        let layout = layout.map_err(|e| self.engine_failed(e))?.unwrap_or_default();
        self.free_all(own)?;
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
        let own = self.step_through(rest, false)?;
        self.free_all(own)?;
        self.driver.synchronize().map_err(|e| self.driver_failed(e))?;
        if let Some(own) = self.pools.remove(&PoolIndex::MAX) {
            self.engine.destroy_pool(own).map_err(|e| self.engine_failed(e))?;
        }
        self.pool = pool;
        self.placements.truncate(before.1);
        (self.operation, self.alloc, self.free) = (before.0, before.2, before.3);
        Ok(())
    }

    /// Runs operations up to a capture's end, but for those on blocks from before; with `all` also those on no block.
    /// Returns the blocks that they allocated.
    fn step_through(
        &mut self,
        rest: &[Operation],
        all: bool,
    ) -> Result<BTreeSet<BlockIndex>, ReplayError> {
        let mut own = BTreeSet::new();
        for operation in rest {
            self.operation += 1;
            let runs = match *operation {
                Operation::End {} => break,
                Operation::Alloc { id, .. } => own.insert(id),
                Operation::Use { id, .. }
                | Operation::LastUse { id, .. }
                | Operation::Free { id } => own.contains(&id),
                _ => all,
            };
            if runs {
                self.step(operation)?;
            }
        }
        Ok(own)
    }

    /// Frees those of the blocks that are live.
    fn free_all(&mut self, blocks: BTreeSet<BlockIndex>) -> Result<(), ReplayError> {
        let live = blocks.iter().filter_map(|id| self.blocks.remove(id));
        let mut freed = live.map(|block| self.engine.free(block.id));
        freed.try_for_each(|freed| freed).map_err(|e| self.engine_failed(e))
    }

    /// Has the capture that has just begun lie by a layout.
    pub(super) fn follow(&mut self, layout: Layout) -> Result<(), ReplayError> {
        let Some(id) = self.capture.as_ref().and_then(|capture| capture.id) else { return Ok(()) };
        self.engine.plans().follow_layout(id, layout).map_err(|e| self.engine_failed(e))
    }
}
