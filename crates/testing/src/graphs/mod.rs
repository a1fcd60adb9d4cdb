//! Random programs of a host of graphs: what it captures, launches, lends, plans, compacts, and goes back to.
//!
//! A host of two pools captures graphs, some of them over several steps, several at once, each on several streams, and
//! abandons some. Some that are closed get their verdict later, others are given up before it, and some of which an
//! edge was taken away that a block's place rests on must be refused. Some launches are programmatic, and some streams
//! are set back by hand for a launch: such captures may be refused, and are safe if they are not. It launches graphs
//! along the order in which their captures ended, run after run, on any stream: by executables of its own, or by those
//! that a pool keeps, shares and destroys within a budget. In between work outside captures borrows, uses what it has on other streams, and gives it
//! back in any order; streams are destroyed, and others get their handles; pools sleep, go back to checkpoints, and are
//! destroyed; memory is short; calls of the driver fail. Captures of one pool may get their memory at their end, and
//! that pool is compacted, also while calls of the driver fail. What a program draws of all this, and how often, its
//! [`Features`] say. Graphs read outputs of others that were freed, and inputs that their capture freed and that are
//! filled before each launch. Kernels check what they read, so a launch with the parameters of another graph shows as
//! well. The model knows which addresses graphs have ever used, and nothing else of the engine: from that it tells
//! which blocks are lent, and so which launches must be refused.

mod blocks;
mod captures;
mod compaction;
mod executables;
mod features;
mod launches;
mod pools;
mod processes;
mod regions;
mod streams;

use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use regraph::driver::{ErrorKind, ExecutableHandle, GraphHandle, MemorySupport, StreamHandle};
use regraph::engine::{Config, Engine, Flaw, FreeRange, Lent, Refusal, Spare};
use regraph::graphs::{Error, Lending, Pool};
use regraph::plan::Options;
use regraph::regions::Regions;
use regraph::settings::{PlanChoice, Programmatic, Settings};
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

use crate::given::settings;
use blocks::{Borrowed, Kind};
use captures::Open;
use executables::Keeps;
use features::Step;
pub use features::{Counts, Features};
use launches::Made;
use pools::Saved;
use processes::ProcessLoan;
use streams::{Gone, Stream};

const POOLS: usize = 2;
/// A unit of the blocks' sizes, in bytes.
const UNIT: u64 = 256 << 10;
/// How long kernels take that are to be overtaken, in nanoseconds.
const DELAY: u32 = 5_000;

type Shared<P> = Arc<P>;

/// What the device can be told, besides what a program calls.
struct Hooks<'a> {
    /// Lets a stream's work complete, where that does not happen by itself.
    progress: &'a dyn Fn(StreamHandle),
    /// Makes a coming call of the driver fail, or takes that back; does nothing on a device that cannot.
    fail: &'a dyn Fn(Option<Fault>),
    /// What the driver holds but for executables, in bytes, and how many of those there are, where it tells that.
    held: &'a dyn Fn() -> Option<(u64, usize)>,
    /// What an executable takes for each node, in bytes.
    node_bytes: u64,
}

/// A call of the driver that fails.
#[derive(Clone, Debug)]
enum Fault {
    /// One of the host's: so many succeed before.
    Host(u64),
    /// One that is made for the host by the engine: so many succeed before.
    Engine(Call, u64),
    /// The next update of an executable.
    Update(ErrorKind),
    /// One of any kind that the engine makes: so many succeed before.
    Any(u64, ErrorKind),
    /// All of them, once so many have succeeded.
    Lost(u64, ErrorKind),
}

/// A pool, and what the model knows of it.
struct Home<P: Program> {
    pool: Pool<Shared<P>>,
    /// By stream.
    lending: Vec<Option<Lending<Shared<P>>>>,
    keeps: Keeps,
    /// Addresses that graphs of the pool have used, since there are any.
    used: Vec<(u64, u64)>,
}

struct World<'a, P: Program> {
    features: Features,
    /// How captures of the first pool get their memory at their end.
    plan: Option<Options>,
    /// Whether the engine lacks a safety rule.
    flawed: bool,
    /// Whether captures may be refused for programmatic launches.
    refuses_early: bool,
    /// Never works: blocks that it might use are held back in captures.
    idle: StreamHandle,
    driver: Arc<P>,
    engine: Arc<Engine<Shared<P>>>,
    homes: [Home<P>; POOLS],
    /// With a region of each pool.
    regions: Regions<Shared<P>>,
    streams: Vec<Stream>,
    gone_streams: Vec<Gone>,
    /// Whether a stream has ended, and work that it was given may go on.
    ended: bool,
    graphs: Vec<Made<P>>,
    /// The graphs, by number, whose outputs live as their captures left them.
    path: Vec<u64>,
    /// Those that are launched in this run, and how many of them were.
    run: Vec<u64>,
    at: usize,
    /// Whether a graph reads outputs of another pool's.
    crossed: bool,
    /// Whether work that borrowed of all that is free may go on that no fill of inputs comes after.
    lent_all: bool,
    /// Captures under way, and how many were begun.
    open: Vec<Open<P>>,
    begun: u64,
    blocks: Vec<Borrowed>,
    /// What other processes have borrowed, and the engine of one.
    loans: Vec<ProcessLoan>,
    borrower: Engine<Shared<P>>,
    saved: Vec<Saved>,
    /// Graphs that are gone from their pools, and may run still.
    handles: Vec<(GraphHandle, ExecutableHandle)>,
    /// Where these were launched last.
    gone: Vec<Stream>,
    tag: u64,
    made: u64,
    /// Whether a call of the driver was made to fail, which may have been one that destroys something.
    failed: bool,
    /// Whether one of any kind was that the engine makes, which may have been one that gives memory back.
    lossy: bool,
    counts: Counts,
    hooks: Hooks<'a>,
}

/// How a program's engine is.
struct Setup {
    plan: Option<Options>,
    settings: Settings,
    /// Whether a thread judges captures.
    aside: bool,
    flaw: Option<Flaw>,
}

impl Features {
    fn setup(&self, u: &mut Unstructured<'_>, support: MemorySupport) -> Setup {
        /// The most that limits are, in bytes.
        const MOST: u64 = 80 << 20;
        let mut next = || u.arbitrary::<u8>().unwrap_or_default();
        let mapped = matches!(support, MemorySupport::Mapped { .. });
        let plan = self.plans.filter(|_| mapped).map(|_| {
            let bounds = next();
            Options::default().max_mappings(match bounds % 4 {
                0 | 1 => None,
                2 => Some(1),
                _ => Some(usize::from(bounds / 4)),
            })
        });
        let follows = self.follows && !next().is_multiple_of(3);
        let aside = self.verdicts && !next().is_multiple_of(4);
        let settings = if self.varied { settings(&mut next, MOST) } else { Settings::default() };
        let choice = if follows { PlanChoice::Auto } else { PlanChoice::None };
        let edges = [Programmatic::Auto, Programmatic::Auto, Programmatic::Lag, Programmatic::Deny];
        let edges = if self.edges { edges[usize::from(next() % 4)] } else { Programmatic::Auto };
        let settings = settings.plan(choice).programmatic(edges);
        Setup { plan, settings, aside, flaw: None }
    }
}

/// Runs the program that the bytes spell on the simulated driver and checks everything that it shows. Returns what
/// happened in it, and how often.
///
/// # Panics
/// Where the engine is wrong.
pub fn graphs(data: &[u8], features: Features) -> Counts {
    run_simulated(data, features, None)
}

/// Runs such a program on an engine without one of its safety rules; whether anything showed that.
pub fn flawed_graphs(data: &[u8], features: Features, flaw: Flaw) -> bool {
    std::panic::catch_unwind(|| run_simulated(data, features, Some(flaw))).is_err()
}

fn run_simulated(data: &[u8], features: Features, flaw: Option<Flaw>) -> Counts {
    let mut u = Unstructured::new(data);
    let support = match u.arbitrary::<u8>().unwrap_or_default() % 4 {
        0 if features.scarce => MemorySupport::Allocated,
        _ => MemorySupport::Mapped { granularity: 2 << 20 },
    };
    // Of few megabytes requests fail for want of memory.
    let total_bytes = match u.arbitrary::<u8>().unwrap_or_default() % 4 {
        0 if features.scarce => 40 << 20,
        _ => SimConfig::default().total_bytes,
    };
    let driver = Arc::new(SimDriver::new(SimConfig { support, total_bytes }));
    driver.set_schedule_seed(u64::from(u.arbitrary::<u8>().unwrap_or_default()));
    driver.give_streams_again();
    driver.give_addresses_again();
    // Where memory is short, executables take none of it.
    let scarce = total_bytes < SimConfig::default().total_bytes;
    let node_bytes = if features.overcharge > 1 { 1 << 20 } else { 64 << 10 };
    let node_bytes = if features.executables && !scarce { node_bytes } else { 0 };
    driver.charge_executables_up_to(node_bytes, features.overcharge);
    let progress = |stream| driver.complete(stream).expect("the device answers");
    let fail = |fault| match fault {
        None => driver.forget_failures(),
        Some(Fault::Host(before)) => driver.fail_host_nth(before, ErrorKind::NotSupported),
        Some(Fault::Engine(call, before)) => driver.fail_nth(call, before, ErrorKind::NotSupported),
        Some(Fault::Update(kind)) => driver.fail_update_nth(0, kind),
        Some(Fault::Any(before, kind)) => driver.fail_any_nth(before, kind),
        Some(Fault::Lost(before, kind)) => driver.lose_device_at(before, kind),
    };
    let held = || {
        let taken = driver.taken_by_executables();
        Some((driver.used_bytes() - taken, driver.executables()))
    };
    let hooks = Hooks { progress: &progress, fail: &fail, held: &held, node_bytes };
    let setup = Setup { flaw, ..features.setup(&mut u, support) };
    World::new(&driver, features, setup, hooks).run(u)
}

/// Runs one random program on any device, whose calls are not made to fail. `progress` lets a stream's work complete, where
/// that does not happen by itself.
///
/// # Panics
/// Where the engine is wrong.
pub fn graphs_on<P: Program>(
    driver: &Arc<P>,
    data: &[u8],
    features: Features,
    progress: &dyn Fn(StreamHandle),
) -> Counts {
    let hooks = Hooks { progress, fail: &|_| {}, held: &|| None, node_bytes: 64 << 10 };
    let mut u = Unstructured::new(data);
    let setup = features.setup(&mut u, driver.memory_support());
    World::new(driver, features, setup, hooks).run(u)
}

fn overlap((low, high): (u64, u64), (other_low, other_high): (u64, u64)) -> bool {
    low < other_high && other_low < high
}

fn ends(place: &Tagged) -> (u64, u64) {
    (place.address, place.address + place.bytes)
}

impl<'a, P: Program> World<'a, P> {
    fn new(
        driver: &Arc<P>,
        features: Features,
        Setup { plan, settings, aside, flaw }: Setup,
        hooks: Hooks<'a>,
    ) -> Self {
        let mut config = Config::default().report_leaks(false).flaw(flaw);
        if aside {
            // A thread judges captures of any size, but for planned ones.
            config = config.find_late_uses(false).judge_aside(0);
        }
        let history = if plan.is_none() { features.history } else { 0 };
        let settings = settings.history(history).exportable(features.processes);
        let config = config.settings(settings);
        let refuses_early = config.settings.programmatic != Programmatic::Lag;
        let borrower = Engine::new(driver.clone(), config.clone());
        let engine = Arc::new(Engine::new(driver.clone(), config));
        let homes = [(0, plan.clone()), (1, None)].map(|it| Home::new(&engine, it, &features));
        let idle = driver.create_stream().expect("there is room for it");
        Self {
            features,
            plan,
            flawed: flaw.is_some(),
            refuses_early,
            idle,
            driver: driver.clone(),
            regions: Regions::new(&engine),
            engine,
            homes,
            streams: (0..features.streams).map(|_| Stream::create(driver)).collect(),
            gone_streams: Vec::new(),
            ended: false,
            graphs: Vec::new(),
            path: Vec::new(),
            run: Vec::new(),
            at: 0,
            crossed: false,
            lent_all: false,
            open: Vec::new(),
            begun: 0,
            blocks: Vec::new(),
            loans: Vec::new(),
            borrower,
            saved: Vec::new(),
            handles: Vec::new(),
            gone: Vec::new(),
            tag: 0,
            made: 0,
            failed: false,
            lossy: false,
            counts: Counts::default(),
            hooks,
        }
    }

    fn run(mut self, mut u: Unstructured<'_>) -> Counts {
        for _ in 0..self.features.longest {
            if u.is_empty() {
                break;
            }
            // The bytes never run dry with an error: what is missing reads as zero.
            self.step(&mut u).expect("missing bytes read as zeroes");
            if !self.flawed {
                crate::judge_tables(&self.engine);
            }
            self.judge_held();
            self.judge_budgets();
        }
        self.finish()
    }

    /// Notes that something happened so many times.
    fn count(&mut self, what: &'static str, times: u64) {
        *self.counts.entry(what).or_default() += times;
    }

    /// Waits for all work, but while a stream captures, which that would ruin.
    fn judge_device(&mut self) -> bool {
        if !self.open.is_empty() {
            return false;
        }
        let done = self.driver.synchronize();
        self.gone.clear();
        let wrong = self.driver.take_wrong_tags().expect("the device answers");
        assert!(done.is_ok() && wrong == 0, "kernels found wrong tags");
        true
    }

    fn work(&self, stream: Stream, inputs: &[Tagged], outputs: &[Tagged]) {
        let work = Work { inputs, outputs, delay: DELAY, trigger_early: false };
        self.driver.launch(stream.handle, work, false).expect("a legal launch");
    }

    /// Does something during which a call of the driver fails, sometimes; and whether that was so.
    fn may_fail<R>(
        &mut self,
        u: &mut Unstructured<'_>,
        run: impl FnOnce(&mut Self) -> R,
    ) -> Result<(R, bool)> {
        let fault = match u.int_in_range(0..=59)? {
            before @ 0..=4 => Some(Fault::Host(before)),
            // A launch that cannot be marked waits for the device, which would ruin a capture.
            5 if self.open.is_empty() => Some(Fault::Engine(Call::RecordEvent, 0)),
            6 if self.open.is_empty() => Some(Fault::Engine(Call::CreateEvent, 0)),
            7 => Some(Fault::Engine(Call::QueryEvent, 0)),
            8..=13 if self.features.executables => Some(Fault::Update(ErrorKind::UpdateRefused)),
            14 if self.features.executables => Some(Fault::Update(ErrorKind::NotSupported)),
            15..=29 if self.features.faults && self.open.is_empty() => {
                let call = *u.choose(Call::ALL)?;
                self.lossy = true;
                // Else a block would be a graph's for good, as the stream that gave it back may capture.
                let before = u.int_in_range(0..=3)?;
                (call != Call::CaptureStatus).then_some(Fault::Engine(call, before))
            }
            _ => None,
        };
        if fault.is_none() {
            return Ok((run(self), false));
        }
        self.failed |= matches!(fault, Some(Fault::Host(_)));
        // Once, or as long as this lasts. A launch on a stream of which the device is not told loses its pool's order.
        let untold = matches!(fault, Some(Fault::Engine(Call::DeviceOfStream, _)));
        let more = if self.lossy && !untold && u.ratio(1, 2)? { 40 } else { 0 };
        if let Some(&Fault::Engine(call, n)) = fault.as_ref() {
            (1..=more).for_each(|more| (self.hooks.fail)(Some(Fault::Engine(call, n + more))));
        }
        (self.hooks.fail)(fault);
        let done = run(self);
        (self.hooks.fail)(None);
        Ok((done, true))
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match self.features.steps.draw(u)? {
            Step::Begin if self.may_begin(u)? => self.begin(u)?,
            Step::Begin | Step::GoOn => self.go_on(u)?,
            Step::Launch => self.launch(u)?,
            Step::Run => self.launch_all(u)?,
            Step::Borrow => self.borrow(u)?,
            Step::Share => self.share(u)?,
            Step::GiveBack => self.give_back(u)?,
            Step::LendToProcess => self.lend_to_process(u)?,
            Step::GoOnWithLoan => self.go_on_with_loan(u)?,
            Step::DropOutputs => self.drop_outputs(u)?,
            Step::Release => {
                if let (Some(row), true) = (self.any_graph(u)?, u.ratio(1, 2)?) {
                    // While a stream captures the host cannot wait for what fills inputs and reads outputs.
                    let filled = self.graphs.iter().any(|it| !it.inputs.is_empty());
                    let waits = filled || self.crossed || !self.graphs[row].outputs.is_empty();
                    if self.open.is_empty() || !waits {
                        self.release(self.graphs[row].number);
                    }
                }
            }
            Step::CaptureAgain => self.capture_again(u)?,
            Step::Compact => {
                self.launch_all(u)?;
                self.compact(u.choose_index(POOLS)?);
                self.launch_all(u)?;
            }
            Step::CompactFailing => {
                self.launch_all(u)?;
                self.compact_failing(u)?;
                self.launch_all(u)?;
            }
            Step::EndLending => {
                let (home, slot) = (u.choose_index(POOLS)?, u.choose_index(self.streams.len())?);
                self.homes[home].lending[slot] = None;
            }
            Step::Suspend => self.suspend(u)?,
            Step::Retire => self.retire(u)?,
            Step::Save => self.save(u)?,
            Step::Restore => self.restore(u)?,
            Step::Trim => {
                let (emptied, failed) = self.may_fail(u, |world| world.engine.empty_cache())?;
                assert!(failed || emptied.is_ok(), "the engine is sound");
                self.judge_history();
            }
            Step::TrimTo => {
                let keep = u64::from(u.arbitrary::<u8>()?) * 2 * UNIT;
                let (trimmed, failed) = self.may_fail(u, |world| world.engine.trim(keep))?;
                assert!(failed || trimmed.is_ok(), "the engine is sound");
            }
            Step::Order => {
                let (stream, on) = (self.free_stream(u)?, self.free_stream(u)?);
                self.wait(self.streams[stream], self.streams[on]);
            }
            Step::Mark => {
                let stream = self.streams[self.free_stream(u)?];
                self.engine.mark_stream(stream.handle).expect("a stream of its own");
            }
            Step::Learn => {
                let (plans, begins) = (self.engine.plans(), u.arbitrary()?);
                let done = if begins { plans.learn() } else { plans.learned().map(drop) };
                done.expect("the engine is sound");
            }
            Step::Judge => {
                self.judge_leaks();
                self.explain(self.streams[self.free_stream(u)?]);
            }
            Step::Offer => {
                let spares =
                    [Spare::GivenBack, Spare::Kept, Spare::OfferedWhenShort, Spare::Offered];
                self.spare(u.choose_index(POOLS)?, *u.choose(&spares)?);
            }
            Step::Nap => self.nap(u)?,
            Step::Replace => self.replace(u)?,
            Step::Hear => self.hear(u)?,
            Step::Keep => self.keep_executables(u)?,
            Step::Prepare => self.prepare(u)?,
            Step::Pin => self.pin(u)?,
            Step::ReleaseExecutables => self.release_executables(u)?,
            Step::TakeOver if self.open.is_empty() => self.take_over(u)?,
            Step::TakeOver | Step::Progress => {
                let stream = self.free_stream(u)?;
                (self.hooks.progress)(self.streams[stream].handle);
            }
        }
        Ok(())
    }

    /// As much is lent as lies where graphs work, all that lives is counted, and as much is held as the driver says.
    fn judge_held(&self) {
        for home in 0..POOLS {
            let told = self.homes[home].pool.statistics().expect("the pool is there");
            let lent = self.lent(home);
            let what = format!("{} bytes are lent, {lent} lie where graphs work", told.lent);
            assert!(told.lent == lent, "{what}");
            let all: Vec<u64> = self.live(home).map(|it| it.1).collect();
            assert_eq!((told.blocks, told.requested), (all.len(), all.iter().sum()));
        }
        if let Some((used, _)) = (self.hooks.held)() {
            let all = self.engine.statistics().expect("the engine is sound").all;
            let reserved = all.reserved_bytes.current;
            // What has gone from here while it slept is another process's as long as that has borrowed it.
            // And so does memory that could not be given back.
            let exact = self.loans.is_empty() && !self.lossy;
            let right = if exact { reserved == used } else { reserved <= used };
            assert!(right, "the driver holds {used} bytes, and {reserved} are told");
        }
    }

    /// The bytes of a pool's graphs that are lent.
    fn lent(&self, home: usize) -> u64 {
        let lent = self.blocks.iter().filter(|it| it.home == home && it.is_lent());
        let loans = self.loans.iter().filter(|it| it.home == home && it.is_lent);
        let loans = loans.map(|it| it.block.bytes.next_multiple_of(512));
        lent.map(|it| it.span.1 - it.span.0).chain(loans).sum()
    }

    /// Where all that lives in a pool lies, and its bytes.
    fn live(&self, home: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let outputs = self.graphs.iter().flat_map(|it| &it.outputs);
        let outputs = outputs.chain(self.open.iter().flat_map(Open::live));
        let outputs = outputs.filter(move |it| it.home == home && it.id.is_some());
        let blocks = self.blocks.iter().filter(move |it| it.home == home).map(|it| it.place);
        let loans = self.loans.iter().filter(move |it| it.home == home).map(|it| it.block);
        let loans = loans.map(|it| (it.address, it.bytes));
        outputs.map(|it| it.place).chain(blocks).map(|it| (it.address, it.bytes)).chain(loans)
    }

    /// The blocks that the engine says were never freed are those that live.
    fn judge_leaks(&self) {
        let leaks = self.engine.leaks().expect("the engine is sound");
        let mut expected: Vec<_> = (0..POOLS).flat_map(|home| self.live(home)).collect();
        expected.sort_unstable();
        let found: Vec<_> = leaks.iter().map(|it| (it.address, it.bytes)).collect();
        assert_eq!(found, expected);
    }

    /// What the engine says of free memory adds up with its figures.
    fn explain(&self, stream: Stream) {
        for home in &self.homes {
            let pool = home.pool.id();
            let ranges = self.engine.explain(pool, stream.handle).expect("the stream is there");
            let figures = self.engine.statistics_of(pool).expect("the pool is there").all;
            let waits = |it: &&FreeRange| matches!(it.refusal, Some(Refusal::Waiting(_)));
            let (waiting, free): (Vec<_>, Vec<_>) = ranges.iter().partition(waits);
            let sum = |ranges: Vec<&FreeRange>| ranges.iter().map(|it| it.bytes).sum::<u64>();
            let (active, allocated) = (figures.active_bytes, figures.allocated_bytes.current);
            assert_eq!(active.current, allocated + sum(waiting), "active = allocated + waiting");
            assert_eq!(figures.inactive_split_bytes.current, sum(free), "inactive = free");
        }
    }

    /// The history leads to what there is, where all of it had memory from the first.
    fn judge_history(&self) {
        if self.plan.is_none() {
            crate::judge_snapshot(&self.engine);
        }
    }

    /// A block of all that is free is taken over by a capture, used between launches and given back.
    fn take_over(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let slot = self.free_stream(u)?;
        while let Some(block) = self.blocks.pop() {
            self.free_block(&block);
        }
        self.borrow_as(0, slot, Some(Lent::AllFree), u)?;
        if self.graphs.len() < self.features.most {
            let slot = self.free_stream(u)?;
            self.begin_on(self.streams[slot], 0, (Vec::new(), None), u)?;
            self.close(0, u)?;
        }
        let taken = |it: &Borrowed| it.kind == Kind::Output { adopted: true };
        if let Some(row) = self.blocks.iter().position(taken) {
            let slot = self.free_stream(u)?;
            self.use_taken(row, self.streams[slot], u)?;
        }
        self.launch(u)?;
        self.launch(u)
    }

    fn any_graph(&self, u: &mut Unstructured<'_>) -> Result<Option<usize>> {
        Ok(if self.graphs.is_empty() { None } else { Some(u.choose_index(self.graphs.len())?) })
    }

    fn size(&self, u: &mut Unstructured<'_>) -> Result<u64> {
        if self.features.varied && u.ratio(1, 2)? {
            return u.int_in_range(1..=4 * UNIT).map(|bytes| bytes.next_multiple_of(8));
        }
        let units = u64::from(1 + u.arbitrary::<u8>()? % 24);
        // Pieces of plans are of whole pages, which blocks fill or do not.
        let odd = self.plan.is_some() && u.ratio(1, 4)?;
        Ok(UNIT * units * if self.features.scarce { 1 } else { 8 } + if odd { 700 } else { 0 })
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Launches every graph along its path.
    fn launch_paths(&mut self) {
        let stream = self.streams[0];
        let numbers: Vec<u64> = self.graphs.iter().map(|it| it.number).collect();
        for number in numbers {
            self.run = self.path_of(number);
            for at in 0..self.run.len() {
                self.at = at;
                let row = self.row_of(self.run[at]).expect("paths name graphs that are there");
                self.fill(row, stream);
                let launched = self.submit(row, stream);
                assert!(launched.is_ok(), "no block is left, and a launch is refused");
            }
            self.at = self.run.len();
        }
        self.judge_device();
        self.judge_executables();
    }

    /// Ends everything, gives everything back and looks for what is missing.
    fn finish(mut self) -> Counts {
        while !self.open.is_empty() {
            self.abandon(0);
        }
        self.judge_device();
        while let Some(block) = self.blocks.pop() {
            self.free_block(&block);
        }
        (0..self.loans.len()).rev().for_each(|row| self.end_loan(row));
        self.judge_held();
        self.judge_device();
        self.hear_all();
        self.lift_budgets();
        self.launch_paths();
        if self.plan.is_some() {
            self.compact(0);
            self.launch_paths();
        }
        while let Some(made) = self.graphs.last() {
            self.release(made.number);
        }
        (0..POOLS).for_each(|home| self.note_executables(home));
        let Self { homes, engine, driver, handles, counts, hooks, failed, .. } = self;
        let pools = homes.map(|home| home.pool);
        let mut waited = driver.synchronize().is_ok();
        pools.iter().for_each(|pool| waited &= pool.synchronize().is_ok());
        assert!(waited, "the device answers");
        drop(pools);
        for (graph, executable) in handles {
            driver.destroy_executable(executable).expect("it has finished");
            driver.destroy_graph(graph).expect("it is there");
        }
        for _ in 0..2 {
            assert!(driver.synchronize().is_ok(), "the device answers");
            engine.empty_cache().expect("the engine is sound");
        }
        if let Some((_, executables)) = (hooks.held)().filter(|_| !failed) {
            assert_eq!(executables, 0, "executables were lost");
        }
        let held = engine.statistics().expect("the engine is sound").all.reserved_bytes.current;
        assert_eq!(held, 0, "memory was lost");
        counts
    }
}

/// Whether a request failed for want of memory, which is no fault.
fn is_short(error: &Error) -> bool {
    error.out_of_memory().is_some()
}
