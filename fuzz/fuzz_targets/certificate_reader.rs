//! The certificate reader and its check on any input.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::certificate_reader(data);
});
