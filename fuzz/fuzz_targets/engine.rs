//! Random host programs against the definition of safety.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    regraph::fuzzing::engine(data);
});
