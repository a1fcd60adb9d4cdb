//! Random programs of work outside captures against the model of `crates/testing/src/eager`.

use proptest::prelude::*;

use crate::cases::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_keeps_to_the_model(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::eager(&data);
    }
}

#[test]
fn the_engine_keeps_to_the_model_in_longer_programs() {
    cases(75, 256..=4_096, |u| {
        regraph_testing::eager(u.bytes(u.len())?);
        Ok(())
    });
}
