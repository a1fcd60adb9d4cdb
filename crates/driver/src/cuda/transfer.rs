//! [`Transfer`]: page-locked memory of the host, and copies.

use std::ptr::null_mut;

use super::super::{HostPlace, Result, StreamHandle, Transfer};
use super::raw::{self, Pointer};
use super::{host_memory, CudaDriver};

fn pointer(place: HostPlace) -> Pointer {
    place.0 as Pointer
}

impl Transfer for CudaDriver {
    /// On Linux the least of the machine's memory (`MemTotal` of `/proc/meminfo`) and the limits of the memory
    /// cgroups that the process is in, of version 1 and 2; unknown elsewhere.
    fn host_memory(&self) -> Option<u64> {
        host_memory::of_process()
    }

    fn allocate_host(&self, bytes: u64) -> Result<HostPlace> {
        let mut place: Pointer = null_mut();
        let _relaxed = self.enter()?;
        // SAFETY: writes one pointer.
        unsafe { self.symbols.host_allocate(&mut place, bytes as usize, raw::HOST_PORTABLE) }?;
        Ok(HostPlace(place as usize))
    }

    fn free_host(&self, place: HostPlace) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: the memory is the caller's, who gives it up, and no copy is under way there.
        unsafe { self.symbols.host_free(pointer(place)) }
    }

    fn copy_to_host(
        &self,
        to: HostPlace,
        address: u64,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: both places and the stream are the caller's and stay until the copy is done.
        unsafe { self.symbols.copy_to_host(pointer(to), address, bytes as usize, stream.as_raw()) }
    }

    fn copy_to_device(
        &self,
        address: u64,
        from: HostPlace,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        let _current = self.bind()?;
        // SAFETY: both places and the stream are the caller's and stay until the copy is done.
        unsafe {
            self.symbols.copy_to_device(address, pointer(from), bytes as usize, stream.as_raw())
        }
    }
}
