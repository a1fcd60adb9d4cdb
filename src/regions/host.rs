//! Page-locked memory of the host that is used again from sleep to sleep: locking pages takes the
//! driver some 700 us a MiB, more than ten times as long as a copy.

use crate::driver::{DriverError, HostPlace, Transfer};
use crate::engine::PoolLabel;
use crate::error::Error;

/// What is allocated at once, in bytes, where no less is wanted.
const SLAB: u64 = 64 << 20;
/// In what the driver gives less, in bytes.
const UNIT: u64 = 2 << 20;
/// In what spans are cut, in bytes: copies begin there.
const CUT: u64 = 4 << 10;

/// A part of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    place: HostPlace,
    bytes: u64,
    /// Where its slab begins: spans of two slabs are never one.
    slab: HostPlace,
}

impl Span {
    /// Takes its first bytes, `most` of them or all that there are: where they are, and how many.
    pub(super) fn take(&mut self, most: u64) -> (HostPlace, u64) {
        let (place, bytes) = (self.place, most.min(self.bytes));
        (self.place, self.bytes) = (place.after(bytes), self.bytes - bytes);
        (place, bytes)
    }
}

/// Why there is not enough.
#[derive(Debug)]
pub(super) enum Short {
    /// The driver has given no more: how much is missing, in bytes.
    Refused { missing: u64, source: DriverError },
    /// So many bytes would be held, and the host has fewer.
    Beyond { held: u64, host: u64 },
}

impl Short {
    /// The error that the call `call` returns for it, with the pool where it is about one.
    pub(super) fn told(self, call: &'static str, pool: Option<PoolLabel>) -> Error {
        match self {
            Self::Refused { missing: bytes, source } if source.is_out_of_memory() => {
                Error::HostOutOfMemory { call, pool, bytes, source: Box::new(source) }
            }
            Self::Refused { source, .. } => source.into(),
            Self::Beyond { held: bytes, host: host_bytes } => {
                Error::HostTooSmall { call, pool, bytes, host_bytes }
            }
        }
    }
}

/// Page-locked memory, in slabs.
#[derive(Debug, Default)]
pub(super) struct HostMemory {
    /// In which nothing is kept: ascending, neighbours of one slab as one.
    idle: Vec<Span>,
    slabs: Vec<Span>,
}

impl HostMemory {
    /// Locks pages until `bytes` bytes keep nothing, or more.
    ///
    /// # Errors
    /// The driver's, with how much was missing still: what was locked by then stays (see
    /// [`HostMemory::free_since`]). More than the host has is refused before any is locked.
    pub(super) fn reserve<D: Transfer>(&mut self, driver: &D, bytes: u64) -> Result<(), Short> {
        loop {
            let idle: u64 = self.idle.iter().map(|span| span.bytes).sum();
            let missing = bytes.saturating_sub(idle);
            if missing == 0 {
                return Ok(());
            }
            self.allocate(driver, missing)?;
        }
    }

    /// What a pool's runs take at most of so many bytes: spans are cut.
    pub(super) fn needed(bytes: u64) -> u64 {
        bytes.next_multiple_of(CUT)
    }

    /// How many slabs there are: those of later calls come behind.
    pub(super) fn slabs(&self) -> usize {
        self.slabs.len()
    }

    /// Spans for `bytes` bytes: what is idle first, and new slabs for the rest.
    ///
    /// # Errors
    /// As [`HostMemory::reserve`]; then none is taken.
    pub(super) fn take<D: Transfer>(&mut self, driver: &D, bytes: u64) -> Result<Vec<Span>, Short> {
        let (mut taken, mut missing) = (Vec::new(), bytes);
        while missing > 0 {
            if self.idle.is_empty() {
                if let Err(short) = self.allocate(driver, missing) {
                    self.put_back(taken);
                    return Err(short);
                }
            }
            let Some(mut span) = self.idle.pop() else { continue };
            let part = missing.next_multiple_of(CUT);
            if part < span.bytes {
                let (place, bytes) = (span.place.after(part), span.bytes - part);
                self.idle.push(Span { place, bytes, ..span });
                span.bytes = part;
            }
            missing = missing.saturating_sub(span.bytes);
            taken.push(span);
        }
        Ok(taken)
    }

    /// Locks one slab of the pages that are missing.
    fn allocate<D: Transfer>(&mut self, driver: &D, missing: u64) -> Result<(), Short> {
        let held = self.held().saturating_add(missing);
        if let Some(host) = driver.host_memory().filter(|&host| held > host) {
            return Err(Short::Beyond { held, host });
        }
        let bytes = missing.min(SLAB).next_multiple_of(UNIT);
        let refused = |source| Short::Refused { missing, source };
        let place = driver.allocate_host(bytes).map_err(refused)?;
        let slab = Span { place, bytes, slab: place };
        self.slabs.push(slab);
        self.put_back([slab]);
        Ok(())
    }

    /// Takes back what nothing is kept in any more.
    pub(super) fn put_back(&mut self, spans: impl IntoIterator<Item = Span>) {
        self.idle.extend(spans);
        self.idle.sort_unstable();
        self.idle.dedup_by(|next, span| {
            let joins = span.slab == next.slab && span.place.after(span.bytes) == next.place;
            if joins {
                span.bytes += next.bytes;
            }
            joins
        });
    }

    /// How much is page-locked, in bytes.
    pub(super) fn held(&self) -> u64 {
        self.slabs.iter().map(|slab| slab.bytes).sum()
    }

    /// Gives back the slabs in which nothing is kept, but for the first `first` slabs, and returns how many bytes
    /// that was.
    ///
    /// # Errors
    /// The driver's first. What it refused stays, and all else goes.
    pub(super) fn free_since<D: Transfer>(
        &mut self,
        driver: &D,
        first: usize,
    ) -> Result<u64, DriverError> {
        let before = self.held();
        let slabs: Vec<Span> = self.slabs.iter().skip(first).copied().collect();
        let mut done = Ok(());
        for slab in slabs {
            if !self.idle.contains(&slab) {
                continue;
            }
            let freed = driver.free_host(slab.place);
            if freed.is_ok() {
                self.idle.retain(|span| *span != slab);
                self.slabs.retain(|other| *other != slab);
            }
            done = done.and(freed);
        }
        done.map(|()| before - self.held())
    }
}
