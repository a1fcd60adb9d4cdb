//! Random programs with pools of many planned graphs that are compacted (`crates/testing/src/many`).

use proptest::prelude::*;

use crate::cases::{case, cases};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn compaction_takes_nothing_that_is_needed(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::many_graphs(&data);
    }
}

#[test]
fn compaction_takes_nothing_that_is_needed_in_longer_programs() {
    cases(30, 256..=4_096, |u| {
        regraph_testing::many_graphs(u.bytes(u.len())?);
        Ok(())
    });
}

/// Programs where a released graph's memory waited for a stream outside, while the new pieces that were found
/// for the other graphs would have been more than theirs: nothing is exchanged then, and what waited goes.
#[test]
fn what_is_told_is_what_goes_where_new_pieces_would_be_more() {
    for seed in [0xcab5_53d9_0000_0140, 0xfb3c_516a_0000_0271, 0x54e5_823a_0000_1000] {
        case(seed, |u| {
            regraph_testing::many_graphs(u.bytes(u.len())?);
            Ok(())
        });
    }
}
