//! Random programs of work outside captures against the model of `crates/testing/src/eager`; in some of them the host goes
//! back to checkpoints of pools that lend, sleep or have calls fail.

use proptest::prelude::*;

use crate::cases::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_keeps_to_the_model(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::eager(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_goes_back_to_checkpoints(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::eager_with_checkpoints(&data);
    }
}

#[test]
fn the_engine_keeps_to_the_model_in_longer_programs() {
    cases(75, 256..=4_096, |u| {
        regraph_testing::eager(u.bytes(u.len())?);
        Ok(())
    });
}

#[test]
fn the_engine_goes_back_to_checkpoints_in_longer_programs() {
    cases(30, 256..=4_096, |u| {
        regraph_testing::eager_with_checkpoints(u.bytes(u.len())?);
        Ok(())
    });
}
