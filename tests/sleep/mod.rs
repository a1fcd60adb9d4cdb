//! Pools and regions that give their memory back and get it again.

/// Makes of a type with a simulated device in a field a driver that does what that device does.
macro_rules! over_device {
    ($wrapper:ident, $device:ident) => {
        impl std::ops::Deref for $wrapper {
            type Target = regraph_sim::SimDriver;

            fn deref(&self) -> &Self::Target {
                &self.$device
            }
        }

        impl regraph::driver::Driver for $wrapper {
            regraph::forward_driver!();
        }
    };
}

mod beside;
mod faults;
mod files;
mod page_locks;
mod pools;
mod regions;

use regraph::{BackupRefusal, Error};

/// Whether the host had no memory left to lock.
fn is_out_of_host_memory(refused: &Error) -> bool {
    matches!(refused, Error::Backup { why: BackupRefusal::HostOutOfMemory { .. }, .. })
}
