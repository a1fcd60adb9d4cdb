//! Allocating and freeing outside captures: the time of a pair, what the history costs, and
//! several threads on as many streams.
//!
//! The variants take turns, and each figure is the median of its turns, so that ratios hold on a
//! noisy machine. On the simulated driver, or with `REGRAPH_BENCH_CUDA=1` on the first GPU.
//!
//! `--count SIZES PAIRS [SETTINGS]` makes pairs of one kind once, on the simulated driver, set apart for a
//! profiler, and prints how many there were: `benches/instructions` counts their instructions.

#[allow(dead_code, reason = "shared with other benches")]
mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use common::meter::counted;
use regraph::driver::{HostApi, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig, PoolId};
use regraph::settings::Settings;
use regraph_plan::random::Random;
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
    /// 512 B to 32 MiB, small ones as often as large ones, hardly ever the same twice.
    Mixed,
    /// 20 to 64 MiB, hardly ever the same twice.
    Large,
}

impl Sizes {
    const ALL: [(&'static str, Self); 4] = [
        ("one size", Self::One),
        ("sixteen sizes", Self::Sixteen),
        ("512 B to 32 MiB", Self::Mixed),
        ("20 to 64 MiB", Self::Large),
    ];

    /// How many blocks are live at any time.
    fn live(self) -> usize {
        match self {
            Self::One => 1,
            Self::Sixteen | Self::Mixed => 64,
            Self::Large => 16,
        }
    }

    /// The sizes that are asked for in turn, in bytes.
    fn bytes(self) -> Vec<u64> {
        let mut random = Random::new(1);
        let mut between = |low: f64, high: f64| {
            (0..4096)
                .map(|_| low * (high / low).powf(random.fraction()))
                .map(|it| it as u64)
                .collect()
        };
        match self {
            Self::One => vec![32 << 10],
            Self::Sixteen => (1..=16).map(|step| 70_000 * step).collect(),
            Self::Mixed => between(512.0, (32_u64 << 20) as f64),
            Self::Large => between((20_u64 << 20) as f64, (64_u64 << 20) as f64),
        }
    }
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

    /// Runs one turn and notes the time of a pair by the wall clock, for any number of threads.
    fn turn(&mut self) {
        let pairs = PAIRS / self.streams.len();
        let begin = Instant::now();
        let (first, others) = self.streams.split_first().expect("there is a stream");
        std::thread::scope(|scope| {
            for &stream in others {
                let this = &*self;
                scope.spawn(move || this.pairs(stream, pairs, |pair| pair()));
            }
            self.pairs(*first, pairs, |pair| pair());
        });
        let pair = begin.elapsed().as_nanos() as f64 / (pairs * self.streams.len()) as f64;
        self.turns.push(pair);
    }

    /// Frees a block and allocates one, so often, each pair within `each`.
    fn pairs(&self, stream: StreamHandle, pairs: usize, each: impl Fn(&mut dyn FnMut())) {
        let allocate = |bytes| {
            let block = self.engine.allocate(self.pool, bytes, stream);
            black_box(block.expect("there is memory")).id
        };
        let free = |block| self.engine.free(block).expect("the block is live");
        let (bytes, live) = (self.sizes.bytes(), self.sizes.live());
        let mut sizes = bytes.iter().copied().cycle();
        let mut next = move || sizes.next().expect("there are sizes");
        let mut live: Vec<_> = (0..live).map(|_| allocate(next())).collect();
        for step in 0..pairs {
            let row = step % live.len();
            let slot = &mut live[row];
            let bytes = next();
            each(&mut || {
                free(*slot);
                *slot = allocate(bytes);
            });
        }
        live.into_iter().for_each(free);
    }

    fn median(&mut self) -> f64 {
        self.turns.sort_by(f64::total_cmp);
        self.turns[self.turns.len() / 2]
    }
}

fn with_settings(text: &str) -> Config {
    Config::default().settings(Settings::parse(text).expect("the text is in order"))
}

fn run<P: Program>(driver: &Arc<P>) {
    let mut rows: Vec<(&str, Subject<P>, usize)> = Vec::new();
    for (name, sizes) in Sizes::ALL {
        let base = rows.len();
        let mut add = |name, config| {
            rows.push((name, Subject::new(driver, config, 1, sizes), base));
        };
        add(name, Config::default());
        add("  and history", with_settings("history:100000"));
        add("  and learning", with_settings("plan:auto"));
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
    // `cargo test --benches` runs it, with nothing to measure.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let simulated = || Arc::new(SimDriver::new(SimConfig::default()));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, sizes, pairs, settings @ ..] = &arguments[..] {
        if flag == "--count" {
            let row = sizes.parse().ok().and_then(|row: usize| Sizes::ALL.get(row));
            let &(_, sizes) = row.expect("the number of a row of sizes");
            let pairs = pairs.parse().expect("a number of pairs");
            // Cargo's own flags come last.
            let text = settings.iter().find(|text| !text.starts_with("--"));
            let config = with_settings(text.map_or("", |text| text));
            let subject = Subject::new(&simulated(), config, 1, sizes);
            subject.pairs(subject.streams[0], pairs, |pair| counted(pair));
            println!("{pairs}");
            return;
        }
    }
    if std::env::var_os("REGRAPH_BENCH_CUDA").is_some() {
        let driver = regraph_tagged::CudaProgram::new(0).expect("there is a GPU");
        return run(&Arc::new(driver));
    }
    run(&simulated());
}
