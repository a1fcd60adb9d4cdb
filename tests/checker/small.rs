//! Every program of a small scope: a few streams, two blocks of one size of which the second gets the first one's place,
//! and so many operations. The judge accepts none that is unsafe by definition. What it refuses though it is safe it
//! accepts once the host observes every stream behind every operation: the refusal stood on a node that was seen too late
//! (`design/safety.md`, "Refused though safe").

use std::sync::Arc;

use crate::device::graph_of;
use regraph::driver::{
    CaptureMode, Dependency, Driver, EdgeData, HostApi, NodeHandle, StreamHandle,
};
use regraph::engine::{Attempt, BlockId, Config, Engine, Error, PoolConfig, PoolId};
use regraph::settings::Programmatic;
use regraph_sim::SimDriver;
use regraph_tagged::{Program, Work};

/// What the host does, on streams and with blocks by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Launch(usize),
    /// A kernel that may start before the last one ends.
    Early(usize),
    /// The first stream waits for the second.
    Wait(usize, usize),
    Allocate(usize),
    Record(usize, usize),
    Free(usize),
    /// The stream goes on from where another one stands, or from the capture's first node. The host observes all streams
    /// before, and the stream before and after.
    Set(usize, Option<usize>),
}
use Step::{Allocate, Early, Free, Launch, Record, Set, Wait};

#[derive(Clone, Copy)]
struct Scope {
    streams: usize,
    steps: usize,
    early: bool,
    set_back: bool,
    policy: Programmatic,
}

/// What the host knows of a block.
struct Block {
    id: BlockId,
    address: u64,
    stream: usize,
    recorded: Vec<usize>,
    /// The terminals of its stream when it was handed out.
    point: Vec<NodeHandle>,
    /// How many launches came before its allocation, and its free.
    life: [usize; 2],
}

/// Serves many programs, one after another.
struct World {
    driver: Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    pool: PoolId,
    streams: Vec<StreamHandle>,
    runs: usize,
}

/// What became of a program.
struct Outcome {
    /// Whether the latest block lies where an earlier one lay.
    shares: bool,
    safe: bool,
    verdict: Result<(), String>,
}

impl World {
    fn new(scope: Scope) -> Self {
        let driver = crate::device::simulated();
        let config = Config::default().programmatic(scope.policy).find_late_uses(false);
        let engine = Engine::new(driver.clone(), config);
        let pool = engine.create_pool(PoolConfig::default());
        let streams = (0..scope.streams).map(|_| driver.create_stream().unwrap()).collect();
        Self { driver, engine, pool, streams, runs: 0 }
    }

    fn terminals(&self, stream: usize) -> Vec<Dependency> {
        self.driver.terminals(self.streams[stream]).unwrap()
    }

    /// Captures a program; with `looked`, the host observes every stream behind each operation, the one that it changed
    /// first.
    fn run(&mut self, scope: Scope, program: &[Step], looked: bool) -> Outcome {
        self.runs += 1;
        let (driver, engine, origin) = (&self.driver, &self.engine, self.streams[0]);
        driver.begin_capture(origin, CaptureMode::Relaxed).unwrap();
        let capture = engine.begin_capture(self.pool, origin).unwrap();
        engine.set_attempt(capture, Attempt::First).unwrap();
        let mut launches = Vec::new();
        let mut launch = |stream: usize, early: bool| {
            driver.launch(self.streams[stream], Work::default(), early).unwrap();
            launches.push((self.terminals(stream)[0].node, stream));
            launches.len()
        };
        let mut count = launch(0, false);
        let root = self.terminals(0);
        for &stream in &self.streams[1..] {
            driver.wait(stream, origin).unwrap();
        }
        let look = |first: usize| {
            let rest = (0..scope.streams).filter(|&it| it != first);
            for stream in std::iter::once(first).chain(rest) {
                engine.observe(self.streams[stream]).unwrap();
            }
        };
        let mut blocks: Vec<Block> = Vec::new();
        let mut shares = false;
        if looked {
            look(0);
        }
        for &step in program {
            let changed = match step {
                Launch(stream) | Early(stream) => {
                    count = launch(stream, matches!(step, Early(_)));
                    Some(stream)
                }
                Wait(to, on) => {
                    driver.wait(self.streams[to], self.streams[on]).unwrap();
                    Some(to)
                }
                Set(stream, to) => {
                    let others = (0..scope.streams).filter(|&it| it != stream);
                    for stream in others.chain([stream]) {
                        engine.observe(self.streams[stream]).unwrap();
                    }
                    let to = to.map_or_else(|| root.clone(), |to| self.terminals(to));
                    driver.set_terminals(self.streams[stream], &to).unwrap();
                    engine.observe(self.streams[stream]).unwrap();
                    Some(stream)
                }
                Allocate(stream) => {
                    let block = engine.allocate(self.pool, 512, self.streams[stream]).unwrap();
                    shares = blocks.iter().any(|other| other.address == block.address);
                    let point = self.terminals(stream).iter().map(|it| it.node).collect();
                    blocks.push(Block {
                        id: block.id,
                        address: block.address,
                        stream,
                        recorded: Vec::new(),
                        point,
                        life: [count, usize::MAX],
                    });
                    None
                }
                Record(block, stream) => {
                    engine.record_stream(blocks[block].id, self.streams[stream]).unwrap();
                    blocks[block].recorded.push(stream);
                    None
                }
                Free(block) => {
                    engine.free(blocks[block].id).unwrap();
                    blocks[block].life[1] = count;
                    None
                }
            };
            changed.filter(|_| looked).into_iter().for_each(look);
        }
        for &stream in &self.streams[1..] {
            driver.wait(origin, stream).unwrap();
        }
        let ended = engine.end_capture(capture, graph_of(driver, origin));
        driver.end_capture(origin).unwrap();
        let safe = is_safe(driver, scope.policy, &launches, &blocks);
        let verdict = match ended {
            Ok(report) => {
                engine.release_graph(report.graph).unwrap();
                Ok(())
            }
            Err(error @ (Error::Refused(_) | Error::CaptureAgain(_))) => Err(error.to_string()),
            Err(error) => panic!("{program:?}: {error}"),
        };
        for block in blocks.iter().filter(|block| block.life[1] == usize::MAX) {
            engine.free(block.id).unwrap();
        }
        driver.complete_all();
        Outcome { shares, safe, verdict }
    }
}

/// The theorem, by the definition: of blocks at one address every user of the earlier is completed before any of the
/// later starts. `launches` has each node with its stream.
fn is_safe(
    driver: &SimDriver,
    policy: Programmatic,
    launches: &[(NodeHandle, usize)],
    blocks: &[Block],
) -> bool {
    let number = |node: NodeHandle| launches.iter().position(|it| it.0 == node).unwrap();
    // By node, as bits: what comes before it, what is completed when it starts, and when it is completed.
    let (mut before, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::<u32>::new());
    let mut edges = Vec::new();
    for (node, _) in launches {
        driver.dependencies(*node, &mut edges).unwrap();
        let (mut all, mut start, mut beside) = (0_u32, 0_u32, 0_u32);
        for edge in &edges {
            let from = number(edge.node);
            all |= before[from] | 1 << from;
            match (edge.edge, policy) {
                (EdgeData::FULL, _) => start |= ends[from],
                (_, Programmatic::Deny) => {}
                _ => (start, beside) = (start | starts[from], beside | ends[from]),
            }
        }
        ends.push(start | beside | 1 << before.len());
        before.push(all);
        starts.push(start);
    }
    let users = |block: &Block| {
        let point = block.point.iter().fold(0_u32, |all, &node| all | 1 << number(node));
        let [born, freed] = block.life;
        let live = launches.iter().enumerate().take(freed).skip(born);
        let uses = live.filter(|&(node, &(_, stream))| {
            let is_told = block.recorded.contains(&stream) && before[node] & point == point;
            stream == block.stream || is_told
        });
        uses.map(|(node, _)| node).collect::<Vec<_>>()
    };
    blocks.iter().enumerate().all(|(number, later)| {
        let earlier = blocks[..number].iter().filter(|it| it.address == later.address);
        let earlier: u32 = earlier.flat_map(users).fold(0, |all, node| all | 1 << node);
        users(later).iter().all(|&node| starts[node] & earlier == earlier)
    })
}

/// Where a program stands, as far as that decides what may come next.
#[derive(Clone, Default)]
struct State {
    /// By stream, by the numbers of nodes.
    terminals: Vec<Vec<usize>>,
    nodes: usize,
    /// By block: its stream, whether it lives, and the streams that were recorded.
    blocks: Vec<(usize, bool, Vec<usize>)>,
}

impl State {
    fn steps(&self, scope: Scope) -> Vec<Step> {
        let mut steps = Vec::new();
        for stream in 0..scope.streams {
            let here = &self.terminals[stream];
            steps.push(Launch(stream));
            steps.extend(scope.early.then_some(Early(stream)));
            for other in (0..scope.streams).filter(|&it| it != stream) {
                let there = &self.terminals[other];
                let waits = !there.iter().all(|node| here.contains(node));
                steps.extend(waits.then_some(Wait(stream, other)));
                steps.extend((scope.set_back && here != there).then_some(Set(stream, Some(other))));
            }
            steps.extend((scope.set_back && *here != [0]).then_some(Set(stream, None)));
            steps.extend((self.blocks.len() < 2).then_some(Allocate(stream)));
        }
        for (number, (own, _, recorded)) in
            self.blocks.iter().enumerate().filter(|(_, block)| block.1)
        {
            steps.push(Free(number));
            let others = (0..scope.streams).filter(|it| it != own && !recorded.contains(it));
            steps.extend(others.map(|stream| Record(number, stream)));
        }
        steps
    }

    fn after(&self, step: Step) -> Self {
        let mut next = self.clone();
        match step {
            Launch(stream) | Early(stream) => {
                next.terminals[stream] = vec![self.nodes];
                next.nodes += 1;
            }
            Wait(to, on) => {
                next.terminals[to].extend(&self.terminals[on]);
                next.terminals[to].sort_unstable();
                next.terminals[to].dedup();
            }
            Set(stream, to) => {
                next.terminals[stream] = to.map_or(vec![0], |to| self.terminals[to].clone());
            }
            Allocate(stream) => next.blocks.push((stream, true, Vec::new())),
            Record(block, stream) => next.blocks[block].2.push(stream),
            Free(block) => next.blocks[block].1 = false,
        }
        next
    }
}

/// Whether two operations have the same effect in either order, as no call of the engine lies between.
fn commute(one: Step, other: Step) -> bool {
    let streams = |step| match step {
        Launch(stream) | Early(stream) => Some((stream, stream)),
        Wait(to, on) => Some((to, on)),
        _ => None,
    };
    match (streams(one), streams(other)) {
        (Some((one, of)), Some((other, on))) => one != other && one != on && of != other,
        _ => false,
    }
}

#[derive(Default)]
struct Search {
    world: Option<World>,
    programs: usize,
    refused: usize,
    refused_though_safe: usize,
}

impl Search {
    fn run(&mut self, scope: Scope, program: &[Step], looked: bool) -> Outcome {
        if self.world.as_ref().is_none_or(|world| world.runs == 200) {
            self.world = Some(World::new(scope));
        }
        self.world.as_mut().unwrap().run(scope, program, looked)
    }

    fn judge(&mut self, scope: Scope, program: &[Step]) {
        let Outcome { safe, verdict, .. } = self.run(scope, program, false);
        self.programs += 1;
        self.refused += usize::from(verdict.is_err());
        assert!(safe || verdict.is_err(), "{program:?} is accepted, and is not safe");
        if safe && verdict.is_err() {
            self.refused_though_safe += 1;
            let looked = self.run(scope, program, true);
            assert!(looked.verdict.is_ok(), "{program:?} is safe: {:?}", looked.verdict);
        }
    }

    fn explore(&mut self, scope: Scope, state: &State, program: &mut Vec<Step>, shares: bool) {
        if shares {
            self.judge(scope, program);
        }
        for step in state.steps(scope) {
            let next = state.after(step);
            let is_freed = next.blocks.iter().any(|block| !block.1);
            let missing = 2 - next.blocks.len() + usize::from(!shares && !is_freed);
            if program.len() + 1 + missing > scope.steps
                || program.last().is_some_and(|&last| commute(last, step) && step < last)
            {
                continue;
            }
            program.push(step);
            let lies_there = match step {
                Allocate(_) => is_freed && self.run(scope, program, false).shares,
                _ => shares,
            };
            if lies_there || next.blocks.len() < 2 {
                self.explore(scope, &next, program, lies_there);
            }
            program.pop();
        }
    }
}

/// All programs of a scope; ten times `REGRAPH_CASES` has them one operation longer.
fn explore(scope: Scope) {
    let times = std::env::var("REGRAPH_CASES").map_or(1, |it| it.parse().expect("a number"));
    let scope = Scope { steps: scope.steps + u64::ilog10(times) as usize, ..scope };
    let state = State { terminals: vec![vec![0]; scope.streams], nodes: 1, blocks: Vec::new() };
    let mut search = Search::default();
    search.explore(scope, &state, &mut Vec::new(), false);
    println!(
        "{} streams, {} operations, {}: {} programs, {} refused, {} of them though they are safe",
        scope.streams,
        scope.steps,
        scope.policy,
        search.programs,
        search.refused,
        search.refused_though_safe
    );
    assert!(search.programs > 0);
}

#[test]
fn two_streams_that_are_set_back() {
    let policy = Programmatic::Auto;
    explore(Scope { streams: 2, steps: 6, early: false, set_back: true, policy });
}

#[test]
fn two_streams_with_programmatic_launches() {
    for policy in [Programmatic::Auto, Programmatic::Deny] {
        explore(Scope { streams: 2, steps: 6, early: true, set_back: false, policy });
    }
}

#[test]
fn two_streams_with_both() {
    for policy in [Programmatic::Auto, Programmatic::Deny, Programmatic::Lag] {
        explore(Scope { streams: 2, steps: 5, early: true, set_back: true, policy });
    }
}

#[test]
fn three_streams() {
    let policy = Programmatic::Auto;
    explore(Scope { streams: 3, steps: 5, early: false, set_back: true, policy });
}
