//! Many threads on one engine: no block is handed out over a live one, no work meets memory that
//! is not its own, and the figures are exact in the end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use regraph::driver::{CaptureMode, MemorySupport, StreamHandle};
use regraph::engine::{Block, Config, Engine, Error, PoolConfig, PoolId};
use regraph::settings::Settings;
use regraph_sim::{SimConfig, SimDriver};

use super::{launch, tagged, Device, MIB};

const WORKERS: usize = 6;
const STEPS: usize = 400;
/// How long a kernel takes, in nanoseconds.
const DELAY: u32 = 2_000;

/// Live blocks by address, with their ends.
#[derive(Default)]
struct Live(Mutex<BTreeMap<u64, u64>>);

impl Live {
    fn enter(&self, address: u64, bytes: u64) {
        let mut live = self.0.lock().unwrap();
        let below = live.range(..address + bytes).next_back();
        let apart = below.is_none_or(|(_, &end)| end <= address);
        assert!(apart, "{address:#x} was handed out over a live block");
        live.insert(address, address + bytes);
    }

    fn leave(&self, address: u64) {
        self.0.lock().unwrap().remove(&address).unwrap();
    }
}

/// A block that one thread allocated and another frees.
struct Passed {
    block: Block,
    tag: u64,
    owner: StreamHandle,
}

struct Stage<P: Device> {
    driver: Arc<P>,
    engine: Engine<Arc<P>>,
    pools: [PoolId; 2],
    live: Live,
    tags: AtomicU64,
    over: AtomicBool,
}

impl<P: Device> Stage<P> {
    /// A block that holds its own tag once its stream's work has run, unless memory is short.
    fn allocate(&self, pool: usize, bytes: u64, stream: StreamHandle) -> Option<(Block, u64)> {
        let block = match self.engine.allocate(self.pools[pool], bytes, stream) {
            Err(Error::OutOfMemory(_)) => return None,
            block => block.unwrap(),
        };
        self.live.enter(block.address, block.bytes);
        let tag = self.tags.fetch_add(1, Ordering::Relaxed) + 1;
        launch(&*self.driver, stream, (&[], &[tagged(block, tag)]), DELAY);
        Some((block, tag))
    }

    fn read(&self, stream: StreamHandle, block: &Block, tag: u64) {
        launch(&*self.driver, stream, (&[tagged(*block, tag)], &[]), DELAY);
    }

    fn free(&self, block: &Block) {
        self.live.leave(block.address);
        self.engine.free(block.id).unwrap();
    }

    /// Works on a stream of its own, and on blocks that its neighbour passes on.
    fn work(
        &self,
        (stream, seed): (StreamHandle, u64),
        passed: &Sender<Passed>,
        taken: &Receiver<Passed>,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut mine: Vec<(Block, u64)> = Vec::new();
        for step in 0..STEPS {
            let pool = random.usize(..2);
            let bytes = [512, 700, 4096, 64 << 10, 2 * MIB, 3 * MIB][random.usize(..6)];
            mine.extend(self.allocate(pool, bytes, stream));
            if mine.len() > 8 || !mine.is_empty() && random.usize(..2) == 0 {
                let (block, tag) = mine.swap_remove(random.usize(..mine.len()));
                self.read(stream, &block, tag);
                if random.usize(..4) == 0 {
                    passed.send(Passed { block, tag, owner: stream }).unwrap();
                } else {
                    self.free(&block);
                }
            }
            for Passed { block, tag, owner } in taken.try_iter() {
                self.driver.wait(stream, owner).unwrap();
                self.engine.record_stream(block.id, stream).unwrap();
                self.read(stream, &block, tag);
                self.free(&block);
            }
            if step % 16 == 0 {
                self.driver.progress(stream);
            }
        }
        for (block, tag) in mine {
            self.read(stream, &block, tag);
            self.free(&block);
        }
    }

    /// Captures again and again, in every mode, until the others are done.
    fn capture(&self, stream: StreamHandle) {
        let done = self.driver.create_event().unwrap();
        let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
        for mode in modes.into_iter().cycle() {
            self.driver.begin_capture(stream, mode).unwrap();
            let capture = self.engine.begin_capture(self.pools[0], stream).unwrap();
            for _ in 0..5 {
                let Some((block, tag)) = self.allocate(0, 2 * MIB, stream) else { break };
                self.read(stream, &block, tag);
                thread::yield_now();
                self.free(&block);
            }
            let graph = self.driver.end_capture(stream).expect("the capture is not ruined");
            self.engine.close_capture(capture, graph).unwrap();
            let executable = self.driver.instantiate(graph).unwrap();
            let report = self.engine.verdict(capture).unwrap();
            self.driver.replay(executable, stream).unwrap();
            self.driver.record_event(done, stream).unwrap();
            self.driver.synchronize_event(done).unwrap();
            self.driver.destroy_executable(executable).unwrap();
            self.engine.release_graph(report.graph).unwrap();
            if self.over.load(Ordering::Relaxed) {
                break;
            }
        }
        self.driver.destroy_event(done).unwrap();
    }

    /// Asks for figures and gives memory back until the others are done.
    fn oversee(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let all = self.engine.statistics().unwrap().all;
            let active = all.active_bytes.current;
            assert_eq!(all.reserved_bytes.current, active + all.inactive_split_bytes.current);
            assert!(all.allocated_bytes.peak >= all.allocated_bytes.current);
            self.engine.empty_cache().unwrap();
            self.engine.leaks().unwrap();
            thread::yield_now();
        }
    }
}

fn run<P: Device>(driver: &Arc<P>, settings: Settings, seed: u64) {
    let driver = Arc::clone(driver);
    let streams: [_; WORKERS + 1] = [(); WORKERS + 1].map(|()| driver.create_stream().unwrap());
    let engine = Engine::new(
        driver.clone(),
        Config::default().settings(settings).find_late_uses(false).judge_aside(0),
    );
    let pools = [(); 2].map(|()| engine.create_pool(PoolConfig::default()));
    let capturing = &streams[WORKERS];
    let (live, tags, over) = (Live::default(), AtomicU64::new(0), AtomicBool::new(false));
    let stage = Stage { driver, engine, pools, live, tags, over };
    thread::scope(|scope| {
        let others = [scope.spawn(|| stage.capture(*capturing)), scope.spawn(|| stage.oversee())];
        let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| channel()).unzip();
        senders.rotate_left(1);
        let workers: Vec<_> = (senders.into_iter().zip(receivers).enumerate())
            .map(|(number, (passed, taken))| {
                let stage = &stage;
                let own = (streams[number], seed + number as u64);
                scope.spawn(move || {
                    stage.work(own, &passed, &taken);
                    (passed, taken)
                })
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stage.over.store(true, Ordering::Relaxed);
        for other in others {
            other.join().unwrap();
        }
        for (_, taken) in ends.into_iter().map(|end| end.unwrap()) {
            for Passed { block, .. } in taken.try_iter() {
                stage.free(&block);
            }
        }
    });
    stage.driver.synchronize().expect("no work met memory that was gone");
    assert_eq!(stage.driver.take_wrong_tags().unwrap(), 0, "a block was overwritten while in use");
    let all = stage.engine.statistics().unwrap().all;
    for figure in [all.allocation, all.allocated_bytes, all.requested_bytes] {
        assert_eq!((figure.current, figure.allocated), (0, figure.freed));
    }
    assert_eq!(all.allocation.allocated, stage.tags.load(Ordering::Relaxed));
    for pool in stage.pools {
        stage.engine.destroy_pool(pool).unwrap();
    }
    assert_eq!(stage.engine.statistics().unwrap().all.reserved_bytes.current, 0);
    for stream in streams {
        stage.engine.retire_stream(stream).unwrap();
        stage.driver.destroy_stream(stream).unwrap();
    }
}

fn threads_share_an_engine<P: Device>(driver: &Arc<P>) {
    run(driver, Settings::default(), 1);
    run(driver, Settings::default().expandable_segments(false).history(64), 2);
    run(driver, Settings::default().memory_limit_bytes(Some(160 * MIB)), 3);
}

fn threads_share_an_engine_that_caches_nothing<P: Device>(driver: &Arc<P>) {
    run(driver, Settings::default().caching(false), 4);
}

#[test]
fn threads_share_an_engine_of_a_device_that_maps_nothing() {
    let config = SimConfig { support: MemorySupport::Allocated, ..SimConfig::default() };
    let driver = Arc::new(SimDriver::new(config));
    run(&driver, Settings::default(), 5);
    assert_eq!(driver.used_bytes(), 0);
}

twins! {
    threads_share_an_engine
    threads_share_an_engine_that_caches_nothing
}
