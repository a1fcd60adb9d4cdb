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

/// A call of the driver that failed has left a pool short of memory for good: no capture begins in it any more.
#[test]
fn no_capture_begins_in_a_pool_that_is_short_of_memory() {
    arbtest::arbtest(|u| {
        regraph_testing::named(u.bytes(u.len())?);
        Ok(())
    })
    .seed(0x04aa_295e_0000_1000);
}
