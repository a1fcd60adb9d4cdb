//! The engine's behaviour through its public face, on the simulated driver.

use crate::common::{bench, MIB};
use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{Config, Lent, PoolConfig};
use regraph_tagged::{Program, Work};

#[test]
fn a_full_pool_says_so_and_the_capture_goes_on() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let pool = b.engine.create_pool(PoolConfig::default().max_bytes(8 * MIB));
    b.driver.begin_capture(s, CaptureMode::Global).unwrap();
    let first = b.engine.allocate(pool, 6 * MIB, s).unwrap();
    b.launch(s);
    let error = b.engine.allocate(pool, 6 * MIB, s).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("6 MiB requested") && text.contains("of at most 8 MiB"), "{text}");
    b.engine.free(first.id).unwrap();
    assert_eq!(b.engine.allocate(pool, 6 * MIB, s).unwrap().address, first.address);
    b.engine.host().verify().unwrap();
    b.launch(s);
    b.driver.end_capture(s).unwrap();
}

#[test]
fn errors_of_requests_name_the_call() {
    let (b, [s]) = bench(Config::default()).with_streams();
    let gone = b.engine.create_pool(PoolConfig::default());
    b.engine.destroy_pool(gone).unwrap();
    for (pool, bytes) in [(b.pool, 0), (gone, 512)] {
        let host = b.engine.host();
        let refused = [
            ("allocate", b.engine.allocate(pool, bytes, s).map(drop)),
            ("allocate_fixed", b.engine.allocate_fixed(pool, bytes, s).map(drop)),
            ("allocate_at", host.allocate_at(pool, bytes, s, 0).map(drop)),
            ("lend", host.lend(pool, bytes, s, Lent::Temporary).map(drop)),
        ];
        for (call, refused) in refused {
            let error = refused.unwrap_err().to_string();
            assert!(error.starts_with(&format!("{call}: ")), "{call} says: {error}");
        }
    }
}

/// A block that is freed and waits for another stream stays active: it does not become so again.
#[test]
fn a_block_that_waits_became_active_once() {
    let (b, [s, t]) = bench(Config::default()).with_streams();
    let active = || {
        let all = b.engine.statistics().unwrap().all;
        let bytes = (all.active_bytes.current / MIB, all.active_bytes.allocated / MIB);
        (all.active.current, all.active.allocated, all.allocation.current, bytes)
    };
    for (done, inside) in [(0, false), (1, true), (2, false)] {
        let capture = inside.then(|| b.begin(s));
        let block = b.allocate(s);
        b.launch(s);
        // The capture does not know of it.
        b.driver.launch(t, Work::default(), false).unwrap();
        b.engine.record_stream(block.id, t).unwrap();
        b.engine.free(block.id).unwrap();
        assert_eq!(active(), (1, done + 1, 0, (4, 4 * (done + 1))), "{done}");
        if let Some(capture) = capture {
            b.finish(s, capture);
        }
        b.driver.complete_all();
        b.engine.empty_cache().unwrap();
        assert_eq!(active(), (0, done + 1, 0, (0, 4 * (done + 1))), "{done}");
    }
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
        b.launch_and_free(t, block);
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
