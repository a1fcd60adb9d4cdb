//! The hard cases, each by itself.
#![allow(clippy::unwrap_used)]

mod common;

use common::{bench, MIB};
use regraph::driver::{CaptureMode, Dependency, Driver, EdgeData, Program};
use regraph::engine::{Config, Error, PoolConfig, Refusal, WaitReason};
use regraph::policy::{Programmatic, Reuse};

#[test]
fn a_user_outside_the_capture_holds_the_block_until_the_end() {
    let b = bench(Config::default());
    let [s, outside] = b.streams();
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.launch(s);
    b.engine.record_stream(block.id, outside).unwrap();
    b.launch(outside);
    b.engine.free(block.id).unwrap();
    assert_ne!(b.allocate(s).address, block.address);
    b.launch(s);
    // The stream was never in the capture: that is no reason to refuse it.
    b.finish(s, capture);
    assert_ne!(b.allocate(s).address, block.address, "its work is not done");
    b.driver.complete_all();
    let capture = b.begin(s);
    assert_eq!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn what_waits_in_one_pool_is_no_concern_of_a_capture_in_another() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let other = b.engine.create_pool(PoolConfig::default());
    let elsewhere = b.engine.allocate(other, 4 * MIB, t).unwrap();
    b.launch(t);
    b.engine.free(elsewhere.id).unwrap();
    let capture = b.begin(s);
    b.driver.complete_all();
    // Notices that the other pool's block is free.
    b.allocate(s);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn what_an_abandoned_capture_gave_back_serves_the_one_beside_it() {
    for late in [false, true] {
        let b = bench(Config::default());
        let [s, t] = b.streams();
        let dead = b.begin(s);
        let mut capture = (!late).then(|| b.begin(t));
        let block = b.allocate(s);
        b.launch(s);
        b.engine.free(block.id).unwrap();
        let capture = *capture.get_or_insert_with(|| b.begin(t));
        b.driver.end_capture(s).unwrap();
        b.engine.abandon_capture(dead).unwrap();
        assert_eq!(b.allocate(t).address, block.address);
        b.launch(t);
        b.finish(t, capture);
    }
}

#[test]
fn a_block_that_nobody_used_serves_the_capture_beside() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let (one, other) = (b.begin(s), b.begin(t));
    b.launch(t);
    // The younger capture frees: the older one's memory could be in use in it.
    let block = b.allocate(t);
    b.engine.free(block.id).unwrap();
    assert_eq!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, one);
    b.finish(t, other);
}

#[test]
fn a_block_from_outside_that_a_body_used_waits_for_the_parent() {
    let b = bench(Config::default());
    let [s, inner] = b.streams();
    let block = b.allocate(inner);
    b.driver.complete_all();
    let capture = b.begin(s);
    b.launch(s);
    let start = b.driver.terminals(s).unwrap();
    let (_, body) = b.driver.add_conditional(b.graph(s), &start).unwrap();
    b.driver.begin_capture_to_graph(inner, body, CaptureMode::Relaxed).unwrap();
    let inside = b.engine.begin_capture(b.pool, inner).unwrap();
    b.launch(inner);
    b.engine.free(block.id).unwrap();
    b.finish(inner, inside);
    b.driver.complete_all();
    // The parent's next kernel may run beside the body.
    assert_ne!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}
