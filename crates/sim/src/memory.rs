//! Device memory: reservations, physical memory, mappings, whole allocations. All devices share the
//! addresses; each has physical memory of its own.
//!
//! Addresses depend on nothing but the calls before, are never given out twice unless a test asks for it,
//! and lie apart, so that running over the end of a range is found. Bytes are not kept; see the shadow memory.

use std::collections::BTreeMap;
#[cfg(unix)]
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::devices::Reach;
use super::refusal::Fallible;
use super::slots::short;
use super::SimConfig;
#[cfg(unix)]
use regraph::driver::Descriptor;
use regraph::driver::{AllocationName, ErrorKind, MemoryHandle, MemoryInfo};

const FIRST_RESERVATION: u64 = 0x7f00_0000_0000;
const FIRST_ALLOCATION: u64 = 0x6f00_0000_0000;
/// Least distance between two ranges.
const GUARD: u64 = 2 << 20;
/// A process has so many addresses to reserve, as under CUDA on x86-64.
pub(super) const ADDRESSES: u64 = 1 << 47;
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
    /// How many handles to it are held.
    handles: usize,
    mappings: usize,
    exportable: bool,
    /// What it is in the process that exported it, where that is another one.
    origin: Option<Origin>,
}

/// What a piece of memory is called by other machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    machine: u64,
    slot: u64,
    bytes: u64,
}

#[cfg(unix)]
impl Origin {
    /// A file without a name that holds it.
    fn write(self) -> std::io::Result<Descriptor> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("regraph-sim-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        let mut bytes = [0; 24];
        for (place, value) in bytes.chunks_mut(8).zip([self.machine, self.slot, self.bytes]) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        file.write_all_at(&bytes, 0)?;
        Ok(file.into())
    }

    fn read(file: &Descriptor) -> Option<Self> {
        let mut bytes = [0; 24];
        let file = std::fs::File::from(file.try_clone().ok()?);
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(Self { machine: word(&bytes, 0), slot: word(&bytes, 8), bytes: word(&bytes, 16) })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// Unlike that of any machine of this process or of another that runs beside it.
fn new_identity() -> u64 {
    static MACHINES: AtomicU64 = AtomicU64::new(0);
    let number = MACHINES.fetch_add(1, Ordering::Relaxed);
    u64::from(std::process::id()) << 32 | number & u64::from(u32::MAX)
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
    /// Of reservations that were given back, with their sizes, where such are given again.
    again: Option<Vec<(u64, u64)>>,
    next_allocation: u64,
    reservations: BTreeMap<u64, u64>,
    physical: Vec<Physical>,
    /// Whole allocations are in here too, as ranges that are always accessible.
    mappings: BTreeMap<u64, Mapping>,
    allocations: BTreeMap<u64, usize>,
    /// Allocations of other drivers that were opened by their names.
    opened: BTreeMap<u64, usize>,
    /// Tells machines of one process, and of several, apart.
    identity: u64,
}

impl Memory {
    /// No devices.
    pub(super) fn new() -> Self {
        Self {
            stocks: Vec::new(),
            next_reservation: FIRST_RESERVATION,
            again: None,
            next_allocation: FIRST_ALLOCATION,
            reservations: BTreeMap::new(),
            physical: Vec::new(),
            mappings: BTreeMap::new(),
            allocations: BTreeMap::new(),
            opened: BTreeMap::new(),
            identity: new_identity(),
        }
    }

    /// Takes in one more device and returns its ordinal.
    pub(super) fn add_device(&mut self, config: SimConfig) -> u32 {
        let granularity = config.support.granularity();
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
        if self.reservations.values().sum::<u64>().saturating_add(bytes) > ADDRESSES {
            return Err(ErrorKind::OutOfMemory.into());
        }
        let again = self.again.iter_mut().flatten();
        if let Some(place) = again.filter(|(_, size)| *size >= bytes).min() {
            let address = place.0;
            *place = (address + bytes, place.1 - bytes);
            self.reservations.insert(address, bytes);
            return Ok(address);
        }
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
        self.again.iter_mut().for_each(|again| again.push((address, bytes)));
        Ok(())
    }

    /// Gives addresses again that are given back from now on.
    pub(super) fn give_again(&mut self) {
        self.again.get_or_insert_default();
    }

    pub(super) fn create(&mut self, device: u32, bytes: u64) -> Fallible<MemoryHandle> {
        self.whole_granules(device, &[], bytes)?;
        let slot = self.take(device, bytes)?;
        Ok(MemoryHandle(slot as u64 + 1))
    }

    pub(super) fn create_exportable(&mut self, device: u32, bytes: u64) -> Fallible<MemoryHandle> {
        let memory = self.create(device, bytes)?;
        let slot = self.held(memory)?;
        self.physical[slot].exportable = true;
        Ok(memory)
    }

    /// A file that names the memory. It does not keep it, other than CUDA's: imports of memory that is gone fail.
    #[cfg(unix)]
    pub(super) fn export(&mut self, memory: MemoryHandle) -> Fallible<Descriptor> {
        let slot = self.held(memory)?;
        let Physical { bytes, exportable, .. } = self.physical[slot];
        if !exportable {
            return Err(ErrorKind::InvalidValue.into());
        }
        let origin = Origin { machine: self.identity, slot: slot as u64, bytes };
        origin.write().map_err(|error| ErrorKind::Other(error.to_string()).into())
    }

    #[cfg(unix)]
    pub(super) fn import(&mut self, device: u32, file: &Descriptor) -> Fallible<MemoryHandle> {
        let origin = Origin::read(file).ok_or(ErrorKind::InvalidValue)?;
        self.whole_granules(device, &[], origin.bytes)?;
        let known = |it: &Physical| it.origin == Some(origin) && it.handles + it.mappings > 0;
        let slot = if origin.machine == self.identity {
            usize::try_from(origin.slot).map_err(|_| ErrorKind::InvalidValue)?
        } else {
            // Another machine's memory: here it takes none of any device.
            self.physical.iter().position(known).unwrap_or_else(|| {
                let bytes = origin.bytes;
                let origin = Some(origin);
                let new =
                    Physical { device, bytes, handles: 0, mappings: 0, exportable: true, origin };
                self.physical.push(new);
                self.physical.len() - 1
            })
        };
        let physical = self.physical.get_mut(slot).ok_or(ErrorKind::InvalidValue)?;
        let gone = physical.origin.is_none() && physical.handles + physical.mappings == 0;
        if gone || !physical.exportable {
            return Err(ErrorKind::InvalidValue.into());
        }
        physical.handles += 1;
        Ok(MemoryHandle(slot as u64 + 1))
    }

    /// A name of an allocation, for drivers of the same machine.
    pub(super) fn name(&mut self, address: u64) -> Fallible<AllocationName> {
        let slot = *self.allocations.get(&address).ok_or(ErrorKind::InvalidValue)?;
        let mut name = [0; 64];
        name[..8].copy_from_slice(&self.identity.to_le_bytes());
        name[8..16].copy_from_slice(&(slot as u64).to_le_bytes());
        Ok(name)
    }

    pub(super) fn open(
        &mut self,
        (_, reach): (u32, Reach),
        name: &AllocationName,
    ) -> Fallible<u64> {
        let (machine, slot) = (word(name, 0), word(name, 8));
        let slot = usize::try_from(slot).ok().filter(|_| machine == self.identity);
        let slot = slot.filter(|slot| self.allocations.values().any(|it| it == slot));
        let slot = slot.ok_or(ErrorKind::InvalidValue)?;
        let bytes = self.physical[slot].bytes;
        let address = self.next_allocation(bytes)?;
        self.physical[slot].mappings += 1;
        self.opened.insert(address, slot);
        self.mappings.insert(address, Mapping { bytes, physical: slot, access: Some(reach) });
        Ok(address)
    }

    pub(super) fn close(&mut self, address: u64) -> Fallible<()> {
        let slot = self.opened.remove(&address).ok_or(ErrorKind::InvalidValue)?;
        self.mappings.remove(&address);
        self.physical[slot].mappings -= 1;
        self.drop_if_gone(slot);
        Ok(())
    }

    /// Lets more devices touch every allocation of one.
    pub(super) fn widen(&mut self, device: u32, reach: Reach) {
        for (address, &slot) in &self.allocations {
            if self.physical[slot].device != device {
                continue;
            }
            if let Some(mapping) = self.mappings.get_mut(address) {
                mapping.access = Some(reach);
            }
        }
    }

    pub(super) fn release(&mut self, memory: MemoryHandle) -> Fallible<()> {
        let slot = self.held(memory)?;
        self.physical[slot].handles -= 1;
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
        let physical = self.take(device, bytes)?;
        let address = match self.next_allocation(bytes) {
            Ok(address) => address,
            Err(refusal) => {
                self.physical[physical].handles = 0;
                self.drop_if_gone(physical);
                return Err(refusal);
            }
        };
        self.physical[physical].mappings = 1;
        self.physical[physical].handles = 0;
        self.allocations.insert(address, physical);
        self.mappings.insert(address, Mapping { bytes, physical, access: Some(reach) });
        Ok(address)
    }

    /// Addresses for an allocation, never given out twice.
    fn next_allocation(&mut self, bytes: u64) -> Fallible<u64> {
        let address = self.next_allocation;
        let end = address.checked_add(bytes).and_then(|end| end.checked_add(GUARD));
        self.next_allocation = end.ok_or(ErrorKind::OutOfMemory)?;
        Ok(address)
    }

    pub(super) fn free(&mut self, address: u64) -> Fallible<()> {
        let slot = self.allocations.remove(&address).ok_or(ErrorKind::InvalidValue)?;
        self.mappings.remove(&address);
        self.physical[slot].mappings -= 1;
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

    /// The machine and the number there of the memory behind an address.
    pub(super) fn origin(&self, address: u64) -> Option<(u64, u64)> {
        let (number, physical) = self.physical_at(address)?;
        let own = (self.identity, number as u64);
        Some(physical.origin.map_or(own, |origin| (origin.machine, origin.slot)))
    }

    /// Whether the memory behind an address was made to be exported.
    pub(super) fn is_exportable(&self, address: u64) -> bool {
        self.physical_at(address).is_some_and(|(_, physical)| physical.exportable)
    }

    fn physical_at(&self, address: u64) -> Option<(usize, &Physical)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        let there = address - start < mapping.bytes;
        let physical = self.physical.get(mapping.physical).filter(|_| there)?;
        Some((mapping.physical, physical))
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
            let whole = self.allocations.contains_key(start) || self.opened.contains_key(start);
            if *start != reached || whole {
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
        self.use_up(device, bytes)?;
        let new =
            Physical { device, bytes, handles: 1, mappings: 0, exportable: false, origin: None };
        self.physical.push(new);
        Ok(self.physical.len() - 1)
    }

    /// Counts memory of a device as used.
    pub(super) fn use_up(&mut self, device: u32, bytes: u64) -> Fallible<()> {
        let stock = &mut self.stocks[device as usize];
        if bytes > stock.total - stock.used {
            return Err(ErrorKind::OutOfMemory.into());
        }
        stock.used += bytes;
        Ok(())
    }

    fn held(&self, memory: MemoryHandle) -> Fallible<usize> {
        let slot = usize::try_from(memory.0)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .filter(|slot| self.physical.get(*slot).is_some_and(|it| it.handles > 0));
        slot.ok_or_else(|| ErrorKind::InvalidValue.into())
    }

    fn drop_if_gone(&mut self, slot: usize) {
        let physical = &self.physical[slot];
        let gone = physical.handles == 0 && physical.mappings == 0;
        if gone && physical.origin.is_none() {
            self.stocks[physical.device as usize].used -= physical.bytes;
        }
    }
}
