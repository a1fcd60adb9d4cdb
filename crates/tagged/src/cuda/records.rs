//! Tables of tagged ranges, in pinned host memory that kernels read.
//!
//! A captured kernel keeps the address of its table, so tables stay where they are until the
//! driver object goes or [`Records::rewind`] declares all of them dead.

use std::mem::size_of;
use std::ptr::null_mut;

use regraph_driver::cuda::{CudaDriver, Pointer};
use regraph_driver::Result;

use super::super::Tagged;
use super::functions::Functions;
use super::raw::HOST_PORTABLE_MAPPED;

const CHUNK_BYTES: usize = 1 << 20;

/// What the kernel reads for one range.
#[repr(C)]
struct Record {
    address: u64,
    bytes: u64,
    tag: u64,
}

const _: () = assert!(size_of::<Record>() == 24);

impl From<&Tagged> for Record {
    fn from(range: &Tagged) -> Self {
        Self { address: range.address, bytes: range.bytes, tag: range.tag }
    }
}

struct Chunk {
    /// Host address.
    host: usize,
    /// Device address of that memory, for kernels.
    device: u64,
    /// Records that fit.
    capacity: usize,
    used: usize,
}

/// All tables of one driver object.
#[derive(Default)]
pub(super) struct Records {
    chunks: Vec<Chunk>,
}

impl Records {
    /// Writes a table of `inputs` and then `outputs` and returns its device address.
    ///
    /// The context must be current and the thread relaxed.
    pub fn write(
        &mut self,
        driver: &CudaDriver,
        functions: &Functions,
        inputs: &[Tagged],
        outputs: &[Tagged],
    ) -> Result<u64> {
        let count = inputs.len() + outputs.len();
        if count == 0 {
            return Ok(0);
        }
        let index = self.chunk_for(driver, functions, count)?;
        let chunk = &mut self.chunks[index];
        let start = chunk.used;
        let base = (chunk.host as *mut Record).wrapping_add(start);
        for (index, range) in inputs.iter().chain(outputs).enumerate() {
            // SAFETY: the chunk has room for `count` records behind `used`, is page-aligned, and
            // belongs to this object, which is borrowed mutably. No kernel knows these slots.
            unsafe { base.add(index).write(Record::from(range)) };
        }
        chunk.used += count;
        Ok(chunk.device + (start * size_of::<Record>()) as u64)
    }

    fn chunk_for(
        &mut self,
        driver: &CudaDriver,
        functions: &Functions,
        count: usize,
    ) -> Result<usize> {
        // The chunk in use is found at once, but for the moment when it is full.
        let room = |chunk: &Chunk| chunk.capacity - chunk.used >= count;
        if let Some(index) = self.chunks.iter().rposition(room) {
            return Ok(index);
        }
        let bytes = CHUNK_BYTES.max(count * size_of::<Record>());
        let mut host: Pointer = null_mut();
        // SAFETY: writes one pointer, to memory that `free` gives back.
        unsafe { functions.host_allocate(driver, &mut host, bytes, HOST_PORTABLE_MAPPED) }?;
        let mut device = 0;
        // SAFETY: the memory was just allocated as mapped; writes one address.
        if let Err(error) = unsafe { functions.host_device_address(driver, &mut device, host, 0) } {
            // SAFETY: just allocated, and no kernel knows it.
            let _ = unsafe { functions.host_free(driver, host) };
            return Err(error);
        }
        self.chunks.push(Chunk {
            host: host as usize,
            device,
            capacity: bytes / size_of::<Record>(),
            used: 0,
        });
        Ok(self.chunks.len() - 1)
    }

    /// Forgets all tables. No kernel that has one may run again.
    pub fn rewind(&mut self) {
        for chunk in &mut self.chunks {
            chunk.used = 0;
        }
    }

    /// Gives the memory back. The context must be current, the thread relaxed, the device idle.
    pub fn free(&mut self, driver: &CudaDriver, functions: &Functions) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: allocated by `chunk_for` and freed once. A failure leaks, nothing more.
            let _ = unsafe { functions.host_free(driver, chunk.host as Pointer) };
        }
    }
}
