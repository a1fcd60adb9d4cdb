//! What captures and graphs tell of their minimum.

use std::sync::Arc;

use crate::common::bench;
use crate::plans::twice::{run, Step};
use regraph::driver::{CaptureMode, HostApi};
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
    let (bench, streams) = bench(config).with_streams::<16>();
    let step = |operation: &Operation| match *operation {
        Operation::Kernel { stream, programmatic, .. } => {
            Some(Step::Launch(stream.into(), programmatic))
        }
        Operation::Wait { stream, on } => Some(Step::Wait(stream.into(), on.into())),
        Operation::Alloc { id, bytes, stream } => {
            Some(Step::Allocate(id as usize, bytes, stream.into()))
        }
        Operation::Use { id, stream } => Some(Step::Use(id as usize, stream.into())),
        Operation::LastUse { id, stream } => Some(Step::LastUse(id as usize, stream.into())),
        Operation::Free { id } => Some(Step::Free(id as usize)),
        _ => None,
    };
    let steps: Vec<_> = trace.operations().iter().filter_map(step).collect();
    let capture = bench.begin(streams[0]);
    run(&bench, &streams, &steps);
    bench.finish(streams[0], capture)
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
