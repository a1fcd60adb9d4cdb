//! Pools and regions that give their memory back and get it again.

mod beside;
mod faults;
mod files;
mod model;
mod page_locks;
mod pools;
mod regions;

use regraph::{BackupRefusal, Error};

/// Whether the host had no memory left to lock.
fn is_out_of_host_memory(refused: &Error) -> bool {
    matches!(refused, Error::Backup { why: BackupRefusal::HostOutOfMemory { .. }, .. })
}
