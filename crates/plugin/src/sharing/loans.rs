//! Loans from process to process: what a pool's graphs do not keep between launches, for another process on the device.
//!
//! The lender has a lent block as any borrower of its own process has, and so no graph of the pool is launched until
//! the loan is back. The borrower maps the memory that the block lies on, and asks at the lender's socket for the
//! loan first, which is given once. That connection lasts as long as the loan: the lender asks for its memory there,
//! and the borrower says there that its work is done. A borrower that says nothing has the loan until its process has
//! ended; that its end of the connection is closed proves nothing, since work that it has submitted may run still. So
//! the borrower sends a descriptor of its process with its request, which tells of the end.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regraph::driver::{StreamHandle, Transfer};
use regraph::engine::{Block, BlockId, Lent};
use regraph::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, Rank};
use regraph::{tell_later, Level};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{recv, recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{send, sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{getpid, pidfd_open, PidfdFlags};

use super::fetch::connected;
use super::handle::{Handle, LoanHandle, Sender};
use super::offer::{is_trusted, GONE, HERE, PATIENCE};
use super::{Error, HandleError, OpenedId, Plugin};
use crate::pools::{PoolKey, Private};

/// In place of a number of exports: what follows is the number of a loan, and then a descriptor of the process.
pub(super) const LOAN: u32 = u32::MAX;
/// What the lender sends for its memory.
const RECALL: u8 = 2;
/// What the borrower sends once its work is done.
const BACK: u8 = 3;

/// The name of a loan: in the process that lends, or in the one that has taken it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoanId(u64);

impl LoanId {
    /// The name as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The name with a number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A loan that another process may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Its name here.
    pub id: LoanId,
    /// What [`Plugin::take_loan`] takes it by, in another process: bytes that the host sends there by any means.
    pub handle: Vec<u8>,
    /// How much memory it is.
    pub bytes: u64,
}

/// Where a loan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanState {
    /// No process has taken it.
    Offered,
    /// A process has it.
    Taken,
    /// It is back, or was called back before a process took it: no process has it or gets it.
    Back,
}

/// A loan of another process that this one has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenLoan {
    /// Its name, for [`Plugin::give_back_loan`].
    pub id: LoanId,
    /// Where it begins.
    pub address: u64,
    /// How much memory it is.
    pub bytes: u64,
}

/// The process that has a loan.
pub(super) struct Borrower {
    stream: UnixStream,
    /// Can be read once the process has ended.
    process: OwnedFd,
    /// Whether nothing more comes from it.
    silent: AtomicBool,
}

impl Borrower {
    /// What is to be waited for: a word of the process's, and its end.
    pub(super) fn waits_for(&self) -> [PollFd<'_>; 2] {
        let end = PollFd::new(&self.process, PollFlags::IN);
        match self.silent.load(Ordering::Relaxed) {
            // That its connection is closed would be told again and again.
            true => [end.clone(), end],
            false => [PollFd::new(&self.stream, PollFlags::IN), end],
        }
    }

    /// Whether it has said that its work is done.
    fn is_done(&self) -> bool {
        let mut word = [0];
        match (&self.stream).read(&mut word) {
            Ok(1) => word == [BACK],
            Err(error) if is_early(&error) => false,
            // It says nothing more, so its end is waited for.
            _ => {
                self.silent.store(true, Ordering::Relaxed);
                false
            }
        }
    }
}

/// Sends a word without a wait. A process that is gone, or does not read what it was sent, is told nothing.
fn say(stream: &UnixStream, word: u8) -> bool {
    let sent = send(stream, &[word], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    matches!(sent, Ok(1))
}

/// Whether a step can be taken later.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// As [`LoanState`], with the process that has the loan.
enum Place {
    Offered,
    Taken(Arc<Borrower>),
    Back,
}

struct Row {
    device: u32,
    key: PoolKey,
    /// The lent block, and where it lies; none while it is asked for, when no process gets the loan.
    block: Option<(BlockId, u64)>,
    place: Place,
}

impl Row {
    fn is_back(&self) -> bool {
        matches!(self.place, Place::Back)
    }
}

#[derive(Default)]
struct Table {
    /// By their numbers; none of those whose blocks are freed.
    rows: BTreeMap<u64, Row>,
    next: u64,
}

/// The loans of a process to others.
pub(crate) struct Loans {
    /// The process that lends: one that was forked from it does not.
    process: u32,
    table: Mutex<Table>,
    changed: Condvar,
    /// How many are back whose blocks are not freed.
    back: AtomicUsize,
}

impl Loans {
    pub(super) fn new() -> Self {
        let table = Mutex::new(Rank::Loans, Table::default());
        let process = std::process::id();
        Self { process, table, changed: Condvar::new(), back: AtomicUsize::new(0) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// A new loan of a pool, which has no block yet.
    fn make(&self, device: u32, key: PoolKey) -> u64 {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.rows.insert(number, Row { device, key, block: None, place: Place::Offered });
        number
    }

    /// Gives a new loan its block, from when on a process may take the loan; without a block the loan is over.
    fn offer(&self, number: u64, block: Option<(BlockId, u64)>) {
        let mut table = self.table();
        match table.rows.get_mut(&number).filter(|_| block.is_some()) {
            Some(row) => row.block = block,
            None => _ = table.rows.remove(&number),
        }
    }

    /// Whether there are any that are back whose blocks are not freed.
    fn has_back(&self) -> bool {
        self.back.load(Ordering::Acquire) > 0
    }

    /// Whether a loan of a pool is not over.
    pub(crate) fn are_out(&self, device: u32, key: PoolKey) -> bool {
        self.table().rows.values().any(|row| (row.device, row.key) == (device, key))
    }

    /// Gives a loan to a process if none has had it, and tells the process. Under one lock: what the lender says to it
    /// next comes behind that. Where the process does not hear it, it has the loan until its end.
    fn give(&self, number: u64, borrower: Borrower) {
        let mut table = self.table();
        let row = table.rows.get_mut(&number).filter(|row| row.block.is_some());
        match row.filter(|row| matches!(row.place, Place::Offered)) {
            Some(row) => {
                say(&borrower.stream, HERE);
                row.place = Place::Taken(Arc::new(borrower));
            }
            None => _ = say(&borrower.stream, GONE),
        }
    }

    /// Those who have loans, with the loans' numbers.
    pub(super) fn borrowers(&self) -> Vec<(u64, Arc<Borrower>)> {
        let taken = |(number, row): (&u64, &Row)| match &row.place {
            Place::Taken(borrower) => Some((*number, Arc::clone(borrower))),
            Place::Offered | Place::Back => None,
        };
        self.table().rows.iter().filter_map(taken).collect()
    }

    /// Takes in what has come from a borrower: a word, its end, or both.
    pub(super) fn hear(&self, number: u64, borrower: &Borrower, word: bool, end: bool) {
        if end || word && borrower.is_done() {
            let mut table = self.table();
            let row = table.rows.get_mut(&number);
            row.into_iter().for_each(|row| self.note_back(row));
        }
    }

    /// A loan is back: its block can be freed.
    fn note_back(&self, row: &mut Row) {
        if !row.is_back() {
            row.place = Place::Back;
            self.back.fetch_add(1, Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// Asks for a loan, and waits until it is back or the time is up. Says whether it is back; `None` where there
    /// was never such a loan.
    fn recall(&self, number: u64, patience: Duration) -> Option<bool> {
        let deadline = Instant::now().checked_add(patience);
        let mut table = self.table();
        if number >= table.next {
            return None;
        }
        let mut asked = false;
        loop {
            let Some(row) = table.rows.get_mut(&number) else { return Some(true) };
            match &row.place {
                Place::Back => return Some(true),
                Place::Offered if row.block.is_none() => return Some(false),
                Place::Offered => self.note_back(row),
                Place::Taken(borrower) => {
                    if !std::mem::replace(&mut asked, true) {
                        say(&borrower.stream, RECALL);
                    }
                    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                    if left == Some(Duration::ZERO) {
                        return Some(false);
                    }
                    table = self.changed.wait_timeout(table, left);
                }
            }
        }
    }

    fn state(&self, number: u64) -> Option<LoanState> {
        let table = self.table();
        let known = number < table.next;
        known.then(|| match table.rows.get(&number).map(|row| &row.place) {
            Some(Place::Offered) => LoanState::Offered,
            Some(Place::Taken(_)) => LoanState::Taken,
            Some(Place::Back) | None => LoanState::Back,
        })
    }

    /// Has the blocks of all loans that are back freed: by `free`, which is called with no lock held, or by another
    /// thread that is at it.
    fn settle(&self, free: impl Fn(&Row)) {
        while self.has_back() {
            let back: Vec<Row> = {
                let rows = &mut self.table().rows;
                let is_back = |(number, row): (&u64, &Row)| row.is_back().then_some(*number);
                let numbers: Vec<u64> = rows.iter().filter_map(is_back).collect();
                numbers.iter().filter_map(|it| rows.remove(it)).collect()
            };
            if back.is_empty() {
                self.wait_for_frees();
                continue;
            }
            let settling = Settling { loans: self, count: back.len() };
            back.iter().for_each(&free);
            drop(settling);
        }
    }

    /// Waits until the blocks are freed that other threads free, or a loan comes back.
    fn wait_for_frees(&self) {
        let mut table = self.table();
        while self.has_back() && !table.rows.values().any(Row::is_back) {
            table = self.changed.wait(table);
        }
    }
}

/// The blocks of so many loans are being freed.
struct Settling<'a> {
    loans: &'a Loans,
    count: usize,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let _table = self.loans.table();
        self.loans.back.fetch_sub(self.count, Ordering::Release);
        self.loans.changed.notify_all();
    }
}

/// A process that asks at the socket for a loan.
#[derive(Default)]
pub(super) struct Asking {
    number: Option<u64>,
}

impl Asking {
    /// How many bytes it sends next.
    pub(super) fn expected(&self) -> usize {
        if self.number.is_none() {
            size_of::<u64>()
        } else {
            1
        }
    }

    /// Takes in the number that has come whole.
    pub(super) fn hear(&mut self, message: &[u8]) {
        self.number = message.try_into().ok().map(u64::from_le_bytes);
    }

    /// Reads the descriptor that comes with the next byte, and answers; false until it is there.
    pub(super) fn answer(&self, stream: &UnixStream, loans: &Loans) -> io::Result<bool> {
        let Some(number) = self.number else { return Ok(false) };
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut word = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        recvmsg(stream, &mut [io::IoSliceMut::new(&mut word)], &mut control, flags)?;
        let sent = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        // Without one its end would not be noticed.
        let process = sent.ok_or_else(|| io::Error::from(ErrorKind::InvalidData))?;
        let silent = AtomicBool::new(false);
        loans.give(number, Borrower { stream: stream.try_clone()?, process, silent });
        Ok(true)
    }
}

/// A loan that this process has taken.
pub(super) struct Taken {
    /// The process that has taken it: what it forks gives nothing back.
    process: u32,
    stream: UnixStream,
    opened: OpenedId,
}

impl Taken {
    /// Whether this is the process that has taken it.
    pub(super) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Asks the lender's process for a loan.
    fn ask(sender: &Sender, number: u64) -> io::Result<UnixStream> {
        let mut stream = connected(sender)?;
        if !is_trusted(&stream) {
            return Err(io::Error::other("the socket is another user's"));
        }
        let process = pidfd_open(getpid(), PidfdFlags::empty())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&LOAN.to_le_bytes())?;
        stream.write_all(&number.to_le_bytes())?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        let descriptors = [process.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        let mut word = [0];
        match stream.read_exact(&mut word) {
            Ok(()) if word == [HERE] => Ok(stream),
            Ok(()) if word == [GONE] => {
                let why = "it was called back, or another process has taken it; ask the lender for another one";
                Err(io::Error::other(why))
            }
            answer => {
                // The answer may come later, and would be that this process has the loan.
                say(&stream, BACK);
                Err(answer.err().unwrap_or_else(|| ErrorKind::InvalidData.into()))
            }
        }
    }

    /// Whether the lender has asked for it, or has ended, after a wait of at most so long.
    fn is_recalled(&self, patience: Duration) -> bool {
        let deadline = Instant::now().checked_add(patience);
        loop {
            // A word stays for the next to ask. The end of the connection is that of the lender.
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            match recv(&self.stream, &mut [0; 1], flags) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                _ => return true,
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            // Whole milliseconds, so that the time is up afterwards.
            let left = left.map(|left| left + Duration::from_millis(1));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            // What cannot be waited for is asked for again.
            let _ = poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], timeout.as_ref());
        }
    }
}

impl<D: Transfer> Plugin<D> {
    /// Lends another process of the device `bytes` of what graphs of a pool do not keep between launches. `stream` is
    /// one of this process's that does not capture; the block is that stream's here. Waits for the device, so that the
    /// launches so far have completed. [`Plugin::begin_borrowing`] says when a pool lends nothing.
    ///
    /// Until the loan is back no graph of the pool can be launched
    /// ([`BlocksLent`](regraph::PoolRefusal::BlocksLent)). The loan is back when the other process has given it back or
    /// has ended; [`Plugin::recall_loan`] asks for it, and the next launch finds out by itself. Whole pieces of memory are mapped there: the other process is trusted to leave alone
    /// what lies beside the loan, and to give it back before it ends where its work may outlive it (under MPS, or
    /// where processes that it has forked keep the driver's files open).
    ///
    /// # Errors
    /// [`Error::NothingLent`] where the pool has no such place now, and where a checkpoint was taken of it;
    /// [`DeviceCaptures`](regraph::Error::DeviceCaptures) where something captures, which a wait would ruin; those of
    /// [`Plugin::share`] and [`Plugin::begin_borrowing`].
    pub fn lend_to_process(
        &self,
        device: u32,
        key: PoolKey,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Loan, Error> {
        self.settle_loans();
        let route = self.begin_borrowing(device, key, Lent::Temporary)?;
        let id = LoanId(self.sharing.loans.make(device, key));
        let lent = self.lend_block(device, key, bytes, stream);
        let block = lent.as_ref().ok().map(|(block, ..)| (block.id, block.address));
        let ended = self.end_borrowing(device, key, route);
        self.sharing.loans.offer(id.0, block);
        let (_, memory, offset) = lent?;
        ended?;
        let (first, second) = key;
        self.device(device)?.engine.host().tell(Level::Debug, || {
            format!("pool ({first}, {second}) lends {bytes} bytes of its graphs' memory to another process")
        });
        let handle = LoanHandle { number: id.0, offset, bytes, memory }.write();
        Ok(Loan { id, handle, bytes })
    }

    /// A lent block, the handle of the memory that it lies on, and its place there.
    fn lend_block(
        &self,
        device: u32,
        key: PoolKey,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<(Block, Vec<u8>, u64), Error> {
        let device = self.device(device)?;
        let block = {
            let _told = tell_later();
            // No checkpoint is taken until the block is there.
            let _begins = device.begins_captures();
            let checkpointed = |it: &Private| it.checkpointed;
            let checkpointed = device.pools().private.get(&key).is_some_and(checkpointed);
            match checkpointed {
                true => None,
                false => device.borrow(key, Lent::Temporary, (bytes, stream))?,
            }
        };
        let block = block.ok_or(Error::NothingLent { key, bytes })?;
        device.enter_lent(&block, bytes, stream, key);
        // No graph is launched from now on. The other process waits for none of this one's streams, so what was
        // launched before completes first.
        let waited = device.wait_for_all("lend_to_process");
        let shared = waited.and_then(|()| self.share(block.address));
        let shared = shared.and_then(|shared| match Handle::read(&shared.handle)? {
            Handle::Pieces(..) => Ok(shared),
            Handle::Allocation(_) => {
                let why = "loans are of memory that is mapped; set expandable_segments:True";
                Err(Error::NotOffered { why: why.to_owned() })
            }
        });
        match shared {
            Ok(shared) => Ok((block, shared.handle, shared.offset)),
            Err(error) => {
                device.free(block.address)?;
                Err(error)
            }
        }
    }

    /// Asks the process that has a loan for it, and waits at most so long until it is back. A loan that no process has
    /// taken is back at once. Says whether it is; its block is freed then.
    ///
    /// # Errors
    /// [`Error::UnknownLoan`].
    pub fn recall_loan(&self, loan: LoanId, patience: Duration) -> Result<bool, Error> {
        let loans = &self.sharing.loans;
        let own = (loans.process == std::process::id()).then_some(loans);
        let back = own.and_then(|loans| loans.recall(loan.0, patience));
        self.settle_loans();
        back.ok_or(Error::UnknownLoan { call: "recall_loan" })
    }

    /// Where a loan of this process is.
    ///
    /// # Errors
    /// [`Error::UnknownLoan`].
    pub fn loan_state(&self, loan: LoanId) -> Result<LoanState, Error> {
        self.sharing.loans.state(loan.0).ok_or(Error::UnknownLoan { call: "loan_state" })
    }

    /// Frees the blocks of loans that are back. Costs a look at a counter where there are none.
    pub(crate) fn settle_loans(&self) {
        let loans = &self.sharing.loans;
        if !loans.has_back() {
            return;
        }
        // What is told of it may make any call, this one too.
        let _told = tell_later();
        loans.settle(|&Row { device, key: (first, second), block, .. }| {
            let (Ok(device), Some((block, address))) = (self.device(device), block) else { return };
            // A host that has freed it by its address has done what is to be done.
            if device.blocks.get(address) == Some(block) {
                let _ = device.free(address);
            }
            device.engine.host().tell(Level::Debug, || {
                format!("a loan of pool ({first}, {second}) to another process is back")
            });
        });
    }

    /// Refuses a call about a pool of which a loan is not over.
    pub(crate) fn require_no_loan(
        &self,
        device: u32,
        key: PoolKey,
        call: &'static str,
    ) -> Result<(), Error> {
        match self.sharing.loans.are_out(device, key) {
            true => Err(Error::OnLoan { call, key }),
            false => Ok(()),
        }
    }

    /// Takes a loan that another process has offered, for kernels of a device; what it holds is undefined. It is this
    /// process's until [`Plugin::give_back_loan`], but the lender waits for it from when it asks on
    /// ([`Plugin::wait_for_recall`]).
    ///
    /// # Errors
    /// [`Error::Handle`]; [`Error::NotTaken`]; those of [`Plugin::open_shared`].
    pub fn take_loan(&self, device: u32, handle: &[u8]) -> Result<TakenLoan, Error> {
        let LoanHandle { number, offset, bytes, memory } = LoanHandle::read(handle)?;
        let Handle::Pieces(sender, pieces) = Handle::read(&memory)? else {
            return Err(HandleError::Damaged("a loan of memory that cannot be lent").into());
        };
        let whole = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.bytes));
        if whole.is_none() || offset.checked_add(bytes) > whole {
            return Err(HandleError::Damaged("a loan that lies beyond its memory").into());
        }
        // Before it is mapped: no process maps what another one has.
        let asked = Taken::ask(&sender, number);
        let stream = asked.map_err(|error| Error::NotTaken { why: error.to_string() })?;
        let opened = match self.open_shared(device, &memory) {
            Ok(opened) => opened,
            Err(error) => {
                // Where the lender does not hear of it, this process has it until its end.
                say(&stream, BACK);
                return Err(error);
            }
        };
        let process = std::process::id();
        let id = self.sharing.add_taken(Taken { process, stream, opened: opened.id });
        Ok(TakenLoan { id, address: opened.address + offset, bytes })
    }

    /// Whether the lender of a loan has asked for it, or has ended, after a wait of at most so long. A lender that has
    /// ended waits for nothing, and the memory stays this process's until it gives it back. The lender's end is noticed
    /// once all processes that it has forked have ended too, or run another program.
    ///
    /// # Errors
    /// [`Error::UnknownLoan`].
    pub fn wait_for_recall(&self, loan: LoanId, patience: Duration) -> Result<bool, Error> {
        let taken = self.sharing.taken(loan);
        let taken = taken.ok_or(Error::UnknownLoan { call: "wait_for_recall" })?;
        Ok(taken.is_recalled(patience))
    }

    /// Whether this process has taken a loan and not given it back.
    pub fn has_loan(&self, loan: LoanId) -> bool {
        self.sharing.taken(loan).is_some()
    }

    /// Gives a loan back, after a wait for all devices. Work that uses it must have been submitted before, and no graph
    /// that does may be launched any more.
    ///
    /// # Errors
    /// [`DeviceCaptures`](regraph::Error::DeviceCaptures) where something captures, which a wait would ruin, and the
    /// driver's: the loan is this process's still. [`Error::UnknownLoan`].
    pub fn give_back_loan(&self, loan: LoanId) -> Result<(), Error> {
        const CALL: &str = "give_back_loan";
        self.sharing.taken(loan).ok_or(Error::UnknownLoan { call: CALL })?;
        self.devices().try_for_each(|device| device.wait_for_all(CALL))?;
        let taken = self.sharing.remove_taken(loan).ok_or(Error::UnknownLoan { call: CALL })?;
        let closed = self.close_shared(taken.opened);
        // The work is over in any case. A lender that has ended waits for nothing.
        say(&taken.stream, BACK);
        closed
    }
}
