//! The engine, its settings and the plug-in on the simulated driver, and that driver itself.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_types, reason = "locks of one test")]

#[path = "../common/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;

mod attempts;
mod beside_captures;
mod borrowing;
mod capture_costs;
mod capture_state;
mod capture_windows;
mod checkpoints;
mod contexts;
mod eager;
mod engine_basics;
mod estimates;
mod faults;
mod figures;
mod graph_lives;
mod graph_trees;
mod growth;
mod handed_over;
mod hard_cases;
mod host_faults;
mod hosts;
mod inputs;
mod lending;
mod lifecycle;
mod locks;
mod mapping_times;
mod named_pools;
mod names;
mod no_invalidation;
mod page_locks;
mod picture;
mod plugin;
mod region_doors;
mod region_faults;
mod remedies;
mod rules;
mod settings;
#[cfg(target_os = "linux")]
mod shared_handles;
mod sharing;
mod sim_driver;
mod sim_gates;
mod snapshot;
mod stalls;
mod submitted;
mod suspend;
mod two_steps;
mod watch;
