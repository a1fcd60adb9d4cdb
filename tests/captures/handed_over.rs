//! Captures that go from thread to thread, as a framework's do whose backward passes run on a thread of their own.

use std::sync::mpsc::channel;

use crate::common::{bench, Bench, MIB};
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::Config;

/// Runs something on another thread, to its end.
fn elsewhere<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[test]
fn who_asks_for_memory_in_a_capture_may_look_at_all_its_streams() {
    let (b, [s, t], capture) = bench(Config::default()).capturing();
    b.driver.wait(t, s).unwrap();
    let (of_s, of_t) = (b.allocate(s), b.allocate(t));
    b.launch(s);
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    elsewhere(|| {
        let mine = b.allocate(s);
        b.launch_and_free(s, of_t);
        b.engine.free(of_s.id).unwrap();
        // Both are proven at once: nothing of the capture is another thread's any more.
        let again = [b.allocate(s).address, b.allocate(s).address];
        assert!(again.contains(&of_s.address) && again.contains(&of_t.address));
        b.engine.free(mine.id).unwrap();
    });
    b.finish(s, capture);
}

/// Three ways to find out that a capture is ruined, with a block that another thread has freed.
#[test]
fn a_capture_that_is_ruined_lets_go_of_what_another_thread_freed() {
    for way in 0..3 {
        let (b, [s, t], capture) = bench(Config::default()).capturing();
        let block = b.allocate(s);
        b.launch(s);
        let graph = b.graph(s);
        elsewhere(|| b.engine.free(block.id).unwrap());
        b.driver.invalidate(s).unwrap();
        match way {
            0 => assert!(b.engine.end_capture(capture, graph).is_err()),
            1 => b.engine.abandon_capture(capture).unwrap(),
            _ => assert!(b.engine.allocate(b.pool, MIB, s).is_err()),
        }
        b.driver.end_capture(s).unwrap_err();
        b.driver.complete_all();
        let first = b.engine.empty_cache().unwrap().released;
        let all = first + b.engine.empty_cache().unwrap().released;
        assert_eq!(all, 4 * MIB, "way {way}");
        b.allocate(t);
    }
}

#[test]
fn what_another_thread_freed_of_a_graph_is_no_work_s_outside() {
    let (b, [s, t], capture) = bench(Config::default()).capturing();
    let block = b.allocate(s);
    b.launch(s);
    elsewhere(|| b.engine.free(block.id).unwrap());
    b.driver.end_capture(s).unwrap();
    b.engine.host().end_unjudged(capture).unwrap();
    b.driver.complete_all();
    assert_ne!(b.allocate(t).address, block.address);
}

/// Has another thread begin a capture, and live until something is done here.
fn while_another_captures<R>(b: &Bench, stream: StreamHandle, run: impl FnOnce() -> R) -> R {
    let (told, begun) = channel();
    let (over, ended) = channel();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            b.engine.host().may_capture(stream).unwrap();
            b.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
            told.send(()).unwrap();
            ended.recv().unwrap();
        });
        begun.recv().unwrap();
        let done = run();
        over.send(()).unwrap();
        // The scope's own end does not wait for what the thread drops last.
        other.join().unwrap();
        done
    })
}

/// It was in a capture that came to nothing, and in none that was not told of, when the block was freed.
#[test]
fn what_a_stream_used_that_captures_on_another_thread_since_is_no_graph_s() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let block = b.allocate(s);
    let capture = b.begin(t);
    b.engine.record_stream(block.id, t).unwrap();
    b.engine.free(block.id).unwrap();
    b.driver.end_capture(t).unwrap();
    while_another_captures(&b, t, || {
        b.engine.abandon_capture(capture).unwrap();
        b.driver.complete_all();
        assert_ne!(b.allocate(s).address, block.address, "it waits for the other capture");
    });
    b.driver.end_capture(t).unwrap();
    b.driver.complete_all();
    assert_eq!(b.allocate(s).address, block.address);
}

/// Another thread captures it when it is freed, and a capture is known that it may be in: the next look tells.
#[test]
fn what_another_thread_captured_beside_a_known_capture_is_a_graph_s() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let block = b.allocate(s);
    let capture = while_another_captures(&b, s, || {
        let capture = b.begin(t);
        b.engine.free(block.id).unwrap();
        capture
    });
    b.engine.abandon_capture(capture).unwrap();
    b.engine.empty_cache().unwrap();
    b.driver.end_capture(s).unwrap();
    b.driver.end_capture(t).unwrap();
    b.driver.complete_all();
    assert_ne!(b.allocate(s).address, block.address);
}
