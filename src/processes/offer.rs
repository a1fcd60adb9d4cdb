//! The sender's side: descriptors that receivers may copy, and for how long.
//!
//! A receiver takes descriptors by their numbers, where the system lets it (`pidfd_getfd`). A number alone says
//! nothing: it may be another file's by then, or the process another one. So the sender keeps a *board*, a file in
//! memory that says which export each number stands for now. It begins with the sender's secret. An export is taken off
//! the board before its descriptor is closed, so a number that stands there after it was copied was right when it was
//! copied.
//!
//! Where the system forbids that, a receiver asks for the exports by their serial numbers at a socket, which a thread
//! of the sender serves. It waits for all of them at once, so that one that is silent or slow holds up no other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::heap::{Export, SharedPiece};
use crate::sync::{AtomicBool, Mutex, Ordering, Rank};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{memfd_create, MemfdFlags};
use rustix::net::{sendmsg, sockopt, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::rand::{getrandom, GetRandomFlags};

use super::connection::{give_loan, is_early, LoanTaker, LOAN};
use super::handle::{Sender, SentPiece};
use super::loans::LoanTable;

/// Descriptors in one message; the system allows no more than 253.
pub(super) const IN_ONE: usize = 64;
/// The most that one request may ask for.
const ASKED: u32 = 1 << 16;
/// How long a whole exchange may take, on either side.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The most receivers that are served at once, and how long one may take while there are so many.
const PEERS: usize = 128;
const CROWDED: Duration = Duration::from_millis(100);
/// How long the thread rests when the system has no room for a receiver.
const REST: Duration = Duration::from_millis(20);
/// What comes with descriptors, and what comes where one of them is gone.
pub(super) const HERE: u8 = 1;
pub(super) const GONE: u8 = 0;

/// A number, as it is sent.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Where a number's entry on a board is.
pub(super) fn entry(number: i32) -> u64 {
    16 + 8 * u64::from(number.unsigned_abs())
}

/// Whether who is at the other end is the same user.
pub(super) fn is_trusted(stream: &UnixStream) -> bool {
    let peer = sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// What is on offer.
struct Offered {
    process: u32,
    board: Option<File>,
    exports: Mutex<BTreeMap<u64, Weak<Export>>>,
    loans: Arc<LoanTable>,
    closing: AtomicBool,
}

impl Offered {
    fn post(&self, number: i32, serial: u64) -> io::Result<()> {
        let Some(board) = &self.board else { return Ok(()) };
        board.write_all_at(&serial.to_ne_bytes(), entry(number))
    }

    /// An export is about to be closed.
    fn withdraw(&self, number: i32, serial: u64) {
        // A process that was forked has a copy of the table, and the very board of its parent.
        if self.process == std::process::id() {
            // A page that was written before can be written again.
            let _ = self.post(number, 0);
            self.exports.lock().remove(&serial);
        }
    }

    /// The exports with these serial numbers that are not gone.
    fn find(&self, serials: &[u8]) -> Vec<Arc<Export>> {
        let known = self.exports.lock();
        let find = |bytes| known.get(&number(bytes)).and_then(Weak::upgrade);
        // All that are found leave the lock: dropping the last holder of one takes it.
        serials.chunks(8).filter_map(find).collect()
    }

    /// Sends the exports with these serial numbers, or word that one is gone; whether they were sent.
    fn send(&self, serials: &[u8], to: &UnixStream) -> io::Result<bool> {
        // They stay open until they are sent.
        let exports = self.find(serials);
        let found = exports.len() == serials.len() / 8;
        let descriptors: Vec<BorrowedFd<'_>> =
            exports.iter().map(|export| export.descriptor().as_fd()).collect();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(IN_ONE))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if found {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let word = [if found { HERE } else { GONE }];
        sendmsg(to, &[IoSlice::new(&word)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(found)
    }
}

/// What a receiver asks for.
enum Question {
    /// It has not said.
    Nothing,
    /// So many exports, of those that were not sent.
    Exports(usize),
    /// A loan, whose number comes next.
    Loan,
    /// The loan of this number. A descriptor of its process comes next, with a byte.
    LoanOf(u64),
}

/// A receiver that asks at the socket.
struct Peer {
    stream: UnixStream,
    since: Instant,
    asked: Question,
    /// What it has sent of its next message.
    message: Vec<u8>,
}

impl Peer {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        if !is_trusted(&stream) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(Self { stream, since: Instant::now(), asked: Question::Nothing, message: Vec::new() })
    }

    /// The length of its next message, in bytes.
    fn expected(&self) -> usize {
        match self.asked {
            Question::Nothing => 4,
            Question::Exports(left) => 8 * left.min(IN_ONE),
            Question::Loan => 8,
            Question::LoanOf(_) => 1,
        }
    }

    /// What the next step waits for.
    fn waits_for(&self) -> PollFlags {
        match self.message.len() == self.expected() {
            true => PollFlags::OUT,
            false => PollFlags::IN,
        }
    }

    /// Reads what has come, and answers a message that is whole; false once nothing more is to be done.
    fn step(&mut self, offered: &Offered) -> io::Result<bool> {
        if let Question::LoanOf(number) = self.asked {
            return give_loan(&self.stream, number, &offered.loans).map(|()| false);
        }
        let missing = self.expected() - self.message.len();
        if missing > 0 {
            let mut read = [0; 8 * IN_ONE];
            let count = self.stream.read(&mut read[..missing])?;
            self.message.extend(&read[..count]);
            if count < missing {
                return Ok(count > 0);
            }
        }
        let goes_on = match &mut self.asked {
            Question::Nothing => {
                let count = number(&self.message) as u32;
                self.asked = match count {
                    LOAN => Question::Loan,
                    _ => Question::Exports(count as usize),
                };
                count == LOAN || (1..=ASKED).contains(&count)
            }
            Question::Exports(left) => {
                let found = offered.send(&self.message, &self.stream)?;
                *left -= self.message.len() / 8;
                found && *left > 0
            }
            Question::Loan | Question::LoanOf(_) => {
                self.asked = Question::LoanOf(number(&self.message));
                true
            }
        };
        self.message.clear();
        Ok(goes_on)
    }

    /// Takes a step of the exchange; false where the exchange is over: it is done, the receiver has gone away, or its
    /// request is not valid.
    fn goes_on(&mut self, offered: &Offered) -> bool {
        self.step(offered).unwrap_or_else(|error| is_early(&error))
    }
}

/// A process's offers to others, with the thread that serves them.
pub(super) struct Offers {
    sender: Sender,
    offered: Arc<Offered>,
}

impl Offers {
    /// Nothing yet, and a socket.
    pub(super) fn new(loans: &Arc<LoanTable>) -> io::Result<Self> {
        let process = std::process::id();
        let mut secret = [0; 16];
        let mut filled = 0;
        while filled < secret.len() {
            filled += getrandom(&mut secret[filled..], GetRandomFlags::empty())?;
        }
        // Without one, receivers use the socket.
        let board = memfd_create("regraph-share", MemfdFlags::CLOEXEC).map(File::from).ok();
        let board = board.filter(|board| board.write_all_at(&secret, 0).is_ok());
        let number = board.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let sender = Sender::new(secret, process, number);
        let listener = UnixListener::bind_addr(&sender.socket()?)?;
        listener.set_nonblocking(true)?;
        let offered = Arc::new(Offered {
            process,
            board,
            exports: Mutex::new(Rank::Exports, BTreeMap::new()),
            loans: Arc::clone(loans),
            closing: AtomicBool::new(false),
        });
        let serving = Arc::clone(&offered);
        let thread = std::thread::Builder::new().name("regraph-share".to_owned());
        thread.spawn(move || serve_all(&listener, &serving))?;
        Ok(Self { sender, offered })
    }

    read!(sender: Sender);

    /// Whether this is the process that they were made in.
    pub(super) fn is_own(&self) -> bool {
        self.offered.process == std::process::id()
    }

    /// Offers a piece, until its memory goes.
    pub(super) fn offer(&self, piece: &SharedPiece) -> io::Result<SentPiece> {
        let SharedPiece { bytes, export } = piece;
        let (number, serial) = (export.descriptor().as_raw_fd(), export.serial());
        if let std::collections::btree_map::Entry::Vacant(vacant) =
            self.offered.exports.lock().entry(serial)
        {
            let offered = Arc::clone(&self.offered);
            // Else other offers would not be taken back.
            if !export.before_close(move || offered.withdraw(number, serial)) {
                return Err(io::Error::other("the memory is offered by another allocator"));
            }
            vacant.insert(Arc::downgrade(export));
        }
        self.offered.post(number, serial)?;
        Ok(SentPiece::new(*bytes, serial, number))
    }
}

impl Drop for Offers {
    fn drop(&mut self) {
        self.offered.closing.store(true, Ordering::Release);
        if self.is_own() {
            // Wakes the thread, which then ends.
            let _ = self.sender.socket().and_then(|address| UnixStream::connect_addr(&address));
        }
    }
}

/// Serves receivers until the offers close.
fn serve_all(listener: &UnixListener, offered: &Offered) {
    let mut peers: Vec<Peer> = Vec::new();
    loop {
        let full = peers.len() >= PEERS;
        let patience = if full { CROWDED } else { PATIENCE };
        let now = Instant::now();
        peers.retain(|peer| now.duration_since(peer.since) < patience);
        let full = peers.len() >= PEERS;
        // They are in the order in which they came.
        let first =
            peers.first().map(|peer| patience.saturating_sub(now.duration_since(peer.since)));
        let borrowers = offered.loans.borrowers();
        let ready = match wait(listener, &peers, &borrowers, full, first) {
            Ok(ready) => ready,
            Err(error) => {
                if error.kind() != ErrorKind::Interrupted {
                    std::thread::sleep(REST);
                }
                continue;
            }
        };
        if offered.closing.load(Ordering::Acquire) {
            return;
        }
        let (of_peers, of_borrowers) = ready[1..].split_at(peers.len());
        for ((number, borrower), ready) in borrowers.iter().zip(of_borrowers.chunks(2)) {
            offered.loans.hear(*number, borrower, ready[0], ready[1]);
        }
        let mut is_ready = of_peers.iter();
        peers.retain_mut(|peer| is_ready.next() != Some(&true) || peer.goes_on(offered));
        if !ready[0] || full {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => peers.extend(Peer::new(stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Too many open files, for instance: some may be closed soon.
            Err(_) => std::thread::sleep(REST),
        }
    }
}

/// Waits until something can be done, but no longer than until the first peer's time is up; whether there is
/// a new receiver, which peers can go on, and of each borrower whether a word came and whether its process has ended.
fn wait(
    listener: &UnixListener,
    peers: &[Peer],
    borrowers: &[(u64, Arc<LoanTaker>)],
    full: bool,
    first: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let new = if full { PollFlags::empty() } else { PollFlags::IN };
    let mut all = vec![PollFd::new(listener, new)];
    all.extend(peers.iter().map(|peer| PollFd::new(&peer.stream, peer.waits_for())));
    all.extend(borrowers.iter().flat_map(|(_, borrower)| borrower.waits_for()));
    // Whole milliseconds, so that the time is up afterwards.
    let first = first.map(|left| left + Duration::from_millis(1));
    let timeout = first.and_then(|left| Timespec::try_from(left).ok());
    poll(&mut all, timeout.as_ref())?;
    Ok(all.iter().map(|one| !one.revents().is_empty()).collect())
}
