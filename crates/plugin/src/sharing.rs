//! Memory that processes share.
//!
//! A host shares the block at an address and gets a *handle*, bytes that it sends to another process by
//! any means, and the block's place behind what the handle names. The receiver opens the handle. Blocks on
//! the same pieces have equal handles, and a handle that is opened again is mapped no second time.
//!
//! What its last user has closed is unmapped after a wait for the devices, which captures forbid: if
//! something captures, it stays mapped, and goes with a later call.

use std::collections::BTreeMap;
use std::time::Duration;

use regraph::driver::{StreamHandle, Transfer};
use regraph::engine::TakenLoan;
use regraph::engine::{self, Handle, ImportId, Lent, Loan, LoanId, LoanState, SharingRefusal};
use regraph::{tell_later, Level};

use super::pools::PoolKey;
use super::watch::Watched;
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

struct Entry {
    id: OpenedId,
    address: u64,
    /// What pieces were imported as; none of an allocation of the driver's.
    import: Option<ImportId>,
    /// How often it was opened and not closed; at zero it is unmapped, though later.
    users: usize,
}

/// What a process has of others.
#[derive(Default)]
pub(super) struct Table {
    /// By device, and by the handle in one form.
    entries: BTreeMap<(u32, Vec<u8>), Entry>,
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

/// What is wrong with memory that was to be shared.
fn refused(call: &'static str, why: impl Into<SharingRefusal>) -> Error {
    engine::Error::Sharing { call, why: why.into() }.into()
}

impl<D: Transfer> Plugin<D> {
    /// Says how another process can map the block at an address. The block must live until that process
    /// has finished with it. See [`Sharing::share`](regraph::engine::Sharing::share).
    ///
    /// # Errors
    /// [`Error::UnknownAddress`]; [`SharingRefusal::NotOffered`]; [`SharingRefusal::NotShared`] where the block's memory
    /// was not made for that.
    pub fn share(&self, address: u64) -> Result<Shared, Error> {
        let (device, block) = self.find(address, "share")?;
        let (handle, offset) = match device.engine.sharing().share(block)? {
            engine::Shared::Pieces { offset, pieces } => {
                (Handle::Pieces(device.engine.sharing().offer(&pieces)?), offset)
            }
            engine::Shared::Allocation { address, offset } => {
                (Handle::Allocation(device.engine.driver().export_allocation(address)?), offset)
            }
            _ => {
                let why = "this kind of memory cannot be offered".to_owned();
                return Err(refused("share", SharingRefusal::NotOffered { why }));
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

    /// Maps the memory that a handle names, for kernels of a device and those that its memory is open to. Of a handle
    /// that is open already nothing more is mapped. Each call is closed by one of [`Plugin::close_shared`].
    ///
    /// Beside our own handles it opens PyTorch's of memory that `cudaMalloc` gave.
    ///
    /// # Errors
    /// [`SharingRefusal::Handle`]; [`SharingRefusal::Unreachable`]; the driver's.
    pub fn open_shared(&self, device: u32, handle: &[u8]) -> Result<Opened, Error> {
        const CALL: &str = "open_shared";
        let handle = Handle::read(handle).map_err(|why| refused(CALL, why))?;
        let number = device;
        let device = self.device(device)?;
        self.unmap_closed();
        let key = (number, handle.write());
        if let Some(opened) = self.opened.lock().open(&key) {
            return Ok(opened);
        }
        // Not under the lock: a sender may take seconds to answer, or never do.
        let pieces = match &handle {
            Handle::Pieces(pieces) => pieces.fetch(CALL)?,
            Handle::Allocation(_) => Vec::new(),
        };
        let mut table = self.opened.lock();
        // Another thread may have been faster.
        if let Some(opened) = table.open(&key) {
            return Ok(opened);
        }
        let (import, address) = match &handle {
            Handle::Pieces(_) => {
                let pieces: Vec<_> = pieces.iter().map(|(bytes, piece)| (*bytes, piece)).collect();
                let (import, address) = device.engine.sharing().import(&pieces)?;
                (Some(import), address)
            }
            Handle::Allocation(name) => (None, device.engine.driver().open_allocation(name)?),
        };
        table.named += 1;
        let id = OpenedId(table.named);
        table.entries.insert(key, Entry { id, address, import, users: 1 });
        Ok(Opened { id, address })
    }

    /// Says that one who opened memory has finished with it, and that all its work on it was submitted.
    ///
    /// # Errors
    /// [`Error::NotOpen`].
    pub fn close_shared(&self, id: OpenedId) -> Result<(), Error> {
        {
            let mut table = self.opened.lock();
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
        let mut table = self.opened.lock();
        if table.entries.values().all(|entry| entry.users > 0) {
            return;
        }
        let devices: Vec<&Device<D>> = self.devices().collect();
        let begins = devices.iter().map(|device| device.begins_captures.lock());
        let _none_begins: Vec<_> = begins.collect();
        // A capture that the program has begun by itself shows on a stream that an engine knows.
        let waits = |device: &&Device<D>| matches!(device.engine.wait_for_device(), Ok(true));
        if devices.iter().any(|device| device.captures()) || !devices.iter().all(waits) {
            return;
        }
        table.entries.retain(|(number, _), entry| {
            if entry.users > 0 {
                return true;
            }
            if let Ok(device) = self.device(*number) {
                // What the driver keeps is lost, and not used again.
                let _ = match entry.import {
                    Some(import) => device.engine.sharing().close_import(import),
                    None => {
                        let driver = device.engine.driver();
                        driver.close_allocation(entry.address).map_err(Into::into)
                    }
                };
            }
            false
        });
    }
}

/// Loans from process to process.
impl<D: Transfer> Plugin<D> {
    /// Lends another process of the device `bytes` of what graphs of a pool do not keep between launches. `stream` is
    /// one of this process's that does not capture; the lent block is that stream's here, and no block of the host's. Waits
    /// for the device, so that the launches so far have completed. [`Plugin::begin_borrowing`] says when a pool lends
    /// nothing, and [`Sharing::offer_loan`](engine::Sharing::offer_loan) when the loan is back.
    ///
    /// # Errors
    /// [`Error::NothingLent`] where the pool has no such place now, where a checkpoint was taken of it, and for a stream of
    /// another device;
    /// [`DeviceCaptures`](regraph::Error::DeviceCaptures) where something captures, which a wait would ruin; those of
    /// [`Sharing::offer_loan`](engine::Sharing::offer_loan) and [`Plugin::begin_borrowing`].
    pub fn lend_to_process(
        &self,
        device: u32,
        key: PoolKey,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Loan, Error> {
        let route = self.begin_borrowing(device, key, Lent::Temporary)?;
        let lent = self.lend_block(device, key, bytes, stream);
        let ended = self.end_borrowing(device, key, route);
        let loan = lent?;
        ended?;
        let (first, second) = key;
        self.device(device)?.engine.host().tell(Level::Debug, || {
            format!("pool ({first}, {second}) lends {bytes} bytes of its graphs' memory to another process")
        });
        Ok(loan)
    }

    fn lend_block(
        &self,
        device: u32,
        key: PoolKey,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Loan, Error> {
        let device = self.device(device)?;
        let block = {
            let _told = tell_later();
            // A restoration would end the block: no checkpoint is taken until it is there, nor after that.
            let _begins = device.begins_captures.lock();
            let checkpointed = device.pools().private.get(&key).is_some_and(|it| it.checkpointed);
            // What another device's stream has borrowed before is not waited for.
            let driver = device.engine.driver();
            let elsewhere = driver.device_of_stream(stream)? != driver.device();
            match checkpointed || elsewhere {
                true => None,
                false => device.borrow(key, Lent::Temporary, (bytes, stream))?,
            }
        };
        let block = block.ok_or(Error::NothingLent { key, bytes })?;
        // No graph is launched from here on.
        let waited = device.wait_for_all("lend_to_process");
        let offered = waited.and_then(|()| Ok(device.engine.sharing().offer_loan(block.id)?));
        offered.inspect_err(|_| _ = device.engine.free(block.id))
    }

    /// Makes a call about a loan: all engines but the loan's answer that they do not know it, as that one does of a loan of
    /// another process.
    fn of_loan<R>(
        &self,
        call: impl Fn(engine::Sharing<'_, Watched<D>>) -> Result<R, engine::Error>,
    ) -> Result<R, Error> {
        let mut made = Err(engine::Error::NoEngine);
        for engine in self.engines() {
            made = call(engine.sharing());
            match &made {
                Err(engine::Error::Unknown { what: engine::Unknown::Loan(_), .. }) => {}
                _ => break,
            }
        }
        Ok(made?)
    }

    /// Asks for a loan as [`Sharing::recall_loan`](engine::Sharing::recall_loan) does.
    ///
    /// # Errors
    /// [`engine::Unknown::Loan`].
    pub fn recall_loan(&self, loan: LoanId, patience: Duration) -> Result<bool, Error> {
        self.of_loan(|sharing| sharing.recall_loan(loan, patience))
    }

    /// Where a loan of this process is.
    ///
    /// # Errors
    /// [`engine::Unknown::Loan`].
    pub fn loan_state(&self, loan: LoanId) -> Result<LoanState, Error> {
        self.of_loan(|sharing| sharing.loan_state(loan))
    }

    /// Takes a loan as [`Sharing::take_loan`](engine::Sharing::take_loan) does, for kernels of a device.
    ///
    /// # Errors
    /// Those of that call; [`Error::Driver`] where the device cannot be had.
    pub fn take_loan(&self, device: u32, handle: &[u8]) -> Result<TakenLoan, Error> {
        Ok(self.device(device)?.engine.sharing().take_loan(handle)?)
    }

    /// Whether the lender of a loan wants it back, as [`Sharing::wait_for_recall`](engine::Sharing::wait_for_recall) says.
    ///
    /// # Errors
    /// [`engine::Unknown::Loan`].
    pub fn wait_for_recall(&self, loan: LoanId, patience: Duration) -> Result<bool, Error> {
        self.of_loan(|sharing| sharing.wait_for_recall(loan, patience))
    }

    /// Whether this process has taken a loan and not given it back.
    pub fn has_loan(&self, loan: LoanId) -> bool {
        self.engines().any(|engine| engine.sharing().has_loan(loan))
    }

    /// Gives a loan back, after a wait for all devices. Work that uses it must have been submitted before, and no graph
    /// that does may be launched any more.
    ///
    /// # Errors
    /// [`DeviceCaptures`](regraph::Error::DeviceCaptures) where something captures, which a wait would ruin, and the
    /// driver's: the loan is this process's still. [`engine::Unknown::Loan`].
    pub fn give_back_loan(&self, loan: LoanId) -> Result<(), Error> {
        const CALL: &str = "give_back_loan";
        let engine = self.engines().find(|engine| engine.sharing().has_loan(loan));
        let what = engine::Unknown::Loan(loan);
        let engine = engine.ok_or(engine::Error::Unknown { call: CALL, what })?;
        let wait = || self.devices().try_for_each(|device| device.wait_for_all(CALL));
        engine.sharing().give_back_loan(loan, wait)
    }
}
