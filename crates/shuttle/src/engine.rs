//! The engine under random interleavings of threads: `RUSTFLAGS="--cfg shuttle" cargo test -p regraph-shuttle`.

use std::sync::Arc;

use regraph::driver::{CaptureMode, Driver, HostApi, MemoryInfo, MemorySupport, StreamHandle};
use regraph::engine::{
    Block, BlockId, Config, Engine, Error, PoolConfig, PoolId, PoolRefusal, Unknown,
};
use regraph::settings::{PlanChoice, Settings};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Tagged, Work};
use shuttle::sync::Mutex;
use shuttle::thread;

const MIB: u64 = 1 << 20;
/// Interleavings tried of each program.
const RUNS: usize = 800;

struct Stage {
    driver: Arc<SimDriver>,
    engine: Engine<Arc<SimDriver>>,
    pool: PoolId,
    /// Live blocks: address and end.
    live: Mutex<Vec<(u64, u64)>>,
}

impl Stage {
    fn new(total: u64) -> Arc<Self> {
        Self::with(total, Settings::default())
    }

    /// Captures learn from work outside captures.
    fn learning(total: u64) -> Arc<Self> {
        Self::with(total, Settings::default().plan(PlanChoice::Auto))
    }

    fn with(total: u64, settings: Settings) -> Arc<Self> {
        let support = MemorySupport::Mapped { granularity: 2 * MIB };
        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: total * MIB, support }));
        // Captures are judged by threads of their own where their ends have two steps.
        let config = Config::default().settings(settings);
        let config = config.report_leaks(false).find_late_uses(false).judge_aside(0);
        let engine = Engine::new(driver.clone(), config);
        let pool = engine.create_pool(PoolConfig::default());
        Arc::new(Self { driver, engine, pool, live: Mutex::new(Vec::new()) })
    }

    fn stream(&self) -> StreamHandle {
        self.driver.create_stream().unwrap()
    }

    /// A block that its stream's work writes.
    fn allocate_from(&self, pool: PoolId, mib: u64, stream: StreamHandle) -> Block {
        /// More often than all other threads of a program free something.
        const ATTEMPTS: usize = 16;
        // What other threads' streams have freed is known to be free when the device has been waited for, unless these
        // streams had it again in between.
        let wait = || self.engine.wait_for_device().unwrap();
        let ask = |_| match self.engine.host().allocate_or_release(pool, mib * MIB, stream, wait) {
            Ok(block) => Some(block),
            Err(Error::OutOfMemory(_)) => None,
            Err(error) => panic!("{error}"),
        };
        let block = (0..ATTEMPTS).find_map(ask).expect("all but live blocks is free in the end");
        let (start, end) = (block.address, block.address + block.bytes);
        let mut live = self.live.lock().unwrap();
        let apart = live.iter().all(|&(from, to)| to <= start || end <= from);
        assert!(apart, "handed out over a live block");
        live.push((start, end));
        drop(live);
        let tag = block.address ^ u64::from(block.id.number().0 as u32);
        let range = Tagged { address: block.address, bytes: block.bytes, tag };
        let write = Work { outputs: &[range], ..Work::default() };
        self.driver.launch(stream, write, false).unwrap();
        let read = Work { inputs: &[range], ..Work::default() };
        self.driver.launch(stream, read, false).unwrap();
        block
    }

    fn allocate(&self, mib: u64, stream: StreamHandle) -> Block {
        self.allocate_from(self.pool, mib, stream)
    }

    fn free(&self, block: Block) {
        self.live.lock().unwrap().retain(|&(start, _)| start != block.address);
        self.engine.free(block.id).unwrap();
    }

    fn recycle(&self, stream: StreamHandle) {
        for mib in [2, 2, 3] {
            let block = self.allocate(mib, stream);
            self.free(block);
        }
    }

    /// Nothing is live any more: figures and memory are what they must be.
    fn judge(&self, allocations: u64) {
        self.driver.synchronize().expect("no work met memory that was gone");
        assert_eq!(self.driver.take_wrong_tags().unwrap(), 0);
        let all = self.engine.statistics().unwrap().all;
        assert_eq!((all.allocation.current, all.allocation.allocated), (0, allocations));
        assert_eq!((all.allocated_bytes.current, all.requested_bytes.current), (0, 0));
        let MemoryInfo { free, total, .. } = self.driver.memory_info().unwrap();
        assert_eq!(all.reserved_bytes.current, total - free);
        self.engine.destroy_pool(self.pool).unwrap();
    }
}

/// Runs the threads' programs to their ends, in many interleavings.
fn explore(
    total: u64,
    allocations: u64,
    program: impl Fn(&Arc<Stage>) -> Vec<thread::JoinHandle<()>> + Send + Sync + 'static,
) {
    let run = move || {
        let stage = Stage::new(total);
        for thread in program(&stage) {
            thread.join().unwrap();
        }
        stage.judge(allocations);
    };
    shuttle::check_random(run, RUNS);
}

fn spawn(stage: &Arc<Stage>, body: impl FnOnce(&Stage) + Send + 'static) -> thread::JoinHandle<()> {
    let stage = stage.clone();
    thread::spawn(move || body(&stage))
}

#[test]
fn streams_of_their_own() {
    explore(1 << 10, 9, |stage| {
        let recycle = |_| {
            let stream = stage.stream();
            spawn(stage, move |stage| stage.recycle(stream))
        };
        (0..3).map(recycle).collect()
    });
}

#[test]
fn short_of_memory() {
    explore(6, 6, |stage| {
        let recycle = |_| {
            let stream = stage.stream();
            spawn(stage, move |stage| stage.recycle(stream))
        };
        (0..2).map(recycle).collect()
    });
}

#[test]
fn a_block_freed_by_another_thread() {
    explore(1 << 10, 7, |stage| {
        let (s, t) = (stage.stream(), stage.stream());
        let block = stage.allocate(2, s);
        let other = spawn(stage, move |stage| {
            stage.driver.wait(t, s).unwrap();
            stage.engine.record_stream(block.id, t).unwrap();
            stage.driver.launch(t, Work::default(), false).unwrap();
            stage.free(block);
            stage.recycle(t);
        });
        vec![other, spawn(stage, move |stage| stage.recycle(s))]
    });
}

#[test]
fn emptying_beside_work() {
    explore(1 << 10, 6, |stage| {
        let (s, t) = (stage.stream(), stage.stream());
        vec![
            spawn(stage, move |stage| stage.recycle(s)),
            spawn(stage, move |stage| {
                stage.recycle(t);
                stage.driver.complete(t).unwrap();
            }),
            spawn(stage, move |stage| {
                for _ in 0..3 {
                    stage.engine.empty_cache().unwrap();
                }
            }),
        ]
    });
}

#[test]
fn of_two_frees_one_succeeds() {
    for captured in [false, true] {
        explore(1 << 10, 1, move |stage| {
            let s = stage.stream();
            let block = stage.allocate(2, s);
            stage.live.lock().unwrap().clear();
            if captured {
                // So that the engine, and not the stream's front, has to decide.
                stage.engine.record_stream(block.id, stage.stream()).unwrap();
            }
            let freed = Arc::new(Mutex::new(0));
            let free = |_| {
                let (freed, id): (_, BlockId) = (freed.clone(), block.id);
                spawn(stage, move |stage| match stage.engine.free(id) {
                    Ok(()) => *freed.lock().unwrap() += 1,
                    Err(error) => assert!(
                        matches!(error, Error::Unknown { what: Unknown::Block(_), .. }),
                        "{error}"
                    ),
                })
            };
            let mut threads: Vec<_> = (0..2).map(free).collect();
            let freed = freed.clone();
            let last = threads.remove(0);
            let first = threads.remove(0);
            vec![thread::spawn(move || {
                last.join().unwrap();
                first.join().unwrap();
                assert_eq!(*freed.lock().unwrap(), 1);
            })]
        });
    }
}

#[test]
fn peaks_are_never_below_what_is_live() {
    explore(1 << 10, 3, |stage| {
        let (s, t) = (stage.stream(), stage.stream());
        let kept = stage.allocate(2, s);
        let work = |stream, mib| {
            move |stage: &Stage| {
                let block = stage.allocate(mib, stream);
                stage.free(block);
            }
        };
        vec![
            spawn(stage, work(s, 2)),
            spawn(stage, work(t, 3)),
            spawn(stage, move |stage| {
                for _ in 0..3 {
                    let all = stage.engine.statistics().unwrap().all;
                    for figure in [all.allocation, all.allocated_bytes, all.active_bytes] {
                        assert!(figure.peak >= figure.current);
                    }
                    assert!(all.allocated_bytes.current >= 2 * MIB);
                    let used = all.active_bytes.current + all.inactive_split_bytes.current;
                    assert_eq!(all.reserved_bytes.current, used);
                }
                stage.free(kept);
            }),
        ]
    });
}

#[test]
fn a_capture_beside_work() {
    for same_pool in [false, true] {
        explore(1 << 10, 5, move |stage| {
            let (c, s) = (stage.stream(), stage.stream());
            let other = stage.engine.create_pool(PoolConfig::default());
            let pool = if same_pool { stage.pool } else { other };
            vec![
                spawn(stage, move |stage| {
                    stage.driver.begin_capture(c, CaptureMode::Global).unwrap();
                    let capture = stage.engine.begin_capture(pool, c).unwrap();
                    for _ in 0..2 {
                        let block = stage.allocate_from(pool, 2, c);
                        stage.free(block);
                    }
                    let graph = stage.driver.end_capture(c).expect("the capture is not ruined");
                    let report = stage.engine.end_capture(capture, graph).unwrap();
                    stage.engine.release_graph(report.graph).unwrap();
                }),
                spawn(stage, move |stage| stage.recycle(s)),
            ]
        });
    }
}

/// Two captures search at once what was asked for outside captures: later ones still learn from it.
#[test]
fn captures_that_begin_at_once_lose_nothing_of_what_was_heard() {
    /// Each block is freed when the next is there, and is too small for the one behind that.
    fn run(stage: &Stage, pool: PoolId, stream: StreamHandle, first: u64) {
        let mut before = stage.engine.allocate(pool, first * MIB, stream).unwrap();
        for mib in 2..20 {
            let block = stage.engine.allocate(pool, 2 * mib * MIB, stream).unwrap();
            stage.driver.launch(stream, Work::default(), false).unwrap();
            stage.engine.free(std::mem::replace(&mut before, block).id).unwrap();
        }
        stage.engine.free(before.id).unwrap();
    }

    fn capture(stage: &Stage, stream: StreamHandle, first: u64) -> Option<usize> {
        let pool = stage.engine.create_pool(PoolConfig::default());
        stage.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        let capture = stage.engine.begin_capture(pool, stream).unwrap();
        run(stage, pool, stream, first);
        let graph = stage.driver.end_capture(stream).unwrap();
        let report = stage.engine.end_capture(capture, graph).unwrap();
        stage.engine.release_graph(report.graph).unwrap();
        stage.engine.destroy_pool(pool).unwrap();
        report.layout.map(|layout| layout.followed)
    }

    let program = || {
        let stage = Stage::learning(1 << 12);
        let streams = [1, 3, 5].map(|first| (stage.stream(), first));
        for (stream, first) in streams {
            (0..2).for_each(|_| run(&stage, stage.pool, stream, first));
        }
        let [one, other, (later, first)] = streams;
        let captures = [one, other]
            .map(|(stream, first)| spawn(&stage, move |stage| _ = capture(stage, stream, first)));
        for thread in captures {
            thread.join().unwrap();
        }
        assert_eq!(capture(&stage, later, first), Some(19));
    };
    shuttle::check_random(program, RUNS / 8);
}

/// The checker's thread, the host that needs its verdict, and one that frees an output and works in the
/// same pool; sound captures and one that is to be refused.
#[test]
fn a_capture_is_judged_beside_work() {
    for (sound, abandoned) in [(true, false), (false, false), (true, true)] {
        explore(1 << 10, 6, move |stage| {
            let (c, s) = (stage.stream(), stage.stream());
            stage.driver.begin_capture(c, CaptureMode::Relaxed).unwrap();
            let capture = stage.engine.begin_capture(stage.pool, c).unwrap();
            for _ in 0..2 {
                let block = stage.allocate(2, c);
                stage.free(block);
            }
            let output = stage.allocate(2, c);
            let graph = stage.driver.end_capture(c).unwrap();
            if !sound {
                let (mut nodes, mut edges) = (Vec::new(), Vec::new());
                stage.driver.nodes(graph, &mut nodes).unwrap();
                stage.driver.dependencies(nodes[2], &mut edges).unwrap();
                stage.driver.remove_dependency(graph, edges[0], nodes[2]).unwrap();
            }
            stage.engine.close_capture(capture, graph).unwrap();
            let host = move |stage: &Stage| match abandoned {
                true => stage.engine.abandon_capture(capture).unwrap(),
                false => match stage.engine.verdict(capture) {
                    Ok(report) => {
                        assert!(sound, "accepted without its verdict");
                        stage.engine.release_graph(report.graph).unwrap();
                    }
                    Err(error) => assert!(!sound && matches!(error, Error::Refused(_))),
                },
            };
            vec![
                spawn(stage, host),
                spawn(stage, move |stage| stage.free(output)),
                spawn(stage, move |stage| stage.recycle(s)),
            ]
        });
    }
}

#[test]
fn a_stream_retires_while_its_block_is_freed() {
    explore(1 << 10, 3, |stage| {
        let (s, t) = (stage.stream(), stage.stream());
        let block = stage.allocate(2, s);
        let cached = stage.allocate(2, s);
        stage.free(cached);
        vec![
            spawn(stage, move |stage| stage.engine.retire_stream(s).unwrap()),
            spawn(stage, move |stage| stage.free(block)),
            spawn(stage, move |stage| {
                let block = stage.allocate(2, t);
                stage.free(block);
            }),
        ]
    });
}

/// While a pool is suspended, no request gets anything of it, and what is freed stays where it is.
#[test]
fn a_suspended_pool_is_shut() {
    use shuttle::sync::atomic::{AtomicU64, Ordering};
    let run = || {
        let stage = Stage::new(64);
        // Odd while the pool is suspended for certain.
        let turns = Arc::new(AtomicU64::new(0));
        let workers = [(); 2].map(|()| {
            let turns = turns.clone();
            spawn(&stage, move |stage| {
                let stream = stage.stream();
                for round in 0..6 {
                    let before = turns.load(Ordering::SeqCst);
                    let got = stage.engine.allocate(stage.pool, 2 * MIB, stream);
                    let shut = before % 2 == 1 && before == turns.load(Ordering::SeqCst);
                    match got {
                        Ok(block) => {
                            assert!(!shut, "handed out of a suspended pool");
                            stage.engine.free(block.id).unwrap();
                        }
                        Err(Error::Pool { why: PoolRefusal::Suspended { .. }, .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if round % 2 == 1 {
                        stage.engine.mark_stream(stream).unwrap();
                    }
                }
            })
        });
        let host = spawn(&stage, move |stage| {
            for _ in 0..3 {
                match stage.engine.host().suspend_discarding_all(stage.pool) {
                    Ok(_) => {
                        turns.fetch_add(1, Ordering::SeqCst);
                        for _ in 0..12 {
                            assert_eq!(stage.driver.used_bytes(), 0);
                            thread::yield_now();
                        }
                        turns.fetch_add(1, Ordering::SeqCst);
                        stage.engine.host().resume_pool(stage.pool).unwrap();
                    }
                    Err(Error::Pool { why: PoolRefusal::Busy { .. }, .. }) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        workers.into_iter().chain([host]).for_each(|thread| thread.join().unwrap());
        stage.driver.complete_all();
        let all = stage.engine.statistics().unwrap().all;
        assert_eq!((all.allocation.current, all.suspended_bytes.current), (0, 0));
        assert_eq!(all.reserved_bytes.current, stage.driver.used_bytes());
    };
    shuttle::check_random(run, RUNS / 4);
}

/// A pool that one thread suspends and another resumes: what is handed out of it meanwhile keeps its memory.
#[test]
fn a_pool_that_is_resumed_while_it_is_suspended_keeps_what_lives() {
    let run = || {
        let stage = Stage::new(64);
        let stream = stage.stream();
        stage.engine.free(stage.engine.allocate(stage.pool, 2 * MIB, stream).unwrap().id).unwrap();
        stage.engine.wait_for_device().unwrap();
        let suspends = spawn(&stage, |stage| {
            for _ in 0..3 {
                match stage.engine.host().suspend_discarding_outputs(stage.pool) {
                    Ok(_) | Err(Error::Pool { .. }) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let resumes = spawn(&stage, move |stage| {
            for _ in 0..3 {
                stage.engine.host().resume_pool(stage.pool).unwrap();
                let Ok(block) = stage.engine.allocate(stage.pool, 2 * MIB, stream) else {
                    continue;
                };
                for _ in 0..4 {
                    thread::yield_now();
                    assert!(
                        !stage.engine.host().is_suspended(stage.pool).unwrap(),
                        "a block lives"
                    );
                    assert!(stage.driver.used_bytes() >= 2 * MIB);
                }
                stage.engine.free(block.id).unwrap();
            }
        });
        [suspends, resumes].into_iter().for_each(|thread| thread.join().unwrap());
        stage.engine.host().verify().unwrap();
    };
    shuttle::check_random(run, RUNS);
}
