//! Random programs against the definition of safe reuse, for seconds each.

mod attempts;
mod fuzz_smoke;
mod graphs;
mod named_pools;
mod property;
