//! Random programs of a host with named pools, through the plug-in.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::named(data);
});
