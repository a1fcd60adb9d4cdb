//! What programs of PyTorch asked for, from their start to the end of their captures
//! (`python/tests/tools/ways_to_capture.py`): with the default plan their graphs hold no more than without a plan.

use std::collections::BTreeMap;

use super::learned::learning;
use super::twice::{device, SUPPORTS};
use crate::common::{bench_on, Bench};
use crate::device::trace;
use regraph::driver::{CaptureMode, HostApi};
use regraph::engine::PoolConfig;
use regraph::settings::PlanChoice;
use regraph_sim::SimConfig;
use regraph_tagged::{Program, Work};
use regraph_trace::{Operation, Trace};

/// What each holds with the default plan for what it holds without, in thousandths, rounded up.
const PROGRAMS: [(&str, u64); 11] = [
    ("make_graphed_callables", 940),
    ("make_graphed_layers", 975),
    ("make_graphed_residuals", 868),
    ("run_transformer_once", 1_000),
    ("run_two_models", 949),
    ("run_words_once", 829),
    ("serve_images", 814),
    ("train_and_evaluate", 1_000),
    ("train_float_words", 849),
    ("train_residuals", 868),
    ("train_unet", 855),
];

/// What the graphs of a program hold in the end, in bytes. Work outside captures has a pool of its own, as in PyTorch.
fn held(trace: &Trace, plan: PlanChoice) -> u64 {
    let mut config = learning();
    config.settings.plan = plan;
    let Bench { driver, engine, pool: eager } =
        bench_on(SimConfig { total_bytes: 64 << 30, ..device(SUPPORTS[0]) }, config);
    let (mut streams, mut pools, mut blocks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut capture = None;
    for operation in trace.operations() {
        for stream in operation.streams() {
            streams.entry(stream).or_insert_with(|| driver.create_stream().unwrap());
        }
        match operation {
            Operation::Begin { stream, pool } => {
                let stream = streams[stream];
                let pool = *pools
                    .entry(*pool)
                    .or_insert_with(|| engine.create_pool(PoolConfig::default()));
                driver.complete_all();
                engine.host().expect_capture(stream).unwrap();
                driver.begin_capture(stream, CaptureMode::Relaxed).unwrap();
                capture = Some((pool, stream, engine.begin_capture(pool, stream).unwrap()));
            }
            Operation::Alloc { id, bytes, stream } => {
                let pool = capture.map_or(eager, |(pool, ..)| pool);
                let block = engine.allocate(pool, *bytes, streams[stream]).unwrap();
                blocks.insert(*id, block.id);
            }
            Operation::Kernel { stream, .. } => {
                driver.launch(streams[stream], Work::default(), false).unwrap();
            }
            Operation::Free { id } => engine.free(blocks.remove(id).unwrap()).unwrap(),
            Operation::End {} => {
                let (_, stream, id) = capture.take().unwrap();
                let graph = driver.end_capture(stream).unwrap();
                assert!(engine.end_capture(id, graph).unwrap().verified);
            }
            operation => panic!("{operation:?}"),
        }
    }
    pools.into_values().map(|pool| engine.pool_statistics(pool).unwrap().reserved).sum()
}

#[test]
fn programs_of_pytorch_hold_no_more_than_without_a_plan() {
    for (name, thousandths) in PROGRAMS {
        let trace = trace(&format!("programs/{name}"));
        let [with, without] = [PlanChoice::Auto, PlanChoice::None].map(|it| held(&trace, it));
        let most = without * thousandths / 1_000;
        assert!(with <= most, "{name}: {with} bytes, {without} without a plan");
    }
}

/// The figures of `design/figures.md`.
#[test]
#[ignore = "prints a table"]
fn table_of_programs_of_pytorch() {
    println!("program | no plan | the default, MiB");
    for (name, _) in PROGRAMS {
        let trace = trace(&format!("programs/{name}"));
        let held = [PlanChoice::None, PlanChoice::Auto].map(|it| held(&trace, it) >> 20);
        println!("{name} | {} | {} | {:.3}", held[0], held[1], held[1] as f64 / held[0] as f64);
    }
}
