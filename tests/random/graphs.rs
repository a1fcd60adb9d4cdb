//! Random programs of a host of graphs (`crates/testing/src/graphs`): with all features at once, and with some. What a
//! feature is for happens often in them.

use proptest::prelude::*;
use regraph_testing::{graphs, Counts, Features};

use crate::cases::{case, cases};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn all_features_go_together(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::ALL);
    }

    #[test]
    fn eager_work_goes_on(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::EAGER);
    }

    #[test]
    fn what_is_lent_is_no_one_elses(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::LOANS);
    }

    #[test]
    fn what_a_process_borrows_is_no_one_elses(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::PROCESSES);
    }

    #[test]
    fn compaction_takes_nothing_that_is_needed(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::PLANS);
    }
}

/// Runs so many longer programs, in which some things happen at least so often.
fn longer(count: u64, features: Features, often: &[(&str, u64)]) {
    let mut all = Counts::new();
    cases(count, 256..=4_096, |u| {
        for (what, times) in graphs(u.bytes(u.len())?, features) {
            *all.entry(what).or_default() += times;
        }
        Ok(())
    });
    for (what, least) in often {
        assert!(all.get(what) >= Some(least), "{what}: {least} expected of {all:#?}");
    }
}

#[test]
fn all_features_go_together_in_longer_programs() {
    let often = [
        ("captures", 900),
        ("captures beside others", 160),
        ("captures beside others into their pool", 120),
        ("captures that follow a layout", 5),
        ("forks", 500),
        ("joins", 500),
        ("late verdicts", 40),
        ("bodies of conditional nodes", 250),
        ("programmatic launches", 300),
        ("streams set back", 200),
        ("captures refused for edges", 20),
        ("captures ruined", 20),
        ("executables updated", 80),
        ("executables that went for others", 150),
        ("launches without room for an executable", 8),
        ("loans", 200),
        ("checkpoints gone back to", 90),
        ("compactions that gave memory back", 10),
        ("pools that slept", 40),
        ("sleeps", 40),
        ("pools destroyed", 90),
        ("handles that streams had before", 150),
    ];
    longer(200, Features::ALL, &often);
}

#[test]
fn what_is_lent_is_no_one_elses_in_longer_programs() {
    let often = [("loans", 1_300), ("checkpoints gone back to", 400), ("pools that slept", 250)];
    longer(180, Features::LOANS, &often);
}

#[test]
fn eager_work_goes_on_beside_graphs_while_calls_fail() {
    let often = [
        ("plain blocks", 5_000),
        ("blocks that a pool has offered", 100),
        ("sleeps", 100),
        ("requests without memory", 100),
        ("loans", 400),
        ("requests that calls of the driver failed", 150),
        ("checkpoints gone back to", 100),
        ("handles that streams had before", 400),
    ];
    longer(150, Features::EAGER, &often);
}

#[test]
fn what_a_process_borrows_is_no_one_elses_in_longer_programs() {
    let often = [
        ("loans to processes", 250),
        ("loans", 100),
        ("checkpoints gone back to", 100),
        ("pools that slept", 100),
        ("pools destroyed", 50),
    ];
    longer(90, Features::PROCESSES, &often);
}

#[test]
fn compaction_takes_nothing_that_is_needed_in_longer_programs() {
    longer(30, Features::PLANS, &[("compactions that gave memory back", 20)]);
}

#[test]
fn each_launch_runs_the_kernels_of_its_graph() {
    let often = [
        ("executables updated", 500),
        ("executables that went for others", 400),
        ("updates refused", 25),
        ("launches without room for an executable", 35),
    ];
    longer(90, Features::EXECUTABLES, &often);
}

/// An executable that takes more than the budget by itself is destroyed again, and no graph is lost for it.
#[test]
fn budgets_are_kept_where_executables_take_more_than_is_foreseen() {
    let often = [
        ("executables updated", 300),
        ("executables that went for others", 400),
        ("executables that took more than the budget", 20),
    ];
    longer(90, Features::DEAR_EXECUTABLES, &often);
}

#[test]
fn captures_beside_each_other_share_nothing() {
    let often = [
        ("captures beside others", 350),
        ("captures beside others into their pool", 250),
        ("forks", 1_200),
        ("joins", 1_400),
        ("late verdicts", 200),
        ("captures given up before their verdict", 70),
        ("unsafe captures refused at once", 10),
        ("unsafe captures refused late", 2),
        ("bodies of conditional nodes", 400),
        ("programmatic launches", 700),
        ("streams set back", 350),
        ("captures refused for edges", 50),
        ("captures ruined", 20),
        ("handles that streams had before", 400),
        ("pools destroyed", 120),
    ];
    longer(120, Features::CAPTURES, &often);
}

/// Programs in which kernels once found wrong tags, since the model's host did not wait for what it is the host's to
/// wait for: a graph of another pool that reads what is lent or was taken over, also once it is gone and runs still; the
/// last use that a stream made of an output, or of what became an input, before it ended; a write of what a refused
/// launch was to free.
#[test]
fn hosts_wait_for_what_pools_do_not_know_of() {
    let seeds = [
        0xad38_d501_0000_1000,
        0x5c7e_402f_0000_1000,
        0xb3c0_f223_0000_1000,
        0xa332_f152_0000_1000,
        0xbcb7_e0df_0000_1000,
        0x1a24_f468_0000_1000,
    ];
    for seed in seeds {
        case(seed, |u| {
            graphs(u.bytes(u.len())?, Features::LOANS);
            Ok(())
        });
    }
}
