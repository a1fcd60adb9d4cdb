//! What only the run of a capture wrote, and no node of its graph: which of it the launches find, after each
//! mechanism that moves, shares or gives back memory. `design/sleep-and-lend.md` has the table.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::common::MIB;
use regraph::driver::{CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, Error, Lent, PoolConfig};
use regraph::graphs::{Capture, Graph, Memory, Pool};
use regraph::regions::{Backup, Regions, Tags};
use regraph::settings::{PlanChoice, Settings};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};

type Sim = Arc<SimDriver>;

/// What eager work writes beside the capture, and nodes read.
const STATE: u64 = 7;
const BYTES: u64 = 4 * MIB;

struct Host {
    driver: Sim,
    engine: Arc<Engine<Sim>>,
    pool: Pool<Sim>,
    /// Captures.
    stream: StreamHandle,
    /// Does not.
    eager: StreamHandle,
}

/// The four ways in which a block's life meets its capture.
struct Made {
    graph: Graph<Sim>,
    /// Allocated in the capture and held since.
    live: Memory<Sim>,
    /// Where a block lies that the capture allocated and freed.
    temporary: u64,
    /// Where an output lies that was freed after the capture.
    output: u64,
    /// Where a block lies from before the capture, which the capture freed.
    input: u64,
}

/// Which of them hold what only the capture's run wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holds {
    live: bool,
    temporary: bool,
    output: bool,
    input: bool,
}

const ALL: Holds = Holds { live: true, temporary: true, output: true, input: true };
const NONE: Holds = Holds { live: false, temporary: false, output: false, input: false };

fn whole(address: u64, tag: u64) -> [Tagged; 1] {
    [Tagged { address, bytes: BYTES, tag }]
}

impl Host {
    fn new(settings: Settings) -> Self {
        let driver = Arc::new(SimDriver::new(SimConfig::default()));
        let config = Config::default().settings(settings).check(true).find_late_uses(false);
        let engine = Arc::new(Engine::new(driver.clone(), config));
        let pool = Pool::new(&engine, PoolConfig::default().tag("graphs"));
        let [stream, eager] = [(); 2].map(|()| driver.create_stream().unwrap());
        Self { driver, engine, pool, stream, eager }
    }

    fn planned(plan: PlanChoice) -> Self {
        Self::new(Settings::default().plan(plan))
    }

    fn write(&self, stream: StreamHandle, address: u64, tag: u64) {
        let work = Work { outputs: &whole(address, tag), ..Work::default() };
        self.driver.launch(stream, work, false).unwrap();
    }

    /// Fills a block as a library does that initialises its workspace while its caller captures.
    fn fill(&self, address: u64) {
        self.write(self.eager, address, STATE);
        self.driver.complete(self.eager).unwrap();
    }

    /// A node that reads a block, and writes nothing.
    fn read(&self, address: u64) {
        let work = Work { inputs: &whole(address, STATE), ..Work::default() };
        self.driver.launch(self.stream, work, false).unwrap();
    }

    fn holds_at(&self, address: u64, bytes: u64) -> bool {
        let tags = self.driver.read_tags(address, bytes);
        tags.is_ok_and(|tags| tags.iter().all(|&tag| tag == STATE))
    }

    fn holds(&self, made: &Made) -> Holds {
        self.driver.synchronize().unwrap();
        let at = |address| self.holds_at(address, BYTES);
        Holds {
            live: at(made.live.address()),
            temporary: at(made.temporary),
            output: at(made.output),
            input: at(made.input),
        }
    }

    /// Captures a graph that reads blocks of each kind and writes none.
    fn capture(&self) -> Made {
        let before = self.pool.allocate(BYTES, self.stream).unwrap();
        self.write(self.stream, before.address(), STATE);
        self.engine.host().expect_capture(self.stream).unwrap();
        self.driver.complete_all();
        let input = before.address();
        let mut before = Some(before);
        let (graph, (live, temporary, freed)) = self.captured(|capture| {
            let [live, temporary, output] = [(); 3].map(|()| capture.allocate(BYTES, self.stream));
            let (live, temporary, output) = (live?, temporary?, output?);
            let places = [live.address(), temporary.address(), output.address()];
            places.into_iter().for_each(|address| self.fill(address));
            places.into_iter().chain([input]).for_each(|address| self.read(address));
            drop(before.take());
            Ok((live, temporary.address(), output))
        });
        let output = freed.address();
        drop(freed);
        Made { graph, live, temporary, output, input }
    }

    fn captured<R>(&self, body: impl FnMut(&Capture<Sim>) -> Result<R, Error>) -> (Graph<Sim>, R) {
        self.engine.capture(self.stream, &self.pool, CaptureMode::Relaxed, body).unwrap()
    }

    /// Frees a block and writes another in its place: where that was.
    fn replace(&self, capture: &Capture<Sim>, old: Memory<Sim>) -> Result<u64, Error> {
        let address = old.address();
        drop(old);
        let next = capture.allocate(BYTES, self.stream)?;
        self.write(self.stream, next.address(), 1);
        Ok(address)
    }

    fn sleep_and_wake(&self) {
        let regions = Regions::new(&self.engine);
        regions.sleep(Tags::All).unwrap();
        regions.wake(Tags::All).unwrap();
    }

    /// A graph that overwrites as much temporary memory.
    fn overwrite(&self, blocks: usize) -> Graph<Sim> {
        let body = |capture: &Capture<Sim>| {
            let blocks: Result<Vec<_>, Error> =
                (0..blocks).map(|_| capture.allocate(BYTES, self.stream)).collect();
            blocks?.iter().for_each(|block| self.write(self.stream, block.address(), 1));
            Ok::<_, Error>(())
        };
        self.captured(body).0
    }

    /// Launches, and says whether each node found what it reads.
    fn launch(&self, graph: &Graph<Sim>) -> bool {
        graph.launch(self.stream).unwrap();
        self.driver.synchronize().unwrap();
        self.driver.take_wrong_tags().unwrap() == 0
    }
}

/// The graph's own launches take nothing away where no block of it has the place of another.
#[test]
fn launches_alone_keep_what_no_node_writes() {
    let h = Host::new(Settings::default());
    let made = h.capture();
    assert!(h.launch(&made.graph) && h.launch(&made.graph));
    assert_eq!(h.holds(&made), ALL);
    // Until another graph of the pool is launched that has what is free.
    let other = h.overwrite(3);
    h.launch(&other);
    assert_eq!(h.holds(&made), Holds { live: true, ..NONE });
    assert!(!h.launch(&made.graph));
}

#[test]
fn sleep_with_contents() {
    let h = Host::new(Settings::default());
    let made = h.capture();
    h.sleep_and_wake();
    assert_eq!(h.holds(&made), Holds { temporary: false, ..ALL });
    assert!(!h.launch(&made.graph), "the launch reads memory that nothing has written");
}

/// An input is no graph's where its capture is rolled back, and where that had launched nothing by then. Its memory goes
/// back to the driver, and a sleep reads none there.
#[test]
fn sleep_after_inputs_that_no_graph_has() {
    for rolled_back in [false, true] {
        let h = Host::new(Settings::default());
        let _graph = h.overwrite(1);
        let input = h.pool.allocate(BYTES, h.stream).unwrap();
        let (address, input) = (input.address(), Cell::new(Some(input)));
        h.engine.host().expect_capture(h.stream).unwrap();
        let body = |_: &Capture<Sim>| {
            if rolled_back {
                h.read(address);
            }
            drop(input.take());
            if rolled_back {
                Err(Error::ZeroBytes { call: "body" })
            } else {
                Ok(())
            }
        };
        let other = h.engine.capture(h.stream, &h.pool, CaptureMode::Relaxed, body);
        assert_eq!(other.is_err(), rolled_back);
        assert_eq!(h.engine.empty_cache().unwrap().released, BYTES);
        let regions = Regions::new(&h.engine);
        assert_eq!(regions.sleep(Tags::All).unwrap(), BYTES);
        let slept = regions.report()[0].slept.map(|it| it.copied_bytes);
        assert_eq!(slept, Some(0), "{rolled_back}");
        regions.wake(Tags::All).unwrap();
    }
}

/// A later graph's live block lies within a freed output: what is beside it there is kept as well.
#[test]
fn sleep_with_a_block_within_an_output() {
    let h = Host::new(Settings::default());
    let made = h.capture();
    let (start, end) = (made.output, made.output + BYTES);
    let body = |capture: &Capture<Sim>| {
        let blocks: Result<Vec<_>, Error> =
            (0..32).map(|_| capture.allocate(BYTES / 4 * 3 / 2, h.stream)).collect();
        let within = |it: &Memory<Sim>| start < it.address() && it.address() + it.bytes() < end;
        Ok::<_, Error>(blocks?.into_iter().find(within))
    };
    let (_graph, within) = h.captured(body);
    let within = within.unwrap();
    assert!(h.holds(&made).output);
    h.sleep_and_wake();
    let behind = within.address() + within.bytes();
    assert!(h.holds_at(start, within.address() - start) && h.holds_at(behind, end - behind));
}

/// What a planned graph's launch left in an output that was freed is there for another graph's; so is what it left in
/// fixed memory, which needs no plan.
#[test]
fn sleep_with_outputs_of_planned_graphs() {
    let ways = [(PlanChoice::Exact, false), (PlanChoice::None, true), (PlanChoice::Auto, true)];
    for (plan, fixed) in ways {
        let h = Host::planned(plan);
        let body = |capture: &Capture<Sim>| {
            let output = match fixed {
                true => capture.allocate_fixed(BYTES, h.stream)?,
                false => capture.allocate(BYTES, h.stream)?,
            };
            h.write(h.stream, output.address(), STATE);
            Ok::<_, Error>(output)
        };
        let (graph, output) = h.captured(body);
        let address = output.address();
        drop(output);
        assert!(h.launch(&graph) && h.holds_at(address, BYTES));
        h.sleep_and_wake();
        assert!(h.holds_at(address, BYTES), "{plan}, fixed: {fixed}");
    }
}

/// Blocks whose capture's memory never came have none, or what all of them share: nothing of them is kept.
#[test]
fn sleep_with_planned_blocks_that_never_had_memory() {
    for unjudged in [false, true] {
        let h = Host::planned(PlanChoice::Exact);
        let body = |capture: &Capture<Sim>| {
            let output = capture.allocate(BYTES, h.stream)?;
            h.write(h.stream, output.address(), STATE);
            Ok::<_, Error>(output)
        };
        let (graph, output) = h.captured(body);
        let capture = Capture::begin(&h.pool, h.stream, CaptureMode::Relaxed).unwrap();
        let block = capture.allocate(BYTES, h.stream).unwrap();
        if unjudged {
            h.driver.end_capture(h.stream).unwrap();
            h.engine.host().end_unjudged(capture.id()).unwrap_err();
        }
        drop(capture);
        assert!(h.launch(&graph));
        let regions = Regions::new(&h.engine);
        regions.sleep(Tags::All).unwrap();
        let slept = regions.report()[0].slept.map(|it| it.copied_bytes);
        regions.wake(Tags::All).unwrap();
        assert!(h.holds_at(output.address(), BYTES));
        assert_eq!(slept, Some(BYTES), "{unjudged}");
        drop(block);
    }
}

#[test]
fn sleep_without_contents_and_suspension() {
    let h = Host::new(Settings::default());
    let made = h.capture();
    let regions = Regions::new(&h.engine);
    regions.set_backup("graphs", Backup::None);
    regions.sleep(Tags::All).unwrap();
    regions.wake(Tags::All).unwrap();
    assert_eq!(h.holds(&made), NONE);
    // The live block is the graph's own.
    for suspend in [Pool::suspend_discarding_outputs, Pool::suspend_discarding_all] {
        let h = Host::new(Settings::default());
        let made = h.capture();
        suspend(&h.pool).unwrap();
        h.pool.resume().unwrap();
        assert_eq!(h.holds(&made), NONE);
    }
}

/// On the host's word all that is free is lent.
#[test]
fn lending_of_all_that_is_free() {
    let h = Host::new(Settings::default());
    let made = h.capture();
    while let Some(block) =
        h.engine.host().lend(h.pool.id(), BYTES, h.eager, Lent::AllFree).unwrap()
    {
        h.write(h.eager, block.address, 1);
    }
    assert_eq!(h.holds(&made), Holds { live: true, ..NONE });
}

#[test]
fn lending() {
    let h = Host::new(Settings::default());
    let made = h.capture();
    let lending = h.pool.lend(h.eager).unwrap();
    // All that is lent, and no more: the pool does not grow for it.
    let reserved = h.pool.reserved().unwrap();
    let borrowed = lending.allocate(BYTES).unwrap();
    assert_eq!(h.pool.reserved().unwrap(), reserved);
    assert_eq!((borrowed.address(), h.pool.statistics().unwrap().lent), (made.temporary, BYTES));
    h.write(h.eager, borrowed.address(), 1);
    drop((borrowed, lending));
    assert_eq!(h.holds(&made), Holds { temporary: false, ..ALL });
    assert!(!h.launch(&made.graph));
}

/// Blocks have other memory from the capture's end on than its run could write.
#[test]
fn plan_exact() {
    let h = Host::planned(PlanChoice::Exact);
    let body = |capture: &Capture<Sim>| {
        let planned = capture.allocate(BYTES, h.stream)?;
        let fixed = capture.allocate_fixed(BYTES, h.stream)?;
        let freed = capture.allocate_fixed(BYTES, h.stream)?;
        for block in [&planned, &fixed, &freed] {
            h.fill(block.address());
        }
        for block in [&planned, &fixed, &freed] {
            h.read(block.address());
        }
        Ok::<_, Error>((planned, fixed, freed.address()))
    };
    let (graph, (planned, fixed, freed)) = h.captured(body);
    assert!(!h.holds_at(planned.address(), BYTES));
    assert!(h.holds_at(fixed.address(), BYTES) && h.holds_at(freed, BYTES));
    // What is written after the end stays: the block is live, and its memory no other graph's.
    h.fill(planned.address());
    let other = h.overwrite(3);
    h.launch(&other);
    assert!(h.launch(&graph));
    assert!(h.holds_at(planned.address(), BYTES) && h.holds_at(fixed.address(), BYTES));
    // What was allocated and freed there shares its memory with blocks that the graph has later.
    let body = |capture: &Capture<Sim>| {
        let temporary = capture.allocate(BYTES, h.stream)?;
        h.read(temporary.address());
        h.replace(capture, temporary)
    };
    let (graph, temporary) = h.captured(body);
    h.fill(temporary);
    assert!(h.launch(&graph));
    assert!(!h.holds_at(temporary, BYTES));
}

/// As without a plan, but blocks lie closer together: more of them have the place of one before.
#[test]
fn plan_learned() {
    let h = Host::planned(PlanChoice::Auto);
    let body = |capture: &Capture<Sim>| {
        let live = capture.allocate(BYTES, h.stream)?;
        let temporary = capture.allocate(BYTES, h.stream)?;
        for block in [&live, &temporary] {
            h.fill(block.address());
            h.read(block.address());
        }
        Ok((live, h.replace(capture, temporary)?))
    };
    let capture = || h.captured(body);
    // The engine itself follows no layout that takes no less than blocks as they come.
    h.engine.plans().learn().unwrap();
    let blocks = [(); 2].map(|()| h.engine.allocate(h.pool.id(), BYTES, h.stream).unwrap());
    h.engine.free(blocks[1].id).unwrap();
    let next = h.engine.allocate(h.pool.id(), BYTES, h.stream).unwrap();
    assert_eq!(h.engine.plans().learned().unwrap(), 3);
    h.engine.free(next.id).unwrap();
    h.engine.free(blocks[0].id).unwrap();
    let (graph, (live, temporary)) = capture();
    assert!(graph.report().layout.is_some(), "it follows what was asked for before");
    assert!(h.launch(&graph));
    assert!(h.holds_at(live.address(), BYTES) && !h.holds_at(temporary, BYTES));
    assert!(!h.launch(&graph));
}

/// Of the two runs the second counts, on memory of its own: what a library initialises once is not there.
#[test]
fn capture_twice() {
    for once in [false, true] {
        let h = Host::new(Settings::default());
        let runs = Cell::new(0);
        let body = |capture: &Capture<Sim>| {
            let live = capture.allocate(BYTES, h.stream)?;
            let temporary = capture.allocate(BYTES, h.stream)?;
            if runs.replace(runs.get() + 1) == 0 || !once {
                h.fill(live.address());
                h.fill(temporary.address());
            }
            h.read(live.address());
            h.read(temporary.address());
            Ok::<_, Error>((live, h.replace(capture, temporary)?))
        };
        let captured = h.pool.capture_twice(h.stream, CaptureMode::Relaxed, body).unwrap();
        let (graph, (live, temporary)) = captured;
        assert_eq!(runs.get(), 2);
        assert_eq!(h.launch(&graph), !once);
        assert_eq!(h.holds_at(live.address(), BYTES), !once);
        assert!(!h.holds_at(temporary, BYTES));
    }
}

/// Live blocks keep what they hold; what graphs exchange holds anything afterwards.
#[test]
fn compaction() {
    const PAGE: u64 = 2 * MIB;
    // As few pieces as can be, which fit one graph and not the next.
    let settings = Settings::default().plan(PlanChoice::Exact).plan_max_mappings(Some(1));
    let h = Host::new(settings);
    type Body<'a> = dyn Fn(&Capture<Sim>) -> Result<Vec<Memory<Sim>>, Error> + 'a;
    let capture = |body: &Body<'_>| h.captured(body);
    let temporary = |pages: &[u64]| {
        let places = RefCell::default();
        let (graph, _) = capture(&|capture| {
            let blocks: Result<Vec<_>, Error> =
                pages.iter().map(|pages| capture.allocate(pages * PAGE, h.stream)).collect();
            let blocks = blocks?;
            blocks.iter().for_each(|block| h.read(block.address()));
            *places.borrow_mut() = blocks.iter().map(Memory::address).collect::<Vec<_>>();
            Ok(Vec::new())
        });
        (graph, places.into_inner())
    };
    let outputs = |capture: &Capture<Sim>| {
        let blocks = [(); 2].map(|()| capture.allocate(BYTES, h.stream));
        let blocks: Result<Vec<_>, Error> = blocks.into_iter().collect();
        let blocks = blocks?;
        blocks.iter().for_each(|block| h.read(block.address()));
        Ok(blocks)
    };
    let gone = temporary(&[23, 20]);
    let graphs = [temporary(&[9, 5, 14]), temporary(&[3, 20, 7]), temporary(&[8, 8, 8, 8])];
    let (with_outputs, mut blocks) = capture(&outputs);
    let freed = blocks.pop().unwrap().address();
    let live = blocks[0].address();
    let places = graphs.iter().flat_map(|(_, places)| places).copied();
    places.chain([live, freed]).for_each(|address| h.fill(address));
    assert!(graphs.iter().all(|(graph, _)| h.launch(graph)) && h.launch(&with_outputs));
    drop(gone);
    h.driver.complete_all();
    h.pool.collect();
    assert!(h.pool.compact().unwrap() > 0);
    assert!(h.holds_at(live, BYTES));
    assert!(!graphs.iter().all(|(graph, _)| h.launch(graph)));
}

/// What is fixed of a planned graph stays where it is in a compaction, freed or not.
#[test]
fn compaction_beside_fixed_memory() {
    let h = Host::planned(PlanChoice::Exact);
    let capture = |blocks: usize| {
        let body = |capture: &Capture<Sim>| {
            let fixed = capture.allocate_fixed(BYTES, h.stream)?;
            let planned: Result<Vec<_>, Error> =
                (0..blocks).map(|_| capture.allocate(BYTES, h.stream)).collect();
            for block in &planned? {
                h.write(h.stream, block.address(), 1);
            }
            h.fill(fixed.address());
            h.read(fixed.address());
            Ok::<_, Error>(fixed.address())
        };
        h.captured(body)
    };
    let gone = capture(8);
    let (graph, fixed) = capture(2);
    let (other, _) = capture(3);
    drop(gone);
    h.driver.complete_all();
    h.pool.collect();
    h.pool.compact().unwrap();
    assert!(h.holds_at(fixed, BYTES));
    assert!(h.launch(&other) && h.launch(&graph));
}

#[test]
fn checkpoints() {
    let h = Host::new(Settings::default());
    let made = h.capture();
    let pool = h.pool.id();
    let checkpoint = h.engine.host().checkpoint(pool).unwrap();
    let live = made.live.address();
    // A branch that has nothing of the state: it stays through the way back.
    let other = h.overwrite(3);
    h.launch(&other);
    let restored = h.engine.host().restore(pool, &checkpoint).unwrap();
    let places: Vec<u64> = restored.live.iter().map(|block| block.address).collect();
    assert_eq!(places, [live]);
    assert_eq!(h.holds(&made), Holds { live: true, ..NONE });
    // A branch that has its place: what comes to life again holds what that has left there.
    h.engine.free(restored.live[0].id).unwrap();
    h.driver.complete_all();
    let other = h.overwrite(4);
    h.launch(&other);
    let restored = h.engine.host().restore(pool, &checkpoint).unwrap();
    assert_eq!(restored.live[0].address, live);
    assert!(!h.holds_at(live, BYTES));
    assert!(!h.launch(&made.graph));
    h.engine.free(restored.live[0].id).unwrap();
}

fn poisoning() -> Host {
    Host::new(Settings::parse("poison:True").unwrap())
}

/// What no launch may rely on is not there even at the first one.
#[test]
fn poison_before_the_first_launch() {
    let h = poisoning();
    let made = h.capture();
    assert_eq!(h.holds(&made), ALL);
    assert!(!h.launch(&made.graph));
    assert_eq!(h.holds(&made), Holds { temporary: false, ..ALL });
    let tags = h.driver.read_tags(made.temporary, BYTES).unwrap();
    assert!(tags.iter().all(|&tag| tag == u64::MAX), "bytes of 0xFF");
    // Once for each graph.
    h.fill(made.temporary);
    assert!(h.launch(&made.graph));
    let other = h.capture();
    h.fill(made.temporary);
    h.launch(&other.graph);
    assert!(!h.holds_at(made.temporary, BYTES));
}

/// Graphs that write what they read are the same with it, on several streams.
#[test]
fn poison_changes_nothing_of_sound_graphs() {
    let h = poisoning();
    let body = |capture: &Capture<Sim>| {
        let temporary = capture.allocate(BYTES, h.stream)?;
        h.write(h.stream, temporary.address(), STATE);
        h.read(temporary.address());
        let output = capture.allocate(BYTES, h.stream)?;
        h.write(h.stream, output.address(), STATE);
        Ok::<_, Error>(output)
    };
    let capture = || h.captured(body);
    let (first, output) = capture();
    assert!(h.launch(&first));
    let (second, other) = capture();
    for _ in 0..2 {
        first.launch(h.eager).unwrap();
        second.launch(h.stream).unwrap();
    }
    h.driver.synchronize().unwrap();
    assert_eq!(h.driver.take_wrong_tags().unwrap(), 0);
    assert!([&output, &other].into_iter().all(|block| h.holds_at(block.address(), BYTES)));
}

/// While a capture uses the pool nothing is filled, and where a launch fails before its fill is done, or after that, the
/// next one is poisoned.
#[test]
fn poison_that_has_to_wait() {
    let h = poisoning();
    let made = h.capture();
    let under_way = Capture::begin(&h.pool, h.stream, CaptureMode::Relaxed).unwrap();
    made.graph.launch(h.eager).unwrap();
    h.driver.complete(h.eager).unwrap();
    assert!(h.holds_at(made.temporary, BYTES));
    drop(under_way);
    // Of the host's calls in this launch: the stream's number, its wait for the launch before, and the fill; then, since
    // the stream is the last launch's, the fill and the launch.
    for _ in 0..2 {
        h.driver.fail_host_nth(2, ErrorKind::InvalidValue);
        made.graph.launch(h.stream).unwrap_err();
        h.driver.forget_failures();
        h.driver.complete(h.stream).unwrap();
        h.fill(made.temporary);
    }
    assert!(!h.launch(&made.graph));
    assert!(!h.holds_at(made.temporary, BYTES));
}
