//! Memory from outside captures whose streams capture: who may have it when.

use crate::common::bench;
use regraph::driver::{CaptureMode, ErrorKind, HostApi};
use regraph::engine::{Config, Error, PoolConfig, PoolRefusal};
use regraph_sim::Call;

/// A block is freed while its stream captures, and a question of the free fails. Its pool belongs to
/// the graph all the same.
#[test]
fn a_pool_whose_block_a_graph_uses_belongs_to_it_though_a_question_failed() {
    for n in 0..6 {
        let b = bench(Config::default());
        let [s] = b.streams();
        let other = b.engine.create_pool(PoolConfig::default());
        let block = b.allocate(s);
        b.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
        let capture = b.engine.begin_capture(other, s).unwrap();
        b.launch(s);
        b.driver.fail_nth(Call::CaptureStatus, n, ErrorKind::NotPermitted);
        b.engine.free(block.id).unwrap();
        b.driver.forget_failures();
        b.engine.end_capture(capture, b.graph(s)).unwrap();
        b.driver.end_capture(s).unwrap();
        b.driver.complete_all();
        let destroyed = b.engine.destroy_pool(b.pool);
        assert!(
            matches!(destroyed, Err(Error::Pool { why: PoolRefusal::InUse { .. }, .. })),
            "{n}: {destroyed:?}"
        );
    }
}

#[test]
fn a_graph_s_memory_stays_its_own_though_a_question_failed_and_the_driver_ended_first() {
    for n in 0..6 {
        let b = bench(Config::default());
        let [s, t] = b.streams();
        let block = b.allocate(s);
        let capture = b.begin(s);
        b.launch(s);
        b.driver.fail_nth(Call::CaptureStatus, n, ErrorKind::NotPermitted);
        b.engine.free(block.id).unwrap();
        b.driver.forget_failures();
        let graph = b.driver.end_capture(s).unwrap();
        let accepted = b.engine.end_capture(capture, graph).is_ok();
        b.driver.complete_all();
        let again = b.allocate(t);
        assert!(!accepted || again.address != block.address, "{n}");
    }
}

/// A stream that was recorded for a block is in a capture of its own, which is ruined. The block's
/// capture is sound all the same, and its graph keeps the memory.
#[test]
fn another_capture_s_ruin_is_not_the_block_s() {
    let b = bench(Config::default());
    let [s, t, u] = b.streams();
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.launch(s);
    b.engine.record_stream(block.id, t).unwrap();
    b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    b.driver.invalidate(t).unwrap();
    let graph = b.driver.end_capture(s).unwrap();
    b.engine.free(block.id).unwrap();
    let accepted = b.engine.end_capture(capture, graph).is_ok();
    b.driver.end_capture(t).unwrap_err();
    b.driver.complete_all();
    assert!(!accepted || b.allocate(u).address != block.address);
}

/// A block of one pool is freed while its stream captures into that pool, and the stream captures into another one before
/// anything is looked at. The second graph has nothing to do with the first pool.
#[test]
fn a_capture_that_begins_after_a_free_does_not_use_the_block() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let other = b.engine.create_pool(PoolConfig::default());
    let block = b.allocate(s);
    b.launch(s);
    let capture = b.begin(s);
    b.launch(s);
    b.engine.free(block.id).unwrap();
    let first = b.engine.end_capture(capture, b.graph(s)).unwrap().graph;
    b.driver.end_capture(s).unwrap();
    b.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    let capture = b.engine.begin_capture(other, s).unwrap();
    b.launch(s);
    b.engine.end_capture(capture, b.graph(s)).unwrap();
    b.driver.end_capture(s).unwrap();
    b.driver.complete_all();
    b.engine.release_graph(first).unwrap();
    b.engine.destroy_pool(b.pool).unwrap();
}
