//! Plans of recorded captures: with blocks of other sizes, such that are no whole numbers of pages, and with few
//! mappings.

use std::sync::Arc;

use regraph::engine::Config;
use regraph::settings::Programmatic;
use regraph_cli::replay::{replay, Options, Plan, Replayed};
use regraph_sim::SimDriver;
use regraph_trace::Trace;

use super::twice::{device, SUPPORTS};
use crate::device::trace;

const PAGE: u64 = 2 << 20;
const NAMES: [&str; 6] =
    ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5", "moe_train_s6", "towers_train_s2"];
const PERCENT: [u32; 10] = [20, 30, 40, 60, 70, 80, 90, 110, 130, 160];

/// What a capture comes to.
fn run(trace: &Trace, plan: Plan, config: Config, tags: bool) -> Replayed {
    let options = Options { config, tags, plan, ..Options::default() };
    let found = replay(&Arc::new(SimDriver::new(device(SUPPORTS[0]))), trace, &options).unwrap();
    assert!(found.verified);
    found
}

/// What a capture holds, over the least in whole pages.
fn ratio(trace: &Trace, found: &Replayed) -> f64 {
    let minimum = regraph_trace::minimum::of_trace(trace, Programmatic::default());
    found.reserved_bytes as f64 / minimum[0].minimum_bytes.next_multiple_of(PAGE) as f64
}

fn mean(ratios: &[f64]) -> f64 {
    ratios.iter().sum::<f64>() / ratios.len() as f64
}

/// All captures come near the least that whole pages can do, whatever their sizes are; what kernels find in their
/// blocks is right. The bound is that of today, rounded up.
#[test]
fn memory_stays_near_the_least_for_other_sizes() {
    let mut ratios = Vec::new();
    for name in NAMES {
        for percent in PERCENT {
            let trace = trace(name).scaled(percent).unwrap();
            let found = run(&trace, Plan::Exact, Config::default(), true);
            ratios.push(ratio(&trace, &found));
        }
    }
    let mean = mean(&ratios);
    assert!(mean <= 1.08, "{mean:.4}, {ratios:.2?}");
}

/// The figures of `design/figures.md`.
#[test]
#[ignore = "prints a table"]
fn table_of_other_sizes() {
    println!("capture | as asked for | exact | mappings");
    for name in NAMES {
        let mut row = name.to_owned();
        for plan in [Plan::None, Plan::Exact] {
            let (mut ratios, mut mappings) = (Vec::new(), 0);
            for percent in PERCENT {
                let trace = trace(name).scaled(percent).unwrap();
                let found = run(&trace, plan, Config::default(), false);
                ratios.push(ratio(&trace, &found));
                mappings += found.plans.iter().map(|plan| plan.mappings).sum::<usize>();
            }
            let worst = ratios.iter().copied().fold(0.0, f64::max);
            row += &format!(" | {:.3}, {worst:.3} | {mappings}", mean(&ratios));
        }
        println!("{row}");
    }
}

/// The figures of `design/figures.md`: MiB and mappings by the most mappings, and in a pool for many graphs.
#[test]
#[ignore = "prints a table"]
fn table_of_mappings() {
    println!("capture | no limit | 100 | 75 | 50 | 35 | divided");
    for name in NAMES {
        let mut row = name.to_owned();
        let limits = [None, Some(100), Some(75), Some(50), Some(35)].map(|most| (most, 1));
        for (most, graphs) in limits.into_iter().chain([(None, 100)]) {
            let mut config = Config::default();
            config.settings.plan_max_mappings = most;
            config.settings.plan_pool_graphs = Some(graphs);
            let found = run(&trace(name), Plan::Exact, config, false);
            row += &format!(" | {}, {}", found.reserved_bytes >> 20, found.plans[0].mappings);
        }
        println!("{row}");
    }
}
