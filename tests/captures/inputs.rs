//! Blocks from before a capture that the capture frees: it may have their places itself.

use crate::common::{bench, Bench, MIB};
use regraph::driver::{CaptureId, CaptureMode, ErrorKind, HostApi, StreamHandle};
use regraph::engine::{Block, Config, PoolConfig};
use regraph::settings::Settings;

fn checked() -> Config {
    Config::default().check(true).find_late_uses(false)
}

/// Begins a capture that the host has told of, when all work has completed.
fn begin(b: &Bench, stream: StreamHandle) -> CaptureId {
    b.engine.expect_capture(stream).unwrap();
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

#[test]
fn a_capture_has_the_place_of_an_input_that_it_frees() {
    // With a stream's cache that had leased the block, and without caches' blocks.
    for bytes in [MIB / 2, 4 * MIB] {
        let b = bench(checked());
        let [s, t] = b.streams();
        let block = b.engine.allocate(b.pool, bytes, s).unwrap();
        b.launch(s);
        let capture = begin(&b, s);
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        b.launch(s);
        b.engine.free(block.id).unwrap();
        let allocate = |stream| b.engine.allocate(b.pool, bytes, stream).unwrap();
        let other = allocate(t);
        assert_ne!(other.address, block.address, "t does not come after s's use");
        let own = allocate(s);
        b.launch(s);
        if bytes > MIB {
            assert_eq!(own.address, block.address);
        }
        b.launch(t);
        b.driver.wait(s, t).unwrap();
        b.engine.free(own.id).unwrap();
        b.finish(s, capture);
        // It is the graph's now.
        b.driver.complete_all();
        assert_ne!(allocate(s).address, block.address);
    }
}

/// What was never used in the capture needs no order there.
#[test]
fn an_input_without_work_is_free_for_every_stream() {
    let b = bench(checked());
    let [s, t] = b.streams();
    let block = b.allocate(s);
    b.launch(s);
    let capture = begin(&b, s);
    b.driver.wait(t, s).unwrap();
    b.engine.free(block.id).unwrap();
    b.launch(s);
    assert_eq!(b.allocate(t).address, block.address);
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}

/// An earlier graph's output is one as well; the markers of the capture that placed it say nothing.
#[test]
fn an_output_of_an_earlier_graph_is_an_input() {
    let b = bench(checked());
    let [s] = b.streams();
    let capture = b.begin(s);
    let temporary = b.allocate(s);
    b.launch(s);
    b.engine.free(temporary.id).unwrap();
    let output = b.allocate(s);
    b.launch(s);
    b.finish(s, capture);
    assert_eq!(output.address, temporary.address);
    let capture = begin(&b, s);
    assert!(is_reused(&b, s, &output));
    b.finish(s, capture);
    assert_eq!(b.reserved(), 4 * MIB);
}

/// All work on it has completed, so a capture that comes to nothing leaves it free for everything.
#[test]
fn a_capture_that_is_rolled_back_gives_it_to_eager_work() {
    let b = bench(checked());
    let [s, t] = b.streams();
    let block = b.allocate(s);
    b.launch(s);
    let capture = begin(&b, s);
    b.launch(s);
    b.engine.free(block.id).unwrap();
    let next = b.allocate(s);
    b.engine.free(next.id).unwrap();
    b.driver.end_capture(s).unwrap();
    b.engine.abandon_capture(capture).unwrap();
    b.driver.complete_all();
    assert_eq!(b.allocate(t).address, block.address);
}

#[test]
fn an_input_that_something_else_may_use_waits() {
    // Its host has said nothing of the capture; its work still runs.
    for tells in [false, true] {
        let b = bench(checked());
        let [s] = b.streams();
        let block = b.allocate(s);
        b.launch(s);
        if tells {
            b.engine.expect_capture(s).unwrap();
        }
        let second = b.allocate(s);
        let capture = b.begin(s);
        assert!(!is_reused(&b, s, &block));
        // Completed in the meantime.
        b.driver.complete_all();
        assert_eq!(is_reused(&b, s, &second), tells);
        b.finish(s, capture);
    }
    // The mark is an earlier capture's.
    let b = bench(checked());
    let [s] = b.streams();
    let capture = begin(&b, s);
    b.finish(s, capture);
    let block = b.allocate(s);
    b.launch(s);
    let capture = b.begin(s);
    b.driver.complete_all();
    assert!(!is_reused(&b, s, &block));
    b.finish(s, capture);
    // Another stream uses it, eagerly or in the capture; it is another stream's; another capture knows it.
    for case in 0..4 {
        let b = bench(checked());
        let [s, t] = b.streams();
        let block = b.allocate(if case == 2 { t } else { s });
        b.launch(s);
        if case < 2 {
            b.engine.record_stream(block.id, t).unwrap();
        }
        let beside = (case == 3).then(|| b.begin(t));
        let capture = begin(&b, s);
        if case > 0 && case < 3 {
            b.launch(s);
            b.driver.wait(t, s).unwrap();
        }
        assert!(!is_reused(&b, s, &block), "case {case}");
        if case > 0 && case < 3 {
            b.driver.wait(s, t).unwrap();
        }
        b.finish(s, capture);
        if let Some(beside) = beside {
            b.finish(t, beside);
        }
    }
    // The pool is not the first that the capture uses: the record does not name it from the first.
    let b = bench(checked());
    let [s] = b.streams();
    let other = b.engine.create_pool(PoolConfig::default());
    let block = b.engine.allocate(other, 4 * MIB, s).unwrap();
    let capture = begin(&b, s);
    b.launch(s);
    b.engine.begin_capture(other, s).unwrap();
    b.engine.free(block.id).unwrap();
    let next = b.engine.allocate(other, 4 * MIB, s).unwrap();
    assert_ne!(next.address, block.address);
    b.finish(s, capture);
    // Memory that goes back to the driver as soon as it is free.
    let b = bench(checked().settings(Settings::default().caching(false)));
    let [s] = b.streams();
    let block = b.allocate(s);
    let capture = begin(&b, s);
    assert!(!is_reused(&b, s, &block));
    b.finish(s, capture);
}

/// A host may begin a capture by hand after it has told of another that then came to nothing.
#[test]
fn a_capture_that_is_not_announced_has_no_inputs() {
    let b = bench(checked());
    let [s] = b.streams();
    b.engine.expect_capture(s).unwrap();
    b.driver.complete_all();
    let blocks = [b.allocate(s), b.allocate(s)];
    b.launch(s);
    for (block, announced) in blocks.iter().zip([false, true]) {
        b.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
        if announced {
            b.engine.begin_capture(b.pool, s).unwrap();
        }
        let first = b.allocate(s);
        assert!(!is_reused(&b, s, block));
        b.engine.free(first.id).unwrap();
        let capture = b.engine.captures_of(s).unwrap()[0];
        b.finish(s, capture);
    }
}

/// What a stream launched before the engine heard of its capture may be set back by then.
#[test]
fn a_capture_that_was_set_back_before_its_first_sight_takes_no_inputs() {
    let b = bench(checked().foreign_nodes(true));
    let [s] = b.streams();
    let input = b.allocate(s);
    b.engine.expect_capture(s).unwrap();
    b.driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
    b.launch(s);
    b.engine.observe(s).unwrap();
    b.driver.set_terminals(s, &[]).unwrap();
    b.engine.observe(s).unwrap();
    let capture = b.engine.begin_capture(b.pool, s).unwrap();
    assert!(!is_reused(&b, s, &input));
    b.finish(s, capture);
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
            b.engine.expect_capture(s).unwrap();
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
    b.engine.expect_capture(s).unwrap();
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
