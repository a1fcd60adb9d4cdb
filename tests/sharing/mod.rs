//! Blocks that other processes and other devices map.

mod blocks;
#[cfg(target_os = "linux")]
mod handles;
#[cfg(target_os = "linux")]
mod loans;
#[cfg(target_os = "linux")]
mod other_process;
