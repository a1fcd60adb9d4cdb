//! The engine's behaviour through its public face, on the simulated driver.

use crate::common::{bench, MIB};
use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::{Config, Lent, PoolConfig};

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
