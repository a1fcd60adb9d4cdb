//! Random programs of work outside captures beside graphs.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::graphs(data, regraph_testing::Features::EAGER);
});
