//! Device memory: reservations, physical memory, mappings, whole allocations.
//!
//! Addresses depend on nothing but the calls before, are never given out twice, and lie apart, so
//! that running over the end of a range is found. Bytes are not kept; see the shadow memory.

use std::collections::BTreeMap;

use super::refusal::Fallible;
use super::slots::short;
use crate::driver::{ErrorKind, MemoryHandle, MemoryInfo, MemorySupport, Tagged};

const FIRST_RESERVATION: u64 = 0x7f00_0000_0000;
const FIRST_ALLOCATION: u64 = 0x6f00_0000_0000;
/// Least distance between two ranges.
const GUARD: u64 = 2 << 20;
/// Every 512 bytes carry a tag.
pub(super) const GRANULE: u64 = 512;

#[derive(Debug)]
struct Physical {
    bytes: u64,
    released: bool,
    mappings: usize,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    physical: usize,
    access: bool,
}

/// A stretch of physical memory behind a stretch of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) physical: u32,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Memory {
    granularity: Option<u64>,
    total: u64,
    used: u64,
    next_reservation: u64,
    next_allocation: u64,
    reservations: BTreeMap<u64, u64>,
    physical: Vec<Physical>,
    /// Whole allocations are in here too, as ranges that are always accessible.
    mappings: BTreeMap<u64, Mapping>,
    allocations: BTreeMap<u64, usize>,
}

impl Memory {
    pub(super) fn new(total: u64, support: MemorySupport) -> Self {
        Self {
            granularity: match support {
                MemorySupport::Mapped { granularity } => Some(granularity),
                MemorySupport::Allocated => None,
            },
            total,
            used: 0,
            next_reservation: FIRST_RESERVATION,
            next_allocation: FIRST_ALLOCATION,
            reservations: BTreeMap::new(),
            physical: Vec::new(),
            mappings: BTreeMap::new(),
            allocations: BTreeMap::new(),
        }
    }

    pub(super) fn info(&self) -> MemoryInfo {
        MemoryInfo { free: self.total - self.used, total: self.total }
    }

    pub(super) fn reserve(&mut self, bytes: u64) -> Fallible<u64> {
        self.whole_granules(&[], bytes)?;
        let address = self.next_reservation;
        let next = address
            .checked_add(bytes)
            .and_then(|end| end.checked_add(GUARD))
            .and_then(|end| end.checked_next_multiple_of(GUARD.max(self.granularity.unwrap_or(1))))
            .ok_or(ErrorKind::OutOfMemory)?;
        self.next_reservation = next;
        self.reservations.insert(address, bytes);
        Ok(address)
    }

    pub(super) fn unreserve(&mut self, address: u64, bytes: u64) -> Fallible<()> {
        self.whole_granules(&[address], bytes)?;
        if self.reservations.get(&address) != Some(&bytes) || self.touches(address, bytes) {
            return Err(ErrorKind::InvalidValue.into());
        }
        self.reservations.remove(&address);
        Ok(())
    }

    pub(super) fn create(&mut self, bytes: u64) -> Fallible<MemoryHandle> {
        self.whole_granules(&[], bytes)?;
        let slot = self.take(bytes)?;
        Ok(MemoryHandle(slot as u64 + 1))
    }

    pub(super) fn release(&mut self, memory: MemoryHandle) -> Fallible<()> {
        let slot = self.held(memory)?;
        self.physical[slot].released = true;
        self.drop_if_gone(slot);
        Ok(())
    }

    pub(super) fn map(&mut self, address: u64, bytes: u64, memory: MemoryHandle) -> Fallible<()> {
        self.whole_granules(&[address], bytes)?;
        let slot = self.held(memory)?;
        let reserved = self
            .reservations
            .range(..=address)
            .next_back()
            .is_some_and(|(start, length)| bytes <= length.saturating_sub(address - start));
        if !reserved || self.physical[slot].bytes != bytes || self.touches(address, bytes) {
            return Err(ErrorKind::InvalidValue.into());
        }
        self.physical[slot].mappings += 1;
        self.mappings.insert(address, Mapping { bytes, physical: slot, access: false });
        Ok(())
    }

    pub(super) fn set_access(&mut self, address: u64, bytes: u64) -> Fallible<()> {
        self.whole_mappings(address, bytes)?;
        for (_, mapping) in self.mappings.range_mut(address..address + bytes) {
            mapping.access = true;
        }
        Ok(())
    }

    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> Fallible<()> {
        self.whole_mappings(address, bytes)?;
        let mut start = address;
        while start < address + bytes {
            let Some(mapping) = self.mappings.remove(&start) else {
                break;
            };
            start += mapping.bytes;
            self.physical[mapping.physical].mappings -= 1;
            self.drop_if_gone(mapping.physical);
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, bytes: u64) -> Fallible<u64> {
        if bytes == 0 {
            return Err(ErrorKind::InvalidValue.into());
        }
        let bytes = bytes.checked_next_multiple_of(GRANULE).ok_or(ErrorKind::OutOfMemory)?;
        let address = self.next_allocation;
        let next = address
            .checked_add(bytes)
            .and_then(|end| end.checked_add(GUARD))
            .ok_or(ErrorKind::OutOfMemory)?;
        let physical = self.take(bytes)?;
        self.next_allocation = next;
        self.physical[physical].mappings = 1;
        self.physical[physical].released = true;
        self.allocations.insert(address, physical);
        self.mappings.insert(address, Mapping { bytes, physical, access: true });
        Ok(address)
    }

    pub(super) fn free(&mut self, address: u64) -> Fallible<()> {
        let slot = self.allocations.remove(&address).ok_or(ErrorKind::InvalidValue)?;
        self.mappings.remove(&address);
        self.physical[slot].mappings = 0;
        self.drop_if_gone(slot);
        Ok(())
    }

    /// What lies behind a range now, or `None` where the device may not touch all of it.
    pub(super) fn translate(&self, range: &Tagged, stretches: &mut Vec<Stretch>) -> Option<()> {
        stretches.clear();
        if !range.address.is_multiple_of(GRANULE) {
            return None;
        }
        let end = range.address.checked_add(range.bytes)?.checked_next_multiple_of(GRANULE)?;
        let mut address = range.address;
        while address < end {
            let (start, mapping) = self.mappings.range(..=address).next_back()?;
            let offset = address - start;
            if !mapping.access || offset >= mapping.bytes {
                return None;
            }
            let bytes = (mapping.bytes - offset).min(end - address);
            stretches.push(Stretch { physical: short(mapping.physical), offset, bytes });
            address += bytes;
        }
        Some(())
    }

    fn whole_granules(&self, addresses: &[u64], bytes: u64) -> Fallible<()> {
        let granularity = self.granularity.ok_or(ErrorKind::NotSupported)?;
        let whole = |value: u64| value.is_multiple_of(granularity);
        let overflows = addresses.iter().any(|address| address.checked_add(bytes).is_none());
        if bytes == 0 || overflows || !whole(bytes) || !addresses.iter().copied().all(whole) {
            return Err(ErrorKind::InvalidValue.into());
        }
        Ok(())
    }

    /// Refuses a range that is anything but mappings of handles, whole and without holes.
    fn whole_mappings(&self, address: u64, bytes: u64) -> Fallible<()> {
        self.whole_granules(&[address], bytes)?;
        let end = address + bytes;
        let mut reached = address;
        for (start, mapping) in self.mappings.range(address..end) {
            if *start != reached || self.allocations.contains_key(start) {
                break;
            }
            reached += mapping.bytes;
        }
        if reached == end {
            Ok(())
        } else {
            Err(ErrorKind::InvalidValue.into())
        }
    }

    fn touches(&self, address: u64, bytes: u64) -> bool {
        self.mappings
            .range(..address + bytes)
            .next_back()
            .is_some_and(|(start, mapping)| start + mapping.bytes > address)
    }

    fn take(&mut self, bytes: u64) -> Fallible<usize> {
        if bytes > self.total - self.used {
            return Err(ErrorKind::OutOfMemory.into());
        }
        self.used += bytes;
        self.physical.push(Physical { bytes, released: false, mappings: 0 });
        Ok(self.physical.len() - 1)
    }

    fn held(&self, memory: MemoryHandle) -> Fallible<usize> {
        let slot = usize::try_from(memory.0)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .filter(|slot| self.physical.get(*slot).is_some_and(|it| !it.released));
        slot.ok_or_else(|| ErrorKind::InvalidValue.into())
    }

    fn drop_if_gone(&mut self, slot: usize) {
        let physical = &self.physical[slot];
        if physical.released && physical.mappings == 0 {
            self.used -= physical.bytes;
        }
    }
}
