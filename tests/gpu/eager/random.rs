//! Random programs of a host of graphs and of work outside captures (`crates/testing/src/graphs`), on any device.

use std::sync::Arc;

use fastrand::Rng;
use regraph_testing::{graphs_on, Counts, Features};

use super::Device;

/// Runs so many programs, in which some things happen often.
fn run<P: Device>(driver: &Arc<P>, programs: u64, features: Features, often: &[&str]) {
    let mut random = Rng::with_seed(5);
    let mut all = Counts::new();
    for seed in 0..programs {
        driver.schedule(seed);
        let program: Vec<u8> = (0..2_000).map(|_| random.u8(..)).collect();
        let progress = |stream| driver.progress(stream);
        for (what, times) in graphs_on(driver, &program, features, &progress) {
            *all.entry(what).or_default() += times;
        }
    }
    for what in often {
        assert!(all.get(what) > Some(&50), "{what}: {all:#?}");
    }
}

fn work_outside_captures<P: Device>(driver: &Arc<P>) {
    let often = ["plain blocks", "loans", "launches", "requests without memory", "sleeps"];
    run(driver, 120, Features::EAGER, &often);
}

fn captures_beside_each_other<P: Device>(driver: &Arc<P>) {
    let often = [
        "captures beside others",
        "forks",
        "launches",
        "bodies of conditional nodes",
        "programmatic launches",
        "streams set back",
    ];
    run(driver, 40, Features::CAPTURES, &often);
}

fn planned_captures<P: Device>(driver: &Arc<P>) {
    let often = ["launches", "compactions that gave memory back"];
    run(driver, 120, Features::PLANS, &often);
}

fn lending<P: Device>(driver: &Arc<P>) {
    let often = ["loans", "launches", "checkpoints gone back to", "pools that slept"];
    run(driver, 60, Features::LOANS, &often);
}

fn executables_within_budgets<P: Device>(driver: &Arc<P>) {
    let often = ["launches", "executables updated", "executables that went for others"];
    run(driver, 40, Features::DEAR_EXECUTABLES, &often);
}

twins! {
    captures_beside_each_other
    executables_within_budgets
    lending
    planned_captures
    work_outside_captures
}
