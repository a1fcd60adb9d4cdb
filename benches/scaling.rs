//! How the cost of a step, an allocation and a free grows with the capture: a table. And, counted alone, what
//! calls cost beside many pools, or in a pool with many blocks that earlier captures have left.
//!
//! Each row looks at the second half of a capture, when it holds between half of the row's number
//! of nodes (or of blocks that wait) and all of it; so what the first memory costs is left out.
//! The factors compare a row with the first. The least of several runs counts.
//!
//! `cargo bench -p regraph-benches --bench scaling -- [level|join|grow|steady] [ROWS UP TO]`; without arguments what
//! is live stays level, so that nothing grows but the number of nodes, up to a million.
//!
//! `--count pools|standing CALL HOW_MANY` makes calls of one kind, in a function of their own that a profiler can
//! find, and prints their number: `benches/instructions` counts their instructions.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use common::host::{unchecked, Host};
use common::meter::{clock_cost, counted, Timed, Untimed};
use common::script::{Length, Script, LEVEL, MIXES, SMALL};
use regraph::driver::{CaptureMode, CaptureStatus, Driver, HostApi, StreamHandle};
use regraph::engine::{BlockId, Config, Engine, GraphId, PoolConfig, PoolId};
use regraph_plan::random::Random;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

const FINE: &str = "scripts are valid and the simulated driver does not fail";

/// A table row's figures, in nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    step: f64,
    allocation: f64,
    free: f64,
}

impl Cost {
    fn map(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            step: f(self.step, other.step),
            allocation: f(self.allocation, other.allocation),
            free: f(self.free, other.free),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, beside, call, how_many, ..] = &arguments[..] {
        if flag == "--count" {
            let how_many = how_many.parse().expect("a number");
            println!("{}", Crowd::new(beside == "standing", how_many).count(call));
            return;
        }
    }
    let mut named = MIXES.into_iter().filter(|mix| arguments.iter().any(|it| it == mix.name));
    let mix = named.next().unwrap_or(LEVEL);
    // Cargo passes this to `cargo bench` only; as a test the first rows will do.
    let whole = arguments.iter().any(|argument| argument == "--bench");
    let limit = arguments.iter().find_map(|argument| argument.parse().ok());
    let limit = limit.unwrap_or(if whole { 1_000_000 } else { 1_000 });
    let rows = || [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|&row| row <= limit);

    let random = |streams, nodes| Script::random(streams, mix, SMALL, Length::Nodes(nodes));
    for streams in [1, 4, 16] {
        let title = format!("nodes: {}, {streams} streams", mix.name);
        table(&title, rows().map(|nodes| (nodes, random(streams, nodes))));
    }
    for streams in [3, 16] {
        let title = format!("pending, {streams} streams");
        table(&title, rows().map(|blocks| (blocks, Script::pending(streams, blocks))));
    }
    let by_streams = [1, 2, 4, 8, 16].map(|streams| (streams, random(streams, limit.min(10_000))));
    table(&format!("streams: {}", mix.name), by_streams.into_iter());
}

fn table(title: &str, rows: impl Iterator<Item = (usize, Script)>) {
    println!("\n{title:<26} {:>18} {:>18} {:>18}", "step", "alloc", "free");
    let mut first = None;
    for (parameter, script) in rows {
        let cost = least(&script);
        let factor = cost.map(*first.get_or_insert(cost), |cost, first| cost / first);
        print!("{parameter:<26}");
        for (cost, factor) in [
            (cost.step, factor.step),
            (cost.allocation, factor.allocation),
            (cost.free, factor.free),
        ] {
            print!(" {cost:>8.0} ns {factor:>5.2}x");
        }
        println!();
    }
}

/// The least of several runs, fewer the longer they are.
fn least(script: &Script) -> Cost {
    let runs = (300_000 / script.nodes).clamp(2, 50);
    let runs = (0..runs).map(|_| run(script));
    runs.reduce(|one, other| one.map(other, f64::min)).expect("at least one run")
}

/// One capture without single calls timed, and one with.
fn run(script: &Script) -> Cost {
    let (first, second) = script.calls.split_at(script.calls.len() / 2);
    let begin = || {
        let mut host = Host::begin(unchecked(), script.streams);
        host.run(first, &mut Untimed);
        host
    };
    let mut host = begin();
    let start = Instant::now();
    host.run(second, &mut Untimed);
    let step = start.elapsed().as_nanos() as f64 / (script.steps as f64 / 2.0);
    drop(host);
    let mut timed = Timed::default();
    begin().run(second, &mut timed);
    let clock = clock_cost();
    Cost { step, allocation: timed.allocations.mean(clock), free: timed.frees.mean(clock) }
}

/// An engine with many pools, or with many blocks in one pool.
struct Crowd {
    driver: Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    stream: StreamHandle,
    /// The pool that calls are made for.
    pool: PoolId,
}

impl Crowd {
    /// With `standing` one pool with so many blocks that an earlier capture has left; else so many pools, each
    /// with a live block and one that the stream has given back.
    fn new(standing: bool, how_many: usize) -> Self {
        let sim = SimConfig { total_bytes: 1 << 45, ..SimConfig::default() };
        let driver = Arc::new(SimDriver::new(sim));
        let engine = Engine::new(Arc::clone(&driver), Config::default().report_leaks(false));
        let stream = driver.create_stream().expect(FINE);
        let pool = engine.create_pool(PoolConfig::default());
        let mut crowd = Self { driver, engine, stream, pool };
        if standing {
            crowd.capture(how_many, 1, |call| call());
            return crowd;
        }
        let others = (1..how_many).map(|_| crowd.engine.create_pool(PoolConfig::default()));
        let others: Vec<PoolId> = others.collect();
        for &pool in &others {
            let [_, cached] = [1 << 16, 1 << 15].map(|bytes| crowd.allocate(pool, bytes));
            crowd.engine.free(cached).expect(FINE);
        }
        // One of those in the middle, if there is one.
        crowd.pool = others.get(how_many / 2).copied().unwrap_or(pool);
        crowd
    }

    fn allocate(&self, pool: PoolId, bytes: u64) -> BlockId {
        self.engine.allocate(pool, bytes, self.stream).expect(FINE).id
    }

    /// Captures so many outputs and temporaries into the pool; `each` makes the engine's calls.
    fn capture(
        &self,
        outputs: usize,
        nodes: usize,
        each: impl Fn(&mut dyn FnMut()),
    ) -> (Vec<BlockId>, GraphId) {
        let Self { driver, engine, stream, pool } = self;
        driver.begin_capture(*stream, CaptureMode::Relaxed).expect(FINE);
        let mut capture = None;
        each(&mut || capture = Some(engine.begin_capture(*pool, *stream).expect(FINE)));
        let mut left = Vec::new();
        for _ in 0..outputs {
            each(&mut || left.push(self.allocate(*pool, 1 << 16)));
        }
        for _ in 0..nodes {
            let mut block = None;
            each(&mut || block = Some(self.allocate(*pool, 1 << 20)));
            driver.launch(*stream, Work::default(), false).expect(FINE);
            each(&mut || engine.free(block.take().expect(FINE)).expect(FINE));
        }
        let graph = match driver.capture_status(*stream, &mut Vec::new()).expect(FINE) {
            CaptureStatus::Active { graph, .. } => graph,
            status => unreachable!("{FINE}: {status:?}"),
        };
        let mut made = None;
        each(&mut || {
            made = Some(engine.end_capture(capture.expect(FINE), graph).expect(FINE).graph);
        });
        let graph = driver.end_capture(*stream).expect(FINE);
        driver.destroy_graph(graph).expect(FINE);
        (left, made.expect(FINE))
    }

    /// Makes calls of one kind, all but the first within [`counted`], and returns their number.
    fn count(&self, call: &str) -> u64 {
        const WARM: usize = 40;
        const CALLS: usize = 200;
        let Self { engine, pool, .. } = self;
        let mut random = Random::new(3);
        let mut bytes = || (512.0 * 65536_f64.powf(random.fraction())) as u64;
        let mixed = call == "mixed";
        let mut ring: Vec<BlockId> =
            (0..if mixed { 32 } else { 0 }).map(|_| self.allocate(*pool, bytes())).collect();
        for step in 0..WARM + CALLS {
            let each = |call: &mut dyn FnMut()| if step < WARM { call() } else { counted(call) };
            let capture = |outputs, nodes| {
                let (outputs, graph) = self.capture(outputs, nodes, each);
                outputs.into_iter().for_each(|block| engine.free(block).expect(FINE));
                engine.release_graph(graph).expect(FINE);
            };
            match call {
                "same" => each(&mut || {
                    engine.free(self.allocate(*pool, 1 << 15)).expect(FINE);
                }),
                "mixed" => {
                    let (row, bytes) = (step % ring.len(), bytes());
                    let slot = &mut ring[row];
                    each(&mut || {
                        engine.free(*slot).expect(FINE);
                        *slot = self.allocate(*pool, bytes);
                    });
                }
                "empty" => capture(0, 0),
                "two" => capture(0, 2),
                "output" => capture(1, 2),
                "new" | "end" => {
                    let mut pool = *pool;
                    let mut make = || pool = engine.create_pool(PoolConfig::default());
                    match call {
                        "new" => each(&mut make),
                        _ => make(),
                    }
                    engine.free(self.allocate(pool, 1 << 16)).expect(FINE);
                    let mut end = || engine.destroy_pool(pool).expect(FINE);
                    match call {
                        "end" => each(&mut end),
                        _ => end(),
                    }
                }
                "figures" => each(&mut || {
                    black_box(engine.pool_statistics(*pool).expect(FINE));
                }),
                "all-figures" => each(&mut || {
                    black_box(engine.statistics().expect(FINE));
                }),
                _ => panic!("no such call: {call}"),
            }
        }
        CALLS as u64
    }
}
