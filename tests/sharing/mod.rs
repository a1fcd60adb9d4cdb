//! Blocks that other processes and other devices map.

mod blocks;
#[cfg(target_os = "linux")]
mod handles;
