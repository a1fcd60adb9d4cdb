//! What the plug-in adds to a call of the engine: it finds the pool by the stream, and the block by its address.
//!
//! The same calls are made through an engine and through a plug-in, on the simulated driver: a script in a capture, and
//! pairs of one size outside captures. The two take turns, and each figure is the least of its turns.
//!
//! `--count WHAT CALL STEPS` makes the calls of one kind once, in a function of their own that a profiler
//! can find, and prints how many there were: `benches/instructions` counts their instructions.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use std::sync::Arc;
use std::time::Instant;

use common::host::{forked, run, Allocator, Host};
use common::meter::{clock_cost, counted, Counted, Meter, Timed};
use common::script::{Length, Script, JOIN, SMALL};
use regraph::driver::{CaptureId, CaptureMode, CaptureStatus, Driver, HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::sync::{AtomicU64, Ordering};
use regraph_plugin::Plugin;
use regraph_sim::SimDriver;
use regraph_tagged::{Program, Work};

const FINE: &str = "scripts are valid and the simulated driver does not fail";
const STREAMS: usize = 4;
const TURNS: usize = 9;

type Sim = Arc<SimDriver>;

impl Allocator for Plugin<Sim> {
    type Block = u64;

    #[inline]
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> u64 {
        Plugin::allocate(self, bytes, 0, stream).expect(FINE)
    }

    #[inline]
    fn record_stream(&self, block: u64, stream: StreamHandle) {
        Plugin::record_stream(self, block, stream).expect(FINE);
    }

    #[inline]
    fn free(&self, block: u64) {
        Plugin::free(self, block, 0).expect(FINE);
    }
}

fn plugin(driver: &Sim) -> Plugin<Sim> {
    let driver = Arc::clone(driver);
    Plugin::new(Config::default(), move |_| Ok(Arc::clone(&driver)))
}

/// Runs a script through a plug-in, in a capture that is announced and filtered as PyTorch's are.
fn plugged(script: &Script, meter: &mut impl Meter) {
    let (driver, streams) = forked(script.streams, |driver, origin| {
        driver.begin_capture(origin, CaptureMode::Relaxed).expect(FINE);
    });
    let plugin = plugin(&driver);
    let id = Arc::new(AtomicU64::new(0));
    let capture_of = |driver: &Sim, stream| match driver.capture_of(stream) {
        Ok(CaptureStatus::Active { capture: CaptureId(capture), .. }) => Some(capture),
        _ => None,
    };
    let (asked, own) = (Arc::clone(&driver), Arc::clone(&id));
    let filter = move |stream| capture_of(&asked, stream) == Some(own.load(Ordering::Relaxed));
    let route = plugin.begin_pool(0, (0, 1), Arc::new(filter)).expect(FINE);
    id.store(capture_of(&driver, streams[0]).expect(FINE), Ordering::Relaxed);
    plugin.capture_begun(0, streams[0], route, false).expect(FINE);
    run(&plugin, (&driver, &streams), &mut Vec::new(), &script.calls, meter);
}

/// Runs a script through an engine.
fn direct(script: &Script, meter: &mut impl Meter) {
    Host::begin(Config::default(), script.streams).run(&script.calls, meter);
}

/// An allocation and its free of one size, outside captures, again and again. `each` makes all but the first pair.
fn pairs(steps: usize, with_plugin: bool, mut each: impl FnMut(&mut dyn FnMut())) {
    let driver = Arc::new(SimDriver::new(regraph_sim::SimConfig::default()));
    let stream = driver.create_stream().expect(FINE);
    let bytes = 32 << 10;
    let mut all = |pair: &mut dyn FnMut()| {
        pair();
        (0..steps).for_each(|_| each(pair));
    };
    if with_plugin {
        let plugin = plugin(&driver);
        all(&mut || Allocator::free(&plugin, Allocator::allocate(&plugin, bytes, stream)));
    } else {
        let engine = Engine::new(driver, Config::default());
        let pool = engine.create_pool(PoolConfig::default());
        all(&mut || {
            let block = engine.allocate(pool, bytes, stream).expect(FINE);
            engine.free(block.id).expect(FINE);
        });
    }
}

/// What captures of a stream are like.
struct Captures {
    count: usize,
    /// Blocks outside captures: half of them live, half of them cached.
    outside: u64,
    /// Launches in each capture.
    launches: usize,
    /// Whether each launch has a temporary.
    temporary: bool,
}

/// Makes captures as PyTorch does, each into a pool of its own that is released with its graph. `each`
/// makes the plug-in's calls that begin and end them.
fn captures(
    Captures { count, outside, launches, temporary }: Captures,
    mut each: impl FnMut(&mut dyn FnMut()),
) {
    let driver = Arc::new(SimDriver::new(regraph_sim::SimConfig::default()));
    let stream = driver.create_stream().expect(FINE);
    let plugin = plugin(&driver);
    let outside: Vec<u64> = (0..outside)
        .map(|row| plugin.allocate((row % 64 + 1) << 12, 0, stream).expect(FINE))
        .collect();
    outside.iter().step_by(2).for_each(|&block| plugin.free(block, 0).expect(FINE));
    for key in 0..count as u64 {
        let asked = Arc::clone(&driver);
        let filter =
            move |stream| matches!(asked.capture_of(stream), Ok(CaptureStatus::Active { .. }));
        let filter: regraph_plugin::Filter = Arc::new(filter);
        let mut route = 0;
        each(&mut || route = plugin.begin_pool(0, (0, key), Arc::clone(&filter)).expect(FINE));
        driver.begin_capture(stream, CaptureMode::Relaxed).expect(FINE);
        each(&mut || plugin.capture_begun(0, stream, route, true).map(drop).expect(FINE));
        for _ in 0..launches {
            let block = temporary.then(|| plugin.allocate(1 << 20, 0, stream).expect(FINE));
            driver.launch(stream, Work::default(), false).expect(FINE);
            block.into_iter().for_each(|block| plugin.free(block, 0).expect(FINE));
        }
        each(&mut || plugin.capture_ending(0, stream, |_, _| ()).expect(FINE));
        let graph = driver.end_capture(stream).expect(FINE);
        each(&mut || plugin.end_pool(0, (0, key)).expect(FINE));
        driver.destroy_graph(graph).expect(FINE);
        each(&mut || plugin.capture_ended(0, stream).expect(FINE));
        plugin.release_pool(0, (0, key)).expect(FINE);
    }
}

/// Makes the calls of one kind within [`counted`], and says how many there were.
fn count(what: &str, call: &str, steps: usize) -> u64 {
    let outside = match what {
        "captures" => 64,
        "crowded" => 4096,
        _ => 0,
    };
    if outside > 0 {
        let (launches, temporary) = match call {
            "empty" => (0, false),
            "node" => (1, false),
            _ => (1, true),
        };
        captures(Captures { count: steps, outside, launches, temporary }, |call| counted(call));
        return steps as u64;
    }
    if call == "pair" {
        pairs(steps, what == "plugin", |pair| counted(pair));
        return steps as u64;
    }
    let script = Script::random(STREAMS, JOIN, SMALL, Length::Steps(steps));
    let mut meter = Counted { allocations: call == "alloc", calls: 0 };
    match what {
        "plugin" => plugged(&script, &mut meter),
        _ => direct(&script, &mut meter),
    }
    meter.calls
}

/// Prints what calls take, in nanoseconds.
fn times() {
    let clock = clock_cost();
    let script = Script::random(STREAMS, JOIN, SMALL, Length::Steps(20_000));
    let mut least = [[f64::MAX; 3]; 2];
    for _ in 0..TURNS {
        for (row, least) in least.iter_mut().enumerate() {
            let mut timed = Timed::default();
            if row == 0 {
                direct(&script, &mut timed);
            } else {
                plugged(&script, &mut timed);
            }
            let steps = 100_000;
            let mut begin = Instant::now();
            let mut left = steps;
            pairs(steps, row == 1, |pair| {
                if left == steps {
                    begin = Instant::now();
                }
                left -= 1;
                pair();
            });
            let pair = begin.elapsed().as_nanos() as f64 / steps as f64;
            let found = [timed.allocations.mean(clock), timed.frees.mean(clock), pair];
            least.iter_mut().zip(found).for_each(|(least, found)| *least = least.min(found));
        }
    }
    println!("{:<10} {:>14} {:>12} {:>20}", "ns", "capture: alloc", "free", "outside: both");
    for (name, [allocate, free, pair]) in ["engine", "plug-in"].into_iter().zip(least) {
        println!("{name:<10} {allocate:>14.1} {free:>12.1} {pair:>20.1}");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--count", what, call, steps, ..] => {
            println!("{}", count(what, call, steps.parse().expect("a number of steps")));
        }
        // `cargo test --benches` runs it, with nothing to measure.
        ["--test", ..] => {}
        _ => times(),
    }
}
