//! The engine's behaviour through its public face, on the simulated driver.

use crate::common::{bench, MIB};
use regraph::driver::{CaptureMode, Driver, HostApi};
use regraph::engine::{Config, Error, PoolConfig, Refusal, Unknown};
use regraph::settings::{Programmatic, Reuse};
use regraph_tagged::{Program, Work};

#[test]
fn own_stream_reuses_at_once() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let capture = b.begin(s);
    let mut addresses = Vec::new();
    for _ in 0..5 {
        let block = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
        b.launch(s);
        addresses.push(block.address);
        b.engine.free(block.id).unwrap();
    }
    b.finish(s, capture);
    assert_eq!(b.reserved(), 4 * MIB);
    assert!(addresses.iter().all(|&address| address == addresses[0]));
}

#[test]
fn another_stream_takes_a_block_only_after_a_join() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let capture = b.begin(s);
    b.driver.wait(t, s).unwrap();
    let block = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    b.launch(s);
    b.engine.free(block.id).unwrap();
    let early = b.engine.allocate(b.pool, 4 * MIB, t).unwrap();
    assert_ne!(early.address, block.address, "t does not come after s yet");
    let refusals = b.engine.explain(b.pool, t).unwrap();
    assert!(matches!(refusals[0].refusal, Some(Refusal::Marker { .. })));
    b.driver.wait(t, s).unwrap();
    let late = b.engine.allocate(b.pool, 4 * MIB, t).unwrap();
    assert_eq!(late.address, block.address);
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
    assert_eq!(b.reserved(), 8 * MIB);
}

#[test]
fn a_used_stream_sets_a_marker() {
    for (reuse, expected) in
        [(Reuse::CrossStream, 4 * MIB), (Reuse::OwnStream, 4 * MIB), (Reuse::Deferred, 8 * MIB)]
    {
        let b = bench(Config::default().reuse(reuse));
        let [s, t] = b.streams();
        let capture = b.begin(s);
        let block = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        b.engine.record_stream(block.id, t).unwrap();
        b.launch(t);
        b.engine.free(block.id).unwrap();
        b.driver.wait(s, t).unwrap();
        let next = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
        b.launch(s);
        assert_eq!(next.address == block.address, expected == 4 * MIB);
        b.finish(s, capture);
        assert_eq!(b.reserved(), expected, "{reuse}");
    }
}

#[test]
fn runs_join_without_losing_their_markers() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let capture = b.begin(s);
    let blocks: Vec<_> = (0..4).map(|_| b.engine.allocate(b.pool, 2 * MIB, s).unwrap()).collect();
    for block in &blocks {
        b.launch(s);
        b.engine.free(block.id).unwrap();
    }
    let large = b.engine.allocate(b.pool, 8 * MIB, s).unwrap();
    assert_eq!(large.address, blocks[0].address);
    b.launch(s);
    b.finish(s, capture);
    assert_eq!(b.reserved(), 8 * MIB);
}

#[test]
fn outputs_stay_and_pending_blocks_serve_the_next_capture() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let capture = b.begin(s);
    let output = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    let shared = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    b.launch(s);
    b.driver.wait(t, s).unwrap();
    b.engine.record_stream(shared.id, t).unwrap();
    b.launch(t);
    b.engine.free(shared.id).unwrap();
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
    // Work outside captures gets nothing that the graph uses.
    let outside = b.engine.allocate(b.pool, 4 * MIB, t).unwrap();
    assert!(outside.address != shared.address && outside.address != output.address);
    let capture = b.begin(s);
    let next = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    assert_eq!(next.address, shared.address);
    b.launch(s);
    b.finish(s, capture);
    b.engine.free(output.id).unwrap();
    b.engine.free(next.id).unwrap();
    assert!(matches!(b.engine.free(next.id), Err(Error::Unknown { what: Unknown::Block(_), .. })));
}

#[test]
fn zero_bytes_is_an_error_that_names_the_call() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let error = b.engine.allocate(b.pool, 0, s).unwrap_err();
    assert!(error.to_string().starts_with("allocate: zero bytes"), "{error}");
}

#[test]
fn a_full_pool_says_so_and_the_capture_goes_on() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let pool = b.engine.create_pool(PoolConfig::default().max_bytes(8 * MIB));
    b.driver.begin_capture(s, CaptureMode::Global).unwrap();
    let first = b.engine.allocate(pool, 6 * MIB, s).unwrap();
    b.launch(s);
    let error = b.engine.allocate(pool, 6 * MIB, s).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("6 MiB requested") && text.contains("of at most 8 MiB"), "{text}");
    b.engine.free(first.id).unwrap();
    assert_eq!(b.engine.allocate(pool, 6 * MIB, s).unwrap().address, first.address);
    b.launch(s);
    b.driver.end_capture(s).unwrap();
}

#[test]
fn an_invalidated_capture_is_rolled_back() {
    let b = bench(Config::default());
    let [s] = b.streams();
    b.begin(s);
    let kept = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    let gone = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    b.launch(s);
    b.engine.free(gone.id).unwrap();
    b.driver.invalidate(s).unwrap();
    assert!(matches!(b.engine.allocate(b.pool, 4 * MIB, s), Err(Error::CaptureInvalidated { .. })));
    assert!(b.driver.end_capture(s).is_err());
    // Nothing of the capture will run, so its memory serves work outside captures again.
    let outside = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    assert_eq!(outside.address, gone.address);
    b.engine.free(kept.id).unwrap();
    b.engine.free(outside.id).unwrap();
    b.driver.complete_all();
    b.engine.destroy_pool(b.pool).unwrap();
    assert_eq!(b.driver.memory_info().unwrap().free, b.driver.memory_info().unwrap().total);
}

#[test]
fn terminals_set_back_take_trust_away() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let capture = b.begin(s);
    b.launch(s);
    let old = b.driver.terminals(s).unwrap();
    let block = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    b.launch(s);
    b.engine.observe(s).unwrap();
    b.driver.set_terminals(s, &old).unwrap();
    b.engine.observe(s).unwrap();
    b.launch(s);
    b.engine.free(block.id).unwrap();
    let next = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    assert_ne!(next.address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn lag_holds_a_block_until_a_full_edge_lies_behind_the_terminals() {
    let b = bench(Config::default().programmatic(Programmatic::Lag));
    let [s] = b.streams();
    let capture = b.begin(s);
    let block = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    b.launch(s);
    b.engine.free(block.id).unwrap();
    let early = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    assert_ne!(early.address, block.address, "the next launch may be programmatic");
    b.launch(s);
    let late = b.engine.allocate(b.pool, 4 * MIB, s).unwrap();
    assert_eq!(late.address, block.address);
    b.driver.launch(s, Work::default(), true).unwrap();
    b.finish(s, capture);
}

#[test]
fn each_node_is_asked_for_once() {
    let b = bench(Config::default().check(false));
    let streams: [_; 4] = b.streams();
    let s = streams[0];
    let capture = b.begin(s);
    for &t in &streams[1..] {
        b.driver.wait(t, s).unwrap();
    }
    for step in 0..200 {
        let t = streams[step % 4];
        b.driver.wait(t, streams[(step * 7 + 1) % 4]).unwrap();
        let block = b.engine.allocate(b.pool, MIB, t).unwrap();
        b.launch(t);
        b.engine.free(block.id).unwrap();
    }
    for &t in &streams[1..] {
        b.driver.wait(s, t).unwrap();
    }
    let graph = b.graph(s);
    let report = b.engine.end_capture(capture, graph).unwrap();
    b.driver.end_capture(s).unwrap();
    assert_eq!(report.nodes, 200);
    assert_eq!(report.dependency_queries, 200);
    assert_eq!(b.driver.calls(regraph_sim::Call::Dependencies), 200);
}
