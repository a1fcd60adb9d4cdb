//! While a call waits for the device, or plans, the calls of other threads go on; and what they do meanwhile is
//! looked at again before anything is handed out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{while_it_waits, MIB};
use regraph::driver::{CaptureMode, CaptureStatus, Driver, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{Block, Config, Engine, Error, HistoryOptions, PoolConfig, PoolId, Unknown};
use regraph::settings::Settings;
use regraph::snapshot::{Action, BlockState};
use regraph_sim::{Call, Launch, SimConfig, SimDriver};

type Act = Box<dyn FnOnce() + Send>;

struct Bench {
    device: Arc<SimDriver>,
    engine: Arc<Engine<Arc<SimDriver>>>,
    pool: PoolId,
    /// What another thread does while the host waits for an event, one for each wait.
    acts: Arc<Mutex<VecDeque<Act>>>,
}

impl Bench {
    fn new(mib: u64, settings: Settings) -> Self {
        let support = MemorySupport::Mapped { granularity: 2 * MIB };
        let sim = SimDriver::new(SimConfig { total_bytes: mib * MIB, support });
        let (device, acts) = (Arc::new(sim), Arc::<Mutex<VecDeque<Act>>>::default());
        let in_waits = acts.clone();
        device.before("cuEventSynchronize", move || {
            let act = in_waits.lock().unwrap().pop_front();
            assert!(act.is_none_or(while_it_waits), "another thread had to wait");
        });
        let config = Config::default().settings(settings).report_leaks(false);
        let engine = Arc::new(Engine::new(device.clone(), config));
        let pool = engine.create_pool(PoolConfig::default());
        Self { device, engine, pool, acts }
    }

    fn with_streams<const N: usize>(self) -> (Self, [StreamHandle; N]) {
        let streams = [(); N].map(|()| self.device.create_stream().unwrap());
        (self, streams)
    }

    fn block(&self, mib: u64, stream: StreamHandle) -> Block {
        self.engine.allocate(self.pool, mib * MIB, stream).unwrap()
    }

    /// Allocates, works and frees.
    fn use_once(&self, mib: u64, stream: StreamHandle) {
        let block = self.block(mib, stream);
        self.device.launch_kernel(stream, Launch::default()).unwrap();
        self.engine.free(block.id).unwrap();
    }

    /// Has another thread do something in the next wait.
    fn in_next_wait(&self, act: impl FnOnce(&Engine<Arc<SimDriver>>, &SimDriver) + Send + 'static) {
        let (engine, device) = (self.engine.clone(), self.device.clone());
        self.acts.lock().unwrap().push_back(Box::new(move || act(&engine, &device)));
    }

    /// Runs a call, beside which another thread makes some that need the engine's lock.
    fn beside<R>(&self, call: impl FnOnce() -> R) -> R {
        /// Before the call has the lock and behind the call there is time for so many.
        const FEW: usize = 5;
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let others = {
            let (engine, stop, calls) = (self.engine.clone(), stop.clone(), calls.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    engine.memory_limit().unwrap();
                    calls.fetch_add(1, Ordering::SeqCst);
                    // Where it makes its call behind the other one, that one's thread has its turn next.
                    thread::sleep(Duration::from_micros(100));
                }
            })
        };
        let before = calls.load(Ordering::SeqCst);
        let result = call();
        let meanwhile = calls.load(Ordering::SeqCst) - before;
        stop.store(true, Ordering::SeqCst);
        others.join().unwrap();
        assert!(meanwhile > FEW, "{meanwhile} calls meanwhile");
        result
    }

    /// How often the host has waited for an event; what was to be done in further waits is not.
    fn waits(&self) -> u64 {
        self.acts.lock().unwrap().clear();
        self.device.calls(Call::SynchronizeEvent)
    }
}

/// Takes 20 MiB for work that the stream marks.
fn take(engine: &Engine<Arc<SimDriver>>, device: &SimDriver, pool: PoolId, thief: StreamHandle) {
    let taken = engine.allocate(pool, 20 * MIB, thief).unwrap();
    device.launch_kernel(thief, Launch::default()).unwrap();
    engine.free(taken.id).unwrap();
    engine.mark_stream(thief).unwrap();
}

/// Every call that waits for what streams hold.
#[test]
fn others_allocate_while_a_call_waits() {
    type Waits = fn(&Bench, StreamHandle, StreamHandle);
    let calls: [(&str, Settings, Waits); 5] = [
        ("allocate", Settings::default(), |b, s, _| {
            b.block(24, s);
        }),
        ("resume_pool", Settings::default(), |b, s, _| {
            let asleep = b.engine.create_pool(PoolConfig::default());
            b.device.complete_all();
            b.engine.empty_cache().unwrap();
            b.engine.allocate(asleep, 24 * MIB, s).unwrap();
            b.engine.host().suspend_discarding_all(asleep).unwrap();
            b.use_once(20, s);
            assert_eq!(b.engine.host().resume_pool(asleep).unwrap(), 24 * MIB);
        }),
        ("empty_cache_waiting", Settings::default(), |b, _, _| {
            assert!(b.engine.host().empty_cache_waiting().unwrap().released >= 20 * MIB);
        }),
        ("empty_pool", Settings::default(), |b, _, _| {
            assert!(b.engine.host().empty_pool(b.pool, true).unwrap() >= 20 * MIB);
        }),
        ("free without caching", Settings::default().caching(false), |b, s, t| {
            let block = b.block(4, s);
            b.engine.record_stream(block.id, t).unwrap();
            b.device.launch_kernel(t, Launch::default()).unwrap();
            b.engine.free(block.id).unwrap();
        }),
    ];
    for (name, settings, call) in calls {
        let caching = settings.caching;
        let (b, [s, t, other]) = Bench::new(40, settings).with_streams();
        let cached = b.engine.create_pool(PoolConfig::default());
        if caching {
            b.use_once(20, t);
        }
        b.in_next_wait(move |engine, _| {
            // One that the engine's lock is for, and one that the stream's cache has.
            for _ in 0..2 {
                let block = engine.allocate(cached, 4 * MIB, other).unwrap();
                engine.free(block.id).unwrap();
            }
            engine.statistics().unwrap();
        });
        call(&b, s, t);
        assert!(b.waits() > 0, "{name}");
    }
}

#[test]
fn a_request_whose_memory_another_thread_took_waits_for_that_too() {
    let (b, [s, t, thief]) = Bench::new(32, Settings::default()).with_streams();
    b.use_once(20, t);
    let pool = b.pool;
    b.in_next_wait(move |engine, device| {
        device.complete(t).unwrap();
        take(engine, device, pool, thief);
    });
    b.block(20, s);
    assert_eq!(b.waits(), 2);
    let counts = b.engine.statistics().unwrap().counts;
    assert_eq!((counts.num_alloc_retries, counts.num_ooms), (1, 0), "one request");
}

#[test]
fn a_request_fails_once_it_has_lost_its_memory_for_good() {
    let (b, [s, t, thief]) = Bench::new(32, Settings::default()).with_streams();
    b.use_once(20, t);
    let pool = b.pool;
    b.in_next_wait(move |engine, device| {
        device.complete(t).unwrap();
        engine.allocate(pool, 20 * MIB, thief).unwrap();
    });
    let refused = b.engine.allocate(b.pool, 20 * MIB, s).unwrap_err();
    assert_eq!(refused.out_of_memory().unwrap().allocated, 20 * MIB);
    assert_eq!(b.waits(), 1);
    let counts = b.engine.statistics().unwrap().counts;
    assert_eq!((counts.num_alloc_retries, counts.num_ooms), (1, 1));
}

/// Others that take what is waited for, again and again, do not hold a request for ever.
#[test]
fn a_request_waits_so_often_and_no_more() {
    let (b, [s, t, thief]) = Bench::new(32, Settings::default()).with_streams();
    b.use_once(20, t);
    let pool = b.pool;
    for _ in 0..100 {
        b.in_next_wait(move |engine, device| {
            device.complete_all();
            take(engine, device, pool, thief);
        });
    }
    assert!(b.engine.allocate(b.pool, 20 * MIB, s).unwrap_err().out_of_memory().is_some());
    assert!((2..100).contains(&b.waits()));
    b.device.complete_all();
    b.block(20, s);
}

#[test]
fn what_happens_to_a_pool_during_a_wait_counts() {
    let run = |act: fn(&Engine<Arc<SimDriver>>, PoolId)| {
        let (b, [s, t]) = Bench::new(32, Settings::default()).with_streams();
        b.use_once(20, t);
        let own = b.engine.create_pool(PoolConfig::default());
        b.in_next_wait(move |engine, _| act(engine, own));
        let refused = b.engine.allocate(own, 20 * MIB, s).unwrap_err();
        assert_eq!(b.waits(), 1);
        assert_eq!(b.engine.statistics().unwrap().all.allocated_bytes.current, 0);
        refused
    };
    let ended = run(|engine, pool| {
        engine.destroy_pool(pool).unwrap();
    });
    assert!(matches!(ended, Error::Unknown { what: Unknown::Pool(_), .. }), "{ended}");
    let limited = run(|engine, _| engine.set_memory_limit(Some(10 * MIB)).unwrap());
    assert_eq!(limited.out_of_memory().unwrap().engine_limit, Some(10 * MIB));
}

/// The stream that asks is in a capture by then, which waits for nothing.
#[test]
fn a_capture_that_begins_during_a_wait_is_served_as_one() {
    let (b, [s, t]) = Bench::new(64, Settings::default()).with_streams();
    b.use_once(40, t);
    let pool = b.pool;
    b.in_next_wait(move |_, device| device.begin_capture(s, CaptureMode::Relaxed).unwrap());
    b.block(40, s);
    assert_eq!(b.waits(), 1);
    let CaptureStatus::Active { capture, .. } = b.device.capture_of(s).unwrap() else { panic!() };
    let graph = b.device.end_capture(s).unwrap();
    assert_eq!(b.engine.end_capture(capture, graph).unwrap().blocks, 1);
    assert!(b.engine.pool_statistics(pool).unwrap().blocks > 0);
}

/// Events that have completed are used again, but none that a thread waits for.
#[test]
fn no_event_is_recorded_while_a_thread_waits_for_it() {
    let (b, [s, t, other]) = Bench::new(32, Settings::default()).with_streams();
    let small = b.engine.create_pool(PoolConfig::default());
    b.use_once(20, t);
    let (send, later) = channel();
    b.in_next_wait(move |engine, device| {
        device.complete_all();
        for _ in 0..4 {
            let block = engine.allocate(small, 2 * MIB, other).unwrap();
            device.launch_kernel(other, Launch::default()).unwrap();
            send.send(device.record(other).unwrap()).unwrap();
            engine.free(block.id).unwrap();
            engine.mark_stream(other).unwrap();
            // What has completed is noted, and its event is free for the next mark.
            engine.trim(u64::MAX).unwrap();
        }
    });
    b.block(20, s);
    // A wait for an event that was recorded meanwhile would be one for this work.
    assert!(later.iter().all(|work| !b.device.is_complete(work).unwrap()));
    assert!(b.waits() > 0);
}

/// A capture makes its layout with other threads at work, and follows it.
#[test]
fn others_go_on_while_a_layout_is_made() {
    const BLOCKS: u64 = 1_500;
    let (b, [s]) = Bench::new(4 << 10, Settings::default()).with_streams();
    let sizes = || (0..BLOCKS).map(|n| (1 + n * n % 37) * 40_960);
    let run = |pool: PoolId| {
        let mut live = VecDeque::new();
        for bytes in sizes() {
            live.push_back(b.engine.allocate(pool, bytes, s).unwrap());
            b.device.launch_kernel(s, Launch::default()).unwrap();
            if live.len() > 40 {
                b.engine.free(live.pop_front().unwrap().id).unwrap();
            }
        }
        live.into_iter().for_each(|block| b.engine.free(block.id).unwrap());
    };
    b.engine.plans().learn().unwrap();
    run(b.engine.create_pool(PoolConfig::default()));
    assert_eq!(b.engine.plans().learned().unwrap() as u64, BLOCKS);
    b.device.complete_all();
    b.device.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let capture = b.engine.begin_capture(b.pool, s).unwrap();
    let ask = || b.engine.allocate(b.pool, sizes().next().unwrap(), s).unwrap();
    let first = b.beside(ask);
    b.engine.free(first.id).unwrap();
    let graph = b.device.end_capture(s).unwrap();
    let report = b.engine.end_capture(capture, graph).unwrap();
    let layout = report.layout.unwrap();
    assert_eq!((layout.planned as u64, layout.followed), (BLOCKS, 1));
}

#[test]
fn others_go_on_while_a_snapshot_is_brought_into_form() {
    const EVENTS: usize = 40_000;
    let (b, [s]) = Bench::new(64, Settings::default()).with_streams();
    b.engine.keep_history(&HistoryOptions::latest(EVENTS)).unwrap();
    for _ in 0..EVENTS {
        let block = b.block(1, s);
        b.engine.free(block.id).unwrap();
    }
    let snapshot = b.beside(|| b.engine.snapshot().unwrap());
    assert_eq!(snapshot.device_traces[0].len(), EVENTS);
}

/// What blocks are live by its segments are live by its history too, whatever threads do meanwhile.
#[test]
fn a_snapshot_is_of_one_moment() {
    let b = Bench::new(4 << 10, Settings::default());
    b.engine.keep_history(&HistoryOptions::latest(1 << 20)).unwrap();
    let running = Arc::new(AtomicUsize::new(3));
    let threads = [1, 2, 3].map(|seed| {
        let (engine, device, running) = (b.engine.clone(), b.device.clone(), running.clone());
        let pool = b.pool;
        thread::spawn(move || {
            let stream = device.create_stream().unwrap();
            let mut live = VecDeque::new();
            for n in 0..1_500_u64 {
                // Most sizes come again, so stream caches serve them.
                let bytes = (1 + n * seed % 7) * 100_000;
                live.push_back(engine.allocate(pool, bytes, stream).unwrap().id);
                if live.len() as u64 > n % 5 {
                    engine.free(live.pop_front().unwrap()).unwrap();
                }
            }
            running.fetch_sub(1, Ordering::SeqCst);
        })
    });
    let mut snapshots = 0;
    while running.load(Ordering::SeqCst) > 0 || snapshots < 3 {
        let snapshot = b.engine.snapshot().unwrap();
        snapshots += 1;
        let mut live = BTreeMap::new();
        for entry in &snapshot.device_traces[0] {
            let change = match entry.action {
                Action::Alloc => 1,
                Action::FreeRequested => -1,
                _ => continue,
            };
            *live.entry(entry.addr.unwrap()).or_insert(0) += change;
        }
        let by_history: BTreeSet<u64> = live
            .into_iter()
            .filter_map(|(address, count)| (count == 1).then_some(address))
            .collect();
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let blocks = blocks.filter(|block| block.state == BlockState::ActiveAllocated);
        let by_segments: BTreeSet<u64> = blocks.map(|block| block.address).collect();
        assert_eq!(by_segments, by_history, "snapshot {snapshots}");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A history keeps the latest events, as many as it is to keep, however they are stored.
#[test]
fn a_history_keeps_the_latest_events() {
    let tell = |entries: usize, then: usize| {
        let (b, [s]) = Bench::new(4 << 10, Settings::default()).with_streams();
        b.engine.keep_history(&HistoryOptions::latest(entries)).unwrap();
        let mut live = VecDeque::new();
        for n in 0..900_u64 {
            live.push_back(b.engine.allocate(b.pool, (1 + n % 11) * 50_000, s).unwrap().id);
            if n % 3 > 0 {
                b.engine.free(live.pop_front().unwrap()).unwrap();
            }
            if n == 600 {
                // An earlier snapshot shares what is kept.
                b.engine.snapshot().unwrap();
            }
        }
        if then < entries {
            b.engine.keep_history(&HistoryOptions::latest(then).clear(false)).unwrap();
        }
        let trace = b.engine.snapshot().unwrap().device_traces.remove(0);
        trace.iter().map(|entry| (entry.action, entry.size)).collect::<Vec<_>>()
    };
    let all = tell(1 << 20, 1 << 20);
    assert!(all.len() > 1_500);
    for entries in [1, 2, 40, 255, 256, 257, 511, 513, 1_000] {
        for then in [1, 39, 256, 300, 1_000] {
            let told = tell(entries, then);
            assert_eq!(told.len(), entries.min(then));
            assert!(all.ends_with(&told), "the latest {then} of {entries}");
        }
    }
}
