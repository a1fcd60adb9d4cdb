//! Pools that the host makes by name, as `torch.cuda.MemPool`, through the plug-in.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::common::deref;
use regraph::driver::{DriverError, ErrorKind, HostApi, MemorySupport, Source, StreamHandle};

use regraph::engine::{self, Config};
use regraph::settings::Settings;
use regraph::snapshot::Action;
use regraph_plugin::{Error, Happening, PoolKey};
use regraph_sim::{Call, SimConfig, SimDriver};

const MIB: u64 = 1 << 20;
/// As PyTorch names those that a user makes.
const POOL: PoolKey = (0, 1);
const OTHER: PoolKey = (0, 2);

/// Counts in MiB.
struct Host(super::host::Host);

deref!(Host.0 as super::host::Host);

fn host(settings: &str) -> Host {
    host_on(SimConfig::default(), settings)
}

/// A host that has made the pool, and a stream.
fn made(settings: &str) -> (Host, StreamHandle) {
    let (host, [stream]) = host(settings).with_streams();
    host.make(POOL);
    (host, stream)
}

fn host_on(device: SimConfig, settings: &str) -> Host {
    let config = Config::default().settings(Settings::parse(settings).unwrap());
    Host(super::host::host_on(&Arc::new(SimDriver::new(device)), config))
}

impl Host {
    fn with_streams<const N: usize>(self) -> (Self, [StreamHandle; N]) {
        let streams = [(); N].map(|()| self.stream());
        (self, streams)
    }

    fn allocate(&self, mebibytes: u64, stream: StreamHandle) -> u64 {
        self.plugin.allocate(mebibytes * MIB, 0, stream).unwrap()
    }

    fn fails(&self, mebibytes: u64, stream: StreamHandle) -> bool {
        let asked = self.plugin.allocate(mebibytes * MIB, 0, stream);
        asked.is_err_and(|error| error.out_of_memory().is_some())
    }

    /// `torch.cuda.MemPool(...)`.
    fn make(&self, key: PoolKey) {
        self.plugin.create_or_incref_pool(0, key, None).unwrap();
    }

    fn make_from(&self, key: PoolKey, source: &Arc<Memory>) {
        let source: Arc<dyn Source> = Arc::clone(source) as _;
        self.plugin.create_or_incref_pool(0, key, Some(source)).unwrap();
    }

    /// Its end.
    fn drop_pool(&self, key: PoolKey) {
        self.plugin.release_pool(0, key).unwrap();
        self.plugin.empty_pool(key).unwrap();
    }

    /// `with torch.cuda.use_mem_pool(...)`.
    fn within<R>(&self, key: PoolKey, run: impl FnOnce() -> R) -> R {
        self.plugin.begin_thread_pool(0, key).unwrap();
        let result = run();
        self.plugin.end_pool(0, key).unwrap();
        self.plugin.release_pool(0, key).unwrap();
        result
    }

    fn reserved(&self) -> u64 {
        self.0.reserved() / MIB
    }

    fn held_by(&self, key: PoolKey) -> u64 {
        self.0.held_by(key) / MIB
    }

    fn capture(&self, stream: StreamHandle, key: PoolKey, body: impl FnOnce()) {
        self.announce(stream, key, true);
        body();
        self.finish(stream, key);
    }
}

/// Memory of a host's own.
#[derive(Debug)]
struct Memory {
    next: Mutex<u64>,
    live: Mutex<Vec<(u64, u64)>>,
    freed: Mutex<Vec<u64>>,
    /// How much it has, in bytes.
    room: u64,
    step: u64,
}

impl Memory {
    fn new(room: u64) -> Arc<Self> {
        Self::with_step(room, 1 << 30)
    }

    fn with_step(room: u64, step: u64) -> Arc<Self> {
        Arc::new(Self {
            next: Mutex::new((1 << 50) + step % 512),
            live: Mutex::default(),
            freed: Mutex::default(),
            room,
            step: step - step % 512,
        })
    }

    fn held(&self) -> u64 {
        self.live.lock().unwrap().iter().map(|row| row.1).sum::<u64>() / MIB
    }
}

impl Source for Memory {
    fn allocate(&self, bytes: u64, _: StreamHandle) -> Result<u64, DriverError> {
        if self.held() * MIB + bytes > self.room {
            return Err(DriverError::new("memory", 2, ErrorKind::OutOfMemory));
        }
        let mut next = self.next.lock().unwrap();
        let address = *next;
        *next += self.step;
        self.live.lock().unwrap().push((address, bytes));
        Ok(address)
    }

    fn free(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut live = self.live.lock().unwrap();
        let row = live.iter().position(|&row| row == (address, bytes)).expect("given, and once");
        live.remove(row);
        self.freed.lock().unwrap().push(address);
        Ok(())
    }
}

#[test]
fn threads_end_their_own_routes_in_any_order() {
    let (h, s) = made("");
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let earlier = scope.spawn(|| {
            h.within(POOL, || {
                barrier.wait();
                barrier.wait();
                h.allocate(4, s);
            });
        });
        barrier.wait();
        h.within(POOL, || {
            barrier.wait();
            earlier.join().unwrap();
            h.allocate(6, s);
        });
        h.allocate(8, s);
    });
    assert_eq!((h.held_by(POOL), h.reserved()), (10, 18));
    // One thread ends what another has begun, and the other one's requests are eager again.
    h.plugin.begin_thread_pool(0, OTHER).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| h.plugin.end_pool(0, OTHER).unwrap());
    });
    h.allocate(2, s);
    assert_eq!(h.held_by(OTHER), 0);
}

/// PyTorch strands this memory.
#[test]
fn what_outlives_its_pool_serves_eager_work_and_goes() {
    let (h, s) = made("");
    let (first, second) = h.within(POOL, || (h.allocate(8, s), h.allocate(8, s)));
    h.drop_pool(POOL);
    assert_eq!(h.reserved(), 16);
    h.free(first);
    let eager = h.allocate(8, s);
    assert_eq!((eager, h.reserved()), (first, 16), "no more memory is had");
    h.free(eager);
    assert_eq!(h.allocate(8, s), eager);
    h.free(eager);
    h.free(second);
    h.driver.complete_all();
    h.plugin.empty_cache().unwrap();
    assert_eq!(h.reserved(), 0);
    assert_eq!(h.plugin.pools(0).unwrap().len(), 1, "the pool is gone");
}

#[test]
fn what_outlives_its_pool_goes_when_another_is_made() {
    let (h, s) = made("");
    let block = h.within(POOL, || h.allocate(8, s));
    h.drop_pool(POOL);
    h.free(block);
    h.driver.complete_all();
    h.make(OTHER);
    assert_eq!(h.reserved(), 0);
}

#[test]
fn eager_requests_take_from_a_pool_before_they_fail_if_it_lets_them() {
    let (h, [s]) = host("memory_limit_mb:80").with_streams();
    for (key, on) in [(POOL, true), (OTHER, false)] {
        h.make(key);
        h.plugin.set_use_on_oom(0, key, on).unwrap();
    }
    let kept = h.within(OTHER, || h.allocate(40, s));
    let lent = h.within(POOL, || h.allocate(40, s));
    assert!(h.fails(30, s));
    h.free(kept);
    h.free(lent);
    let borrowed = h.allocate(30, s);
    assert_eq!(borrowed, lent);
    assert!(h.fails(30, s), "the other pool lends nothing");
    h.free(borrowed);
    assert_eq!(h.within(POOL, || h.allocate(20, s)), lent);
    h.free(lent);
    h.plugin.set_use_on_oom(0, POOL, false).unwrap();
    assert!(h.fails(30, s));
    h.drop_pool(POOL);
    h.drop_pool(OTHER);
    assert!(!h.fails(80, s));
}

#[test]
fn a_pool_that_does_not_split_hands_out_whole_segments() {
    for settings in ["", "expandable_segments:False"] {
        let (h, s) = made(settings);
        h.plugin.set_no_split(0, POOL).unwrap();
        h.plugin.set_no_split(0, POOL).unwrap();
        let all = h.within(POOL, || {
            assert!(matches!(h.plugin.set_no_split(0, POOL), Ok(())));
            [h.allocate(6, s), h.allocate(4, s), h.plugin.allocate(100, 0, s).unwrap()]
        });
        assert_eq!(h.held_by(POOL), 12);
        for address in all {
            h.free(address);
        }
        h.within(POOL, || {
            let fits = [h.allocate(1, s), h.allocate(3, s), h.allocate(3, s)];
            assert_eq!(fits, [all[2], all[1], all[0]]);
            assert!(![all[1] + 3 * MIB, all[0] + 3 * MIB].contains(&h.allocate(1, s)));
        });
        let segments = h.plugin.snapshot().unwrap().segments;
        assert!(segments.iter().all(|segment| segment.blocks.len() == 1));
        h.make(OTHER);
        h.within(OTHER, || {
            assert!(matches!(h.plugin.set_no_split(0, OTHER), Err(Error::PoolBegun { .. })));
            h.allocate(1, s);
        });
        let refused = h.plugin.set_no_split(0, OTHER);
        assert!(matches!(
            refused,
            Err(Error::Engine(engine::Error::Pool { why: engine::PoolRefusal::InUse { .. }, .. }))
        ));
    }
}

#[test]
fn all_memory_of_a_pool_with_a_source_comes_from_there_and_goes_back() {
    for support in [MemorySupport::Mapped { granularity: 2 * MIB }, MemorySupport::Allocated] {
        let (h, [s]) = host_on(SimConfig { support, ..SimConfig::default() }, "").with_streams();
        let memory = Memory::new(64 * MIB);
        h.make_from(POOL, &memory);
        let again = h.plugin.create_or_incref_pool(0, POOL, Some(memory.clone()));
        assert!(matches!(again, Err(Error::PoolExists { key: POOL, .. })));
        let used = h.driver.used_bytes();
        let blocks = h.within(POOL, || [h.allocate(4, s), h.allocate(24, s), h.allocate(8, s)]);
        assert_eq!((memory.held(), h.held_by(POOL)), (44, 44));
        assert_eq!(h.driver.used_bytes(), used, "the driver gave nothing");
        assert!(blocks.iter().all(|block| block >> 50 == 1));
        assert!(h.within(POOL, || h.fails(32, s)), "the source has no more");
        for block in blocks {
            h.free(block);
        }
        // The free segments are of no use to the request, and make room for it.
        assert!(!h.within(POOL, || h.fails(32, s)));
        let segments = h.plugin.snapshot().unwrap().segments;
        assert!(segments.iter().all(|segment| segment.segment_pool_id == POOL));
        h.drop_pool(POOL);
        assert_eq!(memory.held(), 32, "a block lives");
        let live = memory.live.lock().unwrap()[0].0;
        h.free(live);
        h.plugin.empty_cache().unwrap();
        assert_eq!((memory.held(), h.reserved()), (0, 0));
    }
}

/// To the byte: without caching its memory is no multiple of anything.
#[test]
fn a_source_gets_back_as_much_as_it_was_asked_for() {
    let config = Config::default().settings(Settings::default().caching(false));
    let h = Host(super::host::host_on(&Arc::new(SimDriver::new(SimConfig::default())), config));
    let (s, memory) = (h.stream(), Memory::new(64 * MIB));
    h.make_from(POOL, &memory);
    h.free(h.within(POOL, || h.plugin.allocate(700, 0, s).unwrap()));
    h.drop_pool(POOL);
    assert!(memory.live.lock().unwrap().is_empty());
}

#[test]
fn a_pool_without_memory_may_get_a_source() {
    let (h, [s]) = host("").with_streams();
    let memory = Memory::new(64 * MIB);
    let set = |key| h.plugin.set_source(0, key, || memory.clone());
    h.make(POOL);
    assert!(!h.plugin.has_source(POOL) && !h.plugin.has_source(OTHER));
    set(POOL).unwrap();
    assert!(h.plugin.has_source(POOL));
    h.within(POOL, || h.allocate(20, s));
    assert_eq!(memory.held(), 20);
    set(POOL).unwrap();
    h.make(OTHER);
    h.within(OTHER, || {
        assert!(matches!(set(OTHER), Err(Error::PoolBegun { call: "set_source", key: OTHER })));
        h.allocate(4, s);
    });
    assert!(matches!(
        set(OTHER),
        Err(Error::Engine(engine::Error::Pool { why: engine::PoolRefusal::InUse { .. }, .. }))
    ));
    set((0, 9)).unwrap();
}

/// NCCL registers what comes.
#[test]
fn memory_from_a_source_is_told_to_those_who_watch() {
    let (h, [s]) = host("").with_streams();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    h.plugin.watch(Arc::new(move |it: &Happening| {
        let segment = matches!(it.action, Action::SegmentAlloc | Action::SegmentFree);
        if segment && it.key == POOL {
            tell.lock().unwrap().push((it.action, it.address, it.bytes / MIB));
        }
    }));
    let memory = Memory::new(64 * MIB);
    h.make_from(POOL, &memory);
    let block = h.within(POOL, || h.allocate(20, s));
    h.free(block);
    h.drop_pool(POOL);
    let expected = [(Action::SegmentAlloc, block, 20), (Action::SegmentFree, block, 20)];
    assert_eq!(told.lock().unwrap()[..], expected);
}

/// Python's lock, which a source of the host's takes and which is held where the plug-in is called.
#[derive(Debug)]
struct Interpreter {
    lock: Mutex<()>,
    /// How often a source has come to wait for the lock.
    waits: AtomicUsize,
}

thread_local! {
    /// Whether the thread has Python's lock: it need not wait for it then.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// An allocator that is written in Python.
#[derive(Debug)]
struct Interpreted {
    memory: Arc<Memory>,
    interpreter: Arc<Interpreter>,
}

impl Interpreted {
    fn hold(&self) -> Option<MutexGuard<'_, ()>> {
        (!HOLDS.get()).then(|| {
            self.interpreter.waits.fetch_add(1, Ordering::SeqCst);
            self.interpreter.lock.lock().unwrap()
        })
    }
}

impl Source for Interpreted {
    fn allocate(&self, bytes: u64, stream: StreamHandle) -> Result<u64, DriverError> {
        let _held = self.hold();
        self.memory.allocate(bytes, stream)
    }

    fn free(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let _held = self.hold();
        self.memory.free(address, bytes)
    }
}

impl Drop for Interpreted {
    fn drop(&mut self) {
        drop(self.hold());
    }
}

/// Ends the process if a test hangs: no thread of it could be joined.
struct Watchdog {
    _alive: mpsc::Sender<()>,
}

impl Watchdog {
    fn new() -> Self {
        let (alive, ends) = mpsc::channel();
        std::thread::spawn(move || {
            let timeout = Err(mpsc::RecvTimeoutError::Timeout);
            if ends.recv_timeout(Duration::from_secs(120)) == timeout {
                eprintln!("deadlock");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}

/// One thread waits for the lock in a source, the other one holds it and asks for memory meanwhile.
#[test]
fn a_source_may_wait_for_a_thread_that_calls_the_plugin() {
    let _watchdog = Watchdog::new();
    let h = host("");
    let [s, t] = [h.stream(), h.stream()];
    let memory = Memory::new(64 * MIB);
    let interpreter = Arc::new(Interpreter { lock: Mutex::new(()), waits: AtomicUsize::new(0) });
    let source = Interpreted { memory: Arc::clone(&memory), interpreter: interpreter.clone() };
    h.plugin.create_or_incref_pool(0, POOL, Some(Arc::new(source))).unwrap();
    let beside = |size: u64, asks: &(dyn Fn() + Sync)| {
        let held = interpreter.lock.lock().unwrap();
        HOLDS.set(true);
        let before = interpreter.waits.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(asks);
            while interpreter.waits.load(Ordering::SeqCst) == before {
                std::thread::yield_now();
            }
            // Another size each time: no stream's cache has it, and all of the plug-in's locks are taken.
            h.free(h.allocate(size, t));
            h.make(OTHER);
            h.drop_pool(OTHER);
            HOLDS.set(false);
            drop(held);
        });
    };
    let block = Mutex::new(0);
    beside(3, &|| {
        *block.lock().unwrap() = h.within(POOL, || h.allocate(40, s));
    });
    assert_eq!((memory.held(), h.held_by(POOL)), (40, 40));
    h.free(*block.lock().unwrap());
    h.driver.complete_all();
    // What is free makes room for the request.
    beside(5, &|| {
        *block.lock().unwrap() = h.within(POOL, || h.allocate(50, s));
    });
    assert_eq!((memory.held(), h.held_by(POOL)), (50, 50));
    h.free(*block.lock().unwrap());
    h.driver.complete_all();
    beside(7, &|| h.drop_pool(POOL));
    assert_eq!((memory.held(), h.held_by(POOL)), (0, 0));
    drop(h);
    assert_eq!(Arc::strong_count(&interpreter), 1, "the source is gone");
}

#[test]
fn a_source_s_wrong_addresses_are_refused() {
    let (h, [s]) = host("").with_streams();
    let crooked = Memory::with_step(64 * MIB, (1 << 30) + 8);
    h.make_from(POOL, &crooked);
    for _ in 0..2 {
        let refused = h.within(POOL, || h.plugin.allocate(4 * MIB, 0, s));
        assert!(refused.is_err_and(|error| error.to_string().contains("blocks of 512 bytes")));
        assert_eq!(crooked.held(), 0, "it has its memory back");
    }
    let twice = Memory::with_step(64 * MIB, 0);
    h.make_from(OTHER, &twice);
    h.within(OTHER, || {
        h.allocate(20, s);
        let refused = h.plugin.allocate(20 * MIB, 0, s);
        assert!(refused.is_err_and(|error| error.to_string().contains("was given before")));
    });
    assert_eq!((h.held_by(POOL), h.held_by(OTHER)), (0, 20));
}

#[test]
fn a_capture_into_a_pool_with_a_source_uses_its_memory_and_no_other() {
    for settings in ["check:True", "check:True,plan:exact"] {
        let (h, [s]) = host(settings).with_streams();
        let memory = Memory::new(64 * MIB);
        h.make_from(POOL, &memory);
        h.capture(s, POOL, || {
            let block = h.allocate(4, s);
            h.launch_and_free(s, block);
            assert_eq!(h.allocate(4, s), block);
        });
        assert_eq!((memory.held(), h.reserved()), (20, 20));
        h.plugin.release_pool(0, POOL).unwrap();
        h.driver.complete_all();
        h.drop_pool(POOL);
        assert_eq!(memory.held(), 20, "its graph's output lives");
    }
}

/// The engine first asks for all that a learned layout takes; refused that, it asks for a segment.
#[test]
fn a_request_that_a_source_is_asked_twice_for_is_granted_once() {
    let (h, [s]) = host("check:True,plan:auto").with_streams();
    let plans = h.plugin.engine(0).unwrap().plans();
    plans.learn().unwrap();
    let [first, second] = [16, 16].map(|mebibytes| h.allocate(mebibytes, s));
    h.free(first);
    let third = h.allocate(24, s);
    h.free(second);
    h.free(third);
    assert_eq!(plans.learned().unwrap(), 3);
    let memory = Memory::new(256 * MIB);
    h.make_from(POOL, &memory);
    h.capture(s, POOL, || {
        let block = h.allocate(16, s);
        h.launch(s);
        let pools = h.plugin.pools(0).unwrap();
        let of_pool = pools.iter().find(|pool| pool.key == POOL).unwrap();
        assert_eq!(of_pool.allocated, 16 * MIB, "{block:x}");
        h.free(block);
    });
    assert_eq!(memory.held(), 16);
    h.plugin.release_pool(0, POOL).unwrap();
    h.driver.complete_all();
    h.drop_pool(POOL);
    assert_eq!(memory.held(), 0);
}

/// The pool that the thread uses is not asked in its place.
#[test]
fn where_it_is_unknown_whether_a_stream_captures_there_is_an_error() {
    let (h, s) = made("check:True");
    h.within(POOL, || {
        h.capture(s, (1, 0), || {
            h.driver.fail_nth(Call::CaptureStatus, 0, ErrorKind::NotSupported);
            let refused = h.plugin.allocate(MIB, 0, s).unwrap_err();
            assert!(refused.to_string().contains("CaptureInfo"), "{refused}");
            h.allocate(4, s);
        });
    });
    assert_eq!((h.held_by(POOL), h.held_by((1, 0))), (0, 4));
}

/// As vLLM and SGLang have collectives' memory from another pool in a capture.
#[test]
fn a_capture_that_goes_on_by_its_thread_s_route_takes_that_with_it() {
    let graphs = (1, 0);
    for dropped in [false, true] {
        let (h, s) = made("check:True");
        let capture = h.announce(s, graphs, false);
        h.allocate(4, s);
        for turn in 1..3 {
            h.plugin.end_pool(0, graphs).unwrap();
            h.within(POOL, || h.allocate(6, s));
            h.plugin.begin_thread_pool(0, graphs).unwrap();
            h.allocate(8, s);
            assert_eq!((h.held_by(POOL), h.held_by(graphs)), (6 * turn, 4 + 8 * turn));
        }
        match dropped {
            false => drop(h.finish(s, graphs)),
            true => h.plugin.capture_dropped(0, s, capture).unwrap(),
        }
        h.allocate(10, h.stream());
        assert_eq!((h.held_by((0, 0)), h.held_by(graphs)), (10, 20), "eager work's");
    }
}

/// Work of the thread's in another pool, and work behind a capture's end.
#[test]
fn a_route_that_is_not_a_capture_s_stays_when_that_is_dropped() {
    let graphs = (1, 0);
    for (key, over) in [(POOL, false), (graphs, true)] {
        let (h, [s]) = host("").with_streams();
        let capture = h.announce(s, graphs, false);
        over.then(|| h.driver.end_capture(s).unwrap());
        h.plugin.end_pool(0, graphs).unwrap();
        h.plugin.begin_thread_pool(0, key).unwrap();
        h.plugin.capture_dropped(0, s, capture).unwrap();
        h.allocate(6, h.stream());
        assert_eq!(h.held_by(key), 6);
    }
}

#[test]
fn the_largest_block_is_free_or_on_the_device() {
    let (h, [s]) = host("memory_limit_mb:64").with_streams();
    assert_eq!(h.plugin.largest_block(0).unwrap(), 64 * MIB);
    let block = h.allocate(40, s);
    assert_eq!(h.plugin.largest_block(0).unwrap(), 24 * MIB);
    h.free(block);
    assert_eq!(h.plugin.largest_block(0).unwrap(), 40 * MIB);
    let (first, second) = (h.allocate(20, s), h.allocate(20, s));
    h.free(second);
    assert_eq!(h.plugin.largest_block(0).unwrap(), 24 * MIB);
    h.free(first);
    assert_eq!(h.plugin.largest_block(0).unwrap(), 40 * MIB);
}

#[test]
fn blocks_know_the_memory_around_them() {
    let (h, [s]) = host("expandable_segments:False").with_streams();
    let (first, second) = (h.allocate(4, s), h.allocate(4, s));
    for address in [first, second] {
        assert_eq!(h.plugin.surroundings_of(address).unwrap(), (first, 20 * MIB));
    }
    let (h, [s]) = host("").with_streams();
    let blocks: Vec<u64> = (0..3).map(|_| h.allocate(4, s)).collect();
    assert_eq!(h.plugin.surroundings_of(blocks[1]).unwrap(), (blocks[0], 12 * MIB));
    h.free(blocks[1]);
    h.driver.complete_all();
    h.plugin.empty_cache().unwrap();
    h.driver.complete_all();
    h.plugin.empty_cache().unwrap();
    assert_eq!(h.plugin.surroundings_of(blocks[2]).unwrap(), (blocks[2], 4 * MIB));
    assert!(matches!(h.plugin.surroundings_of(7), Err(Error::UnknownAddress { .. })));
}

#[test]
fn caching_goes_off_and_on() {
    let (h, [s]) = host("").with_streams();
    let cached = h.allocate(4, s);
    h.plugin.set_caching(false);
    assert!(!h.plugin.is_caching());
    let alone = h.plugin.allocate(1000, 0, s).unwrap();
    let held = h.reserved();
    h.launch_and_free(s, alone);
    assert_eq!(h.driver.used_bytes(), 4 * MIB, "it is with the driver again");
    assert_eq!(held, 4);
    h.make(POOL);
    h.free(h.within(POOL, || h.allocate(4, s)));
    assert_eq!(h.held_by(POOL), 4, "pools are as ever");
    h.free(cached);
    h.plugin.set_caching(true);
    assert_eq!(h.allocate(4, s), cached);
}

#[test]
fn a_pool_is_made_anew_though_the_driver_keeps_its_memory() {
    let (h, s) = made("");
    let block = h.within(POOL, || h.allocate(3, s));
    h.free(block);
    h.driver.synchronize().unwrap();
    h.driver.fail_nth(Call::Unmap, 0, ErrorKind::InvalidValue);
    h.plugin.set_no_split(0, POOL).unwrap();
    let block = h.within(POOL, || h.allocate(3, s));
    assert_eq!(h.plugin.live_block(block).unwrap().key, POOL);
    assert_eq!(h.plugin.surroundings_of(block).unwrap().0, block);
}

#[test]
fn what_pools_held_is_told_by_name_until_it_is_reset() {
    let (h, [s]) = host("").with_streams();
    let of = |key| {
        let rows = h.plugin.reserved_by_pools(0);
        rows.into_iter().find(|row| row.0 == key).map(|row| row.1[..4].to_vec())
    };
    h.make(POOL);
    h.make(OTHER);
    let block = h.within(POOL, || h.allocate(3, s));
    let mib = MIB as i64;
    assert_eq!(of(POOL).unwrap(), [4 * mib, 4 * mib, 4 * mib, 0]);
    assert_eq!(of(OTHER).unwrap(), [0; 4]);
    h.free(block);
    h.driver.synchronize().unwrap();
    h.drop_pool(POOL);
    assert_eq!(h.plugin.engine(0).unwrap().statistics().unwrap().all.reserved_bytes.current, 0);
    assert_eq!(of(POOL).unwrap(), [0, 4 * mib, 4 * mib, 4 * mib]);
    h.plugin.reset_peaks(0).unwrap();
    assert_eq!(of(POOL).unwrap(), [0, 0, 4 * mib, 4 * mib]);
    h.plugin.reset_accumulated(0).unwrap();
    assert_eq!(of(POOL), None);
    assert_eq!(of(OTHER).unwrap(), [0; 4]);
}

#[test]
fn a_pool_is_called_by_a_text() {
    let host = host("");
    host.make(POOL);
    let names = || -> Vec<Option<String>> {
        let pools = host.plugin.pools(0).unwrap().into_iter();
        pools
            .filter(|pool| pool.key == POOL)
            .map(|pool| pool.name.map(|it| it.to_string()))
            .collect()
    };
    assert_eq!(names(), [None]);
    host.plugin.set_pool_name(0, POOL, Some("decoder")).unwrap();
    assert_eq!(names(), [Some("decoder".to_owned())]);
    host.plugin.set_pool_name(0, POOL, None).unwrap();
    assert_eq!(names(), [None]);
    let unknown = host.plugin.set_pool_name(0, OTHER, Some("it")).unwrap_err();
    assert!(matches!(unknown, Error::UnknownPool { call: "set_pool_name", key: OTHER }));
}

#[test]
fn a_pool_never_holds_more_than_it_may_and_its_graphs_go_on() {
    for settings in ["", "plan:exact", "growth_step_mb:0", "plan:auto"] {
        let (host, [stream]) = host(settings).with_streams();
        host.plugin.limit_pool(0, POOL, 16 * MIB).unwrap();
        let capture = |sizes: &[u64]| {
            host.announce(stream, POOL, true);
            for &size in sizes {
                let block = host.plugin.allocate(size * MIB, 0, stream);
                assert!(host.held_by(POOL) <= 16 * MIB, "{settings}");
                let Ok(block) = block else { return None };
                host.launch_and_free(stream, block);
            }
            Some(host.finish(stream, POOL))
        };
        assert!(capture(&[4, 6]).is_some(), "{settings}");
        let held = host.held_by(POOL);
        assert!(capture(&[12, 18]).is_none(), "{settings}");
        // As PyTorch does behind an error in a capture's block.
        host.finish(stream, POOL);
        // Eager work, and pools without a limit, are not held back.
        host.allocate(32, stream);
        host.make(OTHER);
        assert!(capture(&[10, 12]).is_some(), "{settings}");
        assert!((held..=16 * MIB).contains(&host.held_by(POOL)), "{settings}");
        let again = host.plugin.limit_pool(0, POOL, 64 * MIB);
        assert!(matches!(again, Err(Error::PoolExists { call: "limit_pool", key: POOL })));
    }
}

#[test]
fn a_pool_that_another_thread_destroys_meanwhile_is_left_out() {
    let (h, [s]) = host("").with_streams();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            for _ in 0..20_000 {
                h.make(POOL);
                h.drop_pool(POOL);
            }
        });
        while !other.is_finished() {
            h.plugin.pools(0).unwrap();
            h.plugin.explain(0, s).unwrap();
        }
    });
}
