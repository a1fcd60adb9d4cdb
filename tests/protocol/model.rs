//! The model: two graphs of one pool, two streams, loans to them and to another process, sleep and compaction.
//!
//! A step is one call of the host's, or the device completing what a stream has. Work is not run: what a stream was
//! given stands in its queue, with how much of the other stream's it comes after. So a rule that orders work is broken
//! at the step that gives work which conflicts with work that it does not come after, whatever the device does then.
//!
//! The protocol's rules are the `if`s of the calls below; [`Rule`] names them, so that each can be left out.

use stateright::{Model, Property};

/// What a stream holds at most; calls that give it more are not made.
const LONGEST: usize = 2;

/// What is true in every state.
pub const LOST: &str = "no work meets memory that is not there, or that was not brought back";
pub const OVERLAP: &str = "no loan and no launch overlaps a launch";
pub const KEPT: &str = "what graphs keep is given to no other";

/// A call of the host's, or the device's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Launch {
        graph: usize,
        stream: usize,
    },
    /// A stream borrows, and writes what it got.
    Borrow {
        stream: usize,
    },
    /// A stream that borrowed gives back, after a last look on the stream `reader`; the memory is the graphs' again.
    Return {
        stream: usize,
        reader: usize,
    },
    /// The pool lends to another process; the block is the first stream's.
    LendToProcess,
    /// The other process takes the loan, and works on it until it gives it back, or ends.
    TakeLoan,
    GiveBackLoan,
    EndProcess,
    Recall,
    /// What the host does who holds the region.
    Sleep,
    TrySleep,
    Wake,
    /// What the pool's owner does.
    Compact,
    Suspend,
    Resume,
    /// Graphs that were dropped in flight, and have finished, are released.
    Collect,
    Drop {
        graph: usize,
    },
    /// Another pool takes the device's memory while the region sleeps, and gives it back.
    Take,
    GiveBack,
    /// The device completes what a stream has, and what that waits for.
    Complete {
        stream: usize,
    },
}

/// What a call answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    Done,
    /// Memory went, or came.
    Moved,
    /// A block in memory of the graphs, or in other memory of the pool.
    Lent,
    Plain,
    /// The other process has the loan still.
    Out,
    // Refusals, by the variant of the error.
    NothingLent,
    NotTaken,
    Suspended,
    Asleep,
    BlocksLent,
    HasBlocks,
    Runs,
    Busy,
    NoMemory,
}

/// A rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    LaunchAfterLaunch,
    LaunchAfterBorrowers,
    LaunchNotWhileLent,
    LaunchAwake,
    BorrowAfterLaunch,
    BorrowOfTemporaries,
    BorrowInOrder,
    LoanWaits,
    LoanHoldsLaunches,
    LoanDone,
    SleepKeepsGraphs,
    SleepKeepsBlocks,
    SleepWaits,
    TrySleepAsks,
    CompactWaits,
    WakeOpens,
    ResumeNotAsleep,
    ReleaseOfFinished,
}

/// What a piece of work uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Use {
    Graph(usize),
    /// A loan in the graphs' temporary memory.
    Loan,
    /// A loan in what the graphs keep: there is none, with all rules.
    LoanOfKept,
    /// A block of no graph.
    Plain,
}

impl Use {
    /// Whether two of them must not overlap. Graphs share their temporary memory; and the one writes what both
    /// keep, and the other reads it.
    fn conflicts(self, other: Self) -> bool {
        self != Self::Plain && other != Self::Plain
    }
}

/// Work that a stream was given, and how many pieces of the other stream's it comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Work {
    of: Use,
    after: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Lives,
    /// Dropped while a launch of the pool was under way: on which stream, and its number there.
    Retired(usize, usize),
    Gone,
}

/// The graphs' temporary memory, which holds one loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Temporary {
    Free,
    Lent,
    /// A stream gave it back. The streams that used it have done so after as many pieces of work; `passed` if a
    /// launch comes after all of these, and nobody has asked since.
    Returned {
        own: usize,
        marks: [usize; 2],
        passed: bool,
    },
}

/// A loan to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Process {
    /// There is none.
    None,
    Offered,
    /// The pool has slept since, and what no process had mapped is gone.
    OfferedGone,
    Taken,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wrong {
    /// Work runs beside work that uses the same memory.
    Overlap,
    /// Work meets memory that is not there, or holds something else.
    Lost,
    /// What graphs keep was given to another.
    Kept,
}

/// The protocol's state. A number of work is how many of its stream's come up to it, and 0 once it is done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    queues: [Vec<Work>; 2],
    /// How much of the other stream's work precedes what the stream is given next.
    after: [usize; 2],
    /// The last launch that has not finished.
    last: Option<(usize, usize)>,
    graphs: [Life; 2],
    loans: [Option<Use>; 2],
    temporary: Temporary,
    process: Process,
    /// Whether the other process works on what it has or had borrowed, and which work of the streams it comes after is
    /// not known to it: it must come after all that conflicts.
    process_works: bool,
    /// Work on what was lent, which the next launch comes after.
    borrowed: [usize; 2],
    /// Work on freed blocks of no graph.
    freed: [usize; 2],
    asleep: bool,
    taken: bool,
    /// Whether compaction would give something back.
    excess: bool,
    /// Whether what the graphs keep holds anything, and what blocks do.
    lost: [bool; 2],
    /// Whether what the second graph reads is there only once the first one has run, as the host knows.
    stale: bool,
    wrong: Option<Wrong>,
}

/// Two graphs of one pool, which an engine is asked to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protocol {
    /// Which graphs' memory comes at the end of their captures. It lends nothing, and can be compacted.
    pub planned: [bool; 2],
    /// A rule that is left out.
    pub without: Option<Rule>,
}

impl State {
    fn is_empty(&self, stream: usize) -> bool {
        self.queues[stream].is_empty()
    }

    /// The device completes so many pieces of a stream's work, and what they wait for.
    fn complete(&mut self, stream: usize, pieces: usize, mut others: usize) {
        let other = 1 - stream;
        for work in &self.queues[stream][..pieces] {
            others = others.max(work.after);
        }
        for (of, done) in [(stream, pieces), (other, others)] {
            self.queues[of].drain(..done);
            self.queues[1 - of].iter_mut().for_each(|it| it.after = it.after.saturating_sub(done));
            self.after[1 - of] = self.after[1 - of].saturating_sub(done);
            let less = |number: &mut usize| *number = number.saturating_sub(done);
            less(&mut self.borrowed[of]);
            less(&mut self.freed[of]);
            if let Temporary::Returned { marks, .. } = &mut self.temporary {
                less(&mut marks[of]);
                if *marks == [0, 0] {
                    self.temporary = Temporary::Free;
                }
            }
            if let Some((_, number)) = self.last.as_mut().filter(|it| it.0 == of) {
                less(number);
            }
            self.last = self.last.filter(|it| it.1 > 0);
            for life in &mut self.graphs {
                if let Life::Retired(stream, number) = life {
                    if *stream == of {
                        less(number);
                    }
                    if *number == 0 {
                        // On whichever stream.
                        *stream = 0;
                    }
                }
            }
        }
    }

    fn complete_all(&mut self) {
        for stream in 0..2 {
            self.complete(stream, self.queues[stream].len(), 0);
        }
    }

    /// Waits for the last launch.
    fn wait_for_launch(&mut self) {
        if let Some((stream, number)) = self.last {
            self.complete(stream, number, 0);
        }
    }

    /// What a stream is given next comes after the first `number` pieces of another's work.
    fn follow(&mut self, stream: usize, other: usize, number: usize) {
        if stream != other {
            self.after[stream] = self.after[stream].max(number);
        }
    }

    /// Gives a stream work; returns its number.
    fn give(&mut self, stream: usize, of: Use) -> usize {
        let beside = self.queues[1 - stream].iter().skip(self.after[stream]);
        let other_process = self.process_works && of.conflicts(Use::Loan);
        if other_process || beside.copied().any(|it| it.of.conflicts(of)) {
            self.wrong.get_or_insert(Wrong::Overlap);
        }
        let [kept, blocks] = self.lost;
        let reads = match of {
            Use::Graph(_) => kept || blocks,
            _ => false,
        };
        if self.asleep || reads {
            self.wrong.get_or_insert(Wrong::Lost);
        }
        self.queues[stream].push(Work { of, after: self.after[stream] });
        self.queues[stream].len()
    }

    /// The memory goes, or is exchanged: no work may use it.
    fn take_away(&mut self, used: impl Fn(Use) -> bool) {
        if self.queues.iter().flatten().any(|work| used(work.of)) {
            self.wrong.get_or_insert(Wrong::Lost);
        }
    }

    /// Whether a graph lives and can read what it reads, at once or when the other one has run.
    pub fn is_of_use(&self, graph: usize) -> bool {
        let lives = |graph: usize| self.graphs[graph] == Life::Lives;
        lives(graph) && (graph == 0 || !self.stale || lives(0))
    }

    /// Whether work may use memory that was freed.
    fn is_busy(&self) -> bool {
        self.freed != [0, 0] || matches!(self.temporary, Temporary::Returned { .. })
    }

    fn has_graphs(&self) -> bool {
        self.graphs.iter().any(|it| *it != Life::Gone)
    }

    /// Dropped graphs that have finished are released.
    fn collect(&mut self) {
        for graph in 0..2 {
            if let Life::Retired(_, 0) = self.graphs[graph] {
                self.release(graph);
            }
        }
    }

    fn release(&mut self, graph: usize) {
        let runs = |of: &Work| of.of == Use::Graph(graph);
        if self.queues.iter().flatten().any(runs) {
            self.wrong.get_or_insert(Wrong::Lost);
        }
        self.graphs[graph] = Life::Gone;
        // One graph alone has no more than it needs.
        self.excess = false;
        if !self.has_graphs() {
            if let Temporary::Returned { marks, .. } = self.temporary {
                (0..2).for_each(|it| self.freed[it] = self.freed[it].max(marks[it]));
            }
            self.temporary = Temporary::Free;
            self.borrowed = [0, 0];
        }
    }
}

impl Protocol {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// Whether any graph has memory that can be lent.
    fn lends(&self) -> bool {
        self.planned != [true, true]
    }

    /// What the host may do. It gives no work beyond [`LONGEST`], and promises what it has promised: that no work is
    /// given which uses memory that sleeps; that the second graph is launched after the first where what it reads may
    /// be lost; and, before a call that does not wait, that its own work on live blocks has completed.
    pub fn may(&self, state: &State, action: Action) -> bool {
        let room = |stream: usize| state.queues[stream].len() < LONGEST;
        match action {
            Action::Launch { graph, stream } => {
                state.graphs[graph] == Life::Lives && room(stream) && !(graph == 1 && state.stale)
            }
            Action::Borrow { stream } => {
                // Which freed block of no graph a stream gets again is the heap's business.
                let plain = self.lent(state, stream) == Use::Plain;
                let settled = !plain || state.freed == [0, 0];
                state.loans[stream].is_none() && room(stream) && settled
            }
            Action::Return { stream, reader } => {
                let awake = room(reader) && !state.asleep;
                state.loans[stream].is_some() && (awake || state.asleep && reader == stream)
            }
            Action::Drop { graph } => state.graphs[graph] == Life::Lives,
            Action::LendToProcess => self.lends() && state.process == Process::None,
            Action::TakeLoan => matches!(state.process, Process::Offered | Process::OfferedGone),
            Action::GiveBackLoan | Action::EndProcess => state.process == Process::Taken,
            Action::Recall => state.process != Process::None,
            Action::TrySleep => {
                let on_block = |it: &Work| !matches!(it.of, Use::Graph(_));
                let works = state.queues.iter().flatten().any(on_block);
                state.loans == [None, None] || !works
            }
            Action::Take => state.asleep && !state.taken,
            Action::GiveBack => state.taken,
            Action::Complete { stream } => !state.is_empty(stream) || state.after[stream] > 0,
            Action::Sleep
            | Action::Wake
            | Action::Compact
            | Action::Suspend
            | Action::Resume
            | Action::Collect => true,
        }
    }

    /// What a call does to the state, and answers.
    pub fn step(&self, state: &mut State, action: Action) -> Answer {
        match action {
            Action::Launch { graph, stream } => self.launch(state, graph, stream),
            Action::Borrow { stream } => self.borrow(state, stream),
            Action::Return { stream, reader } => {
                self.give_back(state, stream, reader);
                Answer::Done
            }
            Action::LendToProcess => self.lend_to_process(state),
            Action::TakeLoan => match state.process {
                Process::OfferedGone => {
                    self.end_loan(state);
                    Answer::NotTaken
                }
                _ => {
                    let works = |of: &Work| of.of.conflicts(Use::Loan);
                    if state.queues.iter().flatten().any(works) {
                        state.wrong.get_or_insert(Wrong::Overlap);
                    }
                    (state.process, state.process_works) = (Process::Taken, true);
                    Answer::Done
                }
            },
            Action::GiveBackLoan => {
                // It waits for its device.
                state.process_works = !self.keeps(Rule::LoanDone);
                self.end_loan(state);
                Answer::Done
            }
            Action::EndProcess => {
                // Its work has ended with it.
                state.process_works = false;
                self.end_loan(state);
                Answer::Done
            }
            Action::Recall => match state.process {
                Process::Taken => Answer::Out,
                _ => {
                    self.end_loan(state);
                    Answer::Done
                }
            },
            Action::Sleep => {
                if state.asleep {
                    return Answer::Done;
                }
                if self.keeps(Rule::SleepWaits) {
                    state.complete_all();
                }
                self.sleep(state)
            }
            Action::TrySleep => {
                if state.asleep {
                    return Answer::Done;
                }
                if state.last.is_some() && self.keeps(Rule::TrySleepAsks) {
                    return Answer::Runs;
                }
                if state.is_busy() {
                    return Answer::Busy;
                }
                self.sleep(state)
            }
            Action::Wake => {
                if !state.asleep {
                    return Answer::Done;
                }
                if state.taken {
                    return Answer::NoMemory;
                }
                state.asleep = !self.keeps(Rule::WakeOpens);
                Answer::Moved
            }
            Action::Compact => {
                if state.asleep {
                    return Answer::Suspended;
                }
                if self.keeps(Rule::CompactWaits) {
                    state.wait_for_launch();
                }
                self.compact(state)
            }
            Action::Suspend => {
                if state.asleep {
                    return Answer::Asleep;
                }
                state.wait_for_launch();
                match state.is_busy() {
                    true => Answer::Busy,
                    // A block of the host's lives in the pool.
                    false => Answer::HasBlocks,
                }
            }
            Action::Resume => {
                if state.asleep && self.keeps(Rule::ResumeNotAsleep) {
                    return Answer::Asleep;
                }
                if state.asleep {
                    state.lost = [true, true];
                }
                state.asleep = false;
                Answer::Done
            }
            Action::Collect => {
                state.collect();
                Answer::Done
            }
            Action::Drop { graph } => {
                // The host has freed what the first one leaves: planned memory of it goes with the graph.
                state.stale |= graph == 0 && self.planned[graph];
                match state.last {
                    Some((stream, number)) if self.keeps(Rule::ReleaseOfFinished) => {
                        state.graphs[graph] = Life::Retired(stream, number);
                    }
                    // Alone: others that were dropped wait for a later call.
                    _ => state.release(graph),
                }
                Answer::Done
            }
            Action::Take => {
                state.taken = true;
                Answer::Done
            }
            Action::GiveBack => {
                state.taken = false;
                Answer::Done
            }
            Action::Complete { stream } => {
                state.complete(stream, state.queues[stream].len(), state.after[stream]);
                Answer::Done
            }
        }
    }

    fn launch(&self, state: &mut State, graph: usize, stream: usize) -> Answer {
        if state.asleep && self.keeps(Rule::LaunchAwake) {
            return Answer::Suspended;
        }
        if let (Some((other, number)), true) = (state.last, self.keeps(Rule::LaunchAfterLaunch)) {
            state.follow(stream, other, number);
        }
        let lent = state.loans.contains(&Some(Use::Loan)) && self.keeps(Rule::LaunchNotWhileLent);
        // Where no graph was left for a time, what was lent is no graph's.
        let to_process = state.process != Process::None && state.temporary == Temporary::Lent;
        if lent || to_process && self.keeps(Rule::LoanHoldsLaunches) {
            return Answer::BlocksLent;
        }
        if self.keeps(Rule::LaunchAfterBorrowers) {
            let other = 1 - stream;
            state.follow(stream, other, state.borrowed[other]);
        }
        let number = state.give(stream, Use::Graph(graph));
        state.last = Some((stream, number));
        state.borrowed = [0, 0];
        if let Temporary::Returned { passed, .. } = &mut state.temporary {
            // Who borrows comes after the launch.
            *passed = true;
        }
        if graph == 0 {
            // It writes what both keep.
            state.lost[0] = false;
            state.stale = false;
        }
        state.collect();
        Answer::Done
    }

    /// The pool is asked for what it lends: what a stream gets that borrows. None where it sleeps.
    fn ask(&self, state: &mut State, stream: usize) -> Option<Use> {
        if state.asleep {
            return None;
        }
        if let (Some((other, number)), true) = (state.last, self.keeps(Rule::BorrowAfterLaunch)) {
            state.follow(stream, other, number);
        }
        let of = self.lent(state, stream);
        if let Temporary::Returned { passed, marks, own } = &mut state.temporary {
            if std::mem::take(passed) && marks[1 - *own] == 0 {
                // Whoever borrows from now on.
                state.temporary = Temporary::Free;
            }
        }
        Some(of)
    }

    fn lend_to_process(&self, state: &mut State) -> Answer {
        match self.ask(state, 0) {
            None => Answer::Suspended,
            Some(Use::Loan) => {
                state.temporary = Temporary::Lent;
                state.process = Process::Offered;
                if self.keeps(Rule::LoanWaits) {
                    state.complete_all();
                }
                Answer::Lent
            }
            Some(Use::LoanOfKept) => {
                state.wrong = Some(Wrong::Kept);
                Answer::Lent
            }
            Some(_) => Answer::NothingLent,
        }
    }

    /// The block of a loan is freed, as one of the first stream's.
    fn end_loan(&self, state: &mut State) {
        state.process = Process::None;
        let marks = [state.queues[0].len(), 0];
        self.free_lent(state, 0, Use::Loan, marks);
    }

    fn borrow(&self, state: &mut State, stream: usize) -> Answer {
        let Some(of) = self.ask(state, stream) else { return Answer::Suspended };
        state.loans[stream] = Some(of);
        state.give(stream, of);
        match of {
            Use::Loan => state.temporary = Temporary::Lent,
            Use::LoanOfKept => state.wrong = Some(Wrong::Kept),
            _ => return Answer::Plain,
        }
        Answer::Lent
    }

    /// What a stream gets that borrows.
    fn lent(&self, state: &State, stream: usize) -> Use {
        let is_free = match state.temporary {
            Temporary::Free => true,
            Temporary::Lent => false,
            Temporary::Returned { own, marks, passed } => {
                // What another stream than the borrower's own has used waits for that to complete.
                let ordered = marks[1 - own] == 0 && (own == stream || passed);
                ordered || !self.keeps(Rule::BorrowInOrder)
            }
        };
        match state.has_graphs() && self.lends() {
            true if is_free => Use::Loan,
            true if !self.keeps(Rule::BorrowOfTemporaries) => Use::LoanOfKept,
            _ => Use::Plain,
        }
    }

    fn give_back(&self, state: &mut State, stream: usize, reader: usize) {
        let Some(of) = state.loans[stream].take() else { return };
        let mut marks = [0, 0];
        if !state.asleep {
            state.follow(reader, stream, state.queues[stream].len());
            state.give(reader, of);
            marks[stream] = state.queues[stream].len();
            marks[reader] = state.queues[reader].len();
        }
        self.free_lent(state, stream, of, marks);
    }

    /// A block that a stream had borrowed is free behind work of both.
    fn free_lent(&self, state: &mut State, stream: usize, of: Use, marks: [usize; 2]) {
        if of != Use::Loan || !state.has_graphs() {
            (0..2).for_each(|it| state.freed[it] = state.freed[it].max(marks[it]));
            return;
        }
        (0..2).for_each(|it| state.borrowed[it] = state.borrowed[it].max(marks[it]));
        state.temporary = match marks {
            [0, 0] => Temporary::Free,
            marks => Temporary::Returned { own: stream, marks, passed: false },
        };
    }

    /// The memory goes; what is kept is on the host.
    fn sleep(&self, state: &mut State) -> Answer {
        state.take_away(|_| true);
        state.asleep = true;
        if state.process == Process::Offered {
            state.process = Process::OfferedGone;
        }
        state.lost[0] |= !self.keeps(Rule::SleepKeepsGraphs);
        state.lost[1] |= !self.keeps(Rule::SleepKeepsBlocks);
        Answer::Moved
    }

    fn compact(&self, state: &mut State) -> Answer {
        if self.planned == [false, false] {
            return Answer::Done;
        }
        if state.is_busy() {
            return Answer::Busy;
        }
        if !std::mem::take(&mut state.excess) {
            return Answer::Done;
        }
        state.take_away(|of| matches!(of, Use::Graph(graph) if self.planned[graph]));
        state.stale |= self.planned[0];
        Answer::Moved
    }

    /// Every call that the host may make.
    pub fn calls(&self, state: &State) -> Vec<Action> {
        let streams = 0..2;
        let of_stream = streams.flat_map(|stream| {
            [
                Action::Launch { graph: 0, stream },
                Action::Launch { graph: 1, stream },
                Action::Borrow { stream },
                Action::Return { stream, reader: 0 },
                Action::Return { stream, reader: 1 },
                Action::Complete { stream },
            ]
        });
        let others = [
            Action::Sleep,
            Action::TrySleep,
            Action::Wake,
            Action::Compact,
            Action::Suspend,
            Action::Resume,
            Action::Collect,
            Action::Drop { graph: 0 },
            Action::Drop { graph: 1 },
            Action::Take,
            Action::GiveBack,
            Action::LendToProcess,
            Action::TakeLoan,
            Action::GiveBackLoan,
            Action::EndProcess,
            Action::Recall,
        ];
        of_stream.chain(others).filter(|&action| self.may(state, action)).collect()
    }

    /// Both graphs are captured and launched once, and all work is done.
    pub fn start(&self) -> State {
        State {
            queues: [Vec::new(), Vec::new()],
            after: [0, 0],
            last: None,
            graphs: [Life::Lives; 2],
            loans: [None; 2],
            temporary: Temporary::Free,
            process: Process::None,
            process_works: false,
            borrowed: [0, 0],
            freed: [0, 0],
            asleep: false,
            taken: false,
            excess: self.planned == [true, true],
            lost: [false, false],
            stale: false,
            wrong: None,
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // What comes after something that is wrong says nothing.
        if state.wrong.is_none() {
            actions.extend(self.calls(state));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |_, state: &State| state.wrong != Some(Wrong::Lost)),
            Property::always(OVERLAP, |_, state: &State| state.wrong != Some(Wrong::Overlap)),
            Property::always(KEPT, |_, state: &State| state.wrong != Some(Wrong::Kept)),
        ]
    }
}
