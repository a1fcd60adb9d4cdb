//! What a call leaves to be done once the engine's lock is released: waits for the device, and plans.
//!
//! Neither is done with the lock held, since all other calls that need it would stand still meanwhile. A call
//! that can go on only after that ends without a result, and is made again from its beginning: captures, pools
//! and memory may have changed in between, so nothing that it had found out before counts. A request that is
//! made again may find that another thread has taken what it has waited for; it waits again then, at most
//! [`ROUNDS`] times in all.

use std::sync::Arc;

use super::learning::EndedCapture;
use super::state::Locked;
use super::{Engine, Error};
use crate::driver::Driver;
use crate::layout::Outline;

/// How often a call is made again at the most.
const ROUNDS: u32 = 8;

/// What is done once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Errands {
    /// How often the call was made before.
    round: u32,
    /// Whether it is to be made again.
    again: bool,
    /// Whether the host waits for what streams hold now, as far as events say when that has completed.
    waits: bool,
    work: Option<Work>,
}

/// What is worked out from copies.
#[derive(Debug)]
enum Work {
    /// The layout of a lesson.
    Layout(Arc<Outline>),
    /// A lesson from a capture that has ended.
    Lesson(Box<EndedCapture>),
}

impl Errands {
    /// The last round of a call, which is not made again.
    const LAST: Self = Self { round: ROUNDS, again: false, waits: false, work: None };

    /// Whether the call is made for the first time.
    pub(super) fn is_first(&self) -> bool {
        self.round == 0
    }

    /// Whether the call may be made again.
    pub(super) fn may_repeat(&self) -> bool {
        self.round < ROUNDS
    }

    /// Whether the call is made again, so that it needs no result.
    pub(super) fn is_postponed(&self) -> bool {
        self.again
    }

    /// Has the host wait once the lock is released.
    pub(super) fn wait(&mut self) {
        self.waits = true;
    }

    /// Has the host wait and make the call again.
    pub(super) fn wait_and_repeat(&mut self) {
        (self.waits, self.again) = (true, true);
    }

    /// Has a layout made and the call made again.
    pub(super) fn plan_and_repeat(&mut self, outline: Arc<Outline>) {
        (self.work, self.again) = (Some(Work::Layout(outline)), true);
    }

    /// Has a lesson learned.
    pub(super) fn learn(&mut self, run: EndedCapture) {
        self.work = Some(Work::Lesson(Box::new(run)));
    }
}

impl<D: Driver> Engine<D> {
    /// Runs a call with the engine's lock held, counts what that came to, and then does what it has left.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub(super) fn change<R>(
        &self,
        change: impl FnOnce(&mut Locked<'_, D>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.run(Errands::LAST, change)
    }

    /// Runs a call with the engine's lock held, does what it has left with the lock released, and makes the call again
    /// as long as it returns `None`.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub(super) fn repeat<R>(
        &self,
        mut call: impl FnMut(&mut Locked<'_, D>) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let mut round = 0;
        loop {
            if let Some(done) = self.run(Errands { round, ..Errands::default() }, &mut call)? {
                return Ok(done);
            }
            round += 1;
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    fn run<R>(
        &self,
        errands: Errands,
        call: impl FnOnce(&mut Locked<'_, D>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut state = self.lock()?;
        let mut locked = self.with(&mut state);
        locked.errands = errands;
        let result = call(&mut locked);
        let Errands { waits, work, .. } = locked.errands;
        let awaited = if waits { state.timelines.pending() } else { None };
        state.account(self.config.statistics);
        drop(state);
        if let Some(awaited) = awaited {
            awaited.wait(&self.driver);
            // A poisoned engine hands nothing out any more.
            if let Ok(mut state) = self.lock() {
                let mut locked = self.with(&mut state);
                locked.state.timelines.end_wait(locked.driver, awaited);
                locked.poll_waits(usize::MAX);
                state.account(self.config.statistics);
            }
        }
        if let Some(work) = work {
            self.work_out(work);
        }
        result
    }

    /// Works something out, and takes it in if it is still of use.
    #[cold]
    fn work_out(&self, work: Work) {
        let settings = &self.config.settings;
        // What these return is dropped here, without the lock, and may be large.
        match work {
            Work::Layout(outline) => {
                let layout = outline.layout(None, settings.plan_search);
                drop(self.lock().map(|mut state| state.lessons.take_layout(&outline, layout)));
            }
            Work::Lesson(run) => {
                let lesson = run.read(settings);
                drop(self.lock().map(|mut state| state.lessons.keep(lesson)));
            }
        }
    }
}
