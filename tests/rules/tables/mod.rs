//! The rules, as tables of programs that `regraph_testing::rows` runs.
#![allow(dead_code, reason = "each program of tests uses a part")]

use std::sync::Arc;

use crate::device::Device;
use regraph_testing::rows::Row;

macro_rules! tables {
    ($($name:ident = $file:literal;)*) => {
        $(pub const $name: &str = include_str!($file);)*
    };
}

tables! {
    CAPTURES = "captures.rows";
    CHECKPOINTS = "checkpoints.rows";
    EAGER = "eager.rows";
    FAULTS = "faults.rows";
    GROWTH = "growth.rows";
    INPUTS = "inputs.rows";
    LATE_USES = "late_uses.rows";
    LEFT_OUT = "left_out.rows";
    LENDING = "lending.rows";
    PLANS = "plans.rows";
    SMALL = "small.rows";
}

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
