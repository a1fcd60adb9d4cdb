//! Blocks that other processes and other devices map.

mod blocks;
#[cfg(target_os = "linux")]
mod handles;
#[cfg(target_os = "linux")]
mod loans;
#[cfg(target_os = "linux")]
mod other_process;

use regraph::engine::Config;
use regraph::settings::Settings;

/// Memory that other processes can map.
fn exportable() -> Config {
    Config::default().settings(Settings::default().exportable(true))
}
