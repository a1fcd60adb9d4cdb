//! The rules of the engine, on a GPU.

#[path = "../rules/tables/mod.rs"]
mod tables;

use crate::device::gpu;
use tables::{
    captures, checkpoints, eager, faults, growth, hold, inputs, left_out, lending, plans,
};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn hold_on_a_gpu() {
    let gpu = gpu::open();
    let tables = [
        captures::ROWS,
        checkpoints::ROWS,
        eager::ROWS,
        faults::SMALL,
        faults::ROWS,
        growth::ROWS,
        inputs::ROWS,
        left_out::ROWS,
        lending::ROWS,
        plans::ROWS,
    ];
    // Tagged kernels have their addresses in a table, not among their parameters: no late use is found.
    let rows = tables.concat().into_iter().filter(|row| !row.program.contains("end late"));
    hold(|| gpu.driver.clone(), 1, &rows.collect::<Vec<_>>());
}
