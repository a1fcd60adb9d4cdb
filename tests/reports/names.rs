//! An engine refuses names of another engine's pools, graphs and blocks, and gives the row of a pool that is gone to another.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use crate::common::{bench, Bench, MIB};
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::{
    BlockId, Config, Engine, Error, GraphId, PoolConfig, PoolId, PoolRefusal, StreamRefusal,
    Unknown,
};
use regraph::regions::{Backup, Regions, Tags};
use regraph::settings::Settings;
use regraph_plugin::Plugin;
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

/// Counts the bytes that each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that ends frees after its counter is gone.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn capture(b: &Bench, stream: StreamHandle) -> GraphId {
    let capture = b.begin(stream);
    b.temporary(stream);
    b.finish(stream, capture).graph
}

fn is_unknown(result: Result<impl std::fmt::Debug, Error>, pool: PoolId) {
    match result {
        Err(error @ Error::Unknown { what: Unknown::Pool(named), .. }) => {
            assert_eq!(named, pool);
            assert!(error.to_string().contains("another engine"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

fn refuses(b: &Bench, pool: PoolId, stream: StreamHandle) {
    let e = &b.engine;
    is_unknown(e.allocate(pool, MIB, stream), pool);
    is_unknown(e.allocate_fixed(pool, MIB, stream), pool);
    is_unknown(e.explain(pool, stream), pool);
    is_unknown(e.statistics_of(pool), pool);
    is_unknown(e.pool_statistics(pool), pool);
    is_unknown(e.host().suspend_discarding_outputs(pool), pool);
    is_unknown(e.host().resume_pool(pool), pool);
    is_unknown(e.host().is_suspended(pool), pool);
    is_unknown(e.host().captures_over(pool), pool);
    is_unknown(e.destroy_pool(pool), pool);
    b.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    is_unknown(e.begin_capture(pool, stream), pool);
    b.driver.end_capture(stream).unwrap();
}

#[test]
fn another_engine_refuses_names() {
    let (a, b) = (bench(Config::default()), bench(Config::default()));
    let ([s], [t]) = (a.streams(), b.streams());
    let (ours, theirs) = (capture(&a, s), capture(&b, t));
    assert_ne!(ours, theirs);
    refuses(&a, b.pool, s);
    refuses(&b, a.pool, t);
    let released = a.engine.release_graph(theirs);
    assert!(matches!(released, Err(Error::Unknown { what: Unknown::Graph(_), .. })));
    assert!(released.unwrap_err().to_string().contains("another engine"));
    let block = b.allocate(t);
    let freed = a.engine.free(block.id);
    assert!(matches!(freed, Err(Error::Unknown { what: Unknown::Block(_), .. })), "{freed:?}");
    // All is as before.
    a.engine.release_graph(ours).unwrap();
    let again = a.engine.release_graph(ours);
    assert!(matches!(again, Err(Error::Unknown { what: Unknown::Graph(_), .. })), "{again:?}");
    b.engine.free(block.id).unwrap();
}

/// A stream cache serves requests without the engine's lock: it must know engines and pools apart too.
#[test]
fn another_engine_refuses_names_of_sizes_that_its_caches_have() {
    let (a, b) = (bench(Config::default()), bench(Config::default()));
    let ([s], [t]) = (a.streams(), b.streams());
    for (bench, stream) in [(&a, s), (&b, t)] {
        let block = bench.allocate(stream);
        bench.engine.free(block.id).unwrap();
    }
    is_unknown(a.engine.allocate(b.pool, 4 * MIB, s), b.pool);
    let old = a.pool;
    a.engine.empty_cache().unwrap();
    a.engine.destroy_pool(old).unwrap();
    let new = a.engine.create_pool(PoolConfig::default());
    let block = a.engine.allocate(new, 4 * MIB, s).unwrap();
    a.engine.free(block.id).unwrap();
    is_unknown(a.engine.allocate(old, 4 * MIB, s), old);
}

#[test]
fn captures_of_two_machines_have_different_numbers() {
    let (a, b) = (bench(Config::default()), bench(Config::default()));
    let ([s], [t]) = (a.streams(), b.streams());
    let (ours, theirs) = (a.begin(s), b.begin(t));
    let ended = a.engine.end_capture(theirs, b.graph(t));
    assert!(matches!(ended, Err(Error::Unknown { what: Unknown::Capture(_), .. })), "{ended:?}");
    let abandoned = b.engine.abandon_capture(ours);
    assert!(matches!(abandoned, Err(Error::Unknown { what: Unknown::Capture(_), .. })));
    a.finish(s, ours);
    b.finish(t, theirs);
}

#[test]
fn names_go_through_numbers_and_no_changed_bit_names_anything() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let (pool, block, graph) = (b.pool, b.allocate(s), capture(&b, s));
    // Its stream has it at hand for the next request of the pool.
    b.engine.free(b.allocate(s).id).unwrap();
    assert_eq!(PoolId::from_bits(pool.bits()), pool);
    assert_eq!(GraphId::from_bits(graph.bits()), graph);
    assert_eq!(BlockId::from_bits(block.id.bits()), block.id);
    assert!(b.engine.statistics_of(PoolId::from_bits([0; 2])).is_err());
    for (word, bit) in (0..2).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
        let mut bits = pool.bits();
        bits[word] ^= 1 << bit;
        let other = PoolId::from_bits(bits);
        assert!(b.engine.statistics_of(other).is_err(), "{word} {bit}");
        assert!(b.engine.allocate(other, block.bytes, s).is_err(), "{word} {bit}");
        assert!(b.engine.host().allocate_at_once(other, block.bytes, s).is_none(), "{word} {bit}");
        let mut bits = graph.bits();
        bits[word] ^= 1 << bit;
        assert!(b.engine.release_graph(GraphId::from_bits(bits)).is_err(), "{word} {bit}");
    }
    b.engine.release_graph(graph).unwrap();
}

/// Creates pools, uses each on one stream after the other, and destroys it.
fn come_and_go(b: &Bench, streams: &[StreamHandle], pools: usize) -> Vec<PoolId> {
    let come_and_go = |turn: usize| {
        let pool = b.engine.create_pool(PoolConfig::default());
        let stream = streams[turn % streams.len()];
        let blocks = [4096, 4 * MIB].map(|bytes| b.engine.allocate(pool, bytes, stream).unwrap());
        for block in blocks {
            b.engine.free(block.id).unwrap();
        }
        b.driver.synchronize().unwrap();
        b.engine.destroy_pool(pool).unwrap();
        pool
    };
    (0..pools).map(come_and_go).collect()
}

#[test]
fn rows_of_pools_that_are_gone_are_used_again() {
    for streams in [1, 32] {
        let settings = Settings::default().history(100);
        let b = bench(Config::default().settings(settings));
        let streams: Vec<_> = (0..streams).map(|_| b.driver.create_stream().unwrap()).collect();
        let pools = come_and_go(&b, &streams, 300);
        let held = HELD.get();
        let more = come_and_go(&b, &streams, 1_000);
        // The simulated driver never uses a handle twice, and has a row for each.
        assert!(HELD.get() - held < 400 * 1_000, "{} bytes", HELD.get() - held);
        for pool in pools.iter().chain(&more) {
            assert!(pool.bits()[1] < 4, "{:?}", pool.bits());
        }
        refuses(&b, pools[0], streams[0]);
        let [first, .., last] = &more[..] else { unreachable!() };
        assert!(first < last && pools[0] < *first);
    }
}

/// What 10,000 rounds leave behind, in bytes a round, after as many that fill tables.
fn left(mut round: impl FnMut(usize)) -> i64 {
    const ROUNDS: usize = 10_000;
    (0..ROUNDS).for_each(&mut round);
    let held = HELD.get();
    (ROUNDS..2 * ROUNDS).for_each(&mut round);
    (HELD.get() - held) / ROUNDS as i64
}

/// The simulated driver never uses a handle twice, and has a row for each: that share is taken off.
#[test]
fn streams_that_are_retired_leave_nothing() {
    let alone = SimDriver::new(SimConfig::default());
    let of_driver = left(|_| {
        let stream = alone.create_stream().unwrap();
        alone.launch(stream, Work::default(), false).unwrap();
        alone.complete(stream).unwrap();
        alone.destroy_stream(stream).unwrap();
    });
    for outlives in [false, true] {
        let b = bench(Config::default());
        let with_engine = left(|round| {
            let [stream] = b.streams();
            // Of more sizes than are kept at hand.
            let bytes = 512 * (1 + round as u64 % 9);
            let block = b.engine.allocate(b.pool, bytes, stream).unwrap();
            b.launch(stream);
            if !outlives {
                b.engine.free(block.id).unwrap();
            }
            b.driver.complete(stream).unwrap();
            b.engine.retire_stream(stream).unwrap();
            b.driver.destroy_stream(stream).unwrap();
            if outlives {
                b.engine.free(block.id).unwrap();
            }
        });
        let of_engine = with_engine - of_driver;
        assert!(of_engine <= 16, "{outlives}: {with_engine}, the driver alone {of_driver}");
    }
}

#[test]
fn regions_that_are_gone_leave_nothing() {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let stream = engine.driver().create_stream().unwrap();
    let regions = Regions::new(&engine);
    let destroyed_asleep = |round: usize, size: u64| {
        let tag = format!("tag {round}");
        let pool = engine.create_pool(PoolConfig::default().tag(&*tag));
        let block = (size > 0).then(|| engine.allocate(pool, size, stream).unwrap());
        regions.sleep(&[&*tag]).unwrap();
        if let Some(block) = block {
            engine.free(block.id).unwrap();
        }
        engine.destroy_pool(pool).unwrap();
    };
    assert!(left(|round| destroyed_asleep(round, 0)) <= 4);
    let said = left(|round| {
        let tag = format!("tag {round}");
        regions.set_backup(&tag, Backup::None);
        regions.sleep(&[&*tag]).unwrap();
        assert!(regions.is_asleep(&tag).unwrap());
        regions.forget(&tag);
        let unknown = regions.is_asleep(&tag);
        assert!(matches!(unknown, Err(Error::Unknown { what: Unknown::Region(_), .. })));
    });
    assert!(said <= 4, "{said}");
    destroyed_asleep(1, MIB);
    assert!(regions.report().is_empty());
    // One whose keeper is gone as well: else no call could wake what is made of its tag.
    drop(regions);
    let pool = engine.create_pool(PoolConfig::default().tag("tag 1"));
    let block = engine.allocate(pool, MIB, stream).unwrap();
    engine.free(block.id).unwrap();
}

/// Tags that a thread enters, asks for memory in, leaves and forgets, awake and asleep. What the simulated driver keeps of
/// handles, and the engine of pools, is taken off: the same pools, made without the plug-in, leave that.
#[test]
fn regions_that_a_host_forgets_leave_nothing() {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let stream = engine.driver().create_stream().unwrap();
    let regions = Regions::new(&engine);
    let of_pools = left(|round| {
        let tag = format!("tag {round}");
        let pool = engine.create_pool(PoolConfig::default().tag(&*tag));
        regions.set_backup(&tag, Backup::None);
        let block = engine.allocate(pool, MIB, stream).unwrap();
        if round % 2 == 0 {
            regions.sleep(&[&*tag]).unwrap();
        }
        engine.free(block.id).unwrap();
        engine.destroy_pool(pool).unwrap();
        regions.forget(&tag);
    });

    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let shared = Arc::clone(&driver);
    let plugin = Plugin::new(Config::default(), move |_| Ok(Arc::clone(&shared)));
    let stream = driver.create_stream().unwrap();
    let bytes = left(|round| {
        let tag = format!("tag {round}");
        let number = plugin.enter_region(Some(&tag));
        plugin.set_region_backup(&tag, Backup::None);
        let block = plugin.allocate(MIB, 0, stream).unwrap();
        plugin.leave_region(number).unwrap();
        if round % 2 == 0 {
            plugin.sleep(Some(&[&*tag])).unwrap();
        }
        plugin.free(block, 0).unwrap();
        plugin.forget_region(&tag).unwrap();
    });
    assert!(bytes - of_pools <= 16, "{bytes}, the pools alone {of_pools}");
    assert!(plugin.region_tags().is_empty() && plugin.regions(0).is_empty());
    let statistics = plugin.engine(0).unwrap().statistics().unwrap();
    assert_eq!(statistics.all.reserved_bytes.current, 0);
}

/// A region of which something was said sleeps on while it has no pools; a region with pools is not forgotten.
#[test]
fn what_was_said_of_a_region_stays_until_it_is_forgotten() {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let stream = engine.driver().create_stream().unwrap();
    let regions = Regions::new(&engine);
    regions.set_backup("cache", Backup::None);
    let pool = || engine.create_pool(PoolConfig::default().tag("cache"));
    let first = pool();
    regions.sleep(Tags::All).unwrap();
    engine.destroy_pool(first).unwrap();
    let second = pool();
    let refused = engine.allocate(second, MIB, stream).unwrap_err();
    assert!(matches!(refused, Error::Pool { why: PoolRefusal::Suspended { .. }, .. }), "{refused}");
    regions.forget("cache");
    assert!(regions.is_asleep("cache").unwrap());
    assert_eq!(regions.report()[0].backup, Backup::Host);
    regions.wake(Tags::All).unwrap();
    engine.allocate(second, MIB, stream).map(|block| engine.free(block.id)).unwrap().unwrap();
}

/// What pools that are gone had in all stays in the sums over all pools, and not in those of the pool
/// that has their row.
#[test]
fn figures_of_pools_that_are_gone() {
    let (b, [s]) = bench(Config::default()).with_streams();
    come_and_go(&b, &[s], 10);
    let all = b.engine.statistics().unwrap().all;
    assert_eq!((all.allocation.current, all.allocation.allocated), (0, 20));
    assert_eq!(
        (all.allocated_bytes.freed, all.allocated_bytes.peak),
        (10 * (4 * MIB + 4096), 4 * MIB + 4096)
    );
    assert_eq!(all.reserved_bytes.current, 0);
    assert_eq!(all.reserved_bytes.allocated, all.reserved_bytes.freed);
    let pool = b.engine.create_pool(PoolConfig::default());
    let figures = b.engine.statistics_of(pool).unwrap();
    assert_eq!(figures.all, Default::default());
    b.engine.reset_accumulated().unwrap();
    b.engine.reset_peaks().unwrap();
    let all = b.engine.statistics().unwrap().all;
    assert_eq!(all, Default::default());
}

/// An ended capture is known as long as the driver may report it, and no longer.
#[test]
fn ended_captures_are_remembered_by_their_streams_alone() {
    let (b, streams) = bench(Config::default().report_leaks(false)).with_streams::<4>();
    let run = |turns: usize| {
        for turn in 0..turns {
            let stream = streams[turn % 4];
            let capture = b.begin(stream);
            b.launch(stream);
            let graph = b.finish(stream, capture).graph;
            b.engine.release_graph(graph).unwrap();
        }
    };
    let before = b.driver.used_bytes();
    run(200);
    let held = HELD.get();
    run(200);
    let first = HELD.get() - held;
    run(200);
    let second = HELD.get() - held - first;
    assert_eq!(b.driver.used_bytes(), before);
    // The simulated driver keeps graphs, the engine nothing.
    assert!(second <= 2 * first.max(100_000), "{first} {second}");
    // A stream that is still in a capture which has ended here cannot go.
    let [s, ..] = streams;
    let capture = b.begin(s);
    b.engine.abandon_capture(capture).unwrap();
    let retired = b.engine.retire_stream(s);
    assert!(matches!(retired, Err(Error::Stream { why: StreamRefusal::InUse, .. })), "{retired:?}");
    let refused = b.engine.allocate(b.pool, MIB, s);
    assert!(matches!(refused, Err(Error::CaptureEnded { .. })), "{refused:?}");
    b.driver.end_capture(s).unwrap();
    b.engine.retire_stream(s).unwrap();
}

#[test]
fn errors_show_pools_by_their_names() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let pool = b.engine.create_pool(PoolConfig::default().name("kv cache").max_bytes(8 * MIB));
    let error = b.engine.allocate(pool, 16 * MIB, s).unwrap_err();
    assert!(error.to_string().contains("pool \"kv cache\""), "{error}");
    let _block = b.engine.allocate(pool, MIB, s).unwrap();
    let error = b.engine.destroy_pool(pool).unwrap_err();
    assert!(error.to_string().contains("pool \"kv cache\" is in use"), "{error}");
    let error = b.engine.allocate(b.pool, 1 << 50, s).unwrap_err();
    assert!(error.to_string().contains("from pool 0"), "{error}");
}

#[test]
fn pools_are_listed_with_the_names_that_they_have_now() {
    let driver = SimDriver::new(SimConfig::default());
    let engine = Engine::new(driver, Config::default());
    let plain = engine.create_pool(PoolConfig::default());
    let named = engine.create_pool(PoolConfig::default().name("decoder").max_bytes(MIB));
    let tagged = engine.create_pool(PoolConfig::default().tag("weights"));
    let listed = || -> Vec<(PoolId, Option<String>, Option<String>)> {
        let text = |text: std::sync::Arc<str>| text.to_string();
        let pools = engine.pools().unwrap().into_iter();
        pools.map(|pool| (pool.id, pool.name.map(text), pool.tag.map(text))).collect()
    };
    let text = |text: &str| Some(text.to_owned());
    let before =
        [(plain, None, None), (named, text("decoder"), None), (tagged, None, text("weights"))];
    assert_eq!(listed(), before);
    engine.set_pool_name(named, Some("encoder")).unwrap();
    let stream = engine.driver().create_stream().unwrap();
    let error = engine.allocate(named, 4 * MIB, stream).unwrap_err();
    assert!(error.to_string().contains("\"encoder\""), "{error}");
    engine.set_pool_name(named, None).unwrap();
    engine.set_pool_name(tagged, Some("layers")).unwrap();
    engine.destroy_pool(plain).unwrap();
    // A pool that takes the place of one that is gone is the latest all the same.
    let last = engine.create_pool(PoolConfig::default());
    let after =
        [(named, None, None), (tagged, text("layers"), text("weights")), (last, None, None)];
    assert_eq!(listed(), after);
    let gone = engine.set_pool_name(plain, Some("it")).unwrap_err();
    assert!(matches!(gone, Error::Unknown { call: "set_pool_name", what: Unknown::Pool(_) }));
}
