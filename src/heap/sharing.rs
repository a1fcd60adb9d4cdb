//! What of a heap's memory other processes and other devices may map.
//!
//! Another process maps whole pieces, so a block comes with all that lies on its pieces. An export keeps the physical
//! memory until it is closed, as a mapping of another process does. So a segment's piece holds its export, which goes
//! with it: who else held it would keep memory from the driver.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use thiserror::Error as ThisError;

use super::planned::PlannedHeap;
use super::segment::HeapSegment;
use super::{Heap, RangeId};
use crate::driver::{Descriptor, Driver, DriverError, ErrorKind};
use crate::shown::shown;

/// A piece of physical memory that other processes may map.
///
/// It belongs to the memory that it stands for, and closes its descriptor when that goes back to the
/// driver. Others hold it weakly, since an open descriptor keeps the memory.
pub struct Export {
    descriptor: Descriptor,
    serial: u64,
    closing: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Export {
    pub(super) fn new(descriptor: Descriptor) -> Self {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        Self { descriptor, serial, closing: OnceLock::new() }
    }

    /// Stands for the memory in every process that has a copy of it.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// A number that no other export of this process has or had; never 0.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Has a function called before the descriptor is closed. There is one at most: returns whether this
    /// is it. It may be called with the engine's lock held, and must not call the engine.
    pub fn before_close(&self, closing: impl Fn() + Send + Sync + 'static) -> bool {
        self.closing.set(Box::new(closing)).is_ok()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some(closing) = self.closing.get() {
            closing();
        }
    }
}

shown!([] Export: |it| serial = it.serial);

/// A piece of physical memory that a block lies on.
#[derive(Clone, Debug)]
pub struct SharedPiece {
    /// Its size.
    pub bytes: u64,
    /// What stands for it.
    pub export: Arc<Export>,
}

/// Where a block lies, for another process that is to map it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Shared {
    /// On pieces of physical memory, one behind the other.
    Pieces {
        /// From the beginning of the first piece to the block, in bytes.
        offset: u64,
        /// All that the block touches.
        pieces: Vec<SharedPiece>,
    },
    /// In an allocation of the driver's, which has names of its own for other processes
    /// ([`Driver::export_allocation`]).
    Allocation {
        /// Where the allocation begins.
        address: u64,
        /// From there to the block, in bytes.
        offset: u64,
    },
}

impl HeapSegment {
    /// Addresses for memory of other processes, or of other allocators. It is in no heap, and never handed out.
    pub(crate) fn for_import(
        driver: &impl Driver,
        pieces: &[(u64, &Descriptor)],
    ) -> Result<Self, DriverError> {
        let unit = driver.memory_support().granularity();
        let unit = unit.ok_or_else(|| refused(ErrorKind::NotSupported))?;
        let total = pieces.iter().try_fold(0u64, |sum, &(bytes, _)| {
            sum.checked_add(bytes).filter(|_| bytes.is_multiple_of(unit))
        });
        let total = total.filter(|&bytes| bytes > 0);
        let total = total.ok_or_else(|| refused(ErrorKind::InvalidValue))?;
        Ok(Self::reserved(driver.reserve(total)?, total))
    }

    /// Maps that memory, piece by piece one behind the other. After an error it has none.
    pub(crate) fn import(
        &mut self,
        driver: &impl Driver,
        pieces: &[(u64, &Descriptor)],
    ) -> Result<(), DriverError> {
        for &(bytes, descriptor) in pieces {
            self.attach(driver, self.front(), bytes, driver.import(descriptor)?)?;
            self.advance(bytes);
        }
        self.open_attached(driver, 0).map(drop)
    }
}

fn refused(kind: ErrorKind) -> DriverError {
    DriverError::new("cuMemImportFromShareableHandle", 0, kind)
}

/// Why a block cannot be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum WhyNotShared {
    /// Its memory was not made for that.
    #[error(
        "its memory was not made for other processes; set exportable:True before it is allocated"
    )]
    NotExportable,
    /// Its memory comes at the end of its capture, and is shared by what lies at other addresses.
    #[error("its capture gets its memory at its end; set plan:none for captures whose blocks are shared")]
    Planned,
    /// Its memory comes from a source of the host's.
    #[error("its pool has memory of a source of the host's, which alone knows how to share it")]
    FromSource,
    /// There is no memory behind it now.
    #[error("its pool is suspended; resume it first (HostCalls::resume_pool)")]
    Suspended,
    /// There is none behind some of the addresses.
    #[error("no memory lies behind some of these addresses; give those of a live block")]
    Absent,
}

impl Heap {
    /// Exports the pieces that a range lies on, those that are not yet. They are not exchanged for others from now on.
    pub(crate) fn share(
        &mut self,
        driver: &impl Driver,
        range: RangeId,
    ) -> Result<Result<Shared, WhyNotShared>, DriverError> {
        if self.is_shut() {
            return Ok(Err(WhyNotShared::Suspended));
        }
        let place = self.extent(range);
        self.keep_premapped(Some(place));
        let segment = self.ranges[range].segment();
        self.segment(segment).share(driver, place)
    }

    /// Has the memory at a place stay behind its addresses until it goes back to the driver, which it does only when
    /// no block or graph uses it: others have it. False where there is none at a part of the place.
    pub(crate) fn keep_exported(&mut self, place: (u64, u64)) -> bool {
        self.keep_premapped(Some(place));
        let mut segments = self.segments.iter_mut().flatten();
        let segment = segments.find(|segment| segment.owns(place.0));
        // Whole allocations never go from under their addresses.
        segment.is_some_and(|segment| segment.is_allocated() || segment.keep_exported(place))
    }

    /// Whether any of its memory has to stay behind its addresses.
    pub(crate) fn has_exported(&self) -> bool {
        self.segments.iter().flatten().any(HeapSegment::has_exported)
    }

    /// Gives the devices that the driver was told of access to all that is mapped. After an error of the driver's some
    /// of it may have been given.
    pub(crate) fn grant(&self, driver: &impl Driver) -> Result<(), DriverError> {
        self.segments.iter().flatten().try_for_each(|segment| segment.grant(driver))
    }
}

impl PlannedHeap {
    /// As [`Heap::grant`].
    pub(crate) fn grant(&self, driver: &impl Driver) -> Result<(), DriverError> {
        self.laid().try_for_each(|(address, bytes)| driver.set_access(address, bytes))
    }
}
