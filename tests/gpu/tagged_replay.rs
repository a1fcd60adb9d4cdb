//! Captures whose nodes write tags into their blocks and check what others wrote: a wrong reuse
//! shows as a wrong tag when the graphs run. The same on the simulated driver, whose scheduler is
//! free in every way the graph is, and on a real GPU.

use std::sync::Arc;

use crate::device::trace;
use regraph::engine::Config;
use regraph::settings::{Programmatic, Reuse};
use regraph_cli::replay::{replay, Options, Plan, Replayed};
use regraph_lab::sweep::{Sizes, Workload};
use regraph_sim::{SimConfig, SimDriver};
use regraph_tagged::Program;
use regraph_trace::{read, Operation, Trace};

const TRACES: [&str; 4] = ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5"];

fn random(seed: u64, operations: u32) -> Trace {
    let workload = Workload {
        streams: [2, 3, 4, 8, 16][seed as usize % 5],
        operations,
        alloc: 0.3,
        free: 0.28,
        join: [0.1, 0.3, 0.5][seed as usize % 3],
        sizes: Sizes::Mixed,
        seed,
    };
    workload.trace().unwrap()
}

/// The same trace with its last frees left out, so that blocks with a history become outputs, and
/// with `reuse` off with none at all.
fn with_outputs(trace: &Trace, outputs: usize, reuse: bool) -> (Trace, Vec<u32>) {
    let frees = trace.operations().iter().filter(|o| matches!(o, Operation::Free { .. })).count();
    let mut seen = 0;
    let mut kept = Vec::new();
    let mut operations = Vec::new();
    for operation in trace.operations() {
        if let Operation::Free { id } = operation {
            seen += 1;
            if seen + outputs > frees {
                kept.push(*id);
                continue;
            }
            if !reuse {
                continue;
            }
        }
        operations.push(operation.clone());
    }
    (Trace::new(operations).unwrap(), kept)
}

fn run<P: Program>(driver: &Arc<P>, trace: &Trace, config: Config, seed: u64) -> Replayed {
    let options =
        Options { config, tags: true, seed, delay: 5_000, launches: 3, ..Options::default() };
    replay(driver, trace, &options).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

fn every_policy_keeps_tags<P: Program>(driver: &Arc<P>, trace: &Trace, seed: u64) {
    for &reuse in Reuse::ALL {
        for &programmatic in Programmatic::ALL {
            let config = Config::default().reuse(reuse).programmatic(programmatic);
            assert!(run(driver, trace, config, seed).verified);
        }
    }
}

/// Memory that comes at the end changes no output either. With blocks of 4 MiB all of them are planned,
/// and some are freed, with no work in between, after the next ones were allocated.
fn plans_change_no_output<P: Program>(driver: &Arc<P>, seed: u64, operations: u32) {
    for sizes in [Sizes::Fixed, Sizes::Mixed] {
        let (streams, join) = ([2, 4, 8][seed as usize % 3], 0.3);
        let workload = Workload { streams, operations, alloc: 0.3, free: 0.28, join, sizes, seed };
        let trace = workload.trace().unwrap();
        for &programmatic in Programmatic::ALL {
            let config = Config::default().programmatic(programmatic);
            let with = |plan| {
                let config = config.clone();
                let options = Options {
                    config,
                    tags: true,
                    seed,
                    delay: 5_000,
                    launches: 3,
                    plan,
                    warm_ups: 0,
                    lint: false,
                };
                replay(driver, &trace, &options).unwrap_or_else(|error| panic!("{seed}: {error}"))
            };
            let planned = with(Plan::Exact);
            assert!(planned.verified && planned.plans.len() == 1, "seed {seed}");
            assert_eq!(planned.outputs, with(Plan::None).outputs, "seed {seed}");
        }
    }
}

fn reuse_changes_no_output<P: Program>(driver: &Arc<P>, trace: &Trace, seed: u64) {
    let (with, kept) = with_outputs(trace, 40, true);
    let (without, _) = with_outputs(trace, 40, false);
    let with = run(driver, &with, Config::default(), seed);
    let without = run(driver, &without, Config::default(), seed);
    assert!(with.reserved_bytes <= without.reserved_bytes);
    let find = |replayed: &Replayed, id: u32| {
        replayed.outputs.iter().find(|output| output.id == id).cloned()
    };
    for id in kept {
        assert_eq!(find(&with, id), find(&without, id), "block {id}");
    }
}

fn everything<P: Program>(driver: &Arc<P>, seeds: u64, operations: u32) {
    for name in TRACES {
        let trace = trace(name);
        for seed in 0..seeds {
            every_policy_keeps_tags(driver, &trace, seed);
        }
        reuse_changes_no_output(driver, &trace, 7);
    }
    for seed in 0..seeds * 4 {
        let trace = random(seed, operations);
        every_policy_keeps_tags(driver, &trace, seed);
        reuse_changes_no_output(driver, &trace, seed);
        plans_change_no_output(driver, seed, operations);
    }
}

#[test]
fn tags_hold_on_the_simulated_driver() {
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    everything(&driver, 1, 150);
}

/// The engine calls of this trace look at stream 0 long before and long after it is set back.
const SET_BACK: &str = r#"{"op":"begin","stream":0,"pool":0}
{"op":"kernel","stream":0}
{"op":"wait","stream":1,"on":0}
{"op":"alloc","id":0,"bytes":4194304,"stream":1}
{"op":"kernel","stream":1,"uses":[0]}
{"op":"free","id":0}
{"op":"alloc","id":1,"bytes":4194304,"stream":1}
{"op":"kernel","stream":1,"uses":[1]}
{"op":"free","id":1}
{"op":"kernel","stream":0}
{"op":"terminals","stream":0,"nodes":[2]}
{"op":"kernel","stream":0}
{"op":"wait","stream":0,"on":1}
{"op":"end"}
"#;

#[test]
fn set_backs_of_a_trace_are_observed() {
    let trace = read(SET_BACK.as_bytes()).unwrap();
    let driver = Arc::new(SimDriver::new(SimConfig::default()));
    every_policy_keeps_tags(&driver, &trace, 1);
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tags_hold_on_a_gpu() {
    let gpu = crate::device::gpu::open();
    everything(&gpu.driver, 6, 1_000);
}
