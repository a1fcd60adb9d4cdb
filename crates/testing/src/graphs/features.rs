//! What the host of a program does, and how often.

use std::collections::BTreeMap;

use Step::*;

use crate::weights::Weights;

/// A step of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A capture begins, or the one under way goes on.
    Begin,
    GoOn,
    /// The next graph of the run is launched.
    Launch,
    /// All graphs of the path are launched.
    Run,
    Borrow,
    Share,
    GiveBack,
    /// A pool lends to another process.
    LendToProcess,
    /// A loan is taken, used, asked for, or given back, or the process that has it ends.
    GoOnWithLoan,
    DropOutputs,
    Release,
    /// A graph is released, and captured anew.
    CaptureAgain,
    EndLending,
    Suspend,
    Retire,
    Save,
    Restore,
    /// A block of all that is free is taken over by a capture.
    TakeOver,
    Progress,
    /// A pool's graphs share what they can.
    Compact,
    /// They do so while calls of the driver fail.
    CompactFailing,
    /// A pool is destroyed, and another one takes its part.
    Replace,
    /// A pool keeps executables in another way from then on.
    Keep,
    /// The executable of a graph's next launch is made ready.
    Prepare,
    Pin,
    ReleaseExecutables,
    /// What is wholly free goes back to the driver.
    Trim,
    /// What has been unused longest goes back, until so much is held.
    TrimTo,
    /// A capture that is closed gets its verdict.
    Hear,
    /// A stream waits for another one.
    Order,
    Mark,
    /// The engine learns from what is asked for from now on, or has learned.
    Learn,
    /// What the engine says of live blocks and of free memory is looked at.
    Judge,
    /// What is free in a pool becomes other pools', or theirs no more.
    Offer,
    /// Regions sleep and wake.
    Nap,
}

/// What happened in a program, and how often.
pub type Counts = BTreeMap<&'static str, u64>;

/// What the host of a program of graphs does, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    pub(super) steps: Weights<Step>,
    /// Whether captures of the first pool get their memory at their end, but for one of so many.
    pub(super) plans: Option<u8>,
    /// Of how many captures one belongs to the second pool.
    pub(super) second: u8,
    /// Whether captures of some programs follow what was asked for before them.
    pub(super) follows: bool,
    /// Whether some captures get their verdict later than they are closed, from a thread of their own in some programs.
    pub(super) verdicts: bool,
    /// How many of 16 requests outside captures take nothing of graphs.
    pub(super) plain: u8,
    /// Whether any call of the driver may fail in what the engine does for the host.
    pub(super) faults: bool,
    /// Whether memory is short in some programs, and some devices have no virtual memory management.
    pub(super) scarce: bool,
    /// Whether blocks are of all sizes, settings of all kinds, captures of all modes, some of which the driver ends before
    /// the engine; what is free in one pool is lent to others; and the host tells the engine of some uses on other streams
    /// only when it frees the block.
    pub(super) varied: bool,
    /// Whether memory is made so that other processes can map it.
    pub(super) processes: bool,
    /// Whether pools keep the executables of some graphs.
    pub(super) executables: bool,
    /// Up to how many times as much as is foreseen executables take.
    pub(super) overcharge: u64,
    /// Captures at once, at most.
    pub(super) captures: usize,
    /// Whether captures fork to other streams, and some of their kernels are in conditional nodes' bodies.
    pub(super) forks: bool,
    /// Whether captures have programmatic launches and streams whose terminals the host sets back by hand, and some are
    /// ruined.
    pub(super) edges: bool,
    pub(super) streams: usize,
    /// Whether many captures are of what an earlier one was of.
    pub(super) repeats: bool,
    /// How many events of the engine's history are kept.
    pub(super) history: usize,
    /// Graphs and blocks of work outside captures at once, at most.
    pub(super) most: usize,
    /// Steps after which a program ends, even if bytes are left.
    pub(super) longest: usize,
}

impl Features {
    /// Pools lend what their graphs do not keep, go back to checkpoints and sleep; streams end.
    #[rustfmt::skip]
    pub const LOANS: Self = Self {
        steps: Weights(&[
            (Begin, 3), (GoOn, 1), (Launch, 7), (Borrow, 6), (Share, 3), (GiveBack, 3),
            (DropOutputs, 1), (Release, 1), (EndLending, 1), (Suspend, 1), (Retire, 1),
            (Save, 1), (Restore, 1), (TakeOver, 1), (Progress, 1),
        ]),
        plans: None,
        second: 4,
        follows: false,
        verdicts: false,
        plain: 3,
        faults: false,
        scarce: true,
        varied: false,
        processes: false,
        executables: false,
        overcharge: 1,
        captures: 1,
        forks: false,
        edges: false,
        streams: 3,
        repeats: false,
        history: 0,
        most: 6,
        longest: 160,
    };

    /// Work outside captures on several streams, some of it borrowed from graphs, while calls of the driver fail.
    #[rustfmt::skip]
    pub const EAGER: Self = Self {
        steps: Weights(&[
            (Begin, 2), (GoOn, 2), (Launch, 3), (Borrow, 18), (Share, 9), (GiveBack, 13), (Order, 4),
            (Progress, 6), (Retire, 2), (Trim, 1), (TrimTo, 1), (Mark, 1), (Learn, 1), (Suspend, 1),
            (Save, 1), (Restore, 1), (Replace, 1), (DropOutputs, 1), (Release, 1), (Judge, 1),
            (Offer, 1), (Nap, 1),
        ]),
        plain: 12,
        faults: true,
        varied: true,
        streams: 5,
        most: 24,
        longest: 300,
        ..Self::LOANS
    };

    /// Another process borrows beside all that [`Features::LOANS`] does.
    #[rustfmt::skip]
    pub const PROCESSES: Self = Self {
        steps: Weights(&[
            (Begin, 3), (GoOn, 1), (Launch, 7), (Borrow, 2), (Share, 1), (GiveBack, 1),
            (DropOutputs, 1), (Release, 1), (EndLending, 1), (Suspend, 1), (Retire, 1),
            (Save, 1), (Restore, 1), (Replace, 1), (Progress, 1), (Trim, 1),
            (LendToProcess, 5), (GoOnWithLoan, 9),
        ]),
        processes: true,
        ..Self::LOANS
    };

    /// A pool of many graphs whose captures are planned is compacted.
    #[rustfmt::skip]
    pub const PLANS: Self = Self {
        steps: Weights(&[
            (Begin, 6), (GoOn, 1), (Run, 1), (Borrow, 1), (GiveBack, 1), (DropOutputs, 2),
            (Release, 2), (CaptureAgain, 2), (Suspend, 1), (Compact, 4), (CompactFailing, 1),
            (Nap, 1),
        ]),
        plans: Some(10),
        second: u8::MAX,
        scarce: false,
        most: 16,
        longest: 60,
        ..Self::LOANS
    };

    /// Pools keep executables within budgets, and graphs share them.
    #[rustfmt::skip]
    pub const EXECUTABLES: Self = Self {
        steps: Weights(&[
            (Begin, 6), (GoOn, 1), (Launch, 16), (Prepare, 3), (Keep, 1), (Release, 2), (Pin, 1),
            (ReleaseExecutables, 1), (Suspend, 1), (Progress, 1),
        ]),
        executables: true,
        repeats: true,
        most: 10,
        ..Self::LOANS
    };

    /// Executables take more than is foreseen for them.
    pub const DEAR_EXECUTABLES: Self = Self { overcharge: 8, ..Self::EXECUTABLES };

    /// Several captures at once, each on several streams, while streams and pools come and go.
    #[rustfmt::skip]
    pub const CAPTURES: Self = Self {
        steps: Weights(&[
            (Begin, 8), (GoOn, 6), (Launch, 6), (Borrow, 3), (Share, 2), (GiveBack, 2),
            (DropOutputs, 2), (Release, 1), (Retire, 2), (Replace, 1), (Progress, 1),
            (Save, 1), (Restore, 1), (Trim, 1), (Hear, 2),
        ]),
        second: 2,
        verdicts: true,
        captures: 4,
        forks: true,
        edges: true,
        streams: 8,
        history: 10_000,
        most: 10,
        ..Self::LOANS
    };

    /// All of it at once: loans and checkpoints beside planned captures, which graphs of both pools take part in.
    #[rustfmt::skip]
    pub const ALL: Self = Self {
        steps: Weights(&[
            (Begin, 5), (GoOn, 2), (Launch, 7), (Run, 1), (Borrow, 6), (Share, 3), (GiveBack, 3),
            (DropOutputs, 2), (Release, 1), (CaptureAgain, 1), (EndLending, 1), (Suspend, 1),
            (Retire, 1), (Save, 2), (Restore, 2), (TakeOver, 1), (Progress, 1), (Compact, 2),
            (CompactFailing, 1), (Replace, 1), (Keep, 1), (Prepare, 1), (Pin, 1),
            (ReleaseExecutables, 1), (Trim, 1), (LendToProcess, 1), (GoOnWithLoan, 2), (Hear, 2),
            (Nap, 1),
        ]),
        plans: Some(3),
        second: 2,
        follows: true,
        verdicts: true,
        processes: true,
        executables: true,
        captures: 3,
        forks: true,
        edges: true,
        streams: 6,
        repeats: true,
        history: 10_000,
        most: 8,
        longest: 180,
        ..Self::LOANS
    };
}
