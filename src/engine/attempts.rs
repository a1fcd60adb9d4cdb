//! Capturing again what was refused for a programmatic edge.

use std::sync::Arc;

use super::capture_state::CaptureState;
use super::flaws::Flaw;
use super::state::Locked;
use super::{Engine, Error};
use crate::capture::Outlook;
use crate::check::{self, FinishedGraph, Violation};
use crate::driver::{CaptureId, Driver};
use crate::heap::CaptureSlot;
use crate::policy::Programmatic;

/// Which attempt at its work a capture is, where the setting `programmatic` is `auto`: how often the
/// checker has refused the same work for a programmatic launch ([`Error::CaptureAgain`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// The first, and the host captures again if it is refused. The engine takes every launch to wait for
    /// its predecessor, so that launches which do wait cost no memory.
    First,
    /// The second, or one of a host that may be unable to capture again. The engine takes a launch to
    /// start early where the latest refused capture launched programmatically. A stream that asks for
    /// other blocks than it did there is treated as under `lag` from then on, if it launched
    /// programmatically in any refused capture.
    #[default]
    Again,
    /// The third. The engine takes every launch to start early, as under `lag`.
    Last,
}

impl Attempt {
    /// The attempt to make after this one failed with `error`: the next one after
    /// [`Error::CaptureAgain`].
    ///
    /// # Errors
    /// `error` itself, where it is another error or this attempt was the last.
    pub fn after(self, error: Error) -> Result<Self, Error> {
        let cause = match &error {
            Error::OnDevice { error, .. } => error.as_ref(),
            error => error,
        };
        match (self, cause) {
            (Self::First, Error::CaptureAgain(_)) => Ok(Self::Again),
            (Self::Again, Error::CaptureAgain(_)) => Ok(Self::Last),
            _ => Err(error),
        }
    }
}

impl<D: Driver> Locked<'_, D> {
    /// What kind of edges a capture expects.
    pub(super) fn outlook(&self, attempt: Attempt) -> Outlook {
        let settings = &self.config.settings;
        if self.config.lacks(Flaw::EarlyLaunches) {
            return Outlook::Full;
        }
        match (settings.programmatic, attempt, &self.state.foresight) {
            (Programmatic::Deny | Programmatic::Trust, ..) => Outlook::Full,
            (Programmatic::Lag, ..) | (_, Attempt::Last, _) => Outlook::Early,
            // Without the checker no wrong guess would be refused.
            _ if !settings.check => Outlook::Early,
            (_, Attempt::Again, Some(foresight)) => foresight.outlook(),
            _ => Outlook::Full,
        }
    }

    /// The error for a capture that the checker refused: [`Error::CaptureAgain`] if it would have been
    /// accepted with every programmatic edge full, since another attempt can foresee those.
    pub(super) fn refusal(
        &self,
        slot: CaptureSlot,
        graph: &FinishedGraph,
        violation: Violation,
    ) -> Error {
        let unordered = matches!(violation, Violation::NotOrdered { .. });
        let violation = Box::new(violation.name_kernels(self.driver));
        let CaptureState { proof, journal, .. } = self.state.captures.get(slot);
        let auto = self.config.settings.programmatic == Programmatic::Auto;
        let may_change = auto && unordered && !proof.is_early();
        let Some(journal) = journal.as_ref().filter(|_| may_change) else {
            return Error::Refused(violation);
        };
        match check::judge(journal, Programmatic::Trust, graph, self.config.foreign_nodes) {
            Ok(_) => Error::CaptureAgain(violation),
            Err(_) => Error::Refused(violation),
        }
    }

    /// Adds a refused capture's early launches to what is foreseen.
    pub(super) fn foresee(&mut self, slot: CaptureSlot) {
        let Some(journal) = self.state.capture(slot).journal.take() else { return };
        let before = self.state.foresight.take().unwrap_or_default();
        self.state.foresight = Some(Arc::new(before.learn(&journal)));
    }
}

impl<D: Driver> Engine<D> {
    /// Sets which attempt at its work a capture is; call it before the capture's first allocation. A host
    /// that captures again after [`Error::CaptureAgain`] numbers its attempts from [`Attempt::First`] on
    /// ([`Attempt::after`] gives the next one), and then needs the least memory.
    /// [`Engine::capture`](Engine::capture), [`Pool::capture_twice`](crate::graphs::Pool::capture_twice)
    /// and callables do so by themselves. Without the checker, and with another setting than
    /// [`Programmatic::Auto`], it has no effect.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn set_attempt(&self, capture: CaptureId, attempt: Attempt) -> Result<(), Error> {
        self.change(|locked| {
            let slot = locked.state.slot_of(capture, "set_attempt")?;
            let outlook = locked.outlook(attempt);
            locked.state.capture(slot).proof.set_outlook(outlook);
            Ok(())
        })
    }
}
