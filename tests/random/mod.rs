//! Random programs against the definition of safe reuse, for seconds each.

mod attempts;
mod executables;
mod fuzz_smoke;
mod programs;
