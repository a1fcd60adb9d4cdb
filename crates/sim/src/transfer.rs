//! Page-locked memory of the host, and copies, which are work of the device as kernels are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::kernel::{Kernel, KernelMemory, Launch};
use super::memory::GRANULE;
use super::refusal::Fallible;
use super::{SimDriver, State};
use regraph::driver::{
    read_at, write_at, Access, ErrorKind, HostPlace, NodeKind, NodePointer, Result, StreamHandle,
    Transfer,
};
use regraph::sync::{Mutex, Rank};

const FIRST: usize = 0x6000_0000_0000;

/// In a file, a number takes so many bytes.
const WORD: u64 = 8;

/// What one piece holds: a number for every 512 bytes.
type Numbers = Arc<Mutex<Vec<u64>>>;

/// The host's memory.
#[derive(Debug)]
pub(super) struct HostMemory {
    pieces: BTreeMap<usize, (u64, Numbers)>,
    next: usize,
    used: u64,
    total: u64,
    /// What the host says it has, and how many of its threads copy.
    told: (u64, usize),
}

impl Default for HostMemory {
    fn default() -> Self {
        Self { pieces: BTreeMap::new(), next: FIRST, used: 0, total: u64::MAX, told: (1 << 40, 1) }
    }
}

impl HostMemory {
    fn allocate(&mut self, bytes: u64) -> Fallible<HostPlace> {
        if bytes == 0 {
            return Err(ErrorKind::InvalidValue.into());
        }
        if self.total - self.used.min(self.total) < bytes {
            return Err(ErrorKind::OutOfMemory.into());
        }
        let place = self.next;
        // Never given again, and apart, so that running over an end is found.
        self.next += (bytes.next_multiple_of(GRANULE) + GRANULE) as usize;
        self.used += bytes;
        let numbers = vec![0; bytes.div_ceil(GRANULE) as usize];
        self.pieces.insert(place, (bytes, Arc::new(Mutex::new(Rank::HostNumbers, numbers))));
        Ok(HostPlace(place))
    }

    fn free(&mut self, place: HostPlace) -> Fallible<()> {
        let (bytes, _) = self.pieces.remove(&place.0).ok_or(ErrorKind::InvalidValue)?;
        self.used -= bytes;
        Ok(())
    }

    /// The piece that holds all of a range, and the range's first number in it.
    fn find(&self, place: HostPlace, bytes: u64) -> Fallible<(Numbers, usize)> {
        let piece = self.pieces.range(..=place.0).next_back();
        let (start, (size, numbers)) = piece.ok_or(ErrorKind::InvalidValue)?;
        let offset = (place.0 - start) as u64;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= *size);
        if !fits || !offset.is_multiple_of(GRANULE) {
            return Err(ErrorKind::InvalidValue.into());
        }
        Ok((numbers.clone(), (offset / GRANULE) as usize))
    }
}

/// A copy that takes as long as any kernel: it happens at its end.
#[derive(Debug)]
struct Copy {
    device: (u64, u64),
    host: (Numbers, usize),
    to_host: bool,
}

impl Kernel for Copy {
    fn ranges(&self) -> Vec<(u64, u64)> {
        vec![self.device]
    }

    fn kind(&self) -> NodeKind {
        NodeKind::COPY
    }

    fn pointers(&self) -> Vec<NodePointer> {
        let access = if self.to_host { Access::Reads } else { Access::Writes };
        vec![NodePointer { address: self.device.0, access }]
    }

    fn start(&self, _: &mut KernelMemory<'_>) {}

    fn end(&self, memory: &mut KernelMemory<'_>) {
        let (numbers, first) = &self.host;
        let mut numbers = numbers.lock();
        let (address, bytes) = self.device;
        let mut at = *first;
        if self.to_host {
            memory.read(address, bytes, |number, granules| {
                let granules = granules as usize;
                numbers[at..at + granules].fill(number);
                at += granules;
            });
            return;
        }
        let mut address = address;
        let whole = bytes.div_ceil(GRANULE) as usize;
        for run in numbers[at..at + whole].chunk_by(|one, next| one == next) {
            let bytes = run.len() as u64 * GRANULE;
            memory.fill(address, bytes, run[0]);
            address += bytes;
        }
    }
}

impl State {
    /// Refuses a copy or a fill where the device may not touch all of a range, when it is submitted.
    pub(super) fn must_reach(&self, device: u32, range: (u64, u64)) -> Fallible<()> {
        let reached = self.memory.translate(device, range, &mut Vec::new());
        reached.ok_or_else(|| ErrorKind::InvalidValue.into())
    }

    fn copy(
        &mut self,
        device: u32,
        (address, bytes): (u64, u64),
        place: HostPlace,
        stream: StreamHandle,
        to_host: bool,
    ) -> Fallible<()> {
        let host = self.host.find(place, bytes)?;
        self.must_reach(device, (address, bytes))?;
        let kernel = Copy { device: (address, bytes), host, to_host };
        let launch = Launch { kernel: Some(Arc::new(kernel)), programmatic: false };
        self.launch(stream, device, launch)
    }
}

impl Transfer for SimDriver {
    fn host_memory(&self) -> Option<u64> {
        Some(self.lock().host.told.0)
    }

    fn host_threads(&self) -> usize {
        self.lock().host.told.1
    }

    fn allocate_host(&self, bytes: u64) -> Result<HostPlace> {
        self.program("cuMemHostAlloc", |state| state.host.allocate(bytes))
    }

    fn free_host(&self, place: HostPlace) -> Result<()> {
        self.program("cuMemFreeHost", |state| state.host.free(place))
    }

    fn copy_to_host(
        &self,
        to: HostPlace,
        address: u64,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        self.program("cuMemcpyDtoHAsync", |state| {
            state.copy(self.device, (address, bytes), to, stream, true)
        })
    }

    fn copy_to_device(
        &self,
        address: u64,
        from: HostPlace,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()> {
        self.program("cuMemcpyHtoDAsync", |state| {
            state.copy(self.device, (address, bytes), from, stream, false)
        })
    }

    fn holds_same(&self, one: HostPlace, other: HostPlace, bytes: u64) -> bool {
        let held = [one, other].map(|place| {
            let (numbers, words) = self.numbers("memcmp", place, bytes).ok()?;
            let held = numbers.lock()[words].to_vec();
            Some(held)
        });
        held[0].is_some() && held[0] == held[1]
    }

    /// A number for every 512 bytes.
    fn write_file(&self, file: &File, offset: u64, from: HostPlace, bytes: u64) -> io::Result<()> {
        let (numbers, words) = self.numbers("pwrite", from, bytes)?;
        let held: Vec<u8> =
            numbers.lock()[words].iter().flat_map(|number| number.to_le_bytes()).collect();
        write_at(file, &held, offset / GRANULE * WORD)
    }

    fn read_file(&self, file: &File, offset: u64, to: HostPlace, bytes: u64) -> io::Result<()> {
        let (numbers, words) = self.numbers("pread", to, bytes)?;
        let mut room = vec![0; words.len() * WORD as usize];
        read_at(file, &mut room, offset / GRANULE * WORD)?;
        let (held, _) = room.as_chunks();
        for (number, &word) in numbers.lock()[words].iter_mut().zip(held) {
            *number = u64::from_le_bytes(word);
        }
        Ok(())
    }

    fn sync_file(&self, _: &File) -> io::Result<()> {
        self.program("fdatasync", |_| Ok(())).map_err(io::Error::other)
    }
}

impl SimDriver {
    /// The numbers of a range of the host's memory, for a call on a file.
    fn numbers(
        &self,
        call: &'static str,
        place: HostPlace,
        bytes: u64,
    ) -> io::Result<(Numbers, Range<usize>)> {
        let found = self.program(call, |state| state.host.find(place, bytes));
        let (numbers, first) = found.map_err(io::Error::other)?;
        Ok((numbers, first..first + bytes.div_ceil(GRANULE) as usize))
    }

    /// Has reservations get addresses again that were given back, the lowest that suffice first, as a
    /// driver may do. Without this call none is given twice, so that what is used late is found.
    pub fn give_addresses_again(&self) {
        self.lock().memory.give_again();
    }

    /// How much memory the host says that it has, in bytes, and how many of its threads copy; without this call 1 TiB, of
    /// which [`SimDriver::set_host_bytes`] may leave less to be locked, and 1 thread, so that calls come in one order.
    pub fn set_host(&self, bytes: u64, threads: usize) {
        self.lock().host.told = (bytes, threads);
    }

    /// How much page-locked memory the host has for all devices from now on, in bytes; without this call
    /// there is no end to it.
    pub fn set_host_bytes(&self, bytes: u64) {
        self.lock().host.total = bytes;
    }

    /// How much of it is allocated, in bytes. No call of the engine's.
    pub fn host_bytes(&self) -> u64 {
        self.lock().host.used
    }
}
