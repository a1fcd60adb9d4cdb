//! Random programs against the definition of safety.

use proptest::prelude::*;

use crate::cases::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_is_safe(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::engine(&data);
    }
}

#[test]
fn the_engine_is_safe_on_longer_programs() {
    cases(60, 64..=4_096, |u| {
        regraph_testing::engine(u.bytes(u.len())?);
        Ok(())
    });
}
