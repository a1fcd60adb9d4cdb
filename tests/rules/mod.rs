//! One rule of the engine a row: programs of one line on the simulated driver. `tests/gpu/rules.rs` runs them on a GPU.

mod tables;

use crate::device::simulated;
use regraph_testing::rows::Row;
use tables::{captures, checkpoints, eager, hold, inputs, late_uses, left_out, lending, plans};

fn hold_simulated(rows: &[Row]) {
    hold(simulated, if cfg!(miri) { 1 } else { 4 }, rows);
}

#[test]
fn of_captures() {
    hold_simulated(captures::ROWS);
}

#[test]
fn of_checkpoints_and_suspensions() {
    hold_simulated(checkpoints::ROWS);
}

#[test]
fn of_eager_work() {
    hold_simulated(eager::ROWS);
}

#[test]
fn of_inputs() {
    hold_simulated(inputs::ROWS);
}

#[test]
fn of_late_uses() {
    hold_simulated(late_uses::ROWS);
}

#[test]
fn of_lending() {
    hold_simulated(lending::ROWS);
}

#[test]
fn of_plans() {
    hold_simulated(plans::ROWS);
}

#[test]
fn that_can_be_left_out() {
    hold_simulated(left_out::ROWS);
}

/// The checker refuses, or kernels find overwritten, what an engine without the rule does.
#[cfg(debug_assertions)]
#[test]
fn one_that_is_left_out_is_missed() {
    for row in left_out::ROWS {
        let missed = (0..20).any(|seed| {
            let driver = simulated();
            driver.set_schedule_seed(seed);
            row.is_missed(&driver).unwrap()
        });
        assert!(missed, "{row:?}");
    }
}
