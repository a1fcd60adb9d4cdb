//! A capture that is run for the sake of its layout and thrown away.

use std::collections::BTreeSet;

use super::runner::Runner;
use super::ReplayError;
use regraph::internals::layout::Layout;
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
        let layout = id.map(|id| self.engine.layout_of(id)).transpose();
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

    /// Has the capture that has just begun lie by a layout.
    pub(super) fn follow(&mut self, layout: Layout) -> Result<(), ReplayError> {
        let Some(id) = self.capture.as_ref().and_then(|capture| capture.id) else { return Ok(()) };
        self.engine.follow_layout(id, layout).map_err(|e| self.engine_failed(e))
    }
}
