//! [`Transfer`]: memory of the host that the device copies to and from.

use std::fs::File;
use std::io;
use std::ptr::null_mut;

use super::super::{read_at, write_at, HostPlace, Result, StreamHandle, Transfer};
use super::pages::Pages;
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

    /// As many as the process has processors, at most 16; 1 where pages are the driver's own, which it locks one after the
    /// other.
    fn host_threads(&self) -> usize {
        const MOST: usize = 16;
        match cfg!(target_os = "linux") {
            true => std::thread::available_parallelism().map_or(1, |all| all.get().min(MOST)),
            false => 1,
        }
    }

    /// On Linux huge pages of this process that are touched and then locked, as long as the system has room for them;
    /// else pages of the driver's own; and where neither can be locked, huge pages as they are.
    fn allocate_host(&self, bytes: u64) -> Result<HostPlace> {
        let Some(pages) = Pages::new(bytes) else { return self.allocate_locked(bytes) };
        let place = pages.place();
        let locked = self.enter().and_then(|_relaxed| {
            // SAFETY: the pages are mapped, of that size, and stay so until they are unlocked.
            unsafe {
                self.symbols.host_register(pointer(place), bytes as usize, raw::HOST_PORTABLE)
            }
        });
        if locked.is_ok() {
            self.pages.insert(pages, true);
            return Ok(place);
        }
        let own = self.allocate_locked(bytes);
        match own {
            Ok(_) => pages.give_back(),
            Err(_) => self.pages.insert(pages, false),
        }
        own.or(Ok(place))
    }

    fn free_host(&self, place: HostPlace) -> Result<()> {
        let _relaxed = self.enter()?;
        if let Some(pages) = self.pages.take(place) {
            if pages.is_locked() {
                // SAFETY: the caller gives the memory up, and no copy is under way there.
                let unlocked = unsafe { self.symbols.host_unregister(pointer(place)) };
                if let Err(error) = unlocked {
                    self.pages.insert(pages, true);
                    return Err(error);
                }
            }
            pages.give_back();
            return Ok(());
        }
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
        // Where the memory is not locked the driver waits, which captures of other threads forbid.
        let _relaxed = self.enter_for(stream)?;
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
        // Where the memory is not locked the driver waits, which captures of other threads forbid.
        let _relaxed = self.enter_for(stream)?;
        // SAFETY: both places and the stream are the caller's and stay until the copy is done.
        unsafe {
            self.symbols.copy_to_device(address, pointer(from), bytes as usize, stream.as_raw())
        }
    }

    fn holds_same(&self, one: HostPlace, other: HostPlace, bytes: u64) -> bool {
        // SAFETY: both are the caller's and have contents; nothing writes to them until this returns.
        let [one, other] = [one, other].map(|place| unsafe {
            std::slice::from_raw_parts::<u8>(pointer(place).cast(), bytes as usize)
        });
        one == other
    }

    fn write_file(&self, file: &File, offset: u64, from: HostPlace, bytes: u64) -> io::Result<()> {
        // SAFETY: the memory is the caller's and has contents; nothing writes to it until this returns.
        let held = unsafe { std::slice::from_raw_parts(pointer(from).cast(), bytes as usize) };
        write_at(file, held, offset)
    }

    fn read_file(&self, file: &File, offset: u64, to: HostPlace, bytes: u64) -> io::Result<()> {
        // SAFETY: the memory is the caller's and has contents; nothing else uses it until this returns.
        let room = unsafe { std::slice::from_raw_parts_mut(pointer(to).cast(), bytes as usize) };
        read_at(file, room, offset)
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

impl CudaDriver {
    /// Page-locked memory of the driver's own.
    fn allocate_locked(&self, bytes: u64) -> Result<HostPlace> {
        let mut place: Pointer = null_mut();
        let _relaxed = self.enter()?;
        // SAFETY: writes one pointer.
        unsafe { self.symbols.host_allocate(&mut place, bytes as usize, raw::HOST_PORTABLE) }?;
        Ok(HostPlace(place as usize))
    }
}
