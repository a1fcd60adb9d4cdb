//! Memory that other processes and other devices map, and memory of theirs that is mapped here.
//!
//! The engine sees no work of other processes: a host that shares a block keeps the block until that work has
//! completed. The physical memory stays for as long as another process maps it, also after it has gone here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::live_blocks::{BlockSite, Tenure};
use super::names::{BlockId, LoanId};
use super::pools::{with_heap, Pools};
use super::{Error, Locked, Sharing, Unknown};
use crate::driver::{Descriptor, Driver};
pub use crate::error::SharingRefusal;
pub use crate::heap::WhyNotShared;
use crate::heap::{HeapSegment, Lent, Shared, SharedPiece};
use crate::processes::{Borrowed, TakenEnd};
pub use crate::processes::{Handle, HandleError, LoanState, SentPieces};

const LEND: &str = "lend_to_process";

/// Memory that [`Sharing::import`] has mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImportId {
    engine: u32,
    number: u64,
}

/// Others' memory that is mapped here, and the devices that all memory was opened to.
#[derive(Debug, Default)]
pub(super) struct Imports {
    mapped: BTreeMap<u64, HeapSegment>,
    next: u64,
    peers: Vec<u32>,
}

impl Imports {
    /// Gives back what is left of imports that failed, and of those that could not be closed.
    pub(super) fn close_left(&mut self, driver: &impl Driver) {
        self.mapped.retain(|_, it| !it.held().is_empty() || it.close(driver).is_err());
    }
}

/// A loan that another process may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Its name here.
    pub id: LoanId,
    /// What [`Sharing::take_loan`] takes it by, in another process: bytes that the host sends there by any means.
    pub handle: Vec<u8>,
    /// How much memory it is.
    pub bytes: u64,
}

/// A loan of another process that this one has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenLoan {
    /// Its name, for [`Sharing::give_back_loan`].
    pub id: LoanId,
    /// Where it begins.
    pub address: u64,
    /// How much memory it is.
    pub bytes: u64,
}

impl<D: Driver> Sharing<'_, D> {
    /// Exports the pieces of memory that a block lies on, where they are not exported yet, and says which they are and
    /// where the block lies in them, so that other processes can map them. Whole pieces are shared, with all blocks on
    /// them. Mapped memory must have been made exportable (`exportable` in [`Settings`](crate::settings::Settings)).
    ///
    /// The block must live until the other processes have finished with it, which the engine does not see.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`SharingRefusal::NotShared`]; the driver's.
    pub fn share(&self, block: BlockId) -> Result<Shared, Error> {
        self.0.change(|locked| {
            let BlockSite { heap, range, .. } = locked.live_block(block, "share")?.0.site;
            let not_shared = |why| {
                let why = SharingRefusal::NotShared { block: block.number(), why };
                Error::Sharing { call: "share", why }
            };
            // Its piece stays as it is from now on, which may show in the figures.
            let Some(heap) = locked.state.pools.find_heap_mut(heap) else {
                return Err(not_shared(WhyNotShared::Planned));
            };
            heap.share(locked.driver, range)?.map_err(not_shared)
        })
    }

    /// Offers pieces of [`Sharing::share`] to other processes, as long as their memory is there, and says what a handle of
    /// them names. The first call opens a socket, which a thread of its own serves until the engine is dropped. Needs
    /// Linux and the feature `processes`.
    ///
    /// # Errors
    /// [`SharingRefusal::NotOffered`].
    pub fn offer(&self, pieces: &[SharedPiece]) -> Result<SentPieces, Error> {
        self.0.processes.offer(pieces)
    }

    /// Tells the engine that other processes or devices have mapped the memory behind `bytes` bytes from `address` on,
    /// by handles that the engine did not make (`cuMemRetainAllocationHandle`, by which libraries export memory). That
    /// memory must stay behind these addresses, or what a graph writes there would not reach the others. Whole pieces
    /// stay. Returns whether the address is one of this engine's.
    ///
    /// From now on calls that would exchange the memory are refused with
    /// [`PoolRefusal::Exported`](crate::PoolRefusal::Exported): sleeping, and suspension of its pool. Blocks there may
    /// be handed out and lent as before, in the same memory; the engine does not see work of other processes. The
    /// memory goes back to the driver only when no block and no graph uses it, and the mark goes with it.
    ///
    /// # Errors
    /// [`Error::NotKept`] where the memory comes at a capture's end, and is exchanged by later captures and by
    /// [`HostCalls::compact_pool`](crate::engine::HostCalls::compact_pool)
    /// ([`Engine::allocate_fixed`](super::Engine::allocate_fixed) gives such captures memory that stays), or where
    /// there is none now; [`Error::ZeroBytes`].
    pub fn keep_exported(&self, address: u64, bytes: u64) -> Result<bool, Error> {
        self.0.change(|locked| {
            if bytes == 0 {
                return Err(Error::ZeroBytes { call: "keep_exported" });
            }
            let pools = &mut locked.state.pools;
            let Some(heap) = pools.heap_around(address) else { return Ok(false) };
            let why = match pools.is_shut(pools.pool_of(heap)) {
                true => WhyNotShared::Suspended,
                false if Pools::is_planned(heap) => WhyNotShared::Planned,
                false => WhyNotShared::Absent,
            };
            let there = why != WhyNotShared::Suspended && address.checked_add(bytes).is_some();
            // Its piece stays as it is from now on, which may show in the figures.
            let kept =
                there && with_heap!(mut pools, heap, |heap| heap.keep_exported((address, bytes)));
            kept.then_some(true).ok_or(Error::NotKept { address, why })
        })
    }

    /// Maps memory that another process has exported, one piece after the other, and returns the address of the first.
    /// Each piece comes with its size in bytes. Devices to which this device's memory is open may use it too. No figure
    /// counts this memory and no limit applies; it stays mapped until [`Sharing::close_import`], also after the engine
    /// is dropped.
    ///
    /// # Errors
    /// The driver's. Nothing is mapped then.
    pub fn import(&self, pieces: &[(u64, &Descriptor)]) -> Result<(ImportId, u64), Error> {
        self.0.change(|locked| {
            let made = HeapSegment::for_import(locked.driver, pieces)?;
            let (address, imports) = (made.address(), &mut locked.state.imports);
            let number = imports.next;
            imports.next += 1;
            let made = imports.mapped.entry(number).or_insert(made);
            let imported = made.import(locked.driver, pieces);
            imports.close_left(locked.driver);
            Ok(imported.map(|()| (ImportId { engine: self.0.number, number }, address))?)
        })
    }

    /// Unmaps what [`Sharing::import`] mapped. No work and no later launch of a graph may use it any more. Does nothing
    /// for an import that is gone.
    ///
    /// # Errors
    /// The driver's. The import is gone all the same; what could not be unmapped is when memory is imported next, or the
    /// cache emptied.
    pub fn close_import(&self, import: ImportId) -> Result<(), Error> {
        let mine = import.engine == self.0.number;
        self.0.change(|locked| {
            let Imports { mapped, .. } = &mut locked.state.imports;
            let imported = mine.then(|| mapped.get_mut(&import.number)).flatten();
            imported.map_or(Ok(()), |imported| imported.close(locked.driver))?;
            let _ = mine.then(|| mapped.remove(&import.number));
            Ok(())
        })
    }

    /// Lets the device with this ordinal access all memory of the engine, now and later. A second call does nothing.
    ///
    /// # Errors
    /// The driver's, where the other device cannot reach this one's memory for instance. A second call goes on from
    /// there.
    pub fn open_to(&self, device: u32) -> Result<(), Error> {
        if self.0.change(|locked| Ok(locked.state.imports.peers.contains(&device)))? {
            return Ok(());
        }
        // It may make the other device's context, which takes long: with the lock released. Twice it does nothing more.
        self.0.driver.open_to(device)?;
        self.0.change(|locked| {
            let pools = &locked.state.pools;
            pools.heaps().try_for_each(|heap| heap.grant(locked.driver))?;
            pools.iter_planned().try_for_each(|heap| heap.grant(locked.driver))?;
            let imports = &mut locked.state.imports;
            imports.mapped.values().try_for_each(|imported| imported.grant(locked.driver))?;
            imports.peers.push(device);
            Ok(())
        })
    }
}

/// Loans from process to process.
impl<D: Driver> Sharing<'_, D> {
    /// Offers a block, which the host has borrowed from a pool's graphs ([`HostCalls::lend`] with [`Lent::Temporary`]), to
    /// one other process, and keeps it for that until the loan is back. **The host promises** that all launches of the
    /// pool's graphs so far have completed: the other process waits for no stream of this one.
    /// [`Pool::lend_to_process`](crate::graphs::Pool::lend_to_process) does all of this. Whole pieces of memory are mapped
    /// by the other process, which is trusted to leave alone what lies beside the loan, and to give it back before it ends
    /// where its work may outlive it (under MPS, or where processes that it has forked keep the driver's files open).
    ///
    /// Until the loan is back no graph of the pool can be launched
    /// ([`BlocksLent`](crate::PoolRefusal::BlocksLent)). The loan is back when the other process has given it back or has
    /// ended; [`Sharing::recall_loan`] asks for it, and the next launch finds out by itself and frees the block, as other
    /// calls about the pool do. The host does not free it. No checkpoint of the pool is taken or restored meanwhile.
    ///
    /// [`HostCalls::lend`]: crate::engine::HostCalls::lend
    ///
    /// # Errors
    /// Those of [`Sharing::share`] and [`Sharing::offer`]; [`SharingRefusal::NotOffered`] where memory is
    /// allocated and not mapped. The block is the host's then. [`Unknown::Block`] where the block is no such, or on loan.
    pub fn offer_loan(&self, block: BlockId) -> Result<Loan, Error> {
        self.0.change(|locked| lent_bytes(locked, block))?;
        let Shared::Pieces { offset, pieces } = self.share(block)? else {
            let why = "loans are of memory that is mapped; set expandable_segments:True".to_owned();
            return Err(Error::Sharing { call: LEND, why: SharingRefusal::NotOffered { why } });
        };
        let memory = self.offer(&pieces)?;
        let (id, number, bytes) = self.keep_for_loan(block)?;
        let handle = memory.write_loan([number, offset, bytes]);
        Ok(Loan { id, handle, bytes })
    }

    /// Has a lent block be a loan's, and names the loan; with the block's size. A restoration may have ended the block
    /// since the call began.
    fn keep_for_loan(&self, block: BlockId) -> Result<(LoanId, u64, u64), Error> {
        self.0.change(|locked| {
            let bytes = lent_bytes(locked, block)?;
            let number = self.0.processes.loans().make(block.bits());
            Ok((LoanId::new(self.0.number, number), number, bytes))
        })
    }

    /// The number of a loan of this engine, to another process or of one. None where another engine has it, or the process
    /// that this one was forked from, of which a thread may have held any lock.
    fn own(&self, loan: LoanId) -> Option<u64> {
        loan.number_in(self.0.number).filter(|_| self.0.processes.loans().is_own())
    }

    fn unknown(call: &'static str, loan: LoanId) -> Error {
        Error::Unknown { call, what: Unknown::Loan(loan) }
    }

    /// Asks the process that has a loan for it, and waits at most so long until it is back. A loan that no process has
    /// taken is back at once. Says whether it is; its block is freed then.
    ///
    /// # Errors
    /// [`Unknown::Loan`].
    pub fn recall_loan(&self, loan: LoanId, patience: Duration) -> Result<bool, Error> {
        let unknown = || Self::unknown("recall_loan", loan);
        // In a forked process the engine's lock may be held for ever.
        let number = self.own(loan).ok_or_else(unknown)?;
        let back = self.0.processes.loans().recall(number, patience);
        self.0.alter(|locked| locked.settle_loans())?;
        back.ok_or_else(unknown)
    }

    /// Where a loan of this process is.
    ///
    /// # Errors
    /// [`Unknown::Loan`].
    pub fn loan_state(&self, loan: LoanId) -> Result<LoanState, Error> {
        let state = self.own(loan).and_then(|number| self.0.processes.loans().state(number));
        state.ok_or_else(|| Self::unknown("loan_state", loan))
    }

    /// Takes a loan that another process has offered, and maps it; what it holds is undefined. It is this process's
    /// until [`Sharing::give_back_loan`], but the lender waits for it from when it asks on
    /// ([`Sharing::wait_for_recall`]).
    ///
    /// # Errors
    /// [`SharingRefusal::Handle`], [`SharingRefusal::NotTaken`], [`SharingRefusal::Unreachable`]; those of
    /// [`Sharing::import`].
    pub fn take_loan(&self, handle: &[u8]) -> Result<TakenLoan, Error> {
        const CALL: &str = "take_loan";
        let refused = |why| Error::Sharing { call: CALL, why };
        let read = SentPieces::read_loan(handle).map_err(|why| refused(why.into()));
        let ([number, offset, bytes], memory) = read?;
        // Before it is mapped: no process maps what another one has.
        let end = TakenEnd::ask(&memory, number)
            .map_err(|error| refused(SharingRefusal::NotTaken { why: error.to_string() }))?;
        let imported = memory.fetch(CALL).and_then(|pieces| {
            let pieces: Vec<_> = pieces.iter().map(|(bytes, piece)| (*bytes, piece)).collect();
            self.import(&pieces)
        });
        let (import, address) = imported.inspect_err(|_| end.say_back())?;
        let number = self.0.processes.loans().add_borrowed(end, import.number);
        let id = LoanId::new(self.0.number, number);
        Ok(TakenLoan { id, address: address + offset, bytes })
    }

    fn borrowed(&self, loan: LoanId, call: &'static str) -> Result<Arc<Borrowed>, Error> {
        let found = self.own(loan).and_then(|number| self.0.processes.loans().borrowed(number));
        found.ok_or_else(|| Self::unknown(call, loan))
    }

    /// Whether this process has taken a loan by this engine and not given it back.
    pub fn has_loan(&self, loan: LoanId) -> bool {
        self.borrowed(loan, "has_loan").is_ok()
    }

    /// Whether the lender of a loan has asked for it, or has ended, after a wait of at most so long. A lender that has
    /// ended waits for nothing, and the memory stays this process's until it gives it back. The lender's end is noticed
    /// once all processes that it has forked have ended too, or run another program.
    ///
    /// # Errors
    /// [`Unknown::Loan`].
    pub fn wait_for_recall(&self, loan: LoanId, patience: Duration) -> Result<bool, Error> {
        Ok(self.borrowed(loan, "wait_for_recall")?.end().is_recalled(patience))
    }

    /// Gives a loan back. `wait` waits for all work that uses it, such as [`Engine::wait_for_device`]; no graph that
    /// does may be launched any more.
    ///
    /// [`Engine::wait_for_device`]: crate::Engine::wait_for_device
    ///
    /// # Errors
    /// Those of `wait`: the loan is this process's still. [`Unknown::Loan`]. Those of [`Sharing::close_import`]: it is
    /// given back.
    pub fn give_back_loan<E: From<Error>>(
        &self,
        loan: LoanId,
        wait: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        const CALL: &str = "give_back_loan";
        self.borrowed(loan, CALL)?;
        wait()?;
        let number = loan.number_in(self.0.number);
        let taken = number.and_then(|number| self.0.processes.loans().remove_borrowed(number));
        let taken = taken.ok_or_else(|| Self::unknown(CALL, loan))?;
        let closed = self.close_import(ImportId { engine: self.0.number, number: taken.import() });
        // The work is over in any case. A lender that has ended waits for nothing.
        taken.end().say_back();
        Ok(closed?)
    }
}

/// The size of a block that is borrowed from graphs, and on no loan, of which no graph reads what it holds.
fn lent_bytes(locked: &Locked<'_, impl Driver>, block: BlockId) -> Result<u64, Error> {
    let (live, bytes) = locked.live_block(block, LEND)?;
    let on_loan = locked.loans.blocks().contains(&block.bits());
    let lent = live.tenure == Tenure::Lent(Lent::Temporary) && !on_loan;
    lent.then_some(bytes).ok_or_else(|| block.unknown(LEND))
}

/// A borrower that tests play, so that loans can be made without another process.
#[doc(hidden)]
impl<D: Driver> Sharing<'_, D> {
    /// Has a block that was borrowed be a loan's.
    pub fn play_loan(&self, block: BlockId) -> Result<LoanId, Error> {
        Ok(self.keep_for_loan(block)?.0)
    }

    /// A process asks for a loan: whether it has it.
    pub fn play_taking(&self, loan: LoanId) -> bool {
        self.own(loan).is_some_and(|number| self.0.processes.loans().give(number, None))
    }

    /// The process that has a loan says that its work is done, or ends.
    pub fn play_ending(&self, loan: LoanId) {
        self.own(loan).into_iter().for_each(|number| self.0.processes.loans().end(number));
    }
}
