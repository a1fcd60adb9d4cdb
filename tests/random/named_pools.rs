//! Random programs of a host with named pools, against the model of `crates/testing/src/eager`; in some of them the host
//! looks after the engine behind the plug-in as well: it trims, marks, learns and looks for leaks.

use proptest::prelude::*;

use crate::cases::{case, cases};

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

/// A pool that a failed call of the driver has left short of memory for good, in which no capture begins any more; a
/// pool that keeps its region awake, since eager work borrowed from it while it lent.
#[test]
fn pools_refuse_what_they_cannot_do() {
    for seed in [0x04aa_295e_0000_1000, 0xbf44_acae_0000_1000] {
        case(seed, |u| {
            regraph_testing::named(u.bytes(u.len())?);
            Ok(())
        });
    }
}
