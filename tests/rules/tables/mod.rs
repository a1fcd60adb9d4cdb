//! The rules, as rows of programs that `regraph_testing::rows` runs.
#![allow(dead_code, reason = "each program of tests uses a part")]

pub mod captures;
pub mod checkpoints;
pub mod eager;
pub mod faults;
pub mod growth;
pub mod inputs;
pub mod late_uses;
pub mod left_out;
pub mod lending;
pub mod plans;

use std::sync::Arc;

use crate::device::Device;
use regraph_testing::rows::Row;

/// Expects each program to hold in so many orders of its work, each on its own device.
pub fn hold<P: Device>(device: impl Fn() -> Arc<P>, orders: u64, rows: &[Row]) {
    let fails = |row: &Row| {
        (0..orders).find_map(|seed| {
            let driver = device();
            driver.schedule(seed);
            row.run(&driver).err()
        })
    };
    let wrong: Vec<String> = rows.iter().filter_map(fails).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
