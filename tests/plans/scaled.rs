//! Plans of recorded captures whose blocks have other sizes: such that are no whole numbers of pages.

use std::sync::Arc;

use regraph::engine::Config;
use regraph::settings::{PlanShare, Programmatic};
use regraph_cli::replay::{replay, Options, Plan};
use regraph_sim::SimDriver;

use crate::twice::{device, trace, SUPPORTS};

const PAGE: u64 = 2 << 20;

const PERCENT: [u32; 10] = [20, 30, 40, 60, 70, 80, 90, 110, 130, 160];

/// All captures come near the least that whole pages can do, whatever their sizes are; what kernels find in their
/// blocks is right. The bounds are those of today, rounded up.
#[test]
fn memory_stays_near_the_least_for_other_sizes() {
    for (share, most) in [(PlanShare::Pages, 1.11), (PlanShare::Bytes, 1.08)] {
        let mut ratios = Vec::new();
        for name in ["decoder_s1", "moe_s6", "googlenet_s4", "pipeline_s5"] {
            for percent in PERCENT {
                let mut config = Config::default();
                config.settings.plan_share = share;
                let options =
                    Options { config, tags: true, plan: Plan::Exact, ..Options::default() };
                let driver = Arc::new(SimDriver::new(device(SUPPORTS[0])));
                let trace = trace(name).scaled(percent).unwrap();
                let found = replay(&driver, &trace, &options).unwrap();
                assert!(found.verified);
                let minimum = regraph_trace::minimum::of_trace(&trace, Programmatic::default());
                ratios.push(
                    found.reserved_bytes as f64
                        / minimum[0].minimum_bytes.next_multiple_of(PAGE) as f64,
                );
            }
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!(mean <= most, "{share}: {mean:.4}, {ratios:.2?}");
    }
}
