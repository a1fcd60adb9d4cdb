//! Device memory: reservations, physical memory, mappings, whole allocations. All devices share the
//! addresses; each has physical memory of its own.
//!
//! Addresses depend on nothing but the calls before, are never given out twice, and lie apart, so
//! that running over the end of a range is found. Bytes are not kept; see the shadow memory.

use std::collections::BTreeMap;

use super::devices::Reach;
use super::refusal::Fallible;
use super::slots::short;
use super::SimConfig;
use regraph::driver::{ErrorKind, MemoryHandle, MemoryInfo, MemorySupport};

const FIRST_RESERVATION: u64 = 0x7f00_0000_0000;
const FIRST_ALLOCATION: u64 = 0x6f00_0000_0000;
/// Least distance between two ranges.
const GUARD: u64 = 2 << 20;
/// Every 512 bytes hold a number.
pub(super) const GRANULE: u64 = 512;

/// What one device has.
#[derive(Debug)]
struct Stock {
    granularity: Option<u64>,
    total: u64,
    used: u64,
}

#[derive(Debug)]
struct Physical {
    device: u32,
    bytes: u64,
    released: bool,
    mappings: usize,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    physical: usize,
    /// Which devices may touch it, if any.
    access: Option<Reach>,
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
    stocks: Vec<Stock>,
    next_reservation: u64,
    next_allocation: u64,
    reservations: BTreeMap<u64, u64>,
    physical: Vec<Physical>,
    /// Whole allocations are in here too, as ranges that are always accessible.
    mappings: BTreeMap<u64, Mapping>,
    allocations: BTreeMap<u64, usize>,
}

impl Memory {
    /// No devices.
    pub(super) fn new() -> Self {
        Self {
            stocks: Vec::new(),
            next_reservation: FIRST_RESERVATION,
            next_allocation: FIRST_ALLOCATION,
            reservations: BTreeMap::new(),
            physical: Vec::new(),
            mappings: BTreeMap::new(),
            allocations: BTreeMap::new(),
        }
    }

    /// Takes in one more device and returns its ordinal.
    pub(super) fn add_device(&mut self, config: SimConfig) -> u32 {
        let granularity = match config.support {
            MemorySupport::Mapped { granularity } => Some(granularity),
            MemorySupport::Allocated => None,
        };
        self.stocks.push(Stock { granularity, total: config.total_bytes, used: 0 });
        self.devices() - 1
    }

    pub(super) fn devices(&self) -> u32 {
        short(self.stocks.len())
    }

    pub(super) fn info(&self, device: u32) -> MemoryInfo {
        let stock = &self.stocks[device as usize];
        MemoryInfo { free: stock.total - stock.used, total: stock.total }
    }

    pub(super) fn reserve(&mut self, device: u32, bytes: u64) -> Fallible<u64> {
        let granularity = self.whole_granules(device, &[], bytes)?;
        let start = self.next_reservation.checked_next_multiple_of(granularity);
        let address = start.ok_or(ErrorKind::OutOfMemory)?;
        let next = address
            .checked_add(bytes)
            .and_then(|end| end.checked_add(GUARD))
            .and_then(|end| end.checked_next_multiple_of(GUARD.max(granularity)))
            .ok_or(ErrorKind::OutOfMemory)?;
        self.next_reservation = next;
        self.reservations.insert(address, bytes);
        Ok(address)
    }

    pub(super) fn unreserve(&mut self, device: u32, address: u64, bytes: u64) -> Fallible<()> {
        self.whole_granules(device, &[address], bytes)?;
        if self.reservations.get(&address) != Some(&bytes) || self.touches(address, bytes) {
            return Err(ErrorKind::InvalidValue.into());
        }
        self.reservations.remove(&address);
        Ok(())
    }

    pub(super) fn create(&mut self, device: u32, bytes: u64) -> Fallible<MemoryHandle> {
        self.whole_granules(device, &[], bytes)?;
        let slot = self.take(device, bytes)?;
        Ok(MemoryHandle(slot as u64 + 1))
    }

    pub(super) fn release(&mut self, memory: MemoryHandle) -> Fallible<()> {
        let slot = self.held(memory)?;
        self.physical[slot].released = true;
        self.drop_if_gone(slot);
        Ok(())
    }

    pub(super) fn map(
        &mut self,
        device: u32,
        address: u64,
        bytes: u64,
        memory: MemoryHandle,
    ) -> Fallible<()> {
        self.whole_granules(device, &[address], bytes)?;
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
        self.mappings.insert(address, Mapping { bytes, physical: slot, access: None });
        Ok(())
    }

    pub(super) fn set_access(
        &mut self,
        (device, reach): (u32, Reach),
        address: u64,
        bytes: u64,
    ) -> Fallible<()> {
        self.whole_mappings(device, address, bytes)?;
        for (_, mapping) in self.mappings.range_mut(address..address + bytes) {
            mapping.access = Some(reach);
        }
        Ok(())
    }

    pub(super) fn unmap(&mut self, device: u32, address: u64, bytes: u64) -> Fallible<()> {
        self.whole_mappings(device, address, bytes)?;
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

    pub(super) fn allocate(&mut self, (device, reach): (u32, Reach), bytes: u64) -> Fallible<u64> {
        if bytes == 0 {
            return Err(ErrorKind::InvalidValue.into());
        }
        let bytes = bytes.checked_next_multiple_of(GRANULE).ok_or(ErrorKind::OutOfMemory)?;
        let address = self.next_allocation;
        let next = address
            .checked_add(bytes)
            .and_then(|end| end.checked_add(GUARD))
            .ok_or(ErrorKind::OutOfMemory)?;
        let physical = self.take(device, bytes)?;
        self.next_allocation = next;
        self.physical[physical].mappings = 1;
        self.physical[physical].released = true;
        self.allocations.insert(address, physical);
        self.mappings.insert(address, Mapping { bytes, physical, access: Some(reach) });
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
    pub(super) fn translate(
        &self,
        device: u32,
        (address, bytes): (u64, u64),
        stretches: &mut Vec<Stretch>,
    ) -> Option<()> {
        stretches.clear();
        if !address.is_multiple_of(GRANULE) {
            return None;
        }
        let end = address.checked_add(bytes)?.checked_next_multiple_of(GRANULE)?;
        let mut address = address;
        while address < end {
            let (start, mapping) = self.mappings.range(..=address).next_back()?;
            let offset = address - start;
            if !mapping.access.is_some_and(|reach| reach.holds(device)) || offset >= mapping.bytes {
                return None;
            }
            let bytes = (mapping.bytes - offset).min(end - address);
            stretches.push(Stretch { physical: short(mapping.physical), offset, bytes });
            address += bytes;
        }
        Some(())
    }

    /// Whether memory of some device lies behind all of a range now, accessible or not.
    pub(super) fn is_mapped(&self, (address, bytes): (u64, u64)) -> bool {
        let Some(end) = address.checked_add(bytes) else { return false };
        let mut address = address;
        while address < end {
            match self.mappings.range(..=address).next_back() {
                Some((start, mapping)) if address - start < mapping.bytes => {
                    address = start + mapping.bytes;
                }
                _ => return false,
            }
        }
        true
    }

    /// Refuses what is no multiple of the device's granularity, and returns that.
    fn whole_granules(&self, device: u32, addresses: &[u64], bytes: u64) -> Fallible<u64> {
        let granularity =
            self.stocks[device as usize].granularity.ok_or(ErrorKind::NotSupported)?;
        let whole = |value: u64| value.is_multiple_of(granularity);
        let overflows = addresses.iter().any(|address| address.checked_add(bytes).is_none());
        if bytes == 0 || overflows || !whole(bytes) || !addresses.iter().copied().all(whole) {
            return Err(ErrorKind::InvalidValue.into());
        }
        Ok(granularity)
    }

    /// Refuses a range that is anything but mappings of handles, whole and without holes.
    fn whole_mappings(&self, device: u32, address: u64, bytes: u64) -> Fallible<()> {
        self.whole_granules(device, &[address], bytes)?;
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

    fn take(&mut self, device: u32, bytes: u64) -> Fallible<usize> {
        let stock = &mut self.stocks[device as usize];
        if bytes > stock.total - stock.used {
            return Err(ErrorKind::OutOfMemory.into());
        }
        stock.used += bytes;
        self.physical.push(Physical { device, bytes, released: false, mappings: 0 });
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
            self.stocks[physical.device as usize].used -= physical.bytes;
        }
    }
}
