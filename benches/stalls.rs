//! How long calls hold others: while a call runs, two threads time calls of their own, one that needs the engine's lock
//! and one that a stream cache serves. `cargo bench -p regraph-benches --bench stalls` prints a table, in microseconds.
//!
//! Each row is run several times, and the median of the longest times is told: what a machine that is busy with other
//! things adds is not the call's. The first row, in which nothing is called, shows what is left of that. A thread that has no
//! call under way while others are held sees nothing, so the time that the call takes is the bound.
//! `cargo test -p regraph-benches --benches` runs each row once.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use regraph::driver::{CaptureId, CaptureMode, GraphHandle, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{Block, Config, Engine, HistoryOptions, PoolConfig, PoolId};
use regraph::settings::{PlanChoice, Settings};
use regraph_sim::{Launch, SimConfig, SimDriver};

const MIB: u64 = 1 << 20;
/// How long the host waits for an event, where that is asked for.
const WAIT: Duration = Duration::from_millis(100);

/// The longest of a thread's calls since it was last asked, in nanoseconds.
#[derive(Default)]
struct Probe {
    longest: AtomicU64,
    begun: AtomicU64,
    done: AtomicU64,
}

impl Probe {
    fn time(&self, call: impl FnOnce()) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let start = Instant::now();
        call();
        let spent = start.elapsed().as_nanos() as u64;
        self.longest.fetch_max(spent, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_micros(20));
    }

    /// Waits for the calls under way, which count too.
    fn take(&self) -> u64 {
        let begun = self.begun.load(Ordering::SeqCst);
        while self.done.load(Ordering::SeqCst) < begun {
            thread::yield_now();
        }
        self.longest.swap(0, Ordering::SeqCst)
    }
}

/// A fresh engine for one run of a row.
struct Bench {
    device: Arc<SimDriver>,
    engine: Arc<Engine<Arc<SimDriver>>>,
    pool: PoolId,
    stream: StreamHandle,
    kept: Vec<Block>,
    capture: Option<(CaptureId, Option<GraphHandle>)>,
}

impl Bench {
    fn new(mib: u64, settings: Settings) -> Self {
        let support = MemorySupport::Mapped { granularity: 2 * MIB };
        let device = Arc::new(SimDriver::new(SimConfig { total_bytes: mib * MIB, support }));
        let config = Config::default().settings(settings).report_leaks(false);
        let engine = Arc::new(Engine::new(device.clone(), config));
        let pool = engine.create_pool(PoolConfig::default());
        let stream = device.create_stream().unwrap();
        Self { device, engine, pool, stream, kept: Vec::new(), capture: None }
    }

    fn large() -> Self {
        Self::new(100 << 10, Settings::default())
    }

    fn allocate(&mut self, bytes: u64) {
        self.kept.push(self.engine.allocate(self.pool, bytes, self.stream).unwrap());
    }

    fn launch(&self) {
        self.device.launch_kernel(self.stream, Launch::default()).unwrap();
    }

    fn free_all(&mut self) {
        self.kept.drain(..).for_each(|block| self.engine.free(block.id).unwrap());
    }

    /// Allocates, works and frees, with some 20 live at a time.
    fn run(&mut self, blocks: u64, unit: u64) {
        let mut live = VecDeque::new();
        for n in 0..blocks {
            let bytes = (1 + n % 37) * unit;
            live.push_back(self.engine.allocate(self.pool, bytes, self.stream).unwrap());
            self.launch();
            if live.len() > 20 {
                self.engine.free(live.pop_front().unwrap().id).unwrap();
            }
        }
        live.into_iter().for_each(|block| self.engine.free(block.id).unwrap());
    }

    fn begin(&mut self) {
        self.device.begin_capture(self.stream, CaptureMode::Relaxed).unwrap();
        let capture = self.engine.begin_capture(self.pool, self.stream).unwrap();
        self.capture = Some((capture, None));
    }

    /// A capture that has been ended in the driver alone.
    fn capture(&mut self, blocks: u64, unit: u64) {
        self.begin();
        self.run(blocks, unit);
        let graph = self.device.end_capture(self.stream).unwrap();
        self.capture.as_mut().unwrap().1 = Some(graph);
    }

    fn end(&mut self) {
        let (capture, graph) = self.capture.unwrap();
        self.engine.end_capture(capture, graph.unwrap()).unwrap();
    }

    /// A block of so many MiB that work uses, freed by another stream of this thread.
    fn busy(&mut self, mib: u64) {
        let other = self.device.create_stream().unwrap();
        let block = self.engine.allocate(self.pool, mib * MIB, other).unwrap();
        self.device.launch_kernel(other, Launch::default()).unwrap();
        self.engine.free(block.id).unwrap();
        self.device.before("cuEventSynchronize", || thread::sleep(WAIT));
    }

    /// Many live blocks, with a free range beside each.
    fn scattered(&mut self, blocks: usize) {
        (0..2 * blocks).for_each(|n| self.allocate(5_000 + n as u64 % 7 * 512));
        let (kept, free) = (0..2 * blocks).partition::<Vec<_>, _>(|n| n % 2 == 0);
        free.into_iter().for_each(|n| self.engine.free(self.kept[n].id).unwrap());
        self.kept = kept.into_iter().map(|n| self.kept[n]).collect();
    }

    /// Time of the call, and the longest of the two probes' calls beside it.
    fn measure(&mut self, call: fn(&mut Self)) -> [u64; 3] {
        let probes: Arc<[Probe; 2]> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let pool = self.engine.create_pool(PoolConfig::default());
        let threads = [0, 1].map(|which| {
            let (engine, device) = (self.engine.clone(), self.device.clone());
            let (probes, stop) = (probes.clone(), stop.clone());
            thread::spawn(move || {
                let stream = device.create_stream().unwrap();
                let pair = || {
                    let block = engine.allocate(pool, 512, stream).unwrap();
                    engine.free(block.id).unwrap();
                };
                while !stop.load(Ordering::SeqCst) {
                    match which {
                        0 => probes[0].time(|| _ = engine.memory_limit().unwrap()),
                        _ => probes[1].time(pair),
                    }
                }
            })
        });
        while probes.iter().any(|probe| probe.done.load(Ordering::SeqCst) < 3) {
            thread::yield_now();
        }
        probes.iter().for_each(|probe| _ = probe.take());
        let start = Instant::now();
        call(self);
        let spent = start.elapsed().as_nanos() as u64;
        let [lock, cached] = [0, 1].map(|which| probes[which].take());
        stop.store(true, Ordering::SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        [spent, lock, cached]
    }
}

fn with(mut b: Bench, prepare: fn(&mut Bench)) -> Bench {
    prepare(&mut b);
    b
}

fn learned() -> Bench {
    with(Bench::large(), |b| {
        b.engine.plans().learn().unwrap();
        b.run(4_000, 40_960);
    })
}

fn scattered() -> Bench {
    with(Bench::large(), |b| b.scattered(10_000))
}

fn pieces() -> Bench {
    with(Bench::large(), |b| (0..2_000).for_each(|_| b.allocate(2 * MIB)))
}

fn capturing() -> Bench {
    with(Bench::large(), |b| {
        b.begin();
        b.run(4_000, 40_960);
    })
}

fn captured() -> Bench {
    with(Bench::large(), |b| b.capture(4_000, 40_960))
}

fn planned(plan: PlanChoice) -> Bench {
    Bench::new(100 << 10, Settings::default().plan(plan))
}

type Row = (&'static str, fn() -> Bench, fn(&mut Bench));

const ROWS: &[Row] = &[
    ("nothing, for 20 ms", Bench::large, |_| thread::sleep(Duration::from_millis(20))),
    (
        "allocate, which waits 100 ms for memory",
        || with(Bench::new(64, Settings::default()), |b| b.busy(40)),
        |b| b.allocate(40 * MIB),
    ),
    (
        "empty_cache_waiting, 100 ms",
        || with(Bench::large(), |b| b.busy(40)),
        |b| _ = b.engine.host().empty_cache_waiting().unwrap(),
    ),
    ("learned, 4,000 blocks", learned, |b| _ = b.engine.plans().learned().unwrap()),
    (
        "first request of a capture, 4,000 blocks learned",
        || {
            with(learned(), |b| {
                b.engine.plans().learned().unwrap();
                b.begin();
            })
        },
        |b| b.allocate(40_960),
    ),
    (
        "end_capture, plan:auto, 4,000 blocks",
        || with(planned(PlanChoice::Auto), |b| b.capture(4_000, 40_960)),
        Bench::end,
    ),
    (
        "snapshot, 100,000 events",
        || {
            with(Bench::large(), |b| {
                b.engine.keep_history(&HistoryOptions::latest(100_000)).unwrap();
                b.run(60_000, 512);
            })
        },
        |b| _ = b.engine.snapshot().unwrap(),
    ),
    ("snapshot, 10,000 live blocks", scattered, |b| _ = b.engine.snapshot().unwrap()),
    ("statistics, 10,000 live blocks", scattered, |b| _ = b.engine.statistics().unwrap()),
    ("explain, 10,000 free ranges", scattered, |b| _ = b.engine.explain(b.pool, b.stream).unwrap()),
    ("leaks, 10,000 live blocks", scattered, |b| _ = b.engine.leaks().unwrap()),
    ("begin_capture, 10,000 live blocks", scattered, Bench::begin),
    ("free, 10,000 blocks one by one", scattered, Bench::free_all),
    (
        "empty_cache, 2,000 pieces",
        || with(pieces(), Bench::free_all),
        |b| _ = b.engine.empty_cache().unwrap(),
    ),
    ("suspend_discarding_all, 2,000 pieces", pieces, |b| {
        _ = b.engine.host().suspend_discarding_all(b.pool).unwrap()
    }),
    (
        "resume_pool, 2,000 pieces",
        || with(pieces(), |b| _ = b.engine.host().suspend_discarding_all(b.pool).unwrap()),
        |b| _ = b.engine.host().resume_pool(b.pool).unwrap(),
    ),
    (
        "checkpoint and restore, 10,000 live blocks",
        || with(scattered(), |b| b.device.complete_all()),
        |b| {
            let checkpoint = b.engine.host().checkpoint(b.pool).unwrap();
            b.engine.host().restore(b.pool, &checkpoint).unwrap();
        },
    ),
    ("journal, 4,000 blocks", capturing, |b| {
        _ = b.engine.host().journal(b.capture.unwrap().0).unwrap()
    }),
    ("layout_of, 4,000 blocks", capturing, |b| {
        _ = b.engine.plans().layout_of(b.capture.unwrap().0).unwrap()
    }),
    ("minimum_of, 4,000 blocks", capturing, |b| {
        _ = b.engine.plans().minimum_of(b.capture.unwrap().0).unwrap()
    }),
    ("end_capture, 4,000 blocks", captured, Bench::end),
    ("close_capture, 4,000 blocks", captured, |b| {
        let (capture, graph) = b.capture.unwrap();
        b.engine.close_capture(capture, graph.unwrap()).unwrap();
    }),
    (
        "preview_plan, plan:exact, 1,000 blocks of 1 to 37 MiB",
        || {
            with(planned(PlanChoice::Exact), |b| {
                b.begin();
                b.run(1_000, MIB);
            })
        },
        |b| _ = b.engine.plans().preview_plan(b.capture.unwrap().0).unwrap(),
    ),
    (
        "end_capture, plan:exact, 1,000 blocks of 1 to 37 MiB",
        || with(planned(PlanChoice::Exact), |b| b.capture(1_000, MIB)),
        Bench::end,
    ),
];

fn main() {
    // What `cargo test` passes, and `cargo bench` does not.
    let times = if std::env::args().any(|argument| argument == "--bench") { 7 } else { 1 };
    println!("{:54} {:>10} {:>10} {:>10}", "call, us", "takes", "lock", "cached");
    for (name, prepare, call) in ROWS {
        let runs: Vec<[u64; 3]> = (0..times).map(|_| prepare().measure(*call)).collect();
        let median = |which: usize| {
            let mut sorted: Vec<u64> = runs.iter().map(|run| run[which]).collect();
            sorted.sort_unstable();
            sorted[sorted.len() / 2] as f64 / 1e3
        };
        let [spent, lock, cached] = [0, 1, 2].map(median);
        println!("{name:54} {spent:10.1} {lock:10.1} {cached:10.1}");
    }
}
