//! Verdicts that are still to come: captures that have ended and whose graphs must not be launched yet.
//!
//! A capture that is closed ([`Engine::close_capture`]) is over for the pools: its memory is a graph's,
//! as after a capture that was accepted. What the checker needs, the journal and a copy of the graph,
//! goes to a thread of its own, which knows nothing of the engine. [`Engine::verdict`] waits for it, or
//! judges by itself if the thread has not begun. A refused graph is released, as one that never ran.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;

use super::report::{CaptureReport, Record};
use super::{Engine, Error, Unknown};
use crate::check::{self, FinishedGraph, Violation};
use crate::driver::{CaptureId, Driver};
use crate::journal::Journal;
use crate::policy::Programmatic;
use crate::sync::{thread, Mutex, Rank};

/// What the checker judges a capture by.
pub(super) struct Evidence {
    pub(super) journal: Journal,
    pub(super) graph: FinishedGraph,
    pub(super) programmatic: Programmatic,
    /// Whether a node of no stream that the engine looked at is taken to use no block, instead of any.
    pub(super) foreign: bool,
}

/// Evidence that was judged.
struct JudgedEvidence {
    verdict: Result<(), Violation>,
    journal: Journal,
    programmatic: Programmatic,
}

impl Evidence {
    fn judge(self) -> JudgedEvidence {
        let Self { journal, graph, programmatic, foreign } = self;
        let verdict = check::judge(&journal, programmatic, &graph, foreign).map(|_| ());
        JudgedEvidence { verdict, journal, programmatic }
    }
}

/// A capture that is being judged.
struct JudgeThread {
    /// The thread and the call that needs the verdict both try to take it; the one that does judges.
    evidence: Arc<Mutex<Option<Evidence>>>,
    /// `None` where no thread could be started.
    thread: Option<thread::JoinHandle<Option<JudgedEvidence>>>,
}

fn take(evidence: &Mutex<Option<Evidence>>) -> Option<Evidence> {
    evidence.lock().take()
}

impl JudgeThread {
    fn begin(evidence: Evidence) -> Self {
        let evidence = Arc::new(Mutex::new(Rank::Evidence, Some(evidence)));
        let shared = Arc::clone(&evidence);
        let judge = move || take(&shared).map(Evidence::judge);
        let thread = thread::Builder::new().name("regraph-judge".to_owned()).spawn(judge);
        Self { evidence, thread: thread.ok() }
    }

    /// Waits for the verdict.
    ///
    /// # Panics
    /// Where the checker has panicked.
    fn wait(self) -> Option<JudgedEvidence> {
        if let Some(evidence) = take(&self.evidence) {
            return Some(evidence.judge());
        }
        self.thread?.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// How far the judging of a closed capture is.
enum Verification {
    Accepted,
    Judging(JudgeThread),
}

/// A closed capture.
struct Closed {
    report: CaptureReport,
    stage: Verification,
}

/// Captures that are closed and whose verdict has not been asked for.
#[derive(Default)]
pub(super) struct Verdicts(Vec<Closed>);

impl Verdicts {
    /// Adds a capture that was judged already.
    pub(super) fn add_accepted(&mut self, report: CaptureReport) {
        self.0.push(Closed { report, stage: Verification::Accepted });
    }

    /// Has a capture judged from now on. Its graph is the report's.
    pub(super) fn add(&mut self, report: CaptureReport, evidence: Evidence) {
        let stage = Verification::Judging(JudgeThread::begin(evidence));
        self.0.push(Closed { report, stage });
    }

    fn take(&mut self, capture: CaptureId) -> Option<Closed> {
        let row = self.0.iter().position(|closed| closed.report.capture == capture)?;
        Some(self.0.swap_remove(row))
    }

    /// The graph of a closed capture, whose verdict is not asked for any more.
    pub(super) fn give_up(&mut self, capture: CaptureId) -> Option<super::GraphId> {
        self.take(capture).map(|closed| closed.report.graph)
    }
}

impl fmt::Debug for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|closed| closed.report.capture)).finish()
    }
}

impl<D: Driver> Engine<D> {
    /// The first of two steps that end a capture: everything that [`Engine::end_capture`] does but for
    /// the checker's verdict, which [`Engine::verdict`] waits for. In between the host may end the
    /// capture in the driver and instantiate its graph. *The graph must not be launched before
    /// [`Engine::verdict`] has accepted it.*
    ///
    /// The capture is over for its pools: later captures may take its memory, and its blocks may be
    /// freed, as after [`Engine::end_capture`]. The checker judges a copy of the graph, made before this
    /// returns, on a thread of its own. It judges before this returns, on the caller's thread:
    /// - captures of few nodes ([`Config::judge_aside`](super::Config::judge_aside));
    /// - captures whose memory is mapped at their end;
    /// - captures that are searched for late uses
    ///   ([`Config::find_late_uses`](super::Config::find_late_uses)) or for early reads
    ///   ([`Settings::early_reads`](crate::settings::Settings::early_reads));
    /// - with the setting `programmatic` `auto` or `deny`, captures with a programmatic launch.
    ///
    /// # Errors
    /// Those of [`Engine::end_capture`]. A capture that is refused here is rolled back, and has no
    /// verdict to ask for.
    pub fn close_capture(
        &self,
        capture: CaptureId,
        graph: crate::driver::GraphHandle,
    ) -> Result<(), Error> {
        // The capture is over, so there is no second try.
        self.request(|locked| locked.close_capture(capture, graph).map(Some), || false)
    }

    /// The second of two steps that end a capture: waits for the checker's verdict on a capture that
    /// [`Engine::close_capture`] has closed. May be called by any thread, once.
    ///
    /// # Errors
    /// [`Error::Refused`]: the graph must not be launched, and is released as by
    /// [`Engine::release_graph`]; its memory stays with the other graphs of its pools while there are
    /// any. The error names no kernels, since the graph may be gone.
    /// [`Error::Unknown`] for a capture that was not closed, or whose verdict was given before.
    ///
    /// # Panics
    /// Where the checker has panicked, which is a bug. The graph must not be launched then, and keeps
    /// its memory.
    pub fn verdict(&self, capture: CaptureId) -> Result<CaptureReport, Error> {
        let closed = self.lock()?.verdicts.take(capture);
        let unknown = Error::Unknown { call: "verdict", what: Unknown::Capture(capture) };
        let Closed { mut report, stage } = closed.ok_or(unknown)?;
        // Without the engine's lock: other threads go on.
        let judged = match stage {
            Verification::Accepted => {
                self.lock()?.adopt_lent(report.graph);
                return Ok(report);
            }
            Verification::Judging(judging) => judging.wait(),
        };
        let verdict = judged.ok_or(Error::Poisoned).and_then(|judged| match judged.verdict {
            Ok(()) => Ok((judged.journal, judged.programmatic)),
            Err(violation) => Err(Error::Refused(Box::new(violation))),
        });
        match verdict {
            Ok((journal, programmatic)) => {
                self.lock()?.adopt_lent(report.graph);
                report.record = Some(Arc::new(Record::new(journal, programmatic)));
                Ok(report)
            }
            Err(error) => {
                self.release_graph(report.graph)?;
                Err(error)
            }
        }
    }
}
