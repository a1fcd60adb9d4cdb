//! The hard cases, each by itself.

use crate::common::{bench, MIB};
use regraph::driver::{CaptureMode, Driver, EdgeData, HostApi};
use regraph::engine::{Config, Error, PoolConfig};
use regraph::settings::Programmatic;
use regraph_record::journal::Entry;
use regraph_sim::SimConfig;

#[test]
fn launch_order_proves_nothing_under_any_policy() {
    for &policy in Programmatic::ALL {
        let (b, [s, t], capture) = bench(Config::default().programmatic(policy)).capturing();
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        let (block, before) = (b.allocate(s), b.allocate(t));
        b.launch(s);
        b.launch_and_free(t, block);
        let event = b.driver.record_programmatic(s, EdgeData::LAUNCH_ORDER).unwrap();
        b.driver.wait_event(t, event).unwrap();
        assert_ne!(b.allocate(t).address, block.address, "{policy}");
        // Nor is anything free any more that lives on a stream which has come behind such an edge.
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        b.engine.free(before.id).unwrap();
        let again = [b.allocate(t), b.allocate(t)];
        assert!(again.iter().all(|it| it.address != before.address), "{policy}");
        b.launch(t);
        b.driver.wait(s, t).unwrap();
        b.finish(s, capture);
    }
}

#[test]
fn a_device_without_memory_leaves_the_capture_as_it_was() {
    let device = SimConfig { total_bytes: 16 * MIB, ..SimConfig::default() };
    let (b, [s], capture) = crate::common::bench_on(device, Config::default()).capturing();
    let block = b.engine.allocate(b.pool, 12 * MIB, s).unwrap();
    b.launch(s);
    let before = b.engine.pool_statistics(b.pool).unwrap();
    let refused = b.engine.allocate(b.pool, 12 * MIB, s);
    let Err(Error::OutOfMemory(report)) = refused else { panic!("{refused:?}") };
    assert_eq!((report.reserved, report.allocated), (12 * MIB, 12 * MIB));
    assert_eq!(report.device_free, Some(4 * MIB));
    assert_eq!(b.engine.pool_statistics(b.pool).unwrap(), before);
    b.engine.free(block.id).unwrap();
    assert_eq!(b.engine.allocate(b.pool, 12 * MIB, s).unwrap().address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

/// Searches look at fewer ranges the more of them fail; a pool that is full is searched to the end.
#[test]
fn a_full_pool_is_searched_to_the_end() {
    const BYTES: u64 = 4 << 10;
    let b = bench(Config::default());
    let limited = PoolConfig::default().max_bytes(6 * MIB);
    let b = crate::common::Bench { pool: b.engine.create_pool(limited), ..b };
    let (b, [s, t], capture) = b.capturing();
    b.launch(s);
    b.driver.wait(t, s).unwrap();
    let on = |stream| b.engine.allocate(b.pool, BYTES, stream);
    let theirs: Vec<_> = (0..1_100).map(|_| on(t).unwrap()).collect();
    for block in &theirs {
        // Markers of its own, so that no two are one range.
        b.launch_and_free(t, *block);
    }
    let mine: Vec<_> = std::iter::from_fn(|| on(s).ok()).collect();
    assert!(mine.len() > 100, "{}", mine.len());
    b.launch(s);
    // Not the last one: the pool grows from what is free at its end.
    let mut block = mine[mine.len() / 2];
    for _ in 0..20 {
        // Each search that fails goes on where the one before gave up.
        b.engine.allocate(b.pool, 2 * BYTES, s).unwrap_err();
        b.engine.free(block.id).unwrap();
        let again = on(s).unwrap();
        assert_eq!(again.address, block.address);
        b.launch(s);
        block = again;
    }
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}

#[test]
fn captures_of_several_threads_share_an_engine() {
    let b = bench(Config::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..8 {
                    let [s, t] = b.streams();
                    let capture = b.begin(s);
                    for _ in 0..10 {
                        let block = b.allocate(s);
                        b.launch(s);
                        b.driver.wait(t, s).unwrap();
                        b.engine.record_stream(block.id, t).unwrap();
                        b.launch_and_free(t, block);
                        b.driver.wait(s, t).unwrap();
                    }
                    if round % 4 == 3 {
                        b.driver.end_capture(s).unwrap();
                        b.engine.abandon_capture(capture).unwrap();
                    } else {
                        let graph = b.finish(s, capture).graph;
                        b.engine.release_graph(graph).unwrap();
                    }
                }
            });
        }
    });
    b.driver.complete_all();
    b.engine.destroy_pool(b.pool).unwrap();
    let info = b.driver.memory_info().unwrap();
    assert_eq!(info.free, info.total);
}

#[test]
fn a_capture_that_a_free_brings_into_a_pool_is_told_of_the_freed_block() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let other = b.engine.create_pool(PoolConfig::default());
    let capture = b.begin(s);
    b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    let beside = b.engine.begin_capture(other, t).unwrap();
    let block = b.allocate(s);
    b.launch(s);
    b.engine.record_stream(block.id, t).unwrap();
    b.launch(t);
    // The block is in use in the capture beside, which comes to use the block's pool by that.
    b.engine.free(block.id).unwrap();
    let journal = b.engine.host().journal(beside).unwrap().unwrap();
    let told = |entry| matches!(entry, Entry::Standing { address, .. } if address == block.address);
    assert!(journal.iter().any(told), "the capture's record names what it must keep off");
    assert_ne!(b.engine.allocate(b.pool, MIB, t).unwrap().address, block.address);
    b.launch(t);
    b.finish(t, beside);
    b.finish(s, capture);
}

#[test]
fn a_capture_that_an_ending_one_brings_into_a_pool_is_told_of_what_that_one_held() {
    let (b, [s, t, outside]) = bench(Config::default()).with_streams();
    let other = b.engine.create_pool(PoolConfig::default());
    let capture = b.begin(s);
    b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    let beside = b.engine.begin_capture(other, t).unwrap();
    let [held, left] = [b.allocate(s), b.allocate(s)];
    b.launch(s);
    // It waits for work outside captures.
    b.launch(outside);
    b.engine.record_stream(held.id, outside).unwrap();
    b.engine.free(held.id).unwrap();
    // Its free waits for the capturing thread: the capture ends without it.
    b.engine.record_stream(left.id, t).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| b.engine.free(left.id).unwrap());
    });
    b.engine.abandon_capture(capture).unwrap();
    // That the other capture uses what was left has brought it into the pool.
    let journal = b.engine.host().journal(beside).unwrap().unwrap();
    for block in [held, left] {
        let told =
            |entry| matches!(entry, Entry::Standing { address, .. } if address == block.address);
        assert!(journal.iter().any(told), "the capture's record names what it must keep off");
        assert_ne!(b.engine.allocate(b.pool, MIB, t).unwrap().address, block.address);
    }
    b.launch(t);
    b.finish(t, beside);
}
