//! Random programs of a host of graphs and of work outside captures (`crates/testing/src/graphs`), on any device.

use std::sync::Arc;

use fastrand::Rng;
use regraph_testing::{graphs_on, Counts, Features};

use super::Device;

fn eager_work_and_graphs_keep_their_tags<P: Device>(driver: &Arc<P>) {
    let mut random = Rng::with_seed(5);
    let mut all = Counts::new();
    for seed in 0..120 {
        driver.schedule(seed);
        let program: Vec<u8> = (0..2_000).map(|_| random.u8(..)).collect();
        let progress = |stream| driver.progress(stream);
        for (what, times) in graphs_on(driver, &program, Features::EAGER, &progress) {
            *all.entry(what).or_default() += times;
        }
    }
    for what in ["plain blocks", "loans", "launches", "requests without memory", "sleeps"] {
        assert!(all.get(what) > Some(&50), "{what}: {all:#?}");
    }
}

twins! {
    eager_work_and_graphs_keep_their_tags
}
