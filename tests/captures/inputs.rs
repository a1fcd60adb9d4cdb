//! Blocks from before a capture that the capture frees: it may have their places itself.

use crate::common::{bench, Bench};
use regraph::driver::{CaptureId, CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Block, Config, PoolConfig};
use regraph::settings::Settings;

fn checked() -> Config {
    Config::default().check(true).find_late_uses(false)
}

/// Begins a capture that the host has told of, when all work has completed.
fn begin(b: &Bench, stream: StreamHandle) -> CaptureId {
    b.engine.host().expect_capture(stream).unwrap();
    b.driver.complete_all();
    b.begin(stream)
}

/// Frees a block in a capture of its stream's, behind a kernel, and says whether the next block takes its
/// place.
fn is_reused(b: &Bench, stream: StreamHandle, block: &Block) -> bool {
    b.launch(stream);
    b.engine.free(block.id).unwrap();
    let next = b.allocate(stream);
    b.launch(stream);
    next.address == block.address
}

/// Figures and history hold for a block that a stream's cache had leased, and for one that it had not.
#[test]
fn figures_agree_when_inputs_are_freed() {
    let b = bench(checked().settings(Settings::default().history(1000)));
    let [s] = b.streams();
    let blocks: Vec<Block> =
        (1..6).map(|n| b.engine.allocate(b.pool, n << 19, s).unwrap()).collect();
    let capture = begin(&b, s);
    for block in &blocks {
        b.launch(s);
        b.engine.free(block.id).unwrap();
        let all = b.engine.statistics().unwrap().all;
        let (active, rest) = (all.active_bytes.current, all.inactive_split_bytes.current);
        assert_eq!(all.reserved_bytes.current, active + rest);
        let snapshot = b.engine.snapshot().unwrap();
        regraph_trace::snapshot::validate(&snapshot).unwrap();
        regraph_trace::snapshot::validate_history(&snapshot).unwrap();
    }
    assert_eq!(b.engine.statistics().unwrap().all.active_bytes.current, 0);
    b.finish(s, capture);
}

/// Each call of the driver fails in turn, before the capture begins or at the free: the input waits then, or
/// is had all the same, and the capture goes on.
#[test]
fn every_call_may_fail_while_an_input_is_taken() {
    for at_the_free in [false, true] {
        for n in 0.. {
            let b = bench(checked());
            let [s] = b.streams();
            let block = b.allocate(s);
            b.launch(s);
            let fail = |now: bool| now.then(|| b.driver.fail_any_nth(n, ErrorKind::InvalidValue));
            let before = b.driver.total_calls();
            fail(!at_the_free);
            b.engine.host().expect_capture(s).unwrap();
            let mut made = b.driver.total_calls() - before;
            b.driver.forget_failures();
            b.driver.complete_all();
            let capture = b.begin(s);
            b.launch(s);
            let before = b.driver.total_calls();
            fail(at_the_free);
            b.engine.free(block.id).unwrap();
            if at_the_free {
                made = b.driver.total_calls() - before;
            }
            b.driver.forget_failures();
            let next = b.allocate(s);
            b.launch(s);
            if made <= n {
                assert_eq!(next.address, block.address);
            }
            b.engine.free(next.id).unwrap();
            let graph = b.finish(s, capture).graph;
            b.driver.complete_all();
            b.engine.release_graph(graph).unwrap();
            for _ in 0..3 {
                b.driver.complete_all();
                b.engine.empty_cache().unwrap();
            }
            b.engine.destroy_pool(b.pool).unwrap();
            assert_eq!(b.driver.used_bytes(), 0);
            if made <= n {
                assert!(n > 1, "the stream and the event are asked");
                break;
            }
        }
    }
}

/// The question whether its work has completed may find that another capture uses the pool.
#[test]
fn a_capture_that_the_free_itself_finds_in_the_pool_is_one_beside() {
    let b = bench(checked());
    let [s, t, u] = b.streams();
    let other = b.engine.create_pool(PoolConfig::default());
    let (block, waiting) = (b.allocate(s), b.allocate(t));
    b.launch(s);
    b.launch(t);
    b.driver.begin_capture(t, CaptureMode::Relaxed).unwrap();
    b.launch(t);
    b.engine.free(waiting.id).unwrap();
    b.driver.begin_capture(u, CaptureMode::Relaxed).unwrap();
    let beside = b.engine.begin_capture(other, u).unwrap();
    b.launch(u);
    b.engine.host().expect_capture(s).unwrap();
    let capture = b.begin(s);
    // The stream that the pool's memory waits for goes from a capture unknown here into the other one.
    b.driver.end_capture(t).unwrap();
    b.driver.wait(t, u).unwrap();
    b.launch(t);
    b.driver.complete_all();
    assert!(!is_reused(&b, s, &block));
    b.finish(s, capture);
    b.driver.wait(u, t).unwrap();
    b.finish(u, beside);
}
