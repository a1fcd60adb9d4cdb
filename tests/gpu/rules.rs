//! The rules of the engine, on a GPU.

#[path = "../rules/tables/mod.rs"]
mod tables;

use crate::device::gpu;
use tables::{captures, eager, hold, inputs, left_out};

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn hold_on_a_gpu() {
    let gpu = gpu::open();
    for rows in [captures::ROWS, eager::ROWS, inputs::ROWS, left_out::ROWS] {
        hold(|| gpu.driver.clone(), 1, rows);
    }
}
