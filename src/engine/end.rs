//! Ending captures and graphs, in one step or in two.
//!
//! A capture that is closed ([`Engine::close_capture`]) is over for the pools: its memory is a graph's. What the
//! checker needs goes to a thread of its own, which knows nothing of the engine. [`Engine::verdict`] waits for it, or
//! judges by itself if the thread has not begun. A refused graph is released, as one that never ran.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::captures::CaptureState;
use super::config::Flaw;
use super::history::EventKind;
use super::live_blocks::{BlockSite, LiveBlock, Origin};
use super::names::{GraphId, PoolId};
use super::planned::{nanoseconds, PlanReport, Ready};
use super::report::{CaptureReport, Record};
use super::waits::{Unannounced, Wait};
use super::{Engine, Error, Level, Locked, State, Unknown};
use crate::capture::Outlook;
use crate::check::{Checker, FinishedGraph, Violation};
use crate::driver::{CaptureId, CaptureStatus, Driver, DriverError, GraphHandle, StreamHandle};
use crate::heap::CaptureSlot;
use crate::journal::{BlockNumber, Entry, Journal};
use crate::logging::{Range, Teller};
use crate::policy::Programmatic;
use crate::sync::{thread, Mutex, Rank};
use crate::uses::{EarlyRead, Found, Search};
use crate::{check, uses};

/// A capture that ends: its streams were looked at for the last time, and its record says what is planned for it.
struct EndingCapture {
    slot: CaptureSlot,
    /// `None` where the graph cannot be named: it may have run already.
    graph: Option<GraphHandle>,
    /// For its blocks without memory.
    plans: Vec<Ready>,
    /// Whether it has such blocks.
    unbound: bool,
    /// A copy of its graph, where the checker is to judge it; of one that cannot be named what was seen of it.
    finished: Option<Result<FinishedGraph, DriverError>>,
}

impl State {
    /// A new graph's claim on its pools.
    fn add_graph_to(&mut self, pools: SmallVec<[PoolId; 1]>, capture: CaptureId) -> GraphId {
        let planned = self.keep_planned(&pools, capture).then_some(capture);
        self.pools.add_graph((pools, planned))
    }

    /// Counts what a capture came to, and says it.
    fn conclude(&mut self, capture: CaptureId, verdict: Result<&CaptureReport, &Error>) {
        let counts = self.accounts.counts();
        match verdict {
            Ok(report) if report.verified => counts.num_captures_verified += 1,
            Ok(_) => counts.num_captures_unjudged += 1,
            Err(why) => {
                counts.num_captures_refused += 1;
                counts.num_captures_again += u64::from(matches!(why, Error::CaptureAgain(_)));
            }
        }
        self.messages.say(Level::Info, || match verdict {
            Ok(report) => report.to_string(),
            Err(why) => format!("capture {} is refused: {why}", capture.0),
        });
    }
}

impl<D: Driver> Locked<'_, D> {
    /// Ends a capture: nothing of it is a graph's, or has memory, before it is judged.
    pub(super) fn end_capture(
        &mut self,
        id: CaptureId,
        graph: Option<GraphHandle>,
    ) -> Result<Box<CaptureReport>, Error> {
        let (report, _) = self.close_capture(id, graph, false)?;
        let end = self.state.blocks.next_number();
        self.state.adopt_lent(report.graph, end);
        Ok(report)
    }

    /// Ends a capture; where it `may_wait`, perhaps but for its verdict. Returns its report, and what the checker is to
    /// judge it by: nothing where it is accepted already.
    fn close_capture(
        &mut self,
        id: CaptureId,
        graph: Option<GraphHandle>,
        may_wait: bool,
    ) -> Result<(Box<CaptureReport>, Option<Box<Evidence>>), Error> {
        let slot = self.look_last(id, graph)?;
        let mut ending = self.prepare(slot, graph);
        let evidence = if may_wait { self.evidence(&mut ending) } else { None };
        let report = match evidence {
            Some(_) => self.accept(&ending)?,
            None => self.judge_and_conclude(&mut ending)?,
        };
        Ok((report, evidence))
    }

    fn judge_and_conclude(
        &mut self,
        ending: &mut EndingCapture,
    ) -> Result<Box<CaptureReport>, Error> {
        let (verdict, mut found, took) = self.judge(ending);
        self.state.accounts.counts().check_ns += took;
        if let Err(why) = verdict {
            return Err(self.refuse(ending, why));
        }
        if self.config.refuse_late_uses && !found.late_uses.is_empty() {
            let late_uses = std::mem::take(&mut found.late_uses);
            return Err(self.refuse(ending, Error::LateUse(late_uses)));
        }
        // Its blocks get their memory. If it has lost some it is rolled back, and its pool may be suspended.
        let mut plan = None;
        if ending.unbound && self.state.capture(ending.slot).lost.is_none() {
            match self.bind_plans(ending.slot, std::mem::take(&mut ending.plans)) {
                Ok(report) => plan = report,
                Err(why) => return Err(self.refuse(ending, why)),
            }
        }
        self.accept_judged(ending, found, plan, took)
    }

    /// Looks at the streams of a capture that ends for the last time.
    fn look_last(
        &mut self,
        id: CaptureId,
        graph: Option<GraphHandle>,
    ) -> Result<CaptureSlot, Error> {
        const CALL: &str = "end_capture";
        let slot = self.state.slot_of(id, CALL)?;
        // Without a graph's name the streams may be in other captures and threads by now.
        if graph.is_some() {
            match self.last_looks(slot) {
                Ok(true) => self.state.capture(slot).write_journal(Entry::Looked),
                Ok(false) => {}
                Err(stream) => {
                    let _ = self.end(slot, false);
                    return Err(Error::CaptureInvalidated { call: CALL, stream, ended: false });
                }
            }
            self.take_over(slot);
            self.state.slot_of(id, CALL)?;
        }
        // Before its pools are named: a block that waits may bring one in.
        self.poll_waits(usize::MAX);
        Ok(slot)
    }

    /// Has the record say what is planned for the capture, and copies the graph for the checker.
    fn prepare(&mut self, slot: CaptureSlot, graph: Option<GraphHandle>) -> EndingCapture {
        self.learn_from(slot);
        for pool in SmallVec::<[_; 1]>::from_slice(self.state.capture(slot).pools()) {
            self.state.journal_count(slot, pool);
        }
        let unbound = self.state.unbound(slot).next().is_some();
        let plans = match graph {
            Some(_) if unbound => self.prepare_plans(slot),
            _ => Vec::new(),
        };
        // A plan maps memory by what the journal says, so it is always judged.
        let checked = self.config.settings.check || unbound;
        let capture_state = self.state.captures.get_mut(slot);
        let surprised = capture_state.is_surprised();
        let (journal, checker) = capture_state.record();
        let finished = journal.filter(|_| checked).and_then(|journal| match graph {
            Some(graph) => Some(checker.read(self.driver, graph)),
            // Nothing is asked about its nodes: they may be gone.
            None => (surprised && !unbound).then(|| Ok(FinishedGraph::remembered(journal))),
        });
        EndingCapture { slot, graph, plans, unbound, finished }
    }

    /// What a thread of its own is to judge a capture by; `None` where it is judged at once.
    fn evidence(&mut self, ending: &mut EndingCapture) -> Option<Box<Evidence>> {
        let EndingCapture { slot, unbound, finished, .. } = ending;
        let programmatic = self.config.settings.programmatic;
        let trusted = matches!(programmatic, Programmatic::Lag | Programmatic::Trust);
        let may_wait = !*unbound
            && self.search() == Search::default()
            && finished.as_ref().is_some_and(|finished| {
                // A capture that is likely to be refused is judged while its kernels can be named.
                finished.as_ref().is_ok_and(|graph| {
                    graph.nodes().len() >= self.config.judge_aside && (trusted || graph.is_full())
                })
            });
        let graph = finished.take_if(|_| may_wait)?.ok()?;
        let capture_state = self.state.capture(*slot);
        let (capture, journal) = (capture_state.id(), capture_state.journal.take()?);
        let (foreign, teller) = (self.config.foreign_nodes, self.state.messages.teller());
        Some(Box::new(Evidence { capture, journal, graph, programmatic, foreign, teller }))
    }

    /// The checker's verdict on the capture, as far as it is to judge it, and what was found in its graph.
    fn judge(&mut self, ending: &mut EndingCapture) -> (Result<(), Error>, Found, u64) {
        let mut took = 0;
        let &mut EndingCapture { slot, graph: named, unbound, ref mut finished, .. } = ending;
        let capture_state = self.state.capture(slot);
        let (id, undone) = (capture_state.id(), capture_state.undone());
        let _shown = finished.is_some().then(|| judging(self.state.messages.teller(), id));
        let (policy, foreign) = (self.config.settings.programmatic, self.config.foreign_nodes);
        let (journal, checker) = self.state.capture(slot).record();
        let verdict = match (journal.zip(finished.take()), undone) {
            (Some((journal, Ok(graph))), _) => {
                let (judged, time) = judge_timed(checker, (journal, policy), &graph, foreign);
                took = time;
                let judged = judged.map_err(|violation| match named {
                    Some(_) => self.refusal(slot, &graph, violation),
                    None => Error::Refused(Box::new(violation)),
                });
                self.state.capture(slot).record().1.keep(graph);
                judged
            }
            (Some((_, Err(error))), _) => Err(Error::Refused(Box::new(Violation::Driver(error)))),
            (None, Some((block, stream))) => Err(Error::SetBack { stream, block }),
            (None, None) if unbound => Err(Error::Unplanned { capture: id }),
            (None, None) => Ok(()),
        };
        let search = self.search();
        let recorded = self.state.captures.get(slot).journal.as_ref().zip(named);
        let recorded = recorded.filter(|_| search != Search::default() && verdict.is_ok());
        // What the checker could not read either, it has refused.
        let found = recorded
            .and_then(|(journal, graph)| uses::find(journal, self.driver, graph, search).ok());
        (verdict, found.unwrap_or_default(), took)
    }

    /// What each graph's parameters are searched for.
    fn search(&self) -> Search {
        let (late_uses, early_reads) =
            (self.config.find_late_uses, self.config.settings.early_reads);
        Search { late_uses, early_reads }
    }

    /// Hands the memory of a capture that was judged to a graph, and tells what was found in that.
    fn accept_judged(
        &mut self,
        ending: &EndingCapture,
        Found { late_uses, early_reads }: Found,
        plan: Option<PlanReport>,
        took: u64,
    ) -> Result<Box<CaptureReport>, Error> {
        let programmatic = self.config.settings.programmatic;
        let journal = self.state.capture(ending.slot).journal.take();
        let mut report = self.accept(ending)?;
        let (id, uses) = (report.capture.0, late_uses.len());
        if uses > 0 {
            let headline = format!("capture {id}: {uses} uses of blocks later than was recorded:");
            self.state.messages.warn_list(&headline, &late_uses);
        }
        let likely: Vec<&EarlyRead> = early_reads.iter().filter(|it| it.is_likely()).collect();
        if !likely.is_empty() {
            let count = likely.len();
            let headline =
                format!("capture {id}: {count} reads of what nothing in the graph wrote before:");
            self.state.messages.warn_list(&headline, &likely);
        }
        report.record = journal.map(|journal| Arc::new(Record::new(journal, programmatic)));
        report.check_ns = if report.verified { took } else { 0 };
        (report.plan, report.late_uses, report.early_reads) = (plan, late_uses, early_reads);
        self.state.conclude(report.capture, Ok(&report));
        Ok(report)
    }

    /// Rolls a capture back that is refused, and returns why.
    fn refuse(&mut self, ending: &EndingCapture, why: Error) -> Error {
        let &EndingCapture { slot, graph, .. } = ending;
        let id = self.state.capture(slot).id();
        if let Error::CaptureAgain(_) = &why {
            // Its early launches are foreseen from now on.
            if let Some(journal) = self.state.capture(slot).journal.take() {
                let before = self.state.foresight.take().unwrap_or_default();
                self.state.foresight = Some(Arc::new(before.learn(&journal)));
            }
        }
        self.state.conclude(id, Err(&why));
        // A graph that cannot be named may have run already: its memory stays its own.
        let accepted = graph.is_none();
        // If memory is lost the pool itself says so, and the refusal is the error to return.
        let (pools, _) = self.end(slot, accepted);
        if accepted {
            self.state.add_graph_to(pools, id);
        }
        why
    }

    /// Hands the memory of a capture to a graph.
    fn accept(&mut self, ending: &EndingCapture) -> Result<Box<CaptureReport>, Error> {
        let &EndingCapture { slot, graph, unbound, .. } = ending;
        let verified = (self.config.settings.check || unbound) && graph.is_some();
        let capture_state = self.state.capture(slot);
        let (id, CaptureState { proof, following, .. }) = (capture_state.id(), &*capture_state);
        let (nodes, blocks) = (proof.nodes(), proof.handed_out());
        let dependency_queries = proof.queries();
        let layout = following.as_ref().map(|following| following.followed());
        let (pools, ended) = self.end(slot, true);
        if let Err(lost) = ended {
            let why = Error::from(lost);
            self.state.conclude(id, Err(&why));
            return Err(why);
        }
        let reserved = pools.iter().map(|&pool| self.state.pools.reserved(pool)).sum();
        let graph = self.state.add_graph_to(pools, id);
        Ok(Box::new(CaptureReport {
            capture: id,
            graph,
            nodes,
            blocks,
            reserved,
            verified,
            check_ns: 0,
            dependency_queries,
            late_uses: Vec::new(),
            early_reads: Vec::new(),
            record: None,
            layout,
            plan: None,
        }))
    }

    /// Looks once more at every stream that is still in the capture, so that the record says what
    /// was launched since, and by whom. Returns whether one was.
    ///
    /// # Errors
    /// A stream whose capture is ruined.
    pub(super) fn last_looks(&mut self, slot: CaptureSlot) -> Result<bool, StreamHandle> {
        let capture_state = self.state.capture(slot);
        let id = capture_state.id();
        let mut inside = SmallVec::<[_; 8]>::new();
        let streams: SmallVec<[StreamHandle; 8]> = capture_state.streams().collect();
        let (mut over, mut ruined) = (false, None);
        for stream in streams {
            match self.driver.capture_status(stream, &mut self.state.terminals) {
                Ok(CaptureStatus::Active { capture, .. }) if capture == id => {
                    inside.push(self.look(slot, stream));
                }
                Ok(CaptureStatus::Invalidated) => ruined = Some(stream),
                // All streams of a capture leave it when it ends: what is ruined is another one.
                Ok(_) => over = true,
                // Unknown: the record stays as it is.
                Err(_) => {}
            }
        }
        if let Some(stream) = ruined.filter(|_| !over) {
            return Err(stream);
        }
        let looked = !inside.is_empty();
        let CaptureState { proof, journal, .. } = self.state.capture(slot);
        if let Some(journal) = journal {
            // Record every stream's dependencies again: no stream that was looked at earlier launched what a later
            // one did.
            inside.into_iter().for_each(|stream| proof.confirm(stream, journal));
        }
        Ok(looked)
    }

    /// Takes a capture's state apart. `accepted` gives its memory to a graph; without, every
    /// decision taken in it is rolled back, as after an error of the driver's by which memory of it is lost. What it
    /// leaves waits for the captures that are under way beside it in the same pools: one of them may contain it. Returns
    /// the pools that it used, and the driver's error where memory of them is lost.
    pub(super) fn end(
        &mut self,
        slot: CaptureSlot,
        mut accepted: bool,
    ) -> (SmallVec<[PoolId; 1]>, Result<(), DriverError>) {
        // While it is still known: all that waits and is used in it belongs to its graph.
        self.poll_waits(usize::MAX);
        // No graph with blocks in it has run yet.
        let pools = SmallVec::<[PoolId; 1]>::from_slice(self.state.capture(slot).pools());
        for &pool in &pools {
            // Whom a loss concerns is told at its capture's end.
            let _ = self.end_premapped(pool, Some(slot));
        }
        let Some(mut over) = self.take_capture(slot) else { return (pools, Ok(())) };
        let (id, lost) = (over.id(), over.lost.take());
        accepted &= lost.is_none();
        if let Some(&pool) = pools.first() {
            self.state.record_event(EventKind::CaptureEnd, (id.0, 0), None, pool);
            if let Some(row) = self.state.pools.get(pool).filter(|_| accepted) {
                let held = row.heaps().map(|heap| self.state.pools.heap(heap).reserved());
                self.state.captures.note_held(held);
            }
        }
        // Its live blocks are the graph's outputs from now on, or those of no capture.
        let end_in = |block: &mut LiveBlock| {
            if matches!(block.origin, Origin::Capture(home) if home.slot == slot) {
                block.roll_back();
                if accepted {
                    block.origin = Origin::Graph;
                }
            }
        };
        for &pool in &pools {
            // Beside another capture, some of them came before that.
            self.state.blocks.change_of(pool, over.concurrent(), end_in);
        }
        // What it gave back is free, unless a capture beside it may contain it.
        let hold = !self.config.lacks(Flaw::Hold);
        for &pool in &pools {
            let concurrent = if hold { self.state.captures.ids_of(pool) } else { SmallVec::new() };
            let Some(row) = self.state.pools.get_mut(pool) else { continue };
            row.remove_capture();
            let last = row.captures() == 0;
            for heap in row.heaps() {
                if self.state.pools.heap(heap).free_pieces().0 > 0 {
                    // Else nothing changes that is counted.
                    self.state.pools.change(heap);
                }
                let row = self.state.pools.counted_heap_mut(heap);
                if last {
                    row.open_all();
                }
                let waiting = row.end_capture(slot, accepted, !concurrent.is_empty());
                for (range, users) in waiting {
                    let number = self.state.blocks.number();
                    let waiting = Wait::new(BlockSite { number, heap, range }, users);
                    self.state.waiting.add(waiting.beside(&concurrent, Unannounced::Untold));
                }
                self.drop_uncached(heap);
            }
        }
        // What it could not prove free waits for the captures beside it.
        let State { captures, pools: all, waiting, .. } = &mut *self.state;
        waiting.end_capture((slot, id), accepted, |heap| captures.ids_of(all.pool_of(heap)));
        // Each free may bring another capture into the pool, whose record tells of what waits by then.
        for block in over.left.drain(..) {
            let Some(mut block) = self.state.blocks.remove(block) else { continue };
            self.discount(&block);
            self.free_outside(&mut block);
        }
        self.poll_waits(usize::MAX);
        if !accepted {
            self.leave_planned(&pools, id);
            for &pool in &pools {
                self.forget_graphs(pool);
            }
        }
        let followed = over.following.take().filter(|_| accepted);
        self.state.lessons.note_end(pools.first().copied().zip(followed));
        self.state.captures.keep(over);
        (pools, lost.map_or(Ok(()), Err))
    }

    pub(super) fn release_graph(&mut self, graph: GraphId) -> Result<(), Error> {
        let found = self.state.pools.remove_graph(graph);
        let (pools, planned) =
            found.ok_or(Error::Unknown { call: "release_graph", what: Unknown::Graph(graph) })?;
        self.state.messages.say(Level::Debug, || format!("{graph} is released"));
        if let Some(capture) = planned {
            self.leave_planned(&pools, capture);
        }
        for pool in pools {
            self.forget_graphs(pool);
        }
        Ok(())
    }

    /// Without a graph, and a capture that may become one, what graphs used is free for work outside captures.
    pub(super) fn forget_graphs(&mut self, pool: PoolId) {
        let Some(row) = self.state.pools.get_mut(pool) else { return };
        if !row.is_without_graphs() {
            return;
        }
        for heap in row.heaps() {
            self.state.pools.heap_mut(heap).forget_graphs();
            self.drop_uncached(heap);
        }
        for waiting in self.state.waiting.iter_mut().filter(|waiting| waiting.site().is_in(pool)) {
            waiting.forget_graphs();
        }
        self.state.pools.end_lending(pool);
        self.state.blocks.change_of(pool, true, |block| {
            block.tenure = block.tenure.without_graphs();
            if matches!(block.origin, Origin::Graph) {
                block.origin = Origin::Past;
            }
        });
    }

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
        let (trust, foreign) = (Programmatic::Trust, self.config.foreign_nodes);
        let trusted = |journal| check::judge(journal, trust, graph, foreign).is_ok();
        match journal.as_ref().filter(|_| may_change).is_some_and(trusted) {
            true => Error::CaptureAgain(violation),
            false => Error::Refused(violation),
        }
    }
}

/// What the checker judges a capture by.
struct Evidence {
    capture: CaptureId,
    journal: Journal,
    graph: FinishedGraph,
    programmatic: Programmatic,
    /// Whether a node of no stream that the engine looked at is taken to use no block, instead of any.
    foreign: bool,
    teller: Teller,
}

/// What a profiler shows while a capture is judged.
fn judging(teller: Teller, capture: CaptureId) -> Option<Range> {
    teller.range(|| format!("verdict on capture {}", capture.0))
}

/// A verdict, the record that it is on, and how long the checker took, in nanoseconds.
type Judged = (Result<(), Violation>, Record, u64);

impl Evidence {
    fn judge(self) -> Judged {
        let Self { capture, journal, graph, programmatic, foreign, teller } = self;
        let _shown = judging(teller, capture);
        let mut checker = Checker::default();
        let (verdict, took) = judge_timed(&mut checker, (&journal, programmatic), &graph, foreign);
        (verdict, Record::new(journal, programmatic), took)
    }
}

/// The checker's verdict on a record and its graph, and how long the checker took, in nanoseconds.
fn judge_timed(
    checker: &mut Checker,
    (journal, programmatic): (&Journal, Programmatic),
    graph: &FinishedGraph,
    foreign: bool,
) -> (Result<(), Violation>, u64) {
    let started = Instant::now();
    let verdict = checker.judge(journal, programmatic, graph, foreign).map(|_| ());
    (verdict, nanoseconds(started.elapsed()))
}

/// A closed capture.
pub(super) struct Closed {
    report: Box<CaptureReport>,
    /// The number of the next block when it was closed.
    end: BlockNumber,
    /// What it is to be judged by. The thread and the call that needs the verdict both try to take this; the first one
    /// judges.
    evidence: Option<Box<Evidence>>,
    /// The thread that judges it; none where it is accepted already, and where no thread could be started.
    thread: Option<thread::JoinHandle<Option<Judged>>>,
}

/// Captures that are closed and whose verdict has not been asked for.
pub(super) struct Verdicts(Arc<Mutex<Vec<Closed>>>);

impl Verdicts {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Rank::Verdicts, Vec::new())))
    }

    /// Has a capture judged from now on, unless it was already; its graph is the report's.
    fn add(&self, report: Box<CaptureReport>, end: BlockNumber, evidence: Option<Box<Evidence>>) {
        let (closed, capture) = (Arc::clone(&self.0), report.capture);
        let judge = move || {
            let mut all = closed.lock();
            let evidence = all.iter_mut().find(|it| it.report.capture == capture)?.evidence.take();
            drop(all);
            evidence.map(|evidence| evidence.judge())
        };
        let mut all = self.0.lock();
        let thread = evidence.as_ref().and_then(|_| {
            thread::Builder::new().name("regraph-judge".to_owned()).spawn(judge).ok()
        });
        all.push(Closed { report, end, evidence, thread });
    }

    fn take(&self, capture: CaptureId) -> Option<Closed> {
        let mut all = self.0.lock();
        let row = all.iter().position(|closed| closed.report.capture == capture)?;
        Some(all.swap_remove(row))
    }

    /// The graph of a closed capture, whose verdict is not asked for any more.
    pub(super) fn give_up(&self, capture: CaptureId) -> Option<GraphId> {
        self.take(capture).map(|closed| closed.report.graph)
    }
}

impl<D: Driver> Engine<D> {
    /// The first of two steps that end a capture: does everything that [`Engine::end_capture`] does but wait for the
    /// checker's verdict; [`Engine::verdict`] waits for that. Between the two calls the host may end the capture in the
    /// driver and instantiate its graph. *The graph must not be launched before [`Engine::verdict`] has accepted it.*
    ///
    /// The capture is over for its pools: later captures may take its memory, and its blocks may be freed, as after
    /// [`Engine::end_capture`]. The checker judges a copy of the graph on a thread of its own, but before this returns,
    /// on the caller's thread, captures of few nodes ([`Config::judge_aside`](super::Config::judge_aside)), captures
    /// whose memory is mapped at their end, captures that are searched for late uses
    /// ([`Config::find_late_uses`](super::Config::find_late_uses)) or early reads
    /// ([`Settings::early_reads`](crate::settings::Settings::early_reads)), and, with the setting `programmatic` `auto`
    /// or `deny`, captures with a programmatic launch.
    ///
    /// # Errors
    /// Those of [`Engine::end_capture`]. A capture that is refused here is rolled back, and has no verdict to ask for.
    pub fn close_capture(&self, capture: CaptureId, graph: GraphHandle) -> Result<(), Error> {
        let close = |locked: &mut Locked<'_, D>| {
            let (report, evidence) = locked.close_capture(capture, Some(graph), true)?;
            // Before the engine's lock is released: each call finds the capture under way, or closed.
            self.verdicts.add(report, locked.state.blocks.next_number(), evidence);
            Ok(Some(()))
        };
        // The capture is over, so there is no second try.
        self.request(close, || false)
    }

    /// The second of two steps that end a capture: waits for the checker's verdict on a capture that
    /// [`Engine::close_capture`] has closed. May be called by any thread, once; best when the capture has ended in the
    /// driver: blocks from before it that it freed wait for events, which this call then records on its streams.
    ///
    /// # Errors
    /// [`Error::Refused`]: the graph must not be launched, and is released as by [`Engine::release_graph`]; its memory
    /// stays with the other graphs of its pools while there are any. The error names no kernels, since the graph may be
    /// gone. [`Error::Unknown`] for a capture that was not closed, or whose verdict was given before.
    ///
    /// # Panics
    /// If the checker has panicked, which is a bug. Then the graph must not be launched, and keeps its memory.
    pub fn verdict(&self, capture: CaptureId) -> Result<CaptureReport, Error> {
        let unknown = || Error::Unknown { call: "verdict", what: Unknown::Capture(capture) };
        let closed = self.change(|locked| {
            let closed = self.verdicts.take(capture).ok_or_else(unknown)?;
            if closed.evidence.is_none() && closed.thread.is_none() {
                locked.state.adopt_lent(closed.report.graph, closed.end);
            }
            // Events on the capture's streams: the next capture may come before any other call that could record them.
            locked.poll_waits(usize::MAX);
            Ok(closed)
        })?;
        let Closed { mut report, end, evidence, thread } = closed;
        // Without the engine's lock: other threads go on.
        let judged = match evidence {
            None if thread.is_none() => return Ok(*report),
            Some(evidence) => Some(evidence.judge()),
            None => thread
                .and_then(|judging| judging.join().unwrap_or_else(|panic| resume_unwind(panic))),
        };
        let Some((verdict, record, took)) = judged else {
            self.release_graph(report.graph)?;
            return Err(Error::Poisoned);
        };
        (report.check_ns, report.record) = (took, Some(Arc::new(record)));
        let verdict = verdict.map_err(|violation| Error::Refused(Box::new(violation)));
        self.change(|locked| {
            locked.state.accounts.counts().check_ns += took;
            locked.state.conclude(capture, verdict.as_ref().map(|()| &*report));
            match verdict {
                Ok(()) => locked.state.adopt_lent(report.graph, end),
                Err(_) => locked.release_graph(report.graph)?,
            }
            verdict
        })
        // The record, which may be large, is dropped without the lock.
        .map(|()| *report)
    }

    /// Sets which attempt at its work a capture is; call it before the capture's first allocation. A host that captures
    /// again after [`Error::CaptureAgain`] numbers its attempts from [`Attempt::First`] on ([`Attempt::after`] gives
    /// the next one): captures need the least memory that way. [`Engine::capture`](Engine::capture),
    /// [`Pool::capture_twice`](crate::graphs::Pool::capture_twice) and callables do so by themselves. The call has no
    /// effect without the checker, or with another setting than [`Programmatic::Auto`].
    pub fn set_attempt(&self, capture: CaptureId, attempt: Attempt) -> Result<(), Error> {
        self.in_capture(capture, "set_attempt", |locked, slot| {
            let outlook = locked.outlook(attempt);
            locked.state.capture(slot).proof.set_outlook(outlook);
            Ok(())
        })
    }
}

/// Which attempt at its work a capture is, where the setting `programmatic` is `auto`: how often the
/// checker has refused the same work for a programmatic launch ([`Error::CaptureAgain`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// The first attempt, of a host that captures again if it is refused. The engine assumes that every launch waits
    /// for its predecessor, so launches that do wait cost no memory.
    First,
    /// The second attempt, or the only one of a host that may be unable to capture again. The engine assumes that a
    /// launch starts early where the latest refused capture launched programmatically. A stream that asks for other
    /// blocks than it did in that capture is treated as under `lag` from then on, if it launched programmatically in
    /// any refused capture.
    #[default]
    Again,
    /// The third attempt. The engine assumes that every launch may start early, as under `lag`.
    Last,
}

impl Attempt {
    /// The attempt to make after this one failed with `error`: the next one after [`Error::CaptureAgain`].
    ///
    /// # Errors
    /// `error` itself, if it is another error or this attempt was the last.
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
