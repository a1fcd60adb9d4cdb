//! Regions that sleep and wake in any order: what their blocks held is there again, and graphs replay.

use std::sync::Arc;

use crate::device::{launch, Device};
use regraph::driver::{CaptureMode, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool, PoolRefusal};
use regraph::plan::Options;
use regraph::regions::{Backup, Regions, Tags};
use regraph_tagged::Tagged;

const MIB: u64 = 1 << 20;
const TAGS: [(&str, Backup); 5] = [
    ("weights", Backup::Host),
    ("cache", Backup::None),
    ("graphs", Backup::Host),
    ("resident", Backup::Device),
    (FILED, Backup::Host),
];

/// The region that is kept in files, in place of what the table says.
const FILED: &str = "filed";

/// In a folder for files of a short life.
fn in_files() -> Backup {
    Backup::File(std::env::temp_dir().into())
}

/// A region's pools: one without a plan, and one with.
const KINDS: usize = 2;

/// A block with what it holds, if that is known.
struct Kept<P: Device> {
    /// The number of its pool.
    pool: usize,
    block: Memory<Arc<P>>,
    tag: Option<u64>,
}

impl<P: Device> Kept<P> {
    fn tagged(&self) -> Option<Tagged> {
        Some(range(&self.block, self.tag?))
    }
}

/// All of a block, with what it holds or is to hold.
fn range<P: Device>(block: &Memory<Arc<P>>, tag: u64) -> Tagged {
    Tagged { address: block.address(), bytes: block.bytes(), tag }
}

/// A graph that reads an input and writes an output, by their numbers among all blocks that are kept.
struct Step<P: Device> {
    graph: Graph<Arc<P>>,
    input: Kept<P>,
    input_tag: u64,
    output: Kept<P>,
    output_tag: u64,
}

struct Host<P: Device> {
    driver: Arc<P>,
    engine: Arc<Engine<Arc<P>>>,
    regions: Regions<Arc<P>>,
    /// With the number of the region, [`KINDS`] of each.
    pools: Vec<(usize, Pool<Arc<P>>)>,
    streams: [StreamHandle; 2],
    blocks: Vec<Kept<P>>,
    steps: Vec<Step<P>>,
    next_tag: u64,
    random: u64,
}

impl<P: Device> Host<P> {
    fn new(driver: &Arc<P>, seed: u64) -> Self {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Regions::new(&engine);
        let mut pools = Vec::new();
        for (number, (tag, backup)) in TAGS.into_iter().enumerate() {
            regions.set_backup(tag, backup);
            for config in [PoolConfig::default(), PoolConfig::default().plan(Options::default())] {
                pools.push((number, Pool::new(&engine, config.tag(tag))));
            }
        }
        regions.set_backup(FILED, in_files());
        Self {
            driver: driver.clone(),
            engine,
            regions,
            pools,
            streams: std::array::from_fn(|_| driver.create_stream().unwrap()),
            blocks: Vec::new(),
            steps: Vec::new(),
            next_tag: 0,
            random: seed * 2 + 1,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1_000;
        self.next_tag
    }

    fn is_asleep(&self, pool: usize) -> bool {
        self.regions.is_asleep(TAGS[self.pools[pool].0].0).unwrap()
    }

    /// A block that holds a tag of its own.
    fn block(&mut self, pool: usize, bytes: u64) -> Kept<P> {
        let block = self.pools[pool].1.allocate(bytes, self.streams[0]).unwrap();
        let tag = self.tag();
        launch(&*self.driver, self.streams[0], (&[], &[range(&block, tag)]), 1_000);
        Kept { pool, block, tag: Some(tag) }
    }

    /// A graph with `count` temporary blocks in turns on two streams.
    fn step(&mut self, pool: usize, bytes: u64, count: u64) -> Step<P> {
        let input = self.block(pool, bytes);
        let output_tag = self.tag();
        let ([first, second], driver) = (self.streams, &*self.driver);
        let mut before = input.tagged().unwrap();
        let input_tag = before.tag;
        input.block.record_stream(second).unwrap();
        let body = |capture: &Capture<Arc<P>>| {
            driver.wait(second, first)?;
            let mut last = None;
            for step in 0..count {
                let (stream, other) = if step % 2 == 0 { (first, second) } else { (second, first) };
                driver.wait(stream, other)?;
                let block = capture.allocate(bytes + step * 65_536, stream)?;
                let after = range(&block, output_tag + 1 + step);
                launch(driver, stream, (&[before], &[after]), 1_000);
                if let Some(last) = last.replace(block) {
                    last.record_stream(stream)?;
                }
                before = after;
            }
            driver.wait(first, second)?;
            let output = capture.allocate(bytes, first)?;
            launch(driver, first, (&[before], &[range(&output, output_tag)]), 1_000);
            if let Some(last) = last {
                last.record_stream(first)?;
            }
            Ok::<_, Error>(output)
        };
        let mode = CaptureMode::ThreadLocal;
        let captured = self.engine.capture(first, &self.pools[pool].1, mode, body);
        let (graph, output) = captured.unwrap();
        let output = Kept { pool, block: output, tag: None };
        Step { graph, input, input_tag, output, output_tag }
    }

    fn launch(&mut self, number: usize) {
        let step = &mut self.steps[number];
        if step.input.tag.is_none() {
            let input = range(&step.input.block, step.input_tag);
            self.pools[step.input.pool].1.follow(self.streams[0]).unwrap();
            launch(&*self.driver, self.streams[0], (&[], &[input]), 1_000);
            step.input.tag = Some(step.input_tag);
        }
        step.graph.launch(self.streams[0]).unwrap();
        step.output.tag = Some(step.output_tag);
        let (pool, launched) = (step.input.pool, step.output_tag);
        // Without a plan a graph may overwrite the outputs of those that were captured later.
        let planned = pool % KINDS != 0;
        for step in &mut self.steps {
            if !planned && step.output.pool == pool && step.output_tag > launched {
                step.output.tag = None;
            }
        }
    }

    /// All blocks, with those of graphs.
    fn every(&mut self) -> impl Iterator<Item = &mut Kept<P>> {
        let steps = self.steps.iter_mut().flat_map(|step| [&mut step.input, &mut step.output]);
        self.blocks.iter_mut().chain(steps)
    }

    /// Checks what all blocks hold whose regions are awake.
    fn check(&mut self) {
        let awake: Vec<bool> = (0..self.pools.len()).map(|pool| !self.is_asleep(pool)).collect();
        let known: Vec<Tagged> =
            self.every().filter(|kept| awake[kept.pool]).filter_map(|kept| kept.tagged()).collect();
        launch(&*self.driver, self.streams[0], (&known, &[]), 0);
        self.driver.synchronize().unwrap();
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
    }

    /// Some of the tags, or all.
    fn some(&mut self) -> Option<Vec<&'static str>> {
        let chosen = self.below(1 << TAGS.len());
        let tags = TAGS.into_iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1);
        (chosen != 0).then(|| tags.map(|(_, (tag, _))| tag).collect())
    }

    fn sleep(&mut self) {
        let tags = self.some();
        let before: Vec<bool> = (0..self.pools.len()).map(|pool| self.is_asleep(pool)).collect();
        self.regions.sleep(tags.as_deref()).unwrap();
        let pools: Vec<usize> = self.pools.iter().map(|&(region, _)| region).collect();
        let wanted =
            |region: usize| tags.as_ref().is_none_or(|tags| tags.contains(&TAGS[region].0));
        for kept in self.every() {
            let region = pools[kept.pool];
            if wanted(region) && TAGS[region].1 == Backup::None && !before[kept.pool] {
                kept.tag = None;
            }
        }
        for region in self.regions.report() {
            let asleep = region.backup != Backup::Device
                && tags.as_ref().is_none_or(|tags| tags.contains(&&*region.tag));
            assert!(!asleep || region.awake_bytes == 0, "{region:?}");
            assert!(region.backup == Backup::Host || region.host_bytes == 0, "{region:?}");
            assert!(*region.tag == *FILED || region.file_bytes == 0, "{region:?}");
        }
    }

    fn round(&mut self) {
        let pool = self.below(self.pools.len());
        let bytes = 512 * (1 + self.below(12_000) as u64);
        match self.below(10) {
            0 | 1 if self.is_asleep(pool) => {
                let refused = self.pools[pool].1.allocate(bytes, self.streams[0]);
                if self.pools[pool].1.is_suspended() {
                    let text = refused.unwrap_err().to_string();
                    assert!(text.contains(TAGS[self.pools[pool].0].0), "{text}");
                }
            }
            0 | 1 => {
                let block = self.block(pool, bytes);
                self.blocks.push(block);
            }
            2 if !self.blocks.is_empty() => {
                let number = self.below(self.blocks.len());
                self.blocks.swap_remove(number);
            }
            3 if self.steps.len() < 6 && !self.is_asleep(pool) => {
                let count = 1 + self.below(5) as u64;
                let step = self.step(pool, bytes, count);
                self.steps.push(step);
            }
            4 | 5 if !self.steps.is_empty() => {
                let number = self.below(self.steps.len());
                if self.pools[self.steps[number].input.pool].1.is_suspended() {
                    let refused = self.steps[number].graph.launch(self.streams[0]).unwrap_err();
                    assert!(
                        matches!(refused, Error::Pool { why: PoolRefusal::Suspended { .. }, .. }),
                        "{refused}"
                    );
                } else {
                    self.launch(number);
                }
            }
            6 if !self.steps.is_empty() => {
                let number = self.below(self.steps.len());
                self.steps.swap_remove(number);
            }
            7 => self.sleep(),
            8 => {
                let tags = self.some();
                self.regions.wake(tags.as_deref()).unwrap();
            }
            _ => self.check(),
        }
    }

    fn close(mut self) {
        self.regions.wake(Tags::All).unwrap();
        self.check();
        drop((std::mem::take(&mut self.blocks), std::mem::take(&mut self.steps)));
        for (_, pool) in std::mem::take(&mut self.pools) {
            pool.synchronize().unwrap();
        }
        self.driver.synchronize().unwrap();
        self.engine.empty_cache().unwrap();
        assert_eq!(self.engine.statistics().unwrap().all.reserved_bytes.current, 0);
    }
}

/// Blocks and graphs in regions that sleep and wake at random.
fn rounds<P: Device>(driver: &Arc<P>, rounds: usize) {
    for seed in 1..=3 {
        let mut host = Host::new(driver, seed);
        for _ in 0..rounds {
            host.round();
        }
        host.close();
    }
}

#[test]
fn a_thousand_random_rounds_keep_what_blocks_hold() {
    let driver = crate::device::simulated();
    rounds(&driver, 1_000);
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn random_rounds_keep_what_blocks_hold_on_a_gpu() {
    rounds(&crate::device::gpu::open().driver, 300);
}

fn thousand_sleeps_grow_nothing<P: Device>(driver: &Arc<P>) {
    let mut host = Host::new(driver, 7);
    let weights = host.block(0, 48 * MIB);
    host.blocks.push(weights);
    let step = host.step(2 * KINDS, 3 * MIB, 4);
    host.steps.push(step);
    let mut held = Vec::new();
    for _ in 0..1_000 {
        host.launch(0);
        assert!(host.regions.sleep(Tags::All).unwrap() > 0);
        let free = driver.memory_info().unwrap().free;
        held.push((host.regions.host_bytes(), free));
        host.regions.wake(Tags::All).unwrap();
    }
    host.check();
    let ((first, _), (last, _)) = (held[1], held[999]);
    assert_eq!(first, last, "host memory");
    // Other processes may use the device.
    let free: Vec<u64> = held.iter().map(|&(_, free)| free).collect();
    let (early, late) = (free[1..100].iter().max(), free[900..].iter().max());
    assert!(late.unwrap() + 32 * MIB >= *early.unwrap(), "device memory: {early:?}, {late:?}");
    assert!(host.regions.free_host().unwrap() > 0);
    assert_eq!(host.regions.host_bytes(), 0);
    host.close();
}

twins! { thousand_sleeps_grow_nothing }

/// A graph reads an output of another one that the host has freed: that is there after waking too.
fn outputs_that_were_freed_are_kept<P: Device>(driver: &Arc<P>) {
    for plan in [None, Some(Options::default())] {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Regions::new(&engine);
        let mut config = PoolConfig::default().tag("graphs");
        if let Some(plan) = plan {
            config = config.plan(plan);
        }
        let pool = Pool::new(&engine, config);
        let stream = driver.create_stream().unwrap();
        let mode = CaptureMode::ThreadLocal;
        let writes = |capture: &Capture<Arc<P>>| {
            let output = capture.allocate(5 * MIB, stream)?;
            launch(&**driver, stream, (&[], &[range(&output, 5)]), 0);
            Ok::<_, Error>(output)
        };
        let (writer, first) = engine.capture(stream, &pool, mode, writes).unwrap();
        let place = range(&first, 5);
        let reads = |capture: &Capture<Arc<P>>| {
            let output = capture.allocate(3 * MIB, stream)?;
            launch(&**driver, stream, (&[place], &[range(&output, 6)]), 0);
            Ok::<_, Error>(output)
        };
        let (reader, second) = engine.capture(stream, &pool, mode, reads).unwrap();
        writer.launch(stream).unwrap();
        drop(first);
        reader.launch(stream).unwrap();
        for _ in 0..2 {
            assert!(regions.sleep(Tags::All).unwrap() >= 8 * MIB);
            assert!(regions.report().iter().any(|region| region.host_bytes >= 8 * MIB));
            regions.wake(Tags::All).unwrap();
            reader.launch(stream).unwrap();
            launch(&**driver, stream, (&[range(&second, 6)], &[]), 0);
            driver.synchronize().unwrap();
            assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        }
        drop((writer, reader, second));
        pool.synchronize().unwrap();
    }
}

twins! { outputs_that_were_freed_are_kept }

/// What sleeping and waking take, with and without contents; prints a table.
///
/// ```text
/// cargo test --release --test gpu costs_of_sleep -- --ignored --nocapture
/// ```
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn costs_of_sleep() {
    use std::time::Instant;

    use regraph::driver::HostApi;

    const GIB: u64 = 1 << 30;
    let gpu = crate::device::gpu::open();
    let driver = &gpu.driver;
    println!("backup, blocks of MiB, GiB: ms to sleep at first, again, ms to wake, GB/s");
    let in_memory = Backup::File(std::path::Path::new("/dev/shm").into());
    for (backup, each, all) in [
        (Backup::Host, 2 * MIB, 8 * GIB),
        (Backup::Host, 64 * MIB, 16 * GIB),
        (in_files(), 2 * MIB, 8 * GIB),
        (in_files(), 64 * MIB, 8 * GIB),
        (in_memory, 64 * MIB, 8 * GIB),
        (Backup::None, 2 * MIB, 8 * GIB),
        (Backup::None, 64 * MIB, 8 * GIB),
    ] {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Regions::new(&engine);
        regions.set_backup("weights", backup.clone());
        let pool = Pool::new(&engine, PoolConfig::default().tag("weights"));
        let stream = driver.create_stream().unwrap();
        let blocks: Vec<_> =
            (0..all / each).map(|_| pool.allocate(each, stream).unwrap()).collect();
        let mut times = Vec::new();
        for _ in 0..3 {
            let begun = Instant::now();
            assert_eq!(regions.sleep(Tags::All).unwrap(), all);
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            let begun = Instant::now();
            assert_eq!(regions.wake(Tags::All).unwrap(), all);
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let (sleep, wake) = (times[2].min(times[4]), times[1].min(times[3]).min(times[5]));
        println!(
            "{backup:?}, {}, {}: {:.0}, {sleep:.1}, {wake:.1}, {:.1}",
            each / MIB,
            all / GIB,
            times[0],
            all as f64 / wake / 1e6,
        );
        drop((blocks, pool));
        engine.empty_cache().unwrap();
    }
}

/// A thread allocates and frees, cached and not, while a large region goes to sleep for the first time, again, and wakes:
/// what the region holds is there again. Prints a table of how long the thread waited at the most; the variable `REGRAPH_GIB`
/// says how much sleeps, half of what is free without it.
///
/// ```text
/// cargo test --release --test gpu a_thread_allocates_while_a_large_region -- --ignored --nocapture
/// ```
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_thread_allocates_while_a_large_region_sleeps_and_wakes() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use regraph::driver::{Driver, HostApi};
    use regraph_tagged::Program;

    const EACH: u64 = 256 * MIB;
    let gpu = crate::device::gpu::open();
    let driver = &gpu.driver;
    let gib = std::env::var("REGRAPH_GIB").ok().and_then(|gib| gib.parse().ok());
    let all = gib.unwrap_or(driver.memory_info().unwrap().free >> 31).max(1) << 30;
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let regions = Regions::new(&engine);
    let pool = Pool::new(&engine, PoolConfig::default().tag("weights"));
    let stream = driver.create_stream().unwrap();
    let blocks: Vec<_> = (1..=all / EACH)
        .map(|tag| {
            let block = pool.allocate(EACH, stream).unwrap();
            launch(&**driver, stream, (&[], &[range(&block, 1_000 * tag)]), 0);
            (block, 1_000 * tag)
        })
        .collect();
    driver.synchronize().unwrap();
    println!(
        "{} GiB: ms, GiB/s, longest ms of a request that is cached, and of one that is not",
        all >> 30
    );
    // While a call runs, another thread's longest requests.
    let beside = |name: &str, call: &dyn Fn()| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let (pool, mine) =
                    (Pool::new(&engine, PoolConfig::default()), driver.create_stream().unwrap());
                let mut longest = [Duration::ZERO; 2];
                let mut size = 0;
                while !stop.load(Ordering::Relaxed) {
                    size = size % 64 + 2;
                    for (which, bytes) in [MIB, size * MIB].into_iter().enumerate() {
                        let begun = Instant::now();
                        drop(pool.allocate(bytes, mine).unwrap());
                        longest[which] = longest[which].max(begun.elapsed());
                    }
                    regions.report();
                }
                drop(pool);
                engine.retire_stream(mine).unwrap();
                longest.map(|time| time.as_secs_f64() * 1e3)
            });
            let begun = Instant::now();
            call();
            let took = begun.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            let [cached, fresh] = other.join().unwrap();
            let speed = (all >> 30) as f64 / took;
            println!("{name}: {:.0}, {speed:.1}, {cached:.2}, {fresh:.2}", took * 1e3);
        });
    };
    for name in ["first sleep", "sleep", "sleep"] {
        beside(name, &|| assert_eq!(regions.sleep(Tags::All).unwrap(), all));
        beside("wake", &|| assert_eq!(regions.wake(Tags::All).unwrap(), all));
        let held: Vec<Tagged> = blocks.iter().map(|(block, tag)| range(block, *tag)).collect();
        launch(&**driver, stream, (&held, &[]), 0);
        driver.synchronize().unwrap();
        assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        let region = &regions.report()[0];
        let slept = region.slept.unwrap();
        assert_eq!((slept.copied_bytes, slept.dropped_bytes), (all, 0));
    }
    let begun = Instant::now();
    assert_eq!(regions.free_host().unwrap(), all);
    println!("free_host: {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
}

/// What waking 35 graphs of one pool takes without contents, and what stays on the device while they
/// sleep; prints a table.
///
/// ```text
/// cargo test --release --test gpu costs_of_waking_graphs -- --ignored --nocapture
/// ```
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn costs_of_waking_graphs() {
    use std::time::Instant;

    use regraph::driver::{Driver, HostApi};
    use regraph_tagged::Program;

    let gpu = crate::device::gpu::open();
    let driver = &gpu.driver;
    println!("plan: MiB awake, pieces; ms to sleep, to wake: least, most; MiB asleep, executables included, at first, at last");
    for plan in [None, Some(Options::default())] {
        let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
        let regions = Regions::new(&engine);
        regions.set_backup("graphs", Backup::None);
        let mut config = PoolConfig::default().tag("graphs");
        if let Some(plan) = &plan {
            config = config.plan(plan.clone());
        }
        let pool = Pool::new(&engine, config);
        let stream = driver.create_stream().unwrap();
        let free = || driver.memory_info().unwrap().free;
        let base = free();
        let mut graphs = Vec::new();
        for size in 1..=35 {
            let body = |capture: &Capture<_>| {
                let live: Vec<_> = (0..8)
                    .map(|_| capture.allocate(size * 29 * MIB, stream))
                    .collect::<Result<_, _>>()?;
                for block in &live {
                    launch(&**driver, stream, (&[], &[range(block, size)]), 0);
                }
                Ok::<_, Error>(())
            };
            let mode = CaptureMode::ThreadLocal;
            graphs.push(engine.capture(stream, &pool, mode, body).unwrap().0);
        }
        graphs[34].launch(stream).unwrap();
        driver.synchronize().unwrap();
        let (mut sleeps, mut wakes, mut held) = (Vec::new(), Vec::new(), Vec::new());
        let (mut awake, pieces) = (0, engine.statistics().unwrap().all.segment.current);
        for round in 0..200 {
            let begun = Instant::now();
            awake = regions.sleep(Tags::All).unwrap();
            sleeps.push(begun.elapsed().as_secs_f64() * 1e3);
            held.push(base.saturating_sub(free()) / MIB);
            let begun = Instant::now();
            assert_eq!(regions.wake(Tags::All).unwrap(), awake);
            wakes.push(begun.elapsed().as_secs_f64() * 1e3);
            graphs[round % 35].launch(stream).unwrap();
        }
        driver.synchronize().unwrap();
        assert_eq!(driver.take_wrong_tags().unwrap(), 0);
        let ends = |times: &[f64]| {
            let least = times.iter().copied().fold(f64::MAX, f64::min);
            format!("{least:.1}, {:.1}", times.iter().copied().fold(0.0, f64::max))
        };
        println!(
            "{}: {}, {pieces}; {}; {}; {}, {}",
            if plan.is_some() { "exact" } else { "none" },
            awake / MIB,
            ends(&sleeps),
            ends(&wakes),
            held[0],
            held[199],
        );
        drop((graphs, pool));
        engine.empty_cache().unwrap();
    }
}
