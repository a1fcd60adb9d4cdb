//! Capturing again what was refused for a programmatic launch.

use super::runner::{Begun, Runner};
use super::ReplayError;
use regraph::engine::Attempt;
use regraph_tagged::Program;

impl<P: Program> Runner<'_, P> {
    /// Tells the engine which attempt the capture that has just begun is.
    pub(super) fn attempt(&mut self, attempt: Attempt) -> Result<(), ReplayError> {
        let Some(id) = self.capture.as_ref().and_then(|capture| capture.id) else { return Ok(()) };
        self.engine.set_attempt(id, attempt).map_err(|e| self.engine_failed(e))
    }

    /// Throws away a capture that was refused, with its blocks. What it freed from before it stays freed.
    pub(super) fn take_back(&mut self, begun: &Begun) -> Result<(), ReplayError> {
        self.again += 1;
        self.throw_away().map_or(Ok(()), Err)?;
        for placement in self.placements.split_off(begun.placements) {
            if let Some(block) = self.blocks.remove(&placement.id) {
                self.engine.free(block.id).map_err(|e| self.engine_failed(e))?;
            }
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.forget();
        }
        Ok(())
    }
}
