//! Allocating and freeing outside captures: the time of a pair, what figures and history cost, and
//! several threads on as many streams.
//!
//! The variants take turns, and each figure is the median of its turns, so that ratios hold on a
//! noisy machine. On the simulated driver, or with `REGRAPH_BENCH_CUDA=1` on the first GPU.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use regraph::driver::{HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig, PoolId};
use regraph::settings::Settings;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::Program;

/// Turns of each variant.
const TURNS: usize = 15;

/// Pairs in a turn, over all threads.
const PAIRS: usize = 400_000;

/// What a step asks for, in bytes.
#[derive(Clone, Copy)]
enum Sizes {
    /// One size.
    One,
    /// Sixteen sizes in turn, four blocks of each live at any time.
    Sixteen,
}

/// An engine to be measured.
struct Subject<P: Program> {
    engine: Engine<Arc<P>>,
    pool: PoolId,
    streams: Vec<StreamHandle>,
    sizes: Sizes,
    /// Nanoseconds a pair.
    turns: Vec<f64>,
}

impl<P: Program> Subject<P> {
    fn new(driver: &Arc<P>, config: Config, threads: usize, sizes: Sizes) -> Self {
        let engine = Engine::new(Arc::clone(driver), config.report_leaks(false));
        let pool = engine.create_pool(PoolConfig::default());
        let stream = |_| driver.create_stream().expect("streams are to be had");
        let streams = (0..threads).map(stream).collect();
        Self { engine, pool, streams, sizes, turns: Vec::new() }
    }

    /// Runs one turn and notes the time of a pair: of the wall clock, whatever the threads.
    fn turn(&mut self) {
        let pairs = PAIRS / self.streams.len();
        let begin = Instant::now();
        let (first, others) = self.streams.split_first().expect("there is a stream");
        std::thread::scope(|scope| {
            for &stream in others {
                let this = &*self;
                scope.spawn(move || this.pairs(stream, pairs));
            }
            self.pairs(*first, pairs);
        });
        let pair = begin.elapsed().as_nanos() as f64 / (pairs * self.streams.len()) as f64;
        self.turns.push(pair);
    }

    fn pairs(&self, stream: StreamHandle, pairs: usize) {
        let allocate = |bytes| {
            let block = self.engine.allocate(self.pool, bytes, stream);
            black_box(block.expect("there is memory")).id
        };
        let free = |block| self.engine.free(block).expect("the block is live");
        match self.sizes {
            Sizes::One => (0..pairs).for_each(|_| free(allocate(32 << 10))),
            Sizes::Sixteen => {
                const LIVE: usize = 64;
                let bytes = |step: usize| 70_000 * (1 + step as u64 % 16);
                let mut live: Vec<_> = (0..LIVE).map(|step| allocate(bytes(step))).collect();
                for step in 0..pairs {
                    let slot = &mut live[step % LIVE];
                    free(*slot);
                    *slot = allocate(bytes(step));
                }
                live.into_iter().for_each(free);
            }
        }
    }

    fn median(&mut self) -> f64 {
        self.turns.sort_by(f64::total_cmp);
        self.turns[self.turns.len() / 2]
    }
}

fn run<P: Program>(driver: &Arc<P>) {
    let history = || {
        let settings = Settings::parse("history:100000").expect("the text is in order");
        Config::default().settings(settings)
    };
    let off = || Config::default().statistics(false);
    let mut rows: Vec<(&str, Subject<P>, usize)> = Vec::new();
    for (name, sizes) in [("one size", Sizes::One), ("sixteen sizes", Sizes::Sixteen)] {
        let base = rows.len();
        let mut add = |name, config| {
            rows.push((name, Subject::new(driver, config, 1, sizes), base));
        };
        add(name, off());
        add("  figures", Config::default());
        add("  figures and history", history());
    }
    let base = rows.len();
    for (threads, name) in [(1, "1 thread"), (2, "2 threads"), (4, "4 threads"), (8, "8 threads")] {
        let subject = Subject::new(driver, Config::default(), threads, Sizes::One);
        rows.push((name, subject, base));
    }
    for _ in 0..TURNS {
        rows.iter_mut().for_each(|(_, subject, _)| subject.turn());
    }
    let medians: Vec<f64> = rows.iter_mut().map(|(_, subject, _)| subject.median()).collect();
    println!("{:<24} {:>10} {:>8}", "allocate and free", "ns", "ratio");
    for ((name, _, base), median) in rows.iter().zip(&medians) {
        println!("{name:<24} {median:>10.1} {:>8.2}", median / medians[*base]);
    }
}

fn main() {
    // `cargo test` runs benches too, with nothing to measure.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    #[cfg(feature = "cuda")]
    if std::env::var_os("REGRAPH_BENCH_CUDA").is_some() {
        let driver = regraph_tagged::CudaProgram::new(0).expect("there is a GPU");
        return run(&Arc::new(driver));
    }
    run(&Arc::new(SimDriver::new(SimConfig::default())));
}
