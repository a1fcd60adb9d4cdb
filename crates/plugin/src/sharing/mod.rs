//! Memory that processes share.
//!
//! A host shares the block at an address and gets a *handle*, bytes that it sends to another process by
//! any means, and the block's place behind what the handle names. The receiver opens the handle. Blocks on
//! the same pieces have equal handles, and a handle that is opened again is mapped no second time.
//!
//! What its last user has closed is unmapped after a wait for the devices, which captures forbid: if
//! something captures, it stays mapped, and goes with a later call.

#[cfg(target_os = "linux")]
mod fetch;
mod handle;
#[cfg(target_os = "linux")]
mod loans;
#[cfg(target_os = "linux")]
mod offer;

use std::collections::BTreeMap;
#[cfg(target_os = "linux")]
use std::sync::Arc;

pub use handle::HandleError;
use handle::{Handle, Piece, Sender};
#[cfg(target_os = "linux")]
pub use loans::{Loan, LoanId, LoanState, TakenLoan};
use regraph::driver::{AllocationName, Descriptor, Transfer};
use regraph::engine::{self, ImportId, SharedPiece};
use regraph::sync::{Mutex, MutexGuard, Rank};

use super::{Device, Error, Plugin};

/// What other processes need to map a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Names the memory that the block lies in, for the life of that memory.
    pub handle: Vec<u8>,
    /// From the beginning of that memory to the block, in bytes.
    pub offset: u64,
}

/// Memory of another process that is mapped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its name, for [`Plugin::close_shared`].
    pub id: OpenedId,
    /// Where it begins.
    pub address: u64,
}

/// The name of memory that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenedId(u64);

impl OpenedId {
    /// The name as a number, which is never 0.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The name with a number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// How memory is mapped.
#[derive(Clone, Copy, Debug)]
enum Mapped {
    Import(ImportId),
    Allocation(u64),
}

#[derive(Debug)]
struct Entry {
    id: OpenedId,
    address: u64,
    mapped: Mapped,
    /// How often it was opened and not closed; at zero it is unmapped, though later.
    users: usize,
}

/// What a process shares, and what it has of others.
pub(super) struct Sharing {
    #[cfg(target_os = "linux")]
    offers: Mutex<Option<offer::Offers>>,
    /// To other processes.
    #[cfg(target_os = "linux")]
    loans: Arc<loans::Loans>,
    opened: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By device, and by the handle in one form.
    entries: BTreeMap<(u32, Vec<u8>), Entry>,
    /// Loans of other processes, by their numbers here.
    #[cfg(target_os = "linux")]
    taken: BTreeMap<u64, Arc<loans::Taken>>,
    named: u64,
}

impl Table {
    /// Counts a user of memory that is mapped, if it is.
    fn open(&mut self, key: &(u32, Vec<u8>)) -> Option<Opened> {
        let entry = self.entries.get_mut(key)?;
        entry.users += 1;
        Some(Opened { id: entry.id, address: entry.address })
    }
}

impl Sharing {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            offers: Mutex::new(Rank::Offers, None),
            #[cfg(target_os = "linux")]
            loans: Arc::new(loans::Loans::new()),
            opened: Mutex::new(Rank::Opened, Table::default()),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.opened.lock()
    }

    /// Names a loan that was taken.
    #[cfg(target_os = "linux")]
    fn add_taken(&self, taken: loans::Taken) -> LoanId {
        let mut table = self.table();
        table.named += 1;
        let number = table.named;
        table.taken.insert(number, Arc::new(taken));
        LoanId::from_number(number)
    }

    #[cfg(target_os = "linux")]
    fn taken(&self, loan: LoanId) -> Option<Arc<loans::Taken>> {
        self.table().taken.get(&loan.number()).cloned()
    }

    #[cfg(target_os = "linux")]
    fn remove_taken(&self, loan: LoanId) -> Option<Arc<loans::Taken>> {
        self.table().taken.remove(&loan.number())
    }

    #[cfg(target_os = "linux")]
    fn offer(&self, pieces: &[SharedPiece]) -> Result<(Sender, Vec<Piece>), Error> {
        let why = |error: std::io::Error| Error::NotOffered { why: error.to_string() };
        // Made whole, or not at all.
        let mut offers = self.offers.lock();
        let offers = match &mut *offers {
            Some(offers) => offers,
            none => none.insert(offer::Offers::new(&self.loans).map_err(why)?),
        };
        if !offers.is_own() {
            let why =
                "this process was forked from one that shared memory, and CUDA does not outlive \
                       that; start it with the method spawn or forkserver";
            return Err(Error::NotOffered { why: why.to_owned() });
        }
        let pieces: Result<_, _> = pieces.iter().map(|piece| offers.offer(piece)).collect();
        Ok((offers.sender(), pieces.map_err(why)?))
    }

    #[cfg(not(target_os = "linux"))]
    fn offer(&self, _: &[SharedPiece]) -> Result<(Sender, Vec<Piece>), Error> {
        let why = "memory that is mapped can be shared on Linux only; set caching:False".to_owned();
        Err(Error::NotOffered { why })
    }
}

#[cfg(target_os = "linux")]
fn fetch(sender: &Sender, pieces: &[Piece]) -> Result<Vec<Descriptor>, Error> {
    use fetch::Way;

    let by_number = match Way::Process.fetch(sender, pieces) {
        Ok(descriptors) => return Ok(descriptors),
        Err(error) => error.to_string(),
    };
    Way::Socket.fetch(sender, pieces).map_err(|error| Error::Unreachable {
        process: sender.process,
        by_number,
        by_socket: error.to_string(),
    })
}

#[cfg(not(target_os = "linux"))]
fn fetch(sender: &Sender, _: &[Piece]) -> Result<Vec<Descriptor>, Error> {
    let why = || "there is no such thing on this system".to_owned();
    Err(Error::Unreachable { process: sender.process, by_number: why(), by_socket: why() })
}

impl<D: Transfer> Plugin<D> {
    /// Says how another process can map the block at an address. The block must live until that process
    /// has finished with it. See [`Sharing::share`](regraph::engine::Sharing::share).
    ///
    /// # Errors
    /// [`Error::UnknownAddress`]; [`Error::NotOffered`];
    /// [`engine::Error::NotShared`] where the block's memory was not made for that.
    pub fn share(&self, address: u64) -> Result<Shared, Error> {
        let (device, block) = self.find(address, "share")?;
        let (handle, offset) = match device.engine.sharing().share(block)? {
            engine::Shared::Pieces { offset, pieces } => {
                let (sender, pieces) = self.sharing.offer(&pieces)?;
                (Handle::Pieces(sender, pieces), offset)
            }
            engine::Shared::Allocation { address, offset } => {
                (Handle::Allocation(device.engine.driver().export_allocation(address)?), offset)
            }
            _ => {
                let why = "this kind of memory cannot be offered".to_owned();
                return Err(Error::NotOffered { why });
            }
        };
        Ok(Shared { handle: handle.write(), offset })
    }

    /// Says that others have the memory behind an address by handles that they exported themselves, and that it must
    /// stay there. Returns whether it is memory of this process's devices. See
    /// [`Sharing::keep_exported`](regraph::engine::Sharing::keep_exported).
    ///
    /// # Errors
    /// [`engine::Error::NotKept`].
    pub fn keep_exported(&self, address: u64, bytes: u64) -> Result<bool, Error> {
        for engine in self.engines() {
            if engine.sharing().keep_exported(address, bytes)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Maps the memory that a handle names, for kernels of a device and those that its memory is open
    /// to. Of a handle that is open already nothing more is mapped. Each call is closed by one of
    /// [`Plugin::close_shared`].
    ///
    /// Beside our own handles it opens PyTorch's of memory that `cudaMalloc` gave.
    ///
    /// # Errors
    /// [`Error::Handle`]; [`Error::Unreachable`]; the driver's.
    pub fn open_shared(&self, device: u32, handle: &[u8]) -> Result<Opened, Error> {
        let handle = Handle::read(handle)?;
        let number = device;
        let device = self.device(device)?;
        self.unmap_closed();
        let key = (number, handle.write());
        if let Some(opened) = self.sharing.table().open(&key) {
            return Ok(opened);
        }
        // Not under the lock: a sender may take seconds to answer, or never do.
        let descriptors = match &handle {
            Handle::Pieces(sender, pieces) => fetch(sender, pieces)?,
            Handle::Allocation(_) => Vec::new(),
        };
        let mut table = self.sharing.table();
        // Another thread may have been faster.
        if let Some(opened) = table.open(&key) {
            return Ok(opened);
        }
        let (mapped, address) = match &handle {
            Handle::Pieces(_, pieces) => import(device, pieces, &descriptors)?,
            Handle::Allocation(name) => open_allocation(device, name)?,
        };
        table.named += 1;
        let id = OpenedId(table.named);
        table.entries.insert(key, Entry { id, address, mapped, users: 1 });
        Ok(Opened { id, address })
    }

    /// Says that one who opened memory has finished with it, and that all its work on it was submitted.
    ///
    /// # Errors
    /// [`Error::NotOpen`].
    pub fn close_shared(&self, id: OpenedId) -> Result<(), Error> {
        {
            let mut table = self.sharing.table();
            let mut entries = table.entries.values_mut();
            let entry = entries.find(|entry| entry.id == id && entry.users > 0);
            let entry = entry.ok_or(Error::NotOpen)?;
            entry.users -= 1;
            if entry.users > 0 {
                return Ok(());
            }
        }
        self.unmap_closed();
        Ok(())
    }

    /// Lets a device read and write the memory of another, what there is and what comes later; doing it
    /// again does nothing. See [`Sharing::open_to`](regraph::engine::Sharing::open_to).
    ///
    /// # Errors
    /// Those of [`Sharing::open_to`](regraph::engine::Sharing::open_to); [`Error::Driver`] where a device cannot be
    /// had.
    pub fn peer_access(&self, device: u32, to: u32) -> Result<(), Error> {
        Ok(self.device(to)?.engine.sharing().open_to(device)?)
    }

    /// Unmaps what was closed by all its users, once all devices have finished what they were given;
    /// not while something captures.
    pub(super) fn unmap_closed(&self) {
        let mut table = self.sharing.table();
        if table.entries.values().all(|entry| entry.users > 0) {
            return;
        }
        // No route can be added, and so no capture of PyTorch's begin, while these are held.
        let devices: Vec<&Device<D>> = self.devices().collect();
        let _held: Vec<_> = devices.iter().map(|device| device.pools()).collect();
        let idle = |device: &&Device<D>| {
            device.routes.take_no_streams() && !device.engine.host().is_recording()
        };
        if !devices.iter().all(idle) {
            return;
        }
        if devices.iter().any(|device| device.engine.driver().synchronize().is_err()) {
            return;
        }
        table.entries.retain(|(number, _), entry| {
            if entry.users > 0 {
                return true;
            }
            if let Ok(device) = self.device(*number) {
                // What the driver keeps is lost, and not used again.
                let _ = match entry.mapped {
                    Mapped::Import(import) => device.engine.sharing().close_import(import),
                    Mapped::Allocation(address) => {
                        device.engine.driver().close_allocation(address).map_err(Into::into)
                    }
                };
            }
            false
        });
    }
}

fn import<D: Transfer>(
    device: &Device<D>,
    pieces: &[Piece],
    descriptors: &[Descriptor],
) -> Result<(Mapped, u64), Error> {
    let sizes = pieces.iter().map(|piece| piece.bytes);
    let pieces: Vec<(u64, &Descriptor)> = sizes.zip(descriptors).collect();
    let (import, address) = device.engine.sharing().import(&pieces)?;
    Ok((Mapped::Import(import), address))
}

fn open_allocation<D: Transfer>(
    device: &Device<D>,
    name: &AllocationName,
) -> Result<(Mapped, u64), Error> {
    let address = device.engine.driver().open_allocation(name)?;
    Ok((Mapped::Allocation(address), address))
}
