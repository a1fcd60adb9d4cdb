//! One fixed program, run once for every call to the driver that may fail.
//!
//! A failing release, unmap, unreserve or destroy loses what it was to give back: the driver kept
//! it. Everything else must be there again at the end.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::MIB;
use regraph::driver::sim::{Call, SimConfig, SimDriver};
use regraph::driver::{CaptureMode, Driver, ErrorKind, MemorySupport, Program, Work};
use regraph::engine::{BlockId, Config, Engine, PoolConfig};

const GIVING_BACK: [Call; 5] =
    [Call::Release, Call::Unmap, Call::Unreserve, Call::Free, Call::DestroyEvent];

/// Runs the program with the n-th call failing; false once it no longer makes that many calls.
fn run(support: MemorySupport, n: u64, kind: ErrorKind) -> bool {
    let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: 256 * MIB, support }));
    let engine = Engine::new(driver.clone(), Config::default());
    let pool = engine.create_pool(PoolConfig::default());
    let [s, t] = std::array::from_fn(|_| driver.create_stream().unwrap());
    let before = driver.total_calls();
    driver.fail_any_nth(n, kind);
    let launch = |stream| driver.launch(stream, Work::default(), false).unwrap();
    let mut live: Vec<BlockId> = Vec::new();
    let mut graphs = Vec::new();
    for _ in 0..2 {
        driver.begin_capture(s, CaptureMode::Relaxed).unwrap();
        let begun = engine.begin_capture(pool, s);
        launch(s);
        for bytes in [4 * MIB, 4 * MIB, 700, 9 * MIB] {
            driver.wait(t, s).unwrap();
            if let Ok(block) = engine.allocate(pool, bytes, s) {
                live.push(block.id);
                launch(s);
                engine.record_stream(block.id, t).unwrap();
                driver.wait(t, s).unwrap();
                launch(t);
                if bytes == 4 * MIB {
                    let _ = engine.record_use(block.id, t);
                    engine.free(block.id).unwrap();
                    live.retain(|&other| other != block.id);
                }
            }
            driver.wait(s, t).unwrap();
            let statistics = engine.pool_statistics(pool).unwrap();
            assert!(statistics.allocated <= statistics.reserved);
        }
        let graph = driver.end_capture(s).unwrap();
        if let Ok(capture) = begun {
            graphs.extend(engine.end_capture(capture, graph).map(|report| report.graph));
            let _ = engine.abandon_capture(capture);
        }
    }
    // A capture that the engine saw only later, for its first look failed.
    for number in 1..=2 {
        let _ = engine.abandon_capture(regraph::driver::CaptureId(number));
    }
    if let Ok(block) = engine.allocate(pool, 3 * MIB, t) {
        launch(t);
        engine.free(block.id).unwrap();
    }
    for block in live {
        engine.free(block).unwrap();
    }
    for graph in graphs {
        engine.release_graph(graph).unwrap();
    }
    driver.complete_all();
    // Once more where an event could not be had, or asked for.
    let destroyed = engine.destroy_pool(pool).or_else(|_| engine.destroy_pool(pool));
    let made = driver.total_calls() - before;
    let lossy = destroyed.is_err();
    drop(engine);
    let given = GIVING_BACK.iter().map(|&call| driver.calls(call)).sum::<u64>();
    let mut info = driver.memory_info();
    if info.is_err() {
        info = driver.memory_info();
    }
    let info = info.unwrap();
    assert!(given > 0);
    if !lossy {
        let lost = info.total - info.free;
        assert_eq!(lost, 0, "call {n} failed, and memory was lost");
    }
    made > n
}

#[test]
fn every_call_may_fail() {
    let mapped = MemorySupport::Mapped { granularity: 2 * MIB };
    for support in [mapped, MemorySupport::Allocated] {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::InvalidValue] {
            let mut n = 0;
            while run(support, n, kind.clone()) {
                n += 1;
            }
            assert!(n > 50, "the program makes many calls");
        }
    }
}
