//! The rules of the engine, on a GPU.

#[path = "../rules/tables/mod.rs"]
mod tables;

use crate::device::gpu;
use regraph_testing::rows::rows;
use tables::*;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn hold_on_a_gpu() {
    let gpu = gpu::open();
    let tables =
        [CAPTURES, CHECKPOINTS, EAGER, FAULTS, GROWTH, INPUTS, LEFT_OUT, LENDING, PLANS, SMALL];
    // Tagged kernels have their addresses in a table, not among their parameters: no late use is found.
    let rows = tables.into_iter().flat_map(rows).filter(|row| !row.program.contains("end late"));
    hold(|| gpu.driver.clone(), 1, &rows.collect::<Vec<_>>());
}
