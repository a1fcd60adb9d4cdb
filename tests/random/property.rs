//! Random programs against the definition of safety.

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_is_safe(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::engine(&data);
    }
}

#[test]
fn the_engine_is_safe_on_longer_programs() {
    arbtest::arbtest(|u| {
        regraph_testing::engine(u.bytes(u.len())?);
        Ok(())
    })
    .budget_ms(1_000)
    .size_min(64)
    .size_max(4_096);
}
