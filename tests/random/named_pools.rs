//! Random programs of a host of the plug-in's (`crates/testing/src/named`): eager work on several streams, named pools
//! and what is captured there.

use proptest::prelude::*;

use crate::cases::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_plug_in_keeps_to_the_model(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::named(&data);
    }
}

#[test]
fn the_plug_in_keeps_to_the_model_in_longer_programs() {
    cases(150, 256..=4_096, |u| {
        regraph_testing::named(u.bytes(u.len())?);
        Ok(())
    });
}
