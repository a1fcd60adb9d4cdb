//! Segments: where a heap's memory comes from.
//!
//! With virtual memory management a segment is one reserved range of addresses into which physical
//! memory is mapped from the front, so that growth extends the last free range. Without it, each
//! segment is one allocation.

use super::range::RangeId;
use crate::driver::{Driver, DriverError, MemoryHandle, MemorySupport};

/// Unit of allocation where mapping is not supported, in bytes.
const ALLOCATION_UNIT: u64 = 2 << 20;

/// Memory from the driver.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    /// Reserved, or allocated, in bytes.
    pub(crate) bytes: u64,
    /// Usable from the front, in bytes.
    pub(crate) mapped: u64,
    /// The range that ends at `mapped`.
    pub(crate) last: Option<RangeId>,
    /// What is mapped, in address order; empty for an allocation.
    mappings: Vec<Mapping>,
    support: MemorySupport,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    address: u64,
    bytes: u64,
    memory: MemoryHandle,
}

/// How far apart memory can be had, in bytes.
pub(crate) fn unit(support: MemorySupport) -> u64 {
    match support {
        MemorySupport::Mapped { granularity } => granularity,
        MemorySupport::Allocated => ALLOCATION_UNIT,
    }
}

impl Segment {
    /// A segment that can hold at least `bytes`, and where it can be reserved without being
    /// mapped, `reserve` bytes.
    pub(crate) fn open<D: Driver + ?Sized>(
        driver: &D,
        bytes: u64,
        reserve: u64,
    ) -> Result<Self, DriverError> {
        let support = driver.memory_support();
        let (address, bytes, mapped) = match support {
            MemorySupport::Mapped { granularity } => {
                let bytes = bytes.max(reserve).next_multiple_of(granularity);
                (driver.reserve(bytes)?, bytes, 0)
            }
            MemorySupport::Allocated => {
                let bytes = bytes.next_multiple_of(ALLOCATION_UNIT);
                (driver.allocate(bytes)?, bytes, bytes)
            }
        };
        Ok(Self { address, bytes, mapped, last: None, mappings: Vec::new(), support })
    }

    /// Bytes that can still be mapped.
    pub(crate) fn room(&self) -> u64 {
        self.bytes - self.mapped
    }

    /// Maps `bytes` more, a multiple of the granularity, behind what is mapped. On failure nothing
    /// has changed.
    pub(crate) fn extend<D: Driver + ?Sized>(
        &mut self,
        driver: &D,
        bytes: u64,
    ) -> Result<(), DriverError> {
        let address = self.address + self.mapped;
        let memory = driver.create(bytes)?;
        if let Err(error) = driver.map(address, bytes, memory) {
            // The handle is lost if this fails too; the first error is the one to report.
            let _ = driver.release(memory);
            return Err(error);
        }
        if let Err(error) = driver.set_access(address, bytes) {
            let _ = driver.unmap(address, bytes);
            let _ = driver.release(memory);
            return Err(error);
        }
        self.mappings.push(Mapping { address, bytes, memory });
        self.mapped += bytes;
        Ok(())
    }

    /// Gives everything back to the driver. Goes on after an error and returns the first.
    pub(crate) fn close<D: Driver + ?Sized>(self, driver: &D) -> Result<(), DriverError> {
        if self.support == MemorySupport::Allocated {
            return driver.free(self.address);
        }
        let mut result = Ok(());
        for mapping in &self.mappings {
            result = result.and(driver.unmap(mapping.address, mapping.bytes));
            result = result.and(driver.release(mapping.memory));
        }
        result.and(driver.unreserve(self.address, self.bytes))
    }
}
