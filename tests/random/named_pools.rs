//! Random programs of a host with named pools, against the model of `crates/testing/src/named`.

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn the_plug_in_keeps_to_the_model(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        regraph_testing::named(&data);
    }
}

#[test]
fn the_plug_in_keeps_to_the_model_in_longer_programs() {
    arbtest::arbtest(|u| {
        regraph_testing::named(u.bytes(u.len())?);
        Ok(())
    })
    .budget_ms(3_000)
    .size_min(256)
    .size_max(4_096);
}

/// A pool that a failed call of the driver has left short of memory for good, in which no capture begins any more; a
/// pool that keeps its region awake, since eager work borrowed from it while it lent.
#[test]
fn pools_refuse_what_they_cannot_do() {
    for seed in [0x04aa_295e_0000_1000, 0xbf44_acae_0000_1000] {
        arbtest::arbtest(|u| {
            regraph_testing::named(u.bytes(u.len())?);
            Ok(())
        })
        .seed(seed);
    }
}
