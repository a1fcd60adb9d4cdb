//! Random programs with pools of many planned graphs that are compacted (`crates/testing/src/graphs`).

use proptest::prelude::*;
use regraph_testing::{graphs, Features};

use crate::cases::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn compaction_takes_nothing_that_is_needed(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::PLANS);
    }
}

#[test]
fn compaction_takes_nothing_that_is_needed_in_longer_programs() {
    cases(30, 256..=4_096, |u| {
        graphs(u.bytes(u.len())?, Features::PLANS);
        Ok(())
    });
}
