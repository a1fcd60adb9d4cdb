//! Page-locked memory of the host that is used again from sleep to sleep: getting it takes longer than a copy, also
//! where several threads lock pages at once.

use super::workers;
use crate::driver::{DriverError, HostPlace, Transfer};
use crate::engine::PoolLabel;
use crate::error::{BackupRefusal as Refusal, Error};

/// What is allocated at once, in bytes: so much where there is enough to do for all threads.
const SLAB: u64 = 64 << 20;
/// And no less where more is wanted: threads share what is to be locked.
const LEAST: u64 = 8 << 20;
/// In what the driver gives less, in bytes.
const UNIT: u64 = 2 << 20;
/// What goes through a span at once on its way to a file or from it, in bytes.
pub(super) const SLOT: u64 = 4 << 20;
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
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

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
                let source = Box::new(source);
                Error::Backup { call, why: Refusal::HostOutOfMemory { pool, bytes, source } }
            }
            Self::Refused { source, .. } => source.into(),
            Self::Beyond { held: bytes, host: host_bytes } => {
                Error::Backup { call, why: Refusal::HostTooSmall { pool, bytes, host_bytes } }
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
    /// Of slabs that are being given back to the driver, in bytes.
    leaving: u64,
}

impl HostMemory {
    /// Locks pages until `bytes` bytes keep nothing, or more. The error of the driver's tells how much was missing
    /// still, and what was locked by then stays (see [`HostMemory::free_since`]); more than the host has is refused
    /// before any is locked.
    pub(super) fn reserve(&mut self, driver: &impl Transfer, bytes: u64) -> Result<(), Short> {
        let idle: u64 = self.idle.iter().map(|span| span.bytes).sum();
        match bytes.saturating_sub(idle) {
            0 => Ok(()),
            missing => self.allocate(driver, missing, |_| true),
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

    /// Takes a span in which nothing is kept, of `most` bytes at most; none where there is none.
    pub(super) fn take(&mut self, most: u64) -> Option<Span> {
        let mut span = self.idle.pop()?;
        let part = Self::needed(most);
        if part < span.bytes {
            let (place, bytes) = (span.place.after(part), span.bytes - part);
            self.idle.push(Span { place, bytes, ..span });
            span.bytes = part;
        }
        Some(span)
    }

    /// Places of [`SLOT`] bytes in which nothing is kept: as many as wanted or as there can be, but one at least. They are
    /// the caller's until the host's memory is asked for anything else. Fails as [`HostMemory::reserve`].
    pub(super) fn slots(
        &mut self,
        driver: &impl Transfer,
        wanted: usize,
    ) -> Result<Vec<HostPlace>, Short> {
        let found = |host: &Self| -> Vec<HostPlace> {
            let each = |span: &Span| {
                let place = span.place;
                (0..span.bytes / SLOT).map(move |number| place.after(number * SLOT))
            };
            host.idle.iter().flat_map(each).take(wanted).collect()
        };
        let mut slots = found(self);
        if slots.len() < wanted {
            let locked = self.allocate(driver, (wanted - slots.len()) as u64 * SLOT, |_| true);
            slots = found(self);
            if slots.is_empty() {
                locked?;
            }
        }
        Ok(slots)
    }

    /// Locks pages for `missing` bytes, by as many threads as the driver says. Calls `more` after each slab, by this
    /// thread, until it answers false: no more are locked then. Fails as [`HostMemory::reserve`].
    pub(super) fn allocate(
        &mut self,
        driver: &impl Transfer,
        missing: u64,
        mut more: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Short> {
        let held = self.held().saturating_add(self.leaving).saturating_add(missing);
        if let Some(host) = driver.host_memory().filter(|&host| held > host) {
            return Err(Short::Beyond { held, host });
        }
        let threads = driver.host_threads();
        let each = (missing / threads.max(1) as u64).clamp(LEAST, SLAB).next_multiple_of(UNIT);
        let lock = |_: &mut (), number| {
            let bytes = each.min(missing - number * each).next_multiple_of(UNIT);
            driver.allocate_host(bytes).map(|place| (place, bytes))
        };
        let (mut came, mut refused) = (0, None);
        let mut own = vec![(); threads.max(1)];
        workers::each(&mut own, missing.div_ceil(each), lock, |locked| match locked {
            Ok((place, bytes)) => {
                let slab = Span { place, bytes, slab: place };
                self.slabs.push(slab);
                self.put_back([slab]);
                came += bytes;
                more(self)
            }
            Err(source) => {
                refused.get_or_insert(source);
                false
            }
        });
        match refused {
            Some(source) => Err(Short::Refused { missing: missing.saturating_sub(came), source }),
            None => Ok(()),
        }
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

    /// Takes out the slabs in which nothing is kept, but for the first `first` slabs: [`give_back`] has the driver free
    /// them, and [`HostMemory::end_leaving`] says how that went.
    pub(super) fn take_idle(&mut self, first: usize) -> Vec<Span> {
        let mut gone = self.slabs.split_off(first.min(self.slabs.len()));
        self.slabs.extend(gone.extract_if(.., |slab| self.idle.binary_search(slab).is_err()));
        self.idle.retain(|span| !gone.contains(span));
        self.leaving += gone.iter().map(|slab| slab.bytes).sum::<u64>();
        gone
    }

    /// Enters how the driver took slabs back. Returns how many bytes went. Fails with the driver's first error: what it
    /// refused stays, and all else is gone.
    pub(super) fn end_leaving(&mut self, freed: Vec<Freed>) -> Result<u64, DriverError> {
        let (mut gone, mut done) = (0, Ok(()));
        for (slab, result) in freed {
            self.leaving -= slab.bytes;
            match result {
                Ok(()) => gone += slab.bytes,
                Err(_) => {
                    self.slabs.push(slab);
                    self.put_back([slab]);
                }
            }
            done = done.and(result);
        }
        done.map(|()| gone)
    }

    /// Gives back what [`HostMemory::take_idle`] takes out, in one step. Fails as [`HostMemory::end_leaving`].
    pub(super) fn free_since(
        &mut self,
        driver: &impl Transfer,
        first: usize,
    ) -> Result<u64, DriverError> {
        let gone = self.take_idle(first);
        self.end_leaving(give_back(driver, &gone))
    }
}

/// A slab, and what the driver has answered when it was to take it back.
pub(super) type Freed = (Span, Result<(), DriverError>);

/// Has the driver take slabs back, by as many threads as it says.
pub(super) fn give_back(driver: &impl Transfer, slabs: &[Span]) -> Vec<Freed> {
    let mut all = Vec::with_capacity(slabs.len());
    let free = |_: &mut (), number| {
        let slab = slabs[number as usize];
        (slab, driver.free_host(slab.place))
    };
    let mut own = vec![(); driver.host_threads().max(1)];
    workers::each(&mut own, slabs.len() as u64, free, |freed| {
        all.push(freed);
        true
    });
    all
}
