//! Random programs of graphs that lend, are planned, compacted and gone back on, all at once (`crates/testing/src/graphs`).

use proptest::prelude::*;
use regraph_testing::{graphs, Features};

use crate::cases::cases;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn plans_loans_and_checkpoints_go_together(data in proptest::collection::vec(any::<u8>(), 0..900)) {
        graphs(&data, Features::ALL);
    }
}

#[test]
fn plans_loans_and_checkpoints_go_together_in_longer_programs() {
    cases(90, 256..=4_096, |u| {
        graphs(u.bytes(u.len())?, Features::ALL);
        Ok(())
    });
}
