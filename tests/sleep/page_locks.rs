//! Page-locked memory of the host that regions keep what sleeps in: when it is locked, and when it goes back.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use regraph::driver::{ErrorKind, HostApi};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Error, Memory, Pool};
use regraph::regions::{Regions, Tags};
use regraph::BackupRefusal;
use regraph_sim::{SimConfig, SimDriver};

use super::is_out_of_host_memory;
use super::model::Model;
use crate::common::{once, while_it_waits, MIB};

/// Far longer than any call takes.
const LONG: Duration = Duration::from_secs(20);

/// Between two looks of a thread that waits for another.
const PAUSE: Duration = Duration::from_micros(100);

/// What is done while pages are locked and freed.
#[derive(Default)]
struct Pages {
    /// How often the engine told its figures to another thread while pages were locked, and how often it did not.
    answered: AtomicU64,
    waited: AtomicU64,
    /// How many threads lock and free pages.
    threads: usize,
    /// Whether each of them waits in such a call until all are there: there must be enough for each to do.
    meets: bool,
    /// In which call all of them have met.
    met: Mutex<BTreeMap<&'static str, (HashSet<ThreadId>, bool)>>,
    /// Whether no page is freed for now.
    holds: AtomicBool,
    /// Whether that was for so long that something must have waited for it.
    gave_up: AtomicBool,
}

impl Pages {
    /// Notes who is in a call, and waits until all threads are where they are to meet.
    fn meet(&self, call: &'static str) {
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            let mut met = self.met.lock().unwrap();
            let (here, all) = met.entry(call).or_default();
            here.insert(thread::current().id());
            *all |= here.len() == self.threads;
            if *all || !self.meets {
                return;
            }
            drop(met);
            thread::sleep(PAUSE);
        }
    }

    /// Waits as long as no page is to be freed.
    fn free(&self) {
        self.meet("cuMemFreeHost");
        let begun = Instant::now();
        while self.holds.load(Ordering::SeqCst) {
            if begun.elapsed() > LONG {
                self.gave_up.store(true, Ordering::SeqCst);
                break;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Whether all threads were in a call at once.
    fn have_met(&self, call: &str) -> bool {
        self.met.lock().unwrap().get(call).is_some_and(|(_, all)| *all)
    }
}

struct Bench {
    engine: Arc<Engine<SimDriver>>,
    regions: Regions<SimDriver>,
    blocks: Vec<Memory<SimDriver>>,
    pages: Arc<Pages>,
}

impl Bench {
    /// Weights of so many MiB in each of some pools.
    fn new(pools: &[u64]) -> Self {
        Self::with_threads(pools, 1, false)
    }

    /// And a device for which so many threads lock pages, which meet in each call if `meets`.
    fn with_threads(pools: &[u64], threads: usize, meets: bool) -> Self {
        let engine = Engine::new(SimDriver::new(SimConfig::default()), Config::default());
        let engine = Arc::new(engine);
        let pages = Arc::new(Pages { threads, meets, ..Pages::default() });
        engine.driver().set_host(1 << 40, threads);
        let (freed, locked, asked) = (pages.clone(), pages.clone(), Arc::downgrade(&engine));
        engine.driver().before("cuMemFreeHost", move || freed.free());
        engine.driver().before("cuMemHostAlloc", move || {
            locked.meet("cuMemHostAlloc");
            let Some(engine) = asked.upgrade() else { return };
            let answers = while_it_waits(move || assert!(engine.statistics().is_ok()));
            let count = if answers { &locked.answered } else { &locked.waited };
            count.fetch_add(1, Ordering::Relaxed);
        });
        let stream = engine.driver().create_stream().unwrap();
        let weights = |&mebibytes: &u64| {
            let pool = Pool::new(&engine, PoolConfig::default().tag("weights"));
            pool.allocate(mebibytes * MIB, stream).unwrap()
        };
        let blocks = pools.iter().map(weights).collect();
        Self { regions: Regions::new(&engine), engine, blocks, pages }
    }

    fn device(&self) -> &SimDriver {
        self.engine.driver()
    }

    /// How often pages were locked, with the engine answering all the while.
    fn locked(&self) -> u64 {
        assert_eq!(self.pages.waited.load(Ordering::Relaxed), 0, "the engine did not answer");
        self.pages.answered.swap(0, Ordering::Relaxed)
    }
}

#[test]
fn the_engine_answers_while_pages_are_locked() {
    let bench = Bench::new(&[40, 70]);
    assert_eq!(bench.regions.sleep(Tags::All).unwrap(), 110 * MIB);
    assert_eq!((bench.locked(), bench.regions.host_bytes()), (2, 110 * MIB));
    bench.regions.wake(Tags::All).unwrap();
    bench.regions.sleep(Tags::All).unwrap();
    assert_eq!(bench.locked(), 0);
}

#[test]
fn a_sleep_locks_no_pages_where_enough_were_reserved() {
    let bench = Bench::new(&[40, 70, 1]);
    assert_eq!(bench.regions.reserve_host(111 * MIB).unwrap(), 112 * MIB);
    assert!(bench.locked() > 0);
    assert_eq!(bench.regions.reserve_host(100 * MIB).unwrap(), 0);
    bench.regions.sleep(Tags::All).unwrap();
    assert_eq!(bench.locked(), 0);
    // What keeps something is no reserve.
    assert_eq!(bench.regions.reserve_host(MIB).unwrap(), 0);
    assert_eq!(bench.regions.reserve_host(2 * MIB).unwrap(), 2 * MIB);
    assert_eq!(bench.regions.free_host().unwrap(), 2 * MIB);
}

#[test]
fn what_a_sleep_without_host_memory_had_locked_goes_back() {
    for room in [0, 30, 50, 100] {
        let bench = Bench::new(&[20, 40, 70]);
        bench.regions.reserve_host(10 * MIB).unwrap();
        let before = bench.device().host_bytes();
        bench.device().set_host_bytes((10 + room) * MIB);
        for refused in [bench.regions.sleep(Tags::All), bench.regions.reserve_host(130 * MIB)] {
            let refused = refused.unwrap_err();
            assert!(is_out_of_host_memory(&refused), "{refused}");
            assert!(refused.to_string().contains("Regions::free_host"), "{refused}");
        }
        assert_eq!(bench.device().host_bytes(), before, "{room}");
        assert_eq!(bench.regions.host_bytes(), before);
        assert!(bench.blocks.iter().all(|block| !block.pool().is_suspended()));
        bench.device().set_host_bytes(1000 * MIB);
        assert_eq!(bench.regions.sleep(Tags::All).unwrap(), 130 * MIB);
    }
}

#[test]
fn more_than_the_host_has_is_refused_before_any_is_locked() {
    let host = 100 * MIB;
    let bench = Bench::new(&[20, 40, 70]);
    bench.device().set_host(host, 1);
    bench.regions.reserve_host(10 * MIB).unwrap();
    bench.locked();
    let beyond = |refused: Result<u64, Error>, held: u64| {
        let refused = refused.unwrap_err();
        let text = refused.to_string();
        let Error::Backup { why: BackupRefusal::HostTooSmall { bytes, host_bytes, .. }, .. } =
            refused
        else {
            panic!("{text}")
        };
        assert_eq!((bytes, host_bytes), (held, host));
        for figure in [held, host] {
            assert!(text.contains(&format!("{figure} ")), "{text}");
        }
    };
    // What the driver would give before it refuses.
    bench.device().set_host_bytes(2 * host);
    for asked in [u64::MAX, u64::MAX - 1, 1 << 40, host + 1] {
        beyond(bench.regions.reserve_host(asked), asked);
        assert_eq!(bench.locked(), 0);
    }
    beyond(bench.regions.sleep(Tags::All), 130 * MIB);
    bench.locked();
    // What a sleep had locked before it came to the pool that is too much has gone back.
    assert_eq!(bench.device().host_bytes(), 10 * MIB);
    assert!(bench.blocks.iter().all(|block| !block.pool().is_suspended()));
    assert_eq!(bench.regions.reserve_host(host).unwrap(), 90 * MIB);
}

/// The last of regions, with what they had on the host.
#[test]
fn regions_that_are_dropped_hold_no_page_of_the_host() {
    for retains in [false, true] {
        for awake in [false, true] {
            let Bench { engine, regions, blocks, .. } = Bench::new(&[40, 3]);
            regions.retain(retains);
            regions.sleep(Tags::All).unwrap();
            if awake {
                regions.wake(Tags::All).unwrap();
            }
            assert!(regions.host_bytes() >= 43 * MIB);
            drop(regions);
            assert_eq!(engine.driver().host_bytes(), 0, "{retains} {awake}");
            drop(blocks);
        }
    }
}

/// A refusal of the driver's to take one slab back keeps no other.
#[test]
fn a_slab_that_the_driver_keeps_does_not_keep_others() {
    let bench = Bench::new(&[]);
    bench.regions.reserve_host(150 * MIB).unwrap();
    bench.device().fail_host_nth(0, ErrorKind::InvalidValue);
    bench.regions.free_host().unwrap_err();
    assert_eq!(bench.regions.host_bytes(), 64 * MIB);
    assert_eq!(bench.regions.free_host().unwrap(), 64 * MIB);
}

/// A copy that is refused is told, though pages come behind it that another thread was locking: all is awake, and sleeps
/// at the next call.
#[test]
fn a_copy_that_is_refused_is_told_whatever_pages_come_behind_it() {
    let bench = Bench::with_threads(&[40], 2, true);
    let engine = bench.engine.clone();
    let refuse = once(move || engine.driver().fail_host_nth(0, ErrorKind::InvalidValue));
    bench.device().before("cuMemcpyDtoHAsync", refuse);
    bench.regions.sleep(Tags::All).unwrap_err();
    assert!(!bench.blocks[0].pool().is_suspended());
    assert_eq!(bench.regions.sleep(Tags::All).unwrap(), 40 * MIB);
    assert_eq!(bench.regions.wake(Tags::All).unwrap(), 40 * MIB);
}

#[test]
fn several_threads_lock_and_free_pages_together() {
    for threads in [2, 5] {
        let bench = Bench::with_threads(&[40, 3, 70], threads, true);
        assert_eq!(bench.regions.sleep(Tags::All).unwrap(), 114 * MIB);
        assert!(bench.pages.have_met("cuMemHostAlloc"), "{threads}");
        assert!((113 * MIB..124 * MIB).contains(&bench.regions.host_bytes()));
        bench.regions.wake(Tags::All).unwrap();
        let held = bench.regions.host_bytes();
        assert_eq!(held, bench.device().host_bytes());
        assert_eq!(bench.regions.free_host().unwrap(), held);
        assert!(bench.pages.have_met("cuMemFreeHost"), "{threads}");
        assert_eq!((bench.regions.host_bytes(), bench.device().host_bytes()), (0, 0));
    }
}

/// What the other threads have locked when one is refused goes back as well.
#[test]
fn what_several_threads_had_locked_goes_back() {
    for room in [0, 8, 30, 64, 100] {
        let bench = Bench::with_threads(&[40, 3, 70], 4, false);
        bench.device().set_host_bytes(room * MIB);
        let refused = bench.regions.sleep(Tags::All).unwrap_err();
        assert!(is_out_of_host_memory(&refused), "{refused}");
        assert_eq!((bench.regions.host_bytes(), bench.device().host_bytes()), (0, 0), "{room}");
        assert!(bench.blocks.iter().all(|block| !block.pool().is_suspended()));
    }
}

/// While memory goes back to the host, other calls of these regions go on.
#[test]
fn no_call_waits_for_memory_that_goes_back_to_the_host() {
    let bench = Bench::new(&[]);
    bench.regions.reserve_host(24 * MIB).unwrap();
    bench.pages.holds.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let freed = scope.spawn(|| bench.regions.free_host().unwrap());
        while !bench.pages.have_met("cuMemFreeHost") {
            thread::sleep(PAUSE);
        }
        assert_eq!(bench.regions.host_bytes(), 0);
        assert_eq!(bench.regions.report(), []);
        bench.pages.holds.store(false, Ordering::SeqCst);
        assert_eq!(freed.join().unwrap(), 24 * MIB);
    });
    assert!(!bench.pages.gave_up.load(Ordering::SeqCst), "a call waited");
    assert_eq!(bench.device().host_bytes(), 0);
}

/// The host has pages no second time while they are given back, and has them then.
#[test]
fn what_is_being_given_back_is_still_locked() {
    let model = Model::on(SimConfig::default(), MIB);
    model.driver.set_host(64 * MIB, 1);
    assert_eq!(model.regions.reserve_host(40 * MIB).unwrap(), 40 * MIB);
    let (regions, refused) = (model.regions.clone(), Arc::new(AtomicBool::new(false)));
    let noted = refused.clone();
    let reserve = move || noted.store(regions.reserve_host(40 * MIB).is_err(), Ordering::SeqCst);
    model.driver.before("cuMemFreeHost", once(move || assert!(while_it_waits(reserve))));
    assert_eq!(model.regions.free_host().unwrap(), 40 * MIB);
    assert!(refused.load(Ordering::SeqCst));
    assert_eq!(model.regions.reserve_host(40 * MIB).unwrap(), 40 * MIB);
}
