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
use regraph::engine::Lent;
use regraph::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, Rank};
use regraph::tell_later;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{getpid, pidfd_open, PidfdFlags};

use super::fetch::connected;
use super::handle::{Handle, LoanHandle, Sender};
use super::offer::{is_trusted, GONE, HERE, PATIENCE};
use super::{Error, HandleError, OpenedId, Plugin};
use crate::pools::PoolKey;

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

/// Whether a step can be taken later.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

enum Place {
    Offered,
    Taken(Arc<Borrower>),
    Back,
}

struct Row {
    device: u32,
    /// Of the lent block.
    address: u64,
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
pub(super) struct Loans {
    table: Mutex<Table>,
    changed: Condvar,
    /// How many are back whose blocks are not freed.
    back: AtomicUsize,
}

impl Loans {
    pub(super) fn new() -> Self {
        let table = Mutex::new(Rank::Loans, Table::default());
        Self { table, changed: Condvar::new(), back: AtomicUsize::new(0) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    fn add(&self, device: u32, address: u64) -> u64 {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.rows.insert(number, Row { device, address, place: Place::Offered });
        number
    }

    /// Gives a loan to a process, if none has had it.
    fn give(&self, number: u64, borrower: Borrower) -> bool {
        let mut table = self.table();
        let row = table.rows.get_mut(&number).filter(|row| matches!(row.place, Place::Offered));
        row.map(|row| row.place = Place::Taken(Arc::new(borrower))).is_some()
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
                Place::Offered => self.note_back(row),
                Place::Taken(borrower) => {
                    if !std::mem::replace(&mut asked, true) {
                        // To a process that has ended, or has not read what it was sent before, nothing is to be said.
                        let _ = (&borrower.stream).write(&[RECALL]);
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

    /// Has the blocks of all loans that are back freed: by `free`, which gets device and address and is called with no
    /// lock held, or by another thread that is at it.
    fn settle(&self, free: impl Fn(u32, u64)) {
        if self.back.load(Ordering::Acquire) == 0 {
            return;
        }
        let back: Vec<Row> = {
            let rows = &mut self.table().rows;
            let is_back = |(number, row): (&u64, &Row)| row.is_back().then_some(*number);
            let numbers: Vec<u64> = rows.iter().filter_map(is_back).collect();
            numbers.iter().filter_map(|number| rows.remove(number)).collect()
        };
        back.iter().for_each(|row| free(row.device, row.address));
        let mut table = self.table();
        self.back.fetch_sub(back.len(), Ordering::Release);
        self.changed.notify_all();
        while self.back.load(Ordering::Acquire) > 0 && !table.rows.values().any(Row::is_back) {
            table = self.changed.wait(table);
        }
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
        let given = loans.give(number, Borrower { stream: stream.try_clone()?, process, silent });
        // Where this does not arrive, the process has the loan until its end.
        let mut stream = stream;
        stream.write_all(&[if given { HERE } else { GONE }])?;
        Ok(true)
    }
}

/// A loan that this process has taken.
pub(super) struct Taken {
    stream: UnixStream,
    opened: OpenedId,
    recalled: AtomicBool,
}

impl Taken {
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
        if let Err(error) = stream.read_exact(&mut word) {
            // The answer may come later, and would be that this process has the loan.
            let _ = stream.write_all(&[BACK]);
            return Err(error);
        }
        if word != [HERE] {
            let why = "it was called back, or another process has taken it; ask the lender for another one";
            return Err(io::Error::other(why));
        }
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Whether the lender has asked for it, or has ended, after a wait of at most so long.
    fn is_recalled(&self, patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now().checked_add(patience);
        while !self.recalled.load(Ordering::Relaxed) {
            match (&self.stream).read(&mut [0]) {
                Err(error) if is_early(&error) => {}
                // Whatever the lender says is that; and that it says nothing more.
                _ => self.recalled.store(true, Ordering::Relaxed),
            }
            if self.recalled.load(Ordering::Relaxed) {
                break;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
            // Whole milliseconds, so that the time is up afterwards.
            let left = left.map(|left| left + Duration::from_millis(1));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

impl<D: Transfer> Plugin<D> {
    /// Lends another process of the device `bytes` of what graphs of a pool do not keep between launches. `stream` is
    /// one of this process's that does not capture; the block is that stream's here. Waits for the device, so that the
    /// launches so far have completed. [`Plugin::begin_borrowing`] says when a pool lends nothing.
    ///
    /// Until the loan is back no graph of the pool can be launched ([`BlocksLent`](regraph::PoolRefusal::BlocksLent)). The loan is
    /// back when the other process has given it back or has ended; [`Plugin::recall_loan`] asks for it, and the next
    /// launch finds out by itself. Whole pieces of memory are mapped there: the other process is trusted to leave alone
    /// what lies beside the loan. What a process that was forked from it, and did not run another program since, keeps
    /// open of the driver's may keep work of it going after its end.
    ///
    /// # Errors
    /// [`Error::NothingLent`] where the pool has no such place now; [`DeviceCaptures`](regraph::Error::DeviceCaptures) where something
    /// captures, which a wait would ruin; those of [`Plugin::share`] and [`Plugin::begin_borrowing`].
    pub fn lend_to_process(
        &self,
        device: u32,
        key: PoolKey,
        bytes: u64,
        stream: StreamHandle,
    ) -> Result<Loan, Error> {
        self.settle_loans();
        let route = self.begin_borrowing(device, key, Lent::Temporary)?;
        let lent = self.lend_block(device, key, bytes, stream);
        self.end_borrowing(device, key, route)?;
        let (address, memory, offset) = lent?;
        let id = LoanId(self.sharing.loans.add(device, address));
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
    ) -> Result<(u64, Vec<u8>, u64), Error> {
        let device = self.device(device)?;
        let block = device.borrow(key, Lent::Temporary, (bytes, stream))?;
        let block = block.ok_or(Error::NothingLent { key, bytes })?;
        device.enter_lent(&block, bytes, stream, key);
        // No graph is launched from now on. The other process waits for none of this one's streams, so what was
        // launched before completes first.
        let waited = device.wait_for_all("lend_to_process");
        let shared =
            waited.and_then(|()| self.share(block.address)).and_then(|shared| match Handle::read(
                &shared.handle,
            )? {
                Handle::Pieces(..) => Ok(shared),
                Handle::Allocation(_) => {
                    let why = "loans are of memory that is mapped; set expandable_segments:True";
                    Err(Error::NotOffered { why: why.to_owned() })
                }
            });
        match shared {
            Ok(shared) => Ok((block.address, shared.handle, shared.offset)),
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
        let back = self.sharing.loans.recall(loan.0, patience);
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

    /// Frees the blocks of loans that are back.
    pub(crate) fn settle_loans(&self) {
        self.sharing.loans.settle(|device, address| {
            let _told = tell_later();
            // A host that has freed it by its address has done what is to be done.
            let _ = self.device(device).and_then(|device| device.free(address));
        });
    }

    /// Takes a loan that another process has offered, for kernels of a device; what it holds is undefined. It is this
    /// process's until [`Plugin::give_back_loan`], but the lender waits for it from when it asks on
    /// ([`Plugin::wait_for_recall`]).
    ///
    /// # Errors
    /// [`Error::Handle`]; [`Error::NotTaken`]; those of [`Plugin::open_shared`].
    pub fn take_loan(&self, device: u32, handle: &[u8]) -> Result<TakenLoan, Error> {
        let LoanHandle { number, offset, bytes, memory } = LoanHandle::read(handle)?;
        let Handle::Pieces(sender, _) = Handle::read(&memory)? else {
            return Err(HandleError::Damaged("a loan of memory that cannot be lent").into());
        };
        // First: what is mapped is this process's then.
        let asked = Taken::ask(&sender, number);
        let stream = asked.map_err(|error| Error::NotTaken { why: error.to_string() })?;
        let opened = match self.open_shared(device, &memory) {
            Ok(opened) => opened,
            Err(error) => {
                // Where the lender does not hear of it, this process has it until its end.
                let _ = (&stream).write_all(&[BACK]);
                return Err(error);
            }
        };
        let recalled = AtomicBool::new(false);
        let id = self.sharing.add_taken(Taken { stream, opened: opened.id, recalled });
        Ok(TakenLoan { id, address: opened.address + offset, bytes })
    }

    /// Whether the lender of a loan has asked for it, or has ended, after a wait of at most so long. What has ended
    /// waits for nothing: the memory stays this process's until it gives it back.
    ///
    /// # Errors
    /// [`Error::UnknownLoan`]; [`Error::NotTaken`] where the system does not let it wait.
    pub fn wait_for_recall(&self, loan: LoanId, patience: Duration) -> Result<bool, Error> {
        let taken =
            self.sharing.taken(loan).ok_or(Error::UnknownLoan { call: "wait_for_recall" })?;
        taken.is_recalled(patience).map_err(|error| Error::NotTaken { why: error.to_string() })
    }

    /// Gives a loan back, after a wait for all devices. Work that uses it must have been submitted before, and no graph
    /// that does may be launched any more.
    ///
    /// # Errors
    /// [`DeviceCaptures`](regraph::Error::DeviceCaptures) where something captures, which a wait would ruin, and the driver's: the loan
    /// is this process's still. [`Error::UnknownLoan`].
    pub fn give_back_loan(&self, loan: LoanId) -> Result<(), Error> {
        const CALL: &str = "give_back_loan";
        self.sharing.taken(loan).ok_or(Error::UnknownLoan { call: CALL })?;
        self.devices().try_for_each(|device| device.wait_for_all(CALL))?;
        let taken = self.sharing.remove_taken(loan).ok_or(Error::UnknownLoan { call: CALL })?;
        self.close_shared(taken.opened)?;
        // A lender that has ended waits for nothing.
        let _ = (&taken.stream).write_all(&[BACK]);
        Ok(())
    }
}
