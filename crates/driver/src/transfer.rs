//! Memory of the host that a device copies to and from at full speed.

use std::fs::File;
use std::io;

use super::{HostApi, Result, StreamHandle};

/// A place in page-locked memory of the host, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPlace(pub usize);

impl HostPlace {
    /// The place so many bytes behind this one.
    #[must_use]
    pub fn after(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(usize::try_from(bytes).unwrap_or(usize::MAX)))
    }
}

/// Copies between a device's memory and page-locked memory of the host, for `regraph::regions`, whose contents are
/// kept there. The engine makes no copies by itself.
pub trait Transfer: HostApi {
    /// The most memory of the host that this process may have, in bytes; `None` where that is unknown. Page-locked
    /// memory beyond it is refused before any is locked.
    fn host_memory(&self) -> Option<u64>;

    /// How many threads are to call [`Transfer::allocate_host`] and [`Transfer::free_host`] at once, where there is much
    /// to allocate or to free, and to copy, write and read at once where contents are kept in files; 1 where more would
    /// bring nothing.
    fn host_threads(&self) -> usize;

    /// Memory of the host, of `bytes` bytes, with any contents: page-locked, or such that the driver copies it through
    /// page-locked memory of its own where pages cannot be locked.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](super::ErrorKind::OutOfMemory) where the host has no more.
    fn allocate_host(&self, bytes: u64) -> Result<HostPlace>;

    /// Frees what [`Transfer::allocate_host`] gave. No copy may be under way there.
    ///
    /// # Errors
    /// What the driver answers.
    fn free_host(&self, place: HostPlace) -> Result<()>;

    /// Copies `bytes` bytes of the device's memory at `address` to the host, behind what `stream` holds.
    /// Does not wait, but for what the stream holds where the memory is not page-locked.
    ///
    /// # Errors
    /// What the driver answers.
    fn copy_to_host(
        &self,
        to: HostPlace,
        address: u64,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()>;

    /// Copies `bytes` bytes of the host's memory to the device's at `address`, behind what `stream`
    /// holds. Does not wait, but for what the stream holds where the memory is not page-locked.
    ///
    /// # Errors
    /// What the driver answers.
    fn copy_to_device(
        &self,
        address: u64,
        from: HostPlace,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<()>;

    /// Whether two parts of the host's memory, of `bytes` bytes each, hold the same; false where that cannot be told. No
    /// copy may be under way there.
    fn holds_same(&self, one: HostPlace, other: HostPlace, bytes: u64) -> bool;

    /// Writes `bytes` bytes of the host's memory to a file, from `offset` bytes behind its beginning on: all of them, or
    /// it fails. Several threads may call it at once.
    ///
    /// # Errors
    /// What the system answers.
    fn write_file(&self, file: &File, offset: u64, from: HostPlace, bytes: u64) -> io::Result<()>;

    /// Reads `bytes` bytes of a file to the host's memory, from `offset` bytes behind its beginning on: all of them, or it
    /// fails. Several threads may call it at once.
    ///
    /// # Errors
    /// What the system answers; [`io::ErrorKind::UnexpectedEof`] where the file ends before.
    fn read_file(&self, file: &File, offset: u64, to: HostPlace, bytes: u64) -> io::Result<()>;

    /// Has all that was written to a file come to where it is to lie, so that the system has nothing to refuse of it
    /// later.
    ///
    /// # Errors
    /// What the system answers, for earlier writes too.
    fn sync_file(&self, file: &File) -> io::Result<()>;
}

/// Writes all of `held` to a file, from `offset` bytes behind its beginning on, for [`Transfer::write_file`]. On Unix
/// alone: elsewhere threads would be in each other's way.
#[doc(hidden)]
pub fn write_at(file: &File, held: &[u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, held, offset);
    #[cfg(not(unix))]
    return unsupported(file, held.len(), offset);
}

/// Fills `room` from a file, from `offset` bytes behind its beginning on, for [`Transfer::read_file`].
#[doc(hidden)]
pub fn read_at(file: &File, room: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, room, offset);
    #[cfg(not(unix))]
    return unsupported(file, room.len(), offset);
}

#[cfg(not(unix))]
fn unsupported(_: &File, _: usize, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl<T: Transfer + ?Sized> Transfer for std::sync::Arc<T> {
    crate::forward_transfer!();
}
