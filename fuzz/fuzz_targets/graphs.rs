//! Random programs of graphs that lend, are planned, compacted and gone back on, all at once.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph_testing::graphs(data, regraph_testing::Features::ALL);
});
