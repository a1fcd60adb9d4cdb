//! Random programs with pools of many planned graphs that are compacted.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::graphs(data, regraph_testing::Features::PLANS);
});
