//! One rule of the engine a row: programs of one line on the simulated driver. `tests/gpu/rules.rs` runs them on a GPU.

mod tables;

use crate::device::simulated;
use regraph_testing::rows::Row;
use tables::{
    captures, checkpoints, eager, growth, hold, inputs, late_uses, left_out, lending, plans,
};

fn hold_simulated(rows: &[Row]) {
    hold(simulated, if cfg!(miri) { 1 } else { 4 }, rows);
}

macro_rules! tests {
    ($(fn $name:ident() = $table:ident;)*) => {
        $(#[test]
        fn $name() {
            hold_simulated($table::ROWS);
        })*
    };
}

tests! {
    fn of_captures() = captures;
    fn of_checkpoints_and_suspensions() = checkpoints;
    fn of_eager_work() = eager;
    fn of_growth() = growth;
    fn of_inputs() = inputs;
    fn of_late_uses() = late_uses;
    fn of_lending() = lending;
    fn of_plans() = plans;
    fn that_can_be_left_out() = left_out;
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
