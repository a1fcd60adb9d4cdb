//! Capturing again what was refused for a programmatic edge.

use std::sync::Arc;

use super::capture_state::CaptureState;
use super::config::Flaw;
use super::state::Locked;
use super::{Engine, Error};
use crate::capture::Outlook;
use crate::check::{self, FinishedGraph, Violation};
use crate::driver::{CaptureId, Driver};
use crate::heap::CaptureSlot;
use crate::policy::Programmatic;

/// How often a capture has been made in vain, under `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// Never, and the host captures again where it is refused for a programmatic edge: every launch is
    /// taken to wait for its predecessor, so that no memory is spent on those that do.
    First,
    /// Once, or the host may be unable to capture again: launches are taken to be what refused captures
    /// of the engine tell. A stream that asks for other blocks than the latest of them goes as under
    /// `lag` from there on, if it launched programmatically in any.
    #[default]
    Again,
    /// More often: any launch may start early, as under `lag`.
    Last,
}

impl Attempt {
    /// The attempt to make after this one has failed, if it was refused for a programmatic edge and is
    /// not the last.
    ///
    /// # Errors
    /// The error, where there is none to make.
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
    /// What a capture is to take the edges to come for.
    pub(super) fn outlook(&self, attempt: Attempt) -> Outlook {
        let settings = &self.config.settings;
        if self.config.lacks(Flaw::EarlyLaunches) {
            return Outlook::Full;
        }
        match (settings.programmatic, attempt, &self.state.foresight) {
            (Programmatic::Deny | Programmatic::Trust, ..) => Outlook::Full,
            (Programmatic::Lag, ..) | (_, Attempt::Last, _) => Outlook::Early,
            // Nothing would refuse what was taken for full in vain.
            _ if !settings.check => Outlook::Early,
            (_, Attempt::Again, Some(foresight)) => foresight.outlook(),
            _ => Outlook::Full,
        }
    }

    /// The error for a capture that the checker refused: whether only a programmatic edge was to blame,
    /// which another attempt can foresee.
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

    /// Keeps in mind what a capture tells that was refused so.
    pub(super) fn foresee(&mut self, slot: CaptureSlot) {
        let Some(journal) = self.state.capture(slot).journal.take() else { return };
        let before = self.state.foresight.take().unwrap_or_default();
        self.state.foresight = Some(Arc::new(before.learn(&journal)));
    }
}

impl<D: Driver> Engine<D> {
    /// Says which attempt at its work a capture is, before anything is asked for in it. A host that
    /// captures again where [`Error::CaptureAgain`] tells it to begins with [`Attempt::First`], for least
    /// memory; [`Engine::capture`](Engine::capture) and callables do so by themselves. Means something
    /// under `auto` alone ([`Programmatic`]), and with the checker.
    ///
    /// # Errors
    /// [`Error::UnknownCapture`].
    pub fn set_attempt(&self, capture: CaptureId, attempt: Attempt) -> Result<(), Error> {
        self.change(|locked| {
            let slot = locked.state.slot_of(capture, "set_attempt")?;
            let outlook = locked.outlook(attempt);
            locked.state.capture(slot).proof.set_outlook(outlook);
            Ok(())
        })
    }
}
