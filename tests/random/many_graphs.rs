//! Random programs with pools of many planned graphs that are compacted (`crates/testing/src/many`).

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn compaction_takes_nothing_that_is_needed(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::many_graphs(&data);
    }
}

#[test]
fn compaction_takes_nothing_that_is_needed_in_longer_programs() {
    arbtest::arbtest(|u| {
        regraph_testing::many_graphs(u.bytes(u.len())?);
        Ok(())
    })
    .budget_ms(3_000)
    .size_min(256)
    .size_max(4_096);
}
