//! The snapshot reader on any input.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::snapshot_reader(data);
});
