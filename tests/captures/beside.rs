//! Memory from outside captures whose streams capture: who may have it when.

use crate::common::bench;
use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{Config, PoolConfig};

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
