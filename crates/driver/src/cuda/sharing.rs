//! Memory that other processes, devices and network cards can map.
//!
//! Mapped memory must be created for it; whole allocations need not be. The kinds of handles that a device
//! offers are asked for together. A fabric handle may be offered and still be refused, where the service
//! that fabrics need does not run: then memory is created without, from then on.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{AllocationName, DriverError, ErrorKind, MemoryHandle, Result};
use super::raw::{self, AllocationProp, IpcHandle};
use super::CudaDriver;

#[cfg(unix)]
use super::super::Descriptor;

/// What memory of a device can be made for.
#[derive(Default)]
pub(super) struct Sharing {
    descriptors: bool,
    fabric: AtomicBool,
    rdma: bool,
}

impl Sharing {
    /// Attributes that the driver does not know are of later devices.
    pub(super) fn of(driver: &CudaDriver) -> Self {
        let has = |attribute| driver.attribute(attribute).is_ok_and(|value| value != 0);
        Self {
            descriptors: cfg!(unix) && has(raw::ATTRIBUTE_DESCRIPTORS),
            fabric: AtomicBool::new(has(raw::ATTRIBUTE_FABRIC)),
            rdma: has(raw::ATTRIBUTE_RDMA),
        }
    }
}

impl CudaDriver {
    pub(super) fn create_with(&self, bytes: u64, prop: &AllocationProp) -> Result<MemoryHandle> {
        let mut handle = 0;
        let _relaxed = self.enter()?;
        // SAFETY: reads the properties and writes one handle.
        unsafe { self.symbols.memory_create(&mut handle, bytes as usize, prop, 0) }?;
        Ok(MemoryHandle(handle))
    }

    /// Memory that can be exported and reached by network cards, as far as the device can do that.
    pub(super) fn create_for_export(&self, bytes: u64) -> Result<MemoryHandle> {
        let Sharing { descriptors, fabric, rdma } = &self.sharing;
        let descriptors = if *descriptors { raw::HANDLE_DESCRIPTOR } else { 0 };
        let prop = |kinds| AllocationProp::exportable(self.device, kinds, *rdma);
        if fabric.load(Ordering::Relaxed) {
            match self.create_with(bytes, &prop(descriptors | raw::HANDLE_FABRIC)) {
                Err(error) if !error.is_out_of_memory() => {}
                made => return made,
            }
            let made = self.create_with(bytes, &prop(descriptors))?;
            fabric.store(false, Ordering::Relaxed);
            return Ok(made);
        }
        self.create_with(bytes, &prop(descriptors))
    }

    #[cfg(unix)]
    pub(super) fn export_descriptor(&self, memory: MemoryHandle) -> Result<Descriptor> {
        use std::os::fd::FromRawFd;

        let mut descriptor: i32 = -1;
        let _relaxed = self.enter()?;
        // SAFETY: for this kind of handle the driver writes one int.
        unsafe {
            self.symbols.memory_export(
                (&raw mut descriptor).cast(),
                memory.0,
                raw::HANDLE_DESCRIPTOR,
                0,
            )
        }?;
        if descriptor < 0 {
            return Err(no_descriptor("the descriptor is negative".to_owned()));
        }
        // SAFETY: the driver opened it for its caller, who closes it.
        let opened = unsafe { Descriptor::from_raw_fd(descriptor) };
        // The driver does not say whether programs that are started inherit it; the copy is not inherited.
        opened.try_clone().map_err(|error| no_descriptor(error.to_string()))
    }

    #[cfg(unix)]
    pub(super) fn import_descriptor(&self, descriptor: &Descriptor) -> Result<MemoryHandle> {
        use std::os::fd::AsRawFd;

        let mut handle = 0;
        // The number itself is passed in the place of a pointer.
        let number = descriptor.as_raw_fd() as usize as raw::Pointer;
        let _relaxed = self.enter()?;
        // SAFETY: writes one handle; the descriptor is open, and the driver refuses what is none of its
        // own.
        unsafe { self.symbols.memory_import(&mut handle, number, raw::HANDLE_DESCRIPTOR) }?;
        Ok(MemoryHandle(handle))
    }

    pub(super) fn name_allocation(&self, address: u64) -> Result<AllocationName> {
        let mut handle = IpcHandle([0; 64]);
        let _relaxed = self.enter()?;
        // SAFETY: writes one handle; the driver refuses addresses that are no allocation.
        unsafe { self.symbols.ipc_get(&mut handle, address) }?;
        Ok(handle.0)
    }

    pub(super) fn open_named(&self, name: &AllocationName) -> Result<u64> {
        let mut address = 0;
        let _relaxed = self.enter()?;
        // SAFETY: writes one address; the driver refuses handles that name nothing.
        unsafe {
            self.symbols.ipc_open(&mut address, IpcHandle(*name), raw::IPC_LAZY_PEER_ACCESS)
        }?;
        Ok(address)
    }

    pub(super) fn close_named(&self, address: u64) -> Result<()> {
        let _relaxed = self.enter()?;
        // SAFETY: takes no pointers of the host; that the device is done with it is the caller's part.
        unsafe { self.symbols.ipc_close(address) }
    }
}

#[cfg(unix)]
fn no_descriptor(text: String) -> DriverError {
    DriverError::new("cuMemExportToShareableHandle", 0, ErrorKind::Other(text))
}
