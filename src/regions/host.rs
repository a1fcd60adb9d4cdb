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
    pub(super) place: HostPlace,
    pub(super) bytes: u64,
    /// Where its slab begins: spans of two slabs are never one.
    slab: HostPlace,
}

/// What could not be had.
#[derive(Debug)]
pub(super) struct Short {
    /// How much, in bytes.
    missing: u64,
    source: DriverError,
}

impl Short {
    /// The same as a call's error, of a pool's where it is for one.
    pub(super) fn told(self, call: &'static str, pool: Option<PoolLabel>) -> Error {
        let Self { missing: bytes, source } = self;
        if !source.is_out_of_memory() {
            return source.into();
        }
        Error::HostOutOfMemory { call, pool, bytes, source: Box::new(source) }
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
    /// The driver's, with how much was missing still. What was locked by then stays: see
    /// [`HostMemory::free_since`].
    pub(super) fn reserve<D: Transfer>(&mut self, driver: &D, bytes: u64) -> Result<(), Short> {
        loop {
            let idle: u64 = self.idle.iter().map(|span| span.bytes).sum();
            let missing = bytes.saturating_sub(idle);
            if missing == 0 {
                return Ok(());
            }
            self.allocate(driver, missing).map_err(|source| Short { missing, source })?;
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
    /// The driver's, with how much was missing still; then none is taken.
    pub(super) fn take<D: Transfer>(&mut self, driver: &D, bytes: u64) -> Result<Vec<Span>, Short> {
        let (mut taken, mut missing) = (Vec::new(), bytes);
        while missing > 0 {
            if self.idle.is_empty() {
                if let Err(source) = self.allocate(driver, missing) {
                    self.put_back(taken);
                    return Err(Short { missing, source });
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

    fn allocate<D: Transfer>(&mut self, driver: &D, missing: u64) -> Result<(), DriverError> {
        let bytes = missing.min(SLAB).next_multiple_of(UNIT);
        let place = driver.allocate_host(bytes)?;
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

    /// Gives back the slabs in which nothing is kept, and returns how many bytes that was.
    ///
    /// # Errors
    /// The driver's. What it refused stays.
    pub(super) fn free_idle<D: Transfer>(&mut self, driver: &D) -> Result<u64, DriverError> {
        self.free_since(driver, 0)
    }

    /// The same of slabs that came behind the first so many.
    ///
    /// # Errors
    /// As [`HostMemory::free_idle`].
    pub(super) fn free_since<D: Transfer>(
        &mut self,
        driver: &D,
        first: usize,
    ) -> Result<u64, DriverError> {
        let before = self.held();
        let slabs: Vec<Span> = self.slabs.iter().skip(first).copied().collect();
        for slab in slabs {
            if self.idle.contains(&slab) {
                driver.free_host(slab.place)?;
                self.idle.retain(|span| *span != slab);
                self.slabs.retain(|other| *other != slab);
            }
        }
        Ok(before - self.held())
    }
}
