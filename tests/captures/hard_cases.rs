//! The hard cases, each by itself.

use crate::common::{bench, MIB};
use regraph::driver::{CaptureMode, Dependency, Driver, EdgeData, ErrorKind, HostApi};
use regraph::engine::{Config, Error, PoolConfig, Refusal, WaitReason};
use regraph::settings::{Programmatic, Reuse};
use regraph_record::journal::Entry;
use regraph_sim::{Call, SimConfig};
use regraph_tagged::Program;

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
fn what_an_abandoned_capture_gave_back_serves_those_that_begin_later() {
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
        // The capture beside it was told that the memory is not its own, and keeps off it.
        assert_ne!(b.allocate(t).address, block.address);
        b.launch(t);
        b.finish(t, capture);
        let capture = b.begin(s);
        assert_eq!(b.allocate(s).address, block.address);
        b.launch(s);
        b.finish(s, capture);
    }
}

#[test]
fn a_block_that_no_stream_used_serves_the_capture_beside() {
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

/// Frees a block between two launches, takes its place, and then launches programmatically.
fn programmatic_after_reuse(policy: Programmatic) -> (u64, u64, Result<(), Error>) {
    let b = bench(Config::default().programmatic(policy));
    let [s] = b.streams();
    let capture = b.begin(s);
    let first = b.allocate(s);
    b.launch(s);
    b.engine.free(first.id).unwrap();
    let second = b.allocate(s);
    b.launch_early(s);
    (first.address, second.address, b.try_finish(s, capture).map(|_| ()))
}

#[test]
fn programmatic_edges_are_judged_by_policy() {
    let (first, second, ended) = programmatic_after_reuse(Programmatic::Deny);
    assert_eq!(first, second);
    let text = ended.unwrap_err().to_string();
    assert!(text.contains("block 0 at") && text.contains("block 1 at"), "{text}");
    let (first, second, ended) = programmatic_after_reuse(Programmatic::Lag);
    assert_ne!(first, second);
    ended.unwrap();
    let (first, second, ended) = programmatic_after_reuse(Programmatic::Trust);
    assert_eq!(first, second);
    ended.unwrap();
}

#[test]
fn launch_order_proves_nothing_under_any_policy() {
    for &policy in Programmatic::ALL {
        let b = bench(Config::default().programmatic(policy));
        let [s, t] = b.streams();
        let capture = b.begin(s);
        let block = b.allocate(s);
        b.launch(s);
        b.engine.free(block.id).unwrap();
        let event = b.driver.record_programmatic(s, EdgeData::LAUNCH_ORDER).unwrap();
        b.driver.wait_event(t, event).unwrap();
        assert_ne!(b.allocate(t).address, block.address, "{policy}");
        b.launch(t);
        b.driver.wait(s, t).unwrap();
        b.finish(s, capture);
    }
}

#[test]
fn a_removed_edge_is_found_at_the_end() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let capture = b.begin(s);
    b.reuse_without_edge(s);
    assert!(matches!(b.try_finish(s, capture), Err(Error::Refused(_))));
    // Rolled back: the memory serves work outside captures again.
    assert_eq!(b.engine.pool_statistics(b.pool).unwrap().blocks, 1);
}

#[test]
fn an_added_edge_harms_nothing() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let capture = b.begin(s);
    b.launch(s);
    b.driver.wait(t, s).unwrap();
    b.launch(t);
    let block = b.allocate(s);
    b.launch(s);
    b.engine.free(block.id).unwrap();
    let (from, to) = (b.driver.terminals(t).unwrap()[0], b.driver.terminals(s).unwrap()[0].node);
    b.driver.add_dependency(b.graph(s), from, to).unwrap();
    assert_eq!(b.allocate(s).address, block.address);
    b.launch(s);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}

#[test]
fn a_block_freed_from_another_stream_waits_for_both() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.launch(s);
    b.driver.wait(t, s).unwrap();
    b.launch(t);
    b.engine.free_from(block.id, t).unwrap();
    assert_ne!(b.allocate(s).address, block.address);
    assert_eq!(b.allocate(t).address, block.address, "t comes after s");
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}

#[test]
fn a_block_from_before_and_freed_inside_is_free_after_the_end() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let block = b.allocate(s);
    b.launch(s);
    let capture = b.begin(s);
    b.launch(s);
    b.engine.free(block.id).unwrap();
    b.driver.complete_all();
    assert_ne!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
    b.driver.complete_all();
    assert_ne!(b.allocate(s).address, block.address, "the graph uses it");
    let capture = b.begin(s);
    assert_eq!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn a_body_is_kept_apart_from_what_is_around_it() {
    let b = bench(Config::default());
    let [s, inner] = b.streams();
    let capture = b.begin(s);
    let outer = b.allocate(s);
    b.launch(s);
    let before = b.driver.terminals(s).unwrap();
    let (node, body) = b.driver.add_conditional(b.graph(s), &before).unwrap();
    b.driver.set_terminals(s, &[Dependency::full(node)]).unwrap();
    b.driver.begin_capture_to_graph(inner, body, CaptureMode::Relaxed).unwrap();
    let inside = b.engine.begin_capture(b.pool, inner).unwrap();
    // Freed while the body may use it.
    b.engine.free(outer.id).unwrap();
    let refusals = b.engine.explain(b.pool, s).unwrap();
    let held = Some(Refusal::Waiting(WaitReason::NestedCapture(inside)));
    assert!(refusals.iter().any(|it| it.address == outer.address && it.refusal == held));
    let own = b.allocate(inner);
    b.launch(inner);
    assert_ne!(own.address, outer.address);
    b.engine.free(own.id).unwrap();
    b.finish(inner, inside);
    let next = b.allocate(s);
    assert!(next.address != own.address && next.address != outer.address);
    b.launch(s);
    b.finish(s, capture);
    let capture = b.begin(s);
    assert_eq!(b.allocate(s).address, outer.address);
    assert_eq!(b.allocate(s).address, own.address);
    b.launch(s);
    b.finish(s, capture);
}

#[test]
fn a_block_without_work_is_free_for_every_stream_at_once() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let capture = b.begin(s);
    b.launch(s);
    b.driver.wait(t, s).unwrap();
    b.launch(s);
    let block = b.allocate(s);
    b.engine.free(block.id).unwrap();
    assert_eq!(b.allocate(t).address, block.address);
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}

#[test]
fn an_empty_capture_is_fine() {
    let b = bench(Config::default());
    let [s] = b.streams();
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.engine.free(block.id).unwrap();
    let report = b.finish(s, capture);
    assert_eq!((report.nodes, report.blocks), (0, 1));
}

#[test]
fn an_old_event_proves_what_it_stood_for_and_no_more() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
    let capture = b.begin(s);
    let old = b.allocate(s);
    let new = b.engine.allocate(b.pool, 8 * MIB, s).unwrap();
    b.launch(s);
    b.engine.free(old.id).unwrap();
    let event = b.driver.record(s).unwrap();
    b.launch(s);
    b.engine.free(new.id).unwrap();
    b.driver.wait_event(t, event).unwrap();
    let place = b.engine.allocate(b.pool, 8 * MIB, t).unwrap();
    assert_ne!(place.address, new.address);
    assert_eq!(b.allocate(t).address, old.address);
    b.launch(t);
    // An ancestor adds nothing.
    b.driver.wait_event(t, event).unwrap();
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    b.finish(s, capture);
}

#[test]
fn a_device_without_memory_leaves_the_capture_as_it_was() {
    let device = SimConfig { total_bytes: 16 * MIB, ..SimConfig::default() };
    let b = crate::common::bench_on(device, Config::default());
    let [s] = b.streams();
    let capture = b.begin(s);
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
                        b.launch(t);
                        b.engine.free(block.id).unwrap();
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

/// A fixed program that stops after some of its steps, ruined or not; everything comes back.
#[test]
fn a_capture_may_end_badly_at_any_step() {
    for (steps, ruined) in (0..12).flat_map(|steps| [(steps, false), (steps, true)]) {
        let b = bench(Config::default());
        let [s, t] = b.streams();
        let capture = b.begin(s);
        let mut live = Vec::new();
        for step in 0..steps {
            match step % 6 {
                0 | 1 => live.push(b.allocate(s)),
                2 => b.launch(s),
                3 => b.driver.wait(t, s).unwrap(),
                4 => {
                    b.engine.record_stream(live[0].id, t).unwrap();
                    b.launch(t);
                }
                _ => b.engine.free(live.remove(0).id).unwrap(),
            }
        }
        if ruined {
            b.driver.invalidate(s).unwrap();
        }
        let _ = b.driver.end_capture(s);
        b.engine.abandon_capture(capture).unwrap();
        let statistics = b.engine.pool_statistics(b.pool).unwrap();
        assert_eq!(statistics.allocated, 4 * MIB * live.len() as u64);
        for block in live {
            b.engine.free(block.id).unwrap();
        }
        b.driver.complete_all();
        b.engine.destroy_pool(b.pool).unwrap();
        let info = b.driver.memory_info().unwrap();
        assert_eq!(info.free, info.total, "after {steps} steps, ruined: {ruined}");
    }
}

#[test]
fn a_query_that_fails_proves_nothing() {
    for call in [Call::CaptureStatus, Call::Dependencies, Call::Nodes] {
        for n in 0..40 {
            let b = bench(Config::default());
            let [s, t] = b.streams();
            let capture = b.begin(s);
            b.launch(s);
            b.driver.wait(t, s).unwrap();
            b.driver.fail_nth(call, n, ErrorKind::InvalidValue);
            let block = b.engine.allocate(b.pool, 4 * MIB, s);
            b.launch(s);
            if let Ok(block) = &block {
                b.engine.free(block.id).unwrap();
                let early = b.engine.allocate(b.pool, 4 * MIB, t);
                assert!(!early.is_ok_and(|early| early.address == block.address));
            }
            b.launch(t);
            b.driver.wait(s, t).unwrap();
            let _ = b.engine.allocate(b.pool, 4 * MIB, s);
            b.launch(s);
            let graph = b.driver.end_capture(s).unwrap();
            // Accepted or refused, but never a panic; the pool is whole afterwards.
            let _ = b.engine.end_capture(capture, graph);
            assert!(b.engine.pool_statistics(b.pool).is_ok());
        }
    }
}

#[test]
fn deferred_blocks_serve_the_next_capture() {
    let b = bench(Config::default().reuse(Reuse::Deferred));
    let [s, t] = b.streams();
    let capture = b.begin(s);
    let block = b.allocate(s);
    b.launch(s);
    b.driver.wait(t, s).unwrap();
    b.engine.record_stream(block.id, t).unwrap();
    b.launch(t);
    b.driver.wait(s, t).unwrap();
    b.engine.free(block.id).unwrap();
    assert_ne!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
    let capture = b.begin(s);
    assert_eq!(b.allocate(s).address, block.address);
    b.launch(s);
    b.finish(s, capture);
}

/// A stream without blocks is set to follow another, is looked at before and after, and then uses a
/// block of that one. What the other stream launched before the block's allocation is no user.
#[test]
fn a_stream_that_was_set_to_follow_another_may_use_its_blocks() {
    for keeps_its_own in [false, true] {
        let b = bench(Config::default());
        let [s, t] = b.streams();
        let capture = b.begin(s);
        b.launch(s);
        b.driver.wait(t, s).unwrap();
        b.launch(s);
        let x = b.allocate(t);
        b.launch(t);
        b.engine.free(x.id).unwrap();
        let y = b.allocate(t);
        assert_eq!(x.address, y.address);
        b.engine.observe(s).unwrap();
        let mut terminals = b.driver.terminals(t).unwrap();
        if keeps_its_own {
            terminals.extend(b.driver.terminals(s).unwrap());
        }
        b.driver.set_terminals(s, &terminals).unwrap();
        b.engine.observe(s).unwrap();
        b.engine.record_stream(y.id, s).unwrap();
        b.launch(s);
        b.driver.wait(s, t).unwrap();
        b.engine.free(y.id).unwrap();
        b.launch(s);
        b.finish(s, capture);
    }
}

#[test]
fn a_capture_that_a_free_brings_into_a_pool_is_told_of_the_freed_block() {
    let b = bench(Config::default());
    let [s, t] = b.streams();
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
    let journal = b.engine.journal(beside).unwrap().unwrap();
    let told = |entry| matches!(entry, Entry::Standing { address, .. } if address == block.address);
    assert!(journal.iter().any(told), "the capture's record names what it must keep off");
    assert_ne!(b.engine.allocate(b.pool, MIB, t).unwrap().address, block.address);
    b.launch(t);
    b.finish(t, beside);
    b.finish(s, capture);
}

#[test]
fn a_capture_that_an_ending_one_brings_into_a_pool_is_told_of_what_that_one_held() {
    let b = bench(Config::default());
    let [s, t, outside] = b.streams();
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
    let journal = b.engine.journal(beside).unwrap().unwrap();
    for block in [held, left] {
        let told =
            |entry| matches!(entry, Entry::Standing { address, .. } if address == block.address);
        assert!(journal.iter().any(told), "the capture's record names what it must keep off");
        assert_ne!(b.engine.allocate(b.pool, MIB, t).unwrap().address, block.address);
    }
    b.launch(t);
    b.finish(t, beside);
}
