//! Blocks that other processes and other devices map.

mod blocks;
#[cfg(target_os = "linux")]
mod handles;
#[cfg(target_os = "linux")]
mod loans;
#[cfg(target_os = "linux")]
mod other_process;

use regraph::engine::Config;
#[cfg(target_os = "linux")]
use regraph::engine::{Error, SharingRefusal};
use regraph::settings::Settings;

/// Memory that other processes can map.
fn exportable() -> Config {
    Config::default().settings(Settings::default().exportable(true))
}

#[cfg(target_os = "linux")]
#[track_caller]
fn sharing_refusal(error: &regraph_plugin::Error) -> &SharingRefusal {
    match error {
        regraph_plugin::Error::Engine(Error::Sharing { why, .. }) => why,
        error => panic!("{error}"),
    }
}
