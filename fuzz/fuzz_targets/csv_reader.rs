//! The CSV reader on any input.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::csv_reader(data);
});
