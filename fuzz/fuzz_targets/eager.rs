//! Random programs of work outside captures against the model of streams.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::eager(data);
});
