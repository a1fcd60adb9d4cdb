//! Random programs whose pools lend what graphs do not keep (`crates/testing/src/lending.rs`).

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_lent_is_no_one_elses(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::lending(&data);
    }
}

#[test]
fn what_is_lent_is_no_one_elses_in_longer_programs() {
    arbtest::arbtest(|u| {
        regraph_testing::lending(u.bytes(u.len())?);
        Ok(())
    })
    .budget_ms(3_000)
    .size_min(256)
    .size_max(4_096);
}
