//! Random programs of a host of the plug-in's, against the model of `crates/testing/src/named`: of eager work on
//! several streams, of named pools, and of a host that looks after the engine behind the plug-in as well: it trims,
//! marks, learns and looks for leaks.

use proptest::prelude::*;

use crate::cases::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn eager_work_keeps_to_the_model(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::eager(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_plug_in_keeps_to_the_model(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::named(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn upkeep_takes_nothing_that_is_needed(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::named_with_upkeep(&data);
    }
}

#[test]
fn eager_work_keeps_to_the_model_in_longer_programs() {
    cases(100, 256..=4_096, |u| {
        regraph_testing::eager(u.bytes(u.len())?);
        Ok(())
    });
}

#[test]
fn the_plug_in_keeps_to_the_model_in_longer_programs() {
    cases(60, 256..=4_096, |u| {
        regraph_testing::named(u.bytes(u.len())?);
        Ok(())
    });
}

#[test]
fn upkeep_takes_nothing_that_is_needed_in_longer_programs() {
    cases(30, 256..=4_096, |u| {
        regraph_testing::named_with_upkeep(u.bytes(u.len())?);
        Ok(())
    });
}
