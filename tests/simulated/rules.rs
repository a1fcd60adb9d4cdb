//! Safety rules that only particular programs show: for each one where memory is handed out too
//! early, or lost, if the engine leaves the rule out.

use std::sync::Arc;

use crate::common::{bench, Bench, MIB};
use regraph::driver::{CaptureMode, Driver, HostApi, StreamHandle};
use regraph::engine::{Block, Config, Engine, Error, PoolConfig, StreamRefusal};
use regraph::settings::{Programmatic, Reuse};
use regraph_sim::{SimConfig, SimDriver};
use regraph_testing::Renamed;

/// Sets a stream's terminals, seen before and after.
fn set_back(b: &Bench, stream: StreamHandle, to: StreamHandle) {
    let terminals = b.driver.terminals(to).unwrap();
    b.engine.observe(stream).unwrap();
    b.driver.set_terminals(stream, &terminals).unwrap();
    b.engine.observe(stream).unwrap();
}

fn small(b: &Bench, stream: StreamHandle) -> Block {
    b.engine.allocate(b.pool, 512, stream).unwrap()
}

/// Two streams in a capture, after one node; the second stays there.
fn forked(b: &Bench) -> (regraph::driver::CaptureId, StreamHandle, StreamHandle) {
    let [s, stays] = b.streams();
    let capture = b.begin(s);
    b.launch(s);
    b.driver.wait(stays, s).unwrap();
    (capture, s, stays)
}

#[test]
fn a_set_back_is_not_forgotten_while_a_block_lives() {
    let b = bench(Config::default());
    let (capture, s, stays) = forked(&b);
    let block = b.allocate(s);
    for _ in 0..20 {
        b.launch(s);
        b.engine.observe(s).unwrap();
    }
    set_back(&b, s, stays);
    for _ in 0..20 {
        b.launch(s);
        b.engine.observe(s).unwrap();
    }
    b.engine.free(block.id).unwrap();
    assert_ne!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn a_last_use_remembers_a_set_back() {
    let b = bench(Config::default());
    let (capture, s, stays) = forked(&b);
    let block = b.allocate(s);
    b.launch(s);
    set_back(&b, s, stays);
    b.launch(s);
    b.engine.record_use(block.id, s).unwrap();
    b.engine.free(block.id).unwrap();
    assert_ne!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

/// All former terminals lie behind the new ones, and a node behind an edge that proves nothing does
/// not.
#[test]
fn an_edge_that_proves_nothing_leaves_users_behind() {
    let b = bench(Config::default().programmatic(Programmatic::Deny));
    let (capture, s, t) = forked(&b);
    b.launch(t);
    let block = b.allocate(s);
    b.launch(s);
    b.launch_early(s);
    b.driver.wait(s, t).unwrap();
    b.engine.free(block.id).unwrap();
    assert_ne!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn what_a_stream_gave_back_is_asked_for_again_after_a_set_back() {
    let b = bench(Config::default());
    let (capture, s, stays) = forked(&b);
    let block = small(&b, s);
    b.launch(s);
    b.engine.free(block.id).unwrap();
    set_back(&b, s, stays);
    assert_ne!(small(&b, s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn what_others_gave_back_is_asked_for_again_after_a_set_back() {
    let b = bench(Config::default());
    let (capture, s, stays) = forked(&b);
    let [t] = b.streams();
    b.driver.wait(t, s).unwrap();
    let blocks: Vec<Block> = (0..5).map(|_| small(&b, s)).collect();
    b.launch(s);
    for block in blocks.iter().step_by(2) {
        b.engine.free(block.id).unwrap();
    }
    b.driver.wait(t, s).unwrap();
    // Reads of all that is free for it.
    let first = small(&b, t);
    assert!(blocks.iter().any(|block| block.address == first.address));
    b.engine.free(first.id).unwrap();
    set_back(&b, t, stays);
    let second = small(&b, t);
    assert!(blocks.iter().all(|block| block.address != second.address));
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}

/// A body's memory belongs to the graph around it, whose end is yet to come.
#[test]
fn a_graph_that_is_released_leaves_its_memory_to_a_capture_under_way() {
    let b = bench(Config::default());
    let [s, inner, eager] = b.streams();
    let capture = b.begin(s);
    b.launch(s);
    let before = b.driver.terminals(s).unwrap();
    let (_, body) = b.driver.add_conditional(b.graph(s), &before).unwrap();
    b.driver.begin_capture_to_graph(inner, body, CaptureMode::Relaxed).unwrap();
    let inside = b.engine.begin_capture(b.pool, inner).unwrap();
    let block = b.allocate(inner);
    b.launch(inner);
    b.engine.free(block.id).unwrap();
    let report = b.finish(inner, inside);
    b.engine.release_graph(report.graph).unwrap();
    b.finish(s, capture);
    b.driver.complete_all();
    assert_ne!(b.allocate(eager).address, block.address);
}

#[test]
fn what_a_stream_gave_back_outside_waits_while_a_capture_uses_the_pool() {
    let b = bench(Config::default());
    let [s, eager] = b.streams();
    let large = |stream| b.engine.allocate(b.pool, 64 * MIB, stream).unwrap();
    let block = large(eager);
    b.launch(eager);
    b.engine.free(block.id).unwrap();
    // From the stream's cache to the pool.
    b.engine.trim(u64::MAX - 1).unwrap();
    let capture = b.begin(s);
    let next = large(eager);
    assert_ne!(next.address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

/// The graph of a capture that the engine never heard of keeps what it was seen to use.
#[test]
fn what_an_unannounced_capture_used_is_no_work_s_outside() {
    for released in [false, true] {
        let b = bench(Config::default());
        let [s, other, eager] = b.streams();
        let known = released.then(|| {
            let capture = b.begin(s);
            b.launch(s);
            b.finish(s, capture).graph
        });
        let block = b.allocate(eager);
        b.driver.begin_capture(other, CaptureMode::Relaxed).unwrap();
        b.engine.record_stream(block.id, other).unwrap();
        b.launch(other);
        b.engine.free(block.id).unwrap();
        if let Some(graph) = known {
            b.engine.release_graph(graph).unwrap();
        }
        b.driver.end_capture(other).unwrap();
        b.driver.complete_all();
        for _ in 0..3 {
            assert_ne!(b.allocate(eager).address, block.address, "released: {released}");
        }
    }
}

/// A freed block of a capture still has to ask a stream for its work.
#[test]
fn a_stream_is_not_retired_while_a_freed_block_waits_for_it() {
    let b = bench(Config::default());
    let [s, other] = b.streams();
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.launch(s);
    b.driver.begin_capture(other, CaptureMode::Relaxed).unwrap();
    b.engine.record_stream(block.id, other).unwrap();
    b.engine.free(block.id).unwrap();
    let graph = b.driver.end_capture(other).unwrap();
    b.driver.destroy_graph(graph).unwrap();
    let refused = b.engine.retire_stream(other);
    assert!(matches!(refused, Err(Error::Stream { why: StreamRefusal::InUse, .. })), "{refused:?}");
    let report = b.finish(s, capture);
    b.driver.complete_all();
    b.engine.release_graph(report.graph).unwrap();
    b.engine.retire_stream(other).unwrap();
    b.driver.destroy_stream(other).unwrap();
    b.driver.complete_all();
    b.engine.destroy_pool(b.pool).unwrap();
    let info = b.driver.memory_info().unwrap();
    assert_eq!(info.free, info.total);
}

/// Neighbours that belong to two streams are no place for either where streams share nothing.
#[test]
fn a_place_over_several_ranges_keeps_to_the_stream_s_own() {
    for (reuse, shares) in [(Reuse::OwnStream, false), (Reuse::CrossStream, true)] {
        let b = bench(Config::default().reuse(reuse));
        let (capture, s, t) = forked(&b);
        let (own, others) = (b.allocate(t), b.allocate(s));
        assert_eq!(own.address + own.bytes, others.address);
        b.launch(s);
        b.launch(t);
        b.engine.free(own.id).unwrap();
        b.engine.free(others.id).unwrap();
        b.driver.wait(t, s).unwrap();
        let both = b.engine.allocate(b.pool, 2 * own.bytes, t).unwrap();
        assert_eq!(both.address == own.address, shares, "{reuse:?}");
        b.launch(t);
        b.driver.wait(s, t).unwrap();
        b.finish(s, capture);
    }
}

/// A place of a layout is free for a stream only if all that lay there is done with.
#[test]
fn a_place_of_a_layout_is_asked_about_to_its_end() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let program = |joined: bool| {
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        let (first, second) = (b.allocate(s), b.allocate(t));
        b.launch(s);
        b.launch(t);
        b.engine.free(first.id).unwrap();
        b.engine.free(second.id).unwrap();
        if joined {
            b.driver.wait(s, t).unwrap();
        }
        let over_both = b.engine.allocate(b.pool, 8 * MIB, s).unwrap();
        b.launch(s);
        b.driver.wait(s, t).unwrap();
        (first, second, over_both)
    };
    let capture = b.begin(s);
    let (.., last) = program(true);
    let layout = b.engine.layout_of(capture).unwrap();
    assert_eq!(layout.bytes(), 8 * MIB);
    b.engine.free(last.id).unwrap();
    b.engine.abandon_capture(capture).unwrap();
    b.driver.end_capture(s).unwrap();
    let capture = b.begin(s);
    b.engine.follow_layout(capture, layout).unwrap();
    let (first, second, last) = program(false);
    assert_eq!(first.address + first.bytes, second.address);
    assert_ne!(last.address, first.address);
    b.finish(s, capture);
}

/// Between the question whether a stream captures and the event that is recorded on it, another
/// thread may begin a capture there: the event is the capture's then, and a question about it would
/// ruin that.
#[test]
fn an_event_that_a_capture_overtook_is_not_asked_about() {
    let sim = Arc::new(SimDriver::new(SimConfig::default()));
    let driver = Arc::new(Renamed::new(sim.clone()));
    let [s, t] = [0x51, 0x52].map(StreamHandle::from_bits);
    let streams = [(); 2].map(|()| sim.create_stream().unwrap());
    driver.name(StreamHandle::from_bits(0), Some(StreamHandle::from_bits(0)));
    driver.name(s, Some(streams[0]));
    driver.name(t, Some(streams[1]));
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
    sim.end_capture(streams[1]).expect("the capture was not ruined");
}
