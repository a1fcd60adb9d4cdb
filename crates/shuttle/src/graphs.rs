//! Graphs, their pools and regions under random interleavings of threads. Whatever the threads do, none waits for ever:
//! shuttle finds threads that wait for each other, and the ranks of locks find those that might.

use std::sync::Arc;
use std::time::Duration;

use regraph::driver::{CaptureMode, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{Config, Engine, LoanId, PoolConfig};
use regraph::graphs::{Graph, Pool};
use regraph::regions::{Backup, Regions, Tags};
use regraph::{Error, PoolRefusal};
use regraph_sim::{Launch, SimConfig, SimDriver};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::Mutex;
use shuttle::thread;

const MIB: u64 = 1 << 20;
/// Interleavings tried of each program.
const RUNS: usize = 300;

type Device = Arc<SimDriver>;

struct Stage {
    driver: Device,
    engine: Arc<Engine<Device>>,
    regions: Regions<Device>,
    /// Of the regions `weights`, whose contents are kept, and `graphs`, whose are not.
    weights: Pool<Device>,
    graphs: Pool<Device>,
}

impl Stage {
    fn new() -> Arc<Self> {
        let support = MemorySupport::Mapped { granularity: 2 * MIB };
        let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: 256 * MIB, support }));
        let config = Config::default().check(true).report_leaks(false).find_late_uses(false);
        let engine = Arc::new(Engine::new(driver.clone(), config.judge_aside(0)));
        let regions = Regions::new(&engine);
        regions.set_backup("graphs", Backup::None);
        let [weights, graphs] =
            ["weights", "graphs"].map(|tag| Pool::new(&engine, PoolConfig::default().tag(tag)));
        Arc::new(Self { driver, engine, regions, weights, graphs })
    }

    fn stream(&self) -> StreamHandle {
        self.driver.create_stream().unwrap()
    }

    fn work(&self, stream: StreamHandle) -> Result<(), Error> {
        Ok(self.driver.launch_kernel(stream, Launch::default())?)
    }

    /// A graph of a temporary block, in some pools.
    fn graph(&self, pools: &[&Pool<Device>], stream: StreamHandle) -> Result<Graph<Device>, Error> {
        let body = |capture: &regraph::Capture<Device>| {
            for pool in pools {
                capture.join(pool, stream)?;
                let block = pool.allocate(2 * MIB, stream)?;
                self.work(stream)?;
                drop(block);
            }
            Ok::<_, Error>(())
        };
        Ok(self.engine.capture(stream, pools[0], CaptureMode::Relaxed, body)?.0)
    }

    fn sleep_and_wake(&self, waits: bool) {
        let slept = match waits {
            true => self.regions.sleep(Tags::All),
            false => self.regions.try_sleep(Tags::All),
        };
        may_be_refused(slept);
        self.regions.wake(Tags::All).unwrap();
    }
}

/// What one thread's call may answer because of what the others do.
fn may_be_refused<R>(answer: Result<R, Error>) -> Option<R> {
    match answer {
        Ok(done) => Some(done),
        Err(
            Error::Pool { why: PoolRefusal::Suspended { .. }, .. }
            | Error::DeviceCaptures { .. }
            | Error::Pool { why: PoolRefusal::Busy { .. }, .. }
            | Error::Pool { why: PoolRefusal::Runs | PoolRefusal::Asleep, .. }
            | Error::Pool { why: PoolRefusal::HasBlocks { .. }, .. }
            | Error::Pool { why: PoolRefusal::BlocksLent { .. }, .. }
            | Error::Pool { why: PoolRefusal::NothingLent { .. }, .. }
            | Error::Pool { why: PoolRefusal::LentWork { .. }, .. },
        ) => None,
        Err(error) => panic!("{error}"),
    }
}

type Body = Box<dyn FnOnce(&Stage) + Send>;

/// Runs the threads' programs to their ends, in many interleavings.
fn explore(runs: usize, program: impl Fn(&Stage) -> Vec<Body> + Send + Sync + 'static) {
    let run = move || {
        let stage = Stage::new();
        let threads = program(&stage).into_iter().map(|body| {
            let stage = stage.clone();
            thread::spawn(move || body(&stage))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        stage.driver.complete_all();
        stage.regions.wake(Tags::All).unwrap();
        stage.weights.synchronize().unwrap();
        stage.graphs.synchronize().unwrap();
        let all = stage.engine.statistics().unwrap().all;
        assert_eq!((all.allocation.current, all.suspended_bytes.current), (0, 0));
        assert_eq!(all.reserved_bytes.current, stage.driver.used_bytes());
    };
    shuttle::check_random(run, runs);
}

fn body(run: impl FnOnce(&Stage) + Send + 'static) -> Body {
    Box::new(run)
}

#[test]
fn captures_begin_and_end_while_their_regions_sleep_and_wake() {
    for waits in [true, false] {
        explore(RUNS, move |stage| {
            let s = stage.stream();
            let held = stage.weights.allocate(2 * MIB, s).unwrap();
            vec![
                body(|stage| {
                    let s = stage.stream();
                    for _ in 0..2 {
                        if let Some(graph) = may_be_refused(stage.graph(&[&stage.graphs], s)) {
                            may_be_refused(graph.launch(s));
                        }
                    }
                }),
                body(move |stage| {
                    stage.sleep_and_wake(waits);
                    stage.sleep_and_wake(waits);
                    drop(held);
                }),
            ]
        });
    }
}

/// Graphs of two pools are launched and dropped in flight, by threads that take the pools' orders in any direction.
#[test]
fn graphs_of_two_pools_are_launched_and_dropped_in_flight() {
    explore(RUNS, |stage| {
        let (s, t) = (stage.stream(), stage.stream());
        let [a, b] = [&stage.weights, &stage.graphs];
        let (first, second) = (stage.graph(&[a, b], s).unwrap(), stage.graph(&[b, a], s).unwrap());
        vec![
            body(move |_| {
                may_be_refused(first.launch(s));
                drop(first);
            }),
            body(move |stage| {
                may_be_refused(second.launch(t));
                drop(second);
                stage.graphs.collect();
            }),
            body(|stage| {
                stage.sleep_and_wake(false);
                stage.driver.complete_all();
                stage.weights.collect();
            }),
        ]
    });
}

#[test]
fn a_pool_lends_while_it_is_launched_and_its_region_sleeps() {
    explore(RUNS, |stage| {
        let (s, t) = (stage.stream(), stage.stream());
        let graph = stage.graph(&[&stage.graphs], s).unwrap();
        vec![
            body(move |stage| {
                stage.engine.mark_stream(t).unwrap();
                let Some(lending) = may_be_refused(stage.graphs.lend(t)) else { return };
                for _ in 0..2 {
                    if let Some(block) = may_be_refused(lending.allocate(MIB)) {
                        stage.work(t).unwrap();
                        drop(block);
                    }
                }
            }),
            body(move |_| {
                may_be_refused(graph.launch(s));
                may_be_refused(graph.launch(s));
            }),
            body(|stage| stage.sleep_and_wake(true)),
        ]
    });
}

/// A pool goes with its last graph, while others look at the engine and its device is waited for.
#[test]
fn pools_go_while_captures_begin_and_snapshots_are_taken() {
    explore(RUNS, |stage| {
        let s = stage.stream();
        let pool = Pool::new(&stage.engine, PoolConfig::default().tag("graphs"));
        let graph = stage.graph(&[&pool, &stage.graphs], s).unwrap();
        vec![
            body(move |_| {
                may_be_refused(graph.launch(s));
                drop((graph, pool));
            }),
            body(|stage| {
                let t = stage.stream();
                drop(may_be_refused(stage.graph(&[&stage.graphs], t)));
                stage.engine.retire_stream(t).unwrap();
            }),
            body(|stage| {
                stage.engine.snapshot().unwrap();
                let _ = stage.engine.wait_for_device().unwrap();
                stage.regions.report();
                stage.engine.empty_cache().unwrap();
            }),
        ]
    });
}

/// Suspended and compacted by its owner, with captures and launches beside it.
#[test]
fn a_pool_is_suspended_and_compacted_beside_captures() {
    explore(RUNS, |stage| {
        let (s, t) = (stage.stream(), stage.stream());
        let graph = stage.graph(&[&stage.graphs], s).unwrap();
        vec![
            body(move |stage| {
                may_be_refused(graph.launch(s));
                drop(may_be_refused(stage.graph(&[&stage.graphs], s)));
            }),
            body(|stage| {
                may_be_refused(stage.graphs.suspend_discarding_all());
                stage.graphs.resume().unwrap();
                may_be_refused(stage.graphs.compact());
            }),
            body(move |stage| {
                drop(may_be_refused(stage.graph(&[&stage.weights], t)));
                let _ = stage.engine.wait_for_device().unwrap();
            }),
        ]
    });
}

/// A pool is given up, and blocks are freed, while others go to sleep and wake.
#[test]
fn pools_and_blocks_are_given_up_while_their_regions_sleep_and_wake() {
    explore(RUNS, |stage| {
        let s = stage.stream();
        let pool = Pool::new(&stage.engine, PoolConfig::default().tag("weights"));
        let block = pool.allocate(2 * MIB, s).unwrap();
        let held = stage.weights.allocate(2 * MIB, s).unwrap();
        vec![
            body(|stage| {
                stage.sleep_and_wake(true);
                stage.sleep_and_wake(false);
            }),
            body(move |stage| {
                drop((block, pool));
                stage.engine.empty_cache().unwrap();
            }),
            body(move |stage| {
                stage.regions.report();
                drop(held);
                let t = stage.stream();
                drop(may_be_refused(stage.weights.allocate(MIB, t)));
                stage.regions.report();
                stage.engine.host().verify().unwrap();
            }),
        ]
    });
}

/// Regions of which one thread has some sleep and another has all.
#[test]
fn two_threads_have_regions_sleep_and_wake() {
    explore(RUNS, |stage| {
        let s = stage.stream();
        let held = stage.weights.allocate(2 * MIB, s).unwrap();
        let graph = stage.graph(&[&stage.graphs], s).unwrap();
        vec![
            body(move |stage| {
                stage.sleep_and_wake(true);
                drop(held);
            }),
            body(|stage| {
                may_be_refused(stage.regions.sleep(&["graphs"]));
                stage.regions.set_backup("graphs", Backup::Host);
                stage.regions.wake(&["graphs"]).unwrap();
                stage.regions.free_host().unwrap();
            }),
            body(move |_| {
                may_be_refused(graph.launch(s));
            }),
        ]
    });
}

/// Whatever the one call does meanwhile, what sleeps stays asleep until it is woken.
#[test]
fn a_pool_by_itself_is_resumed_while_its_region_goes_to_sleep() {
    explore(RUNS, |stage| {
        let s = stage.stream();
        let pool = stage.engine.create_pool(PoolConfig::default().tag("weights"));
        let block = stage.engine.allocate(pool, 2 * MIB, s).unwrap();
        vec![
            body(move |stage| {
                // Until the other thread has come as far as that.
                for _ in 0..40 {
                    may_be_refused(stage.engine.host().resume_pool(pool));
                }
            }),
            body(move |stage| {
                let slept = may_be_refused(stage.regions.sleep(Tags::All));
                if slept.is_some() {
                    stage.engine.allocate(pool, 2 * MIB, s).unwrap_err();
                }
                stage.regions.wake(Tags::All).unwrap();
                stage.engine.free(block.id).unwrap();
            }),
        ]
    });
}

/// A pool lends to another process, whose part a thread plays, while others launch and call the loan back. No graph runs
/// as long as the process has the loan.
#[test]
fn a_process_borrows_while_others_launch() {
    explore(RUNS, |stage| {
        let s = stage.stream();
        let graph = stage.graph(&[&stage.graphs], s).unwrap();
        let works = Arc::new(AtomicBool::new(false));
        let watched = works.clone();
        let check =
            move || assert!(!watched.load(Ordering::SeqCst), "a graph runs beside the loan");
        stage.driver.before("cuGraphLaunch", check);
        let lent: Arc<Mutex<Vec<LoanId>>> = Arc::default();
        let theirs = lent.clone();
        vec![
            body(move |stage| {
                for _ in 0..2 {
                    let loan = may_be_refused(stage.graphs.play_loan(MIB, s));
                    let Some((loan, _)) = loan else { continue };
                    lent.lock().unwrap().push(loan);
                    // At once, or when the process has given it back, or has ended.
                    assert!(stage.engine.sharing().recall_loan(loan, Duration::MAX).unwrap());
                }
            }),
            body(move |stage| {
                for _ in 0..3 {
                    thread::yield_now();
                    let Some(loan) = theirs.lock().unwrap().pop() else { continue };
                    let sharing = stage.engine.sharing();
                    if sharing.play_taking(loan) {
                        works.store(true, Ordering::SeqCst);
                        thread::yield_now();
                        works.store(false, Ordering::SeqCst);
                        sharing.play_ending(loan);
                        // That its process has ended is heard behind its last word.
                        sharing.play_ending(loan);
                    }
                    assert!(!sharing.play_taking(loan), "a loan is taken twice");
                }
            }),
            body(move |stage| {
                let s = stage.stream();
                for _ in 0..3 {
                    may_be_refused(graph.launch(s));
                }
            }),
        ]
    });
}
