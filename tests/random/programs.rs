//! Random programs against the definition of safety and against the models of `crates/testing`: of captures; of work
//! outside captures; of hosts with named pools; of graphs that are planned, lend and are compacted.

use regraph_testing::{
    eager, eager_with_checkpoints, engine, graphs, named, named_with_upkeep, Features,
};

use crate::cases::{case, cases};

/// So many short programs, and so many long ones, each of random bytes.
fn programs(short: u64, long: u64, run: impl Fn(&[u8])) {
    for (count, bytes) in [(short, 32..=900), (long, 256..=4_096)] {
        cases(count, bytes, |u| {
            run(u.bytes(u.len())?);
            Ok(())
        });
    }
}

/// The programs of some seeds.
fn seeds(seeds: &[u64], run: impl Fn(&[u8])) {
    for &seed in seeds {
        case(seed, |u| {
            run(u.bytes(u.len())?);
            Ok(())
        });
    }
}

#[test]
fn captures_are_safe() {
    programs(100, 60, engine);
}

#[test]
fn work_outside_captures_keeps_to_the_model() {
    programs(150, 75, eager);
}

/// Of pools that lend, sleep or have calls fail.
#[test]
fn hosts_go_back_to_checkpoints() {
    programs(30, 30, eager_with_checkpoints);
}

#[test]
fn the_plug_in_keeps_to_the_model() {
    programs(100, 60, named);
}

/// The host trims, marks, learns and looks for leaks behind the plug-in.
#[test]
fn upkeep_takes_nothing_that_is_needed() {
    programs(30, 30, named_with_upkeep);
}

/// A pool that a failed call of the driver has left short of memory for good, in which no capture begins any more; a
/// pool that keeps its region awake, since eager work borrowed from it while it lent.
#[test]
fn pools_refuse_what_they_cannot_do() {
    seeds(&[0x04aa_295e_0000_1000, 0xbf44_acae_0000_1000], named);
}

#[test]
fn compaction_takes_nothing_that_is_needed() {
    programs(30, 30, |bytes| graphs(bytes, Features::PLANS));
}

#[test]
fn plans_loans_and_checkpoints_go_together() {
    programs(40, 90, |bytes| graphs(bytes, Features::ALL));
}

#[test]
fn what_is_lent_is_no_one_elses() {
    programs(40, 180, |bytes| graphs(bytes, Features::LOANS));
}

/// Programs in which kernels once found wrong tags, since the model's host did not wait for what it is the host's to
/// wait for: a graph of another pool that reads what is lent or was taken over, also once it is gone and runs still; the
/// last use that a stream made of an output, or of what became an input, before it ended; a write of what a refused
/// launch was to free.
#[test]
fn hosts_wait_for_what_pools_do_not_know_of() {
    let found = [
        0xad38_d501_0000_1000,
        0x5c7e_402f_0000_1000,
        0xb3c0_f223_0000_1000,
        0xa332_f152_0000_1000,
        0xbcb7_e0df_0000_1000,
        0x1a24_f468_0000_1000,
    ];
    seeds(&found, |bytes| graphs(bytes, Features::LOANS));
}
