//! The calls about captures whose memory comes at their end.

use super::names::PoolId;
use super::planned::can_plan;
use super::recording::Planning;
use super::{Engine, Error};
use crate::driver::{CaptureId, Driver, StreamHandle};
use crate::plan::{Options, Plan};

impl<D: Driver> Engine<D> {
    /// Gives a capture under way its memory at its end, as little as it can run on, or with `None` as
    /// ever, whatever [`Settings::plan`](crate::settings::Settings::plan) says. What it has allocated
    /// before stays where it is, so this is best called before anything is.
    ///
    /// Blocks of at least half the device's granularity then have addresses and no memory of their own
    /// until [`Engine::end_capture`] has returned: the graph is not launched before, and nothing
    /// outside the capture touches them, nor is anything of them registered or exported. Memory for
    /// such uses comes from [`Engine::allocate_fixed`].
    ///
    /// # Errors
    /// [`Error::UnknownCapture`]; [`Error::CannotPlan`] where the device has no virtual memory
    /// management.
    pub fn plan_capture(&self, capture: CaptureId, options: Option<Options>) -> Result<(), Error> {
        const CALL: &str = "plan_capture";
        self.change(|state| {
            let unknown = Error::UnknownCapture { call: CALL, capture };
            let slot = state.slot(capture).ok_or(unknown)?;
            if options.is_some() && !can_plan(&self.driver, &self.config) {
                return Err(Error::CannotPlan { capture });
            }
            let recording = state.recording(slot);
            if options.is_some() && recording.journal.is_none() {
                // Without a record of all that was allocated nothing can be planned.
                if recording.blocks > 0 {
                    return Err(Error::CannotPlan { capture });
                }
                state.begin_journal(slot);
            }
            state.recording(slot).planning = options.map_or(Planning::Off, Planning::On);
            Ok(())
        })
    }

    /// What would be mapped where if a capture under way ended now, one plan for each of its pools that
    /// has any; nothing is carried out. It tells what carrying it out costs ([`Plan::mappings`]), in
    /// time to call [`Engine::plan_capture`] again with other bounds.
    ///
    /// Looks at the capture's streams first. Costs what the plan at the end does.
    ///
    /// # Errors
    /// [`Error::UnknownCapture`].
    pub fn preview_plan(&self, capture: CaptureId) -> Result<Vec<(PoolId, Plan)>, Error> {
        const CALL: &str = "preview_plan";
        self.change(|state| {
            let unknown = Error::UnknownCapture { call: CALL, capture };
            let slot = state.slot(capture).ok_or(unknown)?;
            state.last_looks(&self.driver, slot);
            let plans = state.plans(&self.driver, &self.config, slot);
            Ok(plans.into_iter().map(|(heap, plan)| (state.pools.pool_of(heap), plan.1)).collect())
        })
    }

    /// Like [`Engine::allocate`], but while `stream` captures the block gets memory of its own, at once
    /// and for good: it is never shared and never moved as long as a graph of the capture lives, whether
    /// the block is freed or not. For memory that is registered with a communication library, exported
    /// to other processes, or used by a kernel that goes on running. Takes whole units of the device's
    /// granularity. Outside captures, and where the device has no virtual memory management, memory is
    /// never moved, and it is the same as `allocate`: keep the block for as long as it must not be
    /// shared.
    ///
    /// # Errors
    /// As [`Engine::allocate`].
    pub fn allocate_fixed(
        &self,
        pool: PoolId,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<super::Block, Error> {
        self.allocate_as(pool, bytes, stream, true, || false)
    }
}
