//! A host with graphs of its own, with every call of its driver's failing in turn, the host's calls
//! included; and with a device that is lost at every call in turn.

use std::sync::Arc;

use crate::common::MIB;
use regraph::driver::{CaptureMode, ErrorKind, HostApi, MemorySupport, StreamHandle};
use regraph::engine::{Config, Engine, PoolConfig};
use regraph::graphs::{Capture, Error, Graph, Memory, Pool};
use regraph::plan::Options;
use regraph_sim::{Call, SimConfig, SimDriver};
use regraph_tagged::{Program, Work};

type Sim = Arc<SimDriver>;
type Made = (Vec<Graph<Sim>>, Vec<Memory<Sim>>);

/// Two graphs of one pool, one of them captured twice, launched, with an output, beside a block of work outside.
fn program(driver: &Sim, pool: &Pool<Sim>, streams: [StreamHandle; 2]) -> Result<Made, Error> {
    let [s, t] = streams;
    let launch = |stream| driver.launch(stream, Work::default(), false).map_err(Error::from);
    let mut graphs = Vec::new();
    let mut outputs = Vec::new();
    for twice in [false, true] {
        let body = |capture: &Capture<Sim>| {
            let first = capture.allocate(9 * MIB, s)?;
            launch(s)?;
            driver.wait(t, s)?;
            let second = capture.allocate(3 * MIB, t)?;
            second.record_stream(s)?;
            launch(t)?;
            driver.wait(s, t)?;
            drop((first, second));
            let output = capture.allocate(700, s)?;
            launch(s)?;
            Ok::<_, Error>(output)
        };
        let (graph, output) = match twice {
            true => pool.capture_twice(s, CaptureMode::Relaxed, body)?,
            false => pool.engine().capture(s, pool, CaptureMode::Relaxed, body)?,
        };
        assert!(graph.report().verified);
        graph.launch(s)?;
        graphs.push(graph);
        outputs.push(output);
    }
    // What the graphs do not keep is borrowed between launches, and used on another stream as well.
    let borrowed = pool.lend(t)?.allocate(2 * MIB)?;
    launch(t)?;
    borrowed.record_stream(s)?;
    drop(borrowed);
    graphs[0].launch(s)?;
    let outside = pool.allocate(5 * MIB, t)?;
    launch(t)?;
    drop(outside);
    pool.synchronize()?;
    Ok((graphs, outputs))
}

/// What a run came to.
struct Outcome {
    failed: bool,
    /// Whether memory was to be given back while calls failed.
    refused: bool,
    /// What the engine held at the end, in bytes.
    reserved: u64,
    /// Device memory in use beyond that.
    beyond: u64,
    /// Device memory in use when the engine was gone.
    left: u64,
}

/// Runs the program with calls failing as `fail` has it, and again without.
fn run(support: MemorySupport, config: &PoolConfig, fail: impl Fn(&SimDriver)) -> Outcome {
    let driver = Arc::new(SimDriver::new(SimConfig { total_bytes: 256 * MIB, support }));
    let engine = Arc::new(Engine::new(driver.clone(), Config::default().report_leaks(false)));
    let streams = [(); 2].map(|()| driver.create_stream().unwrap());
    let pool = Pool::new(&engine, config.clone());
    fail(&driver);
    let done = program(&driver, &pool, streams);
    let failed = done.is_err();
    assert!(!engine.host().is_recording(), "no capture is under way any more");
    let statistics = engine.statistics().unwrap().all;
    assert!(statistics.allocated_bytes.current <= statistics.reserved_bytes.current);
    drop(done);
    drop(pool);
    let giving_back = [Call::Release, Call::Unmap, Call::Free];
    let refused = giving_back.iter().any(|&call| driver.calls(call) > 0);
    driver.forget_failures();
    for stream in streams {
        // A capture that could not be ended.
        let _ = driver.end_capture(stream);
    }
    driver.complete_all();
    // The engine works on.
    let pool = Pool::new(&engine, config.clone());
    drop(program(&driver, &pool, streams).expect("the device works"));
    driver.complete_all();
    assert_eq!(engine.statistics().unwrap().all.allocated_bytes.current, 0);
    let emptied = engine.empty_cache().unwrap();
    let beyond = driver.used_bytes() - emptied.reserved;
    drop((pool, engine));
    Outcome { failed, refused, reserved: emptied.reserved, beyond, left: driver.used_bytes() }
}

fn ways() -> Vec<(MemorySupport, PoolConfig)> {
    let mapped = MemorySupport::Mapped { granularity: 2 * MIB };
    vec![
        (mapped, PoolConfig::default()),
        (mapped, PoolConfig::default().plan(Options::default())),
        (MemorySupport::Allocated, PoolConfig::default()),
    ]
}

/// Nothing that the engine was to give back was refused, so nothing is lost.
#[test]
fn every_call_of_the_host_may_fail() {
    for (support, config) in ways() {
        for kind in [ErrorKind::OutOfMemory, ErrorKind::InvalidValue] {
            let failed = (0..120).filter(|&n| {
                let outcome = run(support, &config, |it| it.fail_host_nth(n, kind.clone()));
                assert_eq!((outcome.beyond, outcome.left), (0, 0), "{support:?}, call {n}");
                outcome.failed
            });
            assert!(failed.count() > 15, "the program makes many calls");
        }
    }
}

/// The statistics agree with the device to the byte, but for memory that the device did not take back. What a graph may
/// use whose launch the host could not follow stays with the driver: a leak is better than memory that is pulled away
/// under a kernel.
fn every_call(least: usize, fail: impl Fn(&SimDriver, u64)) {
    for (support, config) in ways() {
        let lost = (0..600).filter(|&n| {
            let outcome = run(support, &config, |it| fail(it, n));
            assert!(outcome.beyond == 0 || outcome.refused, "{support:?}, call {n}");
            assert!(outcome.left <= outcome.reserved + outcome.beyond, "{support:?}, call {n}");
            outcome.failed
        });
        let lost = lost.count();
        assert!(lost > least, "the program makes many calls: {lost}");
    }
}

#[test]
fn the_device_may_be_lost_at_every_call() {
    every_call(40, |driver, n| driver.lose_device_at(n, ErrorKind::InvalidValue));
}

#[test]
fn every_call_may_fail() {
    every_call(30, |driver, n| driver.fail_any_nth(n, ErrorKind::OutOfMemory));
    every_call(30, |driver, n| driver.fail_any_nth(n, ErrorKind::InvalidValue));
}
