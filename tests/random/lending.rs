//! Random programs whose pools lend what graphs do not keep (`crates/testing/src/graphs`).

use proptest::prelude::*;
use regraph_testing::{graphs, Features};

use crate::cases::{case, cases};

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_lent_is_no_one_elses(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::LOANS);
    }
}

#[test]
fn what_is_lent_is_no_one_elses_in_longer_programs() {
    cases(180, 256..=4_096, |u| {
        graphs(u.bytes(u.len())?, Features::LOANS);
        Ok(())
    });
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
