//! What captures and graphs tell of their minimum.

use std::collections::HashMap;
use std::sync::Arc;

use regraph::driver::{CaptureMode, CaptureStatus, Driver, HostApi};
use regraph::engine::{CaptureReport, Config, Engine, PoolConfig};
use regraph::graphs::{Error, Pool};
use regraph::settings::Programmatic;
use regraph_lab::sweep::{Sizes, Workload};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::{Program, Work};
use regraph_trace::minimum;
use regraph_trace::{Operation, Trace};

/// The capture of a trace that has one, of kernels and waits.
fn capture(trace: &Trace, config: Config) -> CaptureReport {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    let engine = Engine::new(driver.clone(), config);
    let pool = engine.create_pool(PoolConfig::default());
    let streams: Vec<_> = (0..16).map(|_| driver.create_stream().unwrap()).collect();
    let at = |stream: u16| streams[usize::from(stream)];
    let (mut blocks, mut id) = (HashMap::new(), None);
    for operation in trace.operations() {
        match *operation {
            Operation::Begin { stream, .. } => {
                driver.begin_capture(at(stream), CaptureMode::Relaxed).unwrap();
                id = Some(engine.begin_capture(pool, at(stream)).unwrap());
            }
            Operation::Kernel { stream, programmatic, .. } => {
                driver.launch(at(stream), Work::default(), programmatic).unwrap();
            }
            Operation::Wait { stream, on } => driver.wait(at(stream), at(on)).unwrap(),
            Operation::Alloc { id, bytes, stream } => {
                let block = engine.allocate(pool, bytes, at(stream)).unwrap();
                blocks.insert(id, block.id);
            }
            Operation::Use { id, stream } => engine.record_stream(blocks[&id], at(stream)).unwrap(),
            Operation::LastUse { id, stream } => {
                engine.record_use(blocks[&id], at(stream)).unwrap();
            }
            Operation::Free { id } => engine.free(blocks.remove(&id).unwrap()).unwrap(),
            _ => {}
        }
    }
    let CaptureStatus::Active { graph, .. } =
        driver.capture_status(streams[0], &mut Vec::new()).unwrap()
    else {
        panic!("it captures");
    };
    let report = engine.end_capture(id.unwrap(), graph).unwrap();
    driver.end_capture(streams[0]).unwrap();
    blocks.into_values().for_each(|block| engine.free(block).unwrap());
    report
}

fn workload(seed: u64) -> Workload {
    Workload {
        streams: [1, 2, 3, 4, 8][seed as usize % 5],
        operations: 300,
        alloc: 0.3,
        free: 0.28,
        join: 0.3,
        sizes: Sizes::Mixed,
        seed,
    }
}

#[test]
fn a_report_tells_what_the_trace_does() {
    for seed in 0..20 {
        let trace = workload(seed).trace().unwrap();
        for &policy in Programmatic::ALL {
            let report = capture(&trace, Config::default().programmatic(policy));
            let minimum = report.minimum().unwrap();
            let expected = &minimum::of_trace(&trace, policy)[0];
            assert_eq!(minimum.bytes, expected.minimum_bytes, "seed {seed}, {policy}");
            assert_eq!(minimum.thresholds.len(), expected.thresholds.len());
            assert!(minimum.exact);
        }
    }
}

#[test]
fn without_a_journal_nothing_is_told() {
    let trace = workload(1).trace().unwrap();
    let mut report = capture(&trace, Config::default().check(false).journal(true));
    assert!(report.clone().minimum().is_some());
    assert_eq!(report.lifetimes().unwrap().blocks().len(), trace.blocks());
    report.forget_journal();
    assert!(report.minimum().is_none() && report.lifetimes().is_none());
    assert!(capture(&trace, Config::default().check(false)).minimum().is_none());
}

#[test]
fn a_graph_tells_its_minimum_until_the_journal_is_given_up() {
    let engine = Arc::new(Engine::new(SimDriver::new(SimConfig::default()), Config::default()));
    let pool = Pool::new(&engine, PoolConfig::default());
    let stream = engine.driver().create_stream().unwrap();
    let (mut graph, _outputs) = engine
        .capture(stream, &pool, CaptureMode::Relaxed, |capture| {
            let first = capture.allocate(3 << 20, stream)?;
            engine.driver().launch(stream, Work::default(), false)?;
            drop(first);
            let second = capture.allocate(2 << 20, stream)?;
            engine.driver().launch(stream, Work::default(), false)?;
            let third = capture.allocate(1000, stream)?;
            engine.driver().launch(stream, Work::default(), false)?;
            Ok::<_, Error>((second, third))
        })
        .unwrap();
    assert_eq!(graph.minimum_bytes(), Some(3 << 20));
    graph.forget_journal();
    assert_eq!(graph.minimum_bytes(), None);
}
