//! Entries in the history, from behind the engine's lock.

use std::sync::Arc;

use super::history::{Action, Frames, Ring};
use super::names::PoolId;
use super::state::State;
use crate::driver::{CaptureId, StreamHandle};

impl State {
    /// Keeps the latest `most` events from now on; zero ends that and forgets them.
    pub(super) fn record_history(&mut self, most: usize) {
        // A clock takes its time to begin with.
        let clock = (most > 0).then(quanta::Clock::new);
        let ring = || clock.clone().map(|clock| Box::new(Ring::new(clock, most)));
        for mut front in self.fronts.all() {
            front.history = ring();
        }
        self.history = ring();
    }

    /// Enters an event.
    pub(super) fn remember(
        &mut self,
        action: Action,
        place: (u64, u64),
        stream: Option<StreamHandle>,
        pool: PoolId,
    ) {
        self.remember_from(action, place, stream, pool, None);
    }

    /// The same, with the host's frames.
    pub(super) fn remember_from(
        &mut self,
        action: Action,
        place: (u64, u64),
        stream: Option<StreamHandle>,
        pool: PoolId,
        frames: Option<Arc<Frames>>,
    ) {
        // To the history a suspended pool has no blocks: they left with its memory.
        let of_block = matches!(
            action,
            Action::Allocate | Action::Free | Action::FreeCompleted | Action::Completed
        );
        if of_block && self.history.is_some() && self.pools.is_suspended(pool) {
            return;
        }
        if let Some(history) = &mut self.history {
            let stream = stream.unwrap_or(StreamHandle::from_bits(0));
            history.push(action, place, stream, pool, frames);
        }
    }

    /// Enters the begin or the end of a capture.
    pub(super) fn remember_capture(&mut self, capture: CaptureId, pool: PoolId, begins: bool) {
        let action = if begins { Action::CaptureBegin } else { Action::CaptureEnd };
        self.remember(action, (capture.0, 0), None, pool);
    }
}
