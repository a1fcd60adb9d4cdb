//! Random programs against the definition of safe reuse, for seconds each.

mod attempts;
mod eager_programs;
mod executables;
mod fuzz_smoke;
mod graphs;
mod lending;
mod many_graphs;
mod named_pools;
mod property;
