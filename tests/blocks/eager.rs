//! What the engine promises of work outside captures, one promise a test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::overtaken::Overtaken;
use crate::common::{bench, bench_on, Bench, MIB};
use regraph::driver::{CaptureMode, Driver, ErrorKind, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{
    Block, Config, Counts, Engine, Error, OutOfMemory, PoolConfig, Refusal, StreamRefusal,
};
use regraph::settings::{Rounding, Settings};
use regraph_sim::{Call, Launch, SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

const MAPPED: MemorySupport = MemorySupport::Mapped { granularity: 2 * MIB };

/// A device of so many MiB.
fn tight(mib: u64, settings: Settings) -> Bench {
    let device = SimConfig { total_bytes: mib * MIB, support: MAPPED };
    bench_on(device, Config::default().settings(settings))
}

impl Bench {
    fn block(&self, mib: u64, stream: StreamHandle) -> Block {
        self.engine.allocate(self.pool, mib * MIB, stream).unwrap()
    }

    /// Allocates, works and frees.
    fn use_once(&self, mib: u64, stream: StreamHandle) -> Block {
        let block = self.block(mib, stream);
        self.launch_and_free(stream, block);
        block
    }

    fn counts(&self) -> Counts {
        self.engine.statistics().unwrap().counts
    }

    fn refused(&self, mib: u64, stream: StreamHandle) -> Box<OutOfMemory> {
        match self.engine.allocate(self.pool, mib * MIB, stream) {
            Err(Error::OutOfMemory(report)) => report,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_has_its_own_block_back_at_once() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let first = b.use_once(4, s);
    let calls = b.driver.total_calls();
    let second = b.block(4, s);
    assert_eq!(second.address, first.address);
    assert_ne!(second.id, first.id);
    assert_eq!(b.driver.total_calls(), calls + 1, "one look at the capture status and no more");
}

/// Free memory first, then growth, then what is wholly free goes back for growth, then the host waits for all streams.
#[test]
fn a_shortage_is_met_step_by_step() {
    let (b, [s, t]) = tight(32, Settings::default().expandable_segments(false)).with_streams();
    // Free for everyone, so nothing else happens.
    let old = b.use_once(10, s);
    b.driver.complete_all();
    assert_eq!(b.block(10, t).address, old.address);
    assert_eq!(b.counts(), counts(|it| it.num_device_alloc = 1));
    let other = b.use_once(10, s);
    assert_eq!(b.counts().num_device_alloc, 2);
    b.driver.complete_all();
    // Neither large enough nor room for one more: what is free goes back, and no call waits.
    let large = b.block(20, t);
    assert_ne!(large.address, other.address);
    let expected = counts(|it| {
        it.num_device_alloc = 3;
        it.num_device_free = 1;
        it.num_alloc_retries = 1;
    });
    assert_eq!(b.counts(), expected);
    assert_eq!(b.driver.calls(Call::SynchronizeEvent), 0);
    // Another stream's work must be waited for.
    b.launch_and_free(t, large);
    let waited = b.block(20, s);
    assert_eq!(waited.address, large.address);
    let after = b.counts();
    assert!(after.num_sync_all_streams > 0);
    assert_eq!((after.num_alloc_retries, after.num_ooms), (2, 0));
    // Nothing is left to try.
    b.refused(20, s);
    assert_eq!((b.counts().num_alloc_retries, b.counts().num_ooms), (3, 1));
    b.engine.reset_accumulated().unwrap();
    assert_eq!(b.counts(), counts(|_| ()));
}

fn counts(change: impl FnOnce(&mut Counts)) -> Counts {
    let mut counts = Counts::default();
    change(&mut counts);
    counts
}

#[test]
fn no_thread_waits_for_work_for_the_sake_of_a_capture() {
    let (b, [c, s]) = tight(16, Settings::default()).with_streams();
    b.use_once(12, s);
    let capture = b.begin(c);
    let report = b.refused(12, c);
    assert!(report.capturing && report.waiting >= 12 * MIB);
    assert_eq!(b.driver.calls(Call::SynchronizeEvent), 0);
    b.driver.complete(s).unwrap();
    b.block(12, c);
    b.finish(c, capture);
}

#[test]
fn an_observer_is_told_once_and_may_call_the_engine() {
    let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: 8 * MIB, support: MAPPED }));
    let engine = Arc::new(Engine::new(driver.clone(), Config::default()));
    let pool = engine.create_pool(PoolConfig::default());
    let s = driver.create_stream().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let (seen, inner) = (told.clone(), Arc::downgrade(&engine));
    engine.observe_out_of_memory(move |report| {
        assert_eq!(report.requested, 32 * MIB);
        let engine = inner.upgrade().unwrap();
        engine.statistics().unwrap();
        engine.empty_cache().unwrap();
        let block = engine.allocate(pool, MIB, report.stream).unwrap();
        engine.free(block.id).unwrap();
        seen.fetch_add(1, Ordering::Relaxed);
    });
    for count in 1..3 {
        assert!(matches!(engine.allocate(pool, 32 * MIB, s), Err(Error::OutOfMemory(_))));
        assert_eq!(told.load(Ordering::Relaxed), count);
    }
}

/// The last resort is the caller's, outside the engine's lock; what succeeds after it has not failed.
#[test]
fn what_a_last_resort_saves_is_not_counted() {
    let (b, [s]) = tight(16, Settings::default()).with_streams();
    let told = Arc::new(AtomicUsize::new(0));
    let seen = told.clone();
    b.engine.observe_out_of_memory(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
    });
    let capture = b.begin(s);
    let block = b.block(12, s);
    b.launch_and_free(s, block);
    let graph = b.finish(s, capture).graph;
    let other = b.engine.create_pool(PoolConfig::default());
    let release = || b.engine.release_graph(graph).is_ok();
    b.engine.host().allocate_or_release(other, 12 * MIB, s, release).unwrap();
    assert_eq!((told.load(Ordering::Relaxed), b.counts().num_ooms), (0, 0));
    // Asked once, and believed: then it failed, and once.
    let mut asked = 0;
    let ask = || {
        asked += 1;
        true
    };
    let failed = b.engine.host().allocate_or_release(other, 12 * MIB, s, ask);
    assert!(matches!(failed, Err(Error::OutOfMemory(_))), "{failed:?}");
    assert_eq!((asked, told.load(Ordering::Relaxed), b.counts().num_ooms), (1, 1, 1));
}

#[test]
fn out_of_memory_is_told_in_units_that_fit() {
    let (b, [s]) = tight(2, Settings::default()).with_streams();
    b.engine.allocate(b.pool, 2 * MIB, s).unwrap();
    for (bytes, text) in
        [(4096, "4 KiB"), (700, "700 bytes"), (1 << 30, "1 GiB"), (1536, "1.50 KiB")]
    {
        let error = b.engine.allocate(b.pool, bytes, s).unwrap_err().to_string();
        let begin = format!("out of memory: {text} requested");
        assert!(error.starts_with(&begin), "{error}");
        assert!(error.contains("in units of 2 MiB"), "{error}");
        // There is no limit to raise and nothing to wait for.
        let advice = match bytes > 2 * MIB {
            true => "that is more than the device has",
            false => "free blocks, destroy or suspend pools",
        };
        assert!(error.contains(advice), "{error}");
    }
}

#[test]
fn a_share_that_is_no_number_is_no_limit() {
    let settings = Settings::default().memory_fraction(Some(f64::NAN));
    assert!(settings.validate().is_err());
    let settings = settings.garbage_collection_threshold(Some(f64::NAN));
    let (b, [s]) = tight(64, settings).with_streams();
    assert_eq!(b.engine.memory_limit().unwrap(), None);
    b.block(8, s);
}

#[test]
fn out_of_memory_names_every_figure() {
    let (b, [s, t]) =
        tight(64, Settings::default().memory_limit_bytes(Some(40 * MIB))).with_streams();
    let pool = b.engine.create_pool(PoolConfig::default().max_bytes(30 * MIB));
    let allocate = |mib, stream| b.engine.allocate(pool, mib * MIB, stream).unwrap();
    allocate(6, s);
    let gap = allocate(4, s);
    allocate(8, s);
    allocate(2, t);
    b.engine.free(gap.id).unwrap();
    let Err(Error::OutOfMemory(report)) = b.engine.allocate(pool, 26 * MIB, s) else { panic!() };
    assert_eq!((report.requested, report.stream, report.pool.id), (26 * MIB, s, pool));
    assert_eq!((report.limit, report.engine_limit), (Some(30 * MIB), Some(40 * MIB)));
    assert_eq!((report.allocated, report.engine_allocated), (16 * MIB, 16 * MIB));
    assert_eq!(report.reserved - report.allocated, report.takeable + report.waiting);
    let text = report.to_string();
    let device = b.driver.memory_info().unwrap();
    let figures = [26, 40, 30, 16, device.free / MIB, device.total / MIB, report.reserved / MIB];
    for figure in figures {
        assert!(text.contains(&format!("{figure} MiB")), "{figure} is missing: {text}");
    }
    assert!(text.contains("memory_limit_mb"), "{text}");
}

#[test]
fn limits_hold_over_all_pools_and_can_be_moved() {
    let (b, [s]) =
        tight(256, Settings::default().memory_limit_bytes(Some(16 * MIB))).with_streams();
    let other = b.engine.create_pool(PoolConfig::default());
    b.block(10, s);
    assert!(matches!(b.engine.allocate(other, 8 * MIB, s), Err(Error::OutOfMemory(_))));
    b.engine.allocate(other, 6 * MIB, s).unwrap();
    b.engine.set_memory_limit(None).unwrap();
    b.engine.allocate(other, 8 * MIB, s).unwrap();
    b.engine.set_memory_fraction(0.125).unwrap();
    assert_eq!(b.engine.memory_limit().unwrap(), Some(32 * MIB));
    for fraction in [f64::NAN, -0.5, 1.5, f64::INFINITY] {
        let refused = b.engine.set_memory_fraction(fraction);
        assert!(matches!(refused, Err(Error::MemoryFraction { .. })), "{fraction}: {refused:?}");
    }
    assert_eq!(b.engine.memory_limit().unwrap(), Some(32 * MIB));
    b.refused(12, s);
    b.block(8, s);
    assert_eq!(b.engine.statistics().unwrap().all.reserved_bytes.current, 32 * MIB);
}

#[test]
fn a_fraction_and_a_limit_both_hold() {
    let settings = Settings::default().memory_fraction(Some(0.5));
    let b = tight(64, settings.clone());
    assert_eq!(b.engine.memory_limit().unwrap(), Some(32 * MIB));
    let b = tight(64, settings.memory_limit_bytes(Some(24 * MIB)));
    assert_eq!(b.engine.memory_limit().unwrap(), Some(24 * MIB));
}

#[test]
fn without_caching_every_block_is_an_allocation_of_its_own() {
    for support in [MAPPED, MemorySupport::Allocated] {
        let rounding = Rounding::uniform(8).unwrap();
        let settings = Settings::default().caching(false).rounding(rounding);
        let device = SimConfig { total_bytes: 64 * MIB, support };
        let (b, [s]) = bench_on(device, Config::default().settings(settings)).with_streams();
        let first = b.engine.allocate(b.pool, 1000, s).unwrap();
        let second = b.engine.allocate(b.pool, 9 * MIB + 1, s).unwrap();
        assert_eq!(b.driver.calls(Call::Allocate), 2);
        assert_eq!(b.driver.used_bytes(), 1024 + 9 * MIB + 512, "no rounding in steps");
        let statistics = b.engine.statistics().unwrap().all;
        assert_eq!(statistics.reserved_bytes.current, b.driver.used_bytes());
        b.launch_and_free(s, first);
        assert!(b.driver.read_tags(first.address, 512).is_err(), "gone at once");
        assert_eq!(b.driver.calls(Call::Free), 1);
        b.engine.free(second.id).unwrap();
        assert_eq!((b.driver.used_bytes(), b.reserved()), (0, 0));
        b.driver.synchronize().unwrap();
    }
}

/// A driver where streams get handles again that others had, with one of them.
fn renewing() -> (Bench, StreamHandle) {
    let b = bench(Config::default());
    b.driver.give_streams_again();
    let [stream] = b.streams();
    (b, stream)
}

#[test]
fn a_retired_streams_block_can_be_used_by_the_next_of_that_name() {
    let (b, stream) = renewing();
    let live = b.allocate(stream);
    b.engine.retire_stream(stream).unwrap();
    b.driver.destroy_stream(stream).unwrap();
    assert_eq!(b.streams(), [stream]);
    b.launch(stream);
    b.engine.record_stream(live.id, stream).unwrap();
    b.engine.free(live.id).unwrap();
    let [other] = b.streams();
    assert_ne!(b.allocate(other).address, live.address, "the new stream's work is still running");
}

/// Found by random programs: the engine asked about a stream that was gone.
#[test]
fn a_block_outlives_its_stream() {
    let (b, stream) = renewing();
    let live = b.allocate(stream);
    b.engine.retire_stream(stream).unwrap();
    b.driver.destroy_stream(stream).unwrap();
    let asked = b.driver.calls(Call::CaptureStatus);
    assert_eq!(b.engine.leaks().unwrap().len(), 1);
    b.engine.free(live.id).unwrap();
    b.engine.destroy_pool(b.pool).unwrap();
    assert_eq!((b.driver.used_bytes(), b.driver.calls(Call::CaptureStatus)), (0, asked));
}

/// The block was taken for one of a stream that is gone, and freed behind what the stream held at the refusal.
#[test]
fn a_stream_that_could_not_be_retired_goes_on_with_its_blocks() {
    let (b, [s, t], capture) = bench(Config::default()).capturing();
    b.launch(s);
    b.finish(s, capture);
    let block = b.block(4, s);
    // The last question, behind the mark.
    b.driver.fail_nth(Call::CaptureStatus, 2, ErrorKind::NotSupported);
    let refused = b.engine.retire_stream(s);
    assert!(matches!(refused, Err(Error::Stream { why: StreamRefusal::InUse, .. })), "{refused:?}");
    b.launch_and_free(s, block);
    assert_ne!(b.block(4, t).address, block.address, "the stream's work is still running");
}

#[test]
fn the_per_thread_default_stream_is_refused() {
    const PER_THREAD: StreamHandle = StreamHandle::from_bits(2);
    let (b, [s]) = bench(Config::default()).with_streams();
    let block = b.block(4, s);
    let refused = [
        b.engine.allocate(b.pool, 512, PER_THREAD).map(|_| ()),
        b.engine.record_stream(block.id, PER_THREAD),
        b.engine.record_use(block.id, PER_THREAD),
        b.engine.mark_stream(PER_THREAD),
        b.engine.retire_stream(PER_THREAD),
        b.engine.begin_capture(b.pool, PER_THREAD).map(drop),
        b.engine.observe(PER_THREAD),
        b.engine.explain(b.pool, PER_THREAD).map(drop),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::Stream { why: StreamRefusal::PerThread, .. })));
    }
    b.engine.free(block.id).unwrap();
}

/// As where another thread captured on the stream beside the record of the event.
#[test]
fn a_wait_for_the_device_covers_a_stream_that_is_gone_and_whose_event_was_captured() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let block = b.block(4, s);
    b.launch_and_free(s, block);
    b.engine.mark_stream(s).unwrap();
    b.engine.retire_stream(s).unwrap();
    b.driver.fail_nth(Call::QueryEvent, 0, ErrorKind::InvalidValue);
    let asked = b.driver.calls(Call::CaptureStatus);
    assert!(b.engine.host().awaits_other_threads().unwrap());
    assert_eq!(
        b.driver.calls(Call::CaptureStatus),
        asked,
        "of a stream that is gone nothing is asked"
    );
    assert_ne!(b.block(4, t).address, block.address);
    assert!(b.engine.wait_for_device().unwrap());
    assert_eq!(b.block(4, t).address, block.address);
}

#[test]
fn both_names_of_the_legacy_stream_are_one_stream() {
    let b = bench(Config::default());
    let [zero, one] = [0, 1].map(StreamHandle::from_bits);
    let block = b.block(4, zero);
    b.launch_and_free(zero, block);
    assert_eq!(b.block(4, one).address, block.address);
}

/// A capture has split a range that work outside captures never splits: what is left of it is no fragment.
#[test]
fn a_report_calls_no_range_fragments_that_is_not_split() {
    let settings = Settings::default().expandable_segments(false).max_split_bytes(Some(20 << 20));
    let (b, [s]) = tight(80, settings).with_streams();
    let whole = b.block(64, s);
    b.engine.free(whole.id).unwrap();
    b.engine.mark_stream(s).unwrap();
    let capture = b.begin(s);
    let output = b.block(4, s);
    assert_eq!(output.address, whole.address);
    b.launch(s);
    b.finish(s, capture);
    let Err(Error::OutOfMemory(report)) = b.engine.allocate(b.pool, 30 * MIB, s) else { panic!() };
    assert_eq!((report.takeable, report.waiting, report.kept_by_graphs), (0, 0, 0));
    let [left] = &report.waits[..] else { panic!("{report}") };
    assert_eq!((left.bytes, &left.refusal), (60 * MIB, &Some(Refusal::NotSplit)));
}

#[test]
fn leaks_are_listed_with_their_origin() {
    let settings = Settings::default().stacks(true);
    let (b, [s]) = bench(Config::default().settings(settings).report_leaks(false)).with_streams();
    let kept = b.block(4, s);
    let freed = b.block(4, s);
    b.engine.free(freed.id).unwrap();
    let capture = b.begin(s);
    let output = b.block(6, s);
    b.launch(s);
    b.finish(s, capture);
    let leaks = b.engine.leaks().unwrap();
    let mut expected = [(kept.address, kept.id, 4 * MIB), (output.address, output.id, 6 * MIB)];
    expected.sort_unstable_by_key(|leak| leak.0);
    let found: Vec<_> = leaks.iter().map(|leak| (leak.address, leak.block, leak.bytes)).collect();
    assert_eq!(found, expected);
    for leak in &leaks {
        let named = |name| leak.origin.iter().any(|frame| frame.name.contains(name));
        assert!(named("leaks_are_listed_with_their_origin"), "{:?}", leak.origin);
        assert!(!leak.origin[0].name.contains("regraph::engine"));
        assert!(leak.to_string().contains("leaks_are_listed_with_their_origin"));
    }
}

/// What a front holds is taken back by other streams while its stream captures. Streams of other devices go on.
#[test]
fn a_wait_for_the_device_covers_its_own_streams() {
    let b = &bench(Config::default());
    let second = b.driver.add_device(SimConfig::default());
    let [s, mine] = b.streams();
    let elsewhere = second.create_stream().unwrap();
    // From now on no thread records an event on another one's stream.
    b.engine.host().may_capture(mine).unwrap();
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let second = &second;
        // Lives on without a request.
        scope.spawn(move || {
            let blocks = [elsewhere, s].map(|stream| b.block(4, stream));
            second.launch(elsewhere, Work::default(), false).unwrap();
            b.launch(s);
            blocks.iter().for_each(|block| b.engine.free(block.id).unwrap());
            done.send(blocks).unwrap();
            let _ = ended.recv();
        });
        let [running, completed] = is_done.recv().unwrap();
        assert!(b.engine.wait_for_device().unwrap());
        let [t] = b.streams();
        let next = [b.block(4, t), b.block(4, t)].map(|block| block.address);
        assert!(next.contains(&completed.address) && !next.contains(&running.address));
        drop(end);
    });
}

/// Work of the device may need a thread that asks or frees while it is waited for. What that frees then may be in use.
#[test]
fn others_go_on_while_the_device_is_waited_for() {
    let &(ref b, [t]) = &bench(Config::default()).with_streams();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (waits, is_waiting) = std::sync::mpsc::channel();
    let (freed, has_freed) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let has_freed = std::sync::Mutex::new(has_freed);
    b.driver.before("cuCtxSynchronize", move || {
        waits.send(()).unwrap();
        let has_freed = has_freed.lock().unwrap();
        let freed = has_freed.recv_timeout(std::time::Duration::from_secs(60));
        freed.expect("it waits for the engine");
    });
    std::thread::scope(|scope| {
        // Keeps its stream.
        scope.spawn(move || {
            // One stays between them: joined they would wait for the later one.
            let [first, _, second] = [(); 3].map(|()| b.block(4, t));
            b.launch(t);
            ready.send([first, second]).unwrap();
            is_waiting.recv().unwrap();
            b.block(64, t);
            b.launch_and_free(t, second);
            freed.send(()).unwrap();
            let _ = ended.recv();
        });
        let [first, second] = is_ready.recv().unwrap();
        b.engine.free(first.id).unwrap();
        assert!(b.engine.wait_for_device().unwrap());
        let [u] = b.streams();
        let next = [b.block(4, u), b.block(4, u)].map(|block| block.address);
        assert!(next.contains(&first.address), "it was freed before the wait");
        assert!(!next.contains(&second.address), "it was freed during the wait, and may be in use");
        drop(end);
    });
}

/// An engine that is dropped gives back what nothing uses.
#[test]
fn the_engines_end_gives_memory_back() {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let engine = Engine::new(driver.clone(), Config::default().report_leaks(false));
    let [idle, used] = [(); 2].map(|()| engine.create_pool(PoolConfig::default()));
    let s = driver.create_stream().unwrap();
    let block = engine.allocate(idle, 4 * MIB, s).unwrap();
    engine.free(block.id).unwrap();
    engine.allocate(used, 6 * MIB, s).unwrap();
    drop(engine);
    assert_eq!(driver.used_bytes(), 6 * MIB, "the block that was never freed stays");
}

/// Between the question whether a stream captures and the event that is recorded on it, another thread may begin a
/// capture there: the event is the capture's then, and a question about it would ruin that.
#[test]
fn an_event_that_a_capture_overtook_is_not_asked_about() {
    let sim = Arc::new(SimDriver::new(SimConfig::default()));
    let driver = Arc::new(Overtaken::new(sim.clone()));
    let [s, t] = [(); 2].map(|()| sim.create_stream().unwrap());
    let engine = Engine::new(driver.clone(), Config::default().report_leaks(false));
    let pool = engine.create_pool(PoolConfig::default());
    let block = engine.allocate(pool, 64 * MIB, s).unwrap();
    engine.record_stream(block.id, t).unwrap();
    driver.overtake(t);
    engine.free(block.id).unwrap();
    assert!(driver.is_capturing(t).unwrap());
    for _ in 0..3 {
        engine.allocate(pool, 64 * MIB, s).unwrap();
    }
    sim.end_capture(t).expect("the capture was not ruined");
}

/// Another thread has asked for memory on a stream and does nothing more, as autograd's between two steps: what this thread
/// has the stream use is free once that has run. Not so once any thread may capture.
#[test]
fn what_another_thread_s_stream_used_is_free_without_that_thread() {
    for captures in [false, true] {
        let (b, [own, other]) = bench(Config::default()).with_streams();
        std::thread::scope(|scope| {
            let (to_other, parked) = std::sync::mpsc::channel::<()>();
            let (to_main, named) = std::sync::mpsc::channel();
            let b = &b;
            scope.spawn(move || {
                b.use_once(2, other);
                if captures {
                    // Also where the stream that was announced has gone since, and another one has its row.
                    let [gone, next] = b.streams();
                    b.engine.host().may_capture(gone).unwrap();
                    b.engine.retire_stream(gone).unwrap();
                    b.engine.empty_cache().unwrap();
                    b.use_once(2, next);
                }
                to_main.send(()).unwrap();
                // Until the other end goes.
                parked.recv().unwrap_err();
            });
            named.recv().unwrap();
            let mut addresses = std::collections::BTreeSet::new();
            for _ in 0..8 {
                let block = b.block(64, own);
                addresses.insert(block.address);
                b.engine.record_stream(block.id, other).unwrap();
                b.launch_and_free(other, block);
                b.driver.complete_all();
            }
            assert_eq!(addresses.len(), if captures { 8 } else { 1 });
            b.engine.host().verify().unwrap();
            drop(to_other);
        });
    }
}

/// Of a stream whose context is gone nothing can be asked: what it used is free once the device has done all work, no
/// capture has anything to do with it, and the handle can be given up.
#[test]
fn what_a_stream_used_whose_context_is_gone_waits_for_the_device() {
    for retired in [false, true] {
        let (b, [stream, other]) = bench(Config::default()).with_streams();
        let own = [(); 3].map(|()| b.block(4, stream));
        let used = b.block(4, other);
        b.engine.record_stream(used.id, stream).unwrap();
        b.driver.launch_kernel(stream, Launch::default()).unwrap();
        b.engine.free(own[0].id).unwrap();
        b.driver.destroy_context_of(stream).unwrap();
        for block in [own[1], used] {
            b.engine.free(block.id).unwrap();
        }
        let refused = b.engine.allocate(b.pool, MIB, stream).unwrap_err();
        assert!(refused.to_string().contains("context is destroyed"), "{refused}");
        if retired {
            b.engine.retire_stream(stream).unwrap();
        }
        b.engine.free(own[2].id).unwrap();
        // Its work goes on.
        b.engine.empty_cache().unwrap();
        assert_eq!(b.driver.used_bytes(), 16 * MIB);
        let (graphs, capturing) =
            (b.engine.create_pool(PoolConfig::default()), b.driver.create_stream().unwrap());
        b.driver.begin_capture(capturing, CaptureMode::Relaxed).unwrap();
        let capture = b.engine.begin_capture(graphs, capturing).unwrap();
        b.engine.allocate(graphs, MIB, capturing).unwrap();
        b.end(capturing, capture);
        assert_eq!(b.engine.host().graph_count(b.pool).unwrap(), 0);
        assert!(b.engine.host().awaits_other_threads().unwrap());
        assert!(b.engine.wait_for_device().unwrap());
        assert_eq!(b.engine.empty_cache().unwrap().waiting, 0);
        assert_eq!(b.engine.pool_statistics(b.pool).unwrap().reserved, 0);
        if !retired {
            b.engine.retire_stream(stream).unwrap();
        }
        b.engine.host().verify().unwrap();
        b.engine.destroy_pool(b.pool).unwrap();
    }
}

/// The engine meets the stream at the free, when the driver cannot tell its device any more.
#[test]
fn what_a_stream_used_that_was_never_named_while_its_context_lived_waits_for_the_device() {
    let (b, [own, other]) = bench(Config::default()).with_streams();
    let used = b.block(4, own);
    b.engine.record_stream(used.id, other).unwrap();
    b.driver.launch_kernel(other, Launch::default()).unwrap();
    b.driver.destroy_context_of(other).unwrap();
    b.engine.free(used.id).unwrap();
    assert_eq!(b.engine.empty_cache().unwrap().reserved, 4 * MIB);
    assert!(b.engine.wait_for_device().unwrap());
    assert_eq!(b.engine.empty_cache().unwrap().reserved, 0);
    b.engine.retire_stream(other).unwrap();
    b.engine.destroy_pool(b.pool).unwrap();
}

/// The stream's order was all that told of its work until it was given up.
#[test]
fn what_a_given_up_stream_had_freed_waits_for_the_device_where_its_context_is_gone() {
    let (b, [stream]) = bench(Config::default()).with_streams();
    b.use_once(4, stream);
    b.driver.destroy_context_of(stream).unwrap();
    b.engine.retire_stream(stream).unwrap();
    b.engine.host().verify().unwrap();
    assert_eq!(b.engine.empty_cache().unwrap().reserved, 4 * MIB);
    assert!(b.engine.wait_for_device().unwrap());
    assert_eq!(b.engine.empty_cache().unwrap().reserved, 0);
}

/// Inside a green context the default stream's handle means that context's, of whose work no event here tells.
#[test]
fn what_is_freed_beside_another_context_waits_for_the_device() {
    let b = bench(Config::default());
    let ([other], legacy) = (b.streams(), StreamHandle::from_bits(0));
    let [cached, shared] = [(); 2].map(|()| b.block(4, legacy));
    b.engine.record_stream(shared.id, other).unwrap();
    b.driver.set_elsewhere(true);
    for block in [cached, shared] {
        b.engine.free(block.id).unwrap();
    }
    let refused = b.engine.allocate(b.pool, 4 * MIB, legacy).unwrap_err();
    let is_told = matches!(&refused, Error::Driver(error) if error.kind == ErrorKind::OtherContext);
    assert!(is_told && refused.to_string().contains("green context"), "{refused}");
    let beside = b.block(4, other);
    // Recorded there, the handle names a stream that the engine knows nothing of.
    let recorded = b.engine.record_stream(beside.id, legacy).unwrap_err();
    assert!(recorded.to_string().contains("green context"), "{recorded}");
    b.engine.record_use(beside.id, legacy).unwrap_err();
    b.driver.set_elsewhere(false);
    // The legacy stream is idle, and an event on it is reached at once: none is recorded, for another block either.
    let late = b.block(4, other);
    b.engine.record_stream(late.id, legacy).unwrap();
    b.engine.free(late.id).unwrap();
    b.engine.retire_stream(legacy).unwrap_err();
    b.driver.complete_all();
    let used = [cached.address, shared.address];
    for stream in [legacy, other] {
        let next: Vec<_> = (0..2).map(|_| b.block(4, stream)).collect();
        assert!(next.iter().chain([&beside]).all(|block| !used.contains(&block.address)));
        b.engine.host().verify().unwrap();
    }
    assert!(b.engine.wait_for_device().unwrap());
    let next = [(); 3].map(|()| b.block(4, legacy).address);
    assert!(used.iter().all(|address| next.contains(address)), "they are no graph's");
    // And all is as it was.
    let mine = b.use_once(6, legacy);
    b.driver.complete_all();
    assert_eq!(b.block(6, other).address, mine.address);
}
