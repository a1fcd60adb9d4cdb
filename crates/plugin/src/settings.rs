//! What the settings are where nothing is said.

use regraph::settings::{Programmatic, Settings};

/// How much captures that are announced as alone map at once where the settings do not say: as much as pays, in bytes.
pub(super) const AHEAD: u64 = 64 << 20;

/// The settings of a host such as PyTorch where its user says nothing; the library's own are those of its captures
/// alone.
///
/// Memory can go to other processes and be registered by communication libraries. Kernels that are launched
/// programmatically are trusted to wait before they touch memory, as cuBLAS's and others' do: outside captures too,
/// PyTorch gives a stream its freed memory back at once.
#[must_use]
pub fn of_hosts() -> Settings {
    Settings::default()
        .exportable(true)
        .programmatic(Programmatic::Trust)
        .growth_step_bytes(Some(AHEAD))
}
