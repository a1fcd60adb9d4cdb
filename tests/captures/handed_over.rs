//! Captures that go from thread to thread, as a framework's do whose backward passes run on a thread of their own.

use std::sync::mpsc::channel;

use crate::common::{bench, Bench};
use regraph::driver::{CaptureMode, HostApi, StreamHandle};
use regraph::engine::Config;

#[test]
fn a_ruined_capture_that_is_ended_lets_go_of_what_another_thread_freed() {
    let (b, [s], capture) = bench(Config::default()).capturing();
    let block = b.allocate(s);
    b.launch(s);
    let graph = b.graph(s);
    std::thread::scope(|scope| scope.spawn(|| b.engine.free(block.id)).join().unwrap()).unwrap();
    b.driver.invalidate(s).unwrap();
    assert!(b.engine.end_capture(capture, graph).is_err());
    b.driver.end_capture(s).unwrap_err();
    b.driver.complete_all();
    b.engine.empty_cache().unwrap();
    assert_eq!(b.engine.empty_cache().unwrap().reserved, 0);
}

/// Has another thread begin a capture, and live until something is done here.
fn while_another_captures<R>(b: &Bench, stream: StreamHandle, run: impl FnOnce() -> R) -> R {
    let (told, begun) = channel();
    let (over, ended) = channel::<()>();
    std::thread::scope(move |scope| {
        let other = scope.spawn(move || {
            b.engine.host().may_capture(stream).unwrap();
            b.driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
            told.send(()).unwrap();
            // An error where what runs meanwhile has panicked.
            let _ = ended.recv();
        });
        begun.recv().unwrap();
        let done = run();
        drop(over);
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

/// The host promises that no graph uses the block, so it waits for the stream alone, and not for captures.
#[test]
fn what_a_stream_used_that_captures_on_another_thread_by_now_is_not_free_before_that() {
    let (b, [s, t]) = bench(Config::default().keeps_inputs(true)).with_streams();
    let block = b.allocate(s);
    b.launch(t);
    b.engine.record_stream(block.id, t).unwrap();
    while_another_captures(&b, t, || {
        let capture = b.begin(s);
        b.engine.free(block.id).unwrap();
        b.end(s, capture);
        b.driver.complete(s).unwrap();
        assert_ne!(b.allocate(s).address, block.address);
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
