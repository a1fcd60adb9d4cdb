//! One rule of the engine a row: short programs on the simulated driver. `tests/gpu/rules.rs` runs them on a GPU,
//! but for those of late uses.

mod tables;

use std::sync::Arc;

use crate::device::simulated;
use regraph::driver::MemorySupport;
use regraph_sim::{SimConfig, SimDriver};
use regraph_testing::rows::{rows, Row};
use tables::*;

fn hold_simulated(rows: &[Row]) {
    hold(simulated, if cfg!(miri) { 1 } else { 4 }, rows);
}

macro_rules! tests {
    ($(fn $name:ident() = $table:ident;)*) => {
        $(#[test]
        fn $name() {
            hold_simulated(&rows($table));
        })*
    };
}

tests! {
    fn of_captures() = CAPTURES;
    fn of_checkpoints_and_suspensions() = CHECKPOINTS;
    fn of_eager_work() = EAGER;
    fn of_growth() = GROWTH;
    fn of_longer_programs() = FAULTS;
    fn of_inputs() = INPUTS;
    fn of_late_uses() = LATE_USES;
    fn of_lending() = LENDING;
    fn of_plans() = PLANS;
    fn that_can_be_left_out() = LEFT_OUT;
}

/// The checker refuses, or kernels find overwritten, what an engine without the rule does.
#[cfg(debug_assertions)]
#[test]
fn one_that_is_left_out_is_missed() {
    for row in rows(LEFT_OUT) {
        let missed = (0..20).any(|seed| {
            let driver = simulated();
            driver.set_schedule_seed(seed);
            row.is_missed(&driver).unwrap()
        });
        assert!(missed, "{row:?}");
    }
}

/// All tables but those of longer programs, and of rules that are left out.
fn all() -> Vec<Row> {
    let tables = [CAPTURES, CHECKPOINTS, EAGER, GROWTH, INPUTS, LATE_USES, LENDING, PLANS];
    tables.into_iter().flat_map(rows).collect()
}

fn without_mapping() -> Arc<SimDriver> {
    let (support, total_bytes) = (MemorySupport::Allocated, 256 << 20);
    Arc::new(SimDriver::new(SimConfig { support, total_bytes }))
}

/// A call that fails is told of, or changes nothing: see `Row::each_call_fails`. Says how many calls failed.
fn each_call_fails(rows: &[Row], device: fn() -> Arc<SimDriver>) -> u64 {
    let (mut failed, mut wrong) = (0, Vec::new());
    for row in rows {
        match row.each_call_fails(device) {
            Ok(calls) => failed += calls,
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    failed
}

#[test]
fn each_call_of_short_programs_may_fail() {
    hold_simulated(&rows(SMALL));
    assert!(each_call_fails(&rows(SMALL), simulated) > 100);
}

#[test]
fn each_call_of_longer_programs_may_fail() {
    let failed = [simulated, without_mapping].map(|it| each_call_fails(&rows(FAULTS), it));
    assert!(failed.iter().all(|&calls| calls > 1_000), "they make many calls: {failed:?}");
}

#[test]
fn each_call_may_fail() {
    let failed = each_call_fails(&all(), simulated);
    assert!(failed > 8_000, "the programs make many calls: {failed}");
}

#[test]
fn each_program_may_end_anywhere() {
    let rows = [all(), rows(FAULTS)].concat();
    let ended = rows.iter().filter_map(|row| row.ends_anywhere(simulated).err());
    let wrong: Vec<String> = ended.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
