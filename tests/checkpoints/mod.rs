//! Checkpoints of pools.

mod restorations;
mod trees;
